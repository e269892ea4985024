"""Embeddings of one encoder, stored on disk between runs in immutable segments.

Any number of runs may read and write at the same time without locks: a segment never changes once it
exists. A damaged one is quarantined and its texts are encoded again. Source: DESIGN 5.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time

import numpy as np
from numpy.typing import NDArray

from secid.encode.cache_folder import CacheFolder, finished, quarantine
from secid.encode.keys import Keys, key_words
from secid.encode.protocol import Float32Rows
from secid.encode.segment import DamagedSegmentError, Segment, write_segment
from secid.errors import OutputError
from secid.settings import Settings, flag_of

SEAL_SECONDS = 30.0
"""A killed run loses at most this much encoding."""

SEAL_BYTES = 128 * 1024**2
"""Rows held in memory before a segment is written: few, large files, at a few hundred MB including the sorted copy."""

COPY_ROWS = 65_536
"""Rows copied from a segment at once: 200 MB at 768 dimensions."""

HEXADECIMAL = re.compile(r"[0-9a-f]{64}")
"""The form of secid's own fingerprints. A caller's may be any string, even a path."""


class Cache:
    """The cached rows of one encoder: looked up in finished segments, added to an open segment in memory.

    name    : the encoder's, for `secid cache info`.
    damaged : folders of the quarantined segments, whose texts are encoded again.
    """

    def __init__(self, folder: CacheFolder, fingerprint: str, name: str = "") -> None:
        self._folder = folder
        is_own = HEXADECIMAL.fullmatch(fingerprint)
        self._home = folder.folder / (fingerprint if is_own else hashlib.sha256(fingerprint.encode()).hexdigest())
        self._name = name
        self._segments = [Segment(path) for path in finished(self._home)]
        self._open: list[tuple[Keys, Float32Rows, NDArray[np.bool_]]] = []
        self._open_bytes = 0
        self._opened = time.monotonic()
        self.damaged: list[str] = []

    @classmethod
    def open(cls, settings: Settings, fingerprint: str, name: str = "") -> Cache:
        """The cache of the encoder with that fingerprint, in the folder from the settings."""
        return cls(CacheFolder.of(settings), fingerprint, name)

    @property
    def dimension(self) -> int | None:
        """Length of a cached row; None if no segment can be read."""
        for segment in self._segments:
            with contextlib.suppress(DamagedSegmentError, OSError):
                return int(segment.meta["dimension"])
        return None

    def lookup(self, keys: Keys, out: Float32Rows, truncated: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Fills in the rows of cached keys; returns a (n,) bool mask of them.

        keys (n, 16) uint8; out (n, d) float32 and truncated (n,) bool are written for cached keys only.
        A segment that is damaged or cannot be read is quarantined, listed in `damaged`, and its keys count as missing;
        so do rows of another dimension, which belong to another encoder that was given the same fingerprint.
        """
        cached = np.zeros(len(keys), dtype=np.bool_)
        high, low = key_words(keys)
        pending = np.argsort(high, kind="stable")
        for segment in tuple(self._segments):
            if not len(pending):
                break
            try:
                if segment.meta["dimension"] != out.shape[1]:
                    continue
                places = segment.places(high[pending], low[pending])
                hits = np.flatnonzero(places >= 0)
                _copy(segment, places[hits], pending[hits], out, truncated)
            except (DamagedSegmentError, OSError, ValueError):
                self._segments.remove(segment)
                if segment.folder.is_dir():  # otherwise another run has removed it
                    quarantine(segment.folder)
                    self.damaged.append(str(segment.folder))
                continue
            if len(hits):
                segment.touch()
                cached[pending[hits]] = True
                pending = pending[places < 0]
        return cached

    def add(self, keys: Keys, rows: Float32Rows, truncated: NDArray[np.bool_]) -> None:
        """Adds rows; writes a segment once SEAL_BYTES or SEAL_SECONDS is reached."""
        self._open.append((keys.copy(), rows.copy(), truncated.copy()))
        self._open_bytes += rows.nbytes
        if self._open_bytes >= SEAL_BYTES or time.monotonic() - self._opened >= SEAL_SECONDS:
            self.seal()

    def seal(self) -> None:
        """Writes the open rows as a segment, if there are any.

        Raises OutputError if that fails: a cache that silently stored nothing would cost the next run.
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
                remedy=f"free disk space, or use another folder with {flag_of('cache_dir', 'DIR')}, or none with "
                f"{flag_of('cache', False)}",
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
