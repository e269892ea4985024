"""Encode the texts of a run when they are needed, and store their unit vectors; encode a whole corpus in windows."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from secid.arrays import Index, distinct
from secid.encode import Cache, Encoder, Role, StreamingEncoder, embed
from secid.encode.device import gpu_of, gpu_with_room, is_gpu
from secid.encode.encoder import host_rows, own_stream, to_device
from secid.encode.segment import find_keys, key_words
from secid.errors import EncoderError, OutputError, plain_message
from secid.files import remedy_of
from secid.measure.blocks import CPU, Vectors, unit
from secid.pool import Plan
from secid.pool.texts import KEY_BYTES, StoredTexts, TextStore, text_key
from secid.progress import Progress
from secid.read.collection import Collection
from secid.results import EncoderInfo
from secid.settings import Settings

# Unit vectors of texts by id, stored in memory or in a memory-mapped file. A row is the vector of one text.

RowWriter = Callable[[Index, Any], None]
"""A function that stores rows, given their positions (n,) and the rows (n, d), an array or a tensor on any device."""

ROWS_IN_MEMORY_BYTES = 256 << 20
"""Maximum bytes of rows in the host's memory. A larger table is stored in a file, and each pass copies rows from it."""
COPIED_BYTES_AT_ONCE = 256 << 20
"""Bytes of rows that `take` copies before it releases mapped pages. The system may map far more pages than `take`
reads."""
UNRESERVABLE = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Error numbers of a file system that cannot reserve space."""


class DeviceRows:
    """Rows in a device's memory. values: (n, d) float32 tensor; a row is 0 until it is written."""

    def __init__(self, device: torch.device, n: int, d: int) -> None:
        self.values = torch.zeros((n, d), device=device)
        if is_gpu(device):  # rows will be written in other streams
            torch.cuda.synchronize(device)

    def reserve(self, n: int) -> None:
        """Do nothing: the memory is already allocated."""

    def writer(self, ids: Index) -> RowWriter:
        """Return a function that writes rows by positions in `ids`. It raises EncoderError if the device fails."""
        device = self.values.device

        def put(positions: Index, rows: Any) -> None:
            if isinstance(rows, np.ndarray):  # torch warns about read-only arrays, such as mapped rows of the cache
                rows = torch.from_numpy(np.require(rows, requirements="W"))
            try:
                with own_stream(rows), own_stream(self.values):
                    self.values.index_copy_(0, to_device(ids[positions].astype(np.int64), device), rows.to(device))
            except RuntimeError as error:
                raise EncoderError(
                    f"{device} failed while it stored vectors: {plain_message(error)[:200]}",
                    remedy="run the command again; it resumes from the cache",
                ) from error

        return put


class FileRows:
    """Rows in a file, (n, d) float32, stored in order of arrival. `take` reads them by id.

    The file uses disk space only for reserved rows. Rows are written by file operations, not through the memory map, so
    a full disk raises an error instead of a signal. Pages that were read stay in memory until `release`.
    """

    def __init__(self, path: Path, n: int, d: int) -> None:
        self._path, self._row_bytes, self._n_rows = path, 4 * d, 0
        self._place = np.full(n, -1, np.int64)  # position in the file; -1 so that reading an unwritten row fails
        with self._room(4 * n * d), path.open("wb") as file:
            file.truncate(max(1, n) * self._row_bytes)
        self._values: npt.NDArray[np.float32] = np.memmap(path, np.float32, "r+", shape=(max(1, n), d))

    def reserve(self, n: int) -> None:
        """Reserve disk space for n more rows. Raises OutputError if the disk is full."""
        n_bytes = n * self._row_bytes
        with self._room(n_bytes), self._path.open("r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), self._n_rows * self._row_bytes, max(1, n_bytes))
            except (AttributeError, OSError) as error:  # not available on this system or file system
                if isinstance(error, OSError) and error.errno not in UNRESERVABLE:
                    raise
                if shutil.disk_usage(self._path.parent).free < n_bytes:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error

    def writer(self, ids: Index) -> RowWriter:
        """Return a function that writes rows by their positions in `ids`. It raises OutputError if the disk is full."""

        def put(positions: Index, rows: Any) -> None:
            values = np.ascontiguousarray(host_rows(rows), np.float32)
            with self._room(values.nbytes), self._path.open("r+b") as file:
                file.seek(self._n_rows * self._row_bytes)
                file.write(values.data)
            self._place[ids[positions]] = np.arange(self._n_rows, self._n_rows + len(positions))
            self._n_rows += len(positions)

        return put

    def take(self, ids: Index, out: Tensor) -> None:
        """Copy the rows of these ids to `out`, and release mapped pages after each part.

        ids : (n,) ascending, because neighbouring ids are often close together in the file.
        out : (n, d) on any device.
        """
        rows, places = torch.from_numpy(self._values), torch.from_numpy(self._place[ids])
        at_once = max(1, COPIED_BYTES_AT_ONCE // self._row_bytes)
        for part, part_places in zip(torch.split(out, at_once), torch.split(places, at_once), strict=True):
            if part.device.type == "cpu":
                torch.index_select(rows, 0, part_places, out=part)
            else:
                part.copy_(rows[part_places])
            self.release()

    def release(self) -> None:
        """Release the mapped pages from memory, if the system supports it. The file keeps its contents."""
        mapped: Any = getattr(self._values, "_mmap", None)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)

    @contextmanager
    def _room(self, n_bytes: int) -> Iterator[None]:
        """Replace an OSError in the block by an OutputError that says how many bytes are needed and free."""
        try:
            yield
        except OSError as error:
            free = shutil.disk_usage(self._path.parent).free
            raise OutputError(
                f"no room for the vectors of the texts: {n_bytes / 1e9:,.2f} GB needed, {free / 1e9:,.2f} GB free "
                f"({plain_message(error)})",
                where=str(self._path.parent),
                remedy=remedy_of(error),
            ) from error


# Each text is encoded once, when it is first needed, and its unit vector is stored.

CachedRows = Callable[[Index, npt.NDArray[np.float32], npt.NDArray[np.bool_]], None]
"""A function that receives positions (n,), their rows (n, d), and flags (n,) of truncated texts."""
COST_COUNTS = ("n_texts", "n_cached", "n_encoded", "n_bytes", "n_tokens", "n_truncated")
CUTS_UNKNOWN = "cuts_unknown"


class Embedder:
    """Encodes queries and passages, each text once, when it is first needed.

    vectors   : rows by id. A row is valid only after a call that needs it.
    truncated : (n_passages,) flags of encoded passages that were truncated at the maximum length; None if the encoder
                does not report it (CUTS_UNKNOWN).
    counts    : cost of encoding so far, by the names in COST_COUNTS; no n_truncated if the encoder does not report it.
    """

    def __init__(
        self,
        queries: TextStore,
        passages: TextStore,
        encoder: Encoder,
        settings: Settings,
        folder: Path,
        progress: Progress,
    ) -> None:
        self._stores: dict[Role, TextStore] = {"query": queries, "passage": passages}
        self._first: dict[Role, int] = {"query": 0, "passage": len(queries)}  # one table holds the rows of all texts
        n, d, info = len(queries) + len(passages), encoder.info.dim, encoder.info
        self._encoder, self._progress, self._n_failures = encoder, progress, 0
        self._cache = _open_cache(info, settings)
        gpu, n_bytes = gpu_of(info.device), 4 * n * d
        device = CPU if gpu is None and n_bytes <= ROWS_IN_MEMORY_BYTES else gpu_with_room(info.device, n_bytes)
        self._rows = FileRows(folder / "rows.f32", n, d) if device is None else DeviceRows(device, n, d)
        self._done, self._truncated = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        self._reports_cuts = info.pooling not in ("precomputed", "unknown")
        counts = [name for name in COST_COUNTS if name != "n_truncated" or self._reports_cuts]
        self.counts: dict[str, float] = dict.fromkeys(counts, 0)
        self.vectors = self._vectors(gpu, d)

    @property
    def truncated(self) -> npt.NDArray[np.bool_] | None:
        return self._truncated[self._first["passage"] :] if self._reports_cuts else None

    def everything(self) -> None:
        """Encode all queries and passages."""
        self.passages(np.arange(len(self._stores["passage"])))

    def passages(self, ids: Index) -> None:
        """Encode all queries, and these passages."""
        self.need(np.arange(len(self._stores["query"])), ids)

    def need(self, queries: Index, passages: Index) -> None:
        """Get the missing rows of these texts from the cache, and encode texts that are not cached.

        Rows that were encoded before an error stay in the cache.
        """
        requested: dict[Role, Index] = {"query": queries, "passage": passages}
        missing = {role: self._missing(role, ids) for role, ids in requested.items()}
        n_texts = sum(map(len, missing.values()))
        if not n_texts:
            return
        self._rows.reserve(n_texts)
        self.counts["n_texts"] += n_texts
        try:
            if self._cache is not None:
                self._progress.start("read the cache", None, "texts")  # separate, so that the encoding rate is right
                self._look_up(self._cache, missing)
                missing = {role: self._missing(role, ids) for role, ids in missing.items()}
                n_texts = sum(map(len, missing.values()))
                self._cache.expect(n_texts, self._encoder.info.dim)
                self._say()
            if n_texts:
                self._progress.start("encode", n_texts, "texts")
            for role, ids in missing.items():
                self._encode(role, ids)
        except BaseException:  # also Ctrl-C; an error in flush() is ignored
            if self._cache is not None:
                with suppress(Exception):
                    self._cache.flush()
                if n := self._cache.n_written:
                    self._progress.note(f"{n:,} encoded texts are in the cache; run the command again to resume")
            raise
        if self._cache is not None:
            self._cache.seal()
        self._say()

    def has(self, passages: Index) -> npt.NDArray[np.bool_]:
        """Return (n,) flags of the passages that already have a row."""
        return self._done[passages + self._first["passage"]]

    def cached(self, keys: npt.NDArray[np.uint8], put: CachedRows) -> npt.NDArray[np.bool_]:
        """Look up passages outside the run in the cache. Pass their rows to `put`, and return (n,) flags of hits."""
        if self._cache is None:
            return np.zeros(len(keys), np.bool_)
        return self._cache.lookup(keys, self._encoder.info.dim, put)

    def may_add(self, n_texts: int, share: float) -> bool:
        """Return True if n_texts more texts may be encoded.

        A local encoder may encode up to `share` times the run's number of texts. Other encoders may encode none.
        """
        return not n_texts or (self._reports_cuts and n_texts <= share * len(self._done))

    def add_passages(self, texts: Sequence[str], keys: npt.NDArray[np.uint8]) -> Tensor:
        """Encode passages outside the run, add them to the cache, and return their rows, (n, d)."""
        self._progress.start("encode the corpus", len(texts), "texts")
        rows = torch.empty(len(texts), self._encoder.info.dim)
        if self._cache is not None:
            self._cache.expect(len(texts), self._encoder.info.dim)
        with closing(embed(self._encoder, texts, "passage")) as batches:
            for batch in batches:
                if self._cache is not None:
                    self._cache.add(keys[batch.positions], batch.vectors, batch.truncated)
                rows[torch.from_numpy(batch.positions)] = torch.from_numpy(host_rows(batch.vectors))
                self._progress.advance(len(batch.positions))
        return rows

    def close(self) -> None:
        """Wait until all encoded texts are in the cache. No text can be encoded afterwards."""
        if self._cache is not None:
            self._cache.close()
        self._say()

    def _missing(self, role: Role, ids: Index) -> Index:
        return distinct(ids[~self._done[ids + self._first[role]]])

    def _look_up(self, cache: Cache, missing: dict[Role, Index]) -> None:
        rows = np.concatenate([ids + self._first[role] for role, ids in missing.items()])
        keys = np.concatenate([self._stores[role].keys[ids] for role, ids in missing.items()])

        put = self._rows.writer(rows)

        def copy(positions: Index, values: npt.NDArray[np.float32], truncated: npt.NDArray[np.bool_]) -> None:
            put(positions, values)
            self._mark(rows[positions], truncated)

        self.counts["n_cached"] += int(cache.lookup(keys, self._encoder.info.dim, copy).sum())
        self._say()

    def _encode(self, role: Role, ids: Index) -> None:
        if not len(ids):
            return
        store, rows = self._stores[role], ids + self._first[role]
        put = self._rows.writer(rows)
        with closing(embed(self._encoder, StoredTexts(store, ids), role)) as batches:
            for batch in batches:
                if self._cache is not None:
                    self._cache.add(store.keys[ids[batch.positions]], batch.vectors, batch.truncated)
                put(batch.positions, batch.vectors)
                self._mark(rows[batch.positions], batch.truncated)
                self.counts["n_encoded"] += len(batch.positions)
                self.counts["n_bytes"] += int(store.lengths[ids[batch.positions]].sum())
                self.counts["n_tokens"] += batch.n_tokens
        if n_missing := len(self._missing(role, ids)):
            raise EncoderError(
                f"returned no vector for {n_missing} of {len(ids)} texts",
                where=self._encoder.info.name,
                remedy="return one vector for each text",
            )

    def _mark(self, places: Index, truncated: npt.NDArray[np.bool_]) -> None:
        self._truncated[places] = truncated
        self._done[places] = True
        if self._reports_cuts:
            self.counts["n_truncated"] += int(truncated.sum())
        self._progress.advance(len(places))

    def _vectors(self, gpu: torch.device | None, d: int) -> Vectors:
        rows = self._rows
        if isinstance(rows, DeviceRows):
            return Vectors(rows.values[: self._first["passage"]], rows.values[self._first["passage"] :])

        def take(role: Role, ids: Index, out: Tensor) -> None:
            rows.take(ids + self._first[role], out)

        return Vectors(torch.empty(0, d), torch.empty(0, d), take, device=gpu)

    def _say(self) -> None:
        """Show notes from the cache, and device failures that were not shown yet."""
        while self._cache is not None and self._cache.notes:
            self._progress.note(self._cache.notes.pop(0))
        failures = self._encoder.failures if isinstance(self._encoder, StreamingEncoder) else ()
        for failure in failures[self._n_failures :]:
            self._progress.note(failure)
        self._n_failures = len(failures)


def _open_cache(info: EncoderInfo, settings: Settings) -> Cache | None:
    """Return the encoder's cache; None if the cache is off, the encoder has no fingerprint, or it is a vectors file."""
    if not settings.cache or not info.fingerprint or info.pooling == "precomputed":
        return None
    return Cache.open(settings, info.fingerprint, info.name, half=info.dtype in ("bf16", "fp16"))


def rows_of_ids(vectors: Vectors, role: Role, ids: Index, n_rows: int) -> Iterator[Tensor]:
    """Yield the rows of these ids in order, in parts of (n_rows, d) or fewer, on the computing device."""
    rows = vectors.queries if role == "query" else vectors.passages
    if vectors.gather is None:
        places = torch.from_numpy(ids).to(rows.device)
        for start in range(0, len(ids), n_rows):
            yield rows.index_select(0, places[start : start + n_rows])
        return
    for start in range(0, len(ids), n_rows):
        sorted_ids = distinct(ids[start : start + n_rows])
        buffer = torch.empty(len(sorted_ids), vectors.dimension)
        vectors.gather(role, sorted_ids, buffer)
        rows = buffer.index_select(0, torch.from_numpy(np.searchsorted(sorted_ids, ids[start : start + n_rows])))
        yield rows.to(vectors.computes_on)


# Rows of a whole corpus in windows: first the run's own texts, then cached texts, then the few remaining ones.

KeyBytes = npt.NDArray[np.uint8]

MAX_NEW_SHARE = 0.01
"""Maximum number of additional texts to encode for the corpus, as a share of the run's texts. With
--set encode_corpus=yes, there is no maximum."""
COPY_WINDOW = 16_384
"""Number of passages in a window."""
LOOKUP_BYTES = 1 << 30
"""Bytes of rows per lookup in the cache. Lookups are large because each one reads all keys of the cache."""


class Corpus:
    """The passages of a collection, one for each distinct text.

    n_passages : number of these passages.   complete : whether `windows` yielded all of them.
    ids        : id in the plan, or -1, of each passage that `windows` yielded, in the order of the rows.
    """

    def __init__(self, collection: Collection, plan: Plan, embedder: Embedder, encode: bool) -> None:
        """Find the distinct texts. encode: whether to encode all passages without a row, whatever their number."""
        self._collection, self._plan, self._embedder, self._encode = collection, plan, embedder, encode
        data = b"".join(text_key("passage", text) for text in collection.passages())
        keys = np.frombuffer(data, np.uint8).reshape(-1, KEY_BYTES)
        high, low = key_words(keys)
        order = np.lexsort((low, high))
        new = np.ones(len(order), np.bool_)
        new[1:] = (high[order[1:]] != high[order[:-1]]) | (low[order[1:]] != low[order[:-1]])
        self._row = np.sort(order[new])  # the first passage of each text
        self._keys = keys[self._row]
        self.n_passages = len(self._row)
        self.ids: list[Index] = []
        self.complete = False

    def windows(self) -> Iterator[Tensor]:
        """Yield windows of rows, (w, d) float64 of length 1, on the computing device.

        Stop early if more passages need encoding than `may_add` allows, and the setting encode_corpus is off.
        """
        vectors, in_plan = self._embedder.vectors, self._places()
        scored = np.sort(in_plan[in_plan >= 0])
        for start, rows in zip(
            range(0, len(scored), COPY_WINDOW), rows_of_ids(vectors, "passage", scored, COPY_WINDOW), strict=True
        ):
            yield self._recorded(scored[start : start + COPY_WINDOW], rows)
        others = np.flatnonzero(in_plan < 0)
        at_once = max(1, LOOKUP_BYTES // (4 * vectors.dimension))
        missing = [np.zeros(0, np.int64)]
        for start in range(0, len(others), at_once):
            part = others[start : start + at_once]
            cached, present = self._cached(part)
            missing.append(part[~present])
            if not self._encode and not self._embedder.may_add(sum(map(len, missing)), MAX_NEW_SHARE):
                return
            yield from self._windows_of(torch.from_numpy(cached[present]), vectors)
        unknown = np.concatenate(missing)
        for start in range(0, len(unknown), at_once):
            part = unknown[start : start + at_once]
            yield from self._windows_of(self._embedder.add_passages(self._texts(part), self._keys[part]), vectors)
        self.complete = True

    def _places(self) -> Index:
        """Return (n_passages,) id in the plan of each passage; -1 for passages without a row in this run."""
        high, low = key_words(self._plan.passages.keys)
        order = np.lexsort((low, high))
        place = find_keys(*key_words(self._keys), high[order], low[order])
        ids = order[place]
        return np.where((place >= 0) & self._embedder.has(ids), ids, -1)

    def _cached(self, part: Index) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        """Return the cached rows of these passages, and (n,) flags of the passages that are cached."""
        rows = np.zeros((len(part), self._embedder.vectors.dimension), np.float32)

        def put(positions: Index, values: npt.NDArray[np.float32], _: npt.NDArray[np.bool_]) -> None:
            rows[positions] = values

        return rows, self._embedder.cached(self._keys[part], put)

    def _texts(self, places: Index) -> Sequence[str]:
        rows_needed = set(self._row[places].tolist())
        texts = ((number, text) for number, text in enumerate(self._collection.passages()) if number in rows_needed)
        by_row = dict(islice(texts, len(rows_needed)))
        return [by_row[row] for row in self._row[places].tolist()]

    def _windows_of(self, rows: Tensor, vectors: Vectors) -> Iterator[Tensor]:
        for start in range(0, len(rows), COPY_WINDOW):
            part = rows[start : start + COPY_WINDOW].to(vectors.computes_on)
            yield self._recorded(np.full(len(part), -1, np.int64), part)

    def _recorded(self, ids: Index, rows: Tensor) -> Tensor:
        self.ids.append(ids)
        return unit(rows)
