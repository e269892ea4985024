"""Rows in a file, mapped into memory: read and written as an array, never all in memory at once."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


class MappedRows:
    """(n, d) float32 in a file. values: the array; a row is zero until it is written.

    Pages that were touched stay in the process's memory, as far as there is room, until `release`.
    """

    def __init__(self, path: Path, n: int, d: int, *, new: bool = True) -> None:
        self.values: npt.NDArray[np.float32] = np.memmap(path, np.float32, "w+" if new else "r+", shape=(n, d))

    def release(self) -> None:
        """Gives the pages back; the file keeps what was written. Does nothing where the system has no such call."""
        mapped: Any = getattr(self.values, "_mmap", None)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)
