"""How far a 95 % interval reaches, in one look and where growing samples are tested several times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from math import inf, isfinite, sqrt

import numpy as np
import numpy.typing as npt

from secid.arrays import Floats

# 95 % intervals and differences: the one definition, for reports, gates and the limits derived from a baseline.

FEWEST_QUERIES = 5
"""Influences sum to zero, so one query alone always has a standard error of 0; intervals were tested from 40."""
ROUNDING_NATS = 1e-6
"""Scores are at most 1 at B = 1 and right to 1e-6 relative (METHOD 11): a smaller difference is none."""
UNBOUNDED = (-inf, inf)


def reach_95(n_queries: int) -> float:
    """Half-width of a 95 % interval in standard errors: Student's t, for the mean of n >= 2 observations.

    The clustered standard error divides by n, Student's by n - 1; with 100 queries the two steps make 1.99 of 1.96,
    with 5 they make 3.10. Of a difference n is the number of queries of the side that has fewer. Source: METHOD 8.
    """
    from scipy.special import stdtrit  # here, so that a process which only looks at texts does without scipy

    return float(stdtrit(n_queries - 1, 0.975) * (n_queries / (n_queries - 1)) ** 0.5)


def interval(
    value: float, standard_error: float, n_queries: int, limits: tuple[float, float] = UNBOUNDED
) -> tuple[float, float]:
    """The 95 % confidence interval of a mean, a difference or a ratio: value ± Student's t times its standard error.

    n_queries : distinct queries, of a difference those of the side that has fewer.
    limits    : the smallest and the largest value that the number can have. Below FEWEST_QUERIES queries they are the
                interval, infinite by default, which JSON cannot hold. Source: METHOD 8.
    """
    low, high = limits
    if n_queries < FEWEST_QUERIES:
        return low, high
    half = reach_95(n_queries) * standard_error
    return max(value - half, low), min(value + half, high)  # in this order NaN stays NaN


def finite(ends: tuple[float, float]) -> tuple[float, float] | None:
    """An interval as JSON can hold it; None where there are too few queries for one."""
    return ends if all(map(isfinite, ends)) else None


@dataclass(frozen=True)
class Difference:
    """A difference of two numbers, of sources or of sides of one source, with its clustered standard error.

    n_queries : distinct queries of the side that has fewer.
    n_shared  : queries over which it is paired; 0 where the sides count as independent.
    """

    value: float
    standard_error: float
    n_queries: int
    n_shared: int = 0

    def turned(self) -> Difference:
        """The second minus the first."""
        return replace(self, value=-self.value)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval; infinite with too few queries."""
        return interval(self.value, self.standard_error, self.n_queries)

    def interval_within(self, limit: float) -> tuple[float, float]:
        """The 95 % interval of a difference that lies in ±limit; all of this range with too few queries."""
        return interval(self.value, self.standard_error, self.n_queries, (-limit, limit))

    @property
    def z(self) -> float | None:
        """Difference in standard errors; None where nothing may be concluded from it.

        That is so where the numbers differ by rounding alone (the same triplets in another order), and
        where a side has too few queries for its standard error to mean anything.
        """
        if abs(self.value) <= ROUNDING_NATS or self.n_queries < FEWEST_QUERIES or self.standard_error <= 0:
            return None
        return self.value / self.standard_error

    def p(self) -> float:
        """Two-sided p by Student's t with n_queries - 1 degrees; 1.0 where z is None. In [0, 1]."""
        from scipy.special import stdtr

        if self.z is None:
            return 1.0
        return float(2.0 * stdtr(self.n_queries - 1, -abs(self.z) * sqrt(1.0 - 1.0 / self.n_queries)))


# How strong the evidence of one look must be where growing samples are tested several times (METHOD 8).
#
# An estimate from nested samples moves like Brownian motion in information time, 1 / variance. From that
# follows the chance that it leaves a band at any look though nothing is there, and from the chance that may
# be spent the band: more than half of it at the first look, the rest at one nominal level for all others.

LARGEST_GROUP = 10
"""Sources joined by open pairs beyond which all their pairs are counted: the exact count takes 3^n steps."""
FIRST_SHARE = 0.6
"""Of the error, spent at the first look: of 0.4 to 0.9 what needed the fewest queries on average."""
NODES = 101
"""Gauss-Legendre nodes of each look's density: Pocock's published constants come out to all their digits."""


def information_times(sizes: npt.ArrayLike, population: npt.ArrayLike) -> Floats:
    """1 / variance of the mean of a sample drawn without replacement, in units of 1 / one query's variance.

    sizes : queries of each look, rising, below `population`; (L,), or (L, S) for S populations.
    Source: METHOD 8, finite-population factor.
    """
    n = np.asarray(sizes, np.float64)
    return np.asarray(n / (1.0 - n / np.asarray(population)))


def spent(times: Floats, levels: npt.ArrayLike) -> Floats:
    """(L,) chance, without any difference, of a two-sided p <= its level at that look or an earlier one, in [0, 1].

    times : information times of the looks, rising.   levels : (L,), or one for all.   Source: METHOD 8.
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
    """(L,) two-sided nominal p that each look may use, so that all looks together err with chance alpha.

    The first has FIRST_SHARE of it, the others one level.
    times : (L,) as in `spent`, at least one.   alpha : in (0, 1).
    """
    if len(times) == 1:
        return np.array([alpha])
    from scipy.optimize import brentq

    first, others = FIRST_SHARE * alpha, np.arange(len(times)) > 0

    def excess(level: float) -> float:
        return float(spent(times, np.where(others, level, first))[-1]) - alpha

    # One look has the rest to itself at the least, and at the most none of it errs where the first one did
    level = brentq(excess, (alpha - first) / (len(times) - 1), alpha, xtol=1e-12)
    return np.where(others, level, first)


def most_equal(open_pairs: Iterable[tuple[str, str]]) -> int:
    """The largest number of open pairs that can all be level, all other pairs being apart.

    Equality is transitive: if a and c are apart, b is level with one of them at most. So each open pair may use the
    error divided by this number, which is at most that of the open pairs (Holm's). At least 1 for any open pair,
    0 for none. Source: METHOD 8.
    """
    level: dict[str, set[str]] = {}
    for first, second in open_pairs:
        level.setdefault(first, set()).add(second)
        level.setdefault(second, set()).add(first)
    return sum(_most_within(level, group) for group in _groups(level))


def _groups(level: dict[str, set[str]]) -> list[frozenset[str]]:
    """Sources joined by open pairs, directly or through others."""
    left, groups = set(level), []
    while left:
        group, edge = set(), {left.pop()}
        while edge:
            group |= edge
            edge = set().union(*(level[name] for name in edge)) - group
        left -= group
        groups.append(frozenset(group))
    return groups


def _most_within(level: dict[str, set[str]], group: frozenset[str]) -> int:
    """The best way to part a group into sets of sources that are all level: most pairs within the sets."""
    if len(group) > LARGEST_GROUP:
        return sum(len(level[name]) for name in group) // 2

    @cache
    def best(left: frozenset[str]) -> int:
        if not left:
            return 0
        first = min(left)
        return max(
            len(chosen) * (len(chosen) - 1) // 2 + best(left - chosen)
            for chosen in _cliques(level, frozenset({first}), frozenset(level[first] & left))
        )

    return best(group)


def _cliques(level: dict[str, set[str]], chosen: frozenset[str], others: frozenset[str]) -> Iterable[frozenset[str]]:
    """Every set of sources, all level with each other, that holds `chosen` and some of the others."""
    yield chosen
    for name in sorted(others):
        others -= {name}
        yield from _cliques(level, chosen | {name}, others & level[name])


def _normal_density(values: Floats, variance: float) -> Floats:
    """scipy.stats has it too, but takes half a second to import."""
    return np.asarray(np.exp(-(values**2) / (2.0 * variance)) / np.sqrt(2.0 * np.pi * variance))
