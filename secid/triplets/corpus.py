"""Rows of a whole corpus, window by window: of the run's own texts, of the cache, and of the few that neither has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from secid.arrays import Index
from secid.encode.keys import find, key_words
from secid.measure.blocks import Vectors
from secid.measure.in_batch import unit
from secid.pool import Plan
from secid.pool.texts import KEY_BYTES, text_key
from secid.read.collection import Collection
from secid.triplets.embedding import Embedder, rows_of_ids

Keys = npt.NDArray[np.uint8]

MOST_NEW = 0.01
"""Of the run's texts: how many further ones are encoded for the corpus unasked, at most."""
WINDOW = 16_384
"""Passages at once."""
LOOKUP_BYTES = 1 << 30
"""Of rows that are looked up in the cache at once: each look reads all keys of the cache."""


class Corpus:
    """The distinct passages of a collection, by text.

    n_passages : how many.   ids : of each passage that `windows` gave, in its order, the id in the plan or -1.
    complete   : whether `windows` gave all of them.
    """

    def __init__(self, collection: Collection, plan: Plan, embedder: Embedder, encode: bool) -> None:
        """encode : all that has no row, however much."""
        self._collection, self._plan, self._embedder, self._encode = collection, plan, embedder, encode
        data = b"".join(text_key("passage", text) for text in collection.passages())
        keys = np.frombuffer(data, np.uint8).reshape(-1, KEY_BYTES)
        high, low = key_words(keys)
        order = np.lexsort((low, high))
        new = np.ones(len(order), np.bool_)
        new[1:] = (high[order[1:]] != high[order[:-1]]) | (low[order[1:]] != low[order[:-1]])
        self._row = np.sort(order[new])  # of the first passage with a text
        self._keys = keys[self._row]
        self.n_passages = len(self._row)
        self.ids: list[Index] = []
        self.complete = False

    def windows(self) -> Iterator[Tensor]:
        """(w, d) float64 rows of length 1 on the computing device. Ends early where more than MOST_NEW are unknown and
        not all may be encoded.
        """
        vectors, in_plan = self._embedder.vectors, self._places()
        own = np.sort(in_plan[in_plan >= 0])
        for start, rows in zip(range(0, len(own), WINDOW), rows_of_ids(vectors, "passage", own, WINDOW), strict=True):
            yield self._given(own[start : start + WINDOW], rows)
        others = np.flatnonzero(in_plan < 0)
        at_once = max(1, LOOKUP_BYTES // (4 * vectors.dimension))
        missing = [np.zeros(0, np.int64)]
        for start in range(0, len(others), at_once):
            part = others[start : start + at_once]
            cached, present = self._cached(part)
            missing.append(part[~present])
            if not self._encode and not self._embedder.may_add(sum(map(len, missing)), MOST_NEW):
                return
            yield from self._pieces(torch.from_numpy(cached[present]), vectors)
        unknown = np.concatenate(missing)
        for start in range(0, len(unknown), at_once):
            part = unknown[start : start + at_once]
            yield from self._pieces(self._embedder.add_passages(self._texts(part), self._keys[part]), vectors)
        self.complete = True

    def _places(self) -> Index:
        """(n_passages,) id in the plan of each passage that has a row there, -1 for the others."""
        high, low = key_words(self._plan.passages.keys)
        order = np.lexsort((low, high))
        place = find(*key_words(self._keys), high[order], low[order])
        ids = order[place]
        return np.where((place >= 0) & self._embedder.has(ids), ids, -1)

    def _cached(self, part: Index) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """Rows of these passages, and which of them the cache holds."""
        rows = np.zeros((len(part), self._embedder.vectors.dimension), np.float32)

        def put(positions: Index, values: npt.NDArray[np.float32], _: npt.NDArray[np.bool_]) -> None:
            rows[positions] = values

        return rows, self._embedder.cached(self._keys[part], put)

    def _texts(self, places: Index) -> Sequence[str]:
        wanted = set(self._row[places].tolist())
        texts = ((number, text) for number, text in enumerate(self._collection.passages()) if number in wanted)
        by_row = dict(islice(texts, len(wanted)))
        return [by_row[row] for row in self._row[places].tolist()]

    def _pieces(self, rows: Tensor, vectors: Vectors) -> Iterator[Tensor]:
        for start in range(0, len(rows), WINDOW):
            part = rows[start : start + WINDOW].to(vectors.computes_on)
            yield self._given(np.full(len(part), -1, np.int64), part)

    def _given(self, ids: Index, rows: Tensor) -> Tensor:
        self.ids.append(ids)
        return unit(rows)
