"""Means over all pairs of two large sets of scores: softplus and its derivative, without the pairs.

For scores y_1 ... y_n the means of softplus(x - y_j) and of its derivative are smooth functions of x. They are computed
exactly at the edges of the cells that hold an x, and interpolated within a cell by the polynomial of degree 5 that has
their values and first two derivatives at both edges. Worked example: y = {0}, x = 0 gives log 2 and 1/2.
Source: METHOD 9, 10 (MW).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

CELL = 1.0 / 8.0
"""Width of a cell, in scores over the temperature. The polynomial is off by at most width^6 / 46080 times the sixth
derivative, which is below 1/2 for both functions: 4e-11."""
PRODUCTS = 1 << 18
"""Differences x - y in memory at once: 2 MB, which a CPU's cache holds."""


@dataclass(frozen=True)
class PairMeans:
    """edges : (E,) numbers of the cells' edges, rising.   table : (4, E) means of softplus and three derivatives."""

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
        mean, derivative = _hermite(t, self.table[:, left]) + _hermite(1.0 - t, self.table[:, left + 1], -1.0)
        return mean, derivative.clamp(0.0, 1.0)


def _hermite(t: Tensor, table: Tensor, sign: float = 1.0) -> Tensor:
    """(2, m) what one edge adds to both functions. t : distance from it in cells.   sign : -1 for the edge above."""
    value, slope, bend = table[:2], sign * CELL * table[1:3], CELL**2 * table[2:]
    rest = (1.0 - t) ** 3
    return rest * ((1.0 + 3.0 * t + 6.0 * t**2) * value + (t + 3.0 * t**2) * slope + 0.5 * t**2 * bend)


def _means(points: Tensor, y: Tensor) -> Tensor:
    gap = points.unsqueeze(1) - y
    chance = torch.sigmoid(gap)
    slope = chance * torch.sigmoid(-gap)
    return torch.stack([values.mean(1) for values in (softplus(gap), chance, slope, slope * (1.0 - 2.0 * chance))])
