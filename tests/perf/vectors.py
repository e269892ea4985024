"""Compare `secid score` from a vectors file with a plain NumPy and torch script that computes the same scores.

    python -m tests.perf.vectors                        # 100,000 triplets, medians of three
    python -m tests.perf.vectors --triplets 1000000 --repeats 1
    python -m tests.perf.vectors --tree OTHER_CHECKOUT  # the code of another checkout against the same script

Every command runs in a separate process, and the kinds alternate. The numbers are processor time (user + system) of the
whole process, its start included; ratios are of medians. There are two sources with ten negatives per query, which
share queries, positives and most negatives. The script has no controls, so secid does more work with them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from tests.kills import ROOT
from tests.perf.read_plan_lex import make_rows

NEGATIVES, DIMENSIONS = 10, 384
SMALLEST, TEMPERATURE, BLOCK = 1e-3, 0.05, 1 << 14
WORD = re.compile(r"[^\W_]+")
COMMANDS = {
    "with controls": [],
    "without controls": ["--set", "controls=none"],
    "--ablate": ["--set", "controls=none", "--ablate"],
    "--ablate, with controls": ["--ablate"],
}


class Used(NamedTuple):
    """Cost of a process: processor time and wall time in seconds, and peak resident memory in MB."""

    seconds: float
    wall: float
    megabytes: float


def write_files(folder: Path, n_triplets: int) -> None:
    """Write sources a.jsonl and b.jsonl with half of the triplets each, and vectors.npz with all their texts."""
    n_queries = n_triplets // (2 * NEGATIVES)
    n_pool = 12 * n_queries
    texts: dict[str, list[str]] = {"query": [], "positive": [], "negative": []}
    for block in make_rows(n_pool // 2):
        for row in block:
            if len(texts["query"]) < n_queries:
                texts["query"].append(row["query"])
            texts["negative"].extend([row["positive"], row["negative"]])
    texts["positive"] = [f"{text} Answer {number}." for number, text in enumerate(texts["negative"][:n_queries])]
    for name, shift in (("a", 0), ("b", 2 * n_queries)):
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for number, (query, positive) in enumerate(zip(texts["query"], texts["positive"], strict=True)):
                first = number * NEGATIVES + shift
                negatives = texts["negative"][first : first + NEGATIVES]
                file.write(json.dumps({"query": query, "positive": positive, "negatives": negatives}) + "\n")
    every = [text for column in texts.values() for text in column]
    rows = np.random.default_rng(0).standard_normal((len(every), DIMENSIONS), np.float32)
    rows[:, :8] += 4.0  # so that cosines spread as those of real texts do
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    hashes = [hashlib.sha256(text.encode()).hexdigest() for text in every]
    np.savez(folder / "vectors.npz", vector=rows, text_sha256=hashes)


def plain_scores(folder: Path) -> dict[str, float]:
    """Return ECI_sem of each source, by simple code with products and gates in blocks in torch."""
    import torch

    file = np.load(folder / "vectors.npz")
    rows = torch.from_numpy(file["vector"])
    row_of_hash = {key: place for place, key in enumerate(file["text_sha256"].tolist())}
    sources: dict[str, list[dict[str, Any]]] = {}
    for path in (folder / "a.jsonl", folder / "b.jsonl"):
        with path.open(encoding="utf-8") as lines:
            sources[path.stem] = [json.loads(line) for line in lines]
    passages: dict[str, int] = {}
    queries: dict[str, int] = {}
    for records in sources.values():
        for record in records:
            queries.setdefault(record["query"], len(queries))
            for text in (record["positive"], *record["negatives"]):
                passages.setdefault(text, len(passages))
    row_of = {text: row_of_hash[hashlib.sha256(text.encode()).hexdigest()] for text in (*queries, *passages)}
    tokens = {text: frozenset(WORD.findall(text.lower())) for text in row_of}
    counts = Counter(token for text in passages for token in tokens[text])
    unseen = math.log(1 + len(passages)) + 1
    idf = {token: math.log((1 + len(passages)) / (1 + n)) + 1 for token, n in counts.items()}

    scores = {}
    for name, records in sources.items():
        places, covered = [], []
        for record in records:
            of_query, place, positive = tokens[record["query"]], row_of[record["query"]], row_of[record["positive"]]
            whole = sum(idf.get(token, unseen) for token in of_query)
            for text in record["negatives"]:
                places.append((place, positive, row_of[text]))
                covered.append(sum(idf.get(token, unseen) for token in of_query & tokens[text]) / whole)
        ids, coverage = torch.tensor(places), torch.tensor(covered, dtype=torch.float64)
        total = torch.zeros(rows.shape[1], rows.shape[1], dtype=torch.float64)
        for some, residual in zip(ids.split(BLOCK), (1 - coverage).split(BLOCK), strict=True):
            q, p, n = (rows[column] for column in some.T)
            qp, qn, pn = ((x * y).sum(1, dtype=torch.float64) for x, y in ((q, p), (q, n), (p, n)))
            weight = torch.sigmoid((qp - qn) / TEMPERATURE) * torch.sigmoid((pn - qn) / TEMPERATURE) * residual
            u = n - p
            length = u.norm(dim=1)
            u *= torch.where(length > SMALLEST, 1 / length, 0.0).unsqueeze(1)
            total += (u * weight.float().unsqueeze(1)).T @ u
        scores[name] = float(torch.logdet(torch.eye(len(total), dtype=torch.float64) + total / len(ids)))
    return scores


def run(command: list[str], tree: Path) -> Used:
    """Run a command with the code of a checkout. Raise CalledProcessError if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""}  # compiled, as installed
    began = time.perf_counter()
    child = subprocess.Popen(command, cwd=tree, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    message = child.stderr.read() if child.stderr else b""
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command, stderr=message)
    return Used(used.ru_utime + used.ru_stime, time.perf_counter() - began, used.ru_maxrss / 1024)


def compare(folder: Path, tree: Path, repeats: int, kinds: list[str]) -> None:
    """Print medians, their ratios, and the difference of the scores."""
    score = [sys.executable, "-m", "secid", "score", str(folder / "a.jsonl"), str(folder / "b.jsonl"), "--encoder"]
    score += [str(folder / "vectors.npz"), "--run", str(folder / "run"), "--force", "--quiet"]
    plain = [sys.executable, "-m", "tests.perf.vectors", "--plain", str(folder)]
    used: dict[str, list[Used]] = {name: [] for name in ("plain script", *kinds)}
    for _ in range(repeats):
        used["plain script"].append(run(plain, ROOT))
        for kind in kinds:
            used[kind].append(run([*score, *COMMANDS[kind]], tree))
    middle = {name: Used(*map(median, zip(*values, strict=True))) for name, values in used.items()}
    for name, value in middle.items():
        times = ", ".join(f"{one.seconds:.1f}" for one in used[name])
        base = middle["plain script"]
        ratio, wall = value.seconds / base.seconds, value.wall / base.wall
        print(f"{name:24} {value.seconds:7.1f} s ({times}), {ratio:.2f} of the script, {value.megabytes:,.0f} MB")
        print(f"{'':24} {value.wall:7.1f} s wall, {wall:.2f} of the script")
    for kind, base in (("--ablate", "without controls"), ("--ablate, with controls", "with controls")):
        if kind in middle and base in middle:
            print(f"{kind} adds {middle[kind].seconds / middle[base].seconds - 1:.0%} to {base}")
    expected = json.loads((folder / "plain.json").read_text(encoding="utf-8"))
    report = json.loads((folder / "run" / "report.json").read_text(encoding="utf-8"))
    gaps = [abs(source["score"]["nats"] - expected[source["name"]]) for source in report["sources"]]
    print(f"largest difference of a score: {max(gaps):.1e} nats")


def main() -> None:
    """Print ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triplets", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--kinds", default="with controls;without controls;--ablate", help=";".join(COMMANDS))
    parser.add_argument("--tree", type=Path, default=ROOT, help="checkout whose secid is measured")
    parser.add_argument("--folder", type=Path, help="keeps the files for the next time")
    parser.add_argument("--plain", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plain:
        (options.plain / "plain.json").write_text(json.dumps(plain_scores(options.plain)), encoding="utf-8")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = (options.folder or Path(name)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "vectors.npz").exists():
            write_files(folder, options.triplets)
        size = f"{options.triplets:,} triplets, {DIMENSIONS} dimensions"
        print(f"{size}, processor time and wall, median of {options.repeats}")
        compare(folder, options.tree.absolute(), options.repeats, options.kinds.split(";"))


if __name__ == "__main__":
    main()
