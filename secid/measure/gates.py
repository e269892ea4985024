"""The three gates of a triplet, its weight, and the other weights it is compared with.

Every function takes float64 tensors of one shape (T,) and returns the same shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Dots:
    """Dot products of unit vectors, (T,) float64 in [-1, 1], and ||n - p||^2 in [0, 4], 0 where n counts as p."""

    query_positive: Tensor
    query_negative: Tensor
    positive_negative: Tensor
    squared_distance: Tensor


@dataclass(frozen=True)
class Gates:
    """Per triplet, all (T,) float64 in [0, 1]. Source: METHOD 2.1 to 2.5.

    consistency : the positive's probability in the two-document softmax.
    negative_probability : 1 - consistency, by its own sigmoid: a subtraction would lose the digits of
                  easy negatives.
    locality    : nearer to the positive (towards 1) or to the query (towards 0).
    coverage    : IDF share of the query's tokens that the negative holds.
    residual    : 1 - coverage.
    weight      : consistency * locality * residual.
    """

    consistency: Tensor
    negative_probability: Tensor
    locality: Tensor
    coverage: Tensor
    residual: Tensor
    weight: Tensor


def gates(dots: Dots, coverage: Tensor, temperature: float) -> Gates:
    """The gates of each triplet. temperature: > 0. Source: METHOD 2.1 to 2.5."""
    logit = (dots.query_positive - dots.query_negative) / temperature
    consistency = torch.sigmoid(logit)
    locality = torch.sigmoid((dots.positive_negative - dots.query_negative) / temperature)
    residual = 1.0 - coverage
    return Gates(consistency, torch.sigmoid(-logit), locality, coverage, residual, consistency * locality * residual)


def pair_loss_nats(dots: Dots, temperature: float) -> Tensor:
    """-log consistency, >= 0, without overflow at small temperatures. Source: METHOD 2."""
    return torch.nn.functional.softplus((dots.query_negative - dots.query_positive) / temperature)


WeightFormula = Callable[[Gates, Dots, float], Tensor]

WEIGHTS: Mapping[str, WeightFormula] = {
    "full": lambda g, dots, tau: g.weight,
    "no_consistency": lambda g, dots, tau: g.locality * g.residual,
    "no_locality": lambda g, dots, tau: g.consistency * g.residual,
    "no_residual": lambda g, dots, tau: g.consistency * g.locality,
    "residual_only": lambda g, dots, tau: torch.ones_like(g.weight),
    "gradient_weighted": lambda g, dots, tau: (g.negative_probability / tau) ** 2 * dots.squared_distance,
    "margin_hardness": lambda g, dots, tau: g.negative_probability,
    "fisher": lambda g, dots, tau: 4.0 * g.consistency * g.negative_probability * g.locality * g.residual,
}
"""Weight of a triplet by formula name. Source: METHOD 2.5 (full), 3 (the others)."""

UNBOUNDED_WEIGHTS = frozenset({"gradient_weighted"})
"""Formulas that leave [0, 1]: scaled by their mean over all sources of the run. Source: METHOD 3."""
