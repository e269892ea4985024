"""Lengths of texts, from their bytes: what `secid check` shows of queries, positives and negatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secid.arrays import Index
from secid.pool.texts import TextStore, pieces
from secid.results.check import Lengths, Spread

CHUNK_TEXTS = 4096
TOKENS_BY = "bytes"
"""How tokens are counted, a kind of pages.check_page.TOKENS."""
ASCII_PER_TOKEN, TWO_BYTE_PER_TOKEN = 4.5, 2.0
"""Characters of a token. ASCII: WordPiece gives 4.4 to 5.2 on abstracts and short articles in English. Two bytes in
UTF-8 are accents, Greek, Cyrillic, Hebrew and Arabic. The others are mostly in scripts without spaces, of which
WordPiece makes a token of each character."""
CONTINUES, TWO_BYTES, THREE_BYTES = 0x80, 0xC0, 0xE0
"""First byte, in UTF-8, of what continues a character and of characters of two and of more bytes."""


@dataclass(frozen=True)
class TextLengths:
    """(n,) characters and estimated tokens of each text of a store, special tokens left out."""

    characters: Index
    tokens: Index


def text_lengths(store: TextStore, tick: Callable[[int], None] = lambda n: None) -> TextLengths:
    """Lengths of all texts. tick: called with the number of texts done."""
    characters, tokens = np.zeros(len(store), np.int64), np.zeros(len(store), np.int64)
    for start, stop in pieces(len(store), CHUNK_TEXTS, store.lengths):
        chunk = store.packed(start, stop)
        codes = np.frombuffer(chunk.data, np.uint8)
        ends = chunk.ends()
        starts = ends - chunk.lengths

        def count(marks: npt.NDArray[np.bool_], starts: Index = starts, ends: Index = ends) -> Index:
            sums: Index = np.concatenate([[0], np.cumsum(marks)])
            counts: Index = sums[ends] - sums[starts]
            return counts

        n_ascii = count(codes < CONTINUES)
        n_two = count((codes >= TWO_BYTES) & (codes < THREE_BYTES))
        n_more = count(codes >= THREE_BYTES)
        characters[start:stop] = n_ascii + n_two + n_more
        tokens[start:stop] = np.ceil(n_ascii / ASCII_PER_TOKEN + n_two / TWO_BYTE_PER_TOKEN + n_more)
        tick(stop - start)
    return TextLengths(characters, tokens)


def spread(values: Index) -> Spread:
    """Smallest, median, 95th percentile and largest; at least one value."""
    low, middle, high, top = np.percentile(values, [0, 50, 95, 100]).tolist()
    return Spread(minimum=low, median=middle, p95=high, maximum=top)


def lengths_of(lengths: TextLengths, ids: Index) -> Lengths:
    """Lengths of these distinct texts; at least one."""
    return Lengths(n_texts=len(ids), characters=spread(lengths.characters[ids]), tokens=spread(lengths.tokens[ids]))
