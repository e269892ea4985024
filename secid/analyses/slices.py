"""Score the sources separately for each value of a column, such as language, subset or length class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING

from secid.analyses.ablations import rank_stability
from secid.analyses.analysis import Analysis, AnalysisResult, Context
from secid.arrays import Index
from secid.results.catalogue import FINDINGS

if TYPE_CHECKING:
    from secid.analyses.shared_queries import SourcePairs
    from secid.triplets.measure_set import Measured

MAX_SLICES = 1_000
"""Maximum number of slices. A column with more values identifies rows instead of parts of the data."""


@dataclass(frozen=True, kw_only=True)
class SliceSource:
    """Results of a source in a slice.

    score_nats, interval_95 : ECI_B at the run's budget. Beyond budget 1, the sources are cut to equal size within the
                              slice. All other numbers use all triplets of the slice.
    finding_shares : share of the slice's triplets with each finding.
    """

    name: str
    rank: int | None
    tie: str | None
    n_queries: int
    n_triplets: int
    score_nats: float
    interval_95: tuple[float, float]
    trace: float
    consistency_mean: float
    locality_mean: float
    coverage_mean: float
    finding_shares: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Results for the records whose column `field` holds `value` ("" if the column is absent).

    sources : sources with a record in the slice, in rank order within it; sources that the run does not rank come last.
    stability : share of source pairs ordered as in the whole run; None without a pair.
    lead_interval_95 : interval of the lead of the slice's first source over the run's first source, within the slice.
            None if they are the same source, or if the run's first source has no record in the slice.
    """

    field: str
    value: str
    sources: tuple[SliceSource, ...]
    stability: float | None
    lead_interval_95: tuple[float, float] | None = None


def compute(context: Context) -> AnalysisResult[tuple[Slice, ...]]:
    """Compute the scores, intervals and findings of each slice, the largest slice first. No result without --by.

    Slices use the run's IDF. Like the run, a slice is ranked at the run's budget, beyond budget 1 with sources cut to
    equal size within the slice.
    """
    from secid.analyses.shared_queries import compared_pairs

    plan, settings, measurer, result = context.plan, context.settings, context.measurer, []
    if settings.by is None:
        return AnalysisResult()
    whole = {item.name: item.nats(settings.budget) for item in context.ranked}
    context.progress.start("slices", len(plan.slices), "slices")
    for number, value in enumerate(plan.slices):
        inside = [(item, keep) for item in context.table if (keep := item.table.in_slice(number)).size]
        if inside:
            parts = [measurer.part(item, keep, settings.budget) for item, keep in inside]
            cut = _ranked_sets(context, inside, parts)
            pairs = compared_pairs(plan, parts, cut, measurer, settings)
            result.append(_slice(context, value, parts, cut, pairs, whole))
        context.progress.advance(1)
    result.sort(key=lambda item: (-sum(source.n_triplets for source in item.sources), _sort_key(item.value)))
    return AnalysisResult(tuple(result))


def _sort_key(value: str) -> tuple[float, str]:
    """Return a sort key: numbers come first, in numerical order, then all other values."""
    try:
        number = float(value)
    except ValueError:
        return inf, value
    return (number, value) if isfinite(number) else (inf, value)


def _ranked_sets(
    context: Context, inside: Sequence[tuple[Measured, Index]], parts: Sequence[Measured]
) -> Sequence[Measured]:
    """Return the sets used to rank a slice: the parts, cut to equal size beyond budget 1 if possible."""
    from secid.triplets.measure_set import equal_size_places

    triplets, settings = [part.triplets for part in parts], context.settings
    equal_size = None if settings.budget <= 1.0 else equal_size_places(context.plan, triplets, settings.seed)
    if equal_size is None:
        return parts
    return [
        part if len(places) == len(keep) else context.measurer.part(item, keep[places], settings.budget)
        for part, (item, keep), places in zip(parts, inside, equal_size, strict=True)
    ]


def _slice(
    context: Context,
    value: str,
    items: Sequence[Measured],
    ranking_sets: Sequence[Measured],
    pairs: SourcePairs,
    whole: Mapping[str, float],
) -> Slice:
    """Rank the sources of a slice. ranking_sets: sets used for ranking, cut to equal size beyond budget 1."""
    from secid.analyses.ranking import comparisons, score_interval, tie_letters
    from secid.analyses.shared_queries import same_queries

    settings, apart = context.settings, context.equal_hardness
    budget, whole_slice = settings.budget, {item.name: item for item in items}
    sets = {item.name: item for item in ranking_sets}
    same = same_queries(ranking_sets)
    by_score = {name: item.nats(budget) for name, item in sets.items()}
    order = apart.listed(pairs.order(by_score, same_queries=same))
    ranked = [sets[name] for name in order]
    scores = {item.name: item.nats(budget) for item in ranked}
    compared = comparisons(pairs.sorted_by(order), budget)
    names = apart.ranked(order)
    places, ties = {name: place for place, name in enumerate(names, 1)}, tie_letters(names, compared)
    leader = next(iter(whole))
    sources = []
    for cut in ranked:
        item = whole_slice[cut.name]
        table, gates = item.table, item.table.gates()
        error = float(cut.influence.standard_errors()[0])
        sources.append(
            SliceSource(
                name=item.name,
                rank=places.get(item.name),
                tie=ties.get(item.name),
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


SLICES = Analysis("slices", tuple[Slice, ...], compute)
