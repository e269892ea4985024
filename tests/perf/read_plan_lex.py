"""Time reading, planning and lexing (document frequencies included) against a plain loop over the same records.

python tests/perf/read_plan_lex.py [--triplets 200000] [--repeats 3] [--folder DIR]

The plain loop reads JSON lines in one process, with `json.loads`, one regular expression and one set per text. Every
measurement runs in a separate process, so that peak memory is separate, too. The kinds alternate, so that noise
affects all of them. The coverage of every triplet is also timed; the plain loop does not compute it.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from secid.pool import Plan

N_WORDS = 60_000
PASSAGE_WORDS = 53
"""Words per passage. Drawn by Zipf's law from the list below, they give 340 characters on average."""
QUERY_WORDS = 9
WRITE_ROWS = 20_000
ASKED_BYTES_PER_TEXT = 64


def make_rows(n_rows: int, seed: int = 0) -> Iterator[list[dict[str, str]]]:
    """Yield dictionaries of query, positive and negative, all distinct, in blocks of WRITE_ROWS."""
    generator = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlcumwfgypbvk"))
    rank = np.arange(N_WORDS)
    lengths = 1 + generator.poisson(1.2 + np.log10(rank + 1) * 1.25)  # common words are short
    words = np.array(["".join(generator.choice(letters, length)) for length in lengths])
    share = 1.0 / (rank + 2.7)
    edges = np.cumsum(share / share.sum())
    for start in range(0, n_rows, WRITE_ROWS):
        block = []
        for number in range(start, min(n_rows, start + WRITE_ROWS)):
            drawn = words[np.searchsorted(edges, generator.random(QUERY_WORDS + 2 * PASSAGE_WORDS))].tolist()
            passages = drawn[QUERY_WORDS:]
            block.append(
                {
                    "query": f"{' '.join(drawn[:QUERY_WORDS])} {number}?",
                    "positive": f"{' '.join(passages[:PASSAGE_WORDS]).capitalize()} {number}.",
                    "negative": f"{' '.join(passages[PASSAGE_WORDS:]).capitalize()}, {number}.",
                }
            )
        yield block


def write_files(folder: Path, n_rows: int) -> dict[str, Path]:
    """Write the same records as JSON lines and as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = {"jsonl": folder / f"{n_rows}.jsonl", "parquet": folder / f"{n_rows}.parquet"}
    if all(path.exists() for path in found.values()):
        return found
    schema = pa.schema([(name, pa.string()) for name in ("query", "positive", "negative")])
    with found["jsonl"].open("w", encoding="utf-8") as file, pq.ParquetWriter(found["parquet"], schema) as writer:
        for block in make_rows(n_rows):
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in block)
            writer.write_table(pa.Table.from_pylist(block, schema))
    return found


def plain_loop(path: Path) -> dict[str, float]:
    """Time the simplest code: parse, split, collect."""
    split = re.compile(r"[^\W_]+")
    start, cpu = time.perf_counter(), cpu_seconds()
    n_tokens = 0
    with path.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            for text in (row["query"], row["positive"], row["negative"]):
                n_tokens += len(set(split.findall(text.lower())))
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": cpu_seconds() - cpu,
        "n_tokens": n_tokens,
    }


def whole_way(path: Path) -> dict[str, float]:
    """Time reading, planning, lexing, document frequencies and the coverage of every triplet."""
    from secid.pool import Lexicon
    from secid.pool.reading import read_draft
    from secid.progress import Silent
    from secid.read import resolve_sources
    from secid.settings import Settings

    settings = Settings()
    loaded = memory_bytes()
    start, cpu = time.perf_counter(), cpu_seconds()
    with tempfile.TemporaryDirectory() as folder:
        sources = resolve_sources([str(path)])
        plan = read_draft(sources, settings, Path(folder), Silent())[0].plan
        planned, planned_cpu = time.perf_counter(), cpu_seconds()
        held = memory_bytes() - loaded
        queries, passages = plan.queries, plan.passages
        counted = np.ones(len(passages), np.bool_)
        spool = Path(folder) / "tokens"
        lexicon = Lexicon(
            settings.tokenizer,
            queries.packed,
            len(queries),
            passages.packed,
            counted,
            spool,
            stores=(queries, passages),
        )
        idf = lexicon.idf(lexicon.pooled())
        lexed, lexed_cpu = time.perf_counter(), cpu_seconds()
        (only,) = plan.sources
        coverage = lexicon.coverage(only.query[only.triplet_record()], only.negatives, idf)
        end = time.perf_counter()
        plan.close()
    return {
        "seconds": lexed - start,
        "cpu_seconds": lexed_cpu - cpu,
        "seconds_with_coverage": end - start,
        "read_and_plan_seconds": planned - start,
        "read_and_plan_cpu_seconds": planned_cpu - cpu,
        "lex_seconds": lexed - planned,
        "coverage_seconds": end - lexed,
        "mib_after_planning": held / 2**20,
        "bytes_per_text": array_bytes(plan) / (len(queries) + len(passages)),
        "mean_coverage": float(coverage.mean()),
    }


def cpu_seconds() -> float:
    """Return the processor time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def array_bytes(plan: Plan) -> int:
    """Return the bytes of all arrays in a plan, each counted once. Its other parts do not grow with the texts."""
    holders = [plan, plan.queries, plan.passages, *plan.sources]
    arrays = {id(value): value for held in holders for value in vars(held).values() if isinstance(value, np.ndarray)}
    return sum(array.nbytes for array in arrays.values())


def memory_bytes() -> int:
    """Return the private memory of this process. Mapped files do not count, since the kernel can drop them."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


def child(kind: str, path: Path) -> None:
    found = plain_loop(path) if kind == "plain" else whole_way(path)
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(found))


def run_child(kind: str, path: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", kind, "--file", str(path)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def compare(folder: Path, n_triplets: int, repeats: int) -> None:
    files = write_files(folder, n_triplets)
    size = files["jsonl"].stat().st_size
    print(f"{n_triplets:,} triplets of distinct text, {size / 1e6:,.0f} MB of JSON lines, {repeats} repeats")
    kinds = {"plain": files["jsonl"], "jsonl": files["jsonl"], "parquet": files["parquet"]}
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(repeats):
        for kind, path in kinds.items():
            found[kind].append(run_child(kind, path))
    for kind, runs in found.items():
        middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        print(f"{kind:8}" + "  ".join(f"{name} {value:.4g}" for name, value in middle.items()))
        if kind != "plain":
            for unit in ("seconds", "cpu_seconds", "seconds_with_coverage"):
                base = unit.removesuffix("_with_coverage")
                ratios = [plain[base] / run[unit] for plain, run in zip(found["plain"], runs, strict=True)]
                shown = ", ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
                print(f"        {unit}: {statistics.median(ratios):.2f} times the plain loop ({shown})")
    print(f"asked for: at most {ASKED_BYTES_PER_TEXT} bytes a distinct text")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triplets", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keeps the files for the next time")
    parser.add_argument("--child", choices=("plain", "jsonl", "parquet"), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.file)
    elif arguments.folder:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        compare(arguments.folder, arguments.triplets, arguments.repeats)
    else:
        with tempfile.TemporaryDirectory() as folder:
            compare(Path(folder), arguments.triplets, arguments.repeats)


if __name__ == "__main__":
    main()
