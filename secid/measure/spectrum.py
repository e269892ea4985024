"""The shape of an information matrix: how many directions carry how much of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secid.arrays import Floats
from secid.measure.information import spectral_nats

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


def spectrum(eigenvalues: Floats) -> Spectrum:
    """Spectrum of M by its eigenvalues, >= 0, rising."""
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
