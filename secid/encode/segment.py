"""One immutable piece of the embedding cache: a folder with sorted keys, their rows, and checksums.

keys.npy (m, 16) uint8 sorted, rows.npy (m, d) float32, truncated.npy (m,) bool, segment.json.
It is written to a temporary folder, flushed to disk, then renamed: it exists completely or not at all.

Source: DESIGN 5.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secid.encode.hashes import file_sha256
from secid.encode.keys import Keys, Words, find, key_words
from secid.encode.protocol import Float32Rows

META = "segment.json"
ARRAYS = ("keys.npy", "rows.npy", "truncated.npy")
TEMPORARY, DAMAGED = ".new-", ".damaged-"


class DamagedSegmentError(Exception):
    """The files of a segment differ from those that were written."""


class Segment:
    """A finished segment, read through memory maps. Files are opened at the first lookup."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def meta(self) -> Mapping[str, Any]:
        try:
            meta: dict[str, Any] = json.loads((self.folder / META).read_text(encoding="utf-8"))
            if meta.pop("checksum") != _checksum(meta):
                raise DamagedSegmentError(f"{META}: checksum differs")
            return meta
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedSegmentError(f"{META}: {error}") from error

    def verify(self, names: tuple[str, ...] = ARRAYS) -> None:
        """Raises DamagedSegmentError if a file differs from what was written, OSError if it is missing."""
        for name in names:
            if file_sha256(self.folder / name) != self.meta["sha256"].get(name):
                raise DamagedSegmentError(f"{name}: checksum differs")

    @cached_property
    def _words(self) -> tuple[Words, Words]:
        self.verify(("keys.npy",))
        return key_words(np.load(self.folder / "keys.npy"))

    @cached_property
    def _values(self) -> tuple[Float32Rows, NDArray[np.bool_]]:
        """Rows and truncation marks, verified once, at the first hit."""
        self.verify(("rows.npy", "truncated.npy"))
        return np.load(self.folder / "rows.npy", mmap_mode="r"), np.load(self.folder / "truncated.npy")

    def places(self, high: Words, low: Words) -> NDArray[np.int64]:
        """(n,) int64, the row of each key; -1 if it is missing. All 16 bytes are compared.

        high, low : the keys' words (`key_words`), preferably sorted by high, so that memory is read in order.
        """
        return find(high, low, *self._words)

    def rows(self, places: NDArray[np.int64]) -> Float32Rows:
        return np.asarray(self._values[0][places])

    def truncated(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        return self._values[1][places]

    def touch(self) -> None:
        """Marks the segment as used now, for the size limit."""
        try:
            os.utime(self.folder / META)
        except OSError:  # removed, or a read-only cache: the rows are right all the same
            return


def write_segment(parent: Path, keys: Keys, rows: Float32Rows, truncated: NDArray[np.bool_], encoder: str = "") -> Path:
    """Writes a segment under `parent`, flushed to disk. keys (m, 16), m >= 1, in any order. Returns its folder.

    encoder : its name, for display; encoders are identified by the folder.
    Raises OSError if it cannot be written.
    """
    high, low = key_words(keys)
    order = np.lexsort((low, high))
    name = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
    temporary = parent / f"{TEMPORARY}{name}"
    temporary.mkdir(parents=True)
    try:
        arrays: tuple[NDArray[Any], ...] = (keys[order], rows[order], truncated[order])
        for file, array in zip(ARRAYS, arrays, strict=True):
            with (temporary / file).open("wb") as stream:
                np.save(stream, array, allow_pickle=False)
                stream.flush()
                os.fsync(stream.fileno())
        sums = {file: file_sha256(temporary / file) for file in ARRAYS}
        meta = {"n": len(keys), "dimension": rows.shape[1], "encoder": encoder, "sha256": sums}
        with (temporary / META).open("w", encoding="utf-8") as text:
            json.dump({**meta, "checksum": _checksum(meta)}, text)
            text.flush()
            os.fsync(text.fileno())
        final = parent / name
        temporary.rename(final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync_folder(parent)
    return final


def _checksum(meta: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def _sync_folder(folder: Path) -> None:
    """Makes a rename durable; Windows has no such call for folders."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
