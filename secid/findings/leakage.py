"""Texts of an evaluation set among the texts of a run, exactly or nearly equal.

Exact: of one normal form (METHOD 14), which is not empty. Near, for queries: the sets of words have a Jaccard
similarity of at least NEAR_QUERY. Near, for passages: of the shorter one's windows of SHINGLE_WORDS words at least
NEAR_PASSAGE occur in the other, which finds chunks, added titles and edits alike. Both are computed exactly for every
pair that can reach the threshold (no sketches, no misses).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

from secid.findings.normal_form import EMPTY_FORM, FormKeys, Index
from secid.findings.passage_facts import query_facts
from secid.findings.runs import distinct_per_text, windows
from secid.pool import token_stream
from secid.pool.texts import Packed, TextStore, pieces

Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]
Measure = Literal["jaccard", "overlap"]

CHUNK_TEXTS = 4096
TOKENIZER = "multilingual"
"""Words of any script; in scripts without spaces, pairs of characters."""
NEAR_QUERY = 0.8
NEAR_PASSAGE = 0.8
MIN_QUERY_WORDS = 4
"""Shorter queries are compared exactly only: of three words, one in common says little."""
SHINGLE_WORDS = 5
MIN_SHINGLES = 10
"""Shorter passages are compared exactly only: they may be a phrase that many texts hold."""
SIEVE_SIZE = 1 << 22
SIEVE_MASK = np.uint64(SIEVE_SIZE - 1)


@dataclass(frozen=True)
class Matches:
    """For each of n texts the evaluation text it equals, or comes nearest to above the threshold.

    which : (n,) number of the evaluation text, -1 for none.   similarity : (n,) 1.0 for an exact match.
    exact : (n,) of its normal form.
    """

    which: Index
    similarity: Floats
    exact: npt.NDArray[np.bool_]


def shingles(texts: Sequence[str], width: int) -> tuple[Keys, Index]:
    """Keys of all windows of `width` words, and the text of each; a text of fewer words has none."""
    return windows(*token_stream(texts, TOKENIZER), width)


class Finder:
    """Evaluation texts of one role, ready to be found among others.

    width : words of a shingle.   smallest : fewer shingles than this are compared exactly only.
    """

    def __init__(self, texts: Mapping[str, str], measure: Measure, width: int, threshold: float, smallest: int) -> None:
        self.ids, self.texts = list(texts), list(texts.values())
        self._measure, self._width = measure, width
        self._threshold, self._smallest = threshold, smallest
        self._forms, self._form_text = np.unique(FormKeys.of(Packed.of(self.texts)).hashes(), return_index=True)
        keys, offsets = distinct_per_text(*shingles(self.texts, width), len(self.texts))
        self._sizes = np.diff(offsets)
        self._vocabulary, columns = np.unique(keys, return_inverse=True)
        self._sieve = np.zeros(SIEVE_SIZE, np.bool_)
        self._sieve[self._vocabulary & SIEVE_MASK] = True
        self._rows = _matrix(columns, offsets, len(self._vocabulary))
        self._probe = self._probes(columns, offsets).T.tocsr()

    def _probes(self, columns: Index, offsets: Index) -> Any:
        """The shingles of each text that are enough to meet every text above the threshold.

        Jaccard >= t means that at least t of the own shingles are shared, so any |A| - ceil(t |A|) + 1
        of them meet the other text at least once: the rarest are taken. Overlap bounds nothing of a
        text that may be the longer one: all are taken.
        """
        sizes = np.diff(offsets)
        usable = sizes >= self._smallest
        frequency = np.bincount(columns, minlength=len(self._vocabulary))
        owner = np.repeat(np.arange(len(sizes)), sizes)
        order = np.lexsort((frequency[columns], owner))
        rank = np.arange(len(columns)) - offsets[:-1][owner]
        n_needed = sizes - np.ceil(self._threshold * sizes - 1e-9) + 1 if self._measure == "jaccard" else sizes
        kept = (rank < n_needed[owner]) & usable[owner]
        places, counts = order[kept], np.bincount(owner[kept], minlength=len(sizes))
        return _matrix(columns[places], np.concatenate([[0], np.cumsum(counts)]), len(self._vocabulary))

    def find(self, store: TextStore, tick: Callable[[int], None] = lambda n: None) -> Matches:
        """Matches of the texts of a store."""
        n, forms = len(store), query_facts(store).form
        which, similarity = np.full(n, -1, np.int64), np.zeros(n)
        exact = np.zeros(n, np.bool_)
        if len(self.ids):
            place = np.minimum(np.searchsorted(self._forms, forms), len(self._forms) - 1)
            exact = (self._forms[place] == forms) & (forms != EMPTY_FORM)
            which[exact], similarity[exact] = self._form_text[place[exact]], 1.0
        for start, stop in pieces(n if len(self._vocabulary) else 0, CHUNK_TEXTS, store.lengths):
            owner, found, value = self._near(store.get(start, stop))
            order = np.argsort(value, kind="stable")  # the nearest is written last
            owner, found, value = owner[order] + start, found[order], value[order]
            free = ~exact[owner]
            which[owner[free]], similarity[owner[free]] = found[free], value[free]
            tick(stop - start)
        return Matches(which, similarity, exact)

    def _near(self, texts: Sequence[str]) -> tuple[Index, Index, Floats]:
        """(text, evaluation text, similarity) of all pairs above the threshold."""
        keys, owners = shingles(texts, self._width)
        rows = self._known_rows(keys, owners, len(texts))
        owner, found = (part.astype(np.int64) for part in (rows @ self._probe).nonzero())
        common = np.asarray(rows[owner].multiply(self._rows[found]).sum(axis=1), np.float64).ravel()
        wanted = np.zeros(len(texts), np.bool_)
        wanted[owner] = True
        inside = wanted[owners]
        _, offsets = distinct_per_text(keys[inside], owners[inside], len(texts))
        a, b = np.diff(offsets)[owner], self._sizes[found]
        value = common / (np.minimum(a, b) if self._measure == "overlap" else a + b - common)
        near = (value >= self._threshold - 1e-9) & (a >= self._smallest)
        return owner[near], found[near], value[near]

    def _known_rows(self, keys: Keys, owners: Index, n: int) -> Any:
        """The shingles of the vocabulary that each text holds. The sieve spares most keys the search."""
        passed = self._sieve[keys & SIEVE_MASK]
        keys, owners = keys[passed], owners[passed]
        place = np.minimum(np.searchsorted(self._vocabulary, keys), len(self._vocabulary) - 1)
        known = self._vocabulary[place] == keys
        columns, offsets = distinct_per_text(place[known].astype(np.uint64), owners[known], n)
        return _matrix(columns.astype(np.int64), offsets, len(self._vocabulary))


def query_finder(texts: Mapping[str, str]) -> Finder:
    """Finds evaluation queries, by id."""
    return Finder(texts, "jaccard", 1, NEAR_QUERY, MIN_QUERY_WORDS)


def passage_finder(texts: Mapping[str, str]) -> Finder:
    """Finds relevant passages, by id."""
    return Finder(texts, "overlap", SHINGLE_WORDS, NEAR_PASSAGE, MIN_SHINGLES)


def _matrix(columns: Index, offsets: Index, n_columns: int) -> Any:
    """Rows of zeros and ones."""
    return sparse.csr_matrix(
        (np.ones(len(columns), np.float32), columns, offsets), shape=(len(offsets) - 1, max(1, n_columns))
    )
