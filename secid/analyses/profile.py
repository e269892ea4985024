"""Gate profile of each source: its mean gates, and each gate's contribution to the gap from random passages.

Worked example: a triplet with π = 0.5, ρ = 0.8, λ = 0.9 has a weight of 0.36, and a random passage with 0.9, 0.7, 0.95
has a weight of 0.5985. Shapley values split the gap of -0.2385 among the gates: about -0.345 for consistency, 0.135 for
locality and -0.028 for the residual.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import factorial
from typing import TYPE_CHECKING

import numpy as np

from secid.analyses.analysis import Analysis, AnalysisResult, Context
from secid.arrays import Floats, Index, distinct, is_known
from secid.measure.interval import finite_interval
from secid.triplets.estimates import Estimate, Names, comparable_keys, paired_difference, wilson_interval

if TYPE_CHECKING:
    from secid.triplets.measure_set import Measured
    from secid.triplets.table import TripletTable

FACTORS = ("consistency", "locality", "residual")
"""The gates whose product is the weight of a triplet."""
NO_GAP = "no_random_passages_of_the_queries"


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over a set's negatives, or a difference of two means. Queries are the sampling unit.

    interval_95 : 95 % interval. For a gate it lies within [0, 1], and is [0, 1] with fewer than five queries. For a
                  difference it is None with fewer than five queries.
    """

    value: float
    interval_95: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class GapToRandom:
    """Mean weight of a source minus the mean weight of random passages, on the same queries. Source: METHOD 15.

    n_queries : number of shared queries.   weight : the gap.
    consistency, locality, residual : contribution of each gate; they add up to the gap.
    """

    n_queries: int
    weight: Mean
    consistency: Mean
    locality: Mean
    residual: Mean


@dataclass(frozen=True, kw_only=True)
class GateProfile:
    """Mean gates of a source on the table's queries, or of a control.

    source : name of the source, or kind of the control.   n_queries : number of distinct queries.
    weight : mean weight, the product of the gates.
    gap    : gap from random passages; None for a control, or if the source's queries have no random passages.
    """

    source: str
    n_queries: int
    consistency: Mean
    locality: Mean
    residual: Mean
    weight: Mean
    gap: GapToRandom | None = None


@dataclass(frozen=True, kw_only=True)
class Profiles:
    """Profiles of the sources, and of two controls for comparison: random passages and known positives."""

    sources: tuple[GateProfile, ...]
    controls: Mapping[str, GateProfile]


def compute(context: Context) -> AnalysisResult[Profiles]:
    """Compute the profile of every source, and of random passages and known positives if they were scored."""
    controls = {
        control.kind: item for control, item in context.controls if control.kind in ("random", "known_positive")
    }
    random, distance = controls.get("random"), context.measurer.smallest_distance
    sources = [
        profile(item, gap=None if random is None else gap_to_random(item, random, distance)) for item in context.table
    ]
    missing = {
        f"gap to random of {profile.source}": NO_GAP
        for profile in sources
        if random is not None and profile.gap is None
    }
    control_profiles = {kind: profile(item, kind) for kind, item in controls.items()}
    return AnalysisResult(Profiles(sources=tuple(sources), controls=control_profiles), missing)


def profile(item: Measured, name: str | None = None, gap: GapToRandom | None = None) -> GateProfile:
    """Return the mean gates of a measured set with at least one triplet."""
    columns, names = item.table.columns(), comparable_keys(item.query_keys)
    means = {}
    for column in (*FACTORS, "weight"):
        mean = item.table.mean(columns[column], names)
        means[column] = Mean(value=mean.value, interval_95=wilson_interval(mean))
    return GateProfile(source=name or item.name, n_queries=len(names), gap=gap, **means)


def shapley(gates: Mapping[str, Floats]) -> dict[str, Floats]:
    """Split (product of the gates - 1) of each triplet among the gates. Return (T,) parts by name.

    gates : (T,) values in [0, 1] by name. A gate's part is its effect on the product, averaged over all orders of
    multiplication. Source: Shapley 1953; METHOD 15.
    """
    n = len(gates)
    parts = {name: np.zeros(len(values)) for name, values in gates.items()}
    for name, gate_values in gates.items():
        others = [other for other in gates if other != name]
        for size in range(n):
            share = factorial(size) * factorial(n - 1 - size) / factorial(n)
            for subset in combinations(others, size):
                parts[name] += share * np.prod([gates[other] for other in subset], axis=0) * (gate_values - 1.0)
    return parts


def gap_to_random(item: Measured, random: Measured, smallest_distance: float) -> GapToRandom | None:
    """Return the gap in mean weight between a source and random passages on shared queries; None if they share none.

    smallest_distance : a triplet's gates count as 0 if ||n - p|| is at most this, so that the mean weight is tr M.
    """
    queries, other = distinct(item.triplets.query), distinct(random.triplets.query)
    shared = queries[is_known(queries, other)]
    if not len(shared):
        return None
    names = comparable_keys(item.query_keys)[is_known(queries, shared)]
    first, second = (_parts(part.table, shared, names, smallest_distance) for part in (item, random))
    gaps = {name: paired_difference(first[name], second[name]) for name in first}
    means = {name: Mean(value=gap.value, interval_95=finite_interval(gap.interval)) for name, gap in gaps.items()}
    return GapToRandom(n_queries=len(shared), **means)


def _parts(table: TripletTable, queries: Index, names: Names, smallest_distance: float) -> dict[str, Estimate]:
    """Return the mean weight on some queries, and the mean of each gate's part. names: (Q,) names of these queries."""
    shared = table.rows(np.flatnonzero(is_known(table.triplets.query, queries)))
    columns = shared.columns()
    usable = shared.dots().squared_distance.numpy() > smallest_distance**2
    gates = {name: np.where(usable, columns[name], 0.0) for name in FACTORS}
    values = {**shapley(gates), "weight": np.prod([*gates.values()], axis=0)}
    return {name: shared.mean(column, names) for name, column in values.items()}


PROFILE = Analysis("profile", Profiles, compute)
