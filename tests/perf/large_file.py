"""Reads a generated file of 2 GB, plain and gzipped, with bounded memory, and prints the peak.

python tests/perf/large_file.py [--megabytes 2000] [--folder DIR]

The rows are written by a stream and repeat a few thousand passages, as mined negatives do. Reading is done by a
process of its own, so that the peak is its own: through open_source alone, and through the plan as a run does it.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

N_PASSAGES = 5000
NEGATIVES = 8


def lines() -> Iterator[bytes]:
    """Rows without end: a query of its own, one positive and NEGATIVES negatives of 340 characters."""
    passages = [
        f"Passage {n}: " + " ".join(f"word{(n * 31 + k * k) % 9973}" for k in range(40)) for n in range(N_PASSAGES)
    ]
    for number in itertools.count():
        chosen = [passages[(number * 17 + k * 613) % N_PASSAGES] for k in range(NEGATIVES + 1)]
        row = {"query": f"what does row {number} ask for", "pos": chosen[:1], "neg": chosen[1:]}
        yield json.dumps(row).encode() + b"\n"


def write(path: Path, n_bytes: int) -> None:
    """A file of that many bytes before packing."""
    size = 0
    with gzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else path.open("wb") as file:
        for line in lines():
            file.write(line)
            size += len(line)
            if size >= n_bytes:
                return


def child(path: Path, stage: str) -> None:
    from secid.pool import make_plan
    from secid.read import open_source, resolve_sources
    from secid.settings import Settings

    settings = Settings()
    (source,) = resolve_sources([str(path)], settings)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        if stage == "read":
            n_rows = sum(1 for _ in open_source(source, settings))
        else:
            plan = make_plan([(source, open_source(source, settings))], settings, Path(folder))
            n_rows = plan.sources[0].tally.n_read
            plan.close()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{path.name:12} {stage:5} {n_rows:,} rows in {seconds:.0f} s, peak {peak / 1024:.0f} MiB "
        f"({before / 1024:.0f} MiB before the first row)"
    )


def run(folder: Path, n_megabytes: int) -> None:
    for name in ("large.jsonl", "large.jsonl.gz"):
        path = folder / name
        write(path, n_megabytes * 10**6)
        print(f"{name:12} {path.stat().st_size / 1e6:,.0f} MB on disk", flush=True)
        for stage in ("read", "plan"):
            command = [sys.executable, __file__, "--child", stage, "--file", str(path)]
            subprocess.run(command, check=True)
        path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--folder", type=Path, help="where the files go for the time of the run")
    parser.add_argument("--child", choices=("read", "plan"), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.file, arguments.child)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        run(Path(folder), arguments.megabytes)


if __name__ == "__main__":
    main()
