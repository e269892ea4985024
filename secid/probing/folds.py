"""Which queries may be trained on while others are held out: none that share a relevant passage with those.

In public collections up to 65 % of the test queries share one with a training query, and a split by query then rewards
memorising it. Source: METHOD 13.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from secid.arrays import Index, distinct, pairs
from secid.findings.copies import CONTAINED, PAIRS_AT_ONCE, ROUNDING, RunSets, near_copies
from secid.pool import sample_order
from secid.pool.texts import TextStore


def groups(query: Index, passage: Index, copies: tuple[Index, Index], n_queries: int) -> Index:
    """(n_queries,) group of each query, from 0: queries joined by labelled positives, directly or through others.

    query, passage : (L,) the labelled pairs.   copies : pairs of passages that nearly copy each other.
    A query without a pair is a group of its own. Source: METHOD 13.
    """
    n_passages = 1 + int(max([-1, *(part.max() for part in (passage, *copies) if len(part))]))
    size = n_queries + n_passages
    first = np.concatenate([query, copies[0] + n_queries])
    second = np.concatenate([passage, copies[1]]) + n_queries
    graph = sparse.coo_matrix((np.ones(len(first), np.bool_), (first, second)), shape=(size, size))
    of_all = sparse.csgraph.connected_components(graph, directed=False)[1][:n_queries]
    return np.unique(of_all, return_inverse=True)[1].astype(np.int64)


def folds(group: Index, queries: TextStore, ids: Index, n_folds: int, seed: int) -> Index:
    """(R,) fold of each row by a hash of its group, from 0; the same in whatever order the rows come.

    group : (R,) of each row.   ids : (R,) its query in `queries`.
    """
    numbers = sample_order(queries.keys[ids], seed)
    smallest = np.full(int(group.max(initial=-1)) + 1, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(smallest, group, numbers)  # one member stands for the group
    return (smallest[group] % np.uint64(n_folds)).astype(np.int64)


def copies_among(runs: RunSets) -> tuple[Index, Index]:
    """(n,) each, the pairs of passages of which one nearly copies the other, by the rule of `near_copy`.

    runs : of all passages. Whoever holds 80 % of a text's runs holds one of its rarest 20 % and one more, so only pairs
    that share one of these are compared: a phrase that all texts share costs nothing.
    """
    n = len(runs.offsets) - 1
    owner = np.repeat(np.arange(n), runs.sizes)
    _, column, uses = np.unique(runs.keys, return_inverse=True, return_counts=True)
    order = np.lexsort((column, uses[column], owner))
    place = np.arange(len(owner)) - np.repeat(runs.offsets[:-1], runs.sizes)
    rare = place <= (1 - CONTAINED) * runs.sizes[owner] + ROUNDING
    holds = _table(owner, column, n, len(uses))
    shared = (_table(owner[rare], column[order][rare], n, len(uses)) @ holds.T).tocoo()
    keys = distinct(pairs(np.minimum(shared.row, shared.col), np.maximum(shared.row, shared.col), n))
    first, second = keys // n, keys % n
    other = first != second
    first, second = first[other], second[other]
    near = np.zeros(len(first), np.bool_)
    for start in range(0, len(first), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        left, right = runs.take(first[part]), runs.take(second[part])
        near[part] = near_copies(left, right) | near_copies(right, left)
    return first[near], second[near]


def _table(row: Index, column: Index, n_rows: int, n_columns: int) -> Any:
    return sparse.csr_matrix((np.ones(len(row), np.float32), (row, column)), shape=(n_rows, max(1, n_columns)))
