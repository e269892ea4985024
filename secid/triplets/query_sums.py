"""Ratios of sums by query, which can be restricted to any queries, added up over shards and compared in pairs.

Hardness, a share of negatives and tr M all have this form. Source: METHOD 16.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secid.arrays import Flags, Floats, Index, distinct
from secid.measure.blocks import Triplets
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
    def of(triplets: Triplets, values: Floats | Flags) -> QuerySums:
        """Sum a (T,) column, whose ratio is then its mean over negatives."""
        share = np.ones(len(triplets)) if triplets.share is None else triplets.share
        queries = distinct(triplets.query)
        place = np.searchsorted(queries, triplets.query)
        return QuerySums(queries, *_added(place, len(queries), share * values, share))

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


def ratio_difference(first: QuerySums, second: QuerySums) -> Difference | None:
    """Return first - second over the same queries, paired by query; None if a side has no value."""
    a, b = first.value, second.value
    if a is None or b is None:
        return None
    ours, theirs = (side.influence(side.top.sum(), side.bottom.sum()) for side in (first, second))
    off = ours - theirs
    return Difference(a - b, float(np.sqrt((off**2).sum())), len(off), len(off))


def total(parts: list[QuerySums]) -> QuerySums:
    """Add up the sums of one or more sources: the ratio is then over all of their triplets."""
    queries = distinct(np.concatenate([part.queries for part in parts]))
    place = np.concatenate([np.searchsorted(queries, part.queries) for part in parts])
    top, bottom = (np.concatenate([getattr(part, name) for part in parts]) for name in ("top", "bottom"))
    return QuerySums(queries, *_added(place, len(queries), top, bottom))


def _added(place: Index, n: int, *columns: Floats) -> list[Floats]:
    return [np.bincount(place, column, n).astype(np.float64) for column in columns]
