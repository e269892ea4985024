"""`secid gate` on a new source of 2,000 records against the encoding of that source's new texts alone.

    python -m tests.perf.gate_time --data FOLDER --encoder minilm --threads 2 --repeats 3

FOLDER holds sources; their passages are dealt anew into a source for the baseline and a new one of --records records,
ten negatives each, whose queries and --new of whose passages are not in the cache. Both sides are processes of their
own, from start to end, with a copy of the same cache each time; they take turns. The encoding side imports, loads the
encoder and embeds into the cache, and nothing else. Processor time tells more than wall time on a machine that is
not idle.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.kills import ROOT

NEGATIVES = 10
KNOWN_RECORDS = 600
QUERY_WORDS = 12
ALLOWED_SECONDS = 3.0

Row = dict[str, Any]


def passages_of(folder: Path) -> list[str]:
    """Distinct passages of all sources of a folder, in their order."""
    from secid.read import open_source, resolve_sources
    from secid.records import Record
    from secid.settings import Settings

    settings = Settings()
    found: dict[str, None] = {}
    for source in resolve_sources([str(path) for path in sorted(folder.iterdir())], settings):
        for record in open_source(source, settings):
            if isinstance(record, Record):
                found |= dict.fromkeys((*record.positives, *record.negatives))
    return list(found)


def deal(passages: Sequence[str], n: int, draw: random.Random, mark: str) -> list[Row]:
    """n records: a passage as the positive, words out of it as the query, others as negatives."""
    rows = []
    for number in range(n):
        positive, *negatives = draw.sample(passages, NEGATIVES + 1)
        words = positive.split()
        start = draw.randrange(max(1, len(words) - QUERY_WORDS))
        query = f"{' '.join(words[start : start + QUERY_WORDS])} {mark} {number}"
        rows.append({"query": query, "pos": [positive], "neg": negatives})
    return rows


def write(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def encode(source: Path, encoder: str, threads: int) -> None:
    """Embeds what the cache lacks of a source, as `secid gate` would; prints the seconds of that alone."""
    import numpy as np

    from secid.encode import Cache, embed, load
    from secid.pool.texts import text_key
    from secid.settings import Settings

    settings = Settings(encoder=encoder, threads=threads)
    loaded = load(settings)
    cache = Cache.open(settings, loaded.info.fingerprint)
    texts: dict[Any, dict[str, None]] = {"query": {}, "passage": {}}
    for line in source.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        texts["query"][row["query"]] = None
        texts["passage"] |= dict.fromkeys((*row["pos"], *row["neg"]))
    start, n_encoded = time.perf_counter(), 0
    for role, found in texts.items():
        keys = np.frombuffer(b"".join(text_key(role, text) for text in found), np.uint8).reshape(-1, 16)
        rows = np.empty((len(found), loaded.dimension), np.float32)
        done = embed(loaded, Listed(found), keys, role, rows, cache=cache, progress=lambda n: None)
        n_encoded += done.n_encoded
    print(json.dumps({"seconds": time.perf_counter() - start, "n_encoded": n_encoded}))


class Listed(list[str]):
    """Texts in a list, as the embedder asks for them."""

    def get(self, start: int, stop: int) -> list[str]:
        return self[start:stop]


class Side(NamedTuple):
    """Wall and processor seconds of a process."""

    wall: float
    processor: float


def run(arguments: list[str], cache: Path, folder: Path) -> tuple[Side, str]:
    """Times and standard output of a process with its own copy of the cache. 0, 1 and 3 are verdicts."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        shutil.copytree(cache, Path(name) / "secid")
        environment = {**os.environ, "XDG_CACHE_HOME": name, "PYTHONPATH": str(ROOT)}
        environment.pop("OMP_NUM_THREADS", None)
        start, before = time.perf_counter(), processor_seconds()
        done = subprocess.run(
            [sys.executable, "-m", *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        took = Side(time.perf_counter() - start, processor_seconds() - before)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"{arguments[0]} ended with {done.returncode}")
    return took, done.stdout


def processor_seconds() -> float:
    """Of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Prints both sides, their difference and ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "fixtures" / "sources")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--records", type=int, default=2_000)
    parser.add_argument("--new", type=int, default=1_000, help="passages of the new source that no cache holds")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--cache", type=Path, help="a folder `secid` of embeddings to begin with, to spare their encoding"
    )
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        encode(options.child, options.encoder, options.threads)
        return
    with tempfile.TemporaryDirectory() as name:
        measure(options, Path(name))


def measure(options: argparse.Namespace, folder: Path) -> None:
    """Both sides in turn, and what they print."""
    draw = random.Random(0)
    passages = passages_of(options.data)
    draw.shuffle(passages)
    n_new = min(options.new, len(passages) // 2)
    known = write(folder / "known.jsonl", deal(passages, KNOWN_RECORDS, draw, "known"))
    pool = [{"query": "pool", "pos": passages[-1:], "neg": passages[:-1]}]
    mixed = [f"new: {passage}" for passage in passages[:n_new]] + passages[n_new:]
    new = write(folder / "new.jsonl", deal(mixed, options.records, draw, "new"))
    cache, shared = folder / "cache", ["--encoder", options.encoder, "--threads", str(options.threads)]
    if options.cache:
        shutil.copytree(options.cache, cache)
    cache.mkdir(exist_ok=True)
    os.environ["SECID_CACHE_DIR"] = str(cache)
    every = write(folder / "pool.jsonl", pool)
    for command in (
        ["score", str(known), str(every), "--run", str(folder / "pool"), "--controls", "none", "--quiet", *shared],
        ["score", str(known), "--run", str(folder / "run"), "--controls", "none", "--quiet", *shared],
        ["baseline", str(folder / "run"), "-o", str(folder / "b.json"), "--quiet"],
    ):
        subprocess.run([sys.executable, "-m", "secid", *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    del os.environ["SECID_CACHE_DIR"]
    sides: dict[str, list[Side]] = {"encode": [], "gate": []}
    stages: list[dict[str, Any]] = []
    for _ in range(options.repeats):
        child = ["tests.perf.gate_time", "--child", str(new), "--encoder", options.encoder]
        took, out = run([*child, "--threads", str(options.threads)], cache, folder)
        encoded = json.loads(out)
        sides["encode"].append(took)
        took, out = run(
            ["secid", "gate", str(new), "--against", str(folder / "b.json"), "--json", "--quiet", *shared],
            cache,
            folder,
        )
        sides["gate"].append(took)
        stages.append(json.loads(out)["timing"])
    report(options, sides, encoded, stages)


def report(
    options: argparse.Namespace, sides: dict[str, list[Side]], encoded: dict[str, Any], stages: list[dict[str, Any]]
) -> None:
    """The numbers."""
    n_encoded = stages[-1]["encode"]["n_encoded"]
    if n_encoded != encoded["n_encoded"]:
        raise SystemExit(f"the gate encoded {n_encoded:.0f} texts, the other side {encoded['n_encoded']}")
    print(
        f"{options.records} records, {NEGATIVES} negatives each, {n_encoded:.0f} new texts; {options.encoder}, ", end=""
    )
    print(f"{options.threads} threads, median of {options.repeats}")
    for unit in Side._fields:
        own, plain = (median(getattr(took, unit) for took in sides[name]) for name in ("gate", "encode"))
        print(f"{unit} time: encoding alone {plain:.1f} s, secid gate {own:.1f} s: {own / plain:.2f} times, ", end="")
        print(f"{own - plain:+.1f} s (asked for: at most {ALLOWED_SECONDS:+g} s)")
    print(f"of the last encoding process {encoded['seconds']:.1f} s were encoding, the rest imports and loading")
    for stage in stages[0]:
        print(f"  gate, {stage:<9}{median(found[stage]['seconds'] for found in stages):7.2f} s")


if __name__ == "__main__":
    main()
