"""Labelled positives that meet a query as negatives since a batch of training holds other rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """Of batches of `batch_size` distinct rows, the expectation over all of them.

    false_negatives_mean : labelled positives among the negatives of a row's query, mean over rows.
    affected_share       : of rows whose query has at least one.
    """

    batch_size: int
    false_negatives_mean: float
    affected_share: float


@dataclass(frozen=True, kw_only=True)
class InBatch:
    """One source in batches of its own records, each a row with its scored positives and all its negatives.

    n_rows        : records of the source: of all its rows, or of a sample where the encoder chooses the positives.
    sizes         : 32 to 32,768, as far as there are so many rows.
    largest_batch : the largest batch with less than 1 % of rows affected, n_rows where every batch is one; None where
                    two rows are too many.
    flagged_share : of the passages of other rows, those that the relative margin flags for a row's query, in
                    n_batches sampled batches of batch_rows rows: n_compared pairs of a query and a passage, by the
                    encoder's own cosines. flagged_interval_95: queries as clusters. None where a batch has one row.
    Labels are incomplete, so all but the flagged share are lower bounds. Source: METHOD 10.
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
