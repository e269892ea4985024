"""Does the gate cry wolf, and does it sleep? Fresh samples and poisoned ones of real sources, gated.

    python docs/experiments/gate.py DATA --splits 34 --poisoned 10 --out gate.json

DATA is a folder with `sources/` as secid reads them, a row a query with its positives and ten negatives. Each split
of one source's queries by a seeded draw gives a baseline from some, and from the UNSEEN others samples of SAMPLE
records to gate, as they are or damaged. docs/experiments/gate.md tells the results.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

import secid
from secid.data import open_source, resolve_sources
from secid.encoders import from_callable, load
from secid.gating.collect import collect, write_baseline
from secid.gating.judge import judge, prepare
from secid.gating.policy import Policy
from secid.progress import Silent
from secid.records import Record
from secid.settings import Settings, resolve
from secid.verdicts import GateVerdict

SAMPLE = 500
"""Records of a gated sample."""
UNSEEN = 600
"""Queries that a split keeps from its baseline; samples are drawn from them."""
FRESH = 3
"""Fresh samples gated against the baseline of one split."""
SHARE = 0.1
"""Share of the negatives that a damage replaces."""
PREAMBLES = (
    "Sure, here is a passage that looks relevant: ",
    "Here's a hard negative passage:\n\n",
    "As an AI language model, I can offer this text: ",
    "Certainly! Below is a document on the topic. ",
    "Passage: ",
    "I have written the following text for you. ",
)
"""The last one is in no list of the gate's: only its being common gives it away."""

Row = dict[str, Any]


class Memory:
    """An encoder function that encodes each text once and shares the row of a text that stands for another."""

    def __init__(self, name: str, vectors: Path | None) -> None:
        self._name, self._encoder, self._rows = name, None, {}
        self.stands_for: dict[str, str] = {}
        if vectors is not None:
            with np.load(vectors) as file:
                keys = zip(file["role"].tolist(), file["text"].tolist(), strict=True)
                self._rows = dict(zip(keys, file["vectors"], strict=True))

    def __call__(self, texts: list[str], role: str) -> np.ndarray:
        keys = [(role, self.stands_for.get(text, text)) for text in texts]
        unknown = [text for _, text in dict.fromkeys(key for key in keys if key not in self._rows)]
        if unknown:
            if self._encoder is None:
                self._encoder = load(Settings(encoder=self._name))
            for text, row in zip(unknown, self._encoder.encode(unknown, role), strict=True):
                self._rows[role, text] = row
        return np.stack([self._rows[key] for key in keys])


def rows_of(path: Path) -> list[Row]:
    """The records of one source, one a query: those of a query with several positives are put together."""
    settings = Settings()
    by_query: dict[str, Row] = {}
    for record in open_source(resolve_sources([str(path)], settings)[0], settings):
        if isinstance(record, Record):
            row = by_query.setdefault(record.query, {"query": record.query, "pos": [], "neg": []})
            row["pos"] += [text for text in record.positives if text not in row["pos"]]
            row["neg"] += [text for text in record.negatives if text not in row["neg"]]
    return [row for row in by_query.values() if row["neg"]]


Damage = Callable[[list[Row], np.random.Generator, Memory], list[Row]]


def as_it_is(rows: list[Row], draw: np.random.Generator, memory: Memory) -> list[Row]:
    """A fresh sample."""
    return rows


def some(rows: list[Row], draw: np.random.Generator) -> list[tuple[int, int]]:
    """(row, negative) of SHARE of all negatives, drawn at random."""
    places = [(r, k) for r, row in enumerate(rows) for k in range(len(row["neg"]))]
    return [places[i] for i in draw.choice(len(places), round(SHARE * len(places)), replace=False)]


def altered(text: str, way: int) -> str:
    """A positive as text equality does not find it: in capitals, with more spaces, without its title, cut."""
    words = text.split()
    return (
        text.upper(),
        "  ".join(words) + " ",
        " ".join(words[min(12, len(words) // 3) :]),
        " ".join(words[: max(8, len(words) // 2)]),
    )[way]


def known_positives(rows: list[Row], draw: np.random.Generator, memory: Memory) -> list[Row]:
    """Known positives as negatives, half of them altered: which and how goes by the positive, so that it stays."""
    for r, k in some(rows, draw):
        positive = str(draw.choice(rows[r]["pos"]))
        way = crc32(positive.encode()) % 8
        rows[r]["neg"][k] = altered(positive, way) if way < 4 else positive
    return rows


def duplicates(rows: list[Row], draw: np.random.Generator, memory: Memory) -> list[Row]:
    """Copies of another negative of the same query."""
    for r, k in some(rows, draw):
        others = [i for i in range(len(rows[r]["neg"])) if i != k]
        rows[r]["neg"][k] = rows[r]["neg"][int(draw.choice(others))]
    return rows


def preambles(rows: list[Row], draw: np.random.Generator, memory: Memory) -> list[Row]:
    """Negatives behind a generator's opening. They keep the vectors they had: no check of vectors may help."""
    for r, k in some(rows, draw):
        text = rows[r]["neg"][k]
        opened = str(draw.choice(PREAMBLES)) + text
        memory.stands_for[opened] = memory.stands_for.get(text, text)
        rows[r]["neg"][k] = opened
    return rows


def dealt_out(rows: list[Row], draw: np.random.Generator, memory: Memory) -> list[Row]:
    """All negatives of each query handed to another one."""
    shift = int(draw.integers(1, len(rows)))
    lists = [row["neg"] for row in rows]
    return [{**row, "neg": lists[(r + shift) % len(rows)]} for r, row in enumerate(rows)]


def tenth_dealt_out(rows: list[Row], draw: np.random.Generator, memory: Memory) -> list[Row]:
    """A tenth of the negatives replaced by those of other queries."""
    lists = [list(row["neg"]) for row in rows]
    for r, k in some(rows, draw):
        other = lists[(r + int(draw.integers(1, len(rows)))) % len(rows)]
        rows[r]["neg"][k] = other[int(draw.integers(len(other)))]
    return rows


DAMAGES: dict[str, Damage] = {
    "known positives": known_positives,
    "duplicates": duplicates,
    "preambles": preambles,
    "dealt out": dealt_out,
    "a tenth dealt out": tenth_dealt_out,
}


def write(path: Path, rows: Sequence[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def one(
    name: str, rows: list[Row], damages: dict[str, Damage], seed: int, memory: Memory, folder: Path
) -> list[tuple[str, GateVerdict]]:
    """Verdicts on samples from one split of a source: FRESH ones as they are, and one under each damage."""
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(rows))
    unseen, known = order[:UNSEEN], order[UNSEEN:]
    encoder = from_callable(memory, "remembered")
    first = write(folder / f"{name}.jsonl", [rows[i] for i in known])
    secid.score([first], encoder, run=folder / "run", force=True, controls="none")
    baseline = folder / "baseline.json"
    write_baseline(*collect(folder / "run"), baseline)
    against = prepare(baseline, Policy(), "derived", None)
    asked: list[tuple[str, Damage]] = [("fresh", as_it_is)] * FRESH + list(damages.items())
    verdicts = []
    for label, damage in asked:
        sample = draw.choice(unseen, SAMPLE, replace=False)
        copies = [{**rows[i], "neg": list(rows[i]["neg"])} for i in sample]
        gated = write(folder / f"{name}.jsonl", damage(copies, draw, memory))
        verdicts.append((label, judge([str(gated)], against, resolve({}), Silent(), encoder)))
    return verdicts


def tell(label: str, verdicts: list[GateVerdict]) -> dict[str, Any]:
    """Outcomes, and which checks failed or stayed undecided how often."""
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    checks = [check for verdict in verdicts for check in verdict.sources[0].checks]
    return {
        "what": label,
        "runs": len(verdicts),
        **{outcome: outcomes[outcome] for outcome in ("pass", "fail", "not_evaluated")},
        "failed": Counter(check.name for check in checks if check.outcome == "fail").most_common(),
        "undecided": Counter(
            check.name for check in checks if check.outcome == "not_evaluated" and not check.excused
        ).most_common(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sources", nargs="+", default=["bm25", "dense", "dense_rank_10_20"])
    parser.add_argument("--splits", type=int, default=34, help="splits of each source")
    parser.add_argument("--poisoned", type=int, default=10, help="splits that also gate a sample under each damage")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--vectors", type=Path, help=".npz of role, text and vectors that are known already")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("gate.json"))
    options = parser.parse_args()
    memory = Memory(options.encoder, options.vectors)
    found: dict[tuple[str, str], list[GateVerdict]] = {}
    started = time.process_time()
    for source in options.sources:
        path = next(iter(sorted((options.data / "sources").glob(f"{source}.*"))))
        rows = rows_of(path)
        for split in range(options.splits):
            damages = DAMAGES if split < options.poisoned else {}
            with tempfile.TemporaryDirectory() as work:
                for label, verdict in one(source, rows, damages, options.seed + split, memory, Path(work)):
                    found.setdefault((source, label), []).append(verdict)
            table = [{"source": name, **tell(label, verdicts)} for (name, label), verdicts in found.items()]
            options.out.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
        print(f"{source}: done after {time.process_time() - started:.0f} s of processor time", flush=True)


if __name__ == "__main__":
    main()
