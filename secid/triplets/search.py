"""Exact search by dot product and by BM25, with the same results on every processor."""

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
# The formula is Lucene's, the default of bm25s. Each occurrence of a token in the query adds
#
#     ln(1 + (N - n + 1/2) / (n + 1/2)) f / (f + k1 (1 - b + b l / mean l))
#
# to the score of a document with l tokens, f of them this one. n of the N documents contain the token.
# Only operations with a defined rounding are used: logarithms in decimal, quotients, and sums of multiples of a power
# of two, which are exact in any order. Source: METHOD 6.

K1, B = 1.5, 0.75
WEIGHT_UNIT = 2.0**-40
"""Unit that each token's contribution is rounded to, so that sums up to 2^13 are exact."""
DECIMAL = Context(prec=28)
GROUP_SIZE = 64
"""Number of documents per group. The k-th largest of the groups' best scores is a lower bound of the k-th largest
score."""


class Bm25Index:
    """BM25 index of documents, for a fixed set of queries.

    n_query_tokens : number of distinct tokens in the queries.   n_document_tokens : number of tokens in all documents.
    """

    def __init__(self, queries: Packed, documents: Iterable[Packed], tokenizer: str) -> None:
        """Index the texts. A query without tokens gets no result, and a document without tokens is never a result."""
        keys, n_tokens = token_stream(queries, tokenizer, "query")
        vocabulary = Vocabulary(distinct(keys))
        self._query_tokens = _counts(vocabulary, keys, n_tokens)
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
        """Return (q, k) numbers of the k best documents for each query, and their scores.

        queries : (q,) numbers of queries. The documents must have been indexed in the order of their text keys.
        Only documents that share a token with the query are returned; missing results are -1 and NaN.
        """
        places, scores = np.full((len(queries), k), -1), np.full((len(queries), k), np.nan)
        of_block = np.zeros((GROUP_SIZE, -(-self._n_documents // GROUP_SIZE)))
        of_all = of_block.ravel()
        for row, query in enumerate(queries.tolist()):
            of_all.fill(0.0)
            own_tokens = slice(*self._query_tokens.indptr[query : query + 2])
            for token, times in zip(
                self._query_tokens.indices[own_tokens].tolist(),
                self._query_tokens.data[own_tokens].tolist(),
                strict=True,
            ):
                documents, weights = self._postings[token]
                of_all[documents] += weights if times == 1 else times * weights
            largest = of_block.max(axis=0)
            kth = np.partition(largest, -k)[-k] if k <= len(largest) else 0.0  # at least k documents score this much
            candidates = np.flatnonzero(of_all >= max(kth - SCORE_UNIT, WEIGHT_UNIT))
            top = candidates[best(of_all[candidates], candidates, k)]
            places[row, : len(top)], scores[row, : len(top)] = top, of_all[top]
        return places, scores

    def _posting(self, documents: npt.NDArray[np.int32], weights: Floats) -> tuple[Any, Floats]:
        """Return a token's documents and its contribution to each score; all documents, as a slice, if most have it."""
        if 2 * len(documents) < self._n_documents:
            return documents, weights
        of_all = np.zeros(self._n_documents)
        of_all[documents] = weights
        return slice(self._n_documents), of_all


def _counts(vocabulary: Vocabulary, keys: Any, n_tokens: Index) -> Any:
    """Return an (n, V) sparse matrix of token counts. keys, n_tokens: tokens of n texts, as token_stream returns."""
    place = vocabulary.places(keys)
    known = place >= 0
    text = np.repeat(np.arange(len(n_tokens)), n_tokens)[known]
    shape = len(n_tokens), max(1, len(vocabulary))
    return sparse.coo_array((np.ones(len(text)), (text, place[known])), shape).tocsr()


def _weights(counts: Any, lengths: Index) -> Any:
    """Return (n, V) sparse BM25 weights. counts: (n, V) sparse, overwritten. lengths: (n,) tokens per document."""
    n_having, n = np.bincount(counts.indices, minlength=counts.shape[1]), len(lengths)
    distinct_counts, which = np.unique(n_having, return_inverse=True)
    idf = np.array([_idf(n, having) for having in distinct_counts.tolist()])[which]
    mean = max(1, int(lengths.sum())) / max(1, n)
    slack = np.repeat(K1 * (1 - B + B * lengths / mean), np.diff(counts.indptr))
    counts.data = rounded(idf[counts.indices] * (counts.data / (counts.data + slack)), WEIGHT_UNIT)
    return counts


def _idf(n: int, having: int) -> float:
    return float(DECIMAL.ln(DECIMAL.divide(Decimal(2 * n + 2), Decimal(2 * having + 1))))


# Exact search by dot product. For the same vectors, the results are the same on every processor.
#
# nearest             the k largest dot products of each query, with the device's rounding
# dots                dot products in float64, equal to the last bit on every processor
# nearest_passages    the k best candidates: preselected by `nearest`, then ordered by `dots`

QUERY_BLOCK, WINDOW, CPU_WINDOW = 1_024, 16_384, 4_096
"""Number of queries, and of candidates, that are compared at a time: 64 MB of scores. On a CPU, 16 MB take four fifths
of the time, because memory of this size is used again instead of being cleared by the system each time."""
EXACT_PAIRS_AT_ONCE = 1 << 11
"""Number of pairs of rows multiplied in float64 at a time: 6 MB at 384 dimensions, which fit the CPU's cache."""
EXTRA_COMPARED = 8
"""Number of candidates to compare exactly in addition to the k best, so that few queries need a second search."""
FLOAT32_ROUNDING = 2.0**-24
"""Maximum relative error of one float32 operation."""


def nearest(queries: Sequence[Tensor], parts: Iterable[Tensor], k: int) -> tuple[Tensor, Tensor]:
    """Return (n, k) largest dot products of each query, in descending order, and the numbers of their rows.

    queries : blocks of queries, (q, d), n in total.
    parts   : blocks of rows, (w, d), at least k in total. Without any rows the result is (n, 0).
    The order of ties is not defined. On a GPU, the host does not wait for the device.
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
    """Return (q, m) scores and their columns, including every score that may be among the k best.

    best : (q, k or fewer) best scores so far.
    On a CPU, return the scores above the k-th best so far, padded with -inf, which is much faster than top-k. Other
    devices use top-k, because the host would have to wait for the number of such scores.
    """
    if scores.device.type != "cpu" or best.shape[1] < k:
        return scores.topk(min(k, scores.shape[1]), dim=1)
    above = torch.from_numpy(np.flatnonzero((scores > best[:, -1:]).numpy()))  # ten times as fast as torch.nonzero
    query, place = above // scores.shape[1], above % scores.shape[1]
    n = query.bincount(minlength=len(scores))
    most = int(n.max()) if len(n) else 0
    if most > 4 * k:  # the passages happen to be sorted from far to near
        return scores.topk(min(k, scores.shape[1]), dim=1)
    column = torch.arange(len(query)) - (n.cumsum(0) - n)[query]
    padded = scores.new_full((len(scores), most), -torch.inf)
    places = torch.zeros(padded.shape, dtype=torch.long)
    padded[query, column], places[query, column] = scores[query, place], place
    return padded, places


def nearest_passages(vectors: Vectors, queries: Index, candidates: Index, k: int) -> tuple[Index, Floats]:
    """Return (q, k) positions of the k best candidates for each query, the best first, and their float64 scores.

    queries : (q,) ids.   candidates : (n,) ids in the order of their text keys. If n < k, the result is (q, n).
    The number of exactly compared candidates is doubled until no other candidate can be among the k best.
    """
    n = len(candidates)
    k, compared = min(n, k), min(n, k + EXTRA_COMPARED)
    places, scores = np.full((len(queries), k), -1), np.full((len(queries), k), np.nan)
    pending = np.arange(len(queries) if k else 0)
    while len(pending):
        best, values, outside = _compared(vectors, queries[pending], candidates, compared)
        done = (rounded(values[:, k - 1]) > rounded(outside)) | (compared == n)
        places[pending[done]], scores[pending[done]] = best[done, :k], values[done, :k]
        pending, compared = pending[~done], min(n, 2 * compared)
    return places, scores


def _compared(vectors: Vectors, queries: Index, candidates: Index, n: int) -> tuple[Index, Floats, Floats]:
    """Find the n best candidates of each query in float32. Return them ordered by their float64 scores, and the scores.

    Also return (q,) upper bounds of the scores of all other candidates. In any order of addition, the error of a sum
    of d rounded products is at most d roundings of |q| |p|.
    """
    anchors = list(rows_of_ids(vectors, "query", queries, QUERY_BLOCK))
    lengths: list[Tensor] = []

    def parts() -> Iterator[Tensor]:
        at_once = CPU_WINDOW if vectors.computes_on.type == "cpu" else WINDOW
        for rows in rows_of_ids(vectors, "passage", candidates, at_once):
            lengths.append(rows.norm(dim=1).max())
            yield rows

    rough, places = (part.cpu().numpy() for part in nearest(anchors, parts(), n))
    scores = dots(vectors, np.repeat(queries, n), candidates[places.ravel()]).reshape(places.shape)
    longest = torch.cat([rows.norm(dim=1) for rows in anchors]) * torch.stack(lengths).max()
    error = (vectors.dimension + 4) * FLOAT32_ROUNDING * longest.double().cpu().numpy()
    order = best_first(scores, places)
    best, values = (np.take_along_axis(array, order, axis=1) for array in (places, scores))
    return best, values, rough[:, -1] + error


def dots(vectors: Vectors, queries: Index, passages: Index) -> Floats:
    """Return (n,) float64 dot products of pairs of rows, equal to the last bit on every processor.

    Products of two float32 numbers are exact in float64. They are added by folding each row in half until one number is
    left, so the order of additions does not depend on other pairs or on the width of the processor's registers.
    """
    parts = [torch.zeros(0, dtype=torch.float64)]
    for start in range(0, len(queries), EXACT_PAIRS_AT_ONCE):
        part = slice(start, start + EXACT_PAIRS_AT_ONCE)
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
    distinct_ids = distinct(ids)
    rows = torch.cat(list(rows_of_ids(vectors, role, distinct_ids, len(distinct_ids))))
    return rows[torch.from_numpy(np.searchsorted(distinct_ids, ids)).to(rows.device)]
