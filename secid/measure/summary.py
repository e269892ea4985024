"""Means and shares of a source's gates: diagnostics in addition to the score, never the ranking."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from secid.arrays import Floats
from secid.measure.gates import Gates

INVERSION = 0.5
LOW_LOCALITY = 0.5


@dataclass(frozen=True)
class GateMeans:
    """Means and fractions over a source's triplets, weighted by share. All in [0, 1] but the loss (>= 0)."""

    consistency_mean: float
    locality_mean: float
    coverage_mean: float
    positive_coverage_mean: float
    residual_mean: float
    weight_mean: float
    pair_loss_mean: float
    inversion_fraction: float
    low_locality_fraction: float
    high_coverage_fraction: float


def gate_means(
    gates: Gates, pair_loss: Tensor, positive_coverage: Floats, high_coverage: float, share: Floats | None = None
) -> GateMeans:
    """Averages of the gates. At least one triplet.

    pair_loss         : (T,) of `pair_loss_nats`.
    positive_coverage : (T,) coverage of the scored positive, the anchor that tells what a low
                        lexical residual means here. Source: METHOD 2, 4.
    """
    columns = (
        gates.consistency.numpy(),
        gates.locality.numpy(),
        gates.coverage.numpy(),
        positive_coverage,
        gates.residual.numpy(),
        gates.weight.numpy(),
        pair_loss.numpy(),
        gates.consistency.numpy() < INVERSION,
        gates.locality.numpy() < LOW_LOCALITY,
        gates.coverage.numpy() >= high_coverage,
    )
    return GateMeans(*(float(np.average(column, weights=share)) for column in columns))
