"""Exact search by the dot product: the same candidates on every processor, for the same rows.

nearest             the k largest dot products of each query as the device rounds them
dots                dot products in float64, the same to the last bit everywhere
nearest_passages    the k best candidates: found by the first, ordered by the second
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from secid.arrays import Floats, Index, best_first, distinct, rounded
from secid.measure.blocks import Role, Vectors
from secid.triplets.embedding import rows_of_ids

QUERY_BLOCK, WINDOW = 1_024, 16_384
"""Queries and candidates compared at once: 64 MB of scores."""
PAIRS_AT_ONCE = 1 << 11
"""Pairs of rows multiplied in float64 at once: 6 MB at 384 dimensions, which stay in the cache."""
COMPARED_BEYOND = 8
"""Candidates beyond the k best that are compared exactly, so that few queries are searched twice."""
ROUNDING = 2.0**-24
"""Largest relative error of one operation in float32."""


def nearest(queries: Sequence[Tensor], parts: Iterable[Tensor], k: int) -> tuple[Tensor, Tensor]:
    """(n, k) dot products and places of the k rows with the largest dot product with each query, best first.

    queries : (q, d) each, n in all.   parts : the rows, (w, d) each, at least k in all; without any the result is
    (n, 0). Which of equal ones come first is not defined. Nothing waits for the device.
    """
    best: list[tuple[Tensor, Tensor]] = []
    n_before = 0
    for part in parts:
        for number, rows in enumerate(queries):
            scores, places = (rows @ part.T).topk(min(k, len(part)), dim=1)
            places += n_before
            if n_before:
                scores = torch.cat([best[number][0], scores], dim=1)
                places = torch.cat([best[number][1], places], dim=1)
                scores, order = scores.topk(min(k, scores.shape[1]), dim=1)
                best[number] = scores, places.gather(1, order)
            else:
                best.append((scores, places))
        n_before += len(part)
    if not best:
        nothing = torch.empty(sum(map(len, queries)), 0)
        return nothing, nothing.long()
    scores, places = (torch.cat(parts) for parts in zip(*best, strict=True))
    return scores, places


def nearest_passages(vectors: Vectors, queries: Index, candidates: Index, k: int) -> tuple[Index, Floats]:
    """Return (q, k) places of each query's k best among the candidates, best first, and their scores in float64.

    queries : (q,) ids.   candidates : (n,) ids in the order of their text keys; with fewer than k the result is (q, n).
    A query is searched further while a candidate outside the compared ones could belong to its k best.
    """
    n = len(candidates)
    k, compared = min(n, k), min(n, k + COMPARED_BEYOND)
    places, scores = np.full((len(queries), k), -1), np.full((len(queries), k), np.nan)
    pending = np.arange(len(queries) if k else 0)
    while len(pending):
        best, values, outside = _compared(vectors, queries[pending], candidates, compared)
        done = (rounded(values[:, k - 1]) > rounded(outside)) | (compared == n)
        places[pending[done]], scores[pending[done]] = best[done, :k], values[done, :k]
        pending, compared = pending[~done], min(n, 2 * compared)
    return places, scores


def _compared(vectors: Vectors, queries: Index, candidates: Index, n: int) -> tuple[Index, Floats, Floats]:
    """Return each query's n best by float32, ordered by float64, and (q,) upper bounds on the score of all others.

    A sum of d rounded products is off by at most d roundings of |q| |p|, in whatever order it is added up.
    """
    anchors = list(rows_of_ids(vectors, "query", queries, QUERY_BLOCK))
    lengths: list[Tensor] = []

    def parts() -> Iterator[Tensor]:
        for rows in rows_of_ids(vectors, "passage", candidates, WINDOW):
            lengths.append(rows.norm(dim=1).max())
            yield rows

    rough, places = (part.cpu().numpy() for part in nearest(anchors, parts(), n))
    scores = dots(vectors, np.repeat(queries, n), candidates[places.ravel()]).reshape(places.shape)
    longest = torch.cat([rows.norm(dim=1) for rows in anchors]) * torch.stack(lengths).max()
    error = (vectors.dimension + 4) * ROUNDING * longest.double().cpu().numpy()
    order = best_first(scores, places)
    best, values = (np.take_along_axis(array, order, axis=1) for array in (places, scores))
    return best, values, rough[:, -1] + error


def dots(vectors: Vectors, queries: Index, passages: Index) -> Floats:
    """Return (n,) dot product of each pair's rows in float64, equal to the last bit on every processor.

    The product of two float32 numbers is exact in float64, and the sum folds each row in half until one number is
    left: neither other pairs nor the width of the processor's registers change the order of the additions.
    """
    parts = [torch.zeros(0, dtype=torch.float64)]
    for start in range(0, len(queries), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        products = _rows(vectors, "query", queries[part]).double()
        products *= _rows(vectors, "passage", passages[part])
        width = products.shape[1]
        while width > 1:
            half = (width + 1) // 2
            products[:, : width - half] += products[:, half:width]
            width = half
        parts.append(products[:, 0].cpu())
    return torch.cat(parts).numpy()


def _rows(vectors: Vectors, role: Role, ids: Index) -> Tensor:
    own = distinct(ids)
    rows = torch.cat(list(rows_of_ids(vectors, role, own, len(own))))
    return rows[torch.from_numpy(np.searchsorted(own, ids)).to(rows.device)]
