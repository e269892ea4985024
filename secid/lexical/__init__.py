"""Texts to tokens, document frequencies and coverage (METHOD 2, 4)."""

from secid.lexical.coverage import DocumentFrequencies, Lexicon
from secid.lexical.tokens import SPLITTERS, TokenSets, distinct_tokens, term_keys, token_sets, token_stream

__all__ = [
    "SPLITTERS",
    "DocumentFrequencies",
    "Lexicon",
    "TokenSets",
    "distinct_tokens",
    "term_keys",
    "token_sets",
    "token_stream",
]
