"""Shards of a generated run as separate processes: time, memory and bytes of each phase, and how near to linear it is.

python -m tests.perf.shards [--records 1000000] [--shards 2 4 8] [--workers 1 2] [--no-prepare] [--folder DIR]
python -m tests.perf.shards --pace 4000 --slower 5 --shards 8 --workers 1 8 --prepare --no-one

Two sources are mined from one corpus for the same queries, so passages repeat within and across sources. Rows of the
encoder are hashes and cost nothing; with --pace each worker is a device that takes so many texts a second and sleeps.
Every worker is a process of its own with one thread, as is the run without shards that comes first. With --slower 5
each worker has a fifth of a core and of its device's pace, and times are divided by five: eight workers on eight
cores, shown on two. It needs root and cgroups.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from secid.encode import from_callable
from tests.perf.vectors_million import own_bytes

PASSAGE_WORDS, QUERY_WORDS, N_WORDS = 50, 8, 50_000
WRITE_TEXTS = 20_000
TABLE_ROWS = 4096
"""Rows that the encoder draws two of for each text."""
WATCH_SECONDS = 0.05
PERIOD_MICROSECONDS = 20_000
"""Of the scheduler, in which a process gets its share of a core."""


def write_files(folder: Path, n_records: int, n_negatives: int) -> list[Path]:
    """Two sources of half of the records each, one for each query, as JSON lines. Not written again where they exist.

    The corpus has a passage for each query, its positive; negatives are drawn from all of it, some far more often.
    """
    n = n_records // 2
    paths = [folder / f"{name}-{n_records}-{n_negatives}.jsonl" for name in ("first", "second")]
    if all(path.exists() for path in paths):
        return paths
    draw = np.random.default_rng(0)
    lengths = 2 + draw.poisson(np.log10(np.arange(N_WORDS) + 1.0) + 1)
    letters = np.array(list("etaoinshrdlcumwfgypbvk"))
    words = np.array(["".join(draw.choice(letters, length)) for length in lengths])
    edges = np.cumsum(1.0 / (np.arange(N_WORDS) + 2.7))

    def texts(n_words: int, name: str) -> list[str]:
        made: list[str] = []
        for start in range(0, n, WRITE_TEXTS):
            places = np.searchsorted(edges, edges[-1] * draw.random((min(WRITE_TEXTS, n - start), n_words)))
            made += [f"{name}{start + place} {' '.join(row)}" for place, row in enumerate(words[places].tolist())]
        return made

    queries, passages = texts(QUERY_WORDS, "q"), texts(PASSAGE_WORDS, "p")
    for path in paths:
        listed = (n * draw.random((n, n_negatives)) ** 2).astype(int).tolist()
        with path.with_suffix(".part").open("w", encoding="utf-8") as file:
            for number, places in enumerate(listed):
                row = {
                    "query": queries[number],
                    "positive": passages[number],
                    "negatives": [passages[place] for place in places],
                }
                file.write(json.dumps(row) + "\n")
        path.with_suffix(".part").rename(path)
    return paths


def encoder_of(dimension: int, pace: float) -> Any:
    """Unit rows by the text's hash. pace: texts a second, 0 for no time."""
    table = np.random.default_rng(1).standard_normal((TABLE_ROWS, dimension), dtype=np.float32)

    def rows(texts: list[str], role: str) -> Any:
        began = time.perf_counter()
        keys = np.array([crc32(text.encode()) for text in texts], np.uint32)
        made = table[keys % TABLE_ROWS] + table[keys // TABLE_ROWS % TABLE_ROWS] + table[int(role == "query")]
        if pace and len(texts) > 1:  # one alone asks for the dimension
            time.sleep(max(0.0, began + len(texts) / pace - time.perf_counter()))
        return made

    return from_callable(rows, "hashes", fingerprint=f"hashes-{dimension}")


def work(task: dict[str, Any]) -> None:
    """One process: a part of the counts, a shard, the merge, or the run without shards. The last two print JSON."""
    from secid import score
    from secid.tools.shards.run import merge, score_shard

    encoder = encoder_of(task["dimension"], task["pace"] / task["slower"])
    settings: dict[str, Any] = {"threads": 1, "cache": False}
    if task["kind"] == "one":
        run = score(task["sources"], encoder, controls="none", **settings)
    elif task["kind"] == "merge":
        run = merge(task["state_dir"], encoder, sample=task["sample"], controls="none", **settings)
    else:
        given = {"state_dir": task["state_dir"], "shard": task["shard"], "prepare": task["kind"] == "prepare"}
        score_shard(task["sources"], encoder, **given, **settings)
        return
    scores = {source.name: source.eci_nats for source in run.sources}
    waste = run.merged.n_texts_held / run.merged.n_texts if run.merged else 1.0
    print(json.dumps({"scores": scores, "waste": waste}))


class Cost(NamedTuple):
    """Of a phase: wall and processor seconds of all its processes; MiB at most of one, and without mapped files."""

    wall: float
    cpu: float
    resident: float
    own: float
    output: str = ""


@contextmanager
def core_share(slower: float) -> Iterator[Callable[[int], None]]:
    """Takes the id of a process, which gets one core divided by `slower` from then on."""
    v1 = Path("/sys/fs/cgroup/cpu")
    root = v1 if v1.is_dir() else Path("/sys/fs/cgroup")
    made: list[Path] = []

    def limit(pid: int) -> None:
        group = root / f"secid-perf-{pid}"
        group.mkdir()
        made.append(group)
        quota = round(PERIOD_MICROSECONDS / slower)
        if v1.is_dir():
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (group / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")
        (group / "cgroup.procs").write_text(str(pid))

    try:
        yield limit if slower != 1 else lambda pid: None
    finally:
        for group in made:
            group.rmdir()


def cost_of(tasks: Sequence[dict[str, Any]], n_workers: int, profiles: Path | None) -> Cost:
    """Runs tasks, so many at a time, each in a process of its own. Raises SystemExit where one fails."""
    with core_share(tasks[0]["slower"]) as limit:
        return _cost_of(tasks, n_workers, profiles, limit)


def _cost_of(
    tasks: Sequence[dict[str, Any]], n_workers: int, profiles: Path | None, limit: Callable[[int], None]
) -> Cost:
    waiting, running = list(tasks), {}
    cpu, resident, own, output = 0.0, 0.0, 0, ""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    began = time.perf_counter()
    try:
        while waiting or running:
            while waiting and len(running) < n_workers:
                task = waiting.pop(0)
                if profiles:
                    task = {**task, "profile": str(profiles / f"{task['kind']}-{len(waiting)}.prof")}
                command = [sys.executable, "-m", "tests.perf.shards", "--task", json.dumps(task)]
                process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
                running[process.pid] = process
                limit(process.pid)
            for pid in list(running):
                with suppress(OSError):  # it has just ended
                    own = max(own, own_bytes(pid))
                done, status, used = os.wait4(pid, os.WNOHANG)
                if done:
                    process = running.pop(pid)
                    process.returncode = status
                    output += process.stdout.read() if process.stdout else ""
                    if status:
                        raise SystemExit(f"exit status {status}")
                    cpu += used.ru_utime + used.ru_stime
                    resident = max(resident, used.ru_maxrss / 1024)
            time.sleep(WATCH_SECONDS)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return Cost((time.perf_counter() - began) / tasks[0]["slower"], cpu, resident, own / 2**20, output)


def line(name: str, cost: Cost, more: str = "") -> None:
    print(
        f"  {name:8}{cost.wall:8.1f} s {cost.cpu:8.1f} s of processor time, at most {cost.resident:6.0f} MiB of a "
        f"process, {cost.own:6.0f} MiB of its own{more}",
        flush=True,
    )


def run_in_shards(
    job: dict[str, Any], n_shards: int, n_workers: int, prepare: bool, profiles: Path | None
) -> dict[str, Any]:
    """Prints and returns the cost of each phase, the bytes of the states, the waste factor and the scores."""
    print(f"{n_shards} shards, {n_workers} at a time{', prepared' if prepare else ''}", flush=True)
    with tempfile.TemporaryDirectory() as state_dir:
        parts = [{**job, "state_dir": state_dir, "shard": f"{number}/{n_shards}"} for number in range(n_shards)]
        costs = {}
        if prepare:
            costs["prepare"] = cost_of([{**part, "kind": "prepare"} for part in parts], n_workers, profiles)
            line("prepare", costs["prepare"], f", {bytes_of(state_dir) / 1e6:.0f} MB of states")
        costs["shards"] = cost_of([{**part, "kind": "shard"} for part in parts], n_workers, profiles)
        n_bytes = bytes_of(state_dir)
        line("shards", costs["shards"], f", {n_bytes / 1e6:.0f} MB of states in all")
        costs["merge"] = cost_of([{**parts[0], "kind": "merge"}], 1, profiles)
        line("merge", costs["merge"])
    found = json.loads(costs["merge"].output)
    print(f"  waste factor {found['waste']:.2f}", flush=True)
    phases = {name: dict(zip(Cost._fields[:4], cost, strict=False)) for name, cost in costs.items()}
    return {"shards": n_shards, "workers": n_workers, "prepare": prepare, "bytes": n_bytes, **found, "phases": phases}


def bytes_of(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).iterdir())


def wall_of(result: dict[str, Any]) -> float:
    """Seconds of what is in shards."""
    return sum(phase["wall"] for name, phase in result["phases"].items() if name != "merge")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--negatives", type=int, default=2, help="of a record")
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--sample", type=int, default=20_000, help="queries that the merge samples")
    parser.add_argument(
        "--pace", type=float, default=0, help="texts a second of each worker's device; 0: no time at all"
    )
    parser.add_argument("--slower", type=float, default=1, help="a core and a device of each worker divided by it")
    parser.add_argument("--shards", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--prepare", action=argparse.BooleanOptionalAction, help="with it alone, or without; else both")
    parser.add_argument(
        "--one", action=argparse.BooleanOptionalAction, default=True, help="first the run without shards"
    )
    parser.add_argument("--folder", type=Path, help="keeps the files for the next time")
    parser.add_argument("--profile", type=Path, help="a folder for a profile of every process")
    parser.add_argument("--json", action="store_true", help="the last line is JSON")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        task = json.loads(options.task)
        if "profile" in task:
            cProfile.runctx("work(task)", globals(), {"task": task}, task["profile"])
        else:
            work(task)
        return
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        if options.profile:
            options.profile.mkdir(parents=True, exist_ok=True)
        sources = write_files(folder.resolve(), options.records, options.negatives)
        job = {"sources": list(map(str, sources)), "dimension": options.dimension, "pace": options.pace}
        job |= {"sample": options.sample, "slower": options.slower}
        size = sum(path.stat().st_size for path in sources)
        print(
            f"{options.records:,} records, {size / 1e6:,.0f} MB; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        )
        if options.one:
            one = cost_of([{**job, "kind": "one"}], 1, options.profile)
            line("one", one)
            found = json.loads(one.output)
        for n_shards in options.shards:
            for prepare in (False, True) if options.prepare is None else (options.prepare,):
                of_workers = []
                for n_workers in options.workers:
                    results.append(run_in_shards(job, n_shards, n_workers, prepare, options.profile))
                    of_workers.append(results[-1])
                    if options.one:
                        gap = max(abs(results[-1]["scores"][name] - nats) for name, nats in found["scores"].items())
                        print(f"  scores differ by at most {gap:.1e} nats")
                first = of_workers[0]
                for other in of_workers[1:]:
                    linear = wall_of(first) * first["workers"] / other["workers"]
                    print(
                        f"  {wall_of(other) / linear:.2f} of linear from {first['workers']} to {other['workers']}",
                        flush=True,
                    )
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
