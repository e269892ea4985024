"""The order in which a method takes up the candidates of a query: exact, and the same whatever else is mined.

An order is asked for up to a depth: the first ones of each query, best first, padded with -1 where it has no more.
Equal scores go by text key, as candidates do, so that no order of files or rows counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from secid.arrays import Floats, Index
from secid.measure.blocks import Vectors
from secid.pool.texts import Packed, TextStore, pieces
from secid.triplets.bm25 import Bm25
from secid.triplets.search import nearest_passages

TEXTS_AT_ONCE = 4_096
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
    """By the dot product with the query's row. n: candidates, ids below it, in the order of their text keys."""

    def __init__(self, vectors: Vectors, n: int) -> None:
        self._vectors, self._n = vectors, n

    def first(self, queries: Index, depth: int) -> Order:
        """As in `Ranking`."""
        return Order(*nearest_passages(self._vectors, queries, np.arange(self._n), depth))


class Bm25Ranking:
    """By BM25 over the tokens of a tokenizer; candidates that share none with the query are in no list."""

    def __init__(
        self, queries: TextStore, candidates: TextStore, n: int, tokenizer: str, tick: Callable[[int], None]
    ) -> None:
        """n : candidates, ids below it, in the order of their text keys.   tick : called with how many were read."""

        def documents() -> Iterator[Packed]:
            for start, stop in pieces(n, TEXTS_AT_ONCE, candidates.lengths[:n]):
                yield candidates.packed(start, stop)
                tick(stop - start)

        self._n, self._index = n, Bm25(queries.packed(0, len(queries)), documents(), tokenizer)

    def first(self, queries: Index, depth: int) -> Order:
        """As in `Ranking`."""
        return Order(*self._index.best(queries, min(depth, self._n)))


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
