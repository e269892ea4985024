"""Texts to tokens, document frequencies and coverage (METHOD 2, 4)."""

from secid.lexical.coverage import Lexicon
from secid.lexical.frequencies import DocumentFrequencies
from secid.lexical.tokens import SPLITTERS, Index, Keys, TokenSets, splitter, term_keys, token_sets, token_stream

__all__ = [
    "SPLITTERS",
    "DocumentFrequencies",
    "Index",
    "Keys",
    "Lexicon",
    "TokenSets",
    "splitter",
    "term_keys",
    "token_sets",
    "token_stream",
]
