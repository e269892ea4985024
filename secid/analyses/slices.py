"""The same sources scored within each value of a column: language, subset, length class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite

from secid.analyses.ablations import rank_stability
from secid.analyses.ranking import comparisons, score_interval, tie_groups
from secid.analyses.shared_queries import Pairs, compared_pairs, same_queries
from secid.arrays import Index
from secid.pool import Plan
from secid.progress import Progress
from secid.results import Slice, SliceSource
from secid.results.catalogue import FINDINGS
from secid.settings import Settings
from secid.triplets.measure_set import Bench, level_places
from secid.triplets.measured import Measured

MOST_SLICES = 1_000
"""A column of more values identifies rows, not parts of the data."""


def slices(
    plan: Plan,
    items: Sequence[Measured],
    bench: Bench,
    whole: Mapping[str, float],
    settings: Settings,
    progress: Progress,
) -> tuple[Slice, ...]:
    """Scores with intervals, and shares of findings, for each value, the largest slice first.

    items : the sources, measured whole: a slice is scored in their pools, so every IDF is the run's.
    whole : what the run ranks by.
    Ranked as the run is: at its budget, and beyond budget 1 cut to equal size within the slice.
    Empty without settings.by.
    """
    if settings.by is None:
        return ()
    result = []
    progress.start("slices", len(plan.slices), "slices")
    for number, value in enumerate(plan.slices):
        inside = [(item, keep) for item in items if (keep := item.table.in_slice(number)).size]
        if inside:
            parts = [bench.part(item, keep, settings.budget) for item, keep in inside]
            cut = _ranked_sets(plan, inside, parts, bench, settings)
            pairs = compared_pairs(plan, parts, cut, bench, settings)
            result.append(_slice(settings, value, parts, cut, pairs, whole))
        progress.advance(1)
    return tuple(sorted(result, key=lambda item: (-sum(s.n_triplets for s in item.sources), _natural(item.value))))


def _natural(value: str) -> tuple[float, str]:
    """Numbers by their size, before all names."""
    try:
        number = float(value)
    except ValueError:
        return inf, value
    return (number, value) if isfinite(number) else (inf, value)


def _ranked_sets(
    plan: Plan,
    inside: Sequence[tuple[Measured, Index]],
    parts: Sequence[Measured],
    bench: Bench,
    settings: Settings,
) -> Sequence[Measured]:
    """The parts as they are ranked: beyond budget 1 cut to equal size, where that can be."""
    own = [part.triplets for part in parts]
    level = None if settings.budget <= 1.0 else level_places(plan, own, settings.seed)
    if level is None:
        return parts
    return [
        part if len(places) == len(keep) else bench.part(item, keep[places], settings.budget)
        for part, (item, keep), places in zip(parts, inside, level, strict=True)
    ]


def _slice(
    settings: Settings,
    value: str,
    items: Sequence[Measured],
    ranking_sets: Sequence[Measured],
    pairs: Pairs,
    whole: Mapping[str, float],
) -> Slice:
    """ranking_sets: the items as they are ranked, cut to equal size beyond budget 1."""
    budget, whole_slice = settings.budget, {item.name: item for item in items}
    sets = {item.name: item for item in ranking_sets}
    same = same_queries(ranking_sets)
    order = pairs.order({name: item.nats(budget) for name, item in sets.items()}, same=same)
    ranked = [sets[name] for name in order]
    scores = {item.name: item.nats(budget) for item in ranked}
    compared = comparisons(pairs.in_order(order), budget)
    groups = tie_groups(order, compared)
    leader = min(whole, key=lambda name: (-whole[name], name))
    sources = []
    for rank, cut in enumerate(ranked, 1):
        item = whole_slice[cut.name]
        table, gates = item.table, item.table.gates()
        error = float(cut.influence.standard_errors()[0])
        sources.append(
            SliceSource(
                name=item.name,
                rank=rank,
                rank_group=groups[item.name],
                n_queries=len(item.influence.queries),
                n_triplets=round(item.triplets.n_negatives),
                score_nats=scores[item.name],
                interval_95=score_interval(scores[item.name], error, cut.influence.n_queries, budget),
                trace=item.trace,
                consistency_mean=table.average(gates.consistency.numpy()),
                locality_mean=table.average(gates.locality.numpy()),
                coverage_mean=table.average(gates.coverage.numpy()),
                finding_shares={name: table.average(table.has(name)) for name in FINDINGS if name in table.evaluated},
            )
        )
    return Slice(
        field=settings.by or "",
        value=value,
        sources=tuple(sources),
        stability=rank_stability(scores, whole, sorted(scores)),
        lead_interval_95=next(
            (pair.interval_95 for pair in compared if (pair.first, pair.second) == (ranked[0].name, leader)), None
        ),
    )
