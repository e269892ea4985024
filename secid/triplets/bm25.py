"""BM25 over token keys, equal to the last bit on every processor.

The formula is the default of bm25s, Lucene's: a query's token t of which a document of l tokens has f adds
ln(1 + (N - n + 1/2) / (n + 1/2)) f / (f + k1 (1 - b + b l / mean l)), as often as the query has it; N documents, n with
the token. Only IEEE operations that round in one way are used: a logarithm in decimal, quotients, and sums of whole
multiples of a power of two, which are exact in any order. Source: METHOD 6.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal
from typing import Any

import numpy as np
from scipy import sparse

from secid.arrays import Floats, Index, best, distinct, rounded
from secid.pool.texts import Packed
from secid.pool.tokens import token_stream
from secid.pool.vocabulary import Vocabulary

K1, B = 1.5, 0.75
WEIGHT_UNIT = 2.0**-40
"""Each token's contribution is rounded to this unit, so that sums up to 2^13 are exact."""
DECIMAL = Context(prec=28)
POSTINGS_AT_ONCE = 1 << 22
"""Scores of queries and documents that share a token, in memory together: 50 MB."""


class Bm25:
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
        self._weights = _weights(sparse.vstack(parts, format="csr"), np.concatenate(lengths)).T.tocsr()

    def best(self, queries: Index, k: int) -> tuple[Index, Floats]:
        """Return (q, k) numbers of each query's k best documents, and their scores; only shared tokens count.

        queries : (q,) numbers. The documents must be in the order of their text keys. Missing ones are -1 and NaN.
        """
        places, scores = np.full((len(queries), k), -1), np.full((len(queries), k), np.nan)
        n_documents = np.diff(self._weights.indptr)
        before = np.cumsum(np.append(0, self._asked[queries] @ n_documents)).astype(np.int64)
        start = 0
        while start < len(queries):
            stop = max(start + 1, int(np.searchsorted(before, before[start] + POSTINGS_AT_ONCE, side="right")) - 1)
            found: Any = self._asked[queries[start:stop]] @ self._weights
            for row, (first, last) in enumerate(zip(found.indptr[:-1], found.indptr[1:], strict=True), start):
                documents, values = found.indices[first:last], found.data[first:last]
                own = best(values, documents, k)
                places[row, : len(own)], scores[row, : len(own)] = documents[own], values[own]
            start = stop
        return places, scores


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
