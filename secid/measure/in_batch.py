"""Negatives near enough to be relevant: the margins of METHOD 10, and positives of other rows in a batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from secid.arrays import Floats, Index

if TYPE_CHECKING:
    from torch import Tensor

# The margins of METHOD 10, which flag negatives so near to their query that they may be relevant.
#
# s_qn, s_qp : any scorer's scores of the negative and of its positive for one query; tensors or arrays of one shape.

Margin = Literal["absolute", "relative", "maximum"]
MARGIN = 0.05
"""Relative margin from which a negative is suspect. Source: METHOD 10, NV-Retriever's best."""


def margin_flags(s_qn: Any, s_qp: Any, margin: Margin, value: float) -> Any:
    """Return whether each negative is suspect, in the shape of the scores.

    absolute : s_qn >= s_qp - m.   relative : s_qn >= s_qp - r |s_qp|.   maximum : s_qn >= M.   value : m, r or M.
    The relative limit equals s_qp (1 - r) for positive scores and stays meaningful below zero. Source: METHOD 10.
    """
    return s_qn >= {"absolute": s_qp - value, "relative": s_qp - value * abs(s_qp), "maximum": value}[margin]


def lowest_positive(s_query_positive: Floats, place: npt.NDArray[np.int64]) -> Floats:
    """Return (T,) the lowest score of the positives that the negative of each triplet is compared with.

    place : (T,) place of the negative. If any positive flags a negative, the lowest one does: a lower positive lowers
            every margin's limit.
    """
    lowest = np.full(int(place.max(initial=-1)) + 1, np.inf)
    with np.errstate(invalid="ignore"):  # NaN stays NaN
        np.minimum.at(lowest, place, s_query_positive)
    return lowest[place]


# Labelled positives of a query that other rows of a batch add as negatives: their number, and how often there are any.
#
# A batch of B distinct rows out of N contains each other row with probability (B - 1) / (N - 1). Source: METHOD 10.


@dataclass(frozen=True)
class Conflicts:
    """Labelled positives in other rows, for the query of each of N rows.

    n_passages : (N,) pairs of another row and a labelled positive of the query that it holds.
    n_rows     : (N,) other rows that hold at least one such positive, at most N - 1.
    """

    n_passages: Index
    n_rows: Index

    def mean(self, batch_size: int) -> float:
        """Return the mean number of labelled positives among the negatives of a row's query. batch_size: 1 to N."""
        others = len(self.n_rows) - 1
        return float((batch_size - 1) / others * self.n_passages.mean()) if others else 0.0

    def affected(self, batch_size: int) -> float:
        """Return the share of rows whose query meets at least one: 1 - C(N-1-h, B-1) / C(N-1, B-1), with h = n_rows.

        The quotient is the product of 1 - (B-1)/(N-1-i) for i below h. batch_size: 1 to N.
        """
        others, most = len(self.n_rows) - 1, int(self.n_rows.max())
        drawn = np.minimum(1.0, (batch_size - 1) / (others - np.arange(most)))
        with np.errstate(divide="ignore"):
            log_none = np.concatenate([[0.0], np.cumsum(np.log1p(-drawn))])
        return float(-np.expm1(log_none[self.n_rows]).mean())

    def largest_batch(self, share: float) -> int | None:
        """Return the largest batch of 2 to N rows in which less than this share of rows is affected, or None."""
        low, high = 1, len(self.n_rows)  # `affected` rises with the batch
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.affected(middle) < share else (low, middle - 1)
        return low if low > 1 else None


@dataclass(frozen=True)
class Batch:
    """Rows of one batch of b rows with m passages, on one device.

    queries, positives : (b, d) vectors per row.   passages : (m, d) of all rows.   row : (m,) row of each passage.
    """

    queries: Tensor
    positives: Tensor
    passages: Tensor
    row: Tensor


def flagged_counts(batches: Iterable[Batch], relative: float) -> tuple[Floats, Floats]:
    """Count the passages of other rows that the relative margin flags for each query, and all of them: (R,), (R,).

    R : rows of all batches, at least one. Dot products in float64. Nothing waits for the device before the last batch.
    Source: METHOD 10, 11.
    """
    import torch

    counts: list[Tensor] = []
    for batch in batches:
        queries, positives, passages = map(unit, (batch.queries, batch.positives, batch.passages))
        others = batch.row != torch.arange(len(queries), device=queries.device).unsqueeze(1)
        limits = (queries * positives).sum(1, keepdim=True)
        hits = margin_flags(queries @ passages.T, limits, "relative", relative) & others
        counts.append(torch.stack([hits.sum(1), others.sum(1)]))
    n_flagged, n_compared = torch.cat(counts, 1).cpu().double().numpy()
    return n_flagged, n_compared


def unit(rows: Tensor) -> Tensor:
    """Return rows (n, d) at length 1 in float64."""
    import torch

    wide = rows.double()
    scaled: Tensor = wide / torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    return scaled
