"""Which (query, positive, negative) rows a planned source is scored on: the positive policies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from secid.arrays import Floats, Index, best_first, narrow
from secid.measure.blocks import Triplets, Vectors
from secid.measure.sweep import sweep
from secid.pool import PlannedSource, content_of
from secid.pool.texts import TextStore
from secid.settings import Positives


def triplets_of(
    planned: PlannedSource, policy: Positives, vectors: Vectors | None = None, passages: TextStore | None = None
) -> Triplets:
    """The triplets of a source under a positive policy.

    first, random : the plan put the one scored first.   hardest, easiest : the one with the
    smallest or largest s_qp, ties broken by text; they need the vectors and passages.   all : one triplet
    for each pair, sharing what the negative counts.
    Source: METHOD 1, 9.
    """
    if policy == "all":
        return _all_pairs(planned)
    chosen = planned.positives[planned.positive_offsets[:-1]]
    if policy in ("hardest", "easiest") and vectors is not None and passages is not None:
        chosen = planned.positives[_extreme(planned, vectors, passages, 1.0 if policy == "hardest" else -1.0)]
    record = planned.triplet_record()
    return Triplets(
        query=narrow(planned.query)[record],
        positive=narrow(chosen)[record],
        negative=planned.negatives,
        record_offsets=planned.negative_offsets,
        record=narrow(record),
        place=narrow(np.arange(planned.n_triplets)),
    )


def positive_cosines(planned: PlannedSource, vectors: Vectors) -> Floats:
    """(P,) s_qp of every positive of the plan, in float64."""
    record = np.repeat(np.arange(planned.n_records), np.diff(planned.positive_offsets))
    places = np.arange(len(record))
    ids = planned.query[record], planned.positives, planned.positives  # any negative does: only s_qp is read
    pairs = Triplets(*ids, record_offsets=np.arange(len(record) + 1), record=places, place=places)
    return sweep(replace(vectors, tick=None), pairs, {}, ()).dots.query_positive.numpy()


def _extreme(planned: PlannedSource, vectors: Vectors, passages: TextStore, sign: float) -> Index:
    """Place of each record's positive with the smallest sign * s_qp."""
    record = np.repeat(np.arange(planned.n_records), np.diff(planned.positive_offsets))
    order = best_first(-sign * positive_cosines(planned, vectors), content_of(passages.keys[planned.positives]), record)
    return order[np.searchsorted(record[order], np.arange(planned.n_records))]


def _all_pairs(planned: PlannedSource) -> Triplets:
    n_positives = np.diff(planned.positive_offsets)
    pair_record = np.repeat(np.arange(planned.n_records), n_positives)
    n_negatives = np.diff(planned.negative_offsets)[pair_record]
    offsets = np.concatenate([[0], np.cumsum(n_negatives)])
    record = np.repeat(pair_record, n_negatives)
    within = np.arange(len(record)) - np.repeat(offsets[:-1], n_negatives)
    place = planned.negative_offsets[record] + within
    return Triplets(
        query=narrow(planned.query)[record],
        positive=np.repeat(narrow(planned.positives), n_negatives),
        negative=planned.negatives[place],
        record_offsets=offsets,
        record=narrow(record),
        place=narrow(place),
        share=1.0 / n_positives[record],
    )
