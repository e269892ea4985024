"""The same sources scored within each value of a column: language, subset, length class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from secid.measure.information import trace
from secid.measure.sweep import Triplets
from secid.plan import Plan
from secid.progress import Progress
from secid.results import Slice, SliceSource
from secid.settings import Settings
from secid.study.ablate import rank_stability
from secid.study.bench import Bench, subset
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

    flags : by source and bucket, (T,) which of its triplets are in it.   whole : scores of the whole run.
    The IDF is the run's: a slice is scored in the same pool. Empty without settings.by.
    """
    if settings.by is None:
        return ()
    found = []
    progress.start("slices", len(plan.slices), "slices")
    for number, value in enumerate(plan.slices):
        items, shares = [], {}
        for planned, rows in zip(plan.sources, triplets, strict=True):
            keep = np.flatnonzero(planned.slice[rows.record] == number)
            if not len(keep):
                continue
            items.append(bench.measure(planned.name, planned, subset(rows, keep), budgets=(1.0,)))
            counted = None if rows.share is None else rows.share[keep]
            shares[planned.name] = {
                name: float(np.average(inside[keep], weights=counted)) for name, inside in flags[planned.name].items()
            }
        if items:
            found.append(_slice(settings, value, items, shares, whole))
        progress.advance(1)
    return tuple(sorted(found, key=lambda item: (-sum(s.n_triplets for s in item.sources), item.value)))


def _slice(
    settings: Settings,
    value: str,
    items: Sequence[Measured],
    shares: Mapping[str, Mapping[str, float]],
    whole: Mapping[str, float],
) -> Slice:
    ranked = sorted(items, key=lambda item: (-item.nats(1.0), item.name))
    scores = {item.name: item.nats(1.0) for item in ranked}
    groups = rank_groups(list(scores), compare(ranked, 1.0))
    sources = []
    for rank, item in enumerate(ranked, 1):
        share = item.triplets.share
        error = float(item.influence.standard_errors()[0])
        sources.append(
            SliceSource(
                name=item.name,
                rank=rank,
                rank_group=groups[item.name],
                n_queries=len(item.influence.queries),
                n_triplets=round(item.triplets.n_negatives),
                eci_nats=scores[item.name],
                interval_95=interval(item, 1.0, scores[item.name], error),
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
