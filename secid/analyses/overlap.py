"""What pairs of sources share, from ids alone. No torch here: `secid check` asks for it too."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from secid.arrays import Index, among, distinct, pairs
from secid.results import Overlap


class Listed(NamedTuple):
    """One source: (T,) the query id and the negative's passage id of each triplet; at least one. Repeats count once."""

    name: str
    query: Index
    negative: Index


def overlaps(sources: Sequence[Listed]) -> tuple[Overlap, ...]:
    """What each pair of sources shares, over the smaller of the two; no pair gives the empty tuple."""
    result = []
    for a, b in combinations(sources, 2):
        documents = distinct(a.negative), distinct(b.negative)
        n_queries = min(len(distinct(a.query)), len(distinct(b.query)))
        n_documents = min(map(len, documents))
        n_shared = int(among(*documents).sum())
        result.append(overlap_of(a.name, b.name, *jaccard_sums(a, b), n_queries, n_shared, n_documents))
    return tuple(result)


def overlap_of(
    first: str, second: str, n_shared: int, jaccard: float, n_queries: int, n_shared_documents: int, n_documents: int
) -> Overlap:
    """What two sources share.

    n_shared, jaccard : as `jaccard_sums` gives them.   n_queries, n_documents : distinct ones of the smaller source.
    """
    return Overlap(
        first=first,
        second=second,
        shared_query_fraction=n_shared / n_queries,
        negative_jaccard_mean=jaccard / n_shared if n_shared else None,
        shared_document_fraction=n_shared_documents / n_documents,
    )


def jaccard_sums(a: Listed, b: Listed) -> tuple[int, float]:
    """How many queries two sources share, and the sum over them of |negatives in both| / |negatives in either|."""
    asked, also = distinct(a.query), distinct(b.query)
    queries = asked[among(asked, also)]
    if not len(queries):
        return 0, 0.0
    top = int(max(a.negative.max(), b.negative.max())) + 1
    first, second = (distinct(pairs(rows.query, rows.negative, top)) for rows in (a, b))
    n_queries = int(queries[-1]) + 1
    counts = [np.bincount(pair // top, minlength=n_queries)[queries] for pair in (first, second)]
    both = np.bincount(first[among(first, second)] // top, minlength=n_queries)[queries]
    return len(queries), float((both / (counts[0] + counts[1] - both)).sum())
