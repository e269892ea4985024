"""Embeddings kept on disk between runs, for one encoder: immutable segments, read and added to.

Any number of runs may read and write at once without locks: a segment never changes after it
appears. A damaged one is set aside and its texts are encoded again. Source: DESIGN 5.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time

import numpy as np
from numpy.typing import NDArray

from secid.encode.cache_folder import CacheFolder, finished, set_aside
from secid.encode.keys import Keys, key_words
from secid.encode.protocol import Float32Rows
from secid.encode.segment import DamagedSegmentError, Segment, write_segment
from secid.errors import OutputError
from secid.settings import Settings, flag_of

SEAL_SECONDS = 30.0
"""A killed run loses at most this much encoding."""

SEAL_BYTES = 128 * 1024**2
"""Rows held in memory before a segment is written: large files, yet few hundred MB with the copy in key order."""

COPY_ROWS = 65_536
"""Rows copied at once from a segment: 200 MB at 768 dimensions."""


HEXADECIMAL = re.compile(r"[0-9a-f]{64}")
"""A fingerprint of ours. One that a caller made up may be anything, a path for example."""


class Cache:
    """The cached rows of one encoder: looked up in finished segments, added to an open one in memory.

    name      : of the encoder, for `secid cache info`.
    set_aside : folders of segments found damaged, which are encoded again.
    """

    def __init__(self, folder: CacheFolder, fingerprint: str, name: str = "") -> None:
        self._folder = folder
        known = HEXADECIMAL.fullmatch(fingerprint)
        self._home = folder.folder / (fingerprint if known else hashlib.sha256(fingerprint.encode()).hexdigest())
        self._name = name
        self._segments = [Segment(path) for path in finished(self._home)]
        self._open: list[tuple[Keys, Float32Rows, NDArray[np.bool_]]] = []
        self._open_bytes = 0
        self._opened = time.monotonic()
        self.set_aside: list[str] = []

    @classmethod
    def open(cls, settings: Settings, fingerprint: str, name: str = "") -> Cache:
        """The cache of the encoder with that fingerprint, where the settings put it."""
        return cls(CacheFolder.of(settings), fingerprint, name)

    @property
    def dimension(self) -> int | None:
        """Numbers of a cached row, None where there is none that can be read."""
        for segment in self._segments:
            with contextlib.suppress(DamagedSegmentError, OSError):
                return int(segment.meta["dimension"])
        return None

    def lookup(self, keys: Keys, out: Float32Rows, truncated: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Fills the rows of known keys; returns (n,) bool, which they are.

        keys (n, 16) uint8; out (n, d) float32 and truncated (n,) bool are written at known places only.
        A segment that is damaged or cannot be read is set aside, named in `set_aside`, and its keys count as unknown;
        so do those of rows of another dimension, which are another encoder's that its caller gave the same name.
        """
        found = np.zeros(len(keys), dtype=np.bool_)
        high, low = key_words(keys)
        rest = np.argsort(high, kind="stable")
        for segment in tuple(self._segments):
            if not len(rest):
                break
            try:
                if segment.meta["dimension"] != out.shape[1]:
                    continue
                places = segment.places(high[rest], low[rest])
                hits = np.flatnonzero(places >= 0)
                _copy(segment, places[hits], rest[hits], out, truncated)
            except (DamagedSegmentError, OSError, ValueError):
                self._segments.remove(segment)
                if segment.folder.is_dir():  # else another run made room
                    set_aside(segment.folder)
                    self.set_aside.append(str(segment.folder))
                continue
            if len(hits):
                segment.touch()
                found[rest[hits]] = True
                rest = rest[places < 0]
        return found

    def add(self, keys: Keys, rows: Float32Rows, truncated: NDArray[np.bool_]) -> None:
        """Takes new rows; writes a segment when enough of them or of time has gathered."""
        self._open.append((keys.copy(), rows.copy(), truncated.copy()))
        self._open_bytes += rows.nbytes
        if self._open_bytes >= SEAL_BYTES or time.monotonic() - self._opened >= SEAL_SECONDS:
            self.seal()

    def seal(self) -> None:
        """Writes the open rows as a segment, if there are any.

        Raises OutputError where the disk refuses: a cache that silently keeps nothing would cost the next run.
        """
        self._opened = time.monotonic()
        if not self._open:
            return
        keys, rows, truncated = (np.concatenate(parts) for parts in zip(*self._open, strict=True))
        self._open, self._open_bytes = [], 0
        try:
            self._segments.append(Segment(write_segment(self._home, keys, rows, truncated, self._name)))
        except OSError as error:
            raise OutputError(
                f"the embedding cache cannot be written: {error.strerror or error}",
                where=str(self._home),
                remedy=f"free space, or use {flag_of('cache_dir', 'DIR')} or {flag_of('cache', False)}",
            ) from error
        self._folder.shrink()


def _copy(
    segment: Segment,
    places: NDArray[np.int64],
    targets: NDArray[np.int64],
    out: Float32Rows,
    truncated: NDArray[np.bool_],
) -> None:
    for start in range(0, len(places), COPY_ROWS):
        part = slice(start, start + COPY_ROWS)
        out[targets[part]] = segment.rows(places[part])
        truncated[targets[part]] = segment.truncated(places[part])
