"""Means, ratios and shares with standard errors clustered by query, and their differences and intervals.

Distinct queries are the sampling unit (METHOD 8). Every estimate stores the contribution of each query, so that two
estimates can be compared query by query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Floats, Index
from secid.measure.interval import MIN_QUERIES, Difference, interval, reach_95

Names = npt.NDArray[np.bytes_]
"""(Q,) text keys of queries, 16 bytes each."""
MAX_ROUNDING_ERROR = 1e-9
"""Maximum standard error of a share that counts as rounding. A single different negative in a billion would give a
larger error."""


@dataclass(frozen=True)
class Estimate:
    """A value, and the influence of each distinct query on it.

    queries   : (Q,) distinct names of the queries.
    per_query : (Q,) first-order influence of each query. The sum of squares is the variance.
    n_sampled : number of queries that the value was computed from, if they are only a sample; otherwise None.
    """

    value: float
    queries: Names
    per_query: Floats
    n_sampled: int | None = None

    @property
    def n_queries(self) -> int:
        """Number of queries that the value was computed from."""
        return len(self.queries) if self.n_sampled is None else self.n_sampled

    @property
    def standard_error(self) -> float:
        return float(np.sqrt((self.per_query**2).sum()))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of a mean, a difference or a ratio. For a share use `wilson_interval`."""
        return interval(self.value, self.standard_error, len(self.queries))


def comparable_keys(keys: npt.NDArray[np.uint8]) -> Names:
    """Return (Q, 16) text keys as (Q,) names that can be compared and sorted."""
    return np.ascontiguousarray(keys).view(f"S{keys.shape[1]}").ravel()


def clustered_mean(values: Floats, cluster: Index, queries: Names, share: Floats | None = None) -> Estimate:
    """Return a mean over at least one triplet, with its error clustered by query. Source: METHOD 8.

    values  : (T,) value of each triplet.   share : (T,) weight of each triplet; None for equal weights.
    cluster : (T,) index of each triplet's query in `queries`, (Q,).
    """
    weight = np.ones(len(values)) if share is None else share
    mean = float(np.average(values, weights=weight))
    per_query = np.bincount(cluster, weight * (values - mean), len(queries)) / weight.sum()
    return Estimate(mean, queries, per_query)


def stratified_mean(
    values: Floats, known: Flags, stratum: Index, cluster: Index, queries: Names, share: Floats | None = None
) -> Estimate:
    """Estimate a mean over all triplets from values that are known for a random sample of each stratum.

    values  : (T,) values of the triplets; unknown ones are ignored.
    known   : (T,) flags of known values. Each stratum must have at least one.
    stratum : (T,) stratum of each triplet, numbered from 0 without gaps.
    cluster, queries, share : as in `clustered_mean`, for all triplets.
    The estimate weights the sample mean of each stratum by the stratum's size. Its error has two parts: from the
    sampling of queries, with each value replaced by its stratum's mean, and from the sampling of triplets within
    strata. Both are clustered by query. If all values are known, the result equals `clustered_mean`.
    Source: METHOD 8, 10; Sarndal, Swensson and Wretman 1992, 9.3.
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
    """Return first - second, paired by query. A query that only one estimate has contributes to that estimate only."""
    queries = np.union1d(first.queries, second.queries)
    gap = np.zeros(len(queries))
    gap[np.searchsorted(queries, first.queries)] += first.per_query
    gap[np.searchsorted(queries, second.queries)] -= second.per_query
    return Estimate(first.value - second.value, queries, gap)


def paired_difference(first: Estimate, second: Estimate) -> Difference:
    """Return first - second with a standard error paired by query. Source: METHOD 8."""
    gap = estimated_gap(first, second)
    n_shared = len(first.queries) + len(second.queries) - len(gap.queries)
    return Difference(gap.value, gap.standard_error, min(len(first.queries), len(second.queries)), n_shared)


def unpaired_difference(first: Estimate, value: float, standard_error: float, n_queries: int) -> Difference:
    """Return an estimate minus a value from another sample, treating their errors as independent.

    value, standard_error, n_queries : value from the other sample, its error, and the sample's number of queries.
    If the samples share queries, their values are positively correlated, so the error is too large rather than too
    small.
    """
    error = sqrt(first.standard_error**2 + standard_error**2)
    return Difference(first.value - value, error, min(len(first.queries), n_queries))


def wilson_interval(estimate: HasError, n_queries: int | None = None) -> tuple[float, float]:
    """Return the 95 % interval of a share by Wilson's formula, with `reach_95` instead of 1.96.

    n_queries : number of queries that contribute evidence; None for all queries of the estimate.
    The formula uses the number n of independent draws that would give the same standard error: n = p (1 - p) / error^2.
    If the error is 0, for example because p is 0 or 1, each query counts as one draw. For example, 0 in 500 queries
    gives 0 to 0.8 %. With fewer than MIN_QUERIES queries, the interval is 0 to 1. Source: Wilson 1927; METHOD 8.
    """
    n_queries = estimate.n_queries if n_queries is None else n_queries
    if n_queries < MIN_QUERIES:
        return 0.0, 1.0
    z = reach_95(n_queries)
    p, error = estimate.value, estimate.standard_error
    n = p * (1 - p) / error**2 if error > MAX_ROUNDING_ERROR and 0 < p < 1 else float(n_queries)
    z2 = z**2
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    low = middle - half if p > 0 else 0.0  # otherwise rounding may give 4e-19
    high = middle + half if p < 1 else 1.0
    return max(0.0, low), min(1.0, high)


class Moments(NamedTuple):
    """Exact sums over queries that give a share and its clustered error.

    all : number of negatives.   n : number of negatives with the property.   The share is n / all.
    all_all, all_n, n_n : sums over queries of the products of a query's two numbers.   n_queries : number of queries.
    Moments of different queries can be added.
    """

    all: int
    n: int
    all_all: int
    all_n: int
    n_n: int
    n_queries: int

    @staticmethod
    def of(amount: Floats, weight: Floats, cluster: Index, n_queries: int) -> Moments:
        """Sum rows by query. amount, weight: (T,) whole numbers n and all of each row.   cluster: (T,) query number."""
        n, whole = (np.bincount(cluster, part, n_queries).astype(np.int64) for part in (amount, weight))
        products = (int(a @ b) for a, b in ((whole, whole), (whole, n), (n, n)))
        return Moments._make([int(whole.sum()), int(n.sum()), *products, n_queries])

    def plus(self, other: Sequence[int]) -> Moments:
        """Add the moments of other, disjoint queries."""
        return Moments._make(a + b for a, b in zip(self, other, strict=True))

    @property
    def value(self) -> float:
        """The share n / all, equal to the value of `clustered_mean`."""
        return self.n / self.all

    @property
    def standard_error(self) -> float:
        """Standard error of the share, clustered by query."""
        all_, n = self.all, self.n
        square = all_**2 * self.n_n - 2 * all_ * n * self.all_n + n**2 * self.all_all
        return sqrt(square / all_**4)


CountedColumns = tuple[Floats, Floats, Index]
"""The columns (amount, weight, cluster) of `Moments.of`."""


def _by_query(amount: Floats, weight: Floats, cluster: Index, n_queries: int) -> tuple[Index, Index, Moments]:
    """Return (n_queries,) sums of weight and of amount, and the moments of the queries with at least one row."""
    n_all, n = (np.bincount(cluster, part, n_queries).astype(np.int64) for part in (weight, amount))
    moments = Moments.of(amount, weight, cluster, n_queries)
    return n_all, n, moments._replace(n_queries=int((n_all > 0).sum()))


class GapMoments(NamedTuple):
    """Exact sums over queries that give the share of the negatives minus the share of the positives, with its error.

    products : sums over queries of a number of the negatives times a number of the positives: all * all, all * n,
               n * all and n * n. As with `Moments`, sums of different queries can be added.
    """

    negatives: Moments
    positives: Moments
    products: tuple[int, int, int, int]

    @staticmethod
    def of(negatives: CountedColumns, positives: CountedColumns, n_queries: int) -> GapMoments:
        """Sum the rows of both sides by query. Both sides use the same numbers for the n_queries queries."""
        n_all, n, negatives_moments = _by_query(*negatives, n_queries)
        m_all, m, positives_moments = _by_query(*positives, n_queries)
        products = int(n_all @ m_all), int(n_all @ m), int(n @ m_all), int(n @ m)
        return GapMoments(negatives_moments, positives_moments, products)

    def plus(self, other: GapMoments) -> GapMoments:
        """Add the moments of other, disjoint queries."""
        first, second, third, fourth = (a + b for a, b in zip(self.products, other.products, strict=True))
        negatives, positives = self.negatives.plus(other.negatives), self.positives.plus(other.positives)
        return GapMoments(negatives, positives, (first, second, third, fourth))

    @property
    def n_queries(self) -> int:
        """Number of queries on the side with fewer."""
        return min(self.negatives.n_queries, self.positives.n_queries)

    @property
    def value(self) -> float:
        """Share among negatives minus share among positives."""
        return self.negatives.value - self.positives.value

    @property
    def standard_error(self) -> float:
        """Standard error of the difference, paired by query."""
        n, m = self.negatives, self.positives
        all_all, all_m, n_all, n_m = self.products
        covariance = n.all * m.all * n_m - n.all * m.n * n_all - n.n * m.all * all_m + n.n * m.n * all_all
        square = n.standard_error**2 + m.standard_error**2 - 2 * covariance / (n.all * m.all) ** 2
        return sqrt(max(0.0, square))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the difference; -1 to 1 with too few queries."""
        return interval(self.value, self.standard_error, self.n_queries, (-1.0, 1.0))

    @property
    def excess(self) -> float:
        """Lower end of the interval; the difference itself with too few queries for an interval."""
        return self.value if self.n_queries < MIN_QUERIES else self.interval[0]


class HasError(Protocol):
    """A number with a standard error clustered by query."""

    @property
    def value(self) -> float: ...
    @property
    def standard_error(self) -> float: ...
    @property
    def n_queries(self) -> int: ...


@dataclass(frozen=True)
class Share:
    """Number and share of negatives with a finding.

    n        : number of negatives with the finding, rounded, but at least 1 if there are any.
    n_all    : number of evaluated negatives, rounded.   estimate : the share with its error.
    """

    n: int
    n_all: int
    estimate: Estimate

    @staticmethod
    def of(amount: Floats, weight: Floats, cluster: Index, names: Names) -> Share:
        """Compute the share from rows, clustered by query.

        amount : (T,) number of negatives with the finding in each row.   weight : (T,) number of all negatives in it.
        cluster : (T,) index of each row's query in `names`, (Q,).
        """
        total = float(amount.sum())
        values = np.divide(amount, weight, out=np.zeros_like(amount), where=weight > 0)
        n_all = round(float(weight.sum()))
        return Share(max(round(total), int(total > 0)), n_all, clustered_mean(values, cluster, names, weight))
