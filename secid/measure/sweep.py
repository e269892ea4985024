"""One pass over a source's triplets: dot products, gates, and the sums that all scores are computed from.

A block holds whole records, padded to the same number of negatives, so that a record's dot products are one small
matrix product in float64. All variants are computed from the same block.
Samples are nested. A stratum is the part of a sample that is not in the next smaller sample, and every block belongs to
one stratum. The sum of a sample is the sum of its strata, so samples need no extra products.
The loop over blocks does not wait for the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from secid.arrays import FLOAT32_DISTANCE, Floats
from secid.errors import NumericalError
from secid.measure.blocks import SlotBlock, Triplets, Vectors, Window, block_plan, parallel_map, windows
from secid.measure.gates import WEIGHT_FORMULAS, Dots, Gates, gates
from secid.measure.information import InformationState
from secid.settings import DEFAULTS

MAX_PANEL_DIVISOR = 4
"""Maximum factor by which panels get narrower as more products share the same rows. Four panels of 32 columns together
are as fast as one of 128, and compute less of the lower triangle."""
STORED_PANELS = 8
"""Number of panels for the upper triangle of a sum, if products are computed whole. They store 9/16 of the matrix."""
DOT_ROUNDING = 1e-12
"""Maximum difference between dot products that count as equal. It is far above the error of a float64 dot product of
unit rows (1e-16 times sqrt d), and far below any real difference."""


@dataclass(frozen=True)
class Variant:
    """One way of weighting the same triplets. coverage, weight: name of the coverage and of the weight formula.

    sample : only triplets whose position in the nested sample is below this number are used; 1.0 for all triplets.
    """

    temperature: float
    coverage: str
    weight: str
    sample: float = 1.0


PanelProduct = tuple[int, int, Tensor]
"""Part of several products that share the same rows: number of the panel, number of the first sum, and values to add to
this sum and the following ones, (stop, n_sums, width)."""


class SymmetricSums:
    """Float64 sums of n symmetric (d, d) products. The upper triangles are stored in panels of columns."""

    def __init__(self, n: int, d: int, device: torch.device, dtype: torch.dtype) -> None:
        panels = block_plan(device).panels
        self._whole = panels is None
        width = -(-d // STORED_PANELS) if panels is None else max(1, panels[dtype] // min(max(1, n), MAX_PANEL_DIVISOR))
        stops = [min(d, start + width) for start in range(0, d, width)]
        self._panels = [
            torch.zeros(stop, n, stop - start, dtype=torch.float64, device=device)
            for start, stop in zip(range(0, d, width), stops, strict=True)
        ]

    @property
    def dimension(self) -> int:
        """Number of rows, and of columns, of each sum."""
        return len(self._panels[-1])

    @property
    def n_numbers(self) -> int:
        """Number of values in all sums."""
        return sum(panel.numel() for panel in self._panels)

    def first(self, n: int) -> SymmetricSums:
        """Return empty sums (all 0) for only the first n products."""
        part = copy(self)
        part._panels = [torch.zeros_like(panel[:, :n]) for panel in self._panels]
        return part

    def products(self, rows: Tensor, amounts: Tensor) -> Iterator[PanelProduct]:
        """Yield upper triangles of rows^T diag(a) rows for each column a. rows: (B, d). amounts: (B, n)."""
        if self._whole:
            for number, amount in enumerate(amounts.unbind(1)):
                product = rows.T @ (rows * amount.unsqueeze(1))
                for place, panel in enumerate(self._panels):
                    stop, _, width = panel.shape
                    yield place, number, product[:stop, None, stop - width : stop]
            return
        for place, panel in enumerate(self._panels):
            stop, _, width = panel.shape
            columns = rows[:, None, stop - width : stop] * amounts.unsqueeze(2)
            yield place, 0, (rows[:, :stop].T @ columns.view(len(rows), -1)).view(stop, -1, width)

    def add(self, place: int, number: int, product: Tensor) -> None:
        """Add a part yielded by `products`. Values for sums that are not stored here are ignored."""
        columns = self._panels[place][:, number : number + product.shape[1]]
        columns += product[:, : columns.shape[1]]

    def merge(self, other: SymmetricSums) -> None:
        for panel, more in zip(self._panels, other._panels, strict=True):
            panel += more

    def matrix(self, number: int) -> Tensor:
        """Return one sum as a full (d, d) matrix."""
        d = len(self._panels[-1])
        total = self._panels[-1].new_empty(d, d)
        for panels in self._panels:
            panel = panels[:, number]
            stop, width = panel.shape
            square = panel[stop - width :]
            total[:stop, stop - width : stop] = panel
            total[stop - width : stop, :stop] = panel.T
            total[stop - width : stop, stop - width : stop] = square.triu() + square.triu(1).T
        return total


@dataclass(frozen=True)
class SweepSums:
    """Results of one pass: dot products, and the sum of w u u^T for each variant, not divided by N.

    dots            : (T,) float64 columns on the CPU, in the order of the triplets.
    record_gradient : (R,) ||sum_k a_k (n_k - p)||^2 of each (record, positive), where a_k are the softmax weights of
                      its negatives at `temperature`. This is METHOD 3's record form without 1/tau^2.
    weights         : sum of share * weight by variant, including triplets with u = 0.
    sums            : by variant, the `SymmetricSums` that contain its sum, and the number of the sum in them.
    """

    dots: Dots
    record_gradient: Floats
    weights: Mapping[Variant, float]
    n_negatives: Mapping[Variant, float]
    sums: dict[Variant, tuple[SymmetricSums, int]]

    @property
    def dimension(self) -> int:
        """Number of rows, and of columns, of a state's matrix."""
        return next(iter(self.sums.values()))[0].dimension

    def state(self, variant: Variant) -> InformationState:
        """Return the information state of one variant, on the device of the vectors."""
        sums, number = self.sums[variant]
        return InformationState(sums.matrix(number), self.n_negatives[variant])


def sweep(
    vectors: Vectors,
    triplets: Triplets,
    coverages: Mapping[str, Floats],
    variants: Sequence[Variant],
    smallest_distance: float = FLOAT32_DISTANCE,
    temperature: float = DEFAULTS.temperature,
    position: Floats | None = None,
    sums: torch.dtype = torch.float32,
) -> SweepSums:
    """Compute the dot products of all triplets, and one information sum per variant. Source: METHOD 2, 11.

    coverages   : (T,) coverage of each triplet, by the name that variants use.
    smallest_distance : maximum ||n - p|| at which n counts as equal to p. Then u = 0, s_qn = s_qp and s_pn = 1
                  exactly.
    position    : (T,) position of each triplet's query in the nested sample, in [0, 1); required for variants with a
                  sample below 1.
    sums        : number format of the products within a block. Sums over blocks are always float64. In float64, the
                  states of any parts of the records add up to the state of all records within 1e-12. In float32, only
                  the states of whole blocks do.
    Except for rounding, the result does not depend on the order of records or the block size. Without triplets all sums
    are 0. Raises NumericalError if a row is zero or not finite.
    """
    n, device = len(triplets), vectors.computes_on
    columns = [torch.zeros(n + 1, dtype=torch.float64, device=device) for _ in range(4)]
    gradient = torch.zeros(len(triplets.record_offsets) - 1, dtype=torch.float64, device=device)
    totals = _Totals(vectors, triplets, coverages, variants, position, sums)

    def one(
        listed: bool, window: Window, block: SlotBlock
    ) -> tuple[Dots, Tensor, tuple[Tensor, Iterable[PanelProduct]] | None]:
        dots, difference = _block_dots(window, block, smallest_distance)
        of_records = _record_gradient(dots, difference, block.triplet < n, block.host.k, temperature)
        usable = dots.squared_distance > smallest_distance**2
        scale = usable / torch.where(usable, dots.squared_distance, 1.0)
        return dots, of_records, totals.of_block(block, dots, difference, scale, listed) if variants else None

    several_blocks = n > block_plan(device).n_triplets  # a single block is not worth a thread pool
    with parallel_map(device, totals.block_bytes) if several_blocks else nullcontext(map) as each:
        for window in windows(vectors, triplets, triplets.record_offsets, stratum=totals.stratum):
            for block, (dots, of_records, sums_of_block) in zip(
                window.blocks, each(partial(one, each is not map, window), window.blocks), strict=True
            ):
                for column, values in zip(columns, vars(dots).values(), strict=True):
                    column.index_copy_(0, block.triplet, values)
                gradient.index_copy_(0, block.groups, of_records)
                if sums_of_block is not None:
                    totals.add(block, *sums_of_block)
                if vectors.tick is not None:
                    vectors.tick(block.host.n_triplets)
    on_host = [column[:-1].cpu() for column in columns]
    if not all(bool(torch.isfinite(column).all()) for column in on_host):
        raise NumericalError("an embedding is zero or not finite", remedy="encode again with --dtype float32")
    return SweepSums(Dots(*on_host), gradient.cpu().numpy(), *totals.of(variants))


class _Totals:
    """Sums of all variants. stratum: (R,) number of the smallest sample that contains each record's query.

    A family is the set of variants that share their products: they have the same weights, but different samples.
    """

    def __init__(
        self,
        vectors: Vectors,
        triplets: Triplets,
        coverages: Mapping[str, Floats],
        variants: Sequence[Variant],
        position: Floats | None,
        dtype: torch.dtype,
    ) -> None:
        d, n, device = vectors.dimension, len(triplets), vectors.computes_on
        share = np.ones(n) if triplets.share is None else triplets.share
        # Padding reads the extra last value, which is 0.
        self._share = torch.from_numpy(np.append(share, 0.0)).to(device)
        self._coverages = {name: torch.from_numpy(np.append(c, 0.0)).to(device) for name, c in coverages.items()}
        places = np.zeros(n + 1) if position is None else np.append(position, 0.0)
        self._samples = sorted({1.0, *(variant.sample for variant in variants if position is not None)})
        self._counts = [float(share[places[:-1] < sample].sum()) for sample in self._samples[:-1]]
        self._counts.append(triplets.n_negatives)
        last = len(self._counts) - 1
        heads = triplets.record_offsets[:-1]
        self.stratum = np.searchsorted(self._samples, places[heads], side="right").clip(max=last)
        self._equal = {
            name: next(other for other, column in coverages.items() if np.array_equal(column, values))
            for name, values in coverages.items()
        }
        families = list(dict.fromkeys(map(self._family, variants)))
        sampled = {self._family(variant) for variant in variants if variant.sample < 1.0 and last}
        self._families = sorted(families, key=lambda family: family not in sampled)
        self._sums = SymmetricSums(len(families), d, device, dtype)
        self._strata = [self._sums.first(len(sampled)) for _ in range(last)]
        self._weights = torch.zeros(len(families), 1 + last, dtype=torch.float64, device=device)
        self._dtype = dtype
        self.block_bytes = self._sums.n_numbers * dtype.itemsize

    def of_block(
        self, block: SlotBlock, dots: Dots, difference: Tensor, scale: Tensor, listed: bool
    ) -> tuple[Tensor, Iterable[PanelProduct]]:
        """Return (n,) sum of weights of each family over one block, and the block's products.

        scale  : (slots,) 1 / ||n - p||^2; 0 if u = 0.
        listed : True to compute all products now; False to compute each one when it is added.
        """
        of_gates: dict[tuple[float, str], Gates] = {}
        amounts = []
        for family in self._families:
            key = family.temperature, family.coverage
            if key not in of_gates:
                of_gates[key] = gates(dots, self._coverages[family.coverage][block.triplet], family.temperature)
            amounts.append(WEIGHT_FORMULAS[family.weight](of_gates[key], dots, family.temperature))
        amount = torch.stack(amounts, dim=1) * self._share[block.triplet].unsqueeze(1)
        scaled = (amount * scale.unsqueeze(1)).to(self._dtype)
        products = self._sums.products(difference.to(self._dtype), scaled)
        return amount.sum(0), list(products) if listed else products

    def add(self, block: SlotBlock, weights: Tensor, products: Iterable[PanelProduct]) -> None:
        stratum = int(self.stratum[block.host.groups[0]])
        self._weights[:, stratum] += weights
        within = self._strata[stratum] if stratum < len(self._strata) else None
        for part in products:
            self._sums.add(*part)
            if within is not None:
                within.add(*part)

    def of(self, variants: Sequence[Variant]) -> tuple[dict[Variant, Any], ...]:
        """Return the sums of weights, of shares and of products, by variant. Larger samples include smaller ones."""
        weights = self._weights.cumsum(1).tolist()
        for smaller, larger in pairwise(self._strata):
            larger.merge(smaller)
        number = {variant: self._families.index(self._family(variant)) for variant in variants}
        last = len(self._strata)
        place = {variant: min(int(np.searchsorted(self._samples, variant.sample)), last) for variant in variants}
        by_place = [*self._strata, self._sums]
        return (
            {variant: weights[number[variant]][at] for variant, at in place.items()},
            {variant: self._counts[at] for variant, at in place.items()},
            {variant: (by_place[at], number[variant]) for variant, at in place.items()},
        )

    def _family(self, variant: Variant) -> Variant:
        """Return the variant that represents the family: all triplets, and the first of several equal coverages."""
        return replace(variant, coverage=self._equal[variant.coverage], sample=1.0)


def _block_dots(window: Window, block: SlotBlock, smallest_distance: float) -> tuple[Dots, Tensor]:
    """Return cosines of a block in float64, and its differences n - p in float32, (slots, d).

    Rows are divided by their float64 norm, so float32 rounding of unit vectors has no effect. A zero row gives NaN.
    A copy of the positive that was encoded in another batch differs from it by rounding. The scores of such a copy are
    set to exact ties, so that rounding does not decide whether it counts as an inversion.
    """
    negatives = window.passages.index_select(0, block.negative)
    positives = window.passages.index_select(0, block.positive)
    anchors = torch.stack([window.queries.index_select(0, block.query), positives], dim=1).double()
    anchors /= torch.linalg.vector_norm(anchors, dim=2, keepdim=True)
    k, d = block.host.k, negatives.shape[1]
    wide = negatives.double()
    norms = torch.linalg.vector_norm(wide, dim=1)
    cosines = torch.bmm(anchors, wide.view(-1, k, d).transpose(1, 2)).transpose(0, 1).reshape(2, -1) / norms
    query_positive = (anchors[:, 0] * anchors[:, 1]).sum(1).repeat_interleave(k)
    query_positive = _tie(query_positive, torch.ones_like(query_positive))  # so that it is not above s_pn = 1 of a copy
    difference = (negatives.view(-1, k, d) - positives.unsqueeze(1)).view(-1, d)
    query_negative = _tie(cosines[0], query_positive)
    positive_negative = _tie(cosines[1], query_negative)
    squared = (2.0 - 2.0 * positive_negative).clamp_min(0.0)
    copy = squared <= smallest_distance**2
    squared = torch.where(copy, 0.0, squared)
    query_negative = torch.where(copy, query_positive, query_negative)
    positive_negative = torch.where(copy, 1.0, positive_negative)
    return Dots(query_positive, query_negative, positive_negative, squared), difference


def _tie(values: Tensor, others: Tensor) -> Tensor:
    """Return `values`, with values within rounding of `others` replaced by `others`, so that equal rows tie exactly."""
    return torch.where((values - others).abs() <= DOT_ROUNDING, others, values)


def _record_gradient(dots: Dots, difference: Tensor, real: Tensor, k: int, temperature: float) -> Tensor:
    """Return (r,) the squared length of each record's softmax-weighted sum of n - p. Source: METHOD 3."""
    logits = (dots.query_negative - dots.query_positive) / temperature
    logits = torch.where(real, logits, -torch.inf).view(-1, k)
    with_positive = torch.nn.functional.pad(logits, (1, 0))  # the positive's own logit is 0
    weights = torch.softmax(with_positive, dim=1)[:, 1:]
    pulled = torch.bmm(weights.to(difference.dtype).unsqueeze(1), difference.view(-1, k, difference.shape[1]))
    return (pulled.squeeze(1).double() ** 2).sum(1)
