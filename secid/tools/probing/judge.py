"""Decide which differences between sources are established, from their errors over queries and over training runs.

Source: METHOD 13.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import sqrt

import numpy as np
from scipy.special import stdtr, stdtrit

from secid.analyses.ranking import ESTABLISHED_P, tie_letters
from secid.arrays import Floats, Index
from secid.measure.uncertainty import holm
from secid.results.probe import Gap, ProbedPair, sign
from secid.tools.probing.task import NegativeSource

DIFFERENCE_ROUNDING = 1e-12
"""A difference or an error up to this counts as 0. It is that small only if both sources have the same texts."""
MIN_SOURCES_TO_STOP = 4
"""Stop trailing sources early only if at least this many sources are compared."""


@dataclass(frozen=True)
class BetweenRuns:
    """The variance that repeating a training adds to a mean over one seed, and its degrees of freedom.

    variance : can be below 0, since it is estimated as the difference of two variances.
    """

    variance: float
    degrees: int


def between_runs(values: Floats, fold: Index) -> BetweenRuns | None:
    """Return the between-run variance of a difference between two sources, pooled over K sources.

    None with one seed; the variance is 0 with one source.

    values : (K, S, n) metric by source, seed and query.   fold : (n,) fold of each query.
    An effect of the seed that all sources have is excluded. So is its effect on single queries, which the clustered
    error over queries already covers.
    """
    n_sources, n_seeds, n = values.shape
    names = np.unique(fold)
    if n_seeds < 2:
        return None
    rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean(axis=(0, 1))
    free, total = max(1, n_sources - 1) * (n_seeds - 1), 0.0
    for name in names:
        fold_values = rest[:, :, fold == name]
        runs = fold_values.mean(axis=2)
        noise = ((fold_values - runs[:, :, None]) ** 2).sum() / fold_values.shape[2] ** 2
        total += 2 * (fold_values.shape[2] / n) ** 2 * float((runs**2).sum() - noise) / free
    return BetweenRuns(total, len(names) * free)


def clustered_covariance(values: Floats, group: Index) -> Floats:
    """Return the (K, K) covariance of the means of (K, n) values over samples of queries. group : (n,) as in `gap`."""
    rest = (values - values.mean(axis=1, keepdims=True)) / values.shape[1]
    sums = np.stack([np.bincount(group, row) for row in rest])
    n_groups = len(np.unique(group))
    covariance: Floats = sums @ sums.T * n_groups / max(1, n_groups - 1)
    return covariance


def gap(values: Floats, group: Index, runs: BetweenRuns | None) -> Gap:
    """Return the mean difference with its error. It has no interval if `runs` is None or there is only one group.

    values : (S, n) differences by seed and query.   group : (n,) group of each query; queries that share a relevant
    passage have the same group.
    The variance is that of the mean over seeds, clustered by group, plus the between-run variance divided by S. The
    degrees of freedom follow Satterthwaite 1946. Source: METHOD 13.
    """
    n_seeds = len(values)
    by_query = values.mean(axis=0)
    mean = float(by_query.mean())
    n_groups = len(np.unique(group))
    query_variance = float(clustered_covariance(by_query[None], group)[0, 0])
    if runs is None or n_groups < 2:
        error = sqrt(query_variance)
        return Gap(value=mean, standard_error=error, error_queries=error, error_runs=None, interval_95=None, p=None)
    run_variance = max(0.0, runs.variance) / n_seeds
    variance = query_variance + run_variance
    error = sqrt(variance)
    if (
        not np.abs(values).max() > DIFFERENCE_ROUNDING or error <= DIFFERENCE_ROUNDING
    ):  # the same texts, or one difference everywhere
        p = float(abs(mean) <= DIFFERENCE_ROUNDING)
        return Gap(value=mean, standard_error=0.0, error_queries=0.0, error_runs=0.0, interval_95=(mean, mean), p=p)
    freedom = variance**2 / (query_variance**2 / (n_groups - 1) + run_variance**2 / runs.degrees)
    half = float(stdtrit(freedom, 0.975)) * error
    return Gap(
        value=mean,
        standard_error=error,
        error_queries=sqrt(query_variance),
        error_runs=sqrt(run_variance),
        interval_95=(mean - half, mean + half),
        p=float(2.0 * stdtr(freedom, -abs(mean) / error)),
    )


class Judge:
    """Compares all sources, with a between-run error that is pooled over them.

    values  : for each source and control, (S, n) nDCG@10 by seed and held-out query. Two sources are compared on the
              seeds that both have.
    runs    : between-run variance of a difference between two sources; None with one seed.
    n_seeds : number of seeds that all sources have. Gains and the order use only these, because a seed can be good or
              bad for every source.
    """

    def __init__(self, values: Mapping[NegativeSource, Floats], group: Index, fold: Index) -> None:
        self._values, self._group, self._fold = values, group, fold
        self.n_seeds = min(map(len, values.values()))
        self._common = np.stack([ndcg[: self.n_seeds] for ndcg in values.values()])
        self._distinct = [*{ndcg.tobytes(): ndcg for ndcg in self._common}.values()]  # the same negatives: one training
        self.runs = between_runs(np.stack(self._distinct), fold)

    def gains(self, frozen: Floats) -> dict[NegativeSource, Gap]:
        """Return the gain of each source over the frozen encoder. frozen : (n,) nDCG@10 of the frozen encoder."""
        runs_of_each = [between_runs(np.stack([ndcg, np.zeros_like(ndcg)]), self._fold) for ndcg in self._distinct]
        known = [item for item in runs_of_each if item is not None]
        runs = BetweenRuns(float(np.mean([item.variance for item in known])), known[0].degrees) if known else None
        gaps = [gap(ndcg - frozen, self._group, runs) for ndcg in self._common]
        return dict(zip(self._values, gaps, strict=True))

    def difference(self, first: NegativeSource, second: NegativeSource) -> Gap:
        """Return the mean difference between two sources."""
        n = min(len(self._values[first]), len(self._values[second]))
        return gap(self._values[first][:n] - self._values[second][:n], self._group, self.runs)

    def pairs(self) -> tuple[tuple[ProbedPair, ...], Mapping[str, str | None]]:
        """Return all pairs of sources with Holm-adjusted p, the better source first, and each source's tie letters."""
        order = self._order()
        pairs = [(a, b) if self.difference(a, b).value >= 0 else (b, a) for a, b in combinations(order, 2)]
        gaps = [self.difference(a, b) for a, b in pairs]
        adjusted: list[float | None] = [None] * len(gaps)
        if all(item.p is not None for item in gaps):  # all or none are None: none stops at one seed
            adjusted = holm(np.array([item.p for item in gaps], np.float64)).tolist()
        judged = tuple(
            ProbedPair(first=a.name, second=b.name, gap=item, p_holm=p, established=p is not None and p < ESTABLISHED_P)
            for (a, b), item, p in zip(pairs, gaps, adjusted, strict=True)
        )
        return judged, tie_letters([source.name for source in order], judged)

    def trailing(self) -> set[NegativeSource]:
        """Return the sources that are significantly worse than the best one; none with few sources.

        A source is worse if the whole 95 % interval of its difference lies below 0. Each look has a level of 5 %, and
        several looks add up. With many sources, Holm's correction for the pairs makes up for that. With few it does
        not: in simulated probes of equal sources, 8 to 13 % of probes with two sources established an order, but only
        3 to 6 % of probes with four or more.
        """
        leader, *others = self._order()
        if len(others) + 1 < MIN_SOURCES_TO_STOP:
            return set()
        gaps = {source: self.difference(source, leader) for source in others}
        return {source for source, item in gaps.items() if sign(item.interval_95) < 0}

    def _order(self) -> list[NegativeSource]:
        means = dict(zip(self._values, self._common.mean(axis=(1, 2)), strict=True))
        return sorted(
            (source for source in means if not source.control), key=lambda source: (-means[source], source.name)
        )


def effective_number(group: Index) -> float:
    """Return the number of equal groups with the same evidence: 1 / sum of squared shares. group : (n,), n >= 1.

    With one group that holds 40 % of the queries, a 95 % interval by group covered the truth in only 80 to 88 % of
    simulations.
    """
    shares = np.bincount(group) / len(group)
    return float(1.0 / (shares**2).sum())
