"""Losses and gradients of training objectives on frozen scores, in closed form.

A score s is a dot product divided by the temperature. Every objective gives a loss and its derivative with respect to
each s. The gradient of a record's negatives is one number times their softmax (or maximum) weights, so the cost of a
record grows with its number of passages, not of pairs. Only MW compares passages of different queries. Worked example:
one positive and one negative with equal scores have a loss of log 2 under each objective, with gradients -1/2 and +1/2.
Source: METHOD 9.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from secid.arrays import Flags, Floats, Index
from secid.measure.separation import PairMeans

BLOCK_PASSAGES = 1 << 20
"""Maximum passages in memory at once: 8 MB per column."""


@dataclass(frozen=True)
class Records:
    """Cosines of R queries with the passages of their records.

    positive : (P,) cosines with positives, at least one per record. Record r has positive_offsets[r] up to, but not
               including, positive_offsets[r + 1].
    negative : (N,) cosines with negatives; negative_offsets has the same form.
    scored   : (P,) weight of each positive under SingleLH; the weights of a record add up to 1.
    masked   : (N,) flags of negatives that GIST leaves out; None without a guide.
    """

    positive: Floats
    positive_offsets: Index
    negative: Floats
    negative_offsets: Index
    scored: Floats
    masked: Flags | None = None


@dataclass(frozen=True)
class BatchScores:
    """A block of n records on a device.

    positive, negative : (P,) and (N,) float64 dot products divided by the temperature.
    of_positive, of_negative : (P,) and (N,) record of each passage, from 0.   scored, masked : as in `Records`.
    """

    positive: Tensor
    negative: Tensor
    of_positive: Tensor
    of_negative: Tensor
    scored: Tensor
    masked: Tensor | None
    n: int


@dataclass(frozen=True)
class Gradient:
    """Loss and gradient of one objective.

    loss     : (R,) loss of each record in nats.
    positive : (P,) d loss / d s of each positive, <= 0 except for JointLH.
    negative : (N,) d loss / d s of each negative, >= 0.
    """

    loss: Tensor
    positive: Tensor
    negative: Tensor


@dataclass(frozen=True)
class ObjectiveValues:
    """Loss of one objective on a source, and the distribution of its gradient.

    loss_nats : mean loss over records; for MW over pairs.
    shares    : share of the negatives' gradient in each class of negatives; None if the gradient is 0.
    effective_negatives : exp of the entropy of the negatives' gradient, 1 to N; None if the gradient is 0.
    strongest, weakest  : share of the positives' absolute gradient on each record's highest-scored and lowest-scored
                          positive, over records with two or more positives; None without such records.
    """

    loss_nats: float
    shares: Mapping[str, float | None]
    effective_negatives: float | None
    strongest: float | None
    weakest: float | None


Pooled = tuple[Tensor, Tensor]
"""A value per record, and its derivative for each passage: weights >= 0 that add up to 1 within a record."""


def _soft(values: Tensor, record: Tensor, n: int) -> Pooled:
    """Return log sum exp of each record's values, and their softmax, which is 0 if all the record's values are -inf."""
    top = values.new_full((n,), -torch.inf).scatter_reduce(0, record, values, "amax")
    shift = torch.where(top > -torch.inf, top, 0.0)
    exponents = torch.exp(values - shift[record])
    total = values.new_zeros(n).index_add(0, record, exponents)
    return total.log() + shift, exponents / torch.where(total > 0, total, 1.0)[record]


def _hard(values: Tensor, record: Tensor, n: int) -> Pooled:
    """Return the maximum of each record's values, and the weight of each value: tied maxima share a weight of 1."""
    top = values.new_full((n,), -torch.inf).scatter_reduce(0, record, values, "amax")
    best = (values == top[record]).to(values.dtype)
    return top, best / values.new_zeros(n).index_add(0, record, best)[record]


def _sum(values: Tensor, record: Tensor, n: int) -> Tensor:
    return values.new_zeros(n).index_add(0, record, values)


def _likelihood(scores: BatchScores, weights: Tensor, negative: Tensor) -> Gradient:
    """Return the mean of -log P of a record's positives against its negatives. weights: (P,) weights of the mean."""
    size, softmax = _soft(negative, scores.of_negative, scores.n)
    odds = size[scores.of_positive] - scores.positive
    missing = weights * torch.sigmoid(odds)
    loss = _sum(weights * softplus(odds), scores.of_positive, scores.n)
    return Gradient(loss, -missing, softmax * _sum(missing, scores.of_positive, scores.n)[scores.of_negative])


def _uniform(scores: BatchScores) -> Tensor:
    """Return (P,) weights: 1 / (number of positives in the record)."""
    ones = torch.ones_like(scores.positive)
    return ones / _sum(ones, scores.of_positive, scores.n)[scores.of_positive]


def _gist(scores: BatchScores) -> Gradient:
    masked = torch.zeros_like(scores.negative, dtype=torch.bool) if scores.masked is None else scores.masked
    return _likelihood(scores, scores.scored, torch.where(masked, -torch.inf, scores.negative))


def _joint(scores: BatchScores) -> Gradient:
    of, even = scores.of_positive, _uniform(scores)
    summed = _pairs(scores, "any", "all")
    size = torch.logaddexp(
        _soft(scores.positive, of, scores.n)[0], _soft(scores.negative, scores.of_negative, scores.n)[0]
    )
    loss = size - _sum(even * scores.positive, of, scores.n)
    return Gradient(loss, torch.exp(scores.positive - size[of]) - even, summed.negative)


def _pairs(scores: BatchScores, positives: str, negatives: str) -> Gradient:
    """Return LSEPair, or a variant of it that uses only some passages of each record.

    positives : "all", only the "best" or only the "worst"; "any" sums the likelihood over positives (SumMargLH).
    negatives : "all", or only the "best".
    """
    pool, sign = {"all": (_soft, -1.0), "worst": (_hard, -1.0), "any": (_soft, 1.0), "best": (_hard, 1.0)}[positives]
    size, weights = pool(sign * scores.positive, scores.of_positive, scores.n)
    of_negatives, softmax = (_soft if negatives == "all" else _hard)(scores.negative, scores.of_negative, scores.n)
    odds = of_negatives - sign * size
    missing = torch.sigmoid(odds)  # 1 - 1 / omega, 1 - Z+ / Z
    return Gradient(softplus(odds), -weights * missing[scores.of_positive], softmax * missing[scores.of_negative])


CLOSED_FORMS: Mapping[str, Callable[[BatchScores], Gradient]] = {
    "single_lh": lambda scores: _likelihood(scores, scores.scored, scores.negative),
    "rand1_lh": lambda scores: _likelihood(scores, _uniform(scores), scores.negative),
    "joint_lh": _joint,
    "sum_marg_lh": partial(_pairs, positives="any", negatives="all"),
    "lse_pair": partial(_pairs, positives="all", negatives="all"),
    "lse_pair_max_p": partial(_pairs, positives="best", negatives="all"),
    "lse_pair_max_n": partial(_pairs, positives="all", negatives="best"),
    "lse_pair_min_p": partial(_pairs, positives="worst", negatives="all"),
    "lse_pair_min_p_max_n": partial(_pairs, positives="worst", negatives="best"),
    "gist": _gist,
}
"""Objectives that use one record at a time, by name. Each gives the loss of every record, and its gradient."""
MW = "mw"
OBJECTIVES = (*list(CLOSED_FORMS)[:-1], MW, "gist")
"""All objectives, in the order of METHOD 9."""
MULTI_POSITIVE = frozenset(
    {"rand1_lh", "joint_lh", "sum_marg_lh", "lse_pair", "lse_pair_max_p", "lse_pair_min_p", "lse_pair_min_p_max_n"}
)
"""Objectives that differ only for records with several positives. With one positive per record they equal `single_lh`,
except that `lse_pair_min_p_max_n` equals `lse_pair_max_n`."""


def all_pairs(positive: Tensor, negative: Tensor) -> Callable[[BatchScores], Gradient]:
    """Return a function from a block of records to their part of MW.

    MW is a mean over all pairs of a source. The loss of a pair belongs to the record of its negative.
    positive, negative : (P,) and (N,) scores of the whole source, divided by the temperature.
    """
    of_negatives, of_positives = PairMeans.of(negative, positive), PairMeans.of(-positive, -negative)

    def form(scores: BatchScores) -> Gradient:
        loss, pull = of_negatives.at(scores.negative)
        _, push = of_positives.at(-scores.positive)
        by_record = _sum(loss / len(negative), scores.of_negative, scores.n)
        return Gradient(by_record, -push / len(positive), pull / len(negative))

    return form


class _Sums:
    """Sums of one objective over blocks, on the device. classes: number of classes of negatives."""

    def __init__(self, classes: int, device: torch.device) -> None:
        self._loss, self._entropy = torch.zeros((), device=device).double(), torch.zeros((), device=device).double()
        self._negative = torch.zeros(1 + classes, dtype=torch.float64, device=device)
        self._positive = torch.zeros(3, dtype=torch.float64, device=device)

    def add(self, gradient: Gradient, classes: Tensor, ends: Tensor) -> None:
        """Add a block.

        classes : (1 + C, N) a row of ones, then one row of flags per class.
        ends    : (3, P) rows of `_ends`.
        """
        self._loss += gradient.loss.sum()
        self._negative += classes @ gradient.negative
        self._entropy += torch.special.entr(gradient.negative).sum()
        self._positive += ends @ gradient.positive.abs()

    def values(self, names: Collection[str], n: int) -> ObjectiveValues:
        """Return the values of the objective. names: names of the classes.   n: divisor of the loss."""
        total, *by_class = self._negative.tolist()
        every, strongest, weakest = self._positive.tolist()
        effective = float(np.exp(np.log(total) + self._entropy.item() / total)) if total > 0 else None
        return ObjectiveValues(
            loss_nats=self._loss.item() / n,
            shares={name: _share(mass, total) for name, mass in zip(names, by_class, strict=True)},
            effective_negatives=effective,
            strongest=_share(strongest, every),
            weakest=_share(weakest, every),
        )


def _share(part: float, total: float) -> float | None:
    """Return part / total, rounded to 12 digits; None for a total of 0.

    Without rounding, sums of the same numbers in another order could give 0.9999999999999998 instead of 1.
    """
    return round(part / total, 12) if total > 0 else None


def objective_values(
    records: Records,
    classes: Mapping[str, Flags],
    temperature: float,
    device: torch.device,
    names: Collection[str] = OBJECTIVES,
) -> dict[str, ObjectiveValues]:
    """Return the values of the named objectives on a source with at least one record. Source: METHOD 9.

    classes : (N,) flags of the negatives in each class, by the name of the class; classes may overlap.
    Records are processed in blocks, and the loop over blocks does not wait for the device.
    """
    sums = {name: _Sums(len(classes), device) for name in names}
    forms = dict(CLOSED_FORMS)
    if MW in sums:
        whole = (torch.from_numpy(side / temperature).to(device) for side in (records.positive, records.negative))
        forms[MW] = all_pairs(*whole)
    flags = np.stack([np.ones(len(records.negative)), *classes.values()]).astype(np.float64)
    for scores, of_class in _blocks(records, flags, temperature, device):
        ends = _ends(scores)
        for name, total in sums.items():
            total.add(forms[name](scores), of_class, ends)
    n_records = len(records.positive_offsets) - 1
    return {name: total.values(classes, 1 if name == MW else n_records) for name, total in sums.items()}


def _ends(scores: BatchScores) -> Tensor:
    """Return (3, P) weights that select all, the strongest and the weakest positives; 0 if a record has only one."""
    several = (_uniform(scores) < 1.0).double()
    strongest, weakest = (_hard(sign * scores.positive, scores.of_positive, scores.n)[1] for sign in (1.0, -1.0))
    return torch.stack([several, several * strongest, several * weakest])


def _blocks(
    records: Records, flags: Floats, temperature: float, device: torch.device
) -> Iterator[tuple[BatchScores, Tensor]]:
    """Yield blocks of whole records with (1 + C, N) flags of their negatives: up to BLOCK_PASSAGES, or one record."""
    starts, ends = records.positive_offsets, records.negative_offsets
    passages = starts + ends
    first, last = 0, len(starts) - 1
    while first < last:
        stop = max(first + 1, int(np.searchsorted(passages, passages[first] + BLOCK_PASSAGES, side="right")) - 1)
        rows = slice(starts[first], starts[stop]), slice(ends[first], ends[stop])
        number = np.arange(stop - first)
        of = [np.repeat(number, np.diff(offsets[first : stop + 1])) for offsets in (starts, ends)]
        masked = None if records.masked is None else torch.from_numpy(records.masked[rows[1]]).to(device)
        yield (
            BatchScores(
                torch.from_numpy(records.positive[rows[0]] / temperature).to(device),
                torch.from_numpy(records.negative[rows[1]] / temperature).to(device),
                torch.from_numpy(of[0]).to(device),
                torch.from_numpy(of[1]).to(device),
                torch.from_numpy(records.scored[rows[0]]).to(device),
                masked,
                stop - first,
            ),
            torch.from_numpy(flags[:, rows[1]]).to(device),
        )
        first = stop
