"""The same sources scored within each value of a column: language, subset, length class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from secid.measure.blocks import Triplets
from secid.measure.information import trace
from secid.plan import Plan
from secid.progress import Progress
from secid.results import Slice, SliceSource
from secid.settings import Settings
from secid.study.ablate import rank_stability
from secid.study.bench import Bench, level_sets, subset
from secid.study.finish import Measured, compare, interval, rank_groups

Flags = npt.NDArray[np.bool_]


def slices(
    plan: Plan,
    triplets: Sequence[Triplets],
    bench: Bench,
    flags: Mapping[str, Mapping[str, Flags]],
    whole: Mapping[str, float],
    settings: Settings,
    progress: Progress,
) -> tuple[Slice, ...]:
    """Scores with intervals, and bucket shares, for each value, the largest slice first.

    flags : by source and bucket, (T,) which of its triplets are in it.   whole : what the run ranks by.
    Ranked as the run is: at its budget, and beyond budget 1 cut to equal size within the slice.
    The IDF is the run's: a slice is scored in the same pool. Empty without settings.by.
    """
    if settings.by is None:
        return ()
    found = []
    progress.start("slices", len(plan.slices), "slices")
    for number, value in enumerate(plan.slices):
        inside, shares = {}, {}
        for planned, rows in zip(plan.sources, triplets, strict=True):
            keep = np.flatnonzero(planned.slice[rows.record] == number)
            if not len(keep):
                continue
            inside[planned.name] = (planned, subset(rows, keep))
            counted = None if rows.share is None else rows.share[keep]
            shares[planned.name] = {
                name: float(np.average(within[keep], weights=counted)) for name, within in flags[planned.name].items()
            }
        if inside:
            at = (settings.budget,)
            items = [bench.measure(name, *own, budgets=at) for name, own in inside.items()]
            own_sets = [item.triplets for item in items]
            level = None if settings.budget == 1.0 else level_sets(plan, own_sets, settings.seed)
            judged = [
                item if cut is item.triplets else bench.measure(item.name, item.planned, cut, budgets=at)
                for item, cut in zip(items, level or own_sets, strict=True)
            ]
            found.append(_slice(settings, value, items, judged, shares, whole))
        progress.advance(1)
    return tuple(sorted(found, key=lambda item: (-sum(s.n_triplets for s in item.sources), item.value)))


def _slice(
    settings: Settings,
    value: str,
    items: Sequence[Measured],
    judged: Sequence[Measured],
    shares: Mapping[str, Mapping[str, float]],
    whole: Mapping[str, float],
) -> Slice:
    """judged: the items as they are ranked, cut to equal size beyond budget 1."""
    budget, whole_slice = settings.budget, {item.name: item for item in items}
    ranked = sorted(judged, key=lambda item: (-item.nats(budget), item.name))
    scores = {item.name: item.nats(budget) for item in ranked}
    groups = rank_groups(list(scores), compare(ranked, budget))
    sources = []
    for rank, cut in enumerate(ranked, 1):
        item = whole_slice[cut.name]
        share = item.triplets.share
        error = float(cut.influence.standard_errors()[0])
        sources.append(
            SliceSource(
                name=item.name,
                rank=rank,
                rank_group=groups[item.name],
                n_queries=len(item.influence.queries),
                n_triplets=round(item.triplets.n_negatives),
                score_nats=scores[item.name],
                interval_95=interval(cut, budget, scores[item.name], error),
                trace=trace(item.state.matrix()),
                consistency_mean=float(np.average(item.gates.consistency, weights=share)),
                locality_mean=float(np.average(item.gates.locality, weights=share)),
                coverage_mean=float(np.average(item.gates.coverage, weights=share)),
                bucket_fractions=shares[item.name],
            )
        )
    return Slice(
        field=settings.by or "",
        value=value,
        sources=tuple(sources),
        stability=rank_stability(scores, whole, sorted(scores)),
    )
