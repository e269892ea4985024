"""What the trainings show: differences with the error of queries and of runs, pairs, ties. Source: METHOD 8, 13.

One training of one split shows little: runs of one source differ by as much as sources do. So the error of a mean over
queries and runs has two components, and with a single seed there is none to be had.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from math import sqrt

import numpy as np
from scipy.special import stdtr, stdtrit

from secid.analyses.ranking import ESTABLISHED_P, rank_groups
from secid.arrays import Floats, Index
from secid.measure.uncertainty import holm
from secid.results.probe import Gap, ProbedPair

ROUNDING = 1e-12
"""At and below which a difference, or its error, is none: two sources that trained on the same texts."""


def gap(values: Floats, group: Index, fold: Index) -> Gap:
    """Mean of (S, n) differences by seed and query, n queries in folds of which each seed trained one run.

    group : (n,) queries that share a relevant passage count as one.   fold : (n,).
    Variance = that of the mean over seeds, clustered by group, plus that between the runs of a fold, less what the
    first already has of the second's noise by query. Degrees of freedom: Satterthwaite 1946. Source: METHOD 13.
    """
    n_seeds, n = values.shape
    by_query = values.mean(axis=0)
    mean = float(by_query.mean())
    sums = np.bincount(group, (by_query - mean) / n)
    n_groups = len(np.unique(group))
    of_queries = float((sums**2).sum()) * n_groups / max(1, n_groups - 1)
    if n_seeds < 2 or n_groups < 2:
        error = sqrt(of_queries)
        return Gap(value=mean, standard_error=error, error_queries=error, error_runs=None, interval_95=None, p=None)
    of_runs, degrees = _of_runs(values, fold)
    variance = of_queries + of_runs
    error = sqrt(variance)
    if error <= ROUNDING:
        p = float(abs(mean) <= ROUNDING)
        return Gap(value=mean, standard_error=0.0, error_queries=0.0, error_runs=0.0, interval_95=(mean, mean), p=p)
    freedom = variance**2 / (of_queries**2 / (n_groups - 1) + of_runs**2 / degrees)
    half = float(stdtrit(freedom, 0.975)) * error
    return Gap(
        value=mean,
        standard_error=error,
        error_queries=sqrt(of_queries),
        error_runs=sqrt(of_runs),
        interval_95=(mean - half, mean + half),
        p=float(2.0 * stdtr(freedom, -abs(mean) / error)),
    )


def _of_runs(values: Floats, fold: Index) -> tuple[float, int]:
    """Variance that the runs add to the mean, at least 0, and its degrees of freedom."""
    (n_seeds, n), total = values.shape, 0.0
    names = np.unique(fold)
    for name in names:
        own = values[:, fold == name]
        share = own.shape[1] / n
        runs = own.mean(axis=1)
        noise = (own - runs[:, None]).var(axis=0, ddof=1).sum() / own.shape[1] ** 2
        total += share**2 * (runs.var(ddof=1) - noise) / n_seeds
    return max(0.0, float(total)), len(names) * (n_seeds - 1)


def judge(values: Mapping[str, Floats], group: Index, fold: Index) -> tuple[tuple[ProbedPair, ...], Mapping[str, int]]:
    """All pairs of sources, the higher mean first, with Holm-adjusted p; and the tie group of each source, 1 first.

    values : (S, n) nDCG@10 by seed and held-out query, of each source; of two the seeds that both have are compared.
    """
    names = sorted(values, key=lambda name: (-values[name].mean(), name))
    pairs = list(combinations(names, 2))
    gaps = [difference(values[first], values[second], group, fold) for first, second in pairs]
    adjusted: list[float | None] = [None] * len(gaps)
    if all(item.p is not None for item in gaps):  # None is that of all or of none: no source stops after one seed
        adjusted = holm(np.array([item.p for item in gaps], np.float64)).tolist()
    judged = tuple(
        ProbedPair(first=a, second=b, gap=item, p_holm=p, established=p is not None and p < ESTABLISHED_P)
        for (a, b), item, p in zip(pairs, gaps, adjusted, strict=True)
    )
    return judged, rank_groups(names, judged)


def difference(first: Floats, second: Floats, group: Index, fold: Index) -> Gap:
    """Mean difference of two sources over the seeds that both have."""
    n = min(len(first), len(second))
    return gap(first[:n] - second[:n], group, fold)


def trailing(values: Mapping[str, Floats], group: Index, fold: Index) -> set[str]:
    """The sources whose interval of the difference to the leader lies below 0."""
    leader = max(values, key=lambda name: values[name].mean())
    gaps = {name: difference(own, values[leader], group, fold) for name, own in values.items() if name != leader}
    return {name for name, item in gaps.items() if item.interval_95 is not None and item.interval_95[1] < 0}
