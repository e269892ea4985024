"""Sixteen-byte keys of texts, found in sorted order without Python per key."""

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
    """(n,) int64, the place of each key among sorted ones, -1 where it is not there. All 16 bytes count.

    high, low       : (n,) words of the keys looked for; fastest when sorted, as memory is then read in order.
    in_high, in_low : (m,) words of the keys looked in, sorted by both.
    """
    found = np.full(len(high), -1, dtype=np.int64)
    place = np.searchsorted(in_high, high)
    pending = np.flatnonzero(place < len(in_high))
    while len(pending):  # one round, but for keys that share their first eight bytes
        at = place[pending]
        same_high = in_high[at] == high[pending]
        hit = same_high & (in_low[at] == low[pending])
        found[pending[hit]] = at[hit]
        pending = pending[same_high & ~hit]
        place[pending] += 1
        pending = pending[place[pending] < len(in_high)]
    return found


def sha256_keys(texts: Sequence[str]) -> Keys:
    """(n, 16) uint8, the first half of each text's SHA-256 (UTF-8): 128 bits tell texts apart for good."""
    digests = b"".join(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16] for text in texts)
    return np.frombuffer(digests, dtype=np.uint8).reshape(len(texts), 16)
