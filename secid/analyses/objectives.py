"""Loss and gradient of each training objective on a source, computed from the dot products of its records.

An objective uses only the positives that the record lists, since training on the file would see only these. Positives
that other records or qrels add are not used. Source: METHOD 9.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from secid.analyses.analysis import Analysis, AnalysisResult, Context
from secid.analyses.guide import GUIDE_SAMPLE, NO_GUIDE
from secid.arrays import Flags, Floats, Index, distinct, is_known
from secid.measure.false_negatives import RELATIVE_MARGIN, margin_flags
from secid.measure.interval import MIN_QUERIES, interval
from secid.pool import Plan, first_sampled
from secid.results.catalogue import FINDINGS

if TYPE_CHECKING:
    from secid.measure.blocks import Triplets, Vectors
    from secid.measure.objectives import ObjectiveValues, Records
    from secid.triplets.measure_set import Measured, Measurer
    from secid.triplets.table import TripletTable

COPY_FINDINGS = ("false_negative", "near_copy")
ONE_POSITIVE = "one_positive"
ONE_SCORED = frozenset({"single_lh", "gist"})
"""Objectives that use a single positive, so that their gradient is not divided among positives."""
MAX_CURVE_QUERIES = 250
"""Maximum number of queries per source; the first ones in sampling order are used. It limits the cost, and is enough to
show a trend."""
JOINT_LH = "joint_lh"


@dataclass(frozen=True, kw_only=True)
class ObjectiveResult:
    """Loss and gradient of an objective on a source, from frozen scores. Source: METHOD 9.

    loss_nats : mean loss over records; for mw over all pairs of all queries.
    gradient_shares : share of the negatives' gradient in each class of negatives, in [0, 1]; None if the gradient is 0.
            The classes inversion, copy, margin and suspect may overlap. valid is the rest, without counted defects.
    effective_negatives : exp of the entropy of the negatives' gradient, from 1 to the source's number of negatives;
            None if the gradient is 0.
    strongest_positive, weakest_positive : share of the positives' gradient that falls on each record's highest-scored
            and lowest-scored positive, over records with several positives. None without such records, and for
            objectives that use a single positive.
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
    """Results for a source with only the first passages of each record.

    n_positives : maximum number of positives per record; None for the run's scored positives.
    n_negatives : maximum number of negatives per record; None for all negatives.
    eci_nats, interval_95 : score at B = 1, with IDF from the run's pool.
    inversion_share : share of negatives that are inversions.   margin_share : share that the margin flags. In both,
            each (positive, negative) pair is weighted by its share.
    gradient_on_inversions, effective_negatives : values of joint_lh, as in ObjectiveResult.
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
    """Fractions, in [0, 1), that a score's interval would narrow by, estimated from the variance within queries.

    one_more_negative : fraction with one more negative per query; None if no query has two negatives.
    one_more_positive : fraction with one more labelled positive per record; None if no record lists two positives.
    Both are None with too few queries.
    """

    source: str
    one_more_negative: float | None
    one_more_positive: float | None


@dataclass(frozen=True, kw_only=True)
class ObjectiveLens:
    """Result of `--objectives`.

    margin : relative margin that flags a negative.
    most_queries : maximum number of queries per source that `sizes` and `narrowing` use.
    """

    margin: float
    most_queries: int
    objectives: tuple[ObjectiveResult, ...]
    sizes: tuple[RecordSize, ...]
    narrowing: tuple[Narrowing, ...]


def compute(context: Context) -> AnalysisResult[ObjectiveLens]:
    """Compute the objectives on each source. There is no result without --objectives. Source: METHOD 9, 10."""

    if not context.settings.objectives:
        return AnalysisResult()
    items, measurer = context.items, context.measurer
    for planned in context.plan.sources:  # an early stop encodes only the scored positives
        context.embedder.need(planned.query, planned.positives)
    scores = [RecordScores.of(item, measurer.vectors) for item in items]
    results, missing = objectives(items, scores, measurer.vectors, context.settings.temperature)
    sizes, narrowing = record_sizes(context.plan, items, scores, measurer)
    lens = ObjectiveLens(
        margin=RELATIVE_MARGIN, most_queries=MAX_CURVE_QUERIES, objectives=results, sizes=sizes, narrowing=narrowing
    )
    return AnalysisResult(lens, missing)


@dataclass(frozen=True)
class RecordScores:
    """R records of a source, with P labelled positives and N negatives, in the order of the plan.

    records : scores of the passages.   classes : (N,) flags of the negatives in each class, by name.
    query   : (R,) query of each record.
    """

    records: Records
    classes: dict[str, Flags]
    query: Index

    @classmethod
    def of(cls, item: Measured, vectors: Vectors) -> RecordScores:
        """Return the scores of a source's records. vectors: rows of all queries, labelled positives and negatives."""
        from secid.measure.objectives import Records
        from secid.triplets.table import positive_cosines

        table, planned = item.table, item.table.source
        _, row = np.unique(table.triplets.place, return_index=True)  # several positives, several rows of a negative
        record = np.repeat(np.arange(planned.n_records), np.diff(planned.positive_offsets))
        heads = table.triplets.record_offsets[:-1]
        n_passages = int(max(planned.positives.max(), table.triplets.positive.max())) + 1
        scored_pairs = table.triplets.record[heads] * np.int64(n_passages) + table.triplets.positive[heads]
        scored = np.isin(record * n_passages + planned.positives, scored_pairs).astype(np.float64)
        scored /= np.bincount(record, scored)[record]
        classes, guide = classes_of(table, row), table.guide
        return cls(
            Records(
                positive=table.s_query_positive
                if len(heads) == len(planned.positives)  # every pair of a record and a positive is a group
                else positive_cosines(planned, vectors),
                positive_offsets=planned.positive_offsets,
                negative=table.s_query_negative[row],
                negative_offsets=planned.negative_offsets,
                scored=scored,
                masked=None if guide is None or not guide.is_whole else guide.above_positive()[row],
            ),
            classes,
            planned.query,
        )

    @property
    def n_positives(self) -> Index:
        """(R,) number of positives in each record."""
        return np.diff(self.records.positive_offsets)

    @property
    def n_negatives(self) -> Index:
        """(R,) number of negatives in each record."""
        return np.diff(self.records.negative_offsets)

    def first(self, keep: Flags, n_positives: int | None = None, n_negatives: int | None = None) -> RecordScores:
        """Return some records with only their first passages, which may exclude the scored positive.

        keep : (R,) flags of the records.   n_positives, n_negatives : maximum per record; None for all.
        """
        from secid.measure.objectives import Records

        records = self.records
        positives, positive_offsets = _first(records.positive_offsets, keep, n_positives)
        negatives, negative_offsets = _first(records.negative_offsets, keep, n_negatives)
        return RecordScores(
            Records(
                records.positive[positives],
                positive_offsets,
                records.negative[negatives],
                negative_offsets,
                records.scored[positives],
                None if records.masked is None else records.masked[negatives],
            ),
            {name: flags[negatives] for name, flags in self.classes.items()},
            self.query[keep],
        )


def _first(offsets: Index, keep: Flags, n: int | None) -> tuple[Index, Index]:
    """Return the indices of the first n passages of each flagged record, and their new offsets. n: None for all."""
    counts = np.diff(offsets)
    record = np.repeat(np.arange(len(counts)), counts)
    inside = keep[record]
    if n is not None:
        inside &= np.arange(len(record)) - offsets[record] < n
    n_inside = np.bincount(record[inside], minlength=len(counts))[keep]
    return np.flatnonzero(inside), np.concatenate([[0], np.cumsum(n_inside)])


def classes_of(table: TripletTable, row: Index) -> dict[str, Flags]:
    """Return name -> (N,) flags of negatives in a class. row: (N,) their table rows. Source: METHOD 9, 10."""
    near, best = table.s_query_negative[row], table.repeated(table.s_query_positive)[row]
    judged = table.guide is None or table.guide.is_whole  # negatives that are not in the sample may be suspects too
    defects = [table.has(name)[row] for name, entry in FINDINGS.items() if entry.counted and name in table.evaluated]
    classes = {
        "inversion": table.has("inversion")[row],
        "copy": np.logical_or.reduce([table.has(name)[row] for name in COPY_FINDINGS]),
        "margin": margin_flags(near, best, "relative", RELATIVE_MARGIN),
        **({"suspect": table.has("suspect")[row]} if "suspect" in table.evaluated and judged else {}),
    }
    return {**classes, "valid": ~np.logical_or.reduce([*classes.values(), *defects])}


def objectives(
    items: Sequence[Measured], scores: Sequence[RecordScores], vectors: Vectors, temperature: float
) -> tuple[tuple[ObjectiveResult, ...], dict[str, str]]:
    """Evaluate each objective on each source. Source: METHOD 9.

    Return the results, and the reason for each part that was not evaluated. Objectives that would equal another one,
    or that need a guide that is missing, are left out.
    """
    from secid.measure.objectives import MULTI_POSITIVE, OBJECTIVES, objective_values

    results = []
    single = [item.name for item, score in zip(items, scores, strict=True) if score.n_positives.max() < 2]
    blind = [item.name for item, score in zip(items, scores, strict=True) if score.records.masked is None]
    for item, score in zip(items, scores, strict=True):
        left_out = {*(MULTI_POSITIVE if item.name in single else ()), *(["gist"] if item.name in blind else [])}
        names = [name for name in OBJECTIVES if name not in left_out]
        values = objective_values(score.records, score.classes, temperature, vectors.computes_on, names)
        results += [_result(item.name, name, values[name]) for name in names]
    without_mask = NO_GUIDE if items[0].table.guide is None else GUIDE_SAMPLE
    missing = {
        **_missing("objectives of several positives", single, len(items), ONE_POSITIVE),
        **_missing("GIST-masked InfoNCE", blind, len(items), without_mask),
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
    """Return one entry if all n sources lack a part; otherwise one entry per source that lacks it."""
    return {part: reason} if len(names) == n else {f"{part} of {name}": reason for name in names}


# Score and gradient with only the first passages of each record, and the gain from one more passage. This shows how
# many passages a record needs. Source: METHOD 10 (MP, section 6).


def record_sizes(
    plan: Plan, items: Sequence[Measured], scores: Sequence[RecordScores], measurer: Measurer
) -> tuple[tuple[RecordSize, ...], tuple[Narrowing, ...]]:
    """Compute one row per source and number of passages, and the narrowing from one more passage. Source: METHOD 10.

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
        from secid.measure.sweep import sweep
        from secid.triplets.table import triplets_of

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
        from secid.measure.objectives import objective_values
        from secid.measure.uncertainty import scores_of_parts

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
            losses = objective_values(scores.records, inversion, settings.temperature, vectors.computes_on, [JOINT_LH])
            joint = losses[JOINT_LH]
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


OBJECTIVE_LENS = Analysis("objectives", ObjectiveLens, compute)
