"""In-batch false negatives: labelled positives in other rows of a batch, and passages that a margin would mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from secid.analyses.analysis import Analysis, AnalysisResult, Context
from secid.arrays import Index, distinct, is_known, pairs
from secid.measure.false_negatives import RELATIVE_MARGIN
from secid.pool import sample_order
from secid.triplets.estimates import Share, comparable_keys, wilson_interval

if TYPE_CHECKING:
    from secid.measure.blocks import Triplets, Vectors
    from secid.measure.false_negatives import Batch, Conflicts
    from secid.triplets.measure_set import Measured

SIZES = tuple(2**power for power in range(5, 16))
"""Batch sizes, 32 to 32,768. Source: METHOD 10."""
ONE_ROW = "one_row"
FEW_ROWS_FRACTION = 0.01
"""Share of affected rows below which a batch size is acceptable. Source: METHOD 10."""
BATCH_ROWS, BATCHES = 64, 8
"""Number of rows per sampled batch, and number of batches. With 10 negatives per row, the batches have 355,000 pairs.
This analysis of ten SciFact sources took 0.5 s, including the labels. Scoring them without a cache took 230 s of
processor time."""
MAX_QUERY_ROW_PAIRS = 1 << 22
"""Maximum (query, row) pairs in memory at once."""


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """Expected values over all batches of `batch_size` distinct rows.

    false_negatives_mean : mean number of labelled positives among the in-batch negatives of a row's query.
    affected_share       : share of rows whose query has at least one such positive.
    """

    batch_size: int
    false_negatives_mean: float
    affected_share: float


@dataclass(frozen=True, kw_only=True)
class InBatch:
    """A source trained in batches of its own records. A row is a record with its scored positives and all negatives.

    n_rows        : number of records: all records in the files, or the sampled ones if the encoder chooses the
                    positives.
    sizes         : values at batch sizes from 32 to 32,768, up to n_rows.
    largest_batch : largest batch size with less than 1 % of rows affected. It is n_rows if even the whole source is
                    acceptable, and None if a batch of two rows is not.
    flagged_share : share of other rows' passages that the relative margin flags for a row's query, by the encoder's
                    cosines. None if a batch has only one row.
    flagged_interval_95 : interval of flagged_share, clustered by query.
    n_compared    : number of (query, passage) pairs in n_batches sampled batches of batch_rows rows.
    Labels are incomplete, so all numbers except flagged_share are lower bounds. Source: METHOD 10.
    """

    source: str
    n_rows: int
    sizes: tuple[BatchSize, ...]
    largest_batch: int | None
    relative_margin: float
    flagged_share: float | None
    flagged_interval_95: tuple[float, float] | None = None
    n_compared: int = 0
    n_batches: int
    batch_rows: int


def compute(context: Context) -> AnalysisResult[tuple[InBatch, ...]]:
    """Count the in-batch false negatives of each source. Source: METHOD 10."""
    results = tuple(in_batch(context, item) for item in context.items)
    return AnalysisResult(
        results, {f"batches of {item.source}": ONE_ROW for item in results if item.flagged_share is None}
    )


def in_batch(context: Context, item: Measured) -> InBatch:
    """Count a source's in-batch false negatives, and the passages that the margin flags in sampled batches."""
    from secid.measure.false_negatives import flagged_counts

    plan, seed, name, rows = context.plan, context.settings.seed, item.name, item.triplets
    counts = context.batch_rows.get(name) or conflicts(rows, plan.known_positives, len(plan.passages))
    n_rows = len(counts.n_rows)
    _, heads, record = np.unique(rows.record, return_index=True, return_inverse=True)
    n_batches, batch_rows = max(1, min(BATCHES, len(heads) // BATCH_ROWS)), min(BATCH_ROWS, len(heads))
    query, positive = rows.query[heads], rows.positive[heads]
    draw = sample_order(plan.queries.keys[query], seed) ^ sample_order(plan.passages.keys[positive], seed + 1)
    drawn = np.argsort(draw, kind="stable")[: n_batches * batch_rows]
    batches = _batches(rows, heads, record, np.split(drawn, n_batches), context.measurer.vectors, len(plan.passages))
    n_flagged, n_compared = flagged_counts(batches)
    queries, cluster = np.unique(query[drawn], return_inverse=True)
    share = None
    if n_compared.any():
        share = Share.of(n_flagged, n_compared, cluster, comparable_keys(plan.queries.keys[queries]))
    return InBatch(
        source=name,
        n_rows=n_rows,
        sizes=tuple(
            BatchSize(batch_size=size, false_negatives_mean=counts.mean(size), affected_share=counts.affected(size))
            for size in SIZES
            if size <= n_rows
        ),
        largest_batch=counts.largest_batch(FEW_ROWS_FRACTION),
        relative_margin=RELATIVE_MARGIN,
        flagged_share=None if share is None else share.estimate.value,
        flagged_interval_95=None if share is None else wilson_interval(share.estimate),
        n_compared=0 if share is None else share.n_all,
        n_batches=n_batches,
        batch_rows=batch_rows,
    )


def conflicts(rows: Triplets, known: Index, n_passages: int) -> Conflicts:
    """Count the labelled positives of each row's query that occur in other rows of the source.

    rows  : triplets of the source. A row is a record with its scored positives and negatives.
    known : sorted query * n_passages + passage of every labelled positive.
    """
    from secid.measure.false_negatives import Conflicts

    _, heads, record = np.unique(rows.record, return_index=True, return_inverse=True)
    queries, query = np.unique(rows.query[heads], return_inverse=True)
    n_rows = len(heads)
    occurrences = distinct(np.concatenate([pairs(ids, record, n_rows) for ids in (rows.positive, rows.negative)]))
    labelled = is_known(pairs(rows.query[heads][occurrences % n_rows], occurrences // n_rows, n_passages), known)
    n_own = np.bincount(occurrences[labelled] % n_rows, minlength=n_rows)
    known = known[is_known(known // n_passages, queries)]
    query_number, passage = np.searchsorted(queries, known // n_passages), known % n_passages
    counts = np.searchsorted(occurrences, (passage + 1) * n_rows) - np.searchsorted(occurrences, passage * n_rows)
    n_holding = np.bincount(query_number, counts, len(queries)).astype(np.int64)
    n_holders = _distinct_rows(query_number, passage, occurrences, len(queries), n_rows)
    return Conflicts(n_holding[query] - n_own, n_holders[query] - (n_own > 0))


def _distinct_rows(query_number: Index, passage: Index, occurrences: Index, n_queries: int, n_rows: int) -> Index:
    """Return (n_queries,) number of rows that contain at least one positive of each query.

    query_number, passage : (K,) query and passage of each labelled positive, ascending by query.
    occurrences : sorted passage * n_rows + row of every passage in a row.
    Queries with the same set of positives are computed only once.
    """
    from scipy import sparse

    passages, number = np.unique(passage, return_inverse=True)
    codes = np.random.default_rng(0).integers(2**63, size=len(passages), dtype=np.uint64)
    of_query = np.zeros(n_queries, np.uint64)
    np.add.at(of_query, query_number, codes[number])  # equal sets of positives have equal 64-bit sums
    _, first, same = np.unique(of_query, return_index=True, return_inverse=True)
    occurrences = occurrences[is_known(occurrences // n_rows, passages)]
    ends = np.searchsorted(occurrences, passages * n_rows), np.searchsorted(occurrences, (passages + 1) * n_rows)
    offsets = np.append(ends[0], len(occurrences))
    rows = sparse.csr_array(
        (np.ones(len(occurrences), np.bool_), occurrences % n_rows, offsets), (len(passages), n_rows)
    )
    shape = n_queries, len(passages)
    known = sparse.csr_array((np.ones(len(query_number), np.bool_), (query_number, number)), shape)[first]
    n_pairs = np.cumsum(known.astype(np.int64) @ (ends[1] - ends[0]))
    parts = np.split(np.arange(len(first)), np.flatnonzero(np.diff(n_pairs // MAX_QUERY_ROW_PAIRS)) + 1)
    return np.concatenate([np.diff((known[part] @ rows).indptr) for part in parts])[same]


def _batches(
    rows: Triplets, heads: Index, record: Index, parts: Sequence[Index], vectors: Vectors, n_passages: int
) -> Iterator[Batch]:
    """Yield one batch for each part.

    heads : first triplet of each record.   record : (T,) number of each triplet's record.
    Under the policy "all", the first positive of a row is its positive in the batch. The row's other positives count as
    passages.
    """
    import torch

    from secid.measure.false_negatives import Batch
    from secid.triplets.embedding import rows_of_ids

    for part in parts:
        place = np.full(len(heads), -1, np.int64)
        place[part] = np.arange(len(part))
        inside = np.flatnonzero(place[record] >= 0)
        ids = np.concatenate(
            [pairs(place[record[inside]], passages[inside], n_passages) for passages in (rows.positive, rows.negative)]
        )
        row, passage = np.divmod(distinct(ids), n_passages)
        (queries,) = rows_of_ids(vectors, "query", rows.query[heads[part]], len(part))
        (positives,) = rows_of_ids(vectors, "passage", rows.positive[heads[part]], len(part))
        (passages,) = rows_of_ids(vectors, "passage", passage, len(passage))
        yield Batch(queries, positives, passages, torch.from_numpy(row).to(passages.device))


IN_BATCH = Analysis("in_batch", tuple[InBatch, ...], compute)
