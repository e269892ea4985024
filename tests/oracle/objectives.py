"""Reference for METHOD 9: each objective's loss from its definition, record by record in double loops of torch scalars.

Autograd gives the gradients, and numpy the sums over a source.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Record:
    """Cosines of one record. scored : weight of each positive under SingleLH.   masked : negatives that GIST drops."""

    positives: list[float]
    negatives: list[float]
    scored: list[float]
    masked: list[bool]


def _log1p_sum(terms: Sequence[Tensor]) -> Tensor:
    """log(1 + sum exp)."""
    return torch.logsumexp(torch.stack([torch.zeros((), dtype=torch.float64), *terms]), dim=0)


def _log_p(of: Tensor, others: Sequence[Tensor]) -> Tensor:
    return of - torch.logsumexp(torch.stack([of, *others]), dim=0)


def record_loss(name: str, p: Sequence[Tensor], n: Sequence[Tensor], record: Record) -> Tensor:
    """Return the loss of one record. p, n : scores divided by the temperature, as scalars with gradients."""
    if name in ("single_lh", "rand1_lh", "gist"):
        weights = [1 / len(p)] * len(p) if name == "rand1_lh" else record.scored
        left = [s for s, out in zip(n, record.masked, strict=True) if not (out and name == "gist")]
        return torch.stack([-a * _log_p(s, left) for a, s in zip(weights, p, strict=True)]).sum()
    if name == "joint_lh":
        return torch.stack([-_log_p(s, [*p[:i], *p[i + 1 :], *n]) / len(p) for i, s in enumerate(p)]).sum()
    if name == "sum_marg_lh":
        return -torch.stack([_log_p(s, [*p[:i], *p[i + 1 :], *n]) for i, s in enumerate(p)]).exp().sum().log()
    if "max_p" in name:
        p = [max(p, key=Tensor.detach)]
    if "min_p" in name:
        p = [min(p, key=Tensor.detach)]
    if "max_n" in name:
        n = [max(n, key=Tensor.detach)]
    return _log1p_sum([k - j for j in p for k in n])


def mw_loss(p: Sequence[Tensor], n: Sequence[Tensor]) -> Tensor:
    """Return the mean over all pairs of all queries."""
    return torch.stack([torch.nn.functional.softplus(k - j) for j in p for k in n]).mean()


def losses_and_gradients(
    name: str, records: Sequence[Record], temperature: float
) -> tuple[list[float], list[list[float]], list[list[float]]]:
    """Return the loss of each record (for MW one loss), and d loss / d s of each positive and negative, by record."""
    leaves = [
        [
            [torch.tensor(s / temperature, dtype=torch.float64, requires_grad=True) for s in side]
            for side in (record.positives, record.negatives)
        ]
        for record in records
    ]
    if name == "mw":
        losses = [mw_loss([s for p, _ in leaves for s in p], [s for _, n in leaves for s in n])]
    else:
        losses = [record_loss(name, p, n, record) for (p, n), record in zip(leaves, records, strict=True)]
    torch.stack(losses).sum().backward()

    def slopes(side: list[Tensor]) -> list[float]:
        return [0.0 if s.grad is None else float(s.grad) for s in side]

    return [float(loss.detach()) for loss in losses], [slopes(p) for p, _ in leaves], [slopes(n) for _, n in leaves]


def values(
    name: str, records: Sequence[Record], temperature: float, inside: Sequence[Sequence[bool]]
) -> tuple[float, float, float, float, float]:
    """Return the mean loss, the share of the negatives' gradient on those `inside`, their effective number, and the
    shares of the positives' gradient on the strongest and the weakest positive of records with several.
    """
    losses, positive, negative = losses_and_gradients(name, records, temperature)
    total = math.fsum(g for row in negative for g in row)
    on = math.fsum(g for row, flags in zip(negative, inside, strict=True) for g, f in zip(row, flags, strict=True) if f)
    entropy = -math.fsum(g / total * math.log(g / total) for row in negative for g in row if g > 0)
    ends = np.zeros(3)
    for record, row in zip(records, positive, strict=True):
        if len(row) > 1:
            order = sorted(range(len(row)), key=lambda i: record.positives[i])
            ends += [sum(map(abs, row)), abs(row[order[-1]]), abs(row[order[0]])]
    return float(np.mean(losses)), on / total, math.exp(entropy), float(ends[1] / ends[0]), float(ends[2] / ends[0])
