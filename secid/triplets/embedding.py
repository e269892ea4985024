"""Unit rows of a plan's texts, filled as they are asked for: on the encoder's GPU, or in a file mapped to memory."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from secid.arrays import distinct
from secid.encode import Cache, Encoder, Role, embed, host_rows, own_stream
from secid.errors import EncoderError, OutputError, plainly
from secid.files import remedy_of
from secid.measure.blocks import Vectors
from secid.pool import Plan
from secid.pool.texts import TextStore
from secid.progress import Progress
from secid.results import EncoderInfo
from secid.settings import Settings

Index = npt.NDArray[np.int64]
Put = Callable[[Index, Any], None]
"""Takes positions (n,) and their rows (n, d), an array or a tensor on any device."""

COUNTED = ("n_texts", "n_cached", "n_encoded", "n_tokens", "n_truncated")
CUTS_UNKNOWN = "cuts_unknown"
PART_BYTES = 256 << 20
"""Of the file, mapped at once by `take`: a system may map far more around a row than the row."""
WINDOW_BYTES, OPEN_WINDOWS = 64 << 20, 16
"""Rows that are written to the file together, and how many such windows may be incomplete: those of a stream that sorts
32,768 texts at a time by length are, at 4,096 dimensions."""
DEVICE_SHARE = 0.4
"""Of a GPU's free memory that rows may take; the rest is the encoder's batches and the measure stage's blocks."""
UNRESERVABLE = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of file systems and systems that cannot reserve space."""


class DeviceRows:
    """(n, d) float32 on a GPU. values: the tensor; a row is zero until it is written."""

    def __init__(self, device: torch.device, n: int, d: int) -> None:
        self.values = torch.zeros((n, d), device=device)
        if device.type == "cuda":  # rows are written in other streams
            torch.cuda.synchronize(device)

    @contextmanager
    def writing(self, ids: Index) -> Iterator[Put]:
        """Takes the rows of these ids by their positions among them."""
        device = self.values.device

        def put(positions: Index, rows: Any) -> None:
            with own_stream(rows), own_stream(self.values):
                places = torch.from_numpy(ids[positions]).to(device)
                self.values.index_copy_(0, places, torch.as_tensor(rows).to(device))

        yield put


class MappedRows:
    """(n, d) float32 in a file. values: the array; a row is zero until it is written.

    The file's space is reserved when it is made: a disk that is full later would end the process without a message.
    Pages that were touched stay in the process's memory, as far as there is room, until `release`.
    Raises OutputError where there is no room for the file.
    """

    def __init__(self, path: Path, n: int, d: int, *, new: bool = True) -> None:
        if new:
            _reserve(path, max(1, 4 * n * d))
        self._path = path
        self.values: npt.NDArray[np.float32] = np.memmap(path, np.float32, "r+", shape=(n, d))

    @contextmanager
    def writing(self, ids: Index) -> Iterator[Put]:
        """Takes the rows of these rising ids by their positions among them. They are in the file after the block."""
        with self._path.open("r+b") as file, ThreadPoolExecutor(1, "secid-rows") as pool:
            windows = _Windows(file, pool, ids, self.values.shape[1])
            yield windows.put
            windows.flush()

    def take(self, ids: Index, out: Tensor) -> None:
        """Copies the rows of these rising ids, (n, d), by all threads; parts of the file are given back one by one.

        out : on any device.
        """
        n, d = self.values.shape
        rows = torch.from_numpy(self.values)
        at_once = max(1, PART_BYTES // (4 * d))
        cuts = np.searchsorted(ids, np.arange(0, n + at_once, at_once))
        for start, stop in pairwise(cuts.tolist()):
            if stop > start:
                part, places = out[start:stop], torch.from_numpy(ids[start:stop])
                if part.device.type == "cpu":
                    torch.index_select(rows, 0, places, out=part)
                else:
                    part.copy_(rows[places])
                self.release()

    def release(self) -> None:
        """Gives the pages back; the file keeps what was written. Does nothing where the system has no such call."""
        mapped: Any = getattr(self.values, "_mmap", None)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


class _Windows:
    """Rows that arrive in any order, written to a file in its order, many at once, by a thread.

    To write them through the map costs ten times as much, since each touches a page of its own.
    """

    def __init__(self, file: BinaryIO, pool: ThreadPoolExecutor, ids: Index, d: int) -> None:
        self._file, self._pool, self._ids, self._d = file, pool, ids, d
        self._pending: deque[Future[npt.NDArray[np.float32]]] = deque()
        self._size = max(1, WINDOW_BYTES // (4 * d))
        self._open: dict[int, tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]] = {}  # rows, and which are there
        self._free: list[npt.NDArray[np.float32]] = []

    def put(self, positions: Index, rows: Any) -> None:
        rows, windows = host_rows(rows), positions // self._size
        for window in distinct(windows).tolist():
            own = windows == window
            self._fill(window, positions[own] - window * self._size, rows if own.all() else rows[own])

    def flush(self) -> None:
        """Writes what is left, and waits for it."""
        for window in list(self._open):
            self._write(window)
        while self._pending:
            self._pending.popleft().result()

    def _fill(self, window: int, places: Index, rows: npt.NDArray[np.float32]) -> None:
        if window not in self._open:
            if len(self._open) == OPEN_WINDOWS:
                self._write(next(iter(self._open)))
            n = min(self._size, len(self._ids) - window * self._size)
            memory = self._free.pop() if self._free else np.empty((self._size, self._d), np.float32)
            self._open[window] = memory, np.zeros(n, np.bool_)
        memory, filled = self._open[window]
        memory[places], filled[places] = rows, True
        if filled.all():
            self._write(window)

    def _write(self, window: int) -> None:
        """Has the rows that are there written; waits where the disk is more than two windows behind."""
        rows, filled = self._open.pop(window)
        places = np.flatnonzero(filled)
        self._pending.append(self._pool.submit(self._save, rows, places, self._ids[places + window * self._size]))
        if len(self._pending) > 2:
            self._free.append(self._pending.popleft().result())

    def _save(self, rows: npt.NDArray[np.float32], places: Index, ids: Index) -> npt.NDArray[np.float32]:
        """Writes the rows at these places, neighbours in the file together. Returns the memory of all."""
        starts = np.flatnonzero(np.diff(ids, prepend=-2) != 1)
        for start, stop in pairwise([*starts.tolist(), len(ids)]):
            self._file.seek(4 * self._d * int(ids[start]))
            self._file.write(rows[places[start] : places[stop - 1] + 1].data)
        return rows


class StoredTexts(Sequence[str]):
    """Texts of a store in the order of the ids, read when they are asked for."""

    def __init__(self, store: TextStore, ids: Index) -> None:
        self._store, self._ids = store, ids

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return self._store.take(self._ids[place])
        return self._store.take(self._ids[[place]])[0]


class Embedder:
    """Encodes each text of a plan once, when first needed.

    vectors   : rows by id; a row is zero until it has been asked for.
    truncated : (n_passages,) which of the embedded passages were cut at the maximum length; None where the encoder
                does not say (CUTS_UNKNOWN).
    counts    : what embedding took so far, by COUNTED, without n_truncated where the encoder does not say.
    """

    def __init__(self, plan: Plan, encoder: Encoder, settings: Settings, folder: Path, progress: Progress) -> None:
        self._stores: dict[Role, TextStore] = {"query": plan.queries, "passage": plan.passages}
        self._first: dict[Role, int] = {"query": 0, "passage": len(plan.queries)}  # rows of all texts are in one table
        n, d, info = len(plan.queries) + len(plan.passages), encoder.dimension, encoder.info
        self._encoder, self._progress, self._n_failures = encoder, progress, 0
        self._cache = _cache(info, settings)
        device = device_for(info, 4 * n * d)
        self._rows = MappedRows(folder / "rows.f32", n, d) if device is None else DeviceRows(device, n, d)
        self._done, self._truncated = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        self._reports_cuts = info.pooling not in ("precomputed", "unknown")
        counts = [name for name in COUNTED if name != "n_truncated" or self._reports_cuts]
        self.counts: dict[str, float] = dict.fromkeys(counts, 0)
        values = self._rows.values
        rows = values if isinstance(values, Tensor) else torch.from_numpy(values)
        gather = self._gather if isinstance(self._rows, MappedRows) else None
        self.vectors = Vectors(rows[: len(plan.queries)], rows[len(plan.queries) :], gather, device=gpu_of(info))

    @property
    def truncated(self) -> npt.NDArray[np.bool_] | None:
        return self._truncated[self._first["passage"] :] if self._reports_cuts else None

    def everything(self) -> None:
        """Embeds all texts of the plan."""
        self.passages(np.arange(len(self._stores["passage"])))

    def passages(self, ids: Index) -> None:
        """Embeds all queries and these passages."""
        self.need(np.arange(len(self._stores["query"])), ids)

    def need(self, queries: Index, passages: Index) -> None:
        """Embeds those of these texts that have no row yet: what the cache holds first, then each role in one stream.

        However it ends, what was encoded stays in the cache.
        """
        asked: dict[Role, Index] = {"query": queries, "passage": passages}
        missing = {role: self._missing(role, ids) for role, ids in asked.items()}
        n_texts = sum(map(len, missing.values()))
        if not n_texts:
            return
        self._progress.start("encode", n_texts, "texts")
        self.counts["n_texts"] += n_texts
        try:
            if self._cache is not None:
                self._look_up(self._cache, missing)
                missing = {role: self._missing(role, ids) for role, ids in missing.items()}
                self._cache.expect(sum(map(len, missing.values())), self._encoder.dimension)
                self._say()
            for role, ids in missing.items():
                self._encode(role, ids)
        except BaseException:  # also on Ctrl-C, and this error is the one reported
            if self._cache is not None:
                with suppress(Exception):
                    self._cache.flush()
                if n := self._cache.n_written:
                    self._progress.note(f"the cache has kept the {n:,} texts that this run encoded: the next continues")
            raise
        if self._cache is not None:
            self._cache.seal()
        self._say()

    def close(self) -> None:
        """Returns when what was encoded is in the cache. Nothing can be embedded afterwards."""
        if self._cache is not None:
            self._cache.close()
        self._say()

    def _missing(self, role: Role, ids: Index) -> Index:
        return distinct(ids[~self._done[ids + self._first[role]]])

    def _look_up(self, cache: Cache, missing: dict[Role, Index]) -> None:
        rows = np.concatenate([ids + self._first[role] for role, ids in missing.items()])
        keys = np.concatenate([self._stores[role].keys[ids] for role, ids in missing.items()])

        with self._rows.writing(rows) as put:

            def copy(positions: Index, values: npt.NDArray[np.float32], truncated: npt.NDArray[np.bool_]) -> None:
                put(positions, values)
                self._mark(rows[positions], truncated)

            self.counts["n_cached"] += int(cache.lookup(keys, self._encoder.dimension, copy).sum())
        self._say()

    def _encode(self, role: Role, ids: Index) -> None:
        if not len(ids):
            return
        store, rows = self._stores[role], ids + self._first[role]
        stream = closing(embed(self._encoder, StoredTexts(store, ids), role))
        with stream as batches, self._rows.writing(rows) as put:
            for batch in batches:
                if self._cache is not None:
                    self._cache.add(store.keys[ids[batch.positions]], batch.vectors, batch.truncated)
                put(batch.positions, batch.vectors)
                self._mark(rows[batch.positions], batch.truncated)
                self.counts["n_encoded"] += len(batch.positions)
                self.counts["n_tokens"] += batch.n_tokens
        if n_missing := len(self._missing(role, ids)):
            raise EncoderError(f"no row came back for {n_missing} of {len(ids)} texts", where=self._encoder.info.name)

    def _mark(self, places: Index, truncated: npt.NDArray[np.bool_]) -> None:
        self._truncated[places] = truncated
        self._done[places] = True
        if self._reports_cuts:
            self.counts["n_truncated"] += int(truncated.sum())
        self._progress.advance(len(places))

    def _gather(self, role: Role, ids: Index, out: Tensor) -> None:
        assert isinstance(self._rows, MappedRows)
        self._rows.take(ids + self._first[role], out)

    def _say(self) -> None:
        """Passes on the cache's notes, and each failure of a device once."""
        while self._cache is not None and self._cache.notes:
            self._progress.note(self._cache.notes.pop(0))
        failures = getattr(self._encoder, "failures", ())
        for failure in failures[self._n_failures :]:
            self._progress.note(failure)
        self._n_failures = len(failures)


def _cache(info: EncoderInfo, settings: Settings) -> Cache | None:
    """The cache of an encoder that can be identified; a vectors file needs none."""
    if not settings.cache or not info.fingerprint or info.pooling == "precomputed":
        return None
    return Cache.open(settings, info.fingerprint, info.name, half=info.dtype in ("bf16", "fp16"))


def gpu_of(info: EncoderInfo) -> torch.device | None:
    """The encoder's first GPU; None if it runs on none."""
    return torch.device(info.device.split(",")[0]) if info.device.startswith("cuda") else None


def device_for(info: EncoderInfo, n_bytes: int) -> torch.device | None:
    """The encoder's first GPU if this many bytes of rows fit on it; None for rows in a file."""
    device = gpu_of(info)
    if device is None:
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return device if n_bytes <= DEVICE_SHARE * free else None


def _reserve(path: Path, n_bytes: int) -> None:
    """Creates a file of zeros whose space is the file's. Raises OutputError where there is none."""
    need, free = (f"{amount / 1e9:,.2f} GB" for amount in (n_bytes, shutil.disk_usage(path.parent).free))
    with path.open("wb") as file:
        try:
            try:
                os.posix_fallocate(file.fileno(), 0, n_bytes)
            except (AttributeError, OSError) as error:  # no such call, or not on this file system
                if isinstance(error, OSError) and error.errno not in UNRESERVABLE:
                    raise
                if shutil.disk_usage(path.parent).free < n_bytes:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
                file.truncate(n_bytes)
        except OSError as error:
            file.truncate(0)
            raise OutputError(
                f"no room for the rows of the texts: {need} needed, {free} free ({plainly(error)})",
                where=str(path.parent),
                remedy=remedy_of(error),
            ) from error
