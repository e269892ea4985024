"""The gates and weight of a triplet, their means over a source, and proxy scores from other work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from secid.arrays import Floats
from secid.measure.blocks import Triplets

# The three gates of a triplet, its weight, and alternative weights for comparison.
#
# Every function takes float64 tensors of shape (T,) and returns the same shape.


@dataclass(frozen=True)
class Dots:
    """Dot products of unit vectors, and ||n - p||^2: (T,) float64 each.

    Dot products lie in [-1, 1]. squared_distance lies in [0, 4], and is 0 if n counts as equal to p.
    """

    query_positive: Tensor
    query_negative: Tensor
    positive_negative: Tensor
    squared_distance: Tensor


@dataclass(frozen=True)
class Gates:
    """The gates of each triplet, all (T,) float64 in [0, 1]. Source: METHOD 2.1 to 2.5.

    consistency : probability of the positive in the softmax over positive and negative.
    negative_probability : 1 - consistency, computed by its own sigmoid so that easy negatives keep their digits.
    locality    : near 1 if the negative is closer to the positive, near 0 if it is closer to the query.
    coverage    : IDF-weighted share of the query's tokens that occur in the negative.
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
    """Return the gates of each triplet. temperature: > 0. Source: METHOD 2.1 to 2.5."""
    logit = (dots.query_positive - dots.query_negative) / temperature
    consistency = torch.sigmoid(logit)
    locality = torch.sigmoid((dots.positive_negative - dots.query_negative) / temperature)
    residual = 1.0 - coverage
    return Gates(consistency, torch.sigmoid(-logit), locality, coverage, residual, consistency * locality * residual)


def pair_loss_nats(dots: Dots, temperature: float) -> Tensor:
    """Return -log consistency in nats, >= 0, without overflow at small temperatures. Source: METHOD 2."""
    return torch.nn.functional.softplus((dots.query_negative - dots.query_positive) / temperature)


WeightFormula = Callable[[Gates, Dots, float], Tensor]

WEIGHT_FORMULAS: Mapping[str, WeightFormula] = {
    "full": lambda g, dots, tau: g.weight,
    "no_consistency": lambda g, dots, tau: g.locality * g.residual,
    "no_locality": lambda g, dots, tau: g.consistency * g.residual,
    "no_residual": lambda g, dots, tau: g.consistency * g.locality,
    "residual_only": lambda g, dots, tau: torch.ones_like(g.weight),
    "gradient_weighted": lambda g, dots, tau: (g.negative_probability / tau) ** 2 * dots.squared_distance,
    "margin_hardness": lambda g, dots, tau: g.negative_probability,
    "fisher": lambda g, dots, tau: 4.0 * g.consistency * g.negative_probability * g.locality * g.residual,
}
"""Formulas for the weight of a triplet, by name. Source: METHOD 2.5 (full), 3 (the others)."""

UNBOUNDED_WEIGHTS = frozenset({"gradient_weighted"})
"""Formulas whose weights can exceed 1. Weights are divided by their mean over all sources of the run.
Source: METHOD 3."""


# Means and shares of a source's gates. They are diagnostics, never used for ranking.

INVERSION = 0.5
"""Consistency at equal scores. Below it, the negative outscores its positive."""
LOW_LOCALITY = 0.5
"""Locality at equal distances. Below it, the negative is closer to the query than to the positive."""


@dataclass(frozen=True)
class GateMeans:
    """Means and fractions over a source's triplets, weighted by share; in [0, 1] except pair_loss_mean (>= 0)."""

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
    """Average the gates of at least one triplet. Source: METHOD 2, 4.

    pair_loss         : (T,) values of `pair_loss_nats`.
    positive_coverage : (T,) coverage of the scored positive, to compare with the negatives' coverage.
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


# Proxies that other work ranks sources by: gradient energy, MNRL loss and ambiguity, each in pair and record form.


@dataclass(frozen=True)
class ProxyValues:
    """Proxies of a source. Energies and losses are >= 0, ambiguities lie in [0, 1]. Source: METHOD 3.

    The pair form is a mean over triplets. The record form takes a softmax over a record's positive and all its explicit
    negatives, and averages over records.
    """

    gradient_energy_pair: float
    gradient_energy_record: float
    mnrl_loss_pair: float
    mnrl_loss_record: float
    ambiguity_pair: float
    ambiguity_record: float


def proxies(triplets: Triplets, dots: Dots, gates: Gates, record_gradient: Floats, temperature: float) -> ProxyValues:
    """Return all proxies of a source. record_gradient: (R,) ||sum_k a_k (n_k - p)||^2, as computed by the sweep."""
    share = triplets.share
    first_triplets = triplets.record_offsets[:-1]
    record_share = None if share is None else share[first_triplets]
    energy = ((gates.negative_probability / temperature) ** 2 * dots.squared_distance).numpy()
    inverted = gates.consistency.numpy() < INVERSION
    any_inverted = np.maximum.reduceat(inverted, first_triplets)

    def mean(values: npt.NDArray[np.float64 | np.bool_], weights: Floats | None) -> float:
        return float(np.average(values, weights=weights))

    return ProxyValues(
        gradient_energy_pair=mean(energy, share),
        gradient_energy_record=mean(record_gradient, record_share) / temperature**2,
        mnrl_loss_pair=mean(pair_loss_nats(dots, temperature).numpy(), share),
        mnrl_loss_record=contrastive_loss(triplets, dots, temperature),
        ambiguity_pair=mean(inverted, share),
        ambiguity_record=mean(any_inverted, record_share),
    )


def contrastive_loss(triplets: Triplets, dots: Dots, temperature: float) -> float:
    """Return the MNRL loss in record form: mean of -log softmax of the positive against its record's negatives."""
    first_triplets = triplets.record_offsets[:-1]
    logits = ((dots.query_negative - dots.query_positive) / temperature).numpy()
    losses = np.logaddexp(0.0, np.logaddexp.reduceat(logits, first_triplets))
    return float(np.average(losses, weights=None if triplets.share is None else triplets.share[first_triplets]))
