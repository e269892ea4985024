"""Ratios of sums by query, which can be restricted to any queries, added up over shards and compared in pairs.

Hardness, a share of negatives and tr M all have this form. Source: METHOD 16.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secid.arrays import Flags, Floats, Index, distinct
from secid.measure.interval import Difference


@dataclass(frozen=True)
class QuerySums:
    """The ratio sum(top) / sum(bottom) over queries.

    queries : (Q,) distinct ids, rising.   top, bottom : (Q,) sums over each query's triplets.
    """

    queries: Index
    top: Floats
    bottom: Floats

    @staticmethod
    def of(query: Index, top: Floats | Flags, bottom: Floats | None, share: Floats | None) -> QuerySums:
        """Sum (T,) columns by query.

        query : (T,) query ids.   bottom : None for ones, so that the ratio is the mean of the top over negatives.
        share : what each triplet counts, None for one each.
        """
        weight = np.ones(len(query)) if share is None else share
        queries = distinct(query)
        columns = weight * top, weight if bottom is None else weight * bottom
        return QuerySums(queries, *_added(np.searchsorted(queries, query), len(queries), *columns))

    def among(self, queries: Flags) -> QuerySums:
        """Restrict the sums to some queries. queries : flags by query id, for every id of this source."""
        keep = queries[self.queries]
        return self if keep.all() else QuerySums(self.queries[keep], self.top[keep], self.bottom[keep])

    @property
    def value(self) -> float | None:
        """The ratio; None unless the sum of bottom is positive."""
        bottom = float(self.bottom.sum())
        return float(self.top.sum()) / bottom if bottom > 0 else None

    def influence(self, top: float, bottom: float) -> Floats:
        """Return (Q,) first-order influence of each query on top / bottom, the totals that these sums are part of.

        Source: METHOD 8 (delta method).
        """
        influence: Floats = (self.top - top / bottom * self.bottom) / bottom
        return influence


@dataclass
class RatioDifference:
    """The difference of two sources in a ratio, over the same queries, whose sums may come in shards.

    sums : (4,) top and bottom of the first, then of the second.   square : of the standard error.
    """

    sums: Floats
    square: float = 0.0

    def add(self, first: QuerySums, second: QuerySums) -> None:
        """Add a shard in the first pass."""
        self.sums = self.sums + [part.sum() for side in (first, second) for part in (side.top, side.bottom)]

    def add_square(self, first: QuerySums, second: QuerySums) -> None:
        """Add a shard in the pass after it."""
        off = first.influence(*self.sums[:2]) - second.influence(*self.sums[2:])
        self.square += float((off**2).sum())

    def difference(self, n_queries: int) -> Difference:
        """Return the difference over all shards, paired by query."""
        top, bottom, other_top, other_bottom = self.sums
        value = float(top / bottom - other_top / other_bottom)
        return Difference(value, float(np.sqrt(self.square)), n_queries, n_queries)


def ratio_difference(first: QuerySums, second: QuerySums) -> Difference | None:
    """Return first - second over the same queries, paired by query; None if a side has no value."""
    if first.value is None or second.value is None:
        return None
    both = RatioDifference(np.zeros(4))
    both.add(first, second)
    both.add_square(first, second)
    return both.difference(len(first.queries))


def total(parts: list[QuerySums]) -> QuerySums:
    """Add up the sums of one or more sources: the ratio is then over all of their triplets."""
    queries = distinct(np.concatenate([part.queries for part in parts]))
    place = np.concatenate([np.searchsorted(queries, part.queries) for part in parts])
    top, bottom = (np.concatenate([getattr(part, name) for part in parts]) for name in ("top", "bottom"))
    return QuerySums(queries, *_added(place, len(queries), top, bottom))


def _added(place: Index, n: int, *columns: Floats) -> list[Floats]:
    return [np.bincount(place, column, n).astype(np.float64) for column in columns]
