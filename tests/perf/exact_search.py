"""The search of `secid mine` for dense sources beside faiss-cpu's IndexFlatIP: time, peak memory and agreement.

    python -m tests.perf.exact_search --faiss PYTHON       # 1 M candidates x 10,000 queries, 384 dimensions, top 100
    python -m tests.perf.exact_search --faiss PYTHON --candidates 100000 --queries 1000

PYTHON is the interpreter of an environment with faiss-cpu and numpy, which is no dependency of this project. Unit rows
are drawn into two files. Each side is a process of its own and searches the same rows, in turn; its memory is watched
from outside. secid reads the candidates' file in windows, whose pages are the kernel's to drop; an index of faiss
holds a copy of them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

import numpy as np

PART_ROWS = 65_536
QUERIES_AT_ONCE = 4_096
"""As `secid mine` has them; faiss chooses its own blocks."""
WATCH_SECONDS = 0.05


def draw(path: Path, n: int, d: int, seed: int) -> None:
    """n unit rows of random directions, float32."""
    generator = np.random.default_rng(seed)
    with path.open("wb") as file:
        for start in range(0, n, PART_ROWS):
            part = generator.standard_normal((min(PART_ROWS, n - start), d), dtype=np.float32)
            file.write((part / np.linalg.norm(part, axis=1, keepdims=True)).tobytes())


def search_by_secid(folder: Path, d: int, k: int, threads: int) -> tuple[float, np.ndarray]:
    """Seconds, and (q, k) places."""
    import torch

    from secid.measure.blocks import Vectors
    from secid.tools.mining.choose import DenseRanking

    torch.set_num_threads(threads)
    stores = {role: np.memmap(folder / f"{role}.f32", np.float32, "r").reshape(-1, d) for role in ("query", "passage")}

    def take(role: str, ids: np.ndarray, out: torch.Tensor) -> None:
        np.take(stores[role], ids, axis=0, out=out.numpy())

    began = time.perf_counter()
    ranking = DenseRanking(Vectors(torch.empty(0, d), torch.empty(0, d), take), len(stores["passage"]))
    queries = np.arange(len(stores["query"]))
    parts = [queries[start : start + QUERIES_AT_ONCE] for start in range(0, len(queries), QUERIES_AT_ONCE)]
    places = np.concatenate([ranking.first(part, k).ids for part in parts])
    return time.perf_counter() - began, places


def search_by_faiss(folder: Path, d: int, k: int, threads: int) -> tuple[float, np.ndarray]:
    """Seconds with the copy into the index, and (q, k) places."""
    import faiss

    faiss.omp_set_num_threads(threads)
    queries, passages = (
        np.memmap(folder / f"{role}.f32", np.float32, "r").reshape(-1, d) for role in ("query", "passage")
    )
    began = time.perf_counter()
    index = faiss.IndexFlatIP(d)
    for start in range(0, len(passages), PART_ROWS):
        index.add(np.ascontiguousarray(passages[start : start + PART_ROWS]))
    places = index.search(np.ascontiguousarray(queries), k)[1]
    return time.perf_counter() - began, places


SEARCHES = {"secid": search_by_secid, "faiss": search_by_faiss}


def run(side: str, python: str, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """One search in a process of its own: seconds, processor seconds with its start, peak memory of its own, MB."""
    from tests.perf.vectors_million import own_bytes

    numbers = [str(getattr(options, name)) for name in ("dimension", "top", "threads")]
    command = [python, str(Path(__file__).resolve()), "--side", side, "--folder", str(folder)]
    flags = [word for pair in zip(("--dimension", "--top", "--threads"), numbers, strict=True) for word in pair]
    most, before = 0, resource.getrusage(resource.RUSAGE_CHILDREN)
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": root if side == "secid" else ""}
    with subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True, env=environment) as process:
        while process.poll() is None:
            with suppress(OSError):  # it has just ended
                most = max(most, own_bytes(process.pid))
            time.sleep(WATCH_SECONDS)
        assert process.stdout is not None
        text = process.stdout.read()
    if process.returncode:
        raise SystemExit(process.returncode)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": json.loads(text), "processor": processor, "mb": most / 2**20}


def main() -> None:
    """Prints each search, the ratio of the medians, and how many places agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faiss", metavar="PYTHON", help="interpreter with faiss-cpu")
    parser.add_argument("--candidates", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--top", type=int, default=100)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--side", choices=SEARCHES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        seconds, places = SEARCHES[options.side](options.folder, options.dimension, options.top, options.threads)
        np.save(options.folder / f"{options.side}.npy", places)
        print(json.dumps(seconds))
        return
    if not options.faiss:
        parser.error("--faiss PYTHON: an interpreter with faiss-cpu")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        draw(folder / "passage.f32", options.candidates, options.dimension, 0)
        draw(folder / "query.f32", options.queries, options.dimension, 1)
        seconds: dict[str, list[float]] = {side: [] for side in SEARCHES}
        processor: dict[str, list[float]] = {side: [] for side in SEARCHES}
        for _ in range(options.repeats):
            for side, python in (("faiss", options.faiss), ("secid", sys.executable)):
                one = run(side, python, folder, options)
                seconds[side].append(one["seconds"])
                processor[side].append(one["processor"])
                print(
                    f"{side}: {one['seconds']:.1f} s, {one['processor']:.1f} s of processor time, {one['mb']:,.0f} MB "
                    "of its own",
                    flush=True,
                )
        first, second = (np.load(folder / f"{side}.npy") for side in SEARCHES)
        wall, work = (median(part["secid"]) / median(part["faiss"]) for part in (seconds, processor))
        print(f"{options.candidates:,} x {options.queries:,}, top {options.top}, {options.threads} threads")
        print(f"secid takes {wall:.2f} times as long, {work:.2f} times in processor time")
        print(f"{int((first != second).sum()):,} of {first.size:,} places differ")


if __name__ == "__main__":
    main()
