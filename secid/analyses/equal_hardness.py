"""Compare sources at equal hardness, by their mean weights among negatives of equal margin. Source: METHOD 15, 16.3.

The margin of a negative is s_qp - s_qn. The score cannot rank a source that is too easy, whose margins hardly overlap
with the margins of the other sources, or that shares too few queries with every other source.

Worked example: the margin is below 0.1 for 70 % of the negatives of source A and for 20 % of source B, and above 0.1
for 30 % and 80 %. The smaller shares are 0.2 and 0.3, so the overlap is 0.5. If the mean weight of A is higher by 0.1
below the limit and by 0.2 above it, it is higher by (0.2 * 0.1 + 0.3 * 0.2) / 0.5 = 0.16 at equal margins.
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
    from secid.analyses.shared_queries import PairGap, SourcePairs
    from secid.triplets.estimates import Estimate
    from secid.triplets.measure_set import Measured
    from secid.triplets.table import TripletTable

MARGIN_STRATA = 10
"""Number of strata of the margin. Their edges are deciles. Source: METHOD 15."""
MIN_OVERLAP = 0.2
"""Minimum overlap of margins for a comparison. Below it, there are too few negatives of equal margin."""
MIN_RANKED_HARDNESS = 0.1
"""Minimum upper end of a source's hardness interval. Below it, the source is not ranked. Source: METHOD 16.3."""
FEW_SHARED = "few_shared"
MAX_SIGNIFICANT_P = 0.05
MIN_PAIRED_SOURCES = 3
"""Minimum number of sources that are in a pair. With fewer, no source is left unranked for too little overlap."""


@dataclass(frozen=True, kw_only=True)
class EqualMargins:
    """Difference in mean weight between two sources, among negatives of equal margin, on shared queries.

    overlap     : for each decile of the margin, the smaller of the two sources' shares, summed; in [0, 1].
    difference  : mean weight of the first source minus that of the second; None if the overlap is below MIN_OVERLAP.
    interval_95 : 95 % interval of the difference. Queries are the sampling unit, and the shares are treated as fixed.
                  None with too few queries.
    p_holm      : two-sided p value, adjusted for all compared pairs of the run; None without a difference.
    established : True if p_holm is below 0.05.
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

    unranked : reason by source: "too_easy" (as easy as random passages), "apart" (its margins overlap too little with
               those of every other source), or "few_shared" (it shares too few queries with every other source).
    """

    pairs: tuple[EqualMargins, ...]
    unranked: Mapping[str, str]

    def ranked(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name not in self.unranked]

    def listed(self, names: Sequence[str]) -> list[str]:
        """Return the names with the unranked sources moved to the end."""
        return sorted(names, key=lambda name: name in self.unranked)

    def with_gaps(self, names: Sequence[str], gaps: Sequence[PairGap]) -> EqualHardness:
        """Return the result with "few_shared" taken from the pairs of a larger run, such as all shards together.

        If this would leave no source in the ranking, the other reasons are dropped.
        """
        others = {name: reason for name, reason in self.unranked.items() if reason != FEW_SHARED}
        isolated = few_shared(names, [(gap.first, gap.second) for gap in gaps])
        reasons = isolated | {name: reason for name, reason in others.items() if name not in isolated}
        return replace(self, unranked=isolated if len(reasons) == len(names) else reasons)


def equal_hardness(
    items: Sequence[Measured], pairs: SourcePairs, hardness: Mapping[str, Estimate], smallest_distance: float
) -> EqualHardness:
    """Compare every pair in `pairs.gaps` at equal hardness. items: sources in rank order."""
    compared = {frozenset((gap.first, gap.second)) for gap in pairs.gaps}
    at_margins = holm_adjusted(
        [
            equal_margins(first, second, smallest_distance)
            for first, second in combinations(items, 2)
            if frozenset((first.name, second.name)) in compared
        ]
    )
    ends = {name: finite_interval(estimate.interval) for name, estimate in hardness.items()}
    easiest = {name: end[1] for name, end in ends.items() if end is not None}
    return EqualHardness(pairs=at_margins, unranked=unranked([item.name for item in items], easiest, at_margins))


def holm_adjusted(pairs: Sequence[tuple[EqualMargins, float | None]]) -> tuple[EqualMargins, ...]:
    """Return the pairs with Holm-adjusted p values. pairs: (pair, p value); p is None without a difference."""
    from secid.measure.uncertainty import holm

    p_holm = iter(holm(np.array([p for _, p in pairs if p is not None])).tolist())
    result = []
    for pair, p in pairs:
        adjusted = None if p is None else next(p_holm)
        result.append(replace(pair, p_holm=adjusted, established=adjusted is not None and adjusted < MAX_SIGNIFICANT_P))
    return tuple(result)


def unranked(names: Sequence[str], upper: Mapping[str, float], pairs: Sequence[EqualMargins]) -> dict[str, str]:
    """Return why each unranked source is not ranked, by name.

    Sources in no pair are left out first, so that none of them can win. The others are judged by hardness and overlap
    as if no other source were in the run. If that would leave out all of them, they are all ranked.
    upper : upper end of the hardness interval by source, for sources that have one. If no source has one, only sources
            in no pair are not ranked.   pairs : the compared pairs; if there is none, all sources are judged.
    """
    isolated = few_shared(names, [(pair.first, pair.second) for pair in pairs])
    judged = [name for name in names if name not in isolated]
    reasons = {name: "too_easy" for name in judged if upper.get(name, MIN_RANKED_HARDNESS) < MIN_RANKED_HARDNESS}
    if len(judged) >= MIN_PAIRED_SOURCES and upper and pairs:
        overlapping = {name for pair in pairs if pair.overlap >= MIN_OVERLAP for name in (pair.first, pair.second)}
        reasons |= {name: "apart" for name in judged if name not in overlapping and name not in reasons}
    return isolated if len(reasons) == len(judged) else isolated | reasons


def few_shared(names: Sequence[str], compared: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the reason FEW_SHARED for each source in no compared pair; empty if no pair is compared."""
    known = {name for pair in compared for name in pair}
    return {name: FEW_SHARED for name in names if compared and name not in known}


def equal_margins(first: Measured, second: Measured, smallest_distance: float) -> tuple[EqualMargins, float | None]:
    """Compare two sources on their shared queries. Return the comparison, and its p value before Holm's adjustment.

    The sources must share at least one query. Without a difference, the p value is None.
    smallest_distance : a triplet's weight counts as 0 if ||n - p|| is at most this, as in tr M.
    """
    shared = np.intersect1d(first.triplets.query, second.triplets.query)
    sides = [_Side.of(item.table, shared, smallest_distance) for item in (first, second)]
    edges = deciles(np.concatenate([side.margin for side in sides]), np.concatenate([side.share / 2 for side in sides]))
    strata = [np.searchsorted(edges, side.margin, side="right") for side in sides]
    masses: list[Floats] = [
        np.bincount(stratum, side.share, MARGIN_STRATA).astype(np.float64)
        for stratum, side in zip(strata, sides, strict=True)
    ]
    smaller = np.minimum(*masses)
    overlap = min(1.0, float(smaller.sum()))
    gap: Difference | None = None
    if overlap >= MIN_OVERLAP:
        one, other = (
            side.standardised(stratum, mass, smaller / smaller.sum(), len(shared))
            for side, stratum, mass in zip(sides, strata, masses, strict=True)
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
    """Return (MARGIN_STRATA - 1,) margins that divide the triplets into strata of equal weight, ascending.

    margins, weights : (T,) margin and weight of each triplet.
    Edge i is the smallest margin at which the cumulative weight reaches i / MARGIN_STRATA of the total. A margin on an
    edge belongs to the stratum above it.
    """
    order = np.argsort(margins, kind="stable")
    reached = np.cumsum(weights[order])
    parts = np.arange(1, MARGIN_STRATA) / MARGIN_STRATA * reached[-1]
    edges: Floats = margins[order][np.searchsorted(reached, parts * (1 - 1e-12))]
    return edges


@dataclass(frozen=True)
class _Side:
    """Triplets of a source on the shared queries.

    query : (T,) number of the query among the shared queries.
    margin, weight, share : (T,) values of each triplet. The shares add up to 1.
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
        """Return the average of the strata's mean weights, standardised to `weights`, and (Q,) influence of each query.

        stratum : (T,) stratum of each triplet.   mass : (MARGIN_STRATA,) share of the triplets in each stratum.
        weights : (MARGIN_STRATA,) share of each stratum in the average; they add up to 1, and are 0 where `mass` is 0.
        The influences are first-order.
        """
        known = np.maximum(mass, np.finfo(float).tiny)
        mean = np.bincount(stratum, self.share * self.weight, MARGIN_STRATA) / known
        counted = (weights / known)[stratum] * self.share
        off = np.bincount(self.query, counted * (self.weight - mean[stratum]), n_queries)
        return float(weights @ mean), off.astype(np.float64)


EQUAL_HARDNESS = Analysis("equal_hardness", EqualHardness, lambda context: AnalysisResult(context.equal_hardness))
