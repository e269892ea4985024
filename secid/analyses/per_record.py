"""Score and gradient with only the first passages of each record, and the gain from one more passage.

This shows how many passages a record needs. It is part of the objectives, since it reports gradients next to scores.
Source: METHOD 10 (MP, section 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from secid.analyses.objectives import Narrowing, RecordScores, RecordSize
from secid.arrays import Floats, Index, distinct, is_known
from secid.measure.blocks import Triplets
from secid.measure.interval import MIN_QUERIES, interval
from secid.measure.margins import RELATIVE_MARGIN, margin_flags
from secid.measure.objectives import objective_values
from secid.measure.sweep import sweep
from secid.measure.uncertainty import scores_of_parts
from secid.pool import Plan, first_sampled
from secid.triplets.measure_set import Measured, Measurer
from secid.triplets.table import TripletTable, triplets_of

MAX_CURVE_QUERIES = 250
"""Maximum number of queries per source; the first ones in sampling order are used. It limits the cost, and is enough to
show a trend."""
JOINT_LH = "joint_lh"


def record_sizes(
    plan: Plan, items: Sequence[Measured], scores: Sequence[RecordScores], measurer: Measurer
) -> tuple[tuple[RecordSize, ...], tuple[Narrowing, ...]]:
    """Compute one row per source and number of passages, and the narrowing from one more passage. Source: METHOD 10.

    scores : scores of each item's records.
    The number of negatives doubles from 1 up to that of the largest record. So does the number of positives.
    """
    sizes, narrowing = [], []
    for item, score in zip(items, scores, strict=True):
        sample = first_sampled(
            distinct(item.triplets.query), plan.queries.keys, measurer.settings.seed, MAX_CURVE_QUERIES
        )
        queries = np.sort(sample)
        cut = _CutSource(item, score, measurer, queries)
        (by_negatives, negative), (by_positives, positive) = cut.negatives(), cut.positives()
        sizes += [*by_negatives, *by_positives]
        narrowing.append(Narrowing(source=item.name, one_more_negative=negative, one_more_positive=positive))
    return tuple(sizes), tuple(narrowing)


def doubling_counts(most: int) -> list[int]:
    """Return the powers of 2 below `most`, from 1, and then `most`."""
    return [*(1 << place for place in range(most.bit_length()) if 1 << place < most), most]


class _CutSource:
    """A source restricted to some queries. Its methods score only the first passages of each record."""

    def __init__(self, item: Measured, scores: RecordScores, measurer: Measurer, queries: Index) -> None:
        self._name, self._scores, self._measurer, self._queries = item.name, scores, measurer, queries
        self._records = is_known(scores.query, queries)
        self._table = item.table.rows(np.flatnonzero(is_known(item.triplets.query, queries)))

    def negatives(self) -> tuple[list[RecordSize], float | None]:
        """Score the first 1, 2, 4 ... and all negatives of each record.

        Return a row for each number of negatives, and the narrowing from one more negative.
        """
        table = self._table
        rows = table.triplets
        share = np.ones(len(rows)) if rows.share is None else rows.share
        ordinal = np.arange(len(rows)) - table.repeated(rows.record_offsets[:-1])
        numbers = doubling_counts(int(self._scores.n_negatives[self._records].max()))
        sizes, h = self._sizes(table, [(None, n, share * (ordinal < n)) for n in numbers])
        return sizes, one_more_negative(rows, h)

    def positives(self) -> tuple[list[RecordSize], float | None]:
        """Score the first 1, 2, 4 ... and all labelled positives of each record.

        Return a row for each number of positives, and the narrowing from one more positive. All pairs of a negative
        share its weight. If no record has two positives, there are no rows.
        """
        most = int(self._scores.n_positives[self._records].max())
        if most < 2:
            return [], None
        table = self._pairs()
        rows = table.triplets
        record = rows.record[rows.record_offsets[:-1]]
        _, first, count = np.unique(record, return_index=True, return_counts=True)
        ordinal = table.repeated(np.arange(len(record)) - np.repeat(first, count))
        n_positives = table.repeated(np.repeat(count, count))
        shares = [(n, None, (ordinal < n) / np.minimum(n_positives, n)) for n in doubling_counts(most)]
        sizes, h = self._sizes(table, shares)
        return sizes, one_more_positive(rows, h)

    def _pairs(self) -> TripletTable:
        """Return all (positive, negative) pairs of each record, with dot products and the coverage from the run."""
        table, measurer = self._table, self._measurer
        whole = triplets_of(table.source, "all")
        rows = whole.take(np.flatnonzero(is_known(whole.query, self._queries)))
        coverage = np.empty(table.source.n_triplets)
        coverage[table.triplets.place] = table.coverage
        dots = sweep(replace(measurer.vectors, tick=None), rows, {}, (), measurer.smallest_distance).dots
        heads = rows.record_offsets[:-1]
        return replace(
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

    def _sizes(
        self, table: TripletTable, parts: Sequence[tuple[int | None, int | None, Floats]]
    ) -> tuple[list[RecordSize], Floats]:
        """Return one row per part, and (T,) influences in the last part.

        parts : (number of positives, number of negatives, (T,) share of every triplet) for each part.
        """
        near, best = table.s_query_negative, table.repeated(table.s_query_positive)
        above, near_enough = near > best, margin_flags(near, best, "relative", RELATIVE_MARGIN)
        queries, cluster = np.unique(table.triplets.query, return_inverse=True)
        vectors, settings = replace(self._measurer.vectors, tick=None), self._measurer.settings
        squared, weight = table.dots().squared_distance.numpy(), table.gates().weight.numpy()
        shares = [share for *_, share in parts]
        scored = scores_of_parts(vectors, table.triplets, squared, weight, self._measurer.smallest_distance, shares)
        sizes = []
        for (n_positives, n_negatives, share), part in zip(parts, scored, strict=True):
            scores = self._scores.first(self._records, n_positives, n_negatives)
            inversion = {"inversion": scores.classes["inversion"]}
            joint = objective_values(scores.records, inversion, settings.temperature, vectors.computes_on, [JOINT_LH])[
                JOINT_LH
            ]
            n = float(share.sum())
            error = float(np.sqrt((np.bincount(cluster, part.per_triplet) ** 2).sum())) / n
            sizes.append(
                RecordSize(
                    source=self._name,
                    n_positives=n_positives,
                    n_negatives=n_negatives,
                    n_queries=len(queries),
                    n_triplets=round(n),
                    eci_nats=part.nats,
                    interval_95=interval(part.nats, error, len(queries), (0.0, 1.0)),
                    inversion_share=float(np.average(above, weights=share)),
                    margin_share=float(np.average(near_enough, weights=share)),
                    gradient_on_inversions=joint.shares["inversion"],
                    effective_negatives=joint.effective_negatives,
                )
            )
        return sizes, scored[-1].per_triplet


def one_more_negative(rows: Triplets, influence: Floats) -> float | None:
    """Return the fraction of the interval's width that one more negative per query would save. Source: METHOD 8, 10.

    Return None if no query has two negatives, or there are fewer than MIN_QUERIES queries.
    influence : (T,) h_i of METHOD 8.
    The sum over a query's k negatives has the variance k^2 b + k w. The variance within queries, w, is pooled over
    queries. The variance between queries, b, is estimated from the rest of the sum of squares, and is at least 0.
    """
    _, negative = np.unique(rows.place, return_inverse=True)  # with several positives, a negative has several rows
    h = np.bincount(negative, influence)
    query = np.empty(len(h), np.int64)
    query[negative] = np.unique(rows.query, return_inverse=True)[1]
    k, total = np.bincount(query), np.bincount(query, h)
    if len(k) < MIN_QUERIES or k.max() < 2:
        return None
    within = float(((h - (total / k)[query]) ** 2).sum() / (k - 1).sum())
    between = max(0.0, float((total**2).sum() - within * k.sum())) / float((k**2).sum())

    def variance(more: int) -> float:
        size = k + more
        return float((size**2 * between + size * within).sum()) / float(size.sum()) ** 2

    return _narrowing(variance(0), variance(1))


def one_more_positive(rows: Triplets, influence: Floats) -> float | None:
    """Return the fraction of the interval's width that one more labelled positive per record would save.

    Return None if no record has two positives, or there are fewer than MIN_QUERIES queries.
    rows : triplets under the policy "all".   influence : (T,) influence of each triplet.
    The influence of a record is a mean over its m positives of the influence with only that positive. The variance v of
    these values is pooled over records. With m + 1 positives, the variance of the mean falls from v / m to v / (m + 1).
    Source: METHOD 8, 10.
    """
    heads = rows.record_offsets[:-1]
    _, record = np.unique(rows.record[heads], return_inverse=True)
    m = np.bincount(record)
    alone = np.add.reduceat(influence, heads) * m[record]
    query = np.unique(rows.query, return_inverse=True)[1]
    if query.max() + 1 < MIN_QUERIES or m.max() < 2:
        return None
    mean = np.bincount(record, alone) / m
    within = float(((alone - mean[record]) ** 2).sum() / (m - 1).sum())
    now = float((np.bincount(query, influence) ** 2).sum())
    return _narrowing(now, max(0.0, now - within * float((1 / m - 1 / (m + 1)).sum())))


def _narrowing(now: float, then: float) -> float | None:
    return float(1.0 - np.sqrt(then / now)) if now > 0 else None
