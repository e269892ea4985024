"""Does the gate cry wolf, and does it sleep? Fresh samples and poisoned ones of real sources, gated.

    python docs/experiments/gate.py DATA --out gate.json

DATA is a folder with `sources/` as secid reads them, a row a query with its positives and ten negatives. Each split
of one source's queries by a seeded draw gives a baseline from some, and from the others samples to gate, as they are
or damaged. Vectors come from secid's cache, and go there. docs/experiments/gate.md tells the results.
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
from scipy.stats import beta

import secid
from secid.encode import Cache, embed, from_callable, load
from secid.gating.collect import collect, write_baseline
from secid.gating.judge import judge, prepare
from secid.gating.policy import Policy
from secid.pool.texts import text_key
from secid.progress import Silent
from secid.read import open_source, resolve_sources
from secid.records import Record
from secid.results.gate import GateVerdict
from secid.settings import Settings, resolve

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


class Listed(list[str]):
    """Texts in a list, as the embedder asks for them."""

    def get(self, start: int, stop: int) -> list[str]:
        return self[start:stop]


class Memory:
    """An encoder function over secid's cache; a text may stand for another and then has its row."""

    def __init__(self, name: str) -> None:
        settings = Settings(encoder=name)
        self._encoder = load(settings)
        self._cache = Cache.open(settings, self._encoder.info.fingerprint)
        self._rows: dict[tuple[str, str], np.ndarray] = {}
        self.stands_for: dict[str, str] = {}

    def __call__(self, texts: list[str], role: str) -> np.ndarray:
        keys = [(role, self.stands_for.get(text, text)) for text in texts]
        unknown = Listed(text for _, text in dict.fromkeys(key for key in keys if key not in self._rows))
        if unknown:
            names = np.frombuffer(b"".join(text_key(role, text) for text in unknown), np.uint8).reshape(-1, 16)
            rows = np.empty((len(unknown), self._encoder.dimension), np.float32)
            embed(self._encoder, unknown, names, role, rows, cache=self._cache, progress=lambda n: None)
            self._rows |= {(role, text): row for text, row in zip(unknown, rows, strict=True)}
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
    return with_positives(rows, draw, lambda positive, mark: altered(positive, mark % 4) if mark < 4 else positive)


def altered_positives(rows: list[Row], draw: np.random.Generator, memory: Memory) -> list[Row]:
    """Known positives as negatives, every one of them altered."""
    return with_positives(rows, draw, lambda positive, mark: altered(positive, mark % 4))


def with_positives(rows: list[Row], draw: np.random.Generator, change: Callable[[str, int], str]) -> list[Row]:
    for r, k in some(rows, draw):
        positive = str(draw.choice(rows[r]["pos"]))
        rows[r]["neg"][k] = change(positive, crc32(positive.encode()) % 8)
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
    "known positives, all altered": altered_positives,
    "duplicates": duplicates,
    "preambles": preambles,
    "dealt out": dealt_out,
    "a tenth dealt out": tenth_dealt_out,
}


def write(path: Path, rows: Sequence[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def one(
    name: str, rows: list[Row], wanted: list[str], seed: int, memory: Memory, folder: Path, sizes: tuple[int, int]
) -> list[tuple[str, GateVerdict]]:
    """Verdicts on samples from one split of a source, one sample for each label of `wanted`.

    sizes : queries that the split keeps from its baseline, and records of a sample of them.
    """
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(rows))
    unseen, known = order[: sizes[0]], order[sizes[0] :]
    encoder = from_callable(memory, "remembered")
    first = write(folder / f"{name}.jsonl", [rows[i] for i in known])
    secid.score([first], encoder, run=folder / "run", force=True, controls="none")
    baseline = folder / "baseline.json"
    write_baseline(*collect(folder / "run"), baseline)
    against = prepare(baseline, Policy(), "derived", None)
    verdicts = []
    for label in wanted:
        sample = draw.choice(unseen, sizes[1], replace=False)
        copies = [{**rows[i], "neg": list(rows[i]["neg"])} for i in sample]
        damaged = DAMAGES.get(label, as_it_is)(copies, draw, memory)
        gated = write(folder / f"{name}.jsonl", damaged)
        verdicts.append((label, judge([str(gated)], against, resolve({}), Silent(), encoder)))
    return verdicts


def tell(label: str, verdicts: list[GateVerdict]) -> dict[str, Any]:
    """Outcomes, and which checks failed or stayed undecided how often."""
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    checks = [check for verdict in verdicts for check in verdict.sources[0].checks]
    right = outcomes["fail" if label in DAMAGES else "pass"]
    return {
        "what": label,
        "runs": len(verdicts),
        **{outcome: outcomes[outcome] for outcome in ("pass", "fail", "not_evaluated")},
        "right_at_least": round(lower_bound(right, len(verdicts)), 4),
        "failed": Counter(check.name for check in checks if check.outcome == "fail").most_common(),
        "undecided": Counter(
            check.name for check in checks if check.outcome == "not_evaluated" and not check.excused
        ).most_common(),
    }


def lower_bound(right: int, runs: int) -> float:
    """One-sided 95 % bound of the share of right verdicts, as if runs were independent. Source: Clopper 1934."""
    return float(beta.ppf(0.05, right, runs - right + 1)) if right else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sources", nargs="+", default=["bm25", "dense", "dense_rank_10_20"])
    parser.add_argument("--splits", type=int, default=20, help="splits of each source")
    parser.add_argument("--fresh", type=int, default=5, help="fresh samples gated against the baseline of a split")
    parser.add_argument("--unseen", type=int, default=600, help="queries that a split keeps from its baseline")
    parser.add_argument("--sample", type=int, default=500, help="records of a gated sample, drawn from the unseen")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("gate.json"))
    options = parser.parse_args()
    memory = Memory(options.encoder)
    found: dict[tuple[str, str], list[GateVerdict]] = {}
    wanted = ["fresh"] * options.fresh + list(DAMAGES)
    started = time.process_time()
    for source in options.sources:
        path = next(iter(sorted((options.data / "sources").glob(f"{source}.*"))))
        rows = rows_of(path)
        for split in range(options.splits):
            with tempfile.TemporaryDirectory() as work:
                sizes = (options.unseen, options.sample)
                for label, verdict in one(source, rows, wanted, options.seed + split, memory, Path(work), sizes):
                    found.setdefault((source, label), []).append(verdict)
            table = [{"source": name, **tell(label, verdicts)} for (name, label), verdicts in found.items()]
            table += [{"source": "all", **tell(label, together(found, label))} for label in dict.fromkeys(wanted)]
            options.out.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
        print(f"{source}: done after {time.process_time() - started:.0f} s of processor time", flush=True)


def together(found: dict[tuple[str, str], list[GateVerdict]], label: str) -> list[GateVerdict]:
    return [verdict for (_, what), verdicts in found.items() if what == label for verdict in verdicts]


if __name__ == "__main__":
    main()
