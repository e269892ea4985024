"""How many positives and negatives a record needs: the score and the gradients with only the first of each, and what
one more would take off the interval.

It belongs to the objectives and not to the ablations: it changes which passages of a record are used, not how they are
weighed, and reports gradients next to scores. Source: METHOD 10 (MP, section 6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from secid.analyses.objectives import MARGIN, RecordScores
from secid.analyses.ranking import interval
from secid.arrays import among, distinct
from secid.measure.blocks import Triplets
from secid.measure.interval import FEWEST_QUERIES
from secid.measure.margins import flagged
from secid.measure.objectives import objective_values
from secid.measure.sweep import sweep
from secid.pool import Plan, PlannedSource, sample_order
from secid.results import Narrowing, RecordSize
from secid.triplets.measure_set import Bench
from secid.triplets.measured import Measured
from secid.triplets.positives import triplets_of

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int64]

QUERIES = 1_000
"""Most queries of a source, the first of every sample: the cost is bounded, and trends need no more."""
JOINT = "joint_lh"


def record_sizes(
    plan: Plan, items: Sequence[Measured], scores: Sequence[RecordScores], bench: Bench
) -> tuple[tuple[RecordSize, ...], tuple[Narrowing, ...]]:
    """A row for each number of negatives and of positives of each source, and what one more would narrow.

    scores : of each item. Numbers double, up to what the largest record has. Source: METHOD 10.
    """
    sizes, narrowing = [], []
    for item, own in zip(items, scores, strict=True):
        queries = _first_queries(plan, item.triplets.query, bench.settings.seed)
        counted = _Counted(item, own, bench, queries)
        by_negatives = list(counted.negatives())
        by_positives = list(counted.positives())
        sizes += [row for row, _ in (*by_negatives, *by_positives)]
        narrowing.append(
            Narrowing(
                source=item.name,
                one_more_negative=one_more_negative(by_negatives[-1][1]),
                one_more_positive=one_more_positive(by_positives[-1][1]) if by_positives else None,
            )
        )
    return tuple(sizes), tuple(narrowing)


def _first_queries(plan: Plan, query: Index, seed: int) -> Index:
    """(Q,) rising ids of the queries that every sample of the run takes first."""
    queries = distinct(query)
    order = np.argsort(sample_order(plan.queries.keys[queries], seed), kind="stable")
    return np.sort(queries[order[:QUERIES]])


def doubled(most: int) -> list[int]:
    """1, 2, 4 ... below the largest number, and that number."""
    return [*(1 << place for place in range(most.bit_length()) if 1 << place < most), most]


class _Counted:
    """One source, measured with only the first passages of each record of some queries."""

    def __init__(self, item: Measured, scores: RecordScores, bench: Bench, queries: Index) -> None:
        self._item, self._scores, self._bench, self._queries = item, scores, bench, queries
        self._records = among(scores.query, queries)

    def negatives(self) -> Iterator[tuple[RecordSize, Measured]]:
        """With the first 1, 2, 4 ... negatives and with all."""
        rows = self._item.triplets
        group = np.repeat(np.arange(len(rows.record_offsets) - 1), np.diff(rows.record_offsets))
        ordinal, inside = np.arange(len(rows)) - rows.record_offsets[group], among(rows.query, self._queries)
        for n in doubled(int(self._scores.n_negatives[self._records].max())):
            keep = np.flatnonzero(inside & (ordinal < n))
            whole = len(keep) == len(rows) and self._bench.settings.budget == 1.0
            part = self._item if whole else self._bench.part(self._item, keep, 1.0)
            yield self._row(part, None, n), part

    def positives(self) -> Iterator[tuple[RecordSize, Measured]]:
        """With the first 1, 2, 4 ... labelled positives, the pairs of a negative sharing it; none of one positive."""
        most = int(self._scores.n_positives[self._records].max())
        for n in doubled(most) if most > 1 else ():
            pairs = triplets_of(first_positives(self._item.table.source, n), "all")
            part = self._measured(pairs.take(np.flatnonzero(among(pairs.query, self._queries))))
            yield self._row(part, n, None), part

    def _measured(self, rows: Triplets) -> Measured:
        """Pairs of the source's passages, in the pool of the run."""
        table = self._item.table
        coverage = np.empty(table.source.n_triplets)
        coverage[table.triplets.place] = table.coverage
        vectors = replace(self._bench.vectors, tick=None)
        dots = sweep(vectors, rows, {}, (), self._bench.smallest_distance).dots
        heads = rows.record_offsets[:-1]
        of_pairs = replace(
            table,
            triplets=rows,
            s_query_positive=dots.query_positive.numpy()[heads],
            positive_coverage=np.zeros(len(heads)),
            s_query_negative=dots.query_negative.numpy(),
            s_positive_negative=dots.positive_negative.numpy(),
            coverage=coverage[rows.place],
            findings=np.zeros(len(rows), np.uint32),
            evaluated=frozenset(),
        )
        return self._bench.part(replace(self._item, table=of_pairs), np.arange(len(rows)), 1.0)

    def _row(self, part: Measured, n_positives: int | None, n_negatives: int | None) -> RecordSize:
        table = part.table
        near, best = table.s_query_negative, table.repeated(table.s_query_positive)
        own = self._scores.first(self._records, n_positives, n_negatives)
        inversion = {"inversion": own.classes["inversion"]}
        vectors, temperature = self._bench.vectors, self._bench.settings.temperature
        joint = objective_values(own.records, inversion, temperature, vectors.computes_on, [JOINT])[JOINT]
        column = part.influence.column(1.0)
        nats = part.nats(1.0)
        return RecordSize(
            source=self._item.name,
            n_positives=n_positives,
            n_negatives=n_negatives,
            n_queries=len(part.influence.queries),
            n_triplets=round(part.triplets.n_negatives),
            eci_nats=nats,
            interval_95=interval(part, 1.0, nats, float(part.influence.standard_errors()[column])),
            inversion_share=table.average(near > best),
            margin_share=table.average(flagged(near, best, "relative", MARGIN)),
            gradient_on_inversions=joint.shares["inversion"],
            effective_negatives=joint.effective_negatives,
        )


def first_positives(planned: PlannedSource, n: int) -> PlannedSource:
    """The source with the first n positives of each record."""
    counts = np.diff(planned.positive_offsets)
    ordinal = np.arange(len(planned.positives)) - np.repeat(planned.positive_offsets[:-1], counts)
    offsets = np.concatenate([[0], np.cumsum(np.minimum(counts, n))])
    return replace(planned, positives=planned.positives[ordinal < n], positive_offsets=offsets)


def one_more_negative(item: Measured) -> float | None:
    """Share of the interval that a further negative for each query would take off; None without two for any query.

    The variance of a query's sum of k influences is k^2 b + k w: w is pooled from the spread within queries, b is what
    is left of the sum of squares, at least 0. Source: METHOD 8, 10.
    """
    rows = item.triplets
    _, negative = np.unique(rows.place, return_inverse=True)  # with several positives a negative has a row each
    h = np.bincount(negative, item.influence.per_triplet)
    query = np.empty(len(h), np.int64)
    query[negative] = np.unique(rows.query, return_inverse=True)[1]
    k, total = np.bincount(query), np.bincount(query, h)
    if len(k) < FEWEST_QUERIES or k.max() < 2:
        return None
    within = float(((h - (total / k)[query]) ** 2).sum() / (k - 1).sum())
    between = max(0.0, float((total**2).sum() - within * k.sum())) / float((k**2).sum())

    def variance(more: int) -> float:
        size = k + more
        return float((size**2 * between + size * within).sum()) / float(size.sum()) ** 2

    return _narrowing(variance(0), variance(1))


def one_more_positive(item: Measured) -> float | None:
    """Share of the interval that a further labelled positive for each record would take off; None without two for any.

    item : under the policy "all". What a record adds to its query is the mean over its m positives of what each would
    add alone, whose variance within records, v, is pooled: m + 1 positives in place of m take off v/m - v/(m + 1).
    """
    rows = item.triplets
    heads = rows.record_offsets[:-1]
    _, record = np.unique(rows.record[heads], return_inverse=True)
    m = np.bincount(record)
    alone = np.add.reduceat(item.influence.per_triplet, heads) * m[record]
    if len(item.influence.queries) < FEWEST_QUERIES or m.max() < 2:
        return None
    mean = np.bincount(record, alone) / m
    within = float(((alone - mean[record]) ** 2).sum() / (m - 1).sum())
    query = np.unique(rows.query, return_inverse=True)[1]
    now = float((np.bincount(query, item.influence.per_triplet) ** 2).sum())
    return _narrowing(now, max(0.0, now - within * float((1 / m - 1 / (m + 1)).sum())))


def _narrowing(now: float, then: float) -> float | None:
    return float(1.0 - np.sqrt(then / now)) if now > 0 else None
