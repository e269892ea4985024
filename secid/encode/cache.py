"""Keep the embeddings of an encoder on disk between runs, in segments.

Any number of runs may read and write at the same time without locks, because each run writes its own segments and the
rows that a segment lists never change. A disk failure does not end a run: the affected texts are encoded again.
Source: DESIGN 5.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secid.encode.cache_folder import CacheFolder, quarantine, readable_segments
from secid.encode.encoder import Float32Rows, host_rows
from secid.encode.segment import (
    MARKED_KEY_BYTES,
    DamagedSegmentError,
    KeyBytes,
    Segment,
    SegmentWriter,
    Words,
    find_keys,
    key_words,
)
from secid.errors import plain_message
from secid.settings import Settings, flag_of

SEAL_SECONDS = 30.0
"""Interval between seals. A killed run loses at most about this many seconds of encoding."""

SEAL_BYTES = 512 << 20
"""Size at which a segment ends and a new one begins. To stay within its limit, the cache removes whole segments."""

PENDING_BYTES = 256 << 20
"""Maximum bytes of rows that wait to be written. If more rows are pending, the run waits for the disk."""

HEXADECIMAL = re.compile(r"[0-9a-f]{64}")
"""Pattern of secid's own fingerprints. A fingerprint from a caller may be any string, even a path."""

RowSink = Callable[[NDArray[np.int64], Float32Rows, NDArray[np.bool_]], None]
"""Function that receives positions (n,), their rows (n, d), and flags of truncated texts (n,)."""
SortedKeys = tuple[NDArray[np.int64], Words, Words]
"""Positions of keys sorted by their words, and the sorted words."""


class Cache:
    """The cached rows of one encoder. Lookups read segments. A background thread writes new rows to a segment.

    name      : the encoder's name, for `secid cache info`.
    half      : whether to store rows in 16 bits, because the encoder computes them in 16 bits.
    n_written : number of rows that this run wrote. After `flush`, all of them are sealed.
    notes     : notes for the user on damaged segments, disk failures and the size limit.
    """

    def __init__(self, folder: CacheFolder, fingerprint: str, name: str = "", half: bool = False) -> None:
        self._folder = folder
        is_own = HEXADECIMAL.fullmatch(fingerprint)
        self._home = folder.folder / (fingerprint if is_own else hashlib.sha256(fingerprint.encode()).hexdigest())
        self._name, self._dtype = name, "float16" if half else "float32"
        self.notes: list[str] = []
        self._in_use: set[Path] = set()  # segments that this run read or wrote, and so never removes
        self._own: set[Path] = set()
        self.n_written = 0
        self._room = self._expected = 0  # bytes that this run may still write, and bytes that it expects
        self._is_short = False
        self._writer: SegmentWriter | None = None
        self._writes = True  # until a failure, or the limit
        self._sealed = time.monotonic()
        self._pool = ThreadPoolExecutor(1, "secid-cache")
        self._pending: deque[tuple[int, Future[None]]] = deque()
        self._pending_bytes = 0

    @classmethod
    def open(cls, settings: Settings, fingerprint: str, name: str = "", half: bool = False) -> Cache:
        """Open the cache of the encoder with this fingerprint, in the folder from the settings."""
        return cls(CacheFolder.of(settings), fingerprint, name, half)

    def lookup(self, keys: KeyBytes, dimension: int, put: RowSink) -> NDArray[np.bool_]:
        """Pass the rows of cached keys to `put`, block by block. Return (n,) flags of cached keys.

        keys : (n, 16) uint8, distinct.
        The keys of each segment are looked up among these keys, so the time depends on the number of cached rows, not
        on the number of segments. A damaged segment is quarantined, and its remaining keys count as missing. The keys
        of a segment that cannot be read now also count as missing. Rows of another dimension are ignored, because they
        belong to another encoder with the same fingerprint.
        """
        cached = np.zeros(len(keys), np.bool_)
        high, low = key_words(keys)
        order = np.argsort(high, kind="stable")
        sorted_keys = order, high[order], low[order]
        failures: list[OSError] = []
        for folder in readable_segments(self._home):
            if folder in self._own or cached.all():
                continue
            try:
                if _copy(Segment(folder), dimension, sorted_keys, cached, put):
                    self._in_use.add(folder)
            except (DamagedSegmentError, FileNotFoundError) as error:
                if folder.is_dir():  # otherwise another run has removed it
                    quarantine(folder)
                    self.notes.append(
                        f"a damaged cache segment is set aside, and its texts are encoded again: {folder} ({error})"
                    )
            except OSError as error:
                failures.append(error)
        if failures:
            self.notes.append(
                f"{len(failures)} cache segments cannot be read now ({plain_message(failures[0])}); "
                "their texts are encoded again"
            )
        return cached

    def expect(self, n_rows: int, dimension: int) -> None:
        """Announce the number of rows to add. Add a note if the limit leaves too little room for them."""
        self.flush()
        n_bytes = self._size(n_rows, dimension)
        self._room = self._folder.room(self._in_use)
        self._expected = min(n_bytes, self._room)
        if n_bytes > self._room and self._writes and not self._is_short:
            self._is_short = True
            self.notes.append(
                f"the embedding cache has room for {self._room // self._size(1, dimension):,} of {n_rows:,} new rows, "
                f"so the next run encodes the rest again; {self._folder.remedy}"
            )

    def add(self, keys: KeyBytes, rows: Any, truncated: NDArray[np.bool_]) -> None:
        """Queue rows (n, d), announced by `expect`, for writing. rows: an array or tensor that must not change."""
        n_bytes = 4 * rows.shape[0] * rows.shape[1]
        self._pending.append((n_bytes, self._pool.submit(self._write, keys, rows, truncated)))
        self._pending_bytes += n_bytes
        while self._pending and (self._pending_bytes > PENDING_BYTES or self._pending[0][1].done()):
            self._wait()

    def seal(self) -> None:
        """Seal the added rows after they are written. Return without waiting."""
        self._pending.append((0, self._pool.submit(self._seal)))

    def flush(self) -> None:
        """Seal all added rows, and wait until they are sealed."""
        if self._pending or self._writer is not None:
            self.seal()
        while self._pending:
            self._wait()

    def close(self) -> None:
        """Flush, and end the current segment."""
        self.flush()
        self._end()

    def _wait(self) -> None:
        n_bytes, task = self._pending.popleft()
        task.result()
        self._pending_bytes -= n_bytes

    def _size(self, n_rows: int, dimension: int) -> int:
        return n_rows * (dimension * np.dtype(self._dtype).itemsize + MARKED_KEY_BYTES)

    def _write(self, keys: KeyBytes, rows: Any, truncated: NDArray[np.bool_]) -> None:
        """Write rows to the current segment. Runs in the background thread."""
        size = self._size(*rows.shape)
        if self._writes and size > self._room:
            self._writes = False
            self._end()
        if not self._writes:
            return
        try:
            if self._writer is None:
                self._folder.shrink(self._in_use, min(self._expected, SEAL_BYTES))
                self._writer = SegmentWriter(self._home, rows.shape[1], self._dtype, self._name)
                self._own.add(self._writer.folder)
                self._in_use.add(self._writer.folder)
                self._sealed = time.monotonic()
            self._writer.add(keys, host_rows(rows), truncated)
        except Exception as error:  # also MemoryError, because half a batch must not be sealed
            self._fail(error)
            return
        self.n_written += len(keys)
        self._room -= size
        self._expected = max(0, self._expected - size)
        if self._writer.n_bytes >= SEAL_BYTES:
            self._end()
        elif time.monotonic() - self._sealed >= SEAL_SECONDS:
            self._seal()

    def _seal(self) -> None:
        if self._writer is None:
            return
        try:
            self._writer.seal()
            self._sealed = time.monotonic()
        except OSError as error:
            self._fail(error)

    def _end(self) -> None:
        """Seal and close the current segment. The next row starts another one."""
        self._seal()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _fail(self, error: Exception) -> None:
        """Stop writing in this run, and keep sealed rows. If another run removed the segment, just start a new one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            if not writer.folder.exists():
                return
            writer.close()
        self._writes = False
        self.notes.append(
            f"the embedding cache {self._home} cannot be written ({plain_message(error)}), so the next run encodes "
            f"these texts again; {flag_of('cache_dir', 'DIR')} uses another directory"
        )


def _copy(segment: Segment, dimension: int, sorted_keys: SortedKeys, cached: NDArray[np.bool_], put: RowSink) -> bool:
    """Pass the segment's rows of wanted keys to `put`, except for keys found before. Return True if there were any."""
    if segment.meta["dimension"] != dimension:
        return False
    order, high, low = sorted_keys
    keys, truncated = segment.keys()
    places = find_keys(*key_words(keys), high, low)
    hits = np.flatnonzero(places >= 0)
    positions = order[places[hits]]
    new = ~cached[positions]
    hits, positions = hits[new], positions[new]
    done = 0
    for part, rows in segment.rows(hits) if len(hits) else ():
        targets = positions[done : done + len(part)]
        put(targets, rows, truncated[part])
        cached[targets] = True
        done += len(part)
    if len(hits):
        segment.touch()
    return len(hits) > 0
