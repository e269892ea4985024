"""One pass over a source's triplets: dot products, gates, and the sums that every score is made of.

Blocks hold whole records padded to one number of negatives, so that a record's dot products are one
small matrix product in float64. All variants are filled from the same block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from secid.arrays import FLOAT32_DISTANCE
from secid.errors import NumericalError
from secid.measure.blocks import Block, Triplets, Vectors, Window, windows
from secid.measure.gates import WEIGHTS, Dots, gates
from secid.measure.information import InformationState
from secid.settings import DEFAULTS

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PANEL_COLUMNS = {torch.float32: 128, torch.float64: 384}
"""Columns that a symmetric product is made by. Measured at 768 dimensions: 0.6 of the time of the whole product in
float32, where half of it would be the least; narrower panels gain nothing."""
DOT_ROUNDING = 1e-12
"""Far above the error of a float64 dot product of unit rows (1e-16 times sqrt d), far below any real gap."""


@dataclass(frozen=True)
class Variant:
    """One way of weighing the same triplets: temperature, coverage by name, weight formula, sample.

    sample: only triplets whose position in the nested sample lies below it; 1.0 takes all.
    """

    temperature: float
    coverage: str
    weight: str
    sample: float = 1.0


@dataclass(frozen=True)
class Sweep:
    """What one pass leaves: dot products, and the un-normalised sum of w u u^T of each variant.

    dots              : (T,) float64 each on the CPU, in the order of the triplets.
    record_gradient   : (R,) ||sum_k a_k (n_k - p)||^2 of each (record, positive), a the softmax weights
                        of its negatives at `temperature`; METHOD 3's record form without 1/tau^2.
    weights[variant]  : sum of share * weight, u = 0 in; n_negatives[variant] : sum of shares.
    matrices[variant] : (d, d) float64 on the CPU, symmetric PSD; divide by n_negatives for M.
    """

    dots: Dots
    record_gradient: Floats
    matrices: Mapping[Variant, Tensor]
    weights: Mapping[Variant, float]
    n_negatives: Mapping[Variant, float]

    def state(self, variant: Variant) -> InformationState:
        """The information state of one variant."""
        return InformationState(self.matrices[variant], self.n_negatives[variant])


def sweep(
    vectors: Vectors,
    triplets: Triplets,
    coverages: Mapping[str, Floats],
    variants: Sequence[Variant],
    smallest_distance: float = FLOAT32_DISTANCE,
    temperature: float = DEFAULTS.temperature,
    position: Floats | None = None,
    sums: torch.dtype = torch.float32,
) -> Sweep:
    """Dot products of all triplets and one information sum per variant.

    coverages : (T,) coverage of each triplet by the name that variants use.
    smallest_distance : ||n - p|| at and below which n counts as p: u = 0 and, exactly, s_qn = s_qp and s_pn = 1.
    temperature       : of the record softmax.
    position          : (T,) place of each triplet's query in the nested sample, in [0, 1); needed by
                        variants with a sample below 1.
    sums : of the products within a block; across blocks they are float64. In float64 the states of any parts of the
           records add up to the whole's to 1e-12, in float32 only those of whole blocks.
    Same result to rounding for any order of records and any block size; zeros for no triplets.
    Source: METHOD 2, 11.
    """
    d, n = vectors.dimension, len(triplets)
    device = vectors.passages.device
    columns = [torch.zeros(n, dtype=torch.float64, device=device) for _ in range(4)]
    totals = {variant: torch.zeros(d, d, dtype=torch.float64, device=device) for variant in variants}
    weights, counts = dict.fromkeys(variants, 0.0), dict.fromkeys(variants, 0.0)
    places_in_sample = None if position is None else torch.from_numpy(position).to(device)
    known = {name: torch.from_numpy(values).to(device) for name, values in coverages.items()}
    share = None if triplets.share is None else torch.from_numpy(triplets.share).to(device)
    gradient = np.zeros(len(triplets.record_offsets) - 1)
    for block, window in windows(vectors, triplets, triplets.record_offsets):
        places = torch.from_numpy(block.places).to(device)
        real = torch.from_numpy(block.real).to(device)
        dots, difference = _block_dots(window, block, d, smallest_distance)
        for column, values in zip(columns, _columns(dots), strict=True):
            column[places[real]] = values[real]
        gradient[block.groups] = _record_gradient(dots, difference, real, block.k, temperature)
        difference = difference.to(sums)
        usable = real & (dots.squared_distance > smallest_distance**2)
        scale = usable / torch.where(usable, dots.squared_distance, 1.0)
        counted = real.double() if share is None else real * share[places]
        for variant, total in totals.items():
            triplet_gates = gates(dots, known[variant.coverage][places], variant.temperature)
            amount = WEIGHTS[variant.weight](triplet_gates, dots, variant.temperature) * counted
            rows, kept_amount, number = difference, amount * scale, counted
            if variant.sample < 1.0 and places_in_sample is not None:
                inside = torch.nonzero(places_in_sample[places] < variant.sample).squeeze(1)
                rows, kept_amount = difference[inside], kept_amount[inside]
                amount, number = amount[inside], counted[inside]
            _add_upper(total, rows, rows * kept_amount.to(rows.dtype).unsqueeze(1))
            weights[variant] += float(amount.sum())
            counts[variant] += float(number.sum())
    found = Dots(*(column.cpu() for column in columns))
    matrices = {variant: _mirrored(total.cpu()) for variant, total in totals.items()}
    return Sweep(found, gradient, matrices, weights, counts)


def _block_dots(window: Window, block: Block, d: int, smallest_distance: float) -> tuple[Dots, Tensor]:
    """Cosines of a block in float64, and its differences n - p in float32 (B, d).

    Rows are divided by their float64 norm, so float32 rounding of a unit row does not enter. A copy of the positive
    that another batch encoded differs from it by rounding, whose sign must not decide what is an inversion.
    Raises NumericalError where a row is zero or not finite.
    """
    heads = block.places[:: block.k]
    negatives, positives, queries = window.negatives(block.places), window.positives(heads), window.queries(heads)
    anchors = torch.stack([queries, positives], dim=1).double()
    lengths = torch.linalg.vector_norm(anchors, dim=2, keepdim=True)
    anchors /= lengths
    wide = negatives.double()
    norms = torch.linalg.vector_norm(wide, dim=1)
    if not (_usable(norms) and _usable(lengths)):
        raise NumericalError("an embedding is zero or not finite", remedy="encode again, with --dtype float32")
    cosines = torch.bmm(wide.view(-1, block.k, d), anchors.transpose(1, 2)).view(-1, 2) / norms.unsqueeze(1)
    query_positive = (anchors[:, 0] * anchors[:, 1]).sum(1).repeat_interleave(block.k)
    difference = (negatives.view(-1, block.k, d) - positives.unsqueeze(1)).view(-1, d)
    query_negative = _tied(cosines[:, 0], query_positive)
    positive_negative = _tied(cosines[:, 1], query_negative)
    squared = (2.0 - 2.0 * positive_negative).clamp_min(0.0)
    copy = squared <= smallest_distance**2
    squared = torch.where(copy, 0.0, squared)
    query_negative = torch.where(copy, query_positive, query_negative)
    positive_negative = torch.where(copy, 1.0, positive_negative)
    return Dots(query_positive, query_negative, positive_negative, squared), difference


def _usable(lengths: Tensor) -> bool:
    """Whether all are finite and above 0; a row with NaN or infinity has a length that is."""
    return bool((torch.isfinite(lengths) & (lengths > 0)).all())


def _tied(values: Tensor, others: Tensor) -> Tensor:
    """`values`, equal to `others` where they differ by rounding alone: equal rows must give a tie."""
    return torch.where((values - others).abs() <= DOT_ROUNDING, others, values)


def _record_gradient(dots: Dots, difference: Tensor, real: Tensor, k: int, temperature: float) -> Floats:
    """(r,) squared length of each record's softmax-weighted sum of n - p. Source: METHOD 3."""
    logits = (dots.query_negative - dots.query_positive) / temperature
    logits = torch.where(real, logits, -torch.inf).view(-1, k)
    with_positive = torch.nn.functional.pad(logits, (1, 0))  # the positive's own logit is 0
    weights = torch.softmax(with_positive, dim=1)[:, 1:]
    pulled = torch.bmm(weights.to(difference.dtype).unsqueeze(1), difference.view(-1, k, difference.shape[1]))
    return (pulled.squeeze(1).double() ** 2).sum(1).cpu().numpy()


def _columns(dots: Dots) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return dots.query_positive, dots.query_negative, dots.positive_negative, dots.squared_distance


def _add_upper(total: Tensor, rows: Tensor, weighted: Tensor) -> None:
    """Adds rows^T weighted to `total`, right in the upper triangle only: the rest is its mirror image."""
    d, columns = rows.shape[1], PANEL_COLUMNS[rows.dtype]
    for start in range(0, d, columns):
        stop = min(d, start + columns)
        total[:stop, start:stop] += rows[:, :stop].T @ weighted[:, start:stop]


def _mirrored(total: Tensor) -> Tensor:
    """The symmetric matrix with this upper triangle."""
    return torch.triu(total) + torch.triu(total, 1).T
