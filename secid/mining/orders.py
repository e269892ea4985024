"""The order in which a method takes up the candidates of a query: exact, and the same whatever else is mined.

An order is asked for up to a depth: the first ones of each query, best first, padded with -1 where it has no more.
Equal scores go by text key, as candidates do, so that no order of files or rows counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch

from secid.arrays import Floats, Index, distinct
from secid.measure.blocks import Role, Vectors
from secid.pool import splitter
from secid.pool.texts import TextStore
from secid.triplets.embedding import rows_of_ids
from secid.triplets.search import bm25_index, nearest

QUERY_BLOCK, WINDOW = 1_024, 16_384
"""Queries and candidates compared at once: 64 MB of scores."""
PAIRS_AT_ONCE = 1 << 15
"""Of rows multiplied in float64: 200 MB at 384 dimensions."""
TEXTS_AT_ONCE = 4_096
COMPARED_BEYOND = 8
"""Candidates beyond the depth that are compared exactly, so that few lists are computed twice."""
STREAM = 4
"""Of the seed: controls draw from 1 and 2, the random reference from 3."""


class Order(NamedTuple):
    """(q, m) ids of the first m candidates of each query, -1 behind its last one, and their scores, NaN there."""

    ids: Index
    scores: Floats


class Ranking(Protocol):
    """An order for each query."""

    def first(self, queries: Index, depth: int) -> Order:
        """The first `depth` candidates of these queries. depth: >= 1."""
        ...


class DenseRanking:
    """By the dot product with the query's row: found in float32, compared in float64. n: candidates, ids below it."""

    def __init__(self, vectors: Vectors, n: int) -> None:
        self._vectors, self._n = vectors, n

    def first(self, queries: Index, depth: int) -> Order:
        """As in `Ranking`. Exact: a list is searched further while a candidate outside could belong to it."""
        k, depth = min(self._n, depth + COMPARED_BEYOND), min(self._n, depth)
        ids, scores = np.full((len(queries), depth), -1), np.full((len(queries), depth), np.nan)
        pending = np.arange(len(queries))
        while len(pending):
            best, values, certain = self._search(queries[pending], k)
            done = (certain >= depth) if k < self._n else np.ones(len(pending), np.bool_)
            ids[pending[done]], scores[pending[done]] = best[done, :depth], values[done, :depth]
            pending, k = pending[~done], min(self._n, 2 * k)
        return Order(ids, scores)

    def _search(self, queries: Index, k: int) -> tuple[Index, Floats, Index]:
        """The k best of each query by float32, ordered by float64, and how many of them no other can come before."""
        anchors = list(rows_of_ids(self._vectors, "query", queries, QUERY_BLOCK))
        parts = rows_of_ids(self._vectors, "passage", np.arange(self._n), WINDOW)
        rough, places = (part.cpu().numpy() for part in nearest(anchors, parts, k))
        scores = dots(self._vectors, np.repeat(queries, k), places.ravel()).reshape(places.shape)
        order = np.lexsort((places, -scores))
        best, values = (np.take_along_axis(array, order, axis=1) for array in (places, scores))
        # The sum of d rounded products of unit rows is off by d units in the last place at most.
        error = (self._vectors.dimension + 2) * float(np.finfo(np.float32).eps)
        return best, values, (values > rough.min(axis=1, keepdims=True) + error).sum(axis=1)


class Bm25Ranking:
    """By BM25 over the tokens of a tokenizer; candidates that share none with the query are in no list."""

    def __init__(
        self, queries: TextStore, candidates: TextStore, n: int, tokenizer: str, tick: Callable[[int], None]
    ) -> None:
        """n : candidates, ids below it.   tick : called with how many of them were read."""
        split, split_document = splitter(tokenizer, "query"), splitter(tokenizer, "passage")
        self._split, self._queries, self._n = split, queries, n

        def read(store: TextStore, n_texts: int, step: Callable[[int], None]) -> Iterable[str]:
            for start in range(0, n_texts, TEXTS_AT_ONCE):
                texts = store.get(start, min(n_texts, start + TEXTS_AT_ONCE))
                step(len(texts))
                yield from texts

        asked = map(split, read(queries, len(queries), lambda n: None))
        self._index = bm25_index(asked, map(split_document, read(candidates, n, tick)))

    def first(self, queries: Index, depth: int) -> Order:
        """As in `Ranking`."""
        depth = min(depth, self._n)
        ids, scores = np.full((len(queries), depth), -1), np.full((len(queries), depth), np.nan)
        for row, text in enumerate(self._queries.take(queries)):
            tokens = self._split(text)
            if not tokens or self._index is None:
                continue
            values = self._index.get_scores(tokens)
            least = max(float(np.partition(values, self._n - depth)[self._n - depth]), np.finfo(np.float32).tiny)
            places = np.flatnonzero(values >= least)
            places = places[np.argsort(-values[places], kind="stable")][:depth]
            ids[row, : len(places)], scores[row, : len(places)] = places, values[places]
        return Order(ids, scores)


class RandomRanking:
    """Candidates in an order drawn for each query by the seed and the query's text key. n: candidates, ids below it."""

    def __init__(self, queries: TextStore, n: int, seed: int) -> None:
        self._queries, self._n, self._seed = queries, n, seed

    def first(self, queries: Index, depth: int) -> Order:
        """As in `Ranking`. Scores are NaN. An order is the beginning of every deeper one."""
        depth = min(depth, self._n)
        keys = np.ascontiguousarray(self._queries.keys[queries]).view("<u4").tolist()
        ids = np.array([self._drawn([self._seed, STREAM, *key], depth) for key in keys]).reshape(len(queries), depth)
        return Order(ids, np.full(ids.shape, np.nan))

    def _drawn(self, seed: Sequence[int], depth: int) -> Index:
        """Draws with replacement, each candidate where it comes first: so more draws change none before them."""
        n_draws = 2 * depth
        while True:
            draws = np.random.default_rng(seed).integers(self._n, size=n_draws)
            first = np.sort(np.unique(draws, return_index=True)[1])
            if len(first) >= depth:
                return draws[first[:depth]]
            n_draws *= 2


def dots(vectors: Vectors, queries: Index, passages: Index) -> Floats:
    """(n,) dot product of each pair's rows in float64; the same for a pair whatever the others are."""
    parts = [torch.zeros(0, dtype=torch.float64)]
    for start in range(0, len(queries), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        left, right = _rows(vectors, "query", queries[part]), _rows(vectors, "passage", passages[part])
        parts.append((left * right).sum(1).cpu())
    return torch.cat(parts).numpy()


def _rows(vectors: Vectors, role: Role, ids: Index) -> torch.Tensor:
    own = distinct(ids)
    rows = torch.cat(list(rows_of_ids(vectors, role, own, len(own)))).double()
    return rows[torch.from_numpy(np.searchsorted(own, ids)).to(rows.device)]
