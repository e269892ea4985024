"""95 % intervals, in a single look and in repeated looks at growing samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from math import inf, isfinite, sqrt

import numpy as np
import numpy.typing as npt

from secid.arrays import Floats

# 95 % intervals and differences, for reports, gates and the limits that are derived from a baseline.

FEWEST_QUERIES = 5
"""Fewest queries for an interval. Influences add up to zero, so a single query always has a standard error of 0.
Intervals were tested from 40 queries."""
ROUNDING_NATS = 1e-6
"""Differences up to this size count as 0: scores are at most 1 at B = 1 and correct to 1e-6 relative (METHOD 11)."""
UNBOUNDED = (-inf, inf)


def reach_95(n_queries: int) -> float:
    """Return the half-width of a 95 % interval in standard errors: Student's t, for the mean of n >= 2 observations.

    The clustered standard error divides by n, Student's by n - 1. Both steps turn 1.96 into 1.99 with 100 queries, and
    into 3.10 with 5. For a difference n is the number of queries of the side with fewer. Source: METHOD 8.
    """
    from scipy.special import stdtrit  # imported here, since commands that only read texts do not need scipy

    return float(stdtrit(n_queries - 1, 0.975) * (n_queries / (n_queries - 1)) ** 0.5)


def interval(
    value: float, standard_error: float, n_queries: int, limits: tuple[float, float] = UNBOUNDED
) -> tuple[float, float]:
    """Return the 95 % interval of a mean, a difference or a ratio: value ± Student's t times its standard error.

    n_queries : distinct queries; for a difference those of the side with fewer.
    limits    : the smallest and the largest possible value. With fewer than FEWEST_QUERIES queries they are the
                interval; by default that is infinite, which JSON cannot hold. Source: METHOD 8.
    """
    low, high = limits
    if n_queries < FEWEST_QUERIES:
        return low, high
    half = reach_95(n_queries) * standard_error
    return max(value - half, low), min(value + half, high)  # this order keeps NaN


def finite_interval(ends: tuple[float, float]) -> tuple[float, float] | None:
    """Return an interval for JSON; None if it is infinite because of too few queries."""
    return ends if all(map(isfinite, ends)) else None


@dataclass(frozen=True)
class Difference:
    """A difference of two numbers, of sources or of sides of one source, with its clustered standard error.

    n_queries : distinct queries of the side with fewer.
    n_shared  : queries by which the sides are paired; 0 if they count as independent.
    """

    value: float
    standard_error: float
    n_queries: int
    n_shared: int = 0

    def negated(self) -> Difference:
        """Return the opposite difference, the second minus the first."""
        return replace(self, value=-self.value)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval; infinite with too few queries."""
        return interval(self.value, self.standard_error, self.n_queries)

    def interval_within(self, limit: float) -> tuple[float, float]:
        """Return the 95 % interval of a difference that lies in ±limit; this whole range with too few queries."""
        return interval(self.value, self.standard_error, self.n_queries, (-limit, limit))

    @property
    def z(self) -> float | None:
        """Difference in standard errors; None if it supports no conclusion.

        That is so if the numbers differ only by rounding (such as the same triplets in another order), if a side has
        too few queries for a meaningful standard error, or if the standard error is 0.
        """
        if abs(self.value) <= ROUNDING_NATS or self.n_queries < FEWEST_QUERIES or self.standard_error <= 0:
            return None
        return self.value / self.standard_error

    def p(self) -> float:
        """Return the two-sided p by Student's t with n_queries - 1 degrees, in [0, 1]; 1.0 if z is None."""
        from scipy.special import stdtr

        if self.z is None:
            return 1.0
        return float(2.0 * stdtr(self.n_queries - 1, -abs(self.z) * sqrt(1.0 - 1.0 / self.n_queries)))


# Evidence that each look needs if growing samples are tested several times (METHOD 8).
#
# An estimate from nested samples moves like Brownian motion in information time, 1 / variance. That gives the
# probability that it leaves a band at any look although there is no difference. The band follows from the error
# that may be spent: more than half of it at the first look, the rest at one nominal level for all others.

LARGEST_GROUP = 10
"""Largest group of sources joined by open pairs that is counted exactly, in 3^n steps. In larger groups all pairs
count."""
FIRST_SHARE = 0.6
"""Share of the error that is spent at the first look. Of 0.4 to 0.9 it needed the fewest queries on average."""
NODES = 101
"""Gauss-Legendre nodes of each look's density. They reproduce all digits of Pocock's published constants."""


def information_times(sizes: npt.ArrayLike, population: npt.ArrayLike) -> Floats:
    """Return 1 / variance of the mean of a sample drawn without replacement, in units of 1 / one query's variance.

    sizes : queries of each look, rising, below `population`; (L,), or (L, S) for S populations.
    Source: METHOD 8, finite-population factor.
    """
    n = np.asarray(sizes, np.float64)
    return np.asarray(n / (1.0 - n / np.asarray(population)))


def error_spent(times: Floats, levels: npt.ArrayLike) -> Floats:
    """Return (L,) the probability, without any difference, of p <= its level at that look or an earlier one.

    times : information times of the looks, rising.   levels : (L,) two-sided, or one for all.   Source: METHOD 8.
    """
    from scipy.special import ndtri

    edges = np.broadcast_to(-ndtri(np.asarray(levels) / 2.0), len(times))
    nodes, masses = np.polynomial.legendre.leggauss(NODES)
    inside = []
    points, density = np.zeros(1), np.ones(1)
    before = 0.0
    for now, edge in zip(times, edges, strict=True):
        half = edge * np.sqrt(now)
        places, widths = nodes * half, masses * half
        density = _normal_density(places[:, None] - points[None, :], now - before) @ density
        density *= widths  # mass at each node, so that the next step is a plain sum
        points, before = places, now
        inside.append(density.sum())
    return 1.0 - np.array(inside)


def levels_of_looks(times: Floats, alpha: float) -> Floats:
    """Return (L,) the two-sided nominal p of each look, so that all looks together err with probability alpha.

    The first look spends FIRST_SHARE of alpha; the others share one level.
    times : (L,) as in `error_spent`, at least one.   alpha : in (0, 1).
    """
    if len(times) == 1:
        return np.array([alpha])
    from scipy.optimize import brentq

    first, others = FIRST_SHARE * alpha, np.arange(len(times)) > 0

    def excess(level: float) -> float:
        return float(error_spent(times, np.where(others, level, first))[-1]) - alpha

    # Lower end: the looks split the rest evenly. Upper end: one look could spend all of alpha.
    level = brentq(excess, (alpha - first) / (len(times) - 1), alpha, xtol=1e-12)
    return np.where(others, level, first)


def most_equal(open_pairs: Iterable[tuple[str, str]]) -> int:
    """Return the largest number of open pairs that can all be equal while all other pairs differ.

    Equality is transitive: if a and c differ, b equals at most one of them. So each open pair may use the
    error divided by this number, which is at most the number of open pairs (Holm's). It is at least 1 with any open
    pair, and 0 without one. Source: METHOD 8.
    """
    partners: dict[str, set[str]] = {}
    for first, second in open_pairs:
        partners.setdefault(first, set()).add(second)
        partners.setdefault(second, set()).add(first)
    return sum(_most_within(partners, group) for group in _groups(partners))


def _groups(partners: dict[str, set[str]]) -> list[frozenset[str]]:
    """Return the groups of sources that open pairs join, directly or through others. partners: open pairs by source."""
    left, groups = set(partners), []
    while left:
        group, edge = set(), {left.pop()}
        while edge:
            group |= edge
            edge = set().union(*(partners[name] for name in edge)) - group
        left -= group
        groups.append(frozenset(group))
    return groups


def _most_within(partners: dict[str, set[str]], group: frozenset[str]) -> int:
    """Return the most pairs within sets, over all partitions of a group into sets of equal sources.

    For more than LARGEST_GROUP sources it is the number of open pairs.
    """
    if len(group) > LARGEST_GROUP:
        return sum(len(partners[name]) for name in group) // 2

    @cache
    def best(left: frozenset[str]) -> int:
        if not left:
            return 0
        first = min(left)
        return max(
            len(chosen) * (len(chosen) - 1) // 2 + best(left - chosen)
            for chosen in _cliques(partners, frozenset({first}), frozenset(partners[first] & left))
        )

    return best(group)


def _cliques(partners: dict[str, set[str]], chosen: frozenset[str], others: frozenset[str]) -> Iterable[frozenset[str]]:
    """Yield every set of `chosen` and some of the others in which all pairs are open."""
    yield chosen
    for name in sorted(others):
        others -= {name}
        yield from _cliques(partners, chosen | {name}, others & partners[name])


def _normal_density(values: Floats, variance: float) -> Floats:
    """Return the density of a normal of mean 0. scipy.stats has it too, but takes half a second to import."""
    return np.asarray(np.exp(-(values**2) / (2.0 * variance)) / np.sqrt(2.0 * np.pi * variance))
