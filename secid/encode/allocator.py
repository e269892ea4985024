"""Keeps the memory that a CPU encoder frees for its next batch.

glibc returns large freed blocks to the system, and every batch then pays for fresh pages: with MiniLM 5,000 page faults
per batch of 512 tokens, a tenth of its CPU time; with these thresholds, 13.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Names of glibc's malloc.h."""

TRIM_BYTES = 256 * 1024**2
"""Free memory above which glibc returns some: many times the activations of a batch that fits a core's cache."""

LARGEST_BLOCK = 32 * 1024**2
"""Larger blocks are requested from the system each time: the highest value that every glibc accepts."""


@cache
def keep_freed_memory() -> bool:
    """Sets glibc's thresholds, once per process. Returns whether they were set; other C libraries are left alone."""
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(MMAP_THRESHOLD, LARGEST_BLOCK)) and bool(libc.mallopt(TRIM_THRESHOLD, TRIM_BYTES))
