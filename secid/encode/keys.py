"""Sixteen-byte keys of texts, looked up in sorted arrays without a Python loop."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint8]
Words = NDArray[np.uint64]


def key_words(keys: Keys) -> tuple[Words, Words]:
    """The two halves of 16-byte keys (n, 16) as numbers that sort as the bytes do: (n,) uint64 each."""
    words = np.ascontiguousarray(keys).view(">u8").astype(np.uint64)
    return words[:, 0], words[:, 1]


def find(high: Words, low: Words, in_high: Words, in_low: Words) -> NDArray[np.int64]:
    """(n,) int64, the position of each key among sorted ones; -1 if it is missing. All 16 bytes are compared.

    high, low       : (n,) words of the keys to find; fastest when sorted, because memory is then read in order.
    in_high, in_low : (m,) words of the stored keys, sorted by both.
    """
    positions = np.full(len(high), -1, dtype=np.int64)
    place = np.searchsorted(in_high, high)
    pending = np.flatnonzero(place < len(in_high))
    while len(pending):  # one round, except for keys that share their first eight bytes
        at = place[pending]
        same_high = in_high[at] == high[pending]
        hit = same_high & (in_low[at] == low[pending])
        positions[pending[hit]] = at[hit]
        pending = pending[same_high & ~hit]
        place[pending] += 1
        pending = pending[place[pending] < len(in_high)]
    return positions


def sha256_keys(texts: Sequence[str]) -> Keys:
    """(n, 16) uint8, the first half of each text's SHA-256 (UTF-8): 128 bits rule out collisions in practice."""
    digests = b"".join([hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts])
    return np.frombuffer(digests, dtype=np.uint8).reshape(len(texts), 32)[:, :16]
