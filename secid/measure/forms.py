"""Quadratic forms of the rows n - p, query by query, in a basis where their matrices are diagonal: the second pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from secid.measure import blocks
from secid.measure.blocks import Block, Triplets, Vectors, Window, windowed
from secid.measure.packed_matrix import PackedMatrix, can_pack
from secid.measure.side_by_side import Scratch, side_by_side

Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
Found = TypeVar("Found")

TILE_BYTES = 3 << 20
"""Rows of some queries, scaled for every budget: on a CPU they stay near its cache between two operations. Measured at
768 dimensions, 10 negatives, 6 budgets: scaling all of a block at once takes twice as long."""


class Forms(NamedTuple):
    """What the second pass leaves, of rows v = sqrt(amount) (n - p) in a basis where A^-1 is diagonal.

    forms        : (T, B) v_i^T A^-1 v_i.
    pairs        : (B,) sum over queries of tr((A^-1 S)^2), S = sum over the query of v_i v_i^T.
    by_dimension : (d,) sum over triplets of v_i^2, times the excess of i's query.
    """

    forms: Floats
    pairs: Floats
    by_dimension: Floats


def quadratic_forms(
    vectors: Vectors,
    triplets: Triplets,
    amount: Floats,
    cluster: Index,
    excess: Floats,
    basis: Tensor,
    shrink: Tensor,
) -> Forms:
    """One pass over the triplets. amount: (T,); cluster: (T,) query of each; excess: (Q,); shrink: (B, d) of A^-1."""
    device = vectors.passages.device
    narrow, scratch = shrink.to(device, torch.float32), Scratch(device)
    found = Forms(np.zeros((len(cluster), len(shrink))), np.zeros(len(shrink)), np.zeros(shrink.shape[1]))

    def work(block: Block, rows: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        forms, pairs = _forms_and_pairs(rows.view(-1, block.k, rows.shape[1]), narrow, scratch)
        times = torch.from_numpy(np.repeat(excess[block.groups], block.k)).to(device, rows.dtype)
        return forms, pairs, times @ rows.square_() if times.any() else None

    for block, (forms, pairs, by_dimension) in by_query(vectors, triplets, amount, cluster, basis, work):
        found.forms[block.places[block.real]] = forms.cpu().numpy()[block.real]
        found.pairs[:] += pairs.cpu().numpy()
        if by_dimension is not None:
            found.by_dimension[:] += by_dimension.cpu().numpy()
    return found


def squared_lengths(vectors: Vectors, triplets: Triplets, amount: Floats, cluster: Index, rotation: Tensor) -> Floats:
    """(T,) squared length of each rotated row v."""
    found = np.zeros(len(cluster))
    for block, lengths in by_query(vectors, triplets, amount, cluster, rotation, lambda _, rows: rows.square_().sum(1)):
        found[block.places[block.real]] = lengths.cpu().numpy()[block.real]
    return found


def by_query(
    vectors: Vectors,
    triplets: Triplets,
    amount: Floats,
    cluster: Index,
    rotation: Tensor,
    work: Callable[[Block, Tensor], Found],
) -> Iterator[tuple[Block, Found]]:
    """What `work` finds in each block of whole queries, given the block and its rows v rotated, (slots, d), which it
    may write to; those of padding are 0.
    """
    device = vectors.passages.device
    narrow, scratch = rotation.to(device, torch.float32), Scratch(device)
    many = len(cluster) > blocks.BLOCK_TRIPLETS  # one block has nothing beside it, nor is its matrix worth a layout
    rotate = PackedMatrix(narrow.T).product if many and can_pack(device, narrow.dtype) else partial(_product, narrow)
    order = np.argsort(cluster, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(cluster))])
    length = np.sqrt(amount)

    def one(window: Window, block: Block) -> Found:
        rows = window.differences(block, scratch.take("rows", len(block.places), vectors.dimension))
        lengths = torch.from_numpy(length[block.places] * block.real).to(device, rows.dtype)
        return work(block, rotate(rows.mul_(lengths.unsqueeze(1))))

    with side_by_side(device) if many else nullcontext(map) as each:
        for some, window in windowed(vectors, triplets, offsets, order):
            window.load()
            for block, part in zip(some, each(partial(one, window), some), strict=True):
                yield block, part
                if vectors.tick is not None:
                    vectors.tick(int(block.real.sum()))


def _product(matrix: Tensor, rows: Tensor) -> Tensor:
    return rows @ matrix


def _forms_and_pairs(rows: Tensor, shrink: Tensor, scratch: Scratch) -> tuple[Tensor, Tensor]:
    """(q k, B) v_i^T C v_i, and (B,) the sum over queries of (v_i^T C v_j)^2 over all i and j, float64.

    rows : (q, k, d), the v of each query.   shrink : (B, d), the diagonal of each C.
    """
    (q, k, d), n = rows.shape, len(shrink)
    if k * n > d:  # measured at 768 dimensions and 6 budgets: level at 150 negatives
        return _forms_and_sums(rows, shrink)
    tile = max(1, TILE_BYTES // (4 * k * n * d)) if rows.device.type == "cpu" else q
    products = scratch.take("products", q, k, n * k)
    for start in range(0, q, tile):
        some, out = rows[start : start + tile], products[start : start + tile]
        scaled = scratch.take("scaled", len(some), n, k, d)
        torch.mul(some.unsqueeze(1), shrink.unsqueeze(1), out=scaled)
        torch.bmm(some, scaled.view(-1, n * k, d).mT, out=out)
    forms = products.view(q, k, n, k).diagonal(dim1=1, dim2=3).transpose(1, 2).reshape(q * k, n)
    lengths = torch.linalg.vector_norm(products.view(q * k, n * k), dim=0, dtype=torch.float64)
    return forms.double(), lengths.square().view(n, k).sum(1)


def _forms_and_sums(rows: Tensor, shrink: Tensor) -> tuple[Tensor, Tensor]:
    """By tr((C S)^2) = c^T (S o S) c, S the sum of v v^T of a query: less work where it has many triplets."""
    wide, d = shrink.double(), rows.shape[2]
    squares = torch.zeros(d, d, dtype=torch.float64, device=rows.device)
    for some in rows:
        squares += (some.T @ some).square_()
    forms = rows.square().view(-1, d) @ shrink.T
    return forms.double(), ((wide @ squares) * wide).sum(1)
