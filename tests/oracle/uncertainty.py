"""Reference for METHOD 8: influence, clustered errors, bias, comparisons. Clusters are distinct query texts."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np

from tests.oracle.scoring import Measured, log_det_nats, singular_values


@dataclass(frozen=True)
class Whitened:
    """Rows of one source in the eigenbasis of M, in which A = I + B * M is diagonal.

    rows        : (N, d) float64, sqrt(w_i) A^(-1/2) u_i.
    eigenvalues : (d,) float64, of A^(-1/2) M A^(-1/2).
    """

    rows: np.ndarray
    eigenvalues: np.ndarray


def _whitened(weight: np.ndarray, direction: np.ndarray, budget: float) -> Whitened:
    n_triplets, dimension = direction.shape
    factor = np.linalg.qr(np.sqrt(weight / n_triplets)[:, None] * direction, mode="r")
    _, singular, basis = np.linalg.svd(factor, full_matrices=True)
    eigenvalues = np.pad(singular**2, (0, dimension - len(singular)))
    spread = 1.0 + budget * eigenvalues
    rows = np.sqrt(weight)[:, None] * (direction @ basis.T) / np.sqrt(spread)
    return Whitened(rows=rows, eigenvalues=eigenvalues / spread)


def influence(weight: np.ndarray, direction: np.ndarray, budget: float = 1.0) -> np.ndarray:
    """h_i = B * (w_i u_i' A^-1 u_i - tr(A^-1 M)), (N,) float64 in nats; sums to 0 over the source.

    weight : (N,).   direction : (N, d).   A = I + budget * M. Source: METHOD 8.
    """
    whitened = _whitened(weight, direction, budget)
    values: np.ndarray = budget * (np.sum(whitened.rows**2, axis=1) - math.fsum(whitened.eigenvalues))
    return values


def query_sums(queries: Sequence[str], influences: np.ndarray) -> dict[str, float]:
    """Return the sum of h_i / N over the triplets of each distinct query. Source: METHOD 8."""
    parts: dict[str, list[float]] = {}
    for query, value in zip(queries, influences, strict=True):
        parts.setdefault(query, []).append(float(value))
    return {query: math.fsum(values) / len(influences) for query, values in parts.items()}


def source_sums(measured: Measured, budget: float = 1.0) -> dict[str, float]:
    """Return `query_sums` of one measured source with its full weight."""
    return query_sums(measured.queries, influence(measured.weight, measured.direction, budget))


def standard_error(sums: Mapping[str, float], sampled_fraction: float = 0.0) -> float:
    """Return the clustered standard error of a score, in nats.

    sampled_fraction : share of the full file's clusters that were drawn, to estimate the full file's
    score; 0 to estimate that of the process that made the source. Source: METHOD 8.
    """
    return math.sqrt(math.fsum(value**2 for value in sums.values()) * (1.0 - sampled_fraction))


def covariance(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Return the covariance of two scores from shared queries, in squared nats. Source: METHOD 8."""
    return math.fsum(first[query] * second[query] for query in first.keys() & second.keys())


def paired_standard_error(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Return the standard error of a difference of two scores, in nats; a query missing from one counts as 0 there.

    Source: METHOD 8.
    """
    queries = first.keys() | second.keys()
    return math.sqrt(math.fsum((first.get(query, 0.0) - second.get(query, 0.0)) ** 2 for query in queries))


def on_queries(measured: Measured, queries: Collection[str]) -> Measured:
    """Restrict a source to some queries, in the pool in which it was measured. Source: METHOD 16.1."""
    keep = np.array([query in queries for query in measured.queries])
    columns = {field.name: getattr(measured, field.name) for field in fields(measured)}
    triplets = tuple(own for own, inside in zip(measured.triplets, keep, strict=True) if inside)
    arrays = {name: column[keep] for name, column in columns.items() if isinstance(column, np.ndarray)}
    return replace(measured, triplets=triplets, **arrays)


def shared_difference(first: Measured, second: Measured, budget: float = 1.0) -> tuple[float, float, int]:
    """Return the difference of two sources' scores on shared queries, its standard error, and the number of queries.

    Source: METHOD 16.1.
    """
    shared = set(first.queries) & set(second.queries)
    parts = [on_queries(side, shared) for side in (first, second)]
    a, b = (log_det_nats(singular_values(part.weight, part.direction), budget) for part in parts)
    error = paired_standard_error(*(source_sums(part, budget) for part in parts))
    return a - b, error, len(shared)


def bias_nats(queries: Sequence[str], weight: np.ndarray, direction: np.ndarray, budget: float = 1.0) -> float:
    """Return by how much a sample's score is too low on average, in nats, >= 0.

    B^2 / 2 * sum over queries of tr((A^-1 S_r)^2), S_r = sum over the query of (w_i u_i u_i' - M) / N.
    Source: METHOD 8.
    """
    whitened = _whitened(weight, direction, budget)
    members: dict[str, list[int]] = {}
    for index, query in enumerate(queries):
        members.setdefault(query, []).append(index)
    square = math.fsum(whitened.eigenvalues**2)
    parts = []
    for indices in members.values():
        rows = whitened.rows[indices]
        own = float(np.sum((rows @ rows.T) ** 2))
        cross = float(np.sum(rows**2 @ whitened.eigenvalues))
        parts.append(own - 2 * len(indices) * cross + len(indices) ** 2 * square)
    return 0.5 * budget**2 * math.fsum(parts) / len(weight) ** 2


def bootstrap_scores(
    queries: Sequence[str],
    weight: np.ndarray,
    direction: np.ndarray,
    *,
    n_resamples: int,
    generator: np.random.Generator,
    budget: float = 1.0,
) -> np.ndarray:
    """Return the scores of `n_resamples` resamples of the queries with replacement, (n_resamples,) float64 nats.

    A query adds all its triplets each time it is drawn. Source: METHOD 8 (cross-check only).
    """
    names, cluster = np.unique(np.array(queries, dtype=object).astype(str), return_inverse=True)
    scores = []
    for _ in range(n_resamples):
        drawn = np.bincount(generator.integers(len(names), size=len(names)), minlength=len(names))
        times = drawn[cluster]
        # singular_values divides by its number of rows; this resample has times.sum() of them.
        scaled = weight * times * (len(weight) / times.sum())
        scores.append(log_det_nats(singular_values(scaled, direction), budget))
    return np.array(scores)


def two_sided_p(z: float) -> float:
    """Return P(|Z| >= |z|) for a standard normal Z."""
    return math.erfc(abs(z) / math.sqrt(2.0))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm-adjusted p values in input order: the k-th smallest of m times (m - k + 1), monotone, at most 1."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    for rank, index in enumerate(order):
        adjusted[index] = min(1.0, p_values[index] * (len(p_values) - rank))
    for before, after in pairwise(order):
        adjusted[after] = max(adjusted[after], adjusted[before])
    return adjusted


def queries_needed(n_queries: int, z: float, z_star: float, power_z: float = 0.0) -> float:
    """Return the queries needed to separate two sources: n ((z* + power_z) / z)^2; power_z 0 for 50 %, 0.84 for 80 %.

    Infinite if z = 0. Source: METHOD 8.
    """
    return n_queries * ((z_star + power_z) / z) ** 2 if z != 0 else math.inf
