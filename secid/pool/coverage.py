"""Count document frequencies, and compute IDF and the share of a query's IDF that a document covers."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from secid.arrays import Floats, Index, distinct
from secid.parallel import in_order
from secid.pool.texts import Packed, Role, TextStore, batch_ranges, release_read_pages
from secid.pool.tokens import (
    MULTIPLIER,
    Keys,
    TokenSets,
    dictionary_encode,
    distinct_in_blocks,
    distinct_tokens,
    term_keys,
    token_stream,
)

# Document frequencies and their IDF.


@dataclass(frozen=True)
class DocumentFrequencies:
    """Number of documents that hold each token, among n_documents distinct ones.

    keys : (V,) sorted distinct token keys.   counts : (V,) int64, >= 1.
    """

    keys: Keys
    counts: npt.NDArray[np.int64]
    n_documents: int

    def counts_of(self, keys: Keys) -> Floats:
        """Return (n,), the number of documents that hold each key; 0.0 for an unknown key."""
        counts = np.zeros(len(keys), np.float64)
        if len(self.keys):
            place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            known = self.keys[place] == keys
            counts[known] = self.counts[place[known]]
        return counts

    def only(self, keys: Keys) -> DocumentFrequencies:
        """Return the frequencies of only these tokens, over the same documents."""
        inside = np.isin(self.keys, keys)
        return DocumentFrequencies(self.keys[inside], self.counts[inside], self.n_documents)

    def idf(self, keys: Keys) -> Floats:
        """Return (n,), log((1+D)/(1+df)) + 1 of each key. An unknown key has df = 0. Source: METHOD 2."""
        return np.log((1.0 + self.n_documents) / (1.0 + self.counts_of(keys))) + 1.0

    def sha256(self) -> str:
        """Return a hash of the table, which does not depend on the order of the documents."""
        digest = hashlib.sha256(str(self.n_documents).encode())
        digest.update(np.ascontiguousarray(self.keys, "<u8").tobytes())
        digest.update(np.ascontiguousarray(self.counts, "<i8").tobytes())
        return digest.hexdigest()


NO_FREQUENCIES = DocumentFrequencies(np.zeros(0, np.uint64), np.zeros(0, np.int64), 0)


def merge_frequencies(parts: Sequence[DocumentFrequencies]) -> DocumentFrequencies:
    """Return the frequencies over the union of disjoint document sets; the empty table without parts."""
    keys = np.concatenate([np.zeros(0, np.uint64), *(part.keys for part in parts)])
    counts = np.concatenate([np.zeros(0, np.int64), *(part.counts for part in parts)])
    # A stable sort takes advantage of parts that are already sorted.
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    summed = np.add.reduceat(counts[order], first) if len(first) else counts
    return DocumentFrequencies(keys[first], summed, sum(part.n_documents for part in parts))


def add_table(parts: list[DocumentFrequencies], table: DocumentFrequencies) -> None:
    """Append a table, and merge only tables of similar size, so that each token is moved only a few times."""
    parts.append(table)
    while len(parts) > 1 and len(parts[-2].keys) < 2 * len(parts[-1].keys):
        parts[-2:] = [merge_frequencies(parts[-2:])]


def frequencies(sets: TokenSets, counted: npt.NDArray[np.bool_] | None = None) -> DocumentFrequencies:
    """Return the document frequencies of the token sets. counted: flags of the sets to count; None for all."""
    numbers = sets.numbers if counted is None else sets.numbers[np.repeat(counted, np.diff(sets.offsets))]
    counts = np.bincount(numbers, minlength=len(sets.table))
    present = counts > 0
    n_documents = len(sets) if counted is None else int(counted.sum())
    return DocumentFrequencies(sets.table[present], counts[present].astype(np.int64), n_documents)


# Token sets of passages, restricted to tokens of the queries, because coverage needs no others.

SLOTS_PER_KEY = 4
"""Minimum number of slots per vocabulary key. One key in nine then finds its slot taken, and is looked up twice."""


@dataclass(frozen=True)
class IndexedTokens:
    """Token sets of n texts as places in a vocabulary.

    columns : vocabulary places of the tokens, text by text, sorted within a text.
    counts  : (n,) number of columns of each text.
    others  : frequencies of all other tokens among the counted texts; its n_documents is 0.
    """

    columns: npt.NDArray[np.int32]
    counts: Index
    others: DocumentFrequencies

    def __len__(self) -> int:
        return len(self.counts)


class Vocabulary:
    """Index of token keys that looks up many keys at once. keys: (V,) sorted distinct token keys."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        bits = max(1, SLOTS_PER_KEY * len(keys) - 1).bit_length()
        self._shift = np.uint64(64 - bits)
        # A hash table without chains: each slot holds the place of one of its keys.
        self._slots = np.zeros(1 << bits, np.uint32)
        slots = self._slot_of(keys)
        self._slots[slots] = np.arange(len(keys), dtype=np.uint32)
        self._displaced = np.flatnonzero(self._slots[slots] != np.arange(len(keys)))
        self._is_shared = np.zeros(1 << bits, np.bool_)
        self._is_shared[slots[self._displaced]] = True

    def __len__(self) -> int:
        return len(self.keys)

    def indexed(
        self, keys: Keys, counts: Index, counted: npt.NDArray[np.bool_], *, with_others: bool = True
    ) -> IndexedTokens:
        """Return the token sets of n texts.

        keys, counts : result of `token_stream`.   counted : (n,) whether each text is a document of the pool.
        with_others  : False to leave out the frequencies of other tokens, which takes half of the time.
        """
        if not with_others:
            numbers, known = self._lookup(keys)
            ends = np.append(0, np.cumsum(known))[np.cumsum(counts)]
            return IndexedTokens(*distinct_in_blocks(numbers[known], ends, len(self)), NO_FREQUENCIES)
        numbers, others = self._numbers(keys)
        present, sizes = distinct_in_blocks(numbers, np.cumsum(counts), len(self) + len(others))
        elsewhere = np.flatnonzero(present >= len(self))
        text = np.searchsorted(np.cumsum(sizes), elsewhere, side="right")
        held_by = np.bincount(present[elsewhere[counted[text]]] - len(self), minlength=len(others))
        return IndexedTokens(
            present[present < len(self)],
            sizes - np.bincount(text, minlength=len(sizes)),
            DocumentFrequencies(others[held_by > 0], held_by[held_by > 0], 0),
        )

    def places(self, keys: Keys) -> Index:
        """Return (n,), the place of each key in the vocabulary; -1 for an unknown key."""
        numbers, known = self._lookup(keys)
        return np.where(known, numbers.astype(np.int64), -1)

    def _lookup(self, keys: Keys) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
        """Return (n,) places of the keys in the vocabulary, and (n,) flags: False for an unknown key."""
        if not len(self):
            return np.zeros(len(keys), np.uint32), np.zeros(len(keys), np.bool_)
        slots = self._slot_of(keys)
        numbers = self._slots.take(slots)
        known = self.keys.take(numbers) == keys
        missed = np.flatnonzero(~known)
        missed = missed[self._is_shared.take(slots[missed])]
        numbers[missed], known[missed] = self._displaced_places(keys[missed])
        return numbers, known

    def _slot_of(self, keys: Keys) -> Index:
        slots: Index = (keys * np.uint64(MULTIPLIER) >> self._shift).view(np.int64)
        return slots

    def _numbers(self, keys: Keys) -> tuple[npt.NDArray[np.uint32], Keys]:
        """Return (n,) numbers of the keys, and the sorted other keys.

        A key's number is its place in the vocabulary, or V + its place among the other keys.
        """
        if not len(keys):
            return np.zeros(0, np.uint32), keys
        numbers = self._slots.take(self._slot_of(keys))
        missed = np.arange(len(keys))
        if len(self):
            missed = np.flatnonzero(self.keys.take(numbers) != keys)
        table, places = dictionary_encode(keys[missed])
        place, known = self._displaced_places(table)
        others = np.flatnonzero(~known)
        others = others[np.argsort(table[others])]
        place[others] = len(self) + np.arange(len(others))
        numbers[missed] = place.astype(np.uint32)[places]
        return numbers, table[others]

    def _displaced_places(self, keys: Keys) -> tuple[Index, npt.NDArray[np.bool_]]:
        """Return (places, flags) of keys whose slot holds another key. The flags tell whether the key is known."""
        displaced = self._displaced
        if not len(displaced):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys), np.bool_)
        place = displaced[np.minimum(np.searchsorted(self.keys[displaced], keys), len(displaced) - 1)]
        return place, self.keys[place] == keys


# The share of a query's IDF that a document covers, and the documents from which IDF is computed.
#
# Queries and passages are read by ranges of ids, so that texts can stay on disk. Token sets of passages, restricted to
# the queries' vocabulary, are spooled to a file, so that memory does not grow with the passages.

TextRange = Callable[[int, int], Sequence[str] | Packed]
"""Function from (start, stop) to the texts with these ids. Packed texts are lexed without being unpacked."""
Stream = Callable[[Any], tuple[Keys, Index]]
"""Function from texts to the keys of all their tokens in order, and (n,) the number of tokens in each text."""
SizedItem = TypeVar("SizedItem", bound=Sized)

LEXED_AT_ONCE = 4096
"""Number of texts to lex at once. Larger chunks take more memory and are not faster. In smaller chunks an encoder takes
longer to give word pieces, because each word is looked up once per chunk."""
LEXED_WITHOUT_OTHERS = 384
"""Number of texts to lex at once if the frequencies of other tokens, whose tables are merged once per chunk, are not
needed. The trigrams of 384 texts stay in the processor's cache, so lexing takes three quarters of the time."""

MAX_THREADS = 4
"""Maximum number of threads that lex. With more, work under the interpreter's lock dominates."""


class Lexicon:
    """Token sets of a run's texts under one tokenizer. They give document frequencies, then coverage.

    is_ascii          : whether all texts are known to be ASCII.
    queries, passages : texts by id. Every id below n_queries or n_passages is lexed once.
    counted           : (n_passages,) whether each passage is a document of the pool.
    spool             : path of a file for the passages' token sets.
    lex               : function that lexes the texts; None for the named tokenizer.
    stores            : stores that `queries` and `passages` read, so that only few long texts are lexed at once.
    lexed             : called now and then with the number of texts lexed.
    with_others       : False to leave out tokens that no query has from `pooled`, because coverage needs no others.
    """

    def __init__(
        self,
        tokenizer: str,
        queries: TextRange,
        n_queries: int,
        passages: TextRange,
        counted: npt.NDArray[np.bool_],
        spool: Path,
        lex: Stream | None = None,
        stores: tuple[TextStore, TextStore] | None = None,
        lexed: Callable[[int], None] = lambda n: None,
        *,
        with_others: bool = True,
    ) -> None:
        self.tokenizer, self._lex, self.is_ascii = tokenizer, lex, True
        self._others: list[DocumentFrequencies] = []
        self._n_counted = int(counted.sum())
        self._pool: DocumentFrequencies | None = None
        self._waiting = [np.zeros(0, np.int32)]
        self._offsets = np.zeros(len(counted) + 1, np.int64)
        self._spool = spool
        # A caller's lexer may not be thread-safe.
        n_threads = 1 if lex else min(MAX_THREADS, os.cpu_count() or 1)
        of_queries, of_passages = (store.lengths for store in stores) if stores else (None, None)
        # numpy releases the interpreter's lock in the slow parts, so threads run in parallel.
        with ThreadPoolExecutor(n_threads) as pool:

            def parts(make: Callable[[int, int], SizedItem], n: int, lengths: Any) -> Iterator[SizedItem]:
                ranges = batch_ranges(n, LEXED_AT_ONCE if with_others or lex else LEXED_WITHOUT_OTHERS, lengths)
                for part in in_order(lambda ends: pool.submit(make, *ends), ranges, n_threads):
                    lexed(len(part))
                    yield part

            def sets(start: int, stop: int) -> TokenSets:
                return distinct_tokens(*self._tokens(queries(start, stop), "query"))

            def indexed(start: int, stop: int) -> IndexedTokens:
                tokens = self._tokens(passages(start, stop), "passage")
                return vocabulary.indexed(*tokens, counted[start:stop], with_others=with_others)

            self._query_sets = _joined(parts(sets, n_queries, of_queries))
            vocabulary = Vocabulary(self._query_sets.table)
            self.vocabulary: Keys = vocabulary.keys
            self._held_by = np.zeros(len(self.vocabulary), np.int64)
            self._take(parts(indexed, len(counted), of_passages), counted)
        self._map_spool()

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs, for a lexicon of a named tokenizer: the spool stays in its file."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_mapped", "_columns")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map_spool()

    def _map_spool(self) -> None:
        self._mapped: mmap.mmap | None = None
        self._columns: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        if self._offsets[-1]:
            with self._spool.open("rb") as written:
                self._mapped = mmap.mmap(written.fileno(), 0, access=mmap.ACCESS_READ)
            self._columns = np.frombuffer(self._mapped, np.int32)

    def _tokens(self, texts: Sequence[str] | Packed, role: Role) -> tuple[Keys, Index]:
        if not (isinstance(texts, Packed) and texts.data.isascii()):
            self.is_ascii = False
        return self._lex(texts) if self._lex else token_stream(texts, self.tokenizer, role)

    def _take(self, parts: Iterable[IndexedTokens], counted: npt.NDArray[np.bool_]) -> None:
        """Count the token sets of all passages, and write them to the spool."""
        start = 0
        with self._spool.open("wb") as file:
            for part in parts:
                stop = start + len(part)
                self._offsets[start + 1 : stop + 1] = part.counts
                file.write(part.columns.data)
                self._count(part, counted[start:stop])
                start = stop
        np.cumsum(self._offsets, out=self._offsets)

    def _count(self, part: IndexedTokens, counted: npt.NDArray[np.bool_]) -> None:
        self._waiting.append(part.columns if counted.all() else part.columns[np.repeat(counted, part.counts)])
        if sum(map(len, self._waiting)) >= len(self._held_by):  # the time of a count grows with the vocabulary
            self._count_waiting()
        add_table(self._others, part.others)

    def _count_waiting(self) -> None:
        self._held_by += np.bincount(np.concatenate(self._waiting), minlength=len(self._held_by))
        self._waiting = self._waiting[:1]

    def pooled(self) -> DocumentFrequencies:
        """Return the frequencies over all counted passages of the run."""
        if self._pool is None:
            self._count_waiting()
            present = self._held_by > 0
            pool_frequencies = DocumentFrequencies(self.vocabulary[present], self._held_by[present], self._n_counted)
            self._pool = merge_frequencies([pool_frequencies, *self._others])
            self._others = []
        return self._pool

    def of_passages(self, ids: Index) -> DocumentFrequencies:
        """Return the frequencies of query tokens over these passages. ids: distinct passage ids.

        Other tokens are left out, because coverage in this run does not need them.
        """
        return self._vocabulary_frequencies(self._passage_columns(np.sort(ids))[1], len(ids))

    def with_queries(self, documents: DocumentFrequencies, counted: npt.NDArray[np.bool_]) -> DocumentFrequencies:
        """Return the frequencies with the flagged queries added. counted: (n_queries,). Source: METHOD 4."""
        return merge_frequencies([documents, frequencies(self._query_sets, counted)])

    def idf(self, documents: DocumentFrequencies | None) -> Floats:
        """Return (V,), the IDF of the query vocabulary; all ones (uniform weights) if documents is None."""
        return np.ones(len(self.vocabulary)) if documents is None else documents.idf(self.vocabulary)

    def term_idf(self, terms: Sequence[str], idf: Floats) -> Floats:
        """Return (n,), the IDF of single query tokens. idf: (V,) result of `idf`."""
        result: Floats = idf[np.searchsorted(self.vocabulary, term_keys(terms, self.tokenizer))]
        return result

    def coverage(self, query_ids: Index, passage_ids: Index, idf: Floats) -> Floats:
        """Return (T,), the coverage c in [0, 1] of each (query, passage) pair; 0 if the query has no token.

        query_ids, passage_ids : (T,) ids.
        idf : (V,) result of `idf`, or (n, V) for n weightings at once, which give (n, T).
        The quotient is clamped, because two sums of the same numbers in different orders gave 1.0000000002.
        Source: METHOD 2.3.
        """
        several, sets = np.atleast_2d(idf), self._query_sets
        covered = np.zeros((len(several), len(query_ids)))
        queries = self._matrix(sets.numbers, sets.offsets)
        order = np.argsort(passage_ids, kind="stable")
        for start in range(0, len(order), LEXED_AT_ONCE):
            pairs = order[start : start + LEXED_AT_ONCE]
            first, last = passage_ids[pairs[0]], passage_ids[pairs[-1]]
            offsets = self._offsets[first : last + 2]
            passages = self._matrix(self._columns[offsets[0] : offsets[-1]], offsets - offsets[0])
            shared = queries[query_ids[pairs]].multiply(passages[passage_ids[pairs] - first])
            covered[:, pairs] = _row_sums(several, shared.indices, shared.indptr)
            if self._mapped is not None:
                release_read_pages(
                    self._mapped
                )  # chunks go through the file in order, so its pages are not asked for again
        total = _row_sums(several, sets.numbers, sets.offsets)[:, query_ids]
        quotient: Floats = np.divide(covered, total, out=np.zeros_like(covered), where=total > 0)
        return np.clip(quotient, 0.0, 1.0).reshape(*idf.shape[:-1], -1)

    def queries_without_tokens(self) -> npt.NDArray[np.bool_]:
        """Return (n_queries,) flags of queries without a usable token. Their c is 0 by definition."""
        wordless: npt.NDArray[np.bool_] = np.diff(self._query_sets.offsets) == 0
        return wordless

    def _passage_columns(self, ids: Index) -> tuple[Index, npt.NDArray[np.int32]]:
        """Return (offsets, columns) of these passages from the spool. ids: sorted passage ids."""
        counts = self._offsets[ids + 1] - self._offsets[ids]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(offsets[-1]) + np.repeat(self._offsets[ids] - offsets[:-1], counts)
        return offsets, np.asarray(self._columns[places])

    def _matrix(self, columns: npt.NDArray[Any], offsets: Index) -> Any:
        """Return a sparse matrix with a row per token set, and 1 in the column of each token."""
        from scipy import sparse  # imported here, because splitting texts does not need it

        shape = len(offsets) - 1, max(1, len(self.vocabulary))
        return sparse.csr_matrix((np.ones(len(columns), np.int8), columns, offsets), shape=shape)

    def _vocabulary_frequencies(self, columns: npt.NDArray[np.int32], n_documents: int) -> DocumentFrequencies:
        counts = np.bincount(columns, minlength=len(self.vocabulary))
        present = counts > 0
        return DocumentFrequencies(self.vocabulary[present], counts[present].astype(np.int64), n_documents)


def _row_sums(values: Floats, columns: npt.NDArray[Any], offsets: Index) -> Floats:
    """Return (n, rows), the sums of values over the columns of each row. values: (n, V)."""
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return np.array([np.bincount(row, row_values[columns], len(offsets) - 1) for row_values in values])


def _joined(parts: Iterable[TokenSets]) -> TokenSets:
    """Join the token sets of consecutive chunks. Without texts, return the empty set."""
    parts = list(parts)
    table = distinct(np.concatenate([np.zeros(0, np.uint64), *(part.table for part in parts)]))
    numbers, offsets = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
    for part in parts:
        numbers.append(np.searchsorted(table, part.table).astype(np.int32)[part.numbers])
        offsets.append(part.offsets[1:] + offsets[-1][-1])
    return TokenSets(table, np.concatenate(numbers), np.concatenate(offsets))
