"""Measured sources and controls to published numbers: scores with intervals, ranks, comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from secid.measure.blocks import Triplets
from secid.measure.information import InformationState, log_det_nats, trace
from secid.measure.interval import FEWEST_QUERIES, reach_95
from secid.measure.sequential import levels_of_looks
from secid.measure.spectrum import spectrum
from secid.measure.summary import GateTable, gate_means
from secid.measure.sweep import Scalars, Variant
from secid.measure.uncertainty import (
    Difference,
    Influence,
    covariance,
    difference,
    holm,
    probability_first,
)
from secid.plan import PlannedSource
from secid.results import Against, BudgetPoint, Comparison, ControlResult, EarlyStop, InputFile, SourceResult
from secid.settings import Settings
from secid.study.controls import Control
from secid.study.inspect import Findings

Floats = npt.NDArray[np.float64]

CURVE_BUDGETS = (1.0, 10.0, 100.0, 1_000.0, 10_000.0)
"""METHOD 7; N of the source is added."""
ESTABLISHED_P = 0.05
POWER_80 = 0.8416212335729143
"""80 % point of the normal distribution."""


@dataclass(frozen=True)
class VariantScore:
    """ECI_B of a source under one variant. A weight beyond [0, 1] is scaled over the run, so it keeps its state.

    n_queries: distinct queries of the variant's sample.
    """

    nats: float | None
    state: InformationState | None
    weight_sum: float
    n_queries: int


@dataclass(frozen=True)
class Measured:
    """One set of triplets after both passes. planned is None for a control.

    coverage, positive_coverage : (T,) of the negative and of the scored positive.
    influence                   : at the run's budget first, then at the budgets of the curve.
    query_keys                  : (Q, 16) text keys of influence.queries.
    """

    name: str
    planned: PlannedSource | None
    triplets: Triplets
    scalars: Scalars
    coverage: Floats
    positive_coverage: Floats
    gates: GateTable
    record_gradient: Floats
    state: InformationState
    influence: Influence
    query_keys: npt.NDArray[np.uint8]
    variants: Mapping[Variant, VariantScore]
    _nats: dict[float, float] = field(init=False, repr=False, compare=False, default_factory=dict)

    def nats(self, budget: float) -> float:
        """ECI_B of this set, computed once."""
        if budget not in self._nats:
            self._nats[budget] = log_det_nats(self.state.matrix(), budget)
        return self._nats[budget]


def curve_budgets(budget: float, n_negatives: float) -> tuple[float, ...]:
    """The run's budget first, then the curve's and N, rising, each once."""
    others = sorted({*CURVE_BUDGETS, max(1.0, float(round(n_negatives)))} - {budget})
    return (budget, *others)


def measurement(item: Measured, settings: Settings) -> dict[str, Any]:
    """The fields that sources and controls share (results.Measurement)."""
    matrix = item.state.matrix()
    points = _curve(item)
    score = next(point for point in points if point.budget == 1.0)
    shape = spectrum(matrix)
    column = item.influence.column(1.0)
    return {
        "n_queries": len(item.influence.queries),
        "n_triplets": len(item.triplets) if item.planned is None else item.planned.n_triplets,
        "eci_nats": score.nats,
        "eci_per_dimension": score.nats / matrix.shape[0],
        "standard_error_nats": float(item.influence.standard_errors()[column]),
        "interval_95": score.interval_95,
        "bias_nats": score.bias_nats,
        "trace": trace(matrix),
        **vars(shape),
        "budget_curve": points,
        **vars(gate_means(item.gates, item.positive_coverage, settings.high_coverage, item.triplets.share)),
    }


def _curve(item: Measured) -> tuple[BudgetPoint, ...]:
    """ECI_B at the run's budget and those of the curve, rising."""
    errors = item.influence.standard_errors()
    points = []
    for budget, error, bias in zip(item.influence.budgets, errors, item.influence.bias_nats, strict=True):
        nats = item.nats(budget)
        points.append(
            BudgetPoint(
                budget=budget,
                nats=nats,
                interval_95=interval(item, budget, nats, float(error)),
                bias_nats=float(bias),
            )
        )
    return tuple(sorted(points, key=lambda point: point.budget))


def interval(item: Measured, budget: float, nats: float, error: float) -> tuple[float, float]:
    """95 % interval of ECI_B. With too few queries for a standard error it is all that the score can be."""
    if len(item.influence.queries) < FEWEST_QUERIES:
        return (0.0, budget)
    half = reach_95(len(item.influence.queries)) * error
    return (max(0.0, nats - half), nats + half)


def difference_interval(gap: Difference, budget: float) -> tuple[float, float]:
    """95 % interval of a difference of ECI_B. With too few queries it is all that the difference can be."""
    if gap.n_queries < FEWEST_QUERIES:
        return (-budget, budget)
    half = reach_95(gap.n_queries) * gap.standard_error
    return (gap.nats - half, gap.nats + half)


def compare(ranked: Sequence[Measured], budget: float, stop: EarlyStop | None = None) -> tuple[Comparison, ...]:
    """All pairs of sources at the run's budget, the higher-scored first, with Holm-adjusted p.

    stop : an early stop: an order is then established at the level of the look that ended it, since the sample was
    ended for what it showed. Source: METHOD 8.
    """
    pairs = list(combinations(ranked, 2))
    gaps = [difference(a.influence, b.influence, a.nats(budget) - b.nats(budget)) for a, b in pairs]
    p_values = np.array([gap.p() for gap in gaps])
    steps, established = _holm_steps(p_values, stop)
    return tuple(
        Comparison(
            first=first.name,
            second=second.name,
            difference_nats=gap.nats,
            standard_error_nats=gap.standard_error,
            interval_95=difference_interval(gap, budget),
            n_shared_queries=gap.n_shared_queries,
            z=gap.z,
            p=float(p),
            p_holm=float(adjusted),
            established=bool(known),
            queries_needed_50=_needed(gap, step, 0.0),
            queries_needed_80=_needed(gap, step, POWER_80),
        )
        for (first, second), gap, p, adjusted, known, step in zip(
            pairs, gaps, p_values, holm(p_values), established, steps, strict=True
        )
    )


def _holm_steps(p_values: Floats, stop: EarlyStop | None) -> tuple[list[int], list[bool]]:
    """By pair: among how many its step shares the error, and whether its order is established.

    Pairs that stay open all wait for the first of them, so they have its step.
    """
    steps, established = [0] * len(p_values), [False] * len(p_values)
    step, standing = len(p_values), True
    for place in np.argsort(p_values, kind="stable").tolist():
        steps[place] = step
        standing = standing and bool(p_values[place] < _level(ESTABLISHED_P / step, stop))
        established[place] = standing
        step -= standing
    return steps, established


def _level(alpha: float, stop: EarlyStop | None) -> float:
    """What the sample's end leaves of the error of a pair."""
    if stop is None:
        return alpha
    return float(levels_of_looks(np.asarray(stop.planned_looks, np.float64), alpha)[len(stop.looks) - 1])


def _needed(gap: Difference, step: int, power: float) -> int | None:
    """Distinct queries at which a difference like this one is established at its step: n ((z* + power) / z)^2."""
    return None if not gap.z else ceil(gap.n_queries * ((float(-ndtri(ESTABLISHED_P / 2 / step)) + power) / gap.z) ** 2)


def rank_groups(names: Sequence[str], comparisons: Sequence[Comparison]) -> dict[str, int]:
    """Group of each source, 1 first: sources joined by pairs without an established order share one.

    names: in rank order. Sources of different groups are all established against each other.
    """
    leader = {name: name for name in names}

    def find(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    for pair in comparisons:
        if not pair.established:
            leader[find(pair.second)] = find(pair.first)
    groups: dict[str, int] = {}
    for name in names:
        groups.setdefault(find(name), len(groups) + 1)
    return {name: groups[find(name)] for name in names}


def chances(ranked: Sequence[Measured], settings: Settings) -> Floats:
    """(S,) probability of the highest score; equal where a source has too few queries to tell. Source: METHOD 8."""
    if any(len(item.influence.queries) < FEWEST_QUERIES for item in ranked):
        return np.full(len(ranked), 1.0 / len(ranked))
    scores = np.array([item.nats(settings.budget) for item in ranked])
    return probability_first(scores, covariance([item.influence for item in ranked]), settings.seed)


def source_result(
    item: Measured,
    level: Measured | None,
    rank: int,
    group: int,
    chance: float,
    files: Mapping[str, InputFile],
    findings: Findings,
    settings: Settings,
) -> SourceResult:
    """The published numbers of one source. level: the source cut to equal numbers, the item where nothing is cut."""
    planned = item.planned
    if planned is None:
        raise ValueError("a control has no source result")
    inputs = tuple(files[path] for path in planned.source.paths)
    tally = planned.tally
    return SourceResult(
        name=planned.name,
        rank=rank,
        rank_group=group,
        probability_first=chance,
        paths=inputs,
        schema=", ".join(sorted({file.schema for file in inputs})),
        n_read=tally.n_read,
        n_used=tally.n_used,
        n_records=planned.n_records,
        n_not_sampled=tally.n_records - planned.n_records,
        skipped=tally.skipped,
        dropped_negatives=tally.dropped,
        examples=tally.examples,
        equal_curve=() if level is None or level is item else _curve(level),
        **vars(findings),
        **measurement(item, settings),
    )


def control_result(
    control: Control, item: Measured, n_new_texts: int, ranked: Sequence[Measured], settings: Settings
) -> ControlResult:
    """The published numbers of one control, and each source's paired difference from it."""
    against = []
    for source in ranked:
        if control.of is not None and source.name != control.of:
            continue
        gap = difference(source.influence, item.influence, source.nats(1.0) - item.nats(1.0), 1.0)
        against.append(
            Against(
                source=source.name,
                difference_nats=gap.nats,
                interval_95=difference_interval(gap, 1.0),
                z=gap.z,
            )
        )
    return ControlResult(
        kind=control.kind, of=control.of, n_new_texts=n_new_texts, against=tuple(against), **measurement(item, settings)
    )
