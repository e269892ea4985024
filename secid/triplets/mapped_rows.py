"""Rows in a file, mapped into memory: read and written as an array, never all in memory at once."""

from __future__ import annotations

import mmap
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

PART_BYTES = 256 << 20
"""Of the file, mapped at once by `take`: a system may map far more around a row than the row."""


class MappedRows:
    """(n, d) float32 in a file. values: the array; a row is zero until it is written.

    Pages that were touched stay in the process's memory, as far as there is room, until `release`.
    """

    def __init__(self, path: Path, n: int, d: int, *, new: bool = True) -> None:
        self.values: npt.NDArray[np.float32] = np.memmap(path, np.float32, "w+" if new else "r+", shape=(n, d))

    def take(self, ids: npt.NDArray[np.int64], out: Tensor) -> None:
        """Copies the rows of these rising ids, (n, d), by all threads; parts of the file are given back one by one."""
        n, d = self.values.shape
        rows = torch.from_numpy(self.values)
        at_once = max(1, PART_BYTES // (4 * d))
        cuts = np.searchsorted(ids, np.arange(0, n + at_once, at_once))
        for start, stop in pairwise(cuts.tolist()):
            if stop > start:
                torch.index_select(rows, 0, torch.from_numpy(ids[start:stop]), out=out[start:stop])
                self.release()

    def release(self) -> None:
        """Gives the pages back; the file keeps what was written. Does nothing where the system has no such call."""
        mapped: Any = getattr(self.values, "_mmap", None)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)
