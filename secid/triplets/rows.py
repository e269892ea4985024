"""Unit rows of texts by id: on a GPU, or in a file that is read through a map."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from secid.arrays import Index
from secid.encode.device import is_gpu
from secid.encode.transfer import host_rows, own_stream, to_device
from secid.errors import OutputError, plainly
from secid.files import remedy_of

Put = Callable[[Index, Any], None]
"""Takes positions (n,) and their rows (n, d), an array or a tensor on any device."""

PART_BYTES = 256 << 20
"""Of the file, mapped at once by `take`: a system may map far more around a row than the row."""
UNRESERVABLE = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of file systems and systems that cannot reserve space."""


class DeviceRows:
    """(n, d) float32 on a GPU. values: the tensor; a row is zero until it is written."""

    def __init__(self, device: torch.device, n: int, d: int) -> None:
        self.values = torch.zeros((n, d), device=device)
        if is_gpu(device):  # rows are written in other streams
            torch.cuda.synchronize(device)

    def reserve(self, n: int) -> None:
        """Nothing is to be done: the memory is this run's already."""

    def writer(self, ids: Index) -> Put:
        """Takes the rows of these ids by their positions among them."""
        device = self.values.device

        def put(positions: Index, rows: Any) -> None:
            with own_stream(rows), own_stream(self.values):
                self.values.index_copy_(0, to_device(ids[positions], device), torch.as_tensor(rows).to(device))

        return put


class FileRows:
    """(n, d) float32 in a file, in the order in which they arrive; `take` has them by id.

    The file takes up what was reserved, not n rows. Nothing is written through the map, so that a full disk is an
    error of a call. Pages that were read stay in the process's memory, as far as there is room, until `release`.
    """

    def __init__(self, path: Path, n: int, d: int) -> None:
        self._path, self._row_bytes, self._n_rows = path, 4 * d, 0
        self._place = np.full(n, -1, np.int64)  # which no row has, so that to read a row never written is an error
        with self._room(4 * n * d), path.open("wb") as file:
            file.truncate(max(1, n) * self._row_bytes)
        self._values: npt.NDArray[np.float32] = np.memmap(path, np.float32, "r+", shape=(max(1, n), d))

    def reserve(self, n: int) -> None:
        """Makes room for n more rows. Raises OutputError where there is none."""
        n_bytes = n * self._row_bytes
        with self._room(n_bytes), self._path.open("r+b") as file:
            try:
                os.posix_fallocate(file.fileno(), self._n_rows * self._row_bytes, max(1, n_bytes))
            except (AttributeError, OSError) as error:  # no such call, or not on this file system
                if isinstance(error, OSError) and error.errno not in UNRESERVABLE:
                    raise
                if shutil.disk_usage(self._path.parent).free < n_bytes:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error

    def writer(self, ids: Index) -> Put:
        """Takes the rows of these ids by their positions among them. Raises OutputError where a disk is full."""

        def put(positions: Index, rows: Any) -> None:
            values = np.ascontiguousarray(host_rows(rows), np.float32)
            with self._room(values.nbytes), self._path.open("r+b") as file:
                file.seek(self._n_rows * self._row_bytes)
                file.write(values.data)
            self._place[ids[positions]] = np.arange(self._n_rows, self._n_rows + len(positions))
            self._n_rows += len(positions)

        return put

    def take(self, ids: Index, out: Tensor) -> None:
        """Copies the rows of these ids, (n, d), by all threads; parts of the file are given back one by one.

        ids : rising, as neighbours arrived at about the same time.   out : on any device.
        """
        rows, places = torch.from_numpy(self._values), torch.from_numpy(self._place[ids])
        at_once = max(1, PART_BYTES // self._row_bytes)
        for part, some in zip(torch.split(out, at_once), torch.split(places, at_once), strict=True):
            if part.device.type == "cpu":
                torch.index_select(rows, 0, some, out=part)
            else:
                part.copy_(rows[some])
            self.release()

    def release(self) -> None:
        """Gives the pages back; the file keeps what was written. Does nothing where the system has no such call."""
        mapped: Any = getattr(self._values, "_mmap", None)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)

    @contextmanager
    def _room(self, n_bytes: int) -> Iterator[None]:
        """Errors of the system in the block are a lack of room for this many bytes."""
        try:
            yield
        except OSError as error:
            free = shutil.disk_usage(self._path.parent).free
            raise OutputError(
                f"no room for the rows of the texts: {n_bytes / 1e9:,.2f} GB needed, {free / 1e9:,.2f} GB free "
                f"({plainly(error)})",
                where=str(self._path.parent),
                remedy=remedy_of(error),
            ) from error
