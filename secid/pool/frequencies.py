"""Document frequencies and their IDF."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secid.arrays import Floats
from secid.pool.tokens import Keys, TokenSets


@dataclass(frozen=True)
class DocumentFrequencies:
    """How many of n_documents distinct texts hold each token.

    keys   : (V,) sorted distinct token keys.   counts : (V,) int64, >= 1.
    """

    keys: Keys
    counts: npt.NDArray[np.int64]
    n_documents: int

    def counts_of(self, keys: Keys) -> Floats:
        """(n,) how many documents hold each key, 0.0 for a key of none."""
        counts = np.zeros(len(keys), np.float64)
        if len(self.keys):
            place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            known = self.keys[place] == keys
            counts[known] = self.counts[place[known]]
        return counts

    def only(self, keys: Keys) -> DocumentFrequencies:
        """The same documents with these tokens alone."""
        inside = np.isin(self.keys, keys)
        return DocumentFrequencies(self.keys[inside], self.counts[inside], self.n_documents)

    def idf(self, keys: Keys) -> Floats:
        """log((1+D)/(1+df)) + 1 of each key; a key that no document holds has df = 0. Source: METHOD 2."""
        return np.log((1.0 + self.n_documents) / (1.0 + self.counts_of(keys))) + 1.0

    def sha256(self) -> str:
        """Hash of the table, the same for any order of the documents."""
        digest = hashlib.sha256(str(self.n_documents).encode())
        digest.update(np.ascontiguousarray(self.keys, "<u8").tobytes())
        digest.update(np.ascontiguousarray(self.counts, "<i8").tobytes())
        return digest.hexdigest()


def merge_frequencies(parts: Sequence[DocumentFrequencies]) -> DocumentFrequencies:
    """Frequencies over the union of disjoint document sets; the empty table for no parts."""
    keys = np.concatenate([np.zeros(0, np.uint64), *(part.keys for part in parts)])
    counts = np.concatenate([np.zeros(0, np.int64), *(part.counts for part in parts)])
    # Stable: it is the kind that makes use of runs which are sorted already.
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    summed = np.add.reduceat(counts[order], first) if len(first) else counts
    return DocumentFrequencies(keys[first], summed, sum(part.n_documents for part in parts))


def add_table(parts: list[DocumentFrequencies], table: DocumentFrequencies) -> None:
    """Appends a table, and merges those of like size alone: a token is moved a few times, however many there are."""
    parts.append(table)
    while len(parts) > 1 and len(parts[-2].keys) < 2 * len(parts[-1].keys):
        parts[-2:] = [merge_frequencies(parts[-2:])]


def frequencies(sets: TokenSets, counted: npt.NDArray[np.bool_] | None = None) -> DocumentFrequencies:
    """Document frequencies of the token sets, or of the counted ones; the empty table for none."""
    numbers = sets.numbers if counted is None else sets.numbers[np.repeat(counted, np.diff(sets.offsets))]
    counts = np.bincount(numbers, minlength=len(sets.table))
    present = counts > 0
    n_documents = len(sets) if counted is None else int(counted.sum())
    return DocumentFrequencies(sets.table[present], counts[present].astype(np.int64), n_documents)
