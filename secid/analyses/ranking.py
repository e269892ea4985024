"""Which source ranks above which: intervals, paired comparisons with Holm, tie groups, probability of being first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import ceil
from typing import Protocol

import numpy as np
from scipy.special import ndtri

from secid.analyses.shared_queries import Pairs
from secid.arrays import Floats
from secid.measure.interval import FEWEST_QUERIES, Difference, finite, interval
from secid.measure.sequential import levels_of_looks
from secid.measure.uncertainty import holm, probability_first
from secid.results import Comparison, EarlyStop
from secid.results.between import PairedDifference

ESTABLISHED_P = 0.05
POWER_80 = 0.8416212335729143
"""80 % point of the normal distribution."""


def score_interval(nats: float, error: float, n_queries: int, budget: float) -> tuple[float, float]:
    """95 % interval of ECI_B. With too few queries for a standard error it is all that the score can be."""
    return interval(nats, error, n_queries, (0.0, budget))


def comparisons(pairs: Pairs, budget: float, stop: EarlyStop | None = None) -> tuple[Comparison, ...]:
    """Return all pairs at the run's budget, the higher-scored source first, with Holm-adjusted p.

    stop : after an early stop an order is established at the level of the look that ended the sample, since the sample
    ended because of what it showed. Source: METHOD 8, 16.1.
    """
    gaps = [pair.difference for pair in pairs.gaps]
    p_values = np.array([gap.p() for gap in gaps])
    steps, established = _holm_steps(p_values, stop)
    return tuple(
        Comparison(
            first=pair.first,
            second=pair.second,
            difference_nats=gap.value,
            standard_error_nats=gap.standard_error,
            interval_95=gap.interval_within(budget),
            n_shared_queries=gap.n_shared,
            z=gap.z,
            p=float(p),
            p_holm=float(adjusted),
            established=bool(known),
            queries_needed_50=_needed(gap, step, 0.0),
            queries_needed_80=_needed(gap, step, POWER_80),
            number=pair.number,
            hardness=_paired(pair.hardness),
            outscoring=_paired(pair.outscoring),
        )
        for pair, gap, p, adjusted, known, step in zip(
            pairs.gaps, gaps, p_values, holm(p_values), established, steps, strict=True
        )
    )


def _paired(gap: Difference | None) -> PairedDifference | None:
    return None if gap is None else PairedDifference(value=gap.value, interval_95=finite(gap.interval))


def _holm_steps(p_values: Floats, stop: EarlyStop | None) -> tuple[list[int], list[bool]]:
    """By pair: among how many its step shares the error, and whether its order is established.

    Pairs that stay open all wait for the first of them, so they have its step.
    """
    steps, established = [0] * len(p_values), [False] * len(p_values)
    step, still = len(p_values), True
    for place in np.argsort(p_values, kind="stable").tolist():
        steps[place] = step
        still = still and bool(p_values[place] < _level(ESTABLISHED_P / step, stop))
        established[place] = still
        step -= still
    return steps, established


def _level(alpha: float, stop: EarlyStop | None) -> float:
    """What the sample's end leaves of the error of a pair."""
    if stop is None:
        return alpha
    return float(levels_of_looks(np.asarray(stop.planned_looks, np.float64), alpha)[len(stop.looks) - 1])


def _needed(gap: Difference, step: int, power: float) -> int | None:
    """Distinct queries at which a difference like this one is established at its step: n ((z* + power) / z)^2."""
    return None if not gap.z else ceil(gap.n_queries * ((float(-ndtri(ESTABLISHED_P / 2 / step)) + power) / gap.z) ** 2)


class Ordered(Protocol):
    """Two sources, and whether their order is established."""

    @property
    def first(self) -> str: ...
    @property
    def second(self) -> str: ...
    @property
    def established(self) -> bool: ...


def rank_groups(names: Sequence[str], comparisons: Sequence[Ordered]) -> dict[str, int]:
    """Group of each source, 1 first: sources joined by pairs without an established order share one.

    names: in rank order. Sources of different groups are all established against each other. A pair that is missing, or
    established against the rank order, joins its sources too.
    """
    leader = {name: name for name in names}
    ahead = {(pair.first, pair.second) for pair in comparisons if pair.established}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for first, second in combinations(names, 2):
        if (first, second) not in ahead:
            leader[find(second)] = find(first)
    groups: dict[str, int] = {}
    for name in names:
        groups.setdefault(find(name), len(groups) + 1)
    return {name: groups[find(name)] for name in names}


def tie_groups(names: Sequence[str], comparisons: Sequence[Ordered]) -> dict[str, int | None]:
    """Return the groups of `rank_groups` among sources that were all compared with each other, and None for the rest.

    The source with the most missing pairs is left out first, of equal ones the last, until no pair is missing. Where
    only one of several would be left, every group is None.
    """
    compared = {frozenset((pair.first, pair.second)) for pair in comparisons}
    kept = list(names)
    while True:
        missing = [sum(frozenset((name, other)) not in compared for other in kept if other != name) for name in kept]
        if not any(missing):
            break
        worst = max(missing)
        del kept[len(kept) - 1 - missing[::-1].index(worst)]
    groups = rank_groups(kept, comparisons) if len(kept) > 1 or len(names) == 1 else {}
    return {name: groups.get(name) for name in names}


def chances(scores: Sequence[float], covariances: Floats, n_queries: Iterable[int], seed: int) -> Floats:
    """(S,) probability of the highest score; equal where a source has too few queries.

    covariances : (S, S).   n_queries : of each source. Source: METHOD 8.
    """
    if min(n_queries) < FEWEST_QUERIES:
        return np.full(len(scores), 1.0 / len(scores))
    return probability_first(np.array(scores), covariances, seed)
