"""The share of a query's IDF that a document covers, and the documents that IDF is made of.

Works on text ids: queries and passages are handed in by id range, so texts can stay on disk.
Token sets of passages, cut to the queries' vocabulary, are spooled to a file; memory does not
grow with the passages.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from secid.arrays import Floats, Index, distinct
from secid.pool.frequencies import DocumentFrequencies, add_table, frequencies, merge_frequencies
from secid.pool.texts import Packed, TextStore, let_go, pieces
from secid.pool.tokens import Keys, TokenSets, distinct_tokens, term_keys, token_stream
from secid.pool.vocabulary import Cut, Vocabulary

Texts = Callable[[int, int], Sequence[str] | Packed]
"""texts(start, stop) gives the texts with these ids; packed ones are lexed without being taken apart."""
Stream = Callable[[Any], tuple[Keys, Index]]
"""Keys of all tokens of what a Texts gives, in order, and how many each text has."""
Part = TypeVar("Part")
Counted = TypeVar("Counted", bound=Sized)

CHUNK_TEXTS = 4096
"""Texts lexed at once: more take more memory, and no less time."""

MAX_THREADS = 4
"""Threads that lex: beyond a few, what they do under the interpreter's lock is all that is left."""


class Lexicon:
    """The token sets of a run's texts under one tokenizer: asked for frequencies, then for coverage.

    queries, passages : texts by id; every id below n_queries, n_passages is lexed once.
    counted           : (n_passages,) which passages are documents of the pool.
    lex               : tokens of what `queries` and `passages` give; those of the named tokenizer where None.
    spool             : a file that this object writes the passages' token sets to.
    stores            : what `queries` and `passages` read from, so that few long texts are lexed at once.
    lexed             : called with the number of texts lexed, now and then.
    """

    def __init__(
        self,
        tokenizer: str,
        queries: Texts,
        n_queries: int,
        passages: Texts,
        counted: npt.NDArray[np.bool_],
        spool: Path,
        lex: Stream | None = None,
        stores: tuple[TextStore, TextStore] | None = None,
        lexed: Callable[[int], None] = lambda n: None,
    ) -> None:
        self.tokenizer = tokenizer
        # A lexer that is handed in may not be thread-safe.
        n_threads = 1 if lex else min(MAX_THREADS, os.cpu_count() or 1)
        stream = lex or partial(token_stream, tokenizer=tokenizer)
        passage_stream = lex or partial(token_stream, tokenizer=tokenizer, role="passage")
        of_queries, of_passages = (store.lengths for store in stores) if stores else (None, None)
        self._others: list[DocumentFrequencies] = []
        self._n_counted = int(counted.sum())
        self._pool: DocumentFrequencies | None = None
        self._offsets = np.zeros(len(counted) + 1, np.int64)
        with spool.open("wb") as file:
            ranges = pieces(n_queries, CHUNK_TEXTS, of_queries)
            sets = _in_order(lambda a, b: distinct_tokens(*stream(queries(a, b))), ranges, n_threads)
            self._query_sets = _joined(_reported(sets, lexed))
            vocabulary = Vocabulary(self._query_sets.table)
            self.vocabulary: Keys = vocabulary.keys
            self._held_by = np.zeros(len(vocabulary), np.int64)
            self._waiting = [np.zeros(0, np.int32)]

            def cut(a: int, b: int) -> Cut:
                return vocabulary.cut(*passage_stream(passages(a, b)), counted[a:b])

            ranges, start = pieces(len(counted), CHUNK_TEXTS, of_passages), 0
            for part in _reported(_in_order(cut, ranges, n_threads), lexed):
                stop = start + len(part.counts)
                self._offsets[start + 1 : stop + 1] = part.counts
                file.write(part.columns.data)
                self._count(part, counted[start:stop])
                start = stop
        np.cumsum(self._offsets, out=self._offsets)
        self._mapped: mmap.mmap | None = None
        self._columns: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        if self._offsets[-1]:
            with spool.open("rb") as written:
                self._mapped = mmap.mmap(written.fileno(), 0, access=mmap.ACCESS_READ)
            self._columns = np.frombuffer(self._mapped, np.int32)

    def _count(self, part: Cut, counted: npt.NDArray[np.bool_]) -> None:
        self._waiting.append(part.columns if counted.all() else part.columns[np.repeat(counted, part.counts)])
        if sum(map(len, self._waiting)) >= len(self._held_by):  # a count takes time for each token of the vocabulary
            self._count_waiting()
        add_table(self._others, part.others)

    def _count_waiting(self) -> None:
        self._held_by += np.bincount(np.concatenate(self._waiting), minlength=len(self._held_by))
        self._waiting = self._waiting[:1]

    def pooled(self) -> DocumentFrequencies:
        """Frequencies over all counted passages of the run."""
        if self._pool is None:
            self._count_waiting()
            present = self._held_by > 0
            mine = DocumentFrequencies(self.vocabulary[present], self._held_by[present], self._n_counted)
            self._pool = merge_frequencies([mine, *self._others])
            self._others = []
        return self._pool

    def of_passages(self, ids: Index) -> DocumentFrequencies:
        """Frequencies over these passages, for the tokens that some query of the run holds.

        ids: distinct passage ids. Other tokens are left out: no coverage of this run asks for them.
        """
        return self._vocabulary_frequencies(self._passage_columns(np.sort(ids))[1], len(ids))

    def with_queries(self, documents: DocumentFrequencies, counted: npt.NDArray[np.bool_]) -> DocumentFrequencies:
        """`documents` and the counted queries (n_queries,) with their tokens as further documents. Source: METHOD 4."""
        return merge_frequencies([documents, frequencies(self._query_sets, counted)])

    def idf(self, documents: DocumentFrequencies | None) -> Floats:
        """(V,) IDF of the query vocabulary; all ones where documents is None (uniform weights)."""
        return np.ones(len(self.vocabulary)) if documents is None else documents.idf(self.vocabulary)

    def term_idf(self, terms: Sequence[str], idf: Floats) -> Floats:
        """(n,) IDF of single query tokens, from `idf` over the vocabulary."""
        result: Floats = idf[np.searchsorted(self.vocabulary, term_keys(terms, self.tokenizer))]
        return result

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
        return self._matrix(idf[sets.numbers], sets.numbers, sets.offsets)

    def _passage_columns(self, ids: Index) -> tuple[Index, npt.NDArray[np.int32]]:
        """Offsets and columns of these passages (sorted ids), read from the spool."""
        counts = self._offsets[ids + 1] - self._offsets[ids]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(offsets[-1]) + np.repeat(self._offsets[ids] - offsets[:-1], counts)
        return offsets, np.asarray(self._columns[places])

    def _passage_matrix(self, ids: Index) -> Any:
        offsets, columns = self._passage_columns(ids)
        return self._matrix(np.ones(len(columns)), columns, offsets)

    def _matrix(self, values: Floats, columns: npt.NDArray[Any], offsets: Index) -> Any:
        """A sparse matrix of rows of tokens, a column for each of the vocabulary."""
        from scipy import sparse  # here: who only splits texts need not load it

        return sparse.csr_matrix((values, columns, offsets), shape=(len(offsets) - 1, max(1, len(self.vocabulary))))

    def _vocabulary_frequencies(self, columns: npt.NDArray[np.int32], n_documents: int) -> DocumentFrequencies:
        counts = np.bincount(columns, minlength=len(self.vocabulary))
        present = counts > 0
        return DocumentFrequencies(self.vocabulary[present], counts[present].astype(np.int64), n_documents)


def _in_order(make: Callable[[int, int], Part], ranges: Iterable[tuple[int, int]], n_threads: int) -> Iterator[Part]:
    """make(start, stop) of these ranges, in order, n_threads at a time.

    numpy lets go of the interpreter in what takes the time, so threads run side by side.
    """
    with ThreadPoolExecutor(n_threads) as pool:
        waiting: deque[Future[Part]] = deque()
        for start, stop in ranges:
            waiting.append(pool.submit(make, start, stop))
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _reported(parts: Iterable[Counted], lexed: Callable[[int], None]) -> Iterator[Counted]:
    """The parts, each reported by its number of texts."""
    for part in parts:
        lexed(len(part))
        yield part


def _joined(parts: Iterable[TokenSets]) -> TokenSets:
    """Token sets of consecutive chunks as one; no text at all gives the empty set."""
    parts = list(parts)
    table = distinct(np.concatenate([np.zeros(0, np.uint64), *(part.table for part in parts)]))
    numbers, offsets = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
    for part in parts:
        numbers.append(np.searchsorted(table, part.table).astype(np.int32)[part.numbers])
        offsets.append(part.offsets[1:] + offsets[-1][-1])
    return TokenSets(table, np.concatenate(numbers), np.concatenate(offsets))
