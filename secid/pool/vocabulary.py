"""Token sets of passages, cut to the tokens of the queries: no coverage asks for any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from secid.arrays import Index
from secid.pool.frequencies import DocumentFrequencies
from secid.pool.tokens import MULTIPLIER, Keys, distinct_in_blocks

SLOTS_PER_KEY = 4
"""Slots for each key of the vocabulary, at least: one key in nine then finds its slot taken and is looked up twice."""


@dataclass(frozen=True)
class Cut:
    """Token sets of n texts under a vocabulary of V tokens.

    columns : vocabulary places of each text's tokens, sorted within a text.   counts : (n,) how many each text has.
    others  : frequencies of all other tokens among the counted texts; its n_documents is 0.
    """

    columns: npt.NDArray[np.int32]
    counts: Index
    others: DocumentFrequencies

    def __len__(self) -> int:
        return len(self.counts)


class Vocabulary:
    """Sorted distinct token keys, made for finding many at once. keys : (V,)."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        bits = max(1, SLOTS_PER_KEY * len(keys) - 1).bit_length()
        self._shift = np.uint64(64 - bits)
        # Place of one of the keys that belong in each slot: a hash table without chains.
        self._slots = np.zeros(1 << bits, np.uint32)
        slots = self._slot_of(keys)
        self._slots[slots] = np.arange(len(keys), dtype=np.uint32)
        self._displaced = np.flatnonzero(self._slots[slots] != np.arange(len(keys)))

    def __len__(self) -> int:
        return len(self.keys)

    def cut(self, keys: Keys, counts: Index, counted: npt.NDArray[np.bool_]) -> Cut:
        """Token sets of texts. keys, counts : as token_stream gives them.   counted : (n,) texts that are documents."""
        numbers, others = self._numbers(keys)
        present, sizes = distinct_in_blocks(numbers, np.cumsum(counts), len(self) + len(others))
        mine = present < len(self)
        before = np.concatenate([[0], np.cumsum(mine)])
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        elsewhere = np.bincount(present[~mine & np.repeat(counted, sizes)] - len(self), minlength=len(others))
        return Cut(
            present[mine],
            np.diff(before[offsets]),
            DocumentFrequencies(others[elsewhere > 0], elsewhere[elsewhere > 0], 0),
        )

    def places(self, keys: Keys) -> Index:
        """Return (n,) place of each key in the vocabulary, -1 for a key that is not there."""
        if not len(self):
            return np.full(len(keys), -1)
        place = self._slots.take(self._slot_of(keys)).astype(np.int64)
        missed = np.flatnonzero(self.keys.take(place) != keys)
        displaced, known = self._displaced_places(keys[missed])
        place[missed] = np.where(known, displaced, -1)
        return place

    def _slot_of(self, keys: Keys) -> Index:
        slots: Index = (keys * np.uint64(MULTIPLIER) >> self._shift).view(np.int64)
        return slots

    def _numbers(self, keys: Keys) -> tuple[npt.NDArray[np.uint32], Keys]:
        """Place of each key in the vocabulary; for the others V + its place among the other keys, which are sorted."""
        import pyarrow as pa

        if not len(keys):
            return np.zeros(0, np.uint32), keys
        numbers = self._slots.take(self._slot_of(keys))
        missed = np.arange(len(keys))
        if len(self):
            missed = np.flatnonzero(self.keys.take(numbers) != keys)
        encoded: Any = pa.array(keys[missed]).dictionary_encode()
        table = encoded.dictionary.to_numpy(zero_copy_only=False).astype(np.uint64, copy=False)
        place, known = self._displaced_places(table)
        others = np.flatnonzero(~known)
        others = others[np.argsort(table[others])]
        place[others] = len(self) + np.arange(len(others))
        numbers[missed] = place.astype(np.uint32)[encoded.indices.to_numpy(zero_copy_only=False)]
        return numbers, table[others]

    def _displaced_places(self, keys: Keys) -> tuple[Index, npt.NDArray[np.bool_]]:
        """Place of each key in the vocabulary where its slot is another's, and whether it is there at all."""
        displaced = self._displaced
        if not len(displaced):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.bool_)
        place = displaced[np.minimum(np.searchsorted(self.keys[displaced], keys), len(displaced) - 1)]
        return place, self.keys[place] == keys
