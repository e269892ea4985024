"""Means over all pairs of two large sets of scores: softplus and its derivative, without the pairs.

For scores y_1 ... y_n the means of softplus(x - y_j) and of its derivative are smooth functions of x. They are computed
exactly at the edges of the cells that hold an x, and interpolated within a cell by the cubic that has their values and
slopes at both edges. Worked example: y = {0}, x = 0 gives log 2 and 1/2. Source: METHOD 9, 10 (MW).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

CELL = 1.0 / 64.0
"""Width of a cell, in scores over the temperature. A cubic is off by at most width^4 / 384 times the fourth derivative,
which is below 1/4 for both functions: 4e-11."""
PRODUCTS = 1 << 22
"""Differences x - y in memory at once: 32 MB."""


@dataclass(frozen=True)
class PairMeans:
    """edges : (E,) numbers of the cells' edges, rising.   table : (3, E) means of softplus and its two derivatives."""

    edges: Tensor
    table: Tensor

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> PairMeans:
        """Means over y, (n,), for the cells of x, (m,); both float64 and of one device."""
        cells = torch.unique(torch.floor(x / CELL).long())
        edges = torch.unique(torch.cat([cells, cells + 1]))
        points = edges.double() * CELL
        width = max(1, PRODUCTS // len(y))
        return cls(edges, torch.cat([_means(part, y) for part in points.split(width)], dim=1))

    def at(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means of softplus(x - y) and of sigmoid(x - y), (m,) each, for x within the cells."""
        cells = torch.floor(x / CELL)
        left = torch.searchsorted(self.edges, cells.long())
        t = x / CELL - cells
        low, high = self.table[:, left], self.table[:, left + 1]
        value, slope = low[:2], CELL * low[1:]
        next_value, next_slope = high[:2], CELL * high[1:]
        mean, derivative = (
            (1 + 2 * t) * (1 - t) ** 2 * value
            + t * (1 - t) ** 2 * slope
            + t**2 * (3 - 2 * t) * next_value
            + t**2 * (t - 1) * next_slope
        )
        return mean, derivative.clamp(0.0, 1.0)


def _means(points: Tensor, y: Tensor) -> Tensor:
    gap = points.unsqueeze(1) - y
    chance = torch.sigmoid(gap)
    return torch.stack([softplus(gap).mean(1), chance.mean(1), (chance * torch.sigmoid(-gap)).mean(1)])
