"""Memory that a CPU encoder frees is kept for its next batch.

glibc gives large blocks back to the system as they are freed, and every batch then pays for fresh pages: 5,000 page
faults a batch of 512 tokens with MiniLM, a tenth of its processor time; with this, 13.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Names of glibc's malloc.h."""

KEPT_BYTES = 256 * 1024**2
"""Free memory at which glibc gives some back: many times the activations of a batch that fits a core's cache."""

LARGEST_BLOCK = 32 * 1024**2
"""Blocks above this come from the system each time: the most that every glibc takes."""


@cache
def keep_freed_memory() -> bool:
    """Sets glibc's thresholds for this process, once; whether it did. Other C libraries stay as they are."""
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(MMAP_THRESHOLD, LARGEST_BLOCK)) and bool(libc.mallopt(TRIM_THRESHOLD, KEPT_BYTES))
