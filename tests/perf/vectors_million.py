"""Times `secid score` on two generated sources with a vectors file: a million triplets, 700,000 texts, 384 dimensions.

python -m tests.perf.vectors_million [--queries 50000] [--folder DIR] [--controls all] [--repeats 1] [--profile]

Nothing is encoded, so what is timed is everything else. Each run is a process of its own; its memory is watched from
outside, and the stages that it reports are added up against its wall time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np

from tests.kills import ROOT

DIMENSION = 384
NEGATIVES = 10
"""Of a query, in each of the two sources."""
PASSAGES = 12
"""Distinct negatives for each query: the sources share eight of ten."""
PASSAGE_WORDS, QUERY_WORDS, N_WORDS = 53, 9, 60_000
RARE_SHARE = 0.1
"""Of made-up words. The others are the documentation's, so that the language of a text is as quick to tell as that of
a real one."""
WRITE_QUERIES = 10_000
WATCH_SECONDS = 0.05


def write_files(folder: Path, n_queries: int) -> tuple[list[Path], Path]:
    """Two sources as Parquet and the vectors of their texts. Not written again where they exist."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sources = [folder / f"{name}-{n_queries}.parquet" for name in ("first", "second")]
    vectors = folder / f"vectors-{n_queries}.npz"
    if vectors.exists():
        return sources, vectors
    draw = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlcumwfgypbvk"))
    lengths = 3 + draw.poisson(np.log10(np.arange(N_WORDS) + 1.0))
    rare = 1.0 / (np.arange(N_WORDS) + 2.7)
    pages = " ".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
    english = Counter(re.findall(r"\b[a-z]{2,}\b", pages))
    words = np.array([*english, *("".join(draw.choice(letters, length)) for length in lengths)])
    common = np.array([*english.values()]) / english.total()
    edges = np.cumsum(np.concatenate([(1 - RARE_SHARE) * common, RARE_SHARE * rare / rare.sum()]))

    def texts(n: int, n_words: int, name: str) -> list[str]:
        drawn = words[np.searchsorted(edges[:-1], draw.random((n, n_words)))].tolist()
        return [f"{' '.join(row).capitalize()} {name}{number}." for number, row in enumerate(drawn)]

    n_passages = n_queries * (1 + PASSAGES)
    queries, passages = [], []
    for start in range(0, n_queries, WRITE_QUERIES):
        n = min(WRITE_QUERIES, n_queries - start)
        queries += texts(n, QUERY_WORDS, f"q{start}.")
        passages += texts(n * (1 + PASSAGES), PASSAGE_WORDS, f"p{start}.")
    negatives = draw.permutation(np.arange(n_queries, n_passages)).reshape(n_queries, PASSAGES)
    for number, path in enumerate(sources):
        kept = negatives[:, 2 * number : 2 * number + NEGATIVES].tolist()
        rows = {
            "query": queries,
            "positive": passages[:n_queries],
            "negatives": [[passages[place] for place in row] for row in kept],
        }
        pq.write_table(pa.table(rows), path)
    every = [*queries, *passages]
    rows32 = np.empty((len(every), DIMENSION), np.float32)
    topics = draw.standard_normal((n_queries, DIMENSION), dtype=np.float32)
    rows32[:n_queries] = topics
    rows32[n_queries : 2 * n_queries] = topics
    rows32[2 * n_queries :][negatives - n_queries] = topics[:, None]
    for start in range(
        0, len(rows32), 65_536
    ):  # texts of one query lie around one direction, all of them around another
        part = rows32[start : start + 65_536]
        part += 1.5 * draw.standard_normal(part.shape, dtype=np.float32)
        part[:, :8] += 4.0
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    keys = np.array([hashlib.sha256(text.encode()).hexdigest() for text in every])
    np.savez(vectors, vectors=rows32, text_sha256=keys)
    return sources, vectors


def own_bytes(pid: int) -> int:
    """Memory of a process that is its own: pages of mapped files are the kernel's to drop."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return sum(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith(("RssAnon:", "RssShmem:")))


def run(sources: list[Path], vectors: Path, controls: str, profile: Path | None, tree: Path) -> dict[str, object]:
    """One `secid score`: wall and processor seconds, peak memory, and the stages it reports."""
    with tempfile.TemporaryDirectory() as folder:
        start = [sys.executable, *(["-m", "cProfile", "-o", str(profile)] if profile else []), "-m", "secid"]
        command = [*start, "score", *map(str, sources), "--encoder", str(vectors), "--set", f"controls={controls}"]
        before, began, most = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), 0
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        with subprocess.Popen(
            [*command, "--run", f"{folder}/run", "--quiet"], stdout=subprocess.DEVNULL, env=environment, cwd=folder
        ) as process:
            while process.poll() is None:
                with suppress(OSError):  # it has just ended
                    most = max(most, own_bytes(process.pid))
                time.sleep(WATCH_SECONDS)
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode:
            raise SystemExit(process.returncode)
        report = json.loads(Path(folder, "run", "report.json").read_text(encoding="utf-8"))
    return {
        "wall": wall,
        "processor": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "mb": most / 2**20,
        "stages": {name: entry["seconds"] for name, entry in report["timing"].items()},
        "scores": {source["name"]: source["score"]["nats"] for source in report["sources"]},
    }


def main() -> None:
    """Prints one line for each run, and its stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=50_000)
    parser.add_argument("--folder", type=Path, help="keeps the files for the next time")
    parser.add_argument("--controls", default="all")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--profile", type=Path, help="also write a profile of the last run here")
    parser.add_argument("--tree", type=Path, nargs="+", default=[Path.cwd()], help="checkouts to run in turn")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        folder.mkdir(exist_ok=True, parents=True)
        sources, vectors = write_files(folder.resolve(), options.queries)
        for _ in range(options.repeats):
            for tree in options.tree:
                one = run(sources, vectors, options.controls, options.profile, tree.resolve())
                stages = one["stages"]
                assert isinstance(stages, dict)
                print(
                    f"{tree}: {one['wall']:.1f} s, {one['processor']:.1f} s of processor time, {one['mb']:.0f} MB of "
                    f"its own; stages {sum(stages.values()) / one['wall']:.0%}: {stages}; {one['scores']}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
