"""Runs: windows of a text's words or characters as 64-bit keys, and how many of them two texts share.

Source: METHOD 14.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from secid.findings.normal_form import Flags, FormKeys, Index, Keys

RUN_WORDS = 5
"""Words of a run: five in a row are rarely shared by texts that do not copy each other. Source: METHOD 14."""
RUN_CHARACTERS = 10
"""Characters of a run in scripts without spaces, where a word has about two. Source: METHOD 14."""
Key = TypeVar("Key", bound=np.unsignedinteger[Any])
MIXER = np.uint64(0x9E3779B97F4A7C15)
"""Odd, its bits those of the golden ratio's fraction."""
MIXING_SHIFT = np.uint64(29)


def windows(keys: Keys, counts: Index, width: int) -> tuple[Keys, Index]:
    """Keys of all windows of `width` keys, and the text of each; a text of fewer keys has none.

    keys : those of all texts in order.   counts : (n,) how many each text has.
    """
    owners = np.repeat(np.arange(len(counts)), counts)
    if width == 1:
        return keys, owners
    n = max(0, len(keys) - width + 1)
    parts = keys ^ (keys >> MIXING_SHIFT)
    mixed = np.zeros(n, np.uint64)
    for place in range(width):  # wraps modulo 2^64, as a polynomial hash does
        mixed *= MIXER
        mixed += parts[place : place + n]
    whole = owners[:n] == owners[width - 1 :] if n else np.zeros(0, np.bool_)
    return mixed[whole], owners[:n][whole]


def distinct_per_text(keys: npt.NDArray[Key], owners: Index, n: int) -> tuple[npt.NDArray[Key], Index]:
    """The distinct keys of each of n texts, sorted, text i's at offsets[i:i+2]; and the offsets."""
    order = np.lexsort((keys, owners))
    keys, owners = keys[order], owners[order]
    new = np.ones(len(keys), np.bool_)
    new[1:] = (keys[1:] != keys[:-1]) | (owners[1:] != owners[:-1])
    return keys[new], np.concatenate([[0], np.cumsum(np.bincount(owners[new], minlength=n))])


def runs_of(forms: FormKeys) -> tuple[Keys, Index]:
    """Keys of the runs of n texts, and the text of each: windows of words, or of characters where `unspaced`."""
    if not forms.unspaced.any():
        return windows(forms.words, forms.n_words, RUN_WORDS)
    spaced = np.repeat(~forms.unspaced, forms.n_words)
    words = windows(forms.words[spaced], np.where(forms.unspaced, 0, forms.n_words), RUN_WORDS)
    characters = windows(forms.characters, forms.n_characters, RUN_CHARACTERS)
    return np.concatenate([words[0], characters[0]]), np.concatenate([words[1], characters[1]])


def short_keys(runs: Keys) -> npt.NDArray[np.uint32]:
    """The upper half of each run's key, into which all of its characters went."""
    return (runs >> np.uint64(32)).astype(np.uint32)


@dataclass(frozen=True)
class RunSets:
    """The distinct runs of n texts: text i's are keys[offsets[i]:offsets[i+1]], sorted."""

    keys: npt.NDArray[Any]
    offsets: Index

    @property
    def sizes(self) -> Index:
        """(n,) distinct runs of each text."""
        return np.diff(self.offsets)

    def take(self, ids: Index) -> RunSets:
        """The sets with these ids, in this order."""
        sizes = self.sizes[ids]
        return RunSets(self.keys[spread(self.offsets[ids], sizes)], np.concatenate([[0], np.cumsum(sizes)]))


def spread(starts: Index, counts: Index) -> Index:
    """Numbers starts[i] … starts[i] + counts[i] - 1 for each i in order."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()), dtype=np.int64)


def n_shared(left: RunSets, right: RunSets) -> Index:
    """(n,) runs that set i of one and set i of the other both hold."""
    n = len(left.offsets) - 1
    owners = np.concatenate([np.repeat(np.arange(n), left.sizes), np.repeat(np.arange(n), right.sizes)])
    keys = np.concatenate([left.keys, right.keys])
    order = np.lexsort((keys, owners))
    keys, owners = keys[order], owners[order]
    twice = (keys[1:] == keys[:-1]) & (owners[1:] == owners[:-1])  # distinct within a set: so one is of each
    return np.bincount(owners[1:][twice], minlength=n)


class Sieve:
    """A bit for each of some slots that a run of the text falls into: tells most pairs apart without their runs.

    A slot that only the first text fills holds a run that only the first text has, so the number of such slots is at
    most the number of runs that the other text lacks: no pair above a threshold is lost, whatever the size.
    """

    def __init__(self, n: int, n_slots: int) -> None:
        self._n_slots = np.uint32(n_slots)
        self.bits = np.zeros((n, n_slots // 64), np.uint64)

    def fill(self, start: int, stop: int, keys: npt.NDArray[np.uint32], owners: Index) -> None:
        """Sets the bits of texts start … stop-1. keys: of `short_keys`.   owners: text of each, from 0 at start."""
        n_slots = int(self._n_slots)
        slots = np.zeros((stop - start) * n_slots, np.bool_)
        slots[owners * n_slots + (keys & (self._n_slots - np.uint32(1)))] = True
        self.bits[start:stop] = np.packbits(slots, bitorder="little").view("<u8").reshape(stop - start, -1)


def n_slots_for(mean_runs: float) -> int:
    """Slots of which texts of so many runs fill about a quarter: a power of two in [64, 1024]."""
    return int(2 ** np.clip(np.ceil(np.log2(max(1.0, 4 * mean_runs))), 6, 10))


def n_set(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """(n,) bits that are set in each row. bits: (n, m)."""
    if hasattr(np, "bitwise_count"):  # numpy 2
        return np.asarray(np.bitwise_count(bits).sum(axis=1, dtype=np.int32))
    return np.asarray(N_BITS[bits.view(np.uint16)].sum(axis=1, dtype=np.int32))


N_BITS = np.array([value.bit_count() for value in range(1 << 16)], np.uint8)
"""Bits set in each number of 16 bits."""


def kept_of(keys: npt.NDArray[np.uint32], every: int) -> Flags:
    """(n,) the runs that are kept where one of `every` is, chosen by its key alone."""
    return np.asarray(keys % np.uint32(every) == 0)
