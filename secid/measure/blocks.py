"""Pass over triplets in blocks, several in parallel, and multiply many rows by one matrix."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from secid.arrays import Floats, Index, distinct
from secid.parallel import in_order

# Blocks of a pass run in parallel with one thread each, since small operations gain little from more threads.


PARALLEL_BYTES = 1 << 30
"""Maximum memory of all items that are being computed or wait for a thread."""


@contextmanager
def parallel_map(device: torch.device, n_bytes: int = 0) -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield a `map` that computes items in parallel, one per torch thread, on a CPU; else the built-in `map`.

    n_bytes : memory of a pending item. If all pending items would exceed PARALLEL_BYTES, the built-in `map` is used,
              and torch computes each item with all its threads.
    """
    n_threads = torch.get_num_threads()
    is_large = n_bytes * (2 * n_threads + 1) > PARALLEL_BYTES
    if device.type != "cpu" or n_threads == 1 or is_large or "backend: OpenMP" not in torch.__config__.parallel_info():
        yield map  # in torch's other backends, the number of threads is shared by all Python threads
        return
    try:
        torch.set_num_threads(1)  # in the pool's threads, and in this one, whose idle OpenMP threads would spin
        with ThreadPoolExecutor(n_threads) as pool:
            yield lambda function, items: in_order(partial(pool.submit, function), items, 2 * n_threads)
    finally:
        torch.set_num_threads(n_threads)


class Scratch(threading.local):
    """Named buffers that each thread reuses from block to block. dtype: number format of all buffers.

    Gathering 340 MB of rows from a file took 0.05 s into reused memory, and 0.2 s into new memory.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self._device, self._dtype = device, dtype
        self._buffers: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """Return a buffer of this shape, with arbitrary content."""
        n = prod(shape)
        if name not in self._buffers or self._buffers[name].numel() < n:
            self._buffers.pop(name, None)
            self._buffers[name] = self._new(n + n // 8)
        return self._buffers[name][:n].view(shape)

    def _new(self, n: int) -> Tensor:
        if self._device.type != "cpu":
            return torch.empty(n, dtype=self._dtype, device=self._device)
        numpy_dtype = np.float64 if self._dtype == torch.float64 else np.float32
        return torch.from_numpy(np.empty(n, numpy_dtype))  # numpy requests huge pages, torch does not


# Blocks of triplets with the rows of their texts. Memory does not grow with the number of triplets.
#
# A window is a list of blocks. Its row numbers and result positions are copied to the device before its first block
# starts, so the loop over blocks never waits for a copy.

Role = Literal["query", "passage"]
CPU = torch.device("cpu")


@dataclass(frozen=True)
class BlockPlan:
    """Block sizes for a device.

    window_bytes : bytes of rows that are read from a file at once, in the order of the file.
    tile_bytes   : bytes of scaled rows (queries x budgets) per batched product.
    panels       : columns per panel of a symmetric product, by dtype; None to compute the whole product at once.
    in_threads   : True to compute the blocks of both passes in parallel, one thread each.
    """

    n_triplets: int
    window_bytes: int
    tile_bytes: int
    panels: Mapping[torch.dtype, int] | None
    in_threads: bool


PLANS = {"cpu": BlockPlan(2048, 128 << 20, 3 << 20, {torch.float32: 128, torch.float64: 384}, in_threads=True)}
"""Plan for a CPU, measured at 768 dimensions with one thread. Blocks fit the cache. Apart from the products, a block
takes a third less time per triplet than one of 4,096 triplets. Computing a product in panels takes 0.6 times as long as
computing it whole. A window has 44,000 triplets."""
ACCELERATOR_PLAN = BlockPlan(32_768, 1 << 30, 512 << 20, None, in_threads=False)
"""Plan for any other device. A product of 32,768 rows takes far longer than its launch."""
WINDOW_TRIPLETS = 1 << 22
"""Triplets per window if all rows are on the device. Their row numbers take 100 MB."""


def block_plan(device: torch.device) -> BlockPlan:
    """Return the plan for a device."""
    return PLANS.get(device.type, ACCELERATOR_PLAN)


@dataclass(frozen=True)
class Vectors:
    """Unit vectors of the distinct texts: queries (n_q, d) and passages (n_p, d), float32; (0, d) with `gather`.

    gather : function for rows in a file, or None. It copies the rows of ascending ids to an (n, d) tensor on the CPU,
             so memory does not grow with the number of texts.
    tick   : function called after each block of a pass with the block's number of triplets, or None.
    device : device for all computation; None for the device that holds the rows.
    """

    queries: Tensor
    passages: Tensor
    gather: Callable[[Role, Index, Tensor], None] | None = None
    tick: Callable[[int], None] | None = None
    device: torch.device | None = None

    @property
    def dimension(self) -> int:
        return int(self.passages.shape[1])

    @property
    def computes_on(self) -> torch.device:
        """Device that computes every pass."""
        return self.passages.device if self.device is None else self.device


def unit(rows: Tensor) -> Tensor:
    """Scale rows, (n, d), to length 1 in float64."""
    rows64 = rows.double()
    scaled: Tensor = rows64 / torch.linalg.vector_norm(rows64, dim=1, keepdim=True)
    return scaled


@dataclass(frozen=True)
class Triplets:
    """Triplets of one source as row numbers of Vectors. Triplets of one record are adjacent.

    query, positive, negative : (T,) row numbers.
    record_offsets : (R+1,) first triplet of each (record, scored positive), then the number of triplets.
    record : (T,) record of each triplet.   place : (T,) position of its negative in the plan's arrays.
    share  : (T,) weight of each triplet; None if all are 1. Under the policy "all", the triplets of a negative share a
             weight of 1, so the shares add up to the number of negatives (METHOD 9).
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
        """Sum of the shares: N of METHOD 1."""
        return float(len(self)) if self.share is None else float(self.share.sum())

    def take(self, keep: Index) -> Triplets:
        """Return only some triplets, with their records and shares. keep: ascending positions."""
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

    def restrict(self, queries: Index, passages: Index) -> Triplets:
        """Replace each text id by its position in the sorted `queries` or `passages`, which must contain all ids."""
        return replace(
            self,
            query=np.searchsorted(queries, self.query),
            positive=np.searchsorted(passages, self.positive),
            negative=np.searchsorted(passages, self.negative),
        )


@dataclass(frozen=True)
class Groups:
    """Groups (records or queries) of one block, each padded to k slots.

    groups : (r,) numbers of the groups.   real : (r*k,) flags of slots with a triplet; False for padding.
    places : (r*k,) triplet in each slot. Padding repeats the group's first triplet.
    """

    groups: Index
    places: Index
    real: npt.NDArray[np.bool_]
    k: int

    @property
    def n_triplets(self) -> int:
        return int(self.real.sum())


def padded_blocks(
    offsets: Index, n_block: int, order: Index | None = None, stratum: Index | None = None
) -> Iterator[Groups]:
    """Yield blocks of groups. The groups of a block have similar sizes, to keep padding small, and the same stratum.

    offsets : (G+1,) start of each group in `order`, or in the triplets if `order` is None.
    order   : (T,) triplets sorted by group.   stratum : (G,) stratum of each group; None if there is only one.
    """
    counts = np.diff(offsets)
    by_size = np.argsort(counts, kind="stable") if stratum is None else np.lexsort((counts, stratum))
    by_size = by_size[counts[by_size] > 0]
    ends = [len(by_size)] if stratum is None else np.searchsorted(stratum[by_size], distinct(stratum), side="right")
    start = 0
    for end in ends:
        while start < end:
            candidates = counts[by_size[start : min(end, start + n_block)]]
            slots_needed = candidates * np.arange(1, len(candidates) + 1)  # ascending, since counts are sorted
            stop = start + max(1, int(np.searchsorted(slots_needed, n_block, side="right")))
            groups = by_size[start:stop]
            k = int(counts[groups[-1]])
            slots = np.arange(k)
            real = slots < counts[groups][:, None]
            places = np.where(real, offsets[groups][:, None] + slots, offsets[groups][:, None]).ravel()
            yield Groups(groups, places if order is None else order[places], real.ravel(), k)
            start = stop


@dataclass(frozen=True)
class SlotBlock:
    """One block of r groups with k slots each, on the device. Rows are numbered within the window.

    host     : the same groups as arrays on the CPU.   groups : (r,) numbers of the groups.
    triplet  : (r*k,) triplet in each slot. Padding has the number T, which is an extra position at the end of results.
    query    : (r,) row of each group's query; (0,) if queries are not read.
    positive : (r*k,) row of each slot's positive, or (r,) if all slots of a group have the same positive.
    negative : (r*k,) row of each slot's negative.
    """

    host: Groups
    groups: Tensor
    triplet: Tensor
    query: Tensor
    positive: Tensor
    negative: Tensor


@dataclass(frozen=True)
class Window:
    """A list of blocks and the rows of their texts on the device, valid until the next window is read."""

    queries: Tensor
    passages: Tensor
    blocks: list[SlotBlock]

    def differences(self, block: SlotBlock, out: Tensor) -> Tensor:
        """Write n - p of each slot in a block to `out`, (slots, d), and return `out`."""
        rows = torch.index_select(self.passages, 0, block.negative, out=out)
        positives = self.passages.index_select(0, block.positive)
        rows.view(len(positives), -1, rows.shape[1]).sub_(positives.unsqueeze(1))
        return rows


def windows(
    vectors: Vectors,
    triplets: Triplets,
    offsets: Index,
    order: Index | None = None,
    stratum: Index | None = None,
    *,
    with_queries: bool = True,
) -> Iterator[Window]:
    """Yield windows that cover all triplets. If rows are read from a file, all windows reuse the same memory.

    offsets, order, stratum : as in `padded_blocks`.   with_queries : False to leave query rows out.
    """
    device, scratch = vectors.computes_on, Scratch(CPU)
    plan = block_plan(device)
    n_window = WINDOW_TRIPLETS if vectors.gather is None else plan.window_bytes // (4 * vectors.dimension)
    for batch in _block_lists(padded_blocks(offsets, plan.n_triplets, order, stratum), max(plan.n_triplets, n_window)):
        negative = [triplets.negative[block.places] for block in batch]
        positive = [_group_ids(triplets.positive[block.places].reshape(-1, block.k)) for block in batch]
        query = [triplets.query[block.places[:: block.k]] for block in batch] if with_queries else []
        passages, places = _read(vectors, "passage", vectors.passages, [*positive, *negative], scratch)
        queries, query_places = _read(vectors, "query", vectors.queries, query, scratch)
        blocks = [
            SlotBlock(host, *parts)
            for host, *parts in zip(
                batch,
                on_device([block.groups for block in batch], device),
                on_device([np.where(block.real, block.places, len(triplets)) for block in batch], device),
                query_places or [torch.empty(0, dtype=torch.int64, device=device)] * len(batch),
                places[: len(batch)],
                places[len(batch) :],
                strict=True,
            )
        ]
        yield Window(queries, passages, blocks)


def on_device(parts: list[Index], device: torch.device) -> list[Tensor]:
    """Copy several arrays to the device in one transfer."""
    return list(torch.split(torch.from_numpy(np.concatenate(parts)).to(device), [len(part) for part in parts]))


def _group_ids(ids: Index) -> Index:
    """Flatten (r, k) ids of r groups to (r*k,), or to (r,) if all ids within each group are equal."""
    return np.ascontiguousarray(ids[:, 0]) if (ids == ids[:, :1]).all() else ids.ravel()


def _read(
    vectors: Vectors, role: Role, rows: Tensor, ids: list[Index], scratch: Scratch
) -> tuple[Tensor, list[Tensor]]:
    """Return rows on the device, and the positions of these ids in them. Rows in a file are read only for these ids."""
    device = vectors.computes_on
    if vectors.gather is None or not ids:
        return rows, on_device(ids, device) if ids else []
    ids_read = distinct(np.concatenate(ids))
    buffer = scratch.take(role, len(ids_read), vectors.dimension)
    vectors.gather(role, ids_read, buffer)
    return buffer.to(device), on_device([np.searchsorted(ids_read, part) for part in ids], device)


def _block_lists(blocks: Iterator[Groups], n_triplets: int) -> Iterator[list[Groups]]:
    """Group blocks into lists. A list ends with the block that brings it to n_triplets slots."""
    batch: list[Groups] = []
    n = 0
    for block in blocks:
        batch.append(block)
        n += len(block.places)
        if n >= n_triplets:
            yield batch
            batch, n = [], 0
    if batch:
        yield batch


# Products of many rows with one matrix that is packed once in oneDNN's layout (float32 on x86 CPUs).
#
# torch computes float32 products with MKL, which packs the matrix again on every call. With a matrix packed once, six
# MiniLM layers ran 1.12 to 1.2 times as fast on an AMD EPYC (2,048 tokens, two threads: 211 instead of 180 GFLOP/s).
# Rotating rows of 768 dimensions took 0.77 to 0.91 of the time. Results differ from torch's only by float32 rounding.

X86 = frozenset({"x86_64", "amd64"})

ROWS_HINT = 1024
"""Number of rows that the layout is optimised for. Other numbers work too."""


class PackedMatrix:
    """A packed linear layer. weight: (d_out, d_in).   bias: (d_out,) or None."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS_HINT)
        self._bias = bias

    def product(self, rows: Tensor) -> Tensor:
        """Return rows @ weight^T + bias, (..., d_out). rows: (..., d_in)."""
        out: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, "none", [], "")
        return out


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Return True if this machine and this version of torch support packed matrices."""
    mkldnn: Any = torch.backends.mkldnn  # untyped in torch
    return (
        device.type == "cpu"
        and dtype == torch.float32
        and platform.machine().lower() in X86
        and bool(mkldnn.is_available())
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )
