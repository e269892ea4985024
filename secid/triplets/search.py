"""Exact search: the rows nearest to a query, and BM25 over tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import bm25s
import torch
from torch import Tensor

OTHER_WORD = " "
"""Stands for all words that no query has: no token holds a space."""


def nearest(queries: Sequence[Tensor], parts: Iterable[Tensor], k: int) -> tuple[Tensor, Tensor]:
    """(n, k) dot products and places of the k rows with the largest dot product with each query, best first.

    queries : (q, d) each, n in all.   parts : the rows, (w, d) each, at least k in all; without any the result is
    (n, 0). Nothing waits for the device.
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


def bm25_index(queries: Iterable[Sequence[str]], documents: Iterable[Sequence[str]]) -> bm25s.BM25 | None:
    """An index of the documents for these queries, both as tokens; None where no document has a token.

    All words that no query has are indexed as one: they count for the length of a document alone.
    """
    words = dict.fromkeys(token for tokens in queries for token in tokens)
    vocabulary = {word: number for number, word in enumerate([*words, OTHER_WORD])}
    number, other = vocabulary.get, vocabulary[OTHER_WORD]
    numbers = [[number(token, other) for token in tokens] for tokens in documents]
    if not any(numbers):
        return None
    index = bm25s.BM25()
    index.index((numbers, vocabulary), show_progress=False)
    return index
