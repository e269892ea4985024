"""Loss and gradient of each training objective on a source, computed from the dot products of its records.

An objective uses only the positives that the record lists, since training on the file would see only these. Positives
that other records or qrels add are not used. Source: METHOD 9.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from secid.analyses.analysis import Analysis, AnalysisResult, Context
from secid.analyses.guide import GUIDE_SAMPLE, NO_GUIDE
from secid.arrays import Flags, Index
from secid.measure.margins import RELATIVE_MARGIN, margin_flags
from secid.results.catalogue import FINDINGS

if TYPE_CHECKING:
    from secid.measure.blocks import Vectors
    from secid.measure.objectives import ObjectiveValues, Records
    from secid.triplets.measure_set import Measured
    from secid.triplets.table import TripletTable

COPY_FINDINGS = ("false_negative", "near_copy")
ONE_POSITIVE = "one_positive"
ONE_SCORED = frozenset({"single_lh", "gist"})
"""Objectives that use a single positive, so that their gradient is not divided among positives."""


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
    from secid.analyses.per_record import MAX_CURVE_QUERIES, record_sizes

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
        _, row = np.unique(
            table.triplets.place, return_index=True
        )  # with several positives, a negative has several rows
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

    scores : scores of each item's records.
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
    missing = {
        **_missing("objectives of several positives", single, len(items), ONE_POSITIVE),
        **_missing(
            "GIST-masked InfoNCE", blind, len(items), NO_GUIDE if items[0].table.guide is None else GUIDE_SAMPLE
        ),
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


OBJECTIVE_LENS = Analysis("objectives", ObjectiveLens, compute)
