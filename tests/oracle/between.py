"""Reference for METHOD 16.1: two sources on the queries that both have, in plain loops over float64.

Differences of hardness (METHOD 10), of the share of negatives that outscore their positive, and of tr M; their errors
by query (METHOD 8); which pairs are compared, and which of them by score. Nothing here imports secid.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import t as student

from tests.oracle.hardness import cosine
from tests.oracle.scoring import Measured

MIN_SHARED_QUERIES, MIN_SHARE_OF_LARGER, MIN_SHARE_OF_SMALLEST, MIN_QUERIES = 30, 0.2, 0.5, 5


@dataclass(frozen=True)
class Negative:
    """Contribution of one negative to its query's sums.

    weight : w, or 0 if n - p has no direction.   near, best : s_qn and s_qp.   random : mean s_qr of the query.
    share  : 1, or one over the number of positives with which it is compared.
    """

    query: str
    weight: float
    near: float
    best: float
    random: float
    share: float = 1.0

    @property
    def parts(self) -> dict[str, tuple[float, float]]:
        """Return numerator and denominator of each ratio."""
        return {
            "hardness": (self.share * (self.near - self.random), self.share * (self.best - self.random)),
            "outscoring": (self.share * (self.near > self.best), self.share),
            "trace": (self.share * self.weight, self.share),
        }


@dataclass(frozen=True)
class Paired:
    """Difference over shared queries. With fewer than five queries interval_95 is None and p is 1."""

    value: float
    standard_error: float
    n_queries: int

    @property
    def interval_95(self) -> tuple[float, float] | None:
        n = self.n_queries
        if n < MIN_QUERIES:
            return None
        half = student.ppf(0.975, n - 1) * math.sqrt(n / (n - 1)) * self.standard_error
        return self.value - half, self.value + half

    @property
    def p(self) -> float:
        n = self.n_queries
        if n < MIN_QUERIES:
            return 1.0
        return float(2 * student.sf(abs(self.value) / (self.standard_error * math.sqrt(n / (n - 1))), n - 1))


def negatives_of(measured: Measured, n_positives: Sequence[int], random: Mapping[str, float]) -> list[Negative]:
    """Return the negatives of a source. random : mean s_qr by query."""
    return [
        Negative(
            query,
            float(measured.weight[i]) if measured.direction[i].any() else 0.0,
            float(measured.s_qn[i]),
            float(measured.s_qp[i]),
            random[query],
            1.0 / n_positives[i],
        )
        for i, query in enumerate(measured.queries)
    ]


def random_means(
    positives: Mapping[str, Collection[str]],
    passages: Collection[str],
    q_vec: Mapping[str, np.ndarray],
    p_vec: Mapping[str, np.ndarray],
) -> dict[str, float]:
    """Return each query's mean s_qr over all passages but its labelled positives, for runs too small for a draw."""
    means = {}
    for query, own in positives.items():
        cosines = [cosine(q_vec[query], p_vec[text]) for text in passages if text not in own]
        means[query] = math.fsum(cosines) / len(cosines)
    return means


def sums(negatives: Sequence[Negative], name: str, queries: Collection[str]) -> dict[str, tuple[float, float]]:
    """Return numerator and denominator of a ratio, by query."""
    added: dict[str, tuple[float, float]] = {}
    for negative in negatives:
        if negative.query in queries:
            top, bottom = negative.parts[name]
            before = added.get(negative.query, (0.0, 0.0))
            added[negative.query] = before[0] + top, before[1] + bottom
    return added


def paired(
    first: Sequence[Negative], second: Sequence[Negative], name: str, queries: Collection[str] | None = None
) -> Paired | None:
    """Return the first source's ratio minus the second's on shared queries; None if a denominator is not positive.

    By the delta method: d = A/B - C/D has the gradient (1/B, -A/B^2, -1/D, C/D^2) in the four totals, whose
    covariance is the sum over queries of the outer product of their sums.   queries : used instead of shared ones.
    """
    shared = {own.query for own in first} & {own.query for own in second} if queries is None else queries
    by_query = [sums(side, name, shared) for side in (first, second)]
    (a, b), (c, d) = ([math.fsum(part[i] for part in side.values()) for i in (0, 1)] for side in by_query)
    if not (b > 0 and d > 0):
        return None
    gradient = np.array([1 / b, -a / b**2, -1 / d, c / d**2])
    covariance = np.zeros((4, 4))
    for query in {*by_query[0], *by_query[1]}:
        own = np.array([*by_query[0].get(query, (0.0, 0.0)), *by_query[1].get(query, (0.0, 0.0))])
        covariance += np.outer(own, own)
    return Paired(a / b - c / d, math.sqrt(gradient @ covariance @ gradient), len(shared))


def compared(queries: Mapping[str, Collection[str]], fewest: int = MIN_SHARED_QUERIES) -> dict[tuple[str, str], int]:
    """Return the compared pairs, names in ascending order, with their number of shared queries.

    Sources with the same queries are always compared; others must share 30, and a fifth of the larger one's.
    """
    pairs = {}
    for a, b in combinations(sorted(queries), 2):
        first, second = set(queries[a]), set(queries[b])
        n = len(first & second)
        if first == second or (n >= fewest and n >= MIN_SHARE_OF_LARGER * max(len(first), len(second))):
            pairs[a, b] = n
    return pairs


def common_queries(queries: Mapping[str, Collection[str]]) -> set[str] | None:
    """Return the queries of the table, which all sources share; None if these are all queries, or too few."""
    sets = [set(own) for own in queries.values()]
    common = set.intersection(*sets)
    if all(own == common for own in sets):
        return None
    return common if len(common) >= max(MIN_SHARED_QUERIES, MIN_SHARE_OF_SMALLEST * min(map(len, sets))) else None


def by_score(queries: Mapping[str, Collection[str]], most_sets: int = 64) -> set[tuple[str, str]]:
    """Return the pairs compared by score; the others are compared by tr M.

    A source on a set of queries needs a separate matrix, unless the set is all of its queries or the table's. Pairs
    that share most come first. A pair that needs more than `most_sets` matrices is compared by tr M.
    """
    common = common_queries(queries)
    needed: set[tuple[str, frozenset[str]]] = set()
    chosen = set()
    pairs = compared(queries)
    for a, b in sorted(pairs, key=lambda pair: (-pairs[pair], pair)):
        shared = frozenset(queries[a]) & frozenset(queries[b])
        own = {(name, shared) for name in (a, b) if shared not in (set(queries[name]), common)}
        if len(needed | own) <= most_sets:
            needed |= own
            chosen.add((a, b))
    return chosen
