"""Likely false negatives: margins that flag them, and those from other rows of a batch. Source: METHOD 10."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from secid.arrays import Floats, Index

if TYPE_CHECKING:
    from torch import Tensor

Margin = Literal["absolute", "relative", "maximum"]
RELATIVE_MARGIN = 0.05
"""Relative margin of a filter by the encoder's own scores: NV-Retriever's best. Source: METHOD 10."""


def margin_flags(s_qn: Any, s_qp: Any, margin: Margin, value: float) -> Any:
    """Return flags of negatives whose score is so close to the positive's that they may be relevant.

    s_qn, s_qp : scores of the negative and of its positive for the same query, by any scorer; tensors or arrays of the
                 same shape, which is that of the flags.
    margin : absolute flags s_qn >= s_qp - m, relative flags s_qn >= s_qp - r |s_qp|, maximum flags s_qn >= M.
    value  : m, r or M.
    The relative limit is s_qp (1 - r) for positive scores, and stays meaningful for negative ones. Source: METHOD 10.
    """
    return s_qn >= {"absolute": s_qp - value, "relative": s_qp - value * abs(s_qp), "maximum": value}[margin]


def lowest_positive(s_query_positive: Floats, place: Index) -> Floats:
    """Return (T,) lowest score among the positives of each triplet's negative.

    s_query_positive : (T,) score of the triplet's positive.   place : (T,) number of the triplet's negative.
    A lower positive lowers the limit of every margin, so if any positive flags a negative, the lowest one does.
    """
    lowest = np.full(int(place.max(initial=-1)) + 1, np.inf)
    with np.errstate(invalid="ignore"):  # NaN stays NaN
        np.minimum.at(lowest, place, s_query_positive)
    return lowest[place]


# In-batch false negatives: a query's labelled positives in other rows of its batch, which become its negatives.
#
# A batch of B out of N rows contains any other given row with probability (B - 1) / (N - 1). Source: METHOD 10.


@dataclass(frozen=True)
class Conflicts:
    """For each of a source's N rows, labelled positives of the row's query that occur in other rows.

    n_passages : (N,) number of these positives, counted once for each other row that contains them.
    n_rows     : (N,) number of other rows with at least one such positive, at most N - 1.
    """

    n_passages: Index
    n_rows: Index

    def mean(self, batch_size: int) -> float:
        """Return the expected number of labelled positives among a query's in-batch negatives. batch_size: 1 to N."""
        others = len(self.n_rows) - 1
        return float((batch_size - 1) / others * self.n_passages.mean()) if others else 0.0

    def affected(self, batch_size: int) -> float:
        """Return the expected share of rows whose query has at least one labelled positive among its negatives.

        It is the mean of 1 - C(N-1-h, B-1) / C(N-1, B-1) with h = n_rows. The quotient is the product of
        1 - (B-1)/(N-1-i) for i = 0 ... h-1. batch_size: B, 1 to N.
        """
        others, max_rows = len(self.n_rows) - 1, int(self.n_rows.max())
        drawn = np.minimum(1.0, (batch_size - 1) / (others - np.arange(max_rows)))
        with np.errstate(divide="ignore"):
            log_none = np.concatenate([[0.0], np.cumsum(np.log1p(-drawn))])
        return float(-np.expm1(log_none[self.n_rows]).mean())

    def largest_batch(self, share: float) -> int | None:
        """Return the largest batch size, 2 to N, at which less than this share of rows is affected, or None."""
        low, high = 1, len(self.n_rows)  # `affected` grows with the batch size
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.affected(middle) < share else (low, middle - 1)
        return low if low > 1 else None


@dataclass(frozen=True)
class Batch:
    """One batch of b rows with m passages, on one device.

    queries, positives : (b, d) vectors of each row's query and positive.
    passages : (m, d) vectors of the passages of all rows.   row : (m,) row of each passage.
    """

    queries: Tensor
    positives: Tensor
    passages: Tensor
    row: Tensor


def flagged_counts(batches: Iterable[Batch]) -> tuple[Floats, Floats]:
    """Count, for each query, the other rows' passages that the relative margin flags, (R,), and all of them, (R,).

    R is the number of rows in all batches, at least 1. Dot products are in float64. The loop over batches does not wait
    for the device. Source: METHOD 10, 11.
    """
    import torch

    from secid.measure.blocks import unit

    counts: list[Tensor] = []
    for batch in batches:
        queries, positives, passages = map(unit, (batch.queries, batch.positives, batch.passages))
        others = batch.row != torch.arange(len(queries), device=queries.device).unsqueeze(1)
        limits = (queries * positives).sum(1, keepdim=True)
        hits = margin_flags(queries @ passages.T, limits, "relative", RELATIVE_MARGIN) & others
        counts.append(torch.stack([hits.sum(1), others.sum(1)]))
    n_flagged, n_compared = torch.cat(counts, 1).cpu().double().numpy()
    return n_flagged, n_compared
