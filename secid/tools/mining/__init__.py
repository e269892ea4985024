"""Queries and candidates to sources of hard negatives, by several methods over one encoding."""
