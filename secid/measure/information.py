"""The information matrix and its log-determinant."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from secid.errors import NumericalError


@dataclass(frozen=True)
class InformationState:
    """Sum of w u u^T over triplets, and how many: merges by addition, in any grouping.

    total : (d, d) float64, symmetric PSD.   n_negatives : sum of shares, N of METHOD 1.
    """

    total: Tensor
    n_negatives: float

    def __add__(self, other: InformationState) -> InformationState:
        return InformationState(self.total + other.total, self.n_negatives + other.n_negatives)

    def matrix(self) -> Tensor:
        """M = total / N; the zero matrix for no triplets. Source: METHOD 2.7."""
        return self.total / self.n_negatives if self.n_negatives else self.total


def log_det_nats(matrix: Tensor, budget: float = 1.0) -> float:
    """Information of `budget` negatives drawn from a source, log det(I + budget * matrix).

    matrix : (d, d) float64, symmetric, PSD.   budget : > 0, number of negatives.
    Returns nats in [0, budget * trace]; 0.0 for the zero matrix.
    Raises NumericalError where I + budget * matrix is not positive definite.
    Source: METHOD 2.8, 7.
    """
    return float(2.0 * torch.log(torch.diagonal(cholesky(matrix, budget))).sum().clamp_min(0.0))


def cholesky(matrix: Tensor, budget: float = 1.0) -> Tensor:
    """Lower triangular L with L L^T = I + budget * matrix. Raises NumericalError where there is none."""
    identity = torch.eye(matrix.shape[0], dtype=matrix.dtype)
    factor, failed = torch.linalg.cholesky_ex(identity + budget * matrix)
    if int(failed) or not bool(torch.isfinite(factor).all()):
        raise NumericalError("the information matrix is not positive semi-definite", remedy="please report this run")
    lower: Tensor = factor
    return lower


def trace(matrix: Tensor) -> float:
    """tr M, in [0, 1] for weights in [0, 1]; the upper bound of the score."""
    return float(torch.trace(matrix))
