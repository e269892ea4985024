"""Document frequencies, their IDF, and the share of a query's IDF that a document covers.

Works on text ids: queries and passages are handed in by id range, so texts can stay on disk.
Token sets of passages, cut to the queries' vocabulary, are spooled to a file; memory does not
grow with the passages.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from secid.lexical.tokens import Index, Keys, TokenSets, term_keys, token_sets
from secid.texts import let_go

Floats = npt.NDArray[np.float64]
Texts = Callable[[int, int], Sequence[str]]
"""texts(start, stop) gives the texts with these ids."""

CHUNK_TEXTS = 4096
"""Texts lexed at once: more take more memory, and no less time."""

MAX_THREADS = 4
"""Threads that lex: beyond a few, what they do under the interpreter's lock is all that is left."""


@dataclass(frozen=True)
class DocumentFrequencies:
    """How many of n_documents distinct texts hold each token.

    keys   : (V,) sorted distinct token keys.   counts : (V,) int64, >= 1.
    """

    keys: Keys
    counts: npt.NDArray[np.int64]
    n_documents: int

    def idf(self, keys: Keys) -> Floats:
        """log((1+D)/(1+df)) + 1 of each key; a key that no document holds has df = 0. Source: METHOD 2."""
        counts = np.zeros(len(keys), np.float64)
        if len(self.keys):
            place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            found = self.keys[place] == keys
            counts[found] = self.counts[place[found]]
        return np.log((1.0 + self.n_documents) / (1.0 + counts)) + 1.0

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


def frequencies(sets: TokenSets, counted: npt.NDArray[np.bool_] | None = None) -> DocumentFrequencies:
    """Document frequencies of the token sets, or of the counted ones; the empty table for none."""
    numbers = sets.numbers if counted is None else sets.numbers[np.repeat(counted, np.diff(sets.offsets))]
    counts = np.bincount(numbers, minlength=len(sets.table))
    held = counts > 0
    n_documents = len(sets) if counted is None else int(counted.sum())
    return DocumentFrequencies(sets.table[held], counts[held].astype(np.int64), n_documents)


class Lexicon:
    """The token sets of a run's texts under one tokenizer: asked for frequencies, then for coverage.

    queries, passages : texts by id; every id below n_queries, n_passages is lexed once.
    counted           : (n_passages,) which passages are documents of the pool.
    lex               : token sets of texts; those of the named tokenizer where None.
    spool             : a file that this object writes the passages' token sets to.
    """

    def __init__(
        self,
        tokenizer: str,
        queries: Texts,
        n_queries: int,
        passages: Texts,
        counted: npt.NDArray[np.bool_],
        spool: Path,
        lex: Callable[[Sequence[str]], TokenSets] | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        # A lexer of somebody else's may not stand two calls at once.
        n_threads = 1 if lex else min(MAX_THREADS, os.cpu_count() or 1)
        lex = lex or (lambda texts: token_sets(texts, tokenizer))
        n_passages = len(counted)
        self._query_sets = _joined(_lexed(queries, n_queries, lex, n_threads))
        self.vocabulary: Keys = self._query_sets.table
        self._frequency_parts: list[DocumentFrequencies] = []
        self._pool: DocumentFrequencies | None = None
        self._offsets = np.zeros(n_passages + 1, np.int64)
        self._spool = spool
        with spool.open("wb") as file:
            start = 0
            for sets in _lexed(passages, n_passages, lex, n_threads):
                self._add(file, start, sets, counted[start : start + len(sets)])
                start += len(sets)
        self._mapped: mmap.mmap | None = None
        self._columns: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        if self._offsets[-1]:
            with spool.open("rb") as file:
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._columns = np.frombuffer(self._mapped, np.int32)

    def _add(self, file: Any, start: int, sets: TokenSets, counted: npt.NDArray[np.bool_]) -> None:
        parts = self._frequency_parts
        parts.append(frequencies(sets, counted))
        # Only tables of like size are merged, so that a token is moved a few times, however many chunks there are.
        while len(parts) > 1 and len(parts[-2].keys) < 2 * len(parts[-1].keys):
            parts[-2:] = [merge_frequencies(parts[-2:])]
        columns, counts = self._columns_of(sets)
        np.cumsum(counts, out=self._offsets[start + 1 : start + 1 + len(sets)])
        self._offsets[start + 1 : start + 1 + len(sets)] += self._offsets[start]
        file.write(columns.tobytes())

    def _columns_of(self, sets: TokenSets) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Vocabulary columns of each text's tokens, unknown tokens left out, and their number per text."""
        if not len(self.vocabulary):
            return np.zeros(0, np.int32), np.zeros(len(sets), np.int64)
        place = np.minimum(np.searchsorted(self.vocabulary, sets.table), len(self.vocabulary) - 1)
        keep = (self.vocabulary[place] == sets.table)[sets.numbers]
        kept_before = np.concatenate([[0], np.cumsum(keep)])
        return place[sets.numbers][keep].astype(np.int32), np.diff(kept_before[sets.offsets])

    def pooled(self) -> DocumentFrequencies:
        """Frequencies over all counted passages of the run."""
        if self._pool is None:
            self._pool = merge_frequencies(self._frequency_parts)
            self._frequency_parts = [self._pool]
        return self._pool

    def of_passages(self, ids: Index) -> DocumentFrequencies:
        """Frequencies over these passages, for the tokens that some query of the run holds.

        ids: distinct passage ids. Other tokens are left out: no coverage of this run asks for them.
        """
        return self._vocabulary_frequencies(self._passage_columns(np.sort(ids))[1], len(ids))

    def with_queries(self, documents: DocumentFrequencies, counted: npt.NDArray[np.bool_]) -> DocumentFrequencies:
        """`documents` and the counted queries (n_queries,) as further documents. Source: METHOD 4."""
        return merge_frequencies([documents, frequencies(self._query_sets, counted)])

    def idf(self, documents: DocumentFrequencies | None) -> Floats:
        """(V,) IDF of the query vocabulary; all ones where documents is None (uniform weights)."""
        return np.ones(len(self.vocabulary)) if documents is None else documents.idf(self.vocabulary)

    def term_idf(self, terms: Sequence[str], idf: Floats) -> Floats:
        """(n,) IDF of single query tokens, from `idf` over the vocabulary."""
        found: Floats = idf[np.searchsorted(self.vocabulary, term_keys(terms, self.tokenizer))]
        return found

    def coverage(self, query_ids: Index, passage_ids: Index, idf: Floats) -> Floats:
        """c of each (query, passage) pair, in [0, 1]; 0 where the query has no token.

        query_ids, passage_ids : (T,) ids.   idf : (V,) from `idf`.
        The quotient is clamped: two sums of the same numbers in another order gave 1.0000000002.
        Source: METHOD 2.3.
        """
        covered = np.zeros(len(query_ids))
        weights = self._query_matrix(idf)
        totals = np.asarray(weights.sum(axis=1)).ravel()
        order = np.argsort(passage_ids, kind="stable")
        for start in range(0, len(order), CHUNK_TEXTS):
            pairs = order[start : start + CHUNK_TEXTS]
            passages, local = np.unique(passage_ids[pairs], return_inverse=True)
            matrix = self._passage_matrix(passages)
            hits = weights[query_ids[pairs]].multiply(matrix[local])
            covered[pairs] = np.asarray(hits.sum(axis=1)).ravel()
            if self._mapped is not None:
                let_go(self._mapped)  # chunks go through the file in order, so its pages are not asked for again
        total = totals[query_ids]
        quotient: Floats = np.divide(covered, total, out=np.zeros_like(covered), where=total > 0)
        return np.clip(quotient, 0.0, 1.0)

    def queries_without_tokens(self) -> npt.NDArray[np.bool_]:
        """(n_queries,) True where a query has no usable token, so that c is 0 by definition."""
        wordless: npt.NDArray[np.bool_] = np.diff(self._query_sets.offsets) == 0
        return wordless

    def _query_matrix(self, idf: Floats) -> Any:
        sets = self._query_sets
        return sparse.csr_matrix(
            (idf[sets.numbers], sets.numbers, sets.offsets),
            shape=(len(sets), max(1, len(self.vocabulary))),
        )

    def _passage_columns(self, ids: Index) -> tuple[Index, npt.NDArray[np.int32]]:
        """Offsets and columns of these passages (sorted ids), read from the spool."""
        counts = self._offsets[ids + 1] - self._offsets[ids]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(offsets[-1]) + np.repeat(self._offsets[ids] - offsets[:-1], counts)
        return offsets, np.asarray(self._columns[places])

    def _passage_matrix(self, ids: Index) -> Any:
        offsets, columns = self._passage_columns(ids)
        return sparse.csr_matrix(
            (np.ones(len(columns)), columns, offsets), shape=(len(ids), max(1, len(self.vocabulary)))
        )

    def _vocabulary_frequencies(self, columns: npt.NDArray[np.int32], n_documents: int) -> DocumentFrequencies:
        counts = np.bincount(columns, minlength=len(self.vocabulary))
        held = counts > 0
        return DocumentFrequencies(self.vocabulary[held], counts[held].astype(np.int64), n_documents)


def _lexed(texts: Texts, n: int, lex: Callable[[Sequence[str]], TokenSets], n_threads: int) -> Iterator[TokenSets]:
    """Token sets of texts 0 … n-1, chunk by chunk and in order, n_threads at a time.

    numpy lets go of the interpreter in what takes the time, so threads run side by side.
    """
    with ThreadPoolExecutor(n_threads) as pool:
        waiting: deque[Future[TokenSets]] = deque()
        for start in range(0, n, CHUNK_TEXTS):
            waiting.append(pool.submit(lambda a, b: lex(texts(a, b)), start, min(n, start + CHUNK_TEXTS)))
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _joined(parts: Iterable[TokenSets]) -> TokenSets:
    """Token sets of consecutive chunks as one; no text at all gives the empty set."""
    parts = list(parts)
    table = np.unique(np.concatenate([np.zeros(0, np.uint64), *(part.table for part in parts)]))
    numbers, offsets = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
    for part in parts:
        numbers.append(np.searchsorted(table, part.table).astype(np.int32)[part.numbers])
        offsets.append(part.offsets[1:] + offsets[-1][-1])
    return TokenSets(table, np.concatenate(numbers), np.concatenate(offsets))
