"""Where each training objective would put its gradient on a source, from the dot products of its records.

An objective sees the positives that a record of the file lists, not those that other records or qrels add: it is what
training on this file would see. Source: METHOD 9.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from secid.analyses.analysis import Analysis, AnalysisResult, Context
from secid.analyses.guide import NO_GUIDE, SAMPLE
from secid.arrays import Flags, Floats, Index, among, distinct
from secid.measure.blocks import Triplets
from secid.measure.interval import FEWEST_QUERIES, interval
from secid.measure.objectives import objective_values
from secid.measure.separation import MARGIN, margin_flags
from secid.measure.sweep import sweep
from secid.measure.uncertainty import scores_of_parts
from secid.pool import Plan, first_sampled
from secid.results.catalogue import FINDINGS
from secid.triplets.measure_set import Measured, Measurer
from secid.triplets.table import TripletTable, triplets_of

if TYPE_CHECKING:
    from secid.measure.blocks import Vectors
    from secid.measure.objectives import ObjectiveValues, Records
    from secid.triplets.measure_set import Measured
    from secid.triplets.table import TripletTable


COPIES = ("false_negative", "near_copy")
ONE_POSITIVE = "one_positive"
ONE_SCORED = frozenset({"single_lh", "gist"})
"""Objectives that pull one positive alone, so that nothing is allocated."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveResult:
    """One objective on one source, from the frozen scores. Source: METHOD 9.

    loss_nats: mean over records, of mw over all pairs of all queries.
    gradient_shares: share of the negatives' gradient on classes of negatives (inversion, copy, margin, suspect, and
    valid: none of these and no counted defect), in [0, 1]; classes but valid overlap. None without any gradient.
    effective_negatives: exp of the entropy of the negatives' gradient, from 1 to all of the source's negatives.
    strongest_positive, weakest_positive: share of the positives' gradient on the highest- and the lowest-scored
    positive of each record, over records of two positives or more; None without any, and for objectives of one.
    """

    source: str
    objective: str
    loss_nats: float
    gradient_shares: Mapping[str, float | None]
    effective_negatives: float | None
    strongest_positive: float | None
    weakest_positive: float | None


@dataclass(frozen=True, kw_only=True)
class RecordSize:
    """One source with only the first passages of each record. n_positives, n_negatives: how many; None for the run's
    own positives, and for all negatives.

    eci_nats, interval_95: at B = 1, in the pool of the run. inversion_share, margin_share: of the negatives, each pair
    with its weight. gradient_on_inversions, effective_negatives: of joint_lh, as in ObjectiveResult.
    """

    source: str
    n_positives: int | None
    n_negatives: int | None
    n_queries: int
    n_triplets: int
    eci_nats: float
    interval_95: tuple[float, float]
    inversion_share: float
    margin_share: float
    gradient_on_inversions: float | None
    effective_negatives: float | None


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """By which share the interval of a score would narrow, in [0, 1), estimated from its variance within queries.

    one_more_negative: a further negative for each query; None where no query has two, or there are too few queries.
    one_more_positive: a further labelled positive for each record; None likewise of a record's own list.
    """

    source: str
    one_more_negative: float | None
    one_more_positive: float | None


@dataclass(frozen=True, kw_only=True)
class ObjectiveLens:
    """What `--objectives` reports. margin: relative margin that flags a negative.

    most_queries: the largest number of queries of a source that `sizes` and `narrowing` are computed on.
    """

    margin: float
    most_queries: int
    objectives: tuple[ObjectiveResult, ...]
    sizes: tuple[RecordSize, ...]
    narrowing: tuple[Narrowing, ...]


def compute(context: Context) -> AnalysisResult[ObjectiveLens]:
    """What the objectives would do on each source; nothing without --objectives. Source: METHOD 9, 10."""

    if not context.settings.objectives:
        return AnalysisResult()
    items, bench = context.items, context.bench
    for planned in context.plan.sources:  # an early stop embeds the scored positives alone
        context.embedder.need(planned.query, planned.positives)
    scores = [RecordScores.of(item, bench.vectors) for item in items]
    results, missing = objectives(items, scores, bench.vectors, context.settings.temperature)
    sizes, narrowing = record_sizes(context.plan, items, scores, bench)
    lens = ObjectiveLens(margin=MARGIN, most_queries=QUERIES, objectives=results, sizes=sizes, narrowing=narrowing)
    return AnalysisResult(lens, missing)


@dataclass(frozen=True)
class RecordScores:
    """The records of a source, of P labelled positives and N negatives, as the plan has them.

    records : all of them.   classes : (N,) by name.   query : (R,) query of each record.
    """

    records: Records
    classes: dict[str, Flags]
    query: Index

    @classmethod
    def of(cls, item: Measured, vectors: Vectors) -> RecordScores:
        """vectors : rows of all labelled positives, of the queries and of the negatives."""
        from secid.measure.objectives import Records
        from secid.triplets.table import positive_cosines

        table, planned = item.table, item.table.source
        _, row = np.unique(table.triplets.place, return_index=True)  # with several positives a negative has a row each
        record = np.repeat(np.arange(planned.n_records), np.diff(planned.positive_offsets))
        heads = table.triplets.record_offsets[:-1]
        n_passages = int(max(planned.positives.max(), table.triplets.positive.max())) + 1
        chosen = table.triplets.record[heads] * np.int64(n_passages) + table.triplets.positive[heads]
        scored = np.isin(record * n_passages + planned.positives, chosen).astype(np.float64)
        scored /= np.bincount(record, scored)[record]
        classes = classes_of(table, row)
        return cls(
            Records(
                positive=table.s_query_positive
                if len(heads) == len(planned.positives)  # every pair of a record and a positive is a group
                else positive_cosines(planned, vectors),
                positive_offsets=planned.positive_offsets,
                negative=table.s_query_negative[row],
                negative_offsets=planned.negative_offsets,
                scored=scored,
                masked=classes.get("suspect"),
            ),
            classes,
            planned.query,
        )

    @property
    def n_positives(self) -> Index:
        """(R,) of each record."""
        return np.diff(self.records.positive_offsets)

    @property
    def n_negatives(self) -> Index:
        """(R,) of each record."""
        return np.diff(self.records.negative_offsets)

    def first(self, keep: Flags, n_positives: int | None = None, n_negatives: int | None = None) -> RecordScores:
        """Some records, keep: (R,), and the first passages of each; the scored positive may be left out."""
        from secid.measure.objectives import Records

        own = self.records
        positives, positive_offsets = _first(own.positive_offsets, keep, n_positives)
        negatives, negative_offsets = _first(own.negative_offsets, keep, n_negatives)
        return RecordScores(
            Records(
                own.positive[positives],
                positive_offsets,
                own.negative[negatives],
                negative_offsets,
                own.scored[positives],
                None if own.masked is None else own.masked[negatives],
            ),
            {name: flags[negatives] for name, flags in self.classes.items()},
            self.query[keep],
        )


def _first(offsets: Index, keep: Flags, n: int | None) -> tuple[Index, Index]:
    """Places of the first n passages of the records kept, all where None, and their offsets."""
    counts = np.diff(offsets)
    record = np.repeat(np.arange(len(counts)), counts)
    inside = keep[record]
    if n is not None:
        inside &= np.arange(len(record)) - offsets[record] < n
    kept = np.bincount(record[inside], minlength=len(counts))[keep]
    return np.flatnonzero(inside), np.concatenate([[0], np.cumsum(kept)])


def classes_of(table: TripletTable, row: Index) -> dict[str, Flags]:
    """Classes of negatives by name. row: (N,) a row of the table for each. Source: METHOD 9, 10."""
    near, best = table.s_query_negative[row], table.repeated(table.s_query_positive)[row]
    judged = table.guide is None or table.guide.is_whole  # of a sample the others are not known to be sound
    defects = [table.has(name)[row] for name, entry in FINDINGS.items() if entry.counted and name in table.evaluated]
    classes = {
        "inversion": table.has("inversion")[row],
        "copy": np.logical_or.reduce([table.has(name)[row] for name in COPIES]),
        "margin": margin_flags(near, best, "relative", MARGIN),
        **({"suspect": table.has("suspect")[row]} if "suspect" in table.evaluated and judged else {}),
    }
    return {**classes, "valid": ~np.logical_or.reduce([*classes.values(), *defects])}


def objectives(
    items: Sequence[Measured], scores: Sequence[RecordScores], vectors: Vectors, temperature: float
) -> tuple[tuple[ObjectiveResult, ...], dict[str, str]]:
    """Every objective that can be told apart on each source, and what was not evaluated, with the kind of reason.

    scores : of each item.   Source: METHOD 9.
    """
    from secid.measure.objectives import OBJECTIVES, OF_SEVERAL_POSITIVES, objective_values

    results = []
    single = [item.name for item, own in zip(items, scores, strict=True) if own.n_positives.max() < 2]
    blind = [item.name for item, own in zip(items, scores, strict=True) if own.records.masked is None]
    for item, own in zip(items, scores, strict=True):
        left_out = {*(OF_SEVERAL_POSITIVES if item.name in single else ()), *(["gist"] if item.name in blind else [])}
        names = [name for name in OBJECTIVES if name not in left_out]
        values = objective_values(own.records, own.classes, temperature, vectors.computes_on, names)
        results += [_result(item.name, name, values[name]) for name in names]
    missing = {
        **_missing("objectives of several positives", single, len(items), ONE_POSITIVE),
        **_missing("GIST-masked InfoNCE", blind, len(items), NO_GUIDE if items[0].table.guide is None else SAMPLE),
    }
    return tuple(results), missing


def _result(source: str, name: str, values: ObjectiveValues) -> ObjectiveResult:
    allocates = name not in ONE_SCORED
    return ObjectiveResult(
        source=source,
        objective=name,
        loss_nats=values.loss_nats,
        gradient_shares=values.shares,
        effective_negatives=values.effective_negatives,
        strongest_positive=values.strongest if allocates else None,
        weakest_positive=values.weakest if allocates else None,
    )


def _missing(part: str, names: Collection[str], n: int, reason: str) -> dict[str, str]:
    """One entry where no source has a part, else one for each that lacks it."""
    return {part: reason} if len(names) == n else {f"{part} of {name}": reason for name in names}


OBJECTIVE_LENS = Analysis("objectives", ObjectiveLens, compute)


QUERIES = 250
"""Most queries of a source, the first of every sample: the cost is bounded, and trends need no more."""
JOINT = "joint_lh"


def record_sizes(
    plan: Plan, items: Sequence[Measured], scores: Sequence[RecordScores], bench: Measurer
) -> tuple[tuple[RecordSize, ...], tuple[Narrowing, ...]]:
    """A row for each number of negatives and of positives of each source, and what one more would narrow.

    scores : of each item. Numbers double, up to what the largest record has. Source: METHOD 10.
    """
    sizes, narrowing = [], []
    for item, own in zip(items, scores, strict=True):
        sample = first_sampled(distinct(item.triplets.query), plan.queries.keys, bench.settings.seed, QUERIES)
        queries = np.sort(sample)
        counted = _CutSource(item, own, bench, queries)
        (by_negatives, negative), (by_positives, positive) = counted.negatives(), counted.positives()
        sizes += [*by_negatives, *by_positives]
        narrowing.append(Narrowing(source=item.name, one_more_negative=negative, one_more_positive=positive))
    return tuple(sizes), tuple(narrowing)


def doubled(most: int) -> list[int]:
    """1, 2, 4 ... below the largest number, and that number."""
    return [*(1 << place for place in range(most.bit_length()) if 1 << place < most), most]


class _CutSource:
    """One source, with only the first passages of each record of some queries."""

    def __init__(self, item: Measured, scores: RecordScores, bench: Measurer, queries: Index) -> None:
        self._name, self._scores, self._bench, self._queries = item.name, scores, bench, queries
        self._records = among(scores.query, queries)
        self._table = item.table.rows(np.flatnonzero(among(item.triplets.query, queries)))

    def negatives(self) -> tuple[list[RecordSize], float | None]:
        """With the first 1, 2, 4 ... negatives and with all; what one more would narrow."""
        table = self._table
        rows = table.triplets
        own = np.ones(len(rows)) if rows.share is None else rows.share
        ordinal = np.arange(len(rows)) - table.repeated(rows.record_offsets[:-1])
        numbers = doubled(int(self._scores.n_negatives[self._records].max()))
        sizes, h = self._sizes(table, [(None, n, own * (ordinal < n)) for n in numbers])
        return sizes, one_more_negative(rows, h)

    def positives(self) -> tuple[list[RecordSize], float | None]:
        """With the first 1, 2, 4 ... labelled positives, the pairs of a negative sharing it; none of one positive."""
        most = int(self._scores.n_positives[self._records].max())
        if most < 2:
            return [], None
        table = self._pairs()
        rows = table.triplets
        record = rows.record[rows.record_offsets[:-1]]
        _, first, count = np.unique(record, return_index=True, return_counts=True)
        ordinal = table.repeated(np.arange(len(record)) - np.repeat(first, count))
        n_positives = table.repeated(np.repeat(count, count))
        shares = [(n, None, (ordinal < n) / np.minimum(n_positives, n)) for n in doubled(most)]
        sizes, h = self._sizes(table, shares)
        return sizes, one_more_positive(rows, h)

    def _pairs(self) -> TripletTable:
        """All pairs of a positive and a negative of each record, with their dot products, in the pool of the run."""
        table, bench = self._table, self._bench
        whole = triplets_of(table.source, "all")
        rows = whole.take(np.flatnonzero(among(whole.query, self._queries)))
        coverage = np.empty(table.source.n_triplets)
        coverage[table.triplets.place] = table.coverage
        dots = sweep(replace(bench.vectors, tick=None), rows, {}, (), bench.smallest_distance).dots
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
        """A row for each (positives, negatives, share of every triplet), and the influences of the last."""
        near, best = table.s_query_negative, table.repeated(table.s_query_positive)
        above, near_enough = near > best, margin_flags(near, best, "relative", MARGIN)
        queries, cluster = np.unique(table.triplets.query, return_inverse=True)
        vectors, settings = replace(self._bench.vectors, tick=None), self._bench.settings
        squared, weight = table.dots().squared_distance.numpy(), table.gates().weight.numpy()
        shares = [share for *_, share in parts]
        scored = scores_of_parts(vectors, table.triplets, squared, weight, self._bench.smallest_distance, shares)
        sizes = []
        for (n_positives, n_negatives, share), part in zip(parts, scored, strict=True):
            own = self._scores.first(self._records, n_positives, n_negatives)
            inversion = {"inversion": own.classes["inversion"]}
            joint = objective_values(own.records, inversion, settings.temperature, vectors.computes_on, [JOINT])[JOINT]
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
    """Share of the interval that a further negative for each query would take off; None without two for any query.

    influence : (T,) h_i of METHOD 8. The variance of a query's sum of k of them is k^2 b + k w: w is pooled from the
    spread within queries, b is what is left of the sum of squares, at least 0. Source: METHOD 8, 10.
    """
    _, negative = np.unique(rows.place, return_inverse=True)  # with several positives a negative has a row each
    h = np.bincount(negative, influence)
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


def one_more_positive(rows: Triplets, influence: Floats) -> float | None:
    """Share of the interval that a further labelled positive for each record would take off; None without two for any.

    rows : under the policy "all".   influence : (T,) of them. A record adds to its query the mean over its m positives
    of what each would add alone; the variance of these, v, is pooled over records: m + 1 positives in place of m take
    off v/m - v/(m + 1). Source: METHOD 8, 10.
    """
    heads = rows.record_offsets[:-1]
    _, record = np.unique(rows.record[heads], return_inverse=True)
    m = np.bincount(record)
    alone = np.add.reduceat(influence, heads) * m[record]
    query = np.unique(rows.query, return_inverse=True)[1]
    if query.max() + 1 < FEWEST_QUERIES or m.max() < 2:
        return None
    mean = np.bincount(record, alone) / m
    within = float(((alone - mean[record]) ** 2).sum() / (m - 1).sum())
    now = float((np.bincount(query, influence) ** 2).sum())
    return _narrowing(now, max(0.0, now - within * float((1 / m - 1 / (m + 1)).sum())))


def _narrowing(now: float, then: float) -> float | None:
    return float(1.0 - np.sqrt(then / now)) if now > 0 else None
