"""How far the scores of smaller samples are noise: the run's own errors, at the queries of a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import sqrt

from secid.analyses.ablations import conclusion
from secid.measure.interval import FEWEST_QUERIES, reach_95
from secid.measure.sweep import Variant
from secid.measure.uncertainty import difference
from secid.results import Ablation, AblationRow
from secid.triplets.estimates import interval
from secid.triplets.measured import Measured

POOL = "Scored with the document frequencies of the whole run; --max-records counts over its sample alone"


def with_noise(
    ablation: Ablation, variants: Mapping[str, Variant], items: Sequence[Measured], budget: float
) -> Ablation:
    """The ablation over samples with the queries of each row, 95 % intervals, and the swaps that stay within theirs.

    items : as they are ranked, at `budget`. A sample of m of n queries aims at the score of all n, so it has the run's
    standard error times sqrt(n/m - 1): none where it is all of them. Fewer than FEWEST_QUERIES queries say nothing,
    so every swap stays open there. Source: METHOD 8.
    """
    rows = tuple(_row(row, variants[row.setting], items, budget) for row in ablation.rows)
    return replace(ablation, rows=rows, conclusion=conclusion(ablation.name, ablation.base, rows), note=POOL)


def _row(row: AblationRow, variant: Variant, items: Sequence[Measured], budget: float) -> AblationRow:
    by_name = {item.name: item for item in items}
    n_queries = {item.name: item.variants[variant].n_queries for item in items}
    intervals = {
        item.name: _interval(item, value, n_queries[item.name], budget)
        for item in items
        if (value := row.scores[item.name]) is not None and n_queries[item.name] >= FEWEST_QUERIES
    }
    return replace(
        row,
        n_queries=n_queries,
        intervals_95=intervals,
        open_swaps=tuple(
            (first, second)
            for first, second in row.swapped
            if not _beyond(row, by_name[first], by_name[second], min(n_queries[first], n_queries[second]))
        ),
    )


def _interval(item: Measured, nats: float, n_queries: int, budget: float) -> tuple[float, float]:
    error = float(item.influence.standard_errors()[0]) * _widening(len(item.influence.queries), n_queries)
    return interval(nats, error, n_queries, (0.0, budget))


def _beyond(row: AblationRow, first: Measured, second: Measured, n_queries: int) -> bool:
    """Whether the 95 % interval of the difference at that many queries leaves 0 out."""
    a, b = row.scores[first.name], row.scores[second.name]
    if n_queries < FEWEST_QUERIES or a is None or b is None:
        return False
    gap = difference(first.influence, second.influence, a - b)
    reach = reach_95(n_queries) * gap.standard_error * _widening(gap.n_queries, n_queries)
    return abs(gap.nats) > reach


def _widening(n_queries: int, n_sampled: int) -> float:
    """Standard error of a sample without replacement, about the score of all queries, in errors of the run."""
    return sqrt(n_queries / n_sampled - 1.0)
