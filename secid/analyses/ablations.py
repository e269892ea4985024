"""Ablations: scores of all sources under other settings, and how stable their ranking is. Source: METHOD 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from secid.analyses.analysis import Analysis, AnalysisResult, Context
from secid.errors import UsageError
from secid.measure.interval import MIN_QUERIES, interval, reach_95
from secid.settings import flag_of

if TYPE_CHECKING:
    from secid.measure.sweep import Variant
    from secid.triplets.measure_set import Aspect, Measured

Scores = Mapping[str, float | None]


@dataclass(frozen=True, kw_only=True)
class AblationRow:
    """All sources under one setting, at the run's budget. The base row is the run's own ranking.

    scores    : ECI_B in nats by source; None for a source without triplets under this setting (in a small sample).
    order     : names of the sources, highest score first.
    swapped   : pairs whose order is reversed compared with the base.
    stability : share of source pairs in the same order as under the base; None without a pair.
    block_stability : stability within each block of sources that the user named.
    n_queries    : number of queries by source. This field and the next two are set only in the ablation "sample".
    intervals_95 : 95 % intervals of the score of all queries, estimated from the sample; width 0 at 100 %.
    open_swaps   : pairs of `swapped` that may be noise, because the 95 % interval of their difference contains 0.
    """

    setting: str
    scores: Mapping[str, float | None]
    order: tuple[str, ...]
    stability: float | None
    block_stability: Mapping[str, float | None]
    swapped: tuple[tuple[str, str], ...]
    n_queries: Mapping[str, int] = field(default_factory=dict)
    intervals_95: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    open_swaps: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """Scores with one aspect varied, and everything else at the base setting.

    kendall_tau_b : for the ablation "encoder", rank correlation of each other encoder's scores with the base encoder's;
                    None if all scores of one encoder are equal.
    """

    name: str
    base: str
    rows: tuple[AblationRow, ...]
    kendall_tau_b: Mapping[str, float | None] = field(default_factory=dict)


def compute(context: Context) -> AnalysisResult[tuple[Ablation, ...]]:
    """Compute one table per aspect, at the run's budget. There is no result without --ablate."""
    if not context.suite:
        return AnalysisResult()
    blocks = blocks_of(context.settings.block, [item.name for item in context.ranked])
    return AnalysisResult(
        tuple(ablated(aspect, context.ranked, blocks, context.settings.budget) for aspect in context.suite)
    )


def ablated(aspect: Aspect, items: Sequence[Measured], blocks: Mapping[str, Sequence[str]], budget: float) -> Ablation:
    """Compute the table of one aspect at this budget. items: sets of triplets used for ranking."""
    from secid.measure.information import spectral_nats

    table: dict[str, dict[str, float | None]] = {}
    for setting, variant in aspect.variants.items():
        scores = {item.name: item.variants[variant] for item in items}
        n = sum(score.n_negatives for score in scores.values())
        mean = sum(score.weight_sum for score in scores.values()) / n if n else 0.0
        table[setting] = {
            name: spectral_nats(score.eigenvalues / mean, budget)
            if score.eigenvalues is not None and mean > 0
            else score.nats
            for name, score in scores.items()
        }
    table_of_aspect = ablation(aspect.name, aspect.base, table, blocks)
    return with_noise(table_of_aspect, aspect.variants, items, budget) if aspect.name == "sample" else table_of_aspect


def blocks_of(texts: Sequence[str], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Parse blocks of sources from `NAME=source,source` texts. Raises UsageError."""
    blocks: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, _, members = (part.strip() for part in text.partition("="))
        listed = tuple(part.strip() for part in members.split(",") if part.strip())
        if not name or len(listed) < 2:
            raise UsageError(
                f"not a block: {text!r}",
                where=flag_of("block"),
                remedy=f"write {flag_of('block', 'NAME=source,source')}",
            )
        for member in listed:
            if member not in names:
                raise UsageError(
                    f"no source {member!r}",
                    where=flag_of("block", name),
                    remedy=f"use sources of the run: {', '.join(names)}",
                )
        twice = next((member for member in listed if listed.count(member) > 1), None)
        if twice is not None or name in blocks:
            what = "this block" if twice is None else f"source {twice!r}"
            raise UsageError(f"{what} is named twice", where=flag_of("block", name), remedy="name each once")
        blocks[name] = listed
    return blocks


def ablation(
    name: str, base: str, scores: Mapping[str, Scores], blocks: Mapping[str, Sequence[str]] | None = None
) -> Ablation:
    """Build the table of one aspect. scores: nats by setting and source; None if not evaluated."""
    rows = tuple(_row(setting, values, scores[base], blocks or {}) for setting, values in scores.items())
    return Ablation(name=name, base=base, rows=rows)


def _row(setting: str, values: Scores, base: Scores, blocks: Mapping[str, Sequence[str]]) -> AblationRow:
    present = {source: value for source, value in values.items() if value is not None}
    ordered = sorted(base, key=lambda source: (-(-np.inf if (value := base[source]) is None else value), source))
    places = {source: place for place, source in enumerate(ordered)}
    return AblationRow(
        setting=setting,
        scores=dict(values),
        order=tuple(sorted(present, key=lambda source: (-present[source], places[source]))),
        stability=rank_stability(values, base, tuple(base)),
        block_stability={name: rank_stability(values, base, members) for name, members in blocks.items()},
        swapped=tuple(swapped(values, base, tuple(base))),
    )


def swapped(values: Scores, base: Scores, names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of sources whose order is opposite to the base. Pairs with a missing score are skipped."""
    pairs = []
    for first, second in combinations(names, 2):
        gap, base_gap = _gap(values, first, second), _gap(base, first, second)
        if gap is not None and base_gap is not None and gap * base_gap < 0:
            pairs.append((first, second) if base_gap > 0 else (second, first))
    return pairs


def rank_stability(values: Scores, base: Scores, names: Sequence[str]) -> float | None:
    """Return the fraction of source pairs in the same order: 1 if identical, 0 if reversed, None without a pair.

    A pair that ties under only one of the two settings counts half. Source: METHOD 3.
    """
    points = []
    for first, second in combinations(names, 2):
        gap, base_gap = _gap(values, first, second), _gap(base, first, second)
        if gap is None or base_gap is None:
            continue
        if gap == 0 and base_gap == 0:
            points.append(1.0)
        elif gap == 0 or base_gap == 0:
            points.append(0.5)
        else:
            points.append(float((gap > 0) == (base_gap > 0)))
    return sum(points) / len(points) if points else None


def _gap(values: Scores, first: str, second: str) -> float | None:
    a, b = values[first], values[second]
    return None if a is None or b is None else a - b


def over_encoders(table: Mapping[str, Scores]) -> Ablation:
    """Return the ablation over encoders. table: scores by encoder, the target first."""
    from secid.analyses.agreement import kendall_tau_b

    base, *others = table
    result = ablation("encoder", base, table)
    names = sorted(table[base])
    scores = {encoder: np.array([table[encoder][name] for name in names], np.float64) for encoder in table}
    return replace(result, kendall_tau_b={other: kendall_tau_b(scores[base], scores[other]) for other in others})


def with_noise(
    ablation: Ablation, variants: Mapping[str, Variant], items: Sequence[Measured], budget: float
) -> Ablation:
    """Complete the ablation over samples: add numbers of queries, 95 % intervals, and swaps that may be noise.

    items : sets of triplets used for ranking at `budget`.
    A sample of m of n queries estimates the score of all n, so its standard error is the run's standard error times
    sqrt(n/m - 1), which is 0 if m = n. With fewer than MIN_QUERIES queries, every swap may be noise. Source: METHOD 8.
    """
    rows = tuple(_sample_row(row, variants[row.setting], items, budget) for row in ablation.rows)
    return replace(ablation, rows=rows)


def _sample_row(row: AblationRow, variant: Variant, items: Sequence[Measured], budget: float) -> AblationRow:
    by_name = {item.name: item for item in items}
    n_queries = {item.name: item.variants[variant].n_queries for item in items}
    intervals = {
        item.name: _interval(item, value, n_queries[item.name], budget)
        for item in items
        if (value := row.scores[item.name]) is not None and n_queries[item.name] >= MIN_QUERIES
    }
    return replace(
        row,
        n_queries=n_queries,
        intervals_95=intervals,
        open_swaps=tuple(
            (first, second)
            for first, second in row.swapped
            if not _excludes_zero(row, by_name[first], by_name[second], min(n_queries[first], n_queries[second]))
        ),
    )


def _interval(item: Measured, nats: float, n_queries: int, budget: float) -> tuple[float, float]:
    error = float(item.influence.standard_errors()[0]) * _widening(len(item.influence.queries), n_queries)
    return interval(nats, error, n_queries, (0.0, budget))


def _excludes_zero(row: AblationRow, first: Measured, second: Measured, n_queries: int) -> bool:
    from secid.measure.uncertainty import difference

    a, b = row.scores[first.name], row.scores[second.name]
    if n_queries < MIN_QUERIES or a is None or b is None:
        return False
    gap = difference(first.influence, second.influence, a - b)
    reach = reach_95(n_queries) * gap.standard_error * _widening(gap.n_queries, n_queries)
    return abs(gap.value) > reach


def _widening(n_queries: int, n_sampled: int) -> float:
    """Return the standard error of a sample's estimate of the full score, as a multiple of the run's standard error."""
    return sqrt(n_queries / n_sampled - 1.0)


ABLATIONS = Analysis("ablations", tuple[Ablation, ...], compute)
