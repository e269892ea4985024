"""The score of a set of triplets that is spread over shards, and its error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from secid.arrays import Floats
from secid.measure.blocks import Vectors
from secid.measure.information import Eigen, InformationState, spectral_nats
from secid.measure.uncertainty import Influence, influence
from secid.shards.state import StoredSet


@dataclass
class Scores:
    """ECI of a set of triplets and its error; the error is added up over shards.

    state : the sum over all shards.   eigen : of its M.
    squares, bias_nats : (budgets,) sums over queries.   n_queries : distinct queries.
    """

    state: InformationState
    eigen: Eigen
    budgets: tuple[float, ...]
    squares: Floats
    bias_nats: Floats
    n_queries: int = 0

    @staticmethod
    def of(state: InformationState, budgets: tuple[float, ...], device: torch.device | None) -> Scores:
        """Score a set before its influence is added."""
        total = state.total if device is None else state.total.to(device)
        eigen = Eigen.of(InformationState(total, state.n_negatives), int(state.n_negatives))
        return Scores(state, eigen, budgets, *np.zeros((2, len(budgets))))

    @property
    def nats(self) -> float:
        """ECI at the first budget."""
        return spectral_nats(self.eigen.values, self.budgets[0])

    def standard_errors(self) -> Floats:
        """Return (budgets,) standard errors in nats."""
        errors: Floats = np.sqrt(self.squares)
        return errors

    def add(self, vectors: Vectors, own: StoredSet, distance: float, dtype: torch.dtype) -> Influence:
        """Add the influence of the triplets of a shard, at least one, and return it."""
        effect = influence(vectors, own.triplets, own.squared, own.weight, self.eigen, distance, self.budgets, dtype)
        self.squares += (effect.per_query**2).sum(axis=0)
        self.bias_nats += effect.bias_nats
        self.n_queries += effect.n_queries
        return effect
