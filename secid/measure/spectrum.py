"""The shape of an information matrix: how many directions carry how much of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from secid.measure.information import log_det_nats, trace

TOP_EIGENVALUES = 10


@dataclass(frozen=True)
class Spectrum:
    """Source: METHOD 7.

    frobenius             : ||M||_F.
    effective_rank        : exp(H(eigenvalues / tr M)), 1 to d; 0.0 for the zero matrix.
    diversity_fraction    : 1 - ECI / tr M, in [0, 1); 0.0 for the zero matrix.
    top_eigenvalue_shares : of tr M, descending, at most TOP_EIGENVALUES; empty for the zero matrix.
    """

    frobenius: float
    effective_rank: float
    diversity_fraction: float
    top_eigenvalue_shares: tuple[float, ...]


def spectrum(matrix: Tensor) -> Spectrum:
    """Spectrum of M, (d, d) float64 PSD."""
    total = trace(matrix)
    if total <= 0.0:
        return Spectrum(0.0, 0.0, 0.0, ())
    shares = torch.linalg.eigvalsh(matrix).clamp_min(0.0).flip(0) / total
    entropy = float(-(torch.xlogy(shares, shares)).sum())
    return Spectrum(
        frobenius=float(torch.linalg.matrix_norm(matrix)),
        effective_rank=float(torch.tensor(entropy, dtype=torch.float64).exp()),
        diversity_fraction=max(0.0, 1.0 - log_det_nats(matrix) / total),
        top_eigenvalue_shares=tuple(float(share) for share in shares[:TOP_EIGENVALUES]),
    )
