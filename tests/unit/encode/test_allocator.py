"""Freed memory is used again, measured by the page faults of a child process."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the thresholds are glibc's")

FAULTS = """
import resource, sys
import numpy as np
from secid.encode.allocator import keep_freed_memory

if sys.argv[1] == "kept":
    assert keep_freed_memory()
for round in range(10):
    if round == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [np.ones(1_000_000) for _ in range(6)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str) -> int:
    """Page faults of nine rounds of 48 MB, allocated and freed."""
    child = subprocess.run([sys.executable, "-c", FAULTS, mode], capture_output=True, text=True, timeout=60)
    assert child.returncode == 0, child.stderr
    return int(child.stdout)


def test_freed_memory_is_kept_for_the_next_batch() -> None:
    assert faults("kept") * 10 < faults("given back")
