"""Times `secid check` on generated triplets of distinct text beside a bare `json.loads` loop over the same file.

python -m tests.perf.check_million [--triplets 1000000] [--repeats 1] [--folder DIR]

376,000 triplets are 300 MB. The two take turns, each in a process of its own, whose memory is watched from outside.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.perf.read_plan_lex import write_files

WATCH_SECONDS = 0.1
BARE_LOOP = "import json, sys\nfor line in open(sys.argv[1], encoding='utf-8'): json.loads(line)"


class Cost(NamedTuple):
    """seconds of wall and of processor time, MiB at the peak: all of them, and without mapped files."""

    seconds: float
    cpu_seconds: float
    resident: float
    own: float


def own_bytes(pid: int) -> int:
    """Memory of a process that is its own: mapped files are the kernel's to drop."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return sum(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon:"))


def cost_of(command: list[str]) -> Cost:
    """What a command costs."""
    began, most, pid = time.perf_counter(), 0, 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not pid:
        with suppress(OSError):  # it has just ended
            most = max(most, own_bytes(process.pid))
        time.sleep(WATCH_SECONDS)
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
    if process.returncode or status:
        raise SystemExit(f"exit status {status}: {command}")
    return Cost(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, most / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triplets", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="keeps the file for the next time")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        path = write_files(arguments.folder or Path(made), arguments.triplets)["jsonl"]
        print(f"{arguments.triplets:,} triplets, {path.stat().st_size / 1e6:.0f} MB; load {os.getloadavg()[0]:.1f}")
        commands = {
            "json.loads": [sys.executable, "-c", BARE_LOOP, str(path)],
            "secid check": [sys.executable, "-m", "secid", "check", str(path), "--json"],
        }
        rounds = [{name: cost_of(command) for name, command in commands.items()} for _ in range(arguments.repeats)]
    for name in commands:
        cost = Cost(*map(statistics.median, zip(*(item[name] for item in rounds), strict=True)))
        print(
            f"{name:12}{cost.seconds:8.1f} s {cost.cpu_seconds:8.1f} s of processor time, at most "
            f"{cost.resident:.0f} MiB, {cost.own:.0f} MiB of its own"
        )
    ratios = sorted(item["secid check"].cpu_seconds / item["json.loads"].cpu_seconds for item in rounds)
    print(f"processor time over the bare loop's: {statistics.median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})")


if __name__ == "__main__":
    main()
