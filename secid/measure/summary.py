"""Means and shares of a source's gates: diagnostics beside the score, never the ranking."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from secid.measure.gates import Dots, gates, pair_loss_nats

Floats = npt.NDArray[np.float64]
INVERSION = 0.5
LOW_LOCALITY = 0.5


@dataclass(frozen=True)
class GateTable:
    """Gates of every triplet, (T,) float64 each. Source: METHOD 2."""

    consistency: Floats
    negative_probability: Floats
    locality: Floats
    coverage: Floats
    residual: Floats
    weight: Floats
    pair_loss: Floats


def gate_table(dots: Dots, coverage: Floats, temperature: float) -> GateTable:
    """Gates of all triplets at one temperature, from the numbers that the sweep kept."""
    table = gates(dots, torch.from_numpy(coverage), temperature)
    return GateTable(
        consistency=table.consistency.numpy(),
        negative_probability=table.negative_probability.numpy(),
        locality=table.locality.numpy(),
        coverage=table.coverage.numpy(),
        residual=table.residual.numpy(),
        weight=table.weight.numpy(),
        pair_loss=pair_loss_nats(dots, temperature).numpy(),
    )


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
    table: GateTable, positive_coverage: Floats, high_coverage: float, share: Floats | None = None
) -> GateMeans:
    """Averages of the gates. At least one triplet.

    positive_coverage : (T,) coverage of the scored positive, the anchor that tells what a low
                        lexical residual means here. Source: METHOD 2, 4.
    """
    columns = (
        table.consistency,
        table.locality,
        table.coverage,
        positive_coverage,
        table.residual,
        table.weight,
        table.pair_loss,
        table.consistency < INVERSION,
        table.locality < LOW_LOCALITY,
        table.coverage >= high_coverage,
    )
    return GateMeans(*(float(np.average(column, weights=share)) for column in columns))
