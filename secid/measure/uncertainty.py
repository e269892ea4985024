"""How sure a score is: influence of every triplet through quadratic forms, standard errors by query, bias."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import isclose
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from secid.arrays import Floats, Index, distinct
from secid.measure.blocks import (
    PackedMatrix,
    Scratch,
    SlotBlock,
    Triplets,
    Vectors,
    Window,
    block_plan,
    can_pack,
    side_by_side,
    windows,
)
from secid.measure.information import Eigen, InformationState, eigendecomposition, factor_nats, factor_of
from secid.measure.interval import ROUNDING_NATS, Difference
from secid.measure.sweep import SymmetricSums

# Quadratic forms of the rows n - p, query by query, in a basis where their matrices are diagonal: the second pass.

Result = TypeVar("Result")


class Forms(NamedTuple):
    """What the second pass leaves, of rows v = sqrt(amount) (n - p) in a basis where A^-1 is diagonal.

    first        : (T,) v_i^T A^-1 v_i at the first budget.
    per_query    : (Q, B) its sum over the query's triplets.
    pairs        : (B,) sum over queries of tr((A^-1 S)^2), S = sum over the query of v_i v_i^T.
    by_dimension : (d,) sum over triplets of v_i^2, times the excess of i's query.
    """

    first: Floats
    per_query: Floats
    pairs: Floats
    by_dimension: Floats


def quadratic_forms(
    vectors: Vectors,
    triplets: Triplets,
    amount: Floats,
    cluster: Index,
    excess: Floats,
    basis: Tensor,
    shrink: Floats,
    dtype: torch.dtype = torch.float32,
) -> Forms:
    """One pass over the triplets. amount: (T,); cluster: (T,) query of each; excess: (Q,); shrink: (B, d) of A^-1.

    dtype : of the rows in the basis, and their products.
    """
    device, (n_budgets, d) = vectors.computes_on, shrink.shape
    narrow, scratch = torch.from_numpy(shrink).to(device, dtype), Scratch(device, dtype)
    times, uneven = torch.from_numpy(excess).to(device, dtype), excess != 0
    first, per_query, pairs, by_dimension = (
        torch.zeros(shape, dtype=torch.float64, device=device)
        for shape in (len(cluster) + 1, (len(excess), n_budgets), n_budgets, d)
    )

    def work(block: SlotBlock, rows: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        forms, sums = _forms_and_pairs(rows.view(-1, block.host.k, d), narrow, scratch)
        if not uneven[block.host.groups].any():
            return forms, sums, None
        return forms, sums, times[block.groups].repeat_interleave(block.host.k) @ rows.square_()

    for block, (forms, sums, of_dimensions) in by_query(vectors, triplets, amount, cluster, basis, work, dtype):
        first.index_copy_(0, block.triplet, forms[:, 0])
        per_query.index_copy_(0, block.groups, forms.view(-1, block.host.k, n_budgets).sum(1))
        pairs += sums
        if of_dimensions is not None:
            by_dimension += of_dimensions
    return Forms(*(part.cpu().numpy() for part in (first[:-1], per_query, pairs, by_dimension)))


def gram(vectors: Vectors, triplets: Triplets, amount: Floats, dtype: torch.dtype = torch.float32) -> Tensor:
    """(T, T) float64 products of the rows v, kept as `dtype`, with each other: of few triplets, less than d x d."""
    wide = scaled_rows(vectors, triplets, amount, dtype).double()
    return wide @ wide.T


def scaled_rows(vectors: Vectors, triplets: Triplets, amount: Floats, dtype: torch.dtype = torch.float32) -> Tensor:
    """(T, d) rows v on the device, of triplets that are few enough to be kept together."""
    rows = torch.zeros(len(triplets) + 1, vectors.dimension, dtype=dtype, device=vectors.computes_on)
    cluster = np.unique(triplets.query, return_inverse=True)[1]
    for block, part in by_query(vectors, triplets, amount, cluster, None, lambda _, part: part.clone(), dtype):
        rows.index_copy_(0, block.triplet, part)
    return rows[:-1]


def by_query(
    vectors: Vectors,
    triplets: Triplets,
    amount: Floats,
    cluster: Index,
    rotation: Tensor | None,
    work: Callable[[SlotBlock, Tensor], Result],
    dtype: torch.dtype = torch.float32,
) -> Iterator[tuple[SlotBlock, Result]]:
    """What `work` makes of each block of whole queries, given the block and its rows v, (slots, d), which it may write
    to; those of padding are 0. rotation : (d, d) that rows are multiplied by; None for none.   dtype : of these rows.
    """
    device = vectors.computes_on
    plan, scratch = block_plan(device), Scratch(device)
    many = plan.in_threads and len(cluster) > plan.n_triplets  # one block has nothing to run next to
    narrow = None if rotation is None else rotation.to(device, dtype)
    packed = PackedMatrix(narrow.T) if narrow is not None and many and can_pack(device, narrow.dtype) else None
    order = np.argsort(cluster, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(cluster))])
    length = torch.from_numpy(np.append(np.sqrt(amount), 0.0)).to(device, dtype)

    def one(window: Window, block: SlotBlock) -> Result:
        rows = window.differences(block, scratch.take("rows", len(block.triplet), vectors.dimension))
        rows = rows.to(dtype).mul_(length[block.triplet].unsqueeze(1))
        if narrow is not None:
            rows = rows @ narrow if packed is None else packed.product(rows)
        return work(block, rows)

    with side_by_side(device) if many else nullcontext(map) as each:
        for window in windows(vectors, triplets, offsets, order, with_queries=False):
            for block, result in zip(window.blocks, each(partial(one, window), window.blocks), strict=True):
                yield block, result
                if vectors.tick is not None:
                    vectors.tick(block.host.n_triplets)


def _forms_and_pairs(rows: Tensor, shrink: Tensor, scratch: Scratch) -> tuple[Tensor, Tensor]:
    """(q k, B) v_i^T C v_i, and (B,) the sum over queries of (v_i^T C v_j)^2 over all i and j, float64.

    rows : (q, k, d), the v of each query.   shrink : (B, d), the diagonal of each C.
    """
    (q, k, d), n, tile_bytes = rows.shape, len(shrink), block_plan(rows.device).tile_bytes
    if k * n > d:  # measured at 768 dimensions and 6 budgets: level at 150 negatives
        return _forms_and_sums(rows, shrink, max(1, tile_bytes // (4 * d * d)))
    tile = max(1, tile_bytes // (4 * k * n * d))
    products = scratch.take("products", q, k, n * k)
    for start in range(0, q, tile):
        some, out = rows[start : start + tile], products[start : start + tile]
        scaled = scratch.take("scaled", len(some), n, k, d)
        torch.mul(some.unsqueeze(1), shrink.unsqueeze(1), out=scaled)
        torch.bmm(some, scaled.view(-1, n * k, d).mT, out=out)
    forms = products.view(q, k, n, k).diagonal(dim1=1, dim2=3).transpose(1, 2).reshape(q * k, n)
    lengths = torch.linalg.vector_norm(products.view(q * k, n * k), dim=0, dtype=torch.float64)
    return forms.double(), lengths.square().view(n, k).sum(1)


def _forms_and_sums(rows: Tensor, shrink: Tensor, tile: int) -> tuple[Tensor, Tensor]:
    """By tr((C S)^2) = c^T (S o S) c, S the sum of v v^T of a query: less work where it has many triplets."""
    wide, d = shrink.double(), rows.shape[2]
    squares = torch.zeros(d, d, dtype=torch.float64, device=rows.device)
    for some in torch.split(rows, tile):
        squares += torch.bmm(some.mT, some).square_().sum(0, dtype=torch.float64)
    forms = rows.square().view(-1, d) @ shrink.T
    return forms.double(), ((wide @ squares) * wide).sum(1)


# How sure a score is: influence of every triplet, standard errors by query, bias, at any budget.
#
# The second pass. With M = V diag(e) V^T, rows rotated by V give u^T (I + B M)^-1 u for every budget B
# from one matrix product; only the coefficients 1 / (1 + B e) differ.

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
    values, basis = eigendecomposition(
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
    total = SymmetricSums(1, vectors.dimension, vectors.computes_on, dtype)
    amount = _amounts(share * weight, squared_distance, smallest_distance)
    cluster = np.unique(triplets.query, return_inverse=True)[1]
    for _, rows in by_query(vectors, triplets, amount, cluster, None, lambda _, rows: rows.clone(), dtype):
        for part in total.products(rows, torch.ones_like(rows[:, :1])):
            total.add(*part)
    return InformationState(total.matrix(0), triplets.n_negatives)


@dataclass(frozen=True)
class ScorePart:
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
) -> list[ScorePart]:
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
        parts.append(ScorePart(nats, per_triplet))
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
