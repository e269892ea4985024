"""Times `secid check` on generated triplets of distinct text; its memory is watched from outside.

python -m tests.perf.check_million [--triplets 1000000] [--folder DIR]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.perf.read_plan_lex import write_files

WATCH_SECONDS = 0.1


def own_bytes(pid: int) -> int:
    """Memory of a process that is its own: mapped files are the kernel's to drop."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return sum(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triplets", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, help="keeps the file for the next time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.folder or Path(made)
        path = write_files(folder, arguments.triplets)["jsonl"]
        load, began, most = os.getloadavg()[0], time.perf_counter(), 0
        command = [sys.executable, "-m", "secid", "check", str(path), "--json"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while process.poll() is None:
            with suppress(OSError):  # it has just ended
                most = max(most, own_bytes(process.pid))
            time.sleep(WATCH_SECONDS)
        seconds, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{arguments.triplets:,} triplets: {seconds:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of processor time, "
        f"at most {most / 2**20:.0f} MiB of its own; load average before {load:.1f}"
    )


if __name__ == "__main__":
    main()
