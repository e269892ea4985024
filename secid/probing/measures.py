"""How well an encoder ranks: nDCG@10, MRR@10 and recall@100 of each query. A passage is relevant or not.

Source: METHOD 13.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from secid.arrays import Floats, Index, among, pairs

MEASURES = ("ndcg_10", "mrr_10", "recall_100")
QUERIES_AT_ONCE = 256
"""Queries whose scores with all candidates are in memory together: 20 MB for 20,000 candidates."""


def measures(queries: Tensor, candidates: Tensor, row: Index, place: Index) -> Floats:
    """(n, 3) MEASURES of each query, in [0, 1].

    queries, candidates : (n, d) and (C, d) unit rows.   row, place : (L,) query and candidate of each relevant pair;
    each query has one at least. Of candidates with one score the first comes first.
    """
    relevant = np.sort(pairs(row, place, len(candidates)))
    n_relevant = np.bincount(row, minlength=len(queries))
    discount = 1.0 / np.log2(np.arange(2, 12))
    ideal = np.concatenate([[0.0], np.cumsum(discount)])[np.minimum(n_relevant, 10)]
    out = np.zeros((len(queries), len(MEASURES)))
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        scores = queries[start : start + QUERIES_AT_ONCE] @ candidates.T
        first = torch.sort(scores, dim=1, descending=True, stable=True)[1][:, :100].cpu().numpy()
        numbers = np.arange(start, start + len(first))
        hit = among(pairs(numbers[:, None], first, len(candidates)), relevant)
        at_10 = np.zeros((len(first), 10), np.bool_)
        at_10[:, : hit.shape[1]] = hit[:, :10]
        out[numbers, 0] = at_10 @ discount / ideal[numbers]
        out[numbers, 1] = np.where(at_10.any(axis=1), 1.0 / (1 + at_10.argmax(axis=1)), 0.0)
        out[numbers, 2] = hit.sum(axis=1) / n_relevant[numbers]
    return out
