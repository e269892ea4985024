"""What others rank sources by: gradient energy, MNRL loss, ambiguity, in pair and in record form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secid.arrays import Floats
from secid.measure.blocks import Triplets
from secid.measure.gates import Dots, Gates, pair_loss_nats
from secid.measure.summary import INVERSION


@dataclass(frozen=True)
class ProxyValues:
    """Source: METHOD 3. Energies and losses are >= 0, ambiguities lie in [0, 1].

    Pair form: mean over triplets. Record form: softmax over a record's positive and all its
    explicit negatives, mean over records.
    """

    gradient_energy_pair: float
    gradient_energy_record: float
    mnrl_loss_pair: float
    mnrl_loss_record: float
    ambiguity_pair: float
    ambiguity_record: float


def proxies(triplets: Triplets, dots: Dots, gates: Gates, record_gradient: Floats, temperature: float) -> ProxyValues:
    """All proxies of a source. record_gradient: (R,) ||sum_k a_k (n_k - p)||^2 from the sweep."""
    share = triplets.share
    heads = triplets.record_offsets[:-1]
    record_share = None if share is None else share[heads]
    energy = ((gates.negative_probability / temperature) ** 2 * dots.squared_distance).numpy()
    inverted = gates.consistency.numpy() < INVERSION
    above = np.maximum.reduceat(inverted, heads)

    def mean(values: npt.NDArray[np.float64 | np.bool_], weights: Floats | None) -> float:
        return float(np.average(values, weights=weights))

    return ProxyValues(
        gradient_energy_pair=mean(energy, share),
        gradient_energy_record=mean(record_gradient, record_share) / temperature**2,
        mnrl_loss_pair=mean(pair_loss_nats(dots, temperature).numpy(), share),
        mnrl_loss_record=contrastive_loss(triplets, dots, temperature),
        ambiguity_pair=mean(inverted, share),
        ambiguity_record=mean(above, record_share),
    )


def contrastive_loss(triplets: Triplets, dots: Dots, temperature: float) -> float:
    """MNRL loss in record form: mean over records of -log softmax of the positive among it and its negatives."""
    heads = triplets.record_offsets[:-1]
    logits = ((dots.query_negative - dots.query_positive) / temperature).numpy()
    losses = np.logaddexp(0.0, np.logaddexp.reduceat(logits, heads))
    return float(np.average(losses, weights=None if triplets.share is None else triplets.share[heads]))
