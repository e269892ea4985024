"""Mine sources of hard negatives from queries and candidates, by several methods over one encoding."""
