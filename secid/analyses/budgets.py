"""Budgets at which two sources of equal size change places in the ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log10
from typing import TYPE_CHECKING

import numpy as np

from secid.analyses.analysis import Analysis, AnalysisResult, Context
from secid.arrays import Floats

if TYPE_CHECKING:
    from secid.triplets.measure_set import Measured

STEPS_PER_DECADE = 50
"""Number of budgets per decade at which curves are compared. Two crossings within a factor of 1.05 may be missed."""
EQUAL_CURVES_FRACTION = 1e-6
"""Relative gap up to which two curves count as equal: the precision of METHOD 11. Without it, the curves of two copies
of a source could cross because of rounding."""
NOT_EQUAL_SIZE, OTHER_QUERIES = "not_equal_size", "other_queries"
"""Reasons why budget curves are not compared. Source: METHOD 7, 16.1."""


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """Budget above which `second` scores higher than `first`, with equal numbers of queries and negatives."""

    first: str
    second: str
    budget: float


@dataclass(frozen=True, kw_only=True)
class EqualNumbers:
    """Number of distinct queries, and number of negatives, that every source is cut to. Source: METHOD 7."""

    n_queries: int
    n_triplets: int


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """Crossings of budget curves.

    equal_numbers : size that sources are cut to for budgets beyond 1; None if no source is cut, or none can be cut.
    """

    crossings: tuple[Crossing, ...]
    equal_numbers: EqualNumbers | None


def compute(context: Context) -> AnalysisResult[Budgets]:
    """Return the size that sources are cut to, and the budgets at which their curves cross."""
    from secid.analyses.shared_queries import same_queries

    numbers = equal_numbers(context.items, context.equal_size)
    missing = (
        NOT_EQUAL_SIZE if context.equal_size is None else "" if same_queries(context.equal_size) else OTHER_QUERIES
    )
    crossed: tuple[Crossing, ...] = ()
    if context.equal_size and not missing:
        crossed = crossings(
            context.equal_size, max(budget for item in context.equal_size for budget in item.influence.budgets)
        )
    return AnalysisResult(Budgets(crossings=crossed, equal_numbers=numbers), {"crossings": missing} if missing else {})


def equal_numbers(items: Sequence[Measured], equal_size: Sequence[Measured] | None) -> EqualNumbers | None:
    """Return the size that sources are cut to; None if no source is cut, or none can be cut."""
    if equal_size is None or all(cut is item for cut, item in zip(equal_size, items, strict=True)):
        return None
    return EqualNumbers(n_queries=len(equal_size[0].influence.queries), n_triplets=len(equal_size[0].triplets))


def crossings(items: Sequence[Measured], largest: float) -> tuple[Crossing, ...]:
    """Return every budget from 1 to `largest` at which two sources of equal size change places. Source: METHOD 7."""
    result = []
    grid = np.geomspace(1.0, largest, 1 + ceil(STEPS_PER_DECADE * log10(largest)))
    curves = np.array([[item.nats(budget) for budget in grid.tolist()] for item in items])
    for place, (first, curve) in enumerate(zip(items, curves, strict=True)):
        gaps = curve - curves[place + 1 :]
        signs = np.where(np.abs(gaps) > EQUAL_CURVES_FRACTION * curve, np.sign(gaps), 0)
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
    from secid.measure.information import spectral_nats

    return spectral_nats(a, budget) - spectral_nats(b, budget)


def _root(a: Floats, b: Floats, low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(np.exp(brentq(lambda log_budget: _gap(a, b, float(np.exp(log_budget))), np.log(low), np.log(high))))


BUDGETS = Analysis("budgets", Budgets, compute)
