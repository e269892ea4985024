"""95 % intervals and differences: the one definition, for reports, gates and the limits derived from a baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite, sqrt

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
