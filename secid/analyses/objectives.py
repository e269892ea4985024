"""Where each training objective would put its gradient on a source, from the dot products of its records.

An objective sees the positives that a record of the file lists, not those that other records or qrels add: it is what
training on this file would see. Source: METHOD 9.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from secid.arrays import Flags, Index
from secid.measure.blocks import Vectors
from secid.measure.margins import MARGIN, flagged
from secid.measure.objectives import OBJECTIVES, OF_SEVERAL_POSITIVES, ObjectiveValues, Records, objective_values
from secid.results import ObjectiveResult
from secid.results.catalogue import FINDINGS
from secid.triplets.measured import Measured
from secid.triplets.positives import positive_cosines
from secid.triplets.table import TripletTable

COPIES = ("false_negative", "near_copy")
ONE_POSITIVE, NO_GUIDE, SAMPLE = "one_positive", "no_guide", "guide_sample"
ONE_SCORED = frozenset({"single_lh", "gist"})
"""Objectives that pull one positive alone, so that nothing is allocated."""


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
        "margin": flagged(near, best, "relative", MARGIN),
        **({"suspect": table.has("suspect")[row]} if "suspect" in table.evaluated and judged else {}),
    }
    return {**classes, "valid": ~np.logical_or.reduce([*classes.values(), *defects])}


def objectives(
    items: Sequence[Measured], scores: Sequence[RecordScores], vectors: Vectors, temperature: float
) -> tuple[tuple[ObjectiveResult, ...], dict[str, str]]:
    """Every objective that can be told apart on each source, and what was not evaluated, with the kind of reason.

    scores : of each item.   Source: METHOD 9.
    """
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
