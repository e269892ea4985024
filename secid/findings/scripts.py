"""Negatives in a script that the encoder's tokenizer does not know: their rows mean little. Source: METHOD 14."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Index
from secid.findings.openings import chunks
from secid.pool.texts import TextStore

UnknownShares = Callable[[list[str]], npt.NDArray[np.float64]]
"""Texts to the share of each one's letters that a tokenizer does not know."""
NO_TOKENIZER = "no_tokenizer"
READ_CHARACTERS = 300
"""Of each passage: enough to see its script."""
UNKNOWN = 0.5
"""All-MiniLM-L6-v2 knows all letters of English, 99.9 % of German, a third of Chinese, and next to none of Hindi, Thai
and Arabic (docs/findings.md)."""


def unknown_scripts(passages: TextStore, ids: Index, shares: UnknownShares) -> Flags:
    """(n_passages,) which of the passages with these distinct ids the tokenizer does not know; False for others.

    ASCII letters are known to every tokenizer, so that a passage mostly of them is not tokenised again.
    """
    flags = np.zeros(len(passages), np.bool_)
    for part, texts in chunks(passages, ids):
        heads = [text[:READ_CHARACTERS] for text in texts]
        foreign = np.array([_mostly_beyond_ascii(head) for head in heads])
        if foreign.any():
            candidates = [head for head, is_foreign in zip(heads, foreign, strict=True) if is_foreign]
            flags[part[foreign]] = shares(candidates) >= UNKNOWN
    return flags


def _mostly_beyond_ascii(text: str) -> bool:
    """Whether it has as many characters beyond ASCII as ASCII letters: else most of its letters are known."""
    if text.isascii():
        return False
    ascii_part = text.encode("ascii", "ignore")
    return len(text) - len(ascii_part) >= sum(map(ascii_part.lower().count, ASCII_LETTERS))


ASCII_LETTERS = [bytes([code]) for code in range(ord("a"), ord("z") + 1)]
