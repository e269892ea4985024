"""Triplets block by block with the rows of their texts at hand: few in memory at once, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from secid.arrays import distinct
from secid.measure.side_by_side import Scratch

Index = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BLOCK_TRIPLETS = 2048
"""Triplets of a block: its float32 rows and their float64 copies stay near the processor's cache. Measured at 768
dimensions, one thread: a third faster than 4,096 outside the products, and 1,024 slows those down."""
WINDOW_BYTES = 128 << 20
"""Rows that are read from a file at once, in the file's order: of 44,000 triplets at 768 dimensions."""


@dataclass(frozen=True)
class Vectors:
    """Unit rows of the distinct texts: queries (n_q, d), passages (n_p, d), float32, on one device.

    gather : for rows mapped from a file, copies the rows of these rising ids to the tensor, (n, d), with little
             further memory, so that memory does not grow with the number of texts.
    tick   : called with how many triplets a pass has just been over, block by block.
    """

    queries: Tensor
    passages: Tensor
    gather: Callable[[Literal["query", "passage"], Index, Tensor], None] | None = None
    tick: Callable[[int], None] | None = None

    @property
    def dimension(self) -> int:
        return int(self.passages.shape[1])


@dataclass(frozen=True)
class Triplets:
    """Triplets of one source as row numbers of Vectors. Triplets of one record are neighbours.

    query, positive, negative : (T,).
    record_offsets : where the triplets of each (record, scored positive) start, and their number.
    record, place  : (T,) the record of a triplet and its negative's place in the plan's arrays.
    share : (T,) what each triplet counts; None for one each. With the policy "all" a negative's
            pairs share it, so that the sum of shares stays the number of negatives (METHOD 9).
    """

    query: Index
    positive: Index
    negative: Index
    record_offsets: Index
    record: Index
    place: Index
    share: Floats | None = None

    def __len__(self) -> int:
        return len(self.negative)

    @property
    def n_negatives(self) -> float:
        """Sum of shares; N of METHOD 1."""
        return float(len(self)) if self.share is None else float(self.share.sum())

    def take(self, keep: Index) -> Triplets:
        """Some of the triplets, records and shares kept. keep: rising places."""
        group = np.searchsorted(self.record_offsets, keep, side="right")
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        return Triplets(
            query=self.query[keep],
            positive=self.positive[keep],
            negative=self.negative[keep],
            record_offsets=np.append(starts, len(keep)),
            record=self.record[keep],
            place=self.place[keep],
            share=None if self.share is None else self.share[keep],
        )


@dataclass(frozen=True)
class Block:
    """Groups (records, or queries) of one block padded to k triplets each. groups: (r,) which ones.

    places : (r*k,) triplet of each slot; padding repeats the group's first.   real : (r*k,) not padding.
    """

    groups: Index
    places: Index
    real: npt.NDArray[np.bool_]
    k: int


def padded_blocks(offsets: Index, order: Index | None = None) -> Iterator[Block]:
    """Blocks over groups of similar size, so that padding stays small.

    offsets : (G+1,) group starts among the triplets, or in `order`, (T,) triplets by group.
    """
    counts = np.diff(offsets)
    by_size = np.argsort(counts, kind="stable")
    by_size = by_size[counts[by_size] > 0]
    start = 0
    while start < len(by_size):
        candidates = counts[by_size[start : start + BLOCK_TRIPLETS]]
        slots_needed = candidates * np.arange(1, len(candidates) + 1)  # rises, since the counts do
        stop = start + max(1, int(np.searchsorted(slots_needed, BLOCK_TRIPLETS, side="right")))
        records = by_size[start:stop]
        k = int(counts[records[-1]])
        slots = np.arange(k)
        real = slots < counts[records][:, None]
        places = np.where(real, offsets[records][:, None] + slots, offsets[records][:, None])
        slots_taken = places.ravel()
        yield Block(records, slots_taken if order is None else order[slots_taken], real.ravel(), k)
        start = stop


class Window:
    """Rows of the texts of some triplets, (n, d) each for (n,) triplets among them, until the next one's are read."""

    def __init__(self, vectors: Vectors, triplets: Triplets, places: Index, scratch: Scratch) -> None:
        self._vectors, self._triplets, self._places, self._scratch = vectors, triplets, places, scratch

    def load(self) -> None:
        """Reads the passages now: before threads share the window."""
        self._passages  # noqa: B018

    def queries(self, places: Index) -> Tensor:
        return _rows(*self._queries, self._triplets.query[places])

    def positives(self, places: Index) -> Tensor:
        return _rows(*self._passages, self._triplets.positive[places])

    def negatives(self, places: Index, out: Tensor | None = None) -> Tensor:
        return _rows(*self._passages, self._triplets.negative[places], out)

    def differences(self, block: Block, out: Tensor) -> Tensor:
        """n - p of every slot of a block, written to `out`, (slots, d)."""
        positive = self._triplets.positive[block.places].reshape(-1, block.k)
        if (positive == positive[:, :1]).all():
            positive = positive[:, :1]  # one row for all of a group
        rows = self.negatives(block.places, out)
        shape = (len(positive), -1, rows.shape[1])
        rows.view(shape).sub_(_rows(*self._passages, positive.ravel()).view(shape))
        return rows

    @cached_property
    def _queries(self) -> tuple[Tensor, Index | None]:
        return self._read("query", self._vectors.queries, self._triplets.query)

    @cached_property
    def _passages(self) -> tuple[Tensor, Index | None]:
        return self._read("passage", self._vectors.passages, self._triplets.positive, self._triplets.negative)

    def _read(self, role: Literal["query", "passage"], rows: Tensor, *ids: Index) -> tuple[Tensor, Index | None]:
        """The rows, and which ids they are of: all, or, where they are mapped from a file, a copy of the window's."""
        if self._vectors.gather is None:
            return rows, None
        ids_read = distinct(np.concatenate([column[self._places] for column in ids]))
        buffer = self._scratch.take(role, len(ids_read), self._vectors.dimension)
        self._vectors.gather(role, ids_read, buffer)
        return buffer, ids_read


def _rows(matrix: Tensor, rows_read: Index | None, ids: Index, out: Tensor | None = None) -> Tensor:
    """The rows of these ids. rows_read: (n,) rising ids of the matrix's rows; None where row i is of id i."""
    places = ids if rows_read is None else np.searchsorted(rows_read, ids)
    return torch.index_select(matrix, 0, torch.from_numpy(places).to(matrix.device), out=out)


def windows(
    vectors: Vectors, triplets: Triplets, offsets: Index, order: Index | None = None
) -> Iterator[tuple[Block, Window]]:
    """The blocks of all triplets, each with the window that holds its rows; `vectors.tick` is called as they are done.

    offsets, order : as in `padded_blocks`.
    """
    for blocks, window in windowed(vectors, triplets, offsets, order):
        for block in blocks:
            yield block, window
            if vectors.tick is not None:
                vectors.tick(int(block.real.sum()))


def windowed(
    vectors: Vectors, triplets: Triplets, offsets: Index, order: Index | None = None
) -> Iterator[tuple[list[Block], Window]]:
    """The windows of all triplets, each with its blocks; all write their rows to the same memory."""
    scratch = Scratch(vectors.passages.device)
    n_window = max(BLOCK_TRIPLETS, WINDOW_BYTES // (4 * vectors.dimension))
    for blocks in _batched(padded_blocks(offsets, order), n_window):
        yield blocks, Window(vectors, triplets, np.concatenate([block.places for block in blocks]), scratch)


def _batched(blocks: Iterator[Block], n_triplets: int) -> Iterator[list[Block]]:
    """Blocks together, up to this many triplets and one block."""
    batch: list[Block] = []
    n = 0
    for block in blocks:
        batch.append(block)
        n += len(block.places)
        if n >= n_triplets:
            yield batch
            batch, n = [], 0
    if batch:
        yield batch
