"""One set of triplets after both passes: its gates, its information matrix and the influence of every triplet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secid.arrays import Floats
from secid.measure.blocks import Triplets
from secid.measure.information import InformationState, spectral_nats
from secid.measure.sweep import Variant
from secid.measure.uncertainty import Influence
from secid.triplets.table import TripletTable

CURVE_BUDGETS = (1.0, 10.0, 100.0, 1_000.0, 10_000.0)
"""METHOD 7; N of the source is added."""


@dataclass(frozen=True)
class VariantScore:
    """ECI_B of a source under one variant. A weight beyond [0, 1] is scaled over the run, so it keeps its eigenvalues.

    eigenvalues : (d,) of M.   n_queries : distinct queries of the variant's sample.
    """

    nats: float | None
    eigenvalues: Floats | None
    weight_sum: float
    n_negatives: float
    n_queries: int


@dataclass(frozen=True)
class Measured:
    """One set of triplets after both passes: its table, and the sums over it.

    record_gradient : (G,) as the sweep leaves it.
    state           : the information matrix on the CPU, without its sum where no run folder will hold it.
    eigenvalues     : of M, >= 0, rising; zeros may be left out.
    influence       : at the run's budget first, then at the budgets of the curve.
    query_keys      : (Q, 16) text keys of influence.queries.
    """

    name: str
    table: TripletTable
    record_gradient: Floats
    state: InformationState
    eigenvalues: Floats
    influence: Influence
    query_keys: npt.NDArray[np.uint8]
    variants: Mapping[Variant, VariantScore]

    @property
    def triplets(self) -> Triplets:
        """Ids of the table's rows."""
        return self.table.triplets

    def nats(self, budget: float) -> float:
        """ECI_B of this set."""
        return spectral_nats(self.eigenvalues, budget)

    @property
    def trace(self) -> float:
        """tr M."""
        return float(self.eigenvalues.sum())


def curve_budgets(budget: float, n_negatives: float) -> tuple[float, ...]:
    """The run's budget first, then the curve's and N, rising, each once."""
    others = sorted({*CURVE_BUDGETS, max(1.0, float(round(n_negatives)))} - {budget})
    return (budget, *others)
