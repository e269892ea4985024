"""Rows that come from outside (a file, an endpoint, a function): checked, truncated, scaled."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from secid.encode.protocol import Float32Rows
from secid.errors import EncoderError
from secid.settings import DEFAULTS, Settings, flag_of

MODEL_FIELDS = ("dtype", "device", "batch_tokens", "trust_remote_code", "allow_pickle")
"""Settings for loading and running a model, without effect if secid runs none."""


GAP_BYTES = 16 << 10
"""Rows of a file no further apart are read by one call, with what lies between them."""


class StoredRows:
    """(n, d) rows as they lie in a file: `rows[places]` reads some. Nothing is mapped, as to read a map of a file that
    another program cuts short ends the process.

    Raises EncoderError once the file has changed.
    """

    def __init__(self, file: BinaryIO, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype, self.ndim = shape, dtype, len(shape)
        self._path, self._start, self._stamp = Path(file.name), file.tell(), _stamp(file)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, places: int | slice | NDArray[np.int64]) -> NDArray[Any]:
        with self._path.open("rb") as file:
            if isinstance(places, slice):
                rows = self._read(file, *places.indices(len(self))[:2])
            elif isinstance(places, np.ndarray):
                rows = self._take(file, places)
            else:
                rows = self._read(file, int(places), int(places) + 1)[0]
            if _stamp(file) != self._stamp:
                raise self._changed()
        return rows

    def _take(self, file: BinaryIO, places: NDArray[np.int64]) -> NDArray[Any]:
        order = np.argsort(places, kind="stable")
        rising = places[order]
        rows = np.empty((len(places), *self.shape[1:]), self.dtype)
        cuts = np.flatnonzero(np.diff(rising) * rows[:1].nbytes > GAP_BYTES) + 1
        for start, stop in pairwise([0, *cuts.tolist(), len(places)] if len(places) else ()):
            first, last = rising[start], rising[stop - 1]
            rows[order[start:stop]] = self._read(file, first, last + 1)[rising[start:stop] - first]
        return rows

    def _read(self, file: BinaryIO, start: int, stop: int) -> NDArray[Any]:
        rows = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
        file.seek(self._start + start * rows[:1].nbytes)
        if rows.nbytes and file.readinto(memoryview(rows).cast("B")) < rows.nbytes:  # type: ignore[attr-defined]
            raise self._changed()
        return rows

    def _changed(self) -> EncoderError:
        return EncoderError("the file of vectors changed during the run", where=str(self._path), remedy="run again")


def _stamp(file: BinaryIO) -> tuple[int, int]:
    """Size and time of change."""
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def as_rows(values: Any, n_texts: int, dimension: int | None, where: str) -> Float32Rows:
    """(n_texts, d) float32. Raises EncoderError if `values` is no such array of numbers."""
    try:
        rows = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise EncoderError(f"vectors must be arrays of numbers of equal length: {error}", where=where) from error
    expected = f"({n_texts}, {'d' if dimension is None else dimension})"
    if rows.ndim != 2 or len(rows) != n_texts or rows.shape[1] == 0 or dimension not in (None, rows.shape[1]):
        raise EncoderError(f"vectors of shape {rows.shape} for {n_texts} texts, expected {expected}", where=where)
    return rows


def finish_rows(rows: Float32Rows, truncate_dim: int | None, normalize: bool) -> Float32Rows:
    """The first `truncate_dim` numbers of each row, at unit length if `normalize`. A zero row stays zero.

    NaN and infinity pass through as NaN: `embed` stops on them and names the text.
    """
    if truncate_dim is not None:
        rows = rows[:, :truncate_dim]
    if not normalize:
        return rows
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
    with np.errstate(invalid="ignore"):
        return np.divide(rows, np.where(lengths == 0, 1, lengths), dtype=np.float32)


def unused_flags(settings: Settings, kind: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """A note on the settings among `names` that were given but have no effect on that kind of encoder."""
    ignored = [name for name in names if getattr(settings, name) != getattr(DEFAULTS, name)]
    return (f"not used with {kind}: {', '.join(map(flag_of, ignored))}",) if ignored else ()


def cut_dimension(dimension: int, truncate_dim: int | None) -> int:
    """The dimension after truncation. Raises EncoderError if the encoder has fewer."""
    if truncate_dim is not None and truncate_dim > dimension:
        raise EncoderError(
            f"{flag_of('truncate_dim', truncate_dim)} exceeds the encoder's {dimension} dimensions",
            remedy=f"use {flag_of('truncate_dim', dimension)} or less",
        )
    return dimension if truncate_dim is None else truncate_dim
