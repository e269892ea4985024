"""Numbers with their uncertainty: means, ratios and shares clustered by query, their differences, their intervals.

Distinct queries are the sampling unit (METHOD 8), so every estimate keeps what each query contributes to it: two
estimates over the same queries then compare query by query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Floats, Index
from secid.measure.interval import FEWEST_QUERIES, Difference, interval, reach_95

Names = npt.NDArray[np.bytes_]
"""(Q,) text keys of queries, 16 bytes each."""
NO_SPREAD = 1e-9
"""Clustered error of a share up to which it is rounding: a spread of one in a billion negatives would show more."""


@dataclass(frozen=True)
class Estimate:
    """A value, and what each distinct query contributes to its error.

    queries  : (Q,) names of the queries, each once.
    per_query: (Q,) first-order influence of each query; the squares add up to the variance.
    n_sampled: queries that a value was looked up for, where that is a sample of them.
    """

    value: float
    queries: Names
    per_query: Floats
    n_sampled: int | None = None

    @property
    def n_queries(self) -> int:
        """Queries that show the value."""
        return len(self.queries) if self.n_sampled is None else self.n_sampled

    @property
    def standard_error(self) -> float:
        return float(np.sqrt((self.per_query**2).sum()))

    @property
    def interval(self) -> tuple[float, float]:
        """Return the interval of a mean, a difference or a ratio; for a share use `share_interval`."""
        return interval(self.value, self.standard_error, len(self.queries))


def comparable_keys(keys: npt.NDArray[np.uint8]) -> Names:
    """(Q, 16) text keys as (Q,) comparable names."""
    return np.ascontiguousarray(keys).view(f"S{keys.shape[1]}").ravel()


def clustered_mean(values: Floats, cluster: Index, queries: Names, share: Floats | None = None) -> Estimate:
    """Mean over triplets, its error clustered by query.

    values, share : (T,) at least one.   cluster : (T,) place of each triplet's query in `queries`.
    Source: METHOD 8.
    """
    weight = np.ones(len(values)) if share is None else share
    mean = float(np.average(values, weights=weight))
    per_query = np.bincount(cluster, weight * (values - mean), len(queries)) / weight.sum()
    return Estimate(mean, queries, per_query)


def stratified_mean(
    values: Floats, known: Flags, stratum: Index, cluster: Index, queries: Names, share: Floats | None = None
) -> Estimate:
    """Mean over all triplets of a value that is known for a random sample of each stratum.

    values  : (T,), read where known.   known : (T,) at least one in each stratum.   stratum : (T,) from 0, none empty.
    cluster, queries, share : as in `clustered_mean`, of all triplets.
    The sum over strata of their size times their sample's mean. Its error has both phases: that of the queries, as if
    each value were its stratum's mean, and that of the sample within the strata, clustered by query. With all values
    known it is `clustered_mean`. Source: METHOD 8, 10; Sarndal, Swensson and Wretman 1992, 9.3.
    """
    weight = np.ones(len(values)) if share is None else share
    sampled = np.where(known, weight, 0.0)
    size, of_sample, n = (np.bincount(stratum, each) for each in (weight, sampled, known))
    mean = np.bincount(stratum, sampled * np.where(known, values, 0.0)) / of_sample
    value = float((size * mean).sum() / size.sum())
    spread = sampled * (size / of_sample * np.sqrt(n / np.maximum(n - 1, 1)))[stratum]
    spread = np.where(known.all(), weight, spread)
    off = weight * (mean[stratum] - value) + spread * (np.where(known, values, 0.0) - mean[stratum])
    n_sampled = None if known.all() else len(np.unique(cluster[known]))
    return Estimate(value, queries, np.bincount(cluster, off, len(queries)) / weight.sum(), n_sampled)


def estimated_gap(first: Estimate, second: Estimate) -> Estimate:
    """Return first - second, paired query by query over all queries of either."""
    queries = np.union1d(first.queries, second.queries)
    gap = np.zeros(len(queries))
    gap[np.searchsorted(queries, first.queries)] += first.per_query
    gap[np.searchsorted(queries, second.queries)] -= second.per_query
    return Estimate(first.value - second.value, queries, gap)


def paired_difference(first: Estimate, second: Estimate) -> Difference:
    """first - second over the queries that both have, each query against itself. Source: METHOD 8."""
    gap = estimated_gap(first, second)
    n_shared = len(first.queries) + len(second.queries) - len(gap.queries)
    return Difference(gap.value, gap.standard_error, min(len(first.queries), len(second.queries)), n_shared)


def unpaired_difference(first: Estimate, value: float, standard_error: float, n_queries: int) -> Difference:
    """first minus a number of another sample, of n_queries queries.

    Where both share queries this is wider than needed, never narrower than the truth for the positively correlated
    scores of the same queries.
    """
    error = sqrt(first.standard_error**2 + standard_error**2)
    return Difference(first.value - value, error, min(len(first.queries), n_queries))


def wilson_interval(estimate: HasError, n_queries: int | None = None) -> tuple[float, float]:
    """95 % confidence interval of a share by Wilson's formula, with `reach_95` in place of the normal's 1.96.

    n_queries : those that tell something of it; all of the estimate's where None.
    It counts as many independent draws n as give the clustered standard error: n = p (1 - p) / error^2. Where all
    queries have the same share, as at 0 and 1, they show no error; then each query counts as one draw, so 0 of 500
    queries gives 0 to 0.8 %. Below FEWEST_QUERIES queries it is 0 to 1. Source: Wilson 1927; METHOD 8.
    """
    n_queries = estimate.n_queries if n_queries is None else n_queries
    if n_queries < FEWEST_QUERIES:
        return 0.0, 1.0
    z = reach_95(n_queries)
    p, error = estimate.value, estimate.standard_error
    n = p * (1 - p) / error**2 if error > NO_SPREAD and 0 < p < 1 else float(n_queries)
    z2 = z**2
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    low = middle - half if p > 0 else 0.0  # rounding would leave 4e-19
    high = middle + half if p < 1 else 1.0
    return max(0.0, low), min(1.0, high)


class Moments(NamedTuple):
    """Sums over queries of whole numbers: of how many negatives (all) and how many of them have something (n).

    Those of different queries add up; what follows is exact. n_queries: how many were added.
    """

    all: int
    n: int
    all_all: int
    all_n: int
    n_n: int
    n_queries: int

    @staticmethod
    def of(amount: Floats, weight: Floats, cluster: Index, n_queries: int) -> Moments:
        """amount, weight : (T,) whole numbers.   cluster : (T,) below n_queries."""
        n, whole = (np.bincount(cluster, part, n_queries).astype(np.int64) for part in (amount, weight))
        products = (int(a @ b) for a, b in ((whole, whole), (whole, n), (n, n)))
        return Moments._make([int(whole.sum()), int(n.sum()), *products, n_queries])

    def plus(self, other: Sequence[int]) -> Moments:
        """Return the moments of both sets of queries, which are disjoint."""
        return Moments._make(a + b for a, b in zip(self, other, strict=True))

    @property
    def value(self) -> float:
        """The share, as `clustered_mean` has it."""
        return self.n / self.all

    @property
    def standard_error(self) -> float:
        """Its clustered error."""
        all_, n = self.all, self.n
        square = all_**2 * self.n_n - 2 * all_ * n * self.all_n + n**2 * self.all_all
        return sqrt(square / all_**4)


Counted = tuple[Floats, Floats, Index]
"""amount, weight, cluster of some rows, as `Moments.of` takes them."""


def _by_query(amount: Floats, weight: Floats, cluster: Index, n_queries: int) -> tuple[Index, Index, Moments]:
    """(n_queries,) all rows and those that have it, and the moments of the queries that have a row."""
    n_all, n = (np.bincount(cluster, part, n_queries).astype(np.int64) for part in (weight, amount))
    moments = Moments.of(amount, weight, cluster, n_queries)
    return n_all, n, moments._replace(n_queries=int((n_all > 0).sum()))


class GapMoments(NamedTuple):
    """Sums over queries of a share among negatives and of the same among labelled positives, for their difference.

    products : sums of products of a query's numbers of negatives and of positives: all by all, all by those that have
    it, those that have it by all, and by each other. Those of different queries add up, as `Moments` do.
    """

    negatives: Moments
    positives: Moments
    products: tuple[int, int, int, int]

    @staticmethod
    def of(negatives: Counted, positives: Counted, n_queries: int) -> GapMoments:
        """Return the moments of both sides, whose clusters are places among the same queries."""
        n_all, n, negatives_moments = _by_query(*negatives, n_queries)
        m_all, m, positives_moments = _by_query(*positives, n_queries)
        products = int(n_all @ m_all), int(n_all @ m), int(n @ m_all), int(n @ m)
        return GapMoments(negatives_moments, positives_moments, products)

    def plus(self, other: GapMoments) -> GapMoments:
        """Return the moments of both sets of queries, which are disjoint."""
        first, second, third, fourth = (a + b for a, b in zip(self.products, other.products, strict=True))
        negatives, positives = self.negatives.plus(other.negatives), self.positives.plus(other.positives)
        return GapMoments(negatives, positives, (first, second, third, fourth))

    @property
    def n_queries(self) -> int:
        """Queries of the side that has fewer."""
        return min(self.negatives.n_queries, self.positives.n_queries)

    @property
    def value(self) -> float:
        """The share among negatives minus that among positives."""
        return self.negatives.value - self.positives.value

    @property
    def standard_error(self) -> float:
        """Clustered error of the difference, queries paired."""
        n, m = self.negatives, self.positives
        all_all, all_m, n_all, n_m = self.products
        covariance = n.all * m.all * n_m - n.all * m.n * n_all - n.n * m.all * all_m + n.n * m.n * all_all
        square = n.standard_error**2 + m.standard_error**2 - 2 * covariance / (n.all * m.all) ** 2
        return sqrt(max(0.0, square))

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the difference; -1 to 1 for too few queries."""
        return interval(self.value, self.standard_error, self.n_queries, (-1.0, 1.0))

    @property
    def excess(self) -> float:
        """Return the least difference: the lower end of its interval, or the difference itself without an interval."""
        return self.value if self.n_queries < FEWEST_QUERIES else self.interval[0]


class HasError(Protocol):
    """A number with its clustered error."""

    @property
    def value(self) -> float: ...
    @property
    def standard_error(self) -> float: ...
    @property
    def n_queries(self) -> int: ...


@dataclass(frozen=True)
class Share:
    """Number of negatives with a finding, and their share. n: rounded, at least 1 if any has it.

    n_all : negatives that were searched for it, rounded.
    """

    n: int
    n_all: int
    estimate: Estimate

    @staticmethod
    def of(amount: Floats, weight: Floats, cluster: Index, names: Names) -> Share:
        """amount, weight : (T,) how many negatives of each row have it, of how many."""
        total = float(amount.sum())
        values = np.divide(amount, weight, out=np.zeros_like(amount), where=weight > 0)
        n_all = round(float(weight.sum()))
        return Share(max(round(total), int(total > 0)), n_all, clustered_mean(values, cluster, names, weight))
