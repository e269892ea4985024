"""Budgets at which sources of equal size change places."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, log10

import numpy as np

from secid.arrays import Floats
from secid.measure.information import spectral_nats
from secid.results import Crossing
from secid.triplets.measured import Measured

STEPS_PER_DECADE = 50
"""Of the budgets between which curves are searched for crossings: two within a factor of 1.05 may cancel out."""
LEVEL_FRACTION = 1e-6
"""Curves nearer than METHOD 11's precision are level: the same source read in another order crosses itself nowhere."""


def crossings(items: Sequence[Measured], largest: float) -> tuple[Crossing, ...]:
    """Budgets from 1 to the largest at which two sources of equal size change places, every time. Source: METHOD 7."""
    result = []
    grid = np.geomspace(1.0, largest, 1 + ceil(STEPS_PER_DECADE * log10(largest)))
    curves = np.array([[item.nats(budget) for budget in grid.tolist()] for item in items])
    for place, (first, curve) in enumerate(zip(items, curves, strict=True)):
        gaps = curve - curves[place + 1 :]
        signs = np.where(np.abs(gaps) > LEVEL_FRACTION * curve, np.sign(gaps), 0)
        crossed = np.flatnonzero((signs > 0).any(axis=1) & (signs < 0).any(axis=1))
        for other in crossed.tolist():
            second, sign = items[place + 1 + other], signs[other]
            for low, high in pairwise(np.flatnonzero(sign)):
                if sign[low] != sign[high]:
                    ahead, behind = (first, second) if sign[low] > 0 else (second, first)
                    budget = _root(first.eigenvalues, second.eigenvalues, float(grid[low]), float(grid[high]))
                    result.append(Crossing(first=ahead.name, second=behind.name, budget=budget))
    return tuple(sorted(result, key=lambda crossing: crossing.budget))


def _gap(a: Floats, b: Floats, budget: float) -> float:
    return spectral_nats(a, budget) - spectral_nats(b, budget)


def _root(a: Floats, b: Floats, low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(np.exp(brentq(lambda log_budget: _gap(a, b, float(np.exp(log_budget))), np.log(low), np.log(high))))
