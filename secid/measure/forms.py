"""Quadratic forms of the rows n - p, query by query, in a basis where their matrices are diagonal: the second pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from secid.arrays import Floats, Index
from secid.measure.blocks import Block, Triplets, Vectors, Window, block_plan, windows
from secid.measure.packed_matrix import PackedMatrix, can_pack
from secid.measure.side_by_side import Scratch, side_by_side

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

    def work(block: Block, rows: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
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
    work: Callable[[Block, Tensor], Result],
    dtype: torch.dtype = torch.float32,
) -> Iterator[tuple[Block, Result]]:
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

    def one(window: Window, block: Block) -> Result:
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
