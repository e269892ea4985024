"""Prints the time of `secid --help` beside that of an empty Python: best of several, since noise only adds.

python tests/perf/help_time.py
"""

from __future__ import annotations

import subprocess
import sys
import time

REPEATS = 7
ASKED_SECONDS = 0.3


def best_seconds(*arguments: str) -> float:
    """Shortest of REPEATS runs of Python with these arguments."""
    found = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        found.append(time.perf_counter() - start)
    return min(found)


if __name__ == "__main__":
    empty = best_seconds("-c", "pass")
    help_text = best_seconds("-m", "secid", "--help")
    print(f"python -c pass  {empty:.3f} s")
    print(
        f"secid --help    {help_text:.3f} s, {help_text / empty:.1f} times as long; asked for: under {ASKED_SECONDS} s"
    )
