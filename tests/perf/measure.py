"""Time the measure stage on existing vectors against a bare matrix product, and print its peak memory.

    python -m tests.perf.measure                      # 1 M triplets of 768 dimensions
    python -m tests.perf.measure --triplets 20000     # a try

The vectors are drawn and written to a file; a child process maps the file and measures, so that only its own memory
counts. For each pass the script prints the median time over that of the product (d x T)(T x d) in float32, timed in
the same child, alternating with the passes. The triplets form one source of 10 negatives per query, all distinct.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch

from secid.arrays import FLOAT32_DISTANCE
from secid.measure.blocks import Triplets, Vectors
from secid.measure.information import Eigen
from secid.measure.sweep import Variant, sweep
from secid.measure.uncertainty import influence
from secid.triplets.embedding import FileRows
from secid.triplets.measure_set import curve_budgets

NEGATIVES = 10
BARE_ROWS = 4096
PART_ROWS = 8192
MEGABYTE = 2**20
BASE = Variant(0.05, "base", "full")


def draw(folder: Path, n_queries: int, d: int, seed: int) -> dict[str, FileRows]:
    """Write unit rows around shared directions in parts, so that cosines spread as those of real texts do."""
    generator = np.random.default_rng(seed)
    stores = {}
    for name, n in (("query", n_queries), ("passage", n_queries * (1 + NEGATIVES))):
        stores[name] = FileRows(folder / f"{name}.f32", n, d)
        put = stores[name].writer(np.arange(n))
        for start in range(0, n, PART_ROWS):
            part = generator.standard_normal((min(PART_ROWS, n - start), d), dtype=np.float32)
            part[:, :8] += 4.0
            put(np.arange(start, start + len(part)), part / np.linalg.norm(part, axis=1, keepdims=True))
    return stores


def triplets_of(n_queries: int) -> Triplets:
    """Return triplets: record i has query i, passage i as its positive, and the next free passages as negatives."""
    n = n_queries * NEGATIVES
    record = np.repeat(np.arange(n_queries), NEGATIVES)
    generator = np.random.default_rng(1)
    return Triplets(
        query=record,
        positive=record,
        negative=n_queries + generator.permutation(n),
        record_offsets=np.arange(n_queries + 1) * NEGATIVES,
        record=record,
        place=np.arange(n),
    )


def bare_seconds(n: int, d: int) -> float:
    """Return the seconds of (d x n)(n x d) in float32, by blocks of rows in memory."""
    rows = torch.randn(BARE_ROWS, d)
    total = torch.zeros(d, d)
    start = time.perf_counter()
    for _ in range(n // BARE_ROWS):
        total += rows.T @ rows
    rest = rows[: n % BARE_ROWS]
    total += rest.T @ rest
    return time.perf_counter() - start


def child(folder: Path, n_queries: int, d: int, repeats: int, budgets: int) -> dict[str, object]:
    """Return the seconds of each repeat, and the peak memory of this process."""
    stores = draw(folder, n_queries, d, 0)
    vectors = Vectors(torch.empty(0, d), torch.empty(0, d), lambda role, ids, out: stores[role].take(ids, out))
    rows = triplets_of(n_queries)
    coverage = np.random.default_rng(2).uniform(0, 1, len(rows))
    before, own = peak_megabytes(), OwnMemory()
    found: dict[str, list[float]] = {"bare": [], "first pass": [], "second pass": [], "first, float64": []}
    for _ in range(repeats):
        found["bare"].append(bare_seconds(len(rows), d))
        start = time.perf_counter()
        swept = sweep(vectors, rows, {"base": coverage}, [BASE])
        found["first pass"].append(time.perf_counter() - start)
        amount = weights(swept.dots, coverage)
        points = curve_budgets(1.0, float(len(rows)))[:budgets]
        start = time.perf_counter()
        influence(
            vectors,
            rows,
            swept.dots.squared_distance.numpy(),
            amount,
            Eigen.of(swept.state(BASE), len(rows)),
            FLOAT32_DISTANCE,
            points,
        )
        found["second pass"].append(time.perf_counter() - start)
        start = time.perf_counter()
        sweep(vectors, rows, {"base": coverage}, [BASE], sums=torch.float64)
        found["first, float64"].append(time.perf_counter() - start)
    return {
        "seconds": found,
        "before_mb": before,
        "own_mb": own.stop(),
        "peak_mb": peak_megabytes(),
        "n_budgets": len(points),
    }


class OwnMemory:
    """Peak private memory of the process, MB. Mapped pages of the vectors' file do not count: the kernel can drop them.

    Read every 20 ms; 0 without /proc.
    """

    def __init__(self) -> None:
        self.peak = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        status = Path("/proc/self/status")
        while status.exists() and not self._ended.wait(0.02):
            lines = status.read_text(encoding="ascii").splitlines()
            own = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            self.peak = max(self.peak, own * 1024 / MEGABYTE)

    def stop(self) -> float:
        self._ended.set()
        self._thread.join()
        return self.peak


def weights(dots: object, coverage: np.ndarray) -> np.ndarray:
    """Return the full weight of each triplet, as the sweep used it."""
    from secid.measure.gates import gates

    return gates(dots, torch.from_numpy(coverage), BASE.temperature).weight.numpy()


def peak_megabytes() -> float:
    """Return the peak resident memory of this process so far, mapped file pages included.

    On Linux it comes from /proc, because ru_maxrss starts at the parent's size.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / MEGABYTE
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MEGABYTE


def main() -> None:
    """Print ratios and the peak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triplets", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=768)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--budgets", type=int, default=99, help="at most this many points of the budget curve")
    parser.add_argument("--data", type=Path, help="folder for the vectors; a temporary one by default")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    n_queries = options.triplets // NEGATIVES
    if options.child:
        print(json.dumps(child(options.data, n_queries, options.dimension, options.repeats, options.budgets)))
        return
    with tempfile.TemporaryDirectory(dir=options.data) as folder:
        command = [sys.executable, "-m", "tests.perf.measure", *sys.argv[1:], "--data", folder, "--child"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout)
    seconds = found["seconds"]
    bare = median(seconds["bare"])
    print(f"{options.triplets:,} triplets x {options.dimension}, {torch.get_num_threads()} threads")
    print(f"bare product    {bare:8.2f} s")
    for name in ("first pass", "second pass", "first, float64"):
        ratios = [own / product for own, product in zip(seconds[name], seconds["bare"], strict=True)]
        print(f"{name:<15} {median(seconds[name]):8.2f} s, {median(ratios):.2f} times the bare product")
    print(f"budgets of the second pass: {found['n_budgets']}")
    print(f"peak memory     {found['own_mb']:8.0f} MB of its own, {found['before_mb']:.0f} MB in all before measuring")
    print(f"                {found['peak_mb']:8.0f} MB with mapped pages of the file, which the kernel may drop")


if __name__ == "__main__":
    main()
