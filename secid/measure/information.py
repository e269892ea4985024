"""The information matrix, its log-determinant and the shape of its spectrum, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from secid.arrays import Floats
from secid.errors import BUG_REMEDY, NumericalError, plain_message

# The information matrix, its eigenvalues and its log-determinant, computed in float64 on the matrix's device.

NOT_PSD = "the information matrix is not positive semi-definite"
EIGENVALUE_ROUNDING = 1e-5
"""Maximum absolute value of a negative eigenvalue, relative to the largest eigenvalue. The error of float32 products
within a block is far smaller (1e-7)."""
SUBNORMAL = float(np.finfo(np.float32).tiny)
"""Smallest float32 with full precision (1e-38). A smaller eigenvalue is rounding, whatever the largest one is."""
NOISE = 2.0
"""Positive eigenvalues up to this multiple of the lowest negative one, in absolute value, count as 0, because rounding
errors above and below 0 have nearly the same size."""


@dataclass(frozen=True)
class InformationState:
    """Sum of w u u^T over triplets, and the number of triplets. States can be added in any order and grouping.

    total       : (d, d) float64, symmetric PSD; empty if it was not kept.
    n_negatives : sum of the triplets' shares, N of METHOD 1.
    """

    total: Tensor
    n_negatives: float

    def __add__(self, other: InformationState) -> InformationState:
        return InformationState(self.total + other.total, self.n_negatives + other.n_negatives)

    def __sub__(self, part: InformationState) -> InformationState:
        """Return the state of the other triplets. part: state of some of the triplets."""
        return InformationState(self.total - part.total, self.n_negatives - part.n_negatives)

    def matrix(self) -> Tensor:
        """Return M = total / N; the zero matrix without triplets. Source: METHOD 2.7."""
        return self.total / self.n_negatives if self.n_negatives else self.total


def mixture_state(states: Sequence[InformationState], shares: Sequence[float]) -> InformationState:
    """Return M(alpha) = sum_s alpha_s M_s as a state with N = 1.

    states : at least one, all of the same dimension.   shares : alpha, >= 0, adding up to 1.   Source: METHOD 7.
    """
    total = torch.zeros_like(states[0].total)
    for state, share in zip(states, shares, strict=True):
        total += share * state.matrix()
    return InformationState(total, 1.0)


@dataclass(frozen=True)
class Eigen:
    """The eigendecomposition M = basis diag(values) basis^T, shared by all budgets, the spectrum and the influence.

    values : (d,) float64, >= 0, ascending.   basis : (d, d) float64 on the device of M.
    n_negatives : sum of the triplets' shares, N.
    """

    values: Floats
    basis: Tensor
    n_negatives: float

    @classmethod
    def of(cls, state: InformationState, n_triplets: int) -> Eigen:
        """Decompose a state's matrix, and set eigenvalues that are only rounding errors to 0.

        Three kinds are set to 0: negative ones; positive ones up to NOISE times the size of the lowest negative one;
        and all but the n_triplets largest, since the rank of M is at most n_triplets.
        Raises NumericalError if the matrix is not PSD.
        """
        values, basis = eigendecomposition(state.matrix())
        return cls(_without_rounding(values, n_triplets), basis, state.n_negatives)


def eigenvalues(state: InformationState, n_triplets: int) -> Floats:
    """Return the eigenvalues of `Eigen.of` without the basis, in a third of the time."""
    return _without_rounding(_solve_or_on_cpu(torch.linalg.eigvalsh, state.matrix()), n_triplets)


def eigendecomposition(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return (d,) ascending eigenvalues and (d, d) eigenvectors of a symmetric matrix, on its device."""
    values, basis = _solve_or_on_cpu(torch.linalg.eigh, matrix)
    return values.to(matrix.device), basis.to(matrix.device)


def _solve_or_on_cpu(solve: Callable[[Tensor], Any], matrix: Tensor) -> Any:
    """Run the solver on the matrix's device, or on the CPU if it fails there.

    cuSOLVER may fail if many eigenvalues are equal. With few triplets, for example, most are 0.
    Raises NumericalError if the solver fails on the CPU too.
    """
    try:
        return solve(matrix)
    except LinAlgError:
        pass
    try:
        return solve(matrix.cpu())
    except LinAlgError as error:
        reason = f"the eigenvalues cannot be computed: {plain_message(error)}"
        raise NumericalError(reason, remedy=BUG_REMEDY) from error


def _without_rounding(values: Tensor, n_triplets: int) -> Floats:
    """Return (d,) ascending eigenvalues on the CPU, with rounding errors set to 0 as in `Eigen.of`."""
    on_host = values.cpu().numpy()
    if len(on_host) and not on_host[0] >= -max(EIGENVALUE_ROUNDING * on_host[-1], SUBNORMAL):
        raise NumericalError(NOT_PSD, remedy=BUG_REMEDY)
    noise = NOISE * max(0.0, -on_host[0]) if len(on_host) else 0.0
    is_zero = (np.arange(len(on_host), 0, -1) > n_triplets) | (on_host <= noise)
    return np.where(is_zero, 0.0, on_host)


def spectral_nats(values: Floats, budget: float = 1.0) -> float:
    """Return log det(I + budget M) in nats, >= 0, from the eigenvalues of M. Source: METHOD 2.8, 7."""
    return float(np.log1p(budget * values).sum())


def log_det_nats(state: InformationState, n_triplets: int, budget: float) -> float:
    """Return ECI_B. The result equals `spectral_nats` of the eigenvalues, but takes a fifth of the time if possible.

    If M has full rank, a Cholesky factor of I + B M is enough. M has full rank if M - eps tr(M) I has a Cholesky
    factor too, where eps is the rounding error of float32.
    """
    matrix = state.matrix()
    rest = matrix - torch.finfo(torch.float32).eps * trace(matrix) * torch.eye(len(matrix)).to(matrix)
    if n_triplets < len(matrix) or int(torch.linalg.cholesky_ex(rest).info):
        return spectral_nats(eigenvalues(state, n_triplets), budget)
    return factor_nats(factor_of(budget * matrix))


def factor_of(matrix: Tensor) -> Tensor:
    """Return the lower triangular L with L L^T = I + matrix, in a tenth of the time of an eigendecomposition.

    Raises NumericalError if there is no such L.
    """
    shifted = matrix.clone()
    shifted.diagonal().add_(1.0)
    factor, failed = torch.linalg.cholesky_ex(shifted)
    if int(failed) or not bool(torch.isfinite(torch.diagonal(factor)).all()):
        raise NumericalError(NOT_PSD, remedy=BUG_REMEDY)
    lower: Tensor = factor
    return lower


def factor_nats(factor: Tensor) -> float:
    """Return log det(I + M) in nats, >= 0. factor: the result of `factor_of` for M."""
    return float(2.0 * torch.log(torch.diagonal(factor)).sum().clamp_min(0.0))


def trace(matrix: Tensor) -> float:
    """Return tr M, an upper bound of the score at budget 1. It lies in [0, 1] if all weights do."""
    return float(torch.trace(matrix))


# The spectrum of an information matrix: the share of tr M in each eigenvector's direction.

TOP_EIGENVALUES = 10
"""Maximum number of eigenvalue shares in a report."""


@dataclass(frozen=True)
class Spectrum:
    """The shape of a source's spectrum. Source: METHOD 7.

    frobenius             : ||M||_F.
    effective_rank        : exp of the entropy of (eigenvalues / tr M), 1 to d; 0.0 for the zero matrix.
    diversity_fraction    : 1 - ECI / tr M, in [0, 1); 0.0 for the zero matrix.
    top_eigenvalue_shares : shares of the largest eigenvalues in tr M, descending, at most TOP_EIGENVALUES; empty for
                            the zero matrix.
    """

    frobenius: float
    effective_rank: float
    diversity_fraction: float
    top_eigenvalue_shares: tuple[float, ...]


def spectrum(eigenvalues: Floats) -> Spectrum:
    """Return the spectrum of M. eigenvalues: (d,), >= 0, ascending."""
    from scipy.special import xlogy

    total = float(eigenvalues.sum())
    if total <= 0.0:
        return Spectrum(0.0, 0.0, 0.0, ())
    shares = eigenvalues[::-1] / total
    return Spectrum(
        frobenius=float(np.linalg.norm(eigenvalues)),
        effective_rank=float(np.exp(-xlogy(shares, shares).sum())),
        diversity_fraction=max(0.0, 1.0 - spectral_nats(eigenvalues) / total),
        top_eigenvalue_shares=tuple(map(float, shares[:TOP_EIGENVALUES])),
    )
