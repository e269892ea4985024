"""Mine hard negatives for queries from candidate passages, by several methods. Texts are encoded once."""
