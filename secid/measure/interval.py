"""95 % intervals, and significance levels for repeated tests on growing samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from math import inf, isfinite, sqrt

import numpy as np
import numpy.typing as npt

from secid.arrays import Floats

# 95 % intervals and differences, for reports, gates and limits derived from a baseline.

MIN_QUERIES = 5
"""Minimum number of queries for an interval. Influences add up to 0, so the standard error of a single query is always
0. Intervals were tested with 40 queries or more."""
ROUNDING_NATS = 1e-6
"""Differences up to this size count as 0. At B = 1 scores are at most 1, with a relative error of 1e-6 (METHOD 11)."""
UNBOUNDED = (-inf, inf)


def reach_95(n_queries: int) -> float:
    """Return the half-width of a 95 % interval in standard errors, by Student's t. n_queries: n, at least 2.

    The factor sqrt(n / (n - 1)) corrects the clustered standard error, which divides by n instead of n - 1. The
    half-width is 1.99 with 100 queries and 3.10 with 5, where a normal distribution gives 1.96.
    For a difference, n is the number of queries on the side with fewer. Source: METHOD 8.
    """
    from scipy.special import stdtrit  # imported here because commands that only read texts do not need scipy

    return float(stdtrit(n_queries - 1, 0.975) * (n_queries / (n_queries - 1)) ** 0.5)


def interval(
    value: float, standard_error: float, n_queries: int, limits: tuple[float, float] = UNBOUNDED
) -> tuple[float, float]:
    """Return the 95 % interval of a mean, a difference or a ratio: value ± `reach_95` standard errors.

    n_queries : number of distinct queries; for a difference, of the side with fewer.
    limits    : minimum and maximum possible value, by default infinite. With fewer than MIN_QUERIES queries, they are
                returned as the interval. JSON cannot hold an infinite interval. Source: METHOD 8.
    """
    low, high = limits
    if n_queries < MIN_QUERIES:
        return low, high
    half = reach_95(n_queries) * standard_error
    return max(value - half, low), min(value + half, high)  # this order keeps NaN


def finite_interval(ends: tuple[float, float]) -> tuple[float, float] | None:
    """Return an interval for JSON; None for the infinite interval of too few queries."""
    return ends if all(map(isfinite, ends)) else None


@dataclass(frozen=True)
class Difference:
    """Difference between two sources, or between two sides of one source, with its clustered standard error.

    n_queries : number of distinct queries on the side with fewer.
    n_shared  : number of queries that both sides share, which pair them; 0 if the sides count as independent.
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
        """Return the 95 % interval of a difference between -limit and limit, or that range with too few queries."""
        return interval(self.value, self.standard_error, self.n_queries, (-limit, limit))

    @property
    def z(self) -> float | None:
        """Difference in units of its standard error; None if the difference supports no conclusion.

        It supports none if it is within rounding (for example, between two orders of the same triplets), if a side has
        too few queries for a meaningful standard error, or if the standard error is 0.
        """
        if abs(self.value) <= ROUNDING_NATS or self.n_queries < MIN_QUERIES or self.standard_error <= 0:
            return None
        return self.value / self.standard_error

    def p(self) -> float:
        """Return the two-sided p value by Student's t with n_queries - 1 degrees of freedom; 1.0 if z is None."""
        from scipy.special import stdtr

        if self.z is None:
            return 1.0
        return float(2.0 * stdtr(self.n_queries - 1, -abs(self.z) * sqrt(1.0 - 1.0 / self.n_queries)))


# Significance levels for a growing sample that is tested several times. Each test is a look (METHOD 8).
#
# An estimate from nested samples moves like Brownian motion in information time, 1 / variance. This gives the
# probability that the estimate leaves a band at any look although the true difference is 0. The band is set so that
# this probability equals the allowed error. The first look spends more than half of the error; all later looks share
# one nominal level.

MAX_EXACT_SOURCES = 10
"""Maximum number of sources in a group, joined by open pairs, for an exact count in 3^n steps. In larger groups, every
open pair counts."""
FIRST_SHARE = 0.6
"""Share of the error that the first look spends. Of the shares from 0.4 to 0.9, this one needed the fewest queries on
average."""
NODES = 101
"""Number of Gauss-Legendre nodes for each look's density. With 101, all digits of Pocock's published constants are
reproduced."""


def information_times(sizes: npt.ArrayLike, population: npt.ArrayLike) -> Floats:
    """Return 1 / variance of the mean of a sample drawn without replacement. One query has a variance of 1.

    sizes : number of queries at each look, ascending and below `population`; (L,), or (L, S) for S populations.
    Source: METHOD 8, finite-population factor.
    """
    n = np.asarray(sizes, np.float64)
    return np.asarray(n / (1.0 - n / np.asarray(population)))


def error_spent(times: Floats, levels: npt.ArrayLike) -> Floats:
    """Return (L,) probability of a false positive at each look or an earlier one, if the true difference is 0.

    times  : (L,) information times of the looks, ascending.
    levels : (L,) two-sided levels at or below which p is significant, or one level for all looks. Source: METHOD 8.
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
        density *= widths  # probability mass at each node, so that the next step is a plain sum
        points, before = places, now
        inside.append(density.sum())
    return 1.0 - np.array(inside)


def levels_of_looks(times: Floats, alpha: float) -> Floats:
    """Return (L,) two-sided nominal level of each look, chosen so that all looks together err with probability alpha.

    The first look spends FIRST_SHARE of alpha; all later looks have the same level.
    times : (L,) as in `error_spent`, at least one.   alpha : in (0, 1).
    """
    if len(times) == 1:
        return np.array([alpha])
    from scipy.optimize import brentq

    first, others = FIRST_SHARE * alpha, np.arange(len(times)) > 0

    def excess(level: float) -> float:
        return float(error_spent(times, np.where(others, level, first))[-1]) - alpha

    # Lower end: the later looks split the remaining error evenly. Upper end: one look spends all of alpha.
    level = brentq(excess, (alpha - first) / (len(times) - 1), alpha, xtol=1e-12)
    return np.where(others, level, first)


def max_equal_pairs(open_pairs: Iterable[tuple[str, str]]) -> int:
    """Return the maximum number of open pairs that can be equal at the same time, if all other pairs differ.

    Equality is transitive: if a and c differ, b equals at most one of them. So each open pair may use the error divided
    by this number. It is at most the number of open pairs, which Holm's procedure uses, and 0 only without open pairs.
    Source: METHOD 8.
    """
    partners: dict[str, set[str]] = {}
    for first, second in open_pairs:
        partners.setdefault(first, set()).add(second)
        partners.setdefault(second, set()).add(first)
    return sum(_max_pairs_within(partners, group) for group in _groups(partners))


def _groups(partners: dict[str, set[str]]) -> list[frozenset[str]]:
    """Return the groups of sources that open pairs join, even indirectly. partners: those in an open pair with each."""
    left, groups = set(partners), []
    while left:
        group, edge = set(), {left.pop()}
        while edge:
            group |= edge
            edge = set().union(*(partners[name] for name in edge)) - group
        left -= group
        groups.append(frozenset(group))
    return groups


def _max_pairs_within(partners: dict[str, set[str]], group: frozenset[str]) -> int:
    """Split a group into sets of equal sources, and return the maximum number of pairs within the sets.

    For more than MAX_EXACT_SOURCES sources, return the number of open pairs.
    """
    if len(group) > MAX_EXACT_SOURCES:
        return sum(len(partners[name]) for name in group) // 2

    @cache
    def best(left: frozenset[str]) -> int:
        if not left:
            return 0
        first = min(left)
        return max(
            len(clique) * (len(clique) - 1) // 2 + best(left - clique)
            for clique in _cliques(partners, frozenset({first}), frozenset(partners[first] & left))
        )

    return best(group)


def _cliques(partners: dict[str, set[str]], clique: frozenset[str], others: frozenset[str]) -> Iterable[frozenset[str]]:
    """Yield every set of `clique` and some or none of `others` in which all pairs are open."""
    yield clique
    for name in sorted(others):
        others -= {name}
        yield from _cliques(partners, clique | {name}, others & partners[name])


def _normal_density(values: Floats, variance: float) -> Floats:
    """Return the density of a normal distribution with mean 0. Importing it from scipy.stats takes half a second."""
    return np.asarray(np.exp(-(values**2) / (2.0 * variance)) / np.sqrt(2.0 * np.pi * variance))
