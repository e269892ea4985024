"""Overlap of pairs of sources, from ids alone. No torch is imported, since `secid check` uses it too."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, combinations, pairwise
from typing import NamedTuple

import numpy as np

from secid.analyses.analysis import Analysis, AnalysisResult, Context
from secid.arrays import Floats, Index, distinct, pairs
from secid.results import Overlap


class SourceNegatives(NamedTuple):
    """Triplets of a source, at least one. query, negative: (T,) ids of query and passage. Repeats count once."""

    name: str
    query: Index
    negative: Index


def compute(context: Context) -> AnalysisResult[tuple[Overlap, ...]]:
    """Return the overlap of each pair of sources, the higher-ranked source first."""
    return AnalysisResult(
        overlaps([SourceNegatives(item.name, item.triplets.query, item.triplets.negative) for item in context.items])
    )


def overlaps(sources: Sequence[SourceNegatives]) -> tuple[Overlap, ...]:
    """Return the overlap of each pair of sources, relative to the smaller source; empty for a single source."""
    documents = [distinct(source.negative) for source in sources]
    known = np.zeros(max((int(ids[-1]) for ids in documents), default=0) + 1, np.bool_)
    n_queries = [len(distinct(source.query)) for source in sources]
    n_shared, jaccard = _shared_queries(sources)
    result = []
    for a, source in enumerate(sources):
        known[documents[a]] = True
        for b in range(a + 1, len(sources)):
            shares = n_shared[a, b], jaccard[a, b], min(n_queries[a], n_queries[b])
            n_both, n_documents = int(known[documents[b]].sum()), min(len(documents[a]), len(documents[b]))
            result.append(overlap_of(source.name, sources[b].name, *shares, n_both, n_documents))
        known[documents[a]] = False
    return tuple(result)


def overlap_of(
    first: str, second: str, n_shared: int, jaccard: float, n_queries: int, n_shared_documents: int, n_documents: int
) -> Overlap:
    """Build the overlap of two sources.

    n_shared : number of shared queries.   jaccard : sum over these queries, as in `jaccard_sums`.
    n_shared_documents : number of shared documents.
    n_queries   : number of distinct queries in the source with fewer.
    n_documents : number of distinct documents in the source with fewer.
    """
    return Overlap(
        first=first,
        second=second,
        shared_query_fraction=int(n_shared) / n_queries,
        negative_jaccard_mean=float(jaccard) / int(n_shared) if n_shared else None,
        shared_document_fraction=n_shared_documents / n_documents,
    )


def jaccard_sums(sources: Sequence[SourceNegatives]) -> list[tuple[str, str, float]]:
    """Return (first, second, sum over shared queries of |common negatives| / |negatives of either|) of each pair."""
    _, sums = _shared_queries(sources)
    pairs_of = combinations(range(len(sources)), 2)
    return [(sources[a].name, sources[b].name, float(sums[a, b])) for a, b in pairs_of]


def _shared_queries(sources: Sequence[SourceNegatives]) -> tuple[Index, Floats]:
    """Return (S, S) number of queries that source a shares with each later source b, and sums as in `jaccard_sums`.

    A cell is one query of one source. The triplets of all sources are concatenated, so that each source can be compared
    with all later sources at once.
    """
    n_shared, sums = np.zeros((len(sources),) * 2, np.int64), np.zeros((len(sources),) * 2)
    if len(sources) < 2:
        return n_shared, sums
    top = max(int(source.negative.max()) for source in sources) + 1
    listed = [distinct(pairs(source.query, source.negative, top)) for source in sources]
    starts = [0, *accumulate(map(len, listed))]
    whole = np.concatenate(listed)
    query, source = whole // top, np.repeat(np.arange(len(sources)), np.diff(starts))
    triplet = np.unique(whole, return_inverse=True)[1]
    first = (np.diff(source, prepend=-1) != 0) | (np.diff(query, prepend=-1) != 0)
    cell = np.cumsum(first) - 1
    of_query, of_source, size = query[first], source[first], np.bincount(cell)
    known, n_negatives = np.zeros(len(whole), np.bool_), np.zeros(int(query.max()) + 1)
    for a, (start, stop) in enumerate(pairwise(starts)):
        known[triplet[start:stop]] = True
        both = np.bincount(cell[stop:], known[triplet[stop:]], len(size))
        known[triplet[start:stop]] = False
        here = of_source == a
        n_negatives[of_query[here]] = size[here]
        n_own = np.where(of_source > a, n_negatives[of_query], 0)
        n_negatives[of_query[here]] = 0
        shared = n_own > 0
        n_shared[a] = np.bincount(of_source, shared, len(sources))
        sums[a] = np.bincount(of_source[shared], (both / (n_own + size - both))[shared], len(sources))
    return n_shared, sums


OVERLAP = Analysis("overlap", tuple[Overlap, ...], compute)
