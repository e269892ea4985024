"""How sure a score is: influence of every triplet, standard errors by query, bias, at any budget.

The second pass. With M = V diag(e) V^T, rows rotated by V give u^T (I + B M)^-1 u for every budget B
from one matrix product; only the coefficients 1 / (1 + B e) differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose

import numpy as np
import torch
from torch import Tensor

from secid.arrays import Floats, Index, distinct
from secid.measure.blocks import Triplets, Vectors
from secid.measure.forms import by_query, gram, quadratic_forms, scaled_rows
from secid.measure.information import Eigen, InformationState, factor_nats, factor_of
from secid.measure.interval import ROUNDING_NATS, Difference
from secid.measure.sweep import SymmetricSum

PART_ROWS = 8192
"""Rows in float64 at once."""


@dataclass(frozen=True)
class Influence:
    """First-order effect of each triplet on ECI_B, and what follows from it. Source: METHOD 8.

    budgets    : the B of each column.
    per_triplet: (T,) h_i at the first budget; sums to 0 up to rounding.
    information: (T,) share_i w_i u_i^T A^-1 u_i at the first budget, >= 0: what each triplet holds of
                 the score, to first order.
    queries    : (Q,) distinct query ids, sorted.   per_query : (Q, len(budgets)) sums of h_i over a
                 query's triplets, divided by N: one observation of the clustered variance each.
    bias_nats  : (len(budgets),) how much a sample of this size falls short on average, >= 0; of no length where it
                 was not asked for.
    """

    budgets: tuple[float, ...]
    per_triplet: Floats
    information: Floats
    queries: Index
    per_query: Floats
    bias_nats: Floats

    @property
    def n_queries(self) -> int:
        """Distinct queries, Q."""
        return len(self.queries)

    def standard_errors(self) -> Floats:
        """(len(budgets),) standard error of ECI_B in nats, queries being the sampling unit."""
        errors: Floats = np.sqrt((self.per_query**2).sum(axis=0))
        return errors

    def column(self, budget: float | None) -> int:
        """Place of a budget, the first where None. Raises ValueError for another."""
        return 0 if budget is None else self.budgets.index(budget)


def influence(
    vectors: Vectors,
    triplets: Triplets,
    squared_distance: Floats,
    weight: Floats,
    eigen: Eigen,
    smallest_distance: float,
    budgets: Sequence[float] = (1.0,),
    dtype: torch.dtype = torch.float32,
) -> Influence:
    """Influence of every triplet at each budget, with A = I + B M by the eigenvalues of M.

    squared_distance, weight : (T,) ||n - p||^2, and the w that M was summed with.
    smallest_distance        : as in the sweep.   dtype : of the rows rotated into the basis of M.
    h_i = B share_i (w_i u_i^T A^-1 u_i - tr(A^-1 M)); bias = B^2/2 sum over queries of tr((A^-1 S_r)^2).
    Source: METHOD 8.
    """
    eigenvalues, n = eigen.values, eigen.n_negatives
    budget = np.asarray(budgets, dtype=np.float64)
    shrink = 1.0 / (1.0 + budget[:, None] * eigenvalues)  # (B, d) of A^-1
    shift = (shrink * eigenvalues).sum(axis=1)  # tr(A^-1 M)
    share = np.ones(len(triplets)) if triplets.share is None else triplets.share
    queries, cluster = np.unique(triplets.query, return_inverse=True)
    size = np.bincount(cluster, share, len(queries)).astype(np.float64)
    amount = _amounts(share * weight, squared_distance, smallest_distance)
    # the sum of a_i v_i^2 is N e where M is of these triplets alone: of queries of one size nothing is left
    usual = float(np.median(size)) if len(size) and isclose(size.sum(), n) else 0.0
    products = quadratic_forms(vectors, triplets, amount, cluster, size - usual, eigen.basis, shrink, dtype)
    mixed = shrink**2 * eigenvalues  # diagonal of A^-1 M A^-1
    square_shift = (shrink**2 * eigenvalues**2).sum(axis=1)  # tr((A^-1 M)^2)
    by_dimension = products.by_dimension + usual * n * eigenvalues
    squares = products.pairs - 2.0 * mixed @ by_dimension + square_shift * (size**2).sum()
    per_query = budget * (products.per_query - size[:, None] * shift) / n
    bias = np.maximum(0.5 * budget**2 * squares / n**2, 0.0)
    h = budget[0] * (products.first - share * shift[0])
    return Influence(tuple(map(float, budgets)), h, products.first, queries, per_query, bias)


def influence_of_few(
    vectors: Vectors,
    triplets: Triplets,
    squared_distance: Floats,
    weight: Floats,
    smallest_distance: float,
    budget: float,
    dtype: torch.dtype = torch.float32,
) -> tuple[Influence, Floats]:
    """As `influence` at one budget without the bias (of no length), and the eigenvalues of M that are not 0, rising.

    By the T x T products of the rows in place of M: much less where triplets are fewer than dimensions. METHOD 8.
    """
    share = np.ones(len(triplets)) if triplets.share is None else triplets.share
    n = triplets.n_negatives
    values, basis = torch.linalg.eigh(
        gram(vectors, triplets, _amounts(share * weight, squared_distance, smallest_distance), dtype)
    )
    values = values.clamp_min(0.0)
    forms = (basis.square() @ (values / (1.0 + budget / n * values))).cpu().numpy()
    h = budget * (forms - share * forms.sum() / n)  # tr(A^-1 M) is the mean of the forms
    queries, cluster = np.unique(triplets.query, return_inverse=True)
    per_query = np.bincount(cluster, h, len(queries))[:, None] / n
    return Influence((float(budget),), h, forms, queries, per_query, np.zeros(0)), values.cpu().numpy() / n


def information(
    vectors: Vectors,
    triplets: Triplets,
    squared_distance: Floats,
    weight: Floats,
    smallest_distance: float,
    dtype: torch.dtype = torch.float32,
) -> InformationState:
    """The state of triplets whose weights are known: what the sweep would leave of them, without their gates.

    squared_distance, weight, smallest_distance : as in `influence`.   dtype : of the products within a block.
    Source: METHOD 2.7.
    """
    share = np.ones(len(triplets)) if triplets.share is None else triplets.share
    total = SymmetricSum(vectors.dimension, vectors.computes_on, dtype)
    amount = _amounts(share * weight, squared_distance, smallest_distance)
    cluster = np.unique(triplets.query, return_inverse=True)[1]
    for _, rows in by_query(vectors, triplets, amount, cluster, None, lambda _, rows: rows.clone(), dtype):
        total.add(rows, rows)
    return InformationState(total.matrix(), triplets.n_negatives)


@dataclass(frozen=True)
class Part:
    """ECI_sem of some triplets. per_triplet : (T,) h_i; 0 for those that do not count. Source: METHOD 8."""

    nats: float
    per_triplet: Floats


def scores_of_parts(
    vectors: Vectors,
    triplets: Triplets,
    squared_distance: Floats,
    weight: Floats,
    smallest_distance: float,
    shares: Sequence[Floats],
) -> list[Part]:
    """ECI_sem and influences of several parts of one set of triplets, whose rows are read once and kept together.

    squared_distance, weight, smallest_distance : as in `influence`.
    shares : of each part (T,) what every triplet counts there, 0 where it is left out; their own shares do not enter.
    By a Cholesky factor of I + M a part: a tenth of the time of eigenvectors. Source: METHOD 2, 8.
    """
    rows = scaled_rows(vectors, triplets, _amounts(weight, squared_distance, smallest_distance))
    parts = []
    for share in shares:
        keep = np.flatnonzero(share)
        place, counts = (torch.from_numpy(part).to(rows.device) for part in (keep, share[keep]))
        nats, h = _part(rows.index_select(0, place), counts, float(share.sum()))
        per_triplet = np.zeros(len(share))
        per_triplet[keep] = h
        parts.append(Part(nats, per_triplet))
    return parts


def _part(rows: Tensor, share: Tensor, n: float) -> tuple[float, Floats]:
    """Score and influences of rows that count `share` each, n together."""
    matrix = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.float64, device=rows.device)
    pieces = list(zip(torch.split(rows, PART_ROWS), torch.split(share, PART_ROWS), strict=True))
    for some, counts in pieces:
        wide = some.double()
        matrix += wide.T @ (wide * (counts / n).unsqueeze(1))
    lower = factor_of(matrix)
    forms = torch.cat(
        [
            torch.linalg.solve_triangular(lower, some.double().T, upper=False).square().sum(0) * counts
            for some, counts in pieces
        ]
    )
    h = forms - share * forms.sum() / n  # tr(A^-1 M) is the mean of the forms
    return factor_nats(lower), h.cpu().numpy()


def _amounts(weight: Floats, squared_distance: Floats, smallest_distance: float) -> Floats:
    """(T,) weight / ||n - p||^2, so that rows n - p need no scaling to length 1.

    0 where n - p is not longer than the smallest distance, so that u = 0.
    """
    usable = squared_distance > smallest_distance**2
    return np.where(usable, np.maximum(weight, 0.0) / np.where(usable, squared_distance, 1.0), 0.0)


def difference(first: Influence, second: Influence, nats: float, budget: float | None = None) -> Difference:
    """Paired standard error of a difference: per-query sums are subtracted query by query.

    nats : score of the first minus score of the second.   budget : one of both, the first of each where None.
    Source: METHOD 8.
    """
    ours, theirs = first.per_query[:, first.column(budget)], second.per_query[:, second.column(budget)]
    if np.array_equal(first.queries, second.queries):  # as most sources of a run: a fifth of the time
        queries, gap = first.queries, ours - theirs
    else:
        queries = np.union1d(first.queries, second.queries)
        gap = np.zeros(len(queries))
        gap[np.searchsorted(queries, first.queries)] += ours
        gap[np.searchsorted(queries, second.queries)] -= theirs
    n_shared = len(first.queries) + len(second.queries) - len(queries)
    n_queries = min(len(first.queries), len(second.queries))
    return Difference(nats, float(np.sqrt((gap**2).sum())), n_queries, n_shared)


def covariance(parts: Sequence[Influence]) -> Floats:
    """(S, S) covariance of the scores of sources at the first budget, by the queries they share. Source: METHOD 8."""
    queries = distinct(np.concatenate([part.queries for part in parts]))
    table = np.zeros((len(queries), len(parts)))
    for place, part in enumerate(parts):
        table[np.searchsorted(queries, part.queries), place] = part.per_query[:, 0]
    return table.T @ table


def probability_first(scores: Floats, covariances: Floats, seed: int, n_draws: int = 100_000) -> Floats:
    """(S,) how often each source comes first when scores are drawn from their joint normal.

    Sources level to rounding share the first place. 100,000 draws give a standard error of at most 0.0016.
    Source: METHOD 8.
    """
    values, axes = np.linalg.eigh(covariances)
    noise = np.random.default_rng(seed).standard_normal((n_draws, len(scores)))
    draws = scores + noise @ (axes * np.sqrt(np.maximum(values, 0.0))).T
    level = draws >= draws.max(axis=1, keepdims=True) - ROUNDING_NATS
    shares: Floats = (level / level.sum(axis=1, keepdims=True)).mean(axis=0)
    return shares


def holm(p_values: Floats) -> Floats:
    """Holm-adjusted p values, in [0, 1] and never below the given ones. Empty in, empty out."""
    order = np.argsort(p_values)
    factors = len(p_values) - np.arange(len(p_values))
    adjusted = np.minimum(1.0, np.maximum.accumulate(p_values[order] * factors))
    out = np.empty(len(p_values))
    out[order] = adjusted
    return out
