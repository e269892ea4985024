"""Exact search by the dot product, and BM25 over token keys: the same candidates on every processor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from secid.arrays import SCORE_UNIT, Floats, Index, best, best_first, distinct, rounded
from secid.measure.blocks import Role, Vectors
from secid.pool.coverage import Vocabulary
from secid.pool.texts import Packed
from secid.pool.tokens import token_stream
from secid.triplets.embedding import rows_of_ids

# BM25 over token keys, equal to the last bit on every processor.
#
# The formula is the default of bm25s, Lucene's: a query's token t of which a document of l tokens has f adds ln(1 + (N
# - n + 1/2) / (n + 1/2)) f / (f + k1 (1 - b + b l / mean l)), as often as the query has it; N documents, n with the
# token. Only IEEE operations that round in one way are used: a logarithm in decimal, quotients, and sums of whole
# multiples of a power of two, which are exact in any order. Source: METHOD 6.

K1, B = 1.5, 0.75
WEIGHT_UNIT = 2.0**-40
"""Each token's contribution is rounded to this unit, so that sums up to 2^13 are exact."""
DECIMAL = Context(prec=28)
GROUP_SIZE = 64
"""Documents of a group: the k-th largest of the best scores of all groups bounds the k-th largest score from below."""


class Bm25Index:
    """BM25 of documents for some queries.

    n_query_tokens : number of distinct query tokens.   n_document_tokens : number of all document tokens.
    """

    def __init__(self, queries: Packed, documents: Iterable[Packed], tokenizer: str) -> None:
        """Index the texts. A query without a token finds nothing; a document without one is never found."""
        keys, n_tokens = token_stream(queries, tokenizer, "query")
        vocabulary = Vocabulary(distinct(keys))
        self._asked = _counts(vocabulary, keys, n_tokens)
        parts, lengths = [_counts(vocabulary, keys[:0], n_tokens[:0])], [np.zeros(0, np.int64)]
        for texts in documents:
            keys, n_tokens = token_stream(texts, tokenizer, "passage")
            parts.append(_counts(vocabulary, keys, n_tokens))
            lengths.append(n_tokens)
        self.n_query_tokens, self.n_document_tokens = len(vocabulary.keys), int(sum(map(np.sum, lengths)))
        counts = sparse.vstack(parts, format="csr")
        self._n_documents = counts.shape[0]
        postings = _weights(counts, np.concatenate(lengths)).T.tocsr()
        self._postings = [
            self._posting(postings.indices[first:last], postings.data[first:last])
            for first, last in pairwise(postings.indptr.tolist())
        ]

    def best(self, queries: Index, k: int) -> tuple[Index, Floats]:
        """Return (q, k) numbers of each query's k best documents, and their scores; only shared tokens count.

        queries : (q,) numbers. The documents must be in the order of their text keys. Missing ones are -1 and NaN.
        """
        places, scores = np.full((len(queries), k), -1), np.full((len(queries), k), np.nan)
        of_block = np.zeros((GROUP_SIZE, -(-self._n_documents // GROUP_SIZE)))
        of_all = of_block.ravel()
        for row, query in enumerate(queries.tolist()):
            of_all.fill(0.0)
            asked = slice(*self._asked.indptr[query : query + 2])
            for token, times in zip(self._asked.indices[asked].tolist(), self._asked.data[asked].tolist(), strict=True):
                documents, weights = self._postings[token]
                of_all[documents] += weights if times == 1 else times * weights
            largest = of_block.max(axis=0)
            kth = np.partition(largest, -k)[-k] if k <= len(largest) else 0.0  # of k documents at least
            found = np.flatnonzero(of_all >= max(kth - SCORE_UNIT, WEIGHT_UNIT))
            own = found[best(of_all[found], found, k)]
            places[row, : len(own)], scores[row, : len(own)] = own, of_all[own]
        return places, scores

    def _posting(self, documents: npt.NDArray[np.int32], weights: Floats) -> tuple[Any, Floats]:
        """Documents that hold a token, and what it adds to their scores; all documents where most of them hold it."""
        if 2 * len(documents) < self._n_documents:
            return documents, weights
        of_all = np.zeros(self._n_documents)
        of_all[documents] = weights
        return slice(self._n_documents), of_all


def _counts(vocabulary: Vocabulary, keys: Any, n_tokens: Index) -> Any:
    """(n, V) sparse: how often each text has each token of the vocabulary. keys, n_tokens : of token_stream."""
    place = vocabulary.places(keys)
    known = place >= 0
    text = np.repeat(np.arange(len(n_tokens)), n_tokens)[known]
    shape = len(n_tokens), max(1, len(vocabulary))
    return sparse.coo_array((np.ones(len(text)), (text, place[known])), shape).tocsr()


def _weights(counts: Any, lengths: Index) -> Any:
    """(n, V) sparse: what each token adds to the score of each document. lengths : (n,) tokens of each."""
    n_having, n = np.bincount(counts.indices, minlength=counts.shape[1]), len(lengths)
    distinct_counts, which = np.unique(n_having, return_inverse=True)
    idf = np.array([_idf(n, having) for having in distinct_counts.tolist()])[which]
    mean = max(1, int(lengths.sum())) / max(1, n)
    slack = np.repeat(K1 * (1 - B + B * lengths / mean), np.diff(counts.indptr))
    counts.data = rounded(idf[counts.indices] * (counts.data / (counts.data + slack)), WEIGHT_UNIT)
    return counts


def _idf(n: int, having: int) -> float:
    return float(DECIMAL.ln(DECIMAL.divide(Decimal(2 * n + 2), Decimal(2 * having + 1))))


# Exact search by the dot product: the same candidates on every processor, for the same rows.
#
# nearest             the k largest dot products of each query as the device rounds them
# dots                dot products in float64, the same to the last bit everywhere
# nearest_passages    the k best candidates: found by the first, ordered by the second

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
            scores = rows @ part.T
            if n_before == 0:
                best.append(scores.topk(min(k, len(part)), dim=1))
                continue
            scores, places = _candidates(scores, best[number][0], k)
            scores = torch.cat([best[number][0], scores], dim=1)
            places = torch.cat([best[number][1], places + n_before], dim=1)
            scores, order = scores.topk(min(k, scores.shape[1]), dim=1)
            best[number] = scores, places.gather(1, order)
        n_before += len(part)
    if not best:
        nothing = torch.empty(sum(map(len, queries)), 0)
        return nothing, nothing.long()
    scores, places = (torch.cat(parts) for parts in zip(*best, strict=True))
    return scores, places


def _candidates(scores: Tensor, best: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return (q, m) scores and places that hold all which may join the k best. best : (q, k or fewer) so far.

    On a CPU these are the scores above the k-th so far, which takes a fraction of the time of a selection; what is
    left of a row is -inf. On other devices the host would have to wait for their number.
    """
    if scores.device.type != "cpu" or best.shape[1] < k:
        return scores.topk(min(k, scores.shape[1]), dim=1)
    above = torch.from_numpy(np.flatnonzero((scores > best[:, -1:]).numpy()))  # torch's own takes ten times as long
    query, place = above // scores.shape[1], above % scores.shape[1]
    n = query.bincount(minlength=len(scores))
    most = int(n.max()) if len(n) else 0
    if most > 4 * k:  # the passages come from far to near
        return scores.topk(min(k, scores.shape[1]), dim=1)
    column = torch.arange(len(query)) - (n.cumsum(0) - n)[query]
    found = scores.new_full((len(scores), most), -torch.inf)
    places = torch.zeros(found.shape, dtype=torch.long)
    found[query, column], places[query, column] = scores[query, place], place
    return found, places


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
    if vectors.gather is None:
        return next(rows_of_ids(vectors, role, ids, len(ids)))
    own = distinct(ids)
    rows = torch.cat(list(rows_of_ids(vectors, role, own, len(own))))
    return rows[torch.from_numpy(np.searchsorted(own, ids)).to(rows.device)]
