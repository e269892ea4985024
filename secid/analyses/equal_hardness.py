"""Compare sources at equal hardness, by their mean weights among negatives of equal margin. Source: METHOD 15, 16.3.

The score cannot rank sources that are too easy, or whose margins overlap too little with those of the others.

Worked example: of the margins s_qp - s_qn of two sources, 70 % of the first lie below 0.1 and 20 % of the second. The
smaller shares are 0.2 below and 0.3 above, so they overlap by 0.5. If the first weighs 0.1 more below and 0.2 more
above, it weighs 0.4 * 0.1 + 0.6 * 0.2 = 0.16 more at equal margins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from secid.analyses.analysis import Analysis, AnalysisResult
from secid.arrays import Floats, Index, is_known
from secid.measure.interval import Difference, finite_interval

if TYPE_CHECKING:
    from secid.analyses.shared_queries import SourcePairs
    from secid.triplets.estimates import Estimate
    from secid.triplets.measure_set import Measured
    from secid.triplets.table import TripletTable

STRATA = 10
"""Number of strata: deciles of the margin. Source: METHOD 15."""
LEAST_OVERLAP = 0.2
"""Least overlap of margins for a comparison. With less, there are too few negatives of equal margin."""
TOO_EASY = 0.1
"""A source whose hardness interval ends below this is not ranked. Source: METHOD 16.3."""
SIGNIFICANT = 0.05
FEWEST_SOURCES = 3
"""Fewest sources for overlaps to leave a source out of the ranking."""


@dataclass(frozen=True, kw_only=True)
class EqualMargins:
    """Mean weight of the first source minus that of the second, among negatives of equal margin, on shared queries.

    overlap     : sum over deciles of the margin of the smaller of both sources' shares, in [0, 1].
    difference  : None if the overlap is below LEAST_OVERLAP.
    interval_95 : queries are the sampling unit, and the shares are taken as fixed; None with too few queries.
    p_holm      : two-sided p value over all compared pairs of the run; None without a difference.
    established : p_holm is below 0.05.
    """

    first: str
    second: str
    n_queries: int
    overlap: float
    difference: float | None
    interval_95: tuple[float, float] | None
    p_holm: float | None
    established: bool


@dataclass(frozen=True, kw_only=True)
class EqualHardness:
    """Pairs of sources with shared queries, the higher-scored first, and the sources that are not ranked.

    unranked : the reason by name: "too_easy" (as easy as random passages), or "apart" (no other source has such
               margins).
    """

    pairs: tuple[EqualMargins, ...]
    unranked: Mapping[str, str]

    def ranked(self, names: Sequence[str]) -> list[str]:
        """Return those of the names that are ranked."""
        return [name for name in names if name not in self.unranked]

    def listed(self, names: Sequence[str]) -> list[str]:
        """Return the names with those that are not ranked last."""
        return sorted(names, key=lambda name: name in self.unranked)


def equal_hardness(
    items: Sequence[Measured], pairs: SourcePairs, hardness: Mapping[str, Estimate], smallest_distance: float
) -> EqualHardness:
    """Compare every pair of sources that share enough queries for a comparison of their scores.

    items : by score.   smallest_distance : see `equal_margins`.
    """
    compared = {frozenset((gap.first, gap.second)) for gap in pairs.gaps}
    at_margins = adjusted(
        [
            equal_margins(first, second, smallest_distance)
            for first, second in combinations(items, 2)
            if frozenset((first.name, second.name)) in compared
        ]
    )
    ends = {name: finite_interval(estimate.interval) for name, estimate in hardness.items()}
    easiest = {name: end[1] for name, end in ends.items() if end is not None}
    return EqualHardness(pairs=at_margins, unranked=unranked([item.name for item in items], easiest, at_margins))


def adjusted(pairs: Sequence[tuple[EqualMargins, float | None]]) -> tuple[EqualMargins, ...]:
    """Return the pairs with Holm's p values. pairs: each with its own p value, None without a difference."""
    from secid.measure.uncertainty import holm

    p_holm = iter(holm(np.array([p for _, p in pairs if p is not None])).tolist())
    result = []
    for pair, p in pairs:
        own = None if p is None else next(p_holm)
        result.append(replace(pair, p_holm=own, established=own is not None and own < SIGNIFICANT))
    return tuple(result)


def unranked(names: Sequence[str], upper: Mapping[str, float], pairs: Sequence[EqualMargins]) -> dict[str, str]:
    """Return the reasons why sources are not ranked, by name; empty if all would be unranked, or without any hardness.

    upper : upper end of each hardness interval, for the sources that have one.
    """
    reasons: dict[str, str] = {name: "too_easy" for name in names if upper.get(name, TOO_EASY) < TOO_EASY}
    if len(names) >= FEWEST_SOURCES and upper:
        overlapping = {name for pair in pairs if pair.overlap >= LEAST_OVERLAP for name in (pair.first, pair.second)}
        compared = {name for pair in pairs for name in (pair.first, pair.second)}
        reasons |= {name: "apart" for name in names if name in compared - overlapping and name not in reasons}
    return {} if len(reasons) == len(names) else reasons


def equal_margins(first: Measured, second: Measured, smallest_distance: float) -> tuple[EqualMargins, float | None]:
    """Compare two sources on the queries that both have, at least one. The p value is not adjusted for other pairs.

    smallest_distance : ||n - p|| at or below which a triplet weighs 0, as in tr M.
    """
    shared = np.intersect1d(first.triplets.query, second.triplets.query)
    sides = [_Side.of(item.table, shared, smallest_distance) for item in (first, second)]
    edges = deciles(np.concatenate([side.margin for side in sides]), np.concatenate([side.share / 2 for side in sides]))
    strata = [np.searchsorted(edges, side.margin, side="right") for side in sides]
    masses: list[Floats] = [
        np.bincount(own, side.share, STRATA).astype(np.float64) for own, side in zip(strata, sides, strict=True)
    ]
    smaller = np.minimum(*masses)
    overlap = min(1.0, float(smaller.sum()))
    gap: Difference | None = None
    if overlap >= LEAST_OVERLAP:
        one, other = (
            side.standardised(own, mass, smaller / smaller.sum(), len(shared))
            for side, own, mass in zip(sides, strata, masses, strict=True)
        )
        error = float(np.sqrt(((one[1] - other[1]) ** 2).sum()))
        gap = Difference(one[0] - other[0], error, len(shared), len(shared))
    pair = EqualMargins(
        first=first.name,
        second=second.name,
        n_queries=len(shared),
        overlap=overlap,
        difference=None if gap is None else gap.value,
        interval_95=None if gap is None else finite_interval(gap.interval),
        p_holm=None,
        established=False,
    )
    return pair, None if gap is None else gap.p()


def deciles(margins: Floats, weights: Floats) -> Floats:
    """Return the inner edges of STRATA strata of equal weight: (STRATA - 1,) margins, rising.

    An edge is the first margin at which the sum of the sorted weights reaches its part of the total. A margin on an
    edge belongs to the stratum above it.
    """
    order = np.argsort(margins, kind="stable")
    reached = np.cumsum(weights[order])
    parts = np.arange(1, STRATA) / STRATA * reached[-1]
    edges: Floats = margins[order][np.searchsorted(reached, parts * (1 - 1e-12))]
    return edges


@dataclass(frozen=True)
class _Side:
    """Triplets of a source on the shared queries.

    query : (T,) place of the query among the shared ones.   margin, weight : (T,).   share : (T,) adding up to 1.
    """

    query: Index
    margin: Floats
    weight: Floats
    share: Floats

    @staticmethod
    def of(table: TripletTable, queries: Index, smallest_distance: float) -> _Side:
        keep = np.flatnonzero(is_known(table.triplets.query, queries))
        dots, weight = table.dots(), table.gates().weight.numpy()
        margin = (dots.query_positive - dots.query_negative).numpy()
        usable = dots.squared_distance.numpy() > smallest_distance**2
        share = np.ones(len(keep)) if table.share is None else table.share[keep]
        place = np.searchsorted(queries, table.triplets.query[keep])
        return _Side(place, margin[keep], np.where(usable, weight, 0.0)[keep], share / share.sum())

    def standardised(self, stratum: Index, mass: Floats, weights: Floats, n_queries: int) -> tuple[float, Floats]:
        """Return the mean weight if strata had these weights, and (Q,) the first-order influence of each query.

        stratum : (T,).   mass : (STRATA,) share of the triplets in each.   weights : (STRATA,) 0 if mass is 0.
        """
        known = np.maximum(mass, np.finfo(float).tiny)
        mean = np.bincount(stratum, self.share * self.weight, STRATA) / known
        counted = (weights / known)[stratum] * self.share
        off = np.bincount(self.query, counted * (self.weight - mean[stratum]), n_queries)
        return float(weights @ mean), off.astype(np.float64)


EQUAL_HARDNESS = Analysis("equal_hardness", EqualHardness, lambda context: AnalysisResult(context.equal_hardness))
