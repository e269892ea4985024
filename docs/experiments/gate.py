"""Gate samples of real sources, unchanged and damaged: does the gate keep damage out and sound sources in?

    python docs/experiments/gate.py COLLECTION --out verdicts.jsonl     (repeat to resume)
    python docs/experiments/gate.py --table verdicts.jsonl ...

COLLECTION is a BEIR folder with `mined/` or `sources/`, ten negatives per query and source. Each seeded split of the
queries makes a baseline of two sources from one part. Samples of the other part are gated, once under the name of their
source in the baseline and once under a new name. Results: gate.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import secid
from secid.encode import from_callable, load
from secid.encode.encoder import Role
from secid.pool.plan import QuerySubset
from secid.pool.texts import text_key
from secid.progress import Clock, Silent
from secid.read import open_source, resolve_sources
from secid.records import Record
from secid.results.gate import SourceVerdict
from secid.scoring.run import assemble_run, read_sources
from secid.scoring.stages import Background, measure
from secid.settings import Settings, resolve
from secid.tools.gating.baseline import check_table, settings_for
from secid.tools.gating.collect import collect_baseline, read_baseline_table, write_baseline
from secid.tools.gating.judge import GateReference, prepare, source_verdict
from secid.tools.gating.policy import Policy

PREAMBLES = (
    "Sure, here is a passage that looks relevant: ",
    "Hier ist eine Passage, die relevant wirkt: ",
    "Aquí tienes un pasaje que parece relevante: ",
    "Voici un passage qui semble pertinent : ",
    "以下是一个看似相关的段落：",
)
Row = dict[str, Any]
BASELINES = {"bm25": ("bm25", "dense"), "dense": ("dense", "dense_win"), "dense_win": ("dense", "bm25")}
"""Sources of the baseline, by the source that is gated. The baseline of the last one does not have its miner."""
FILES = {"dense_win": ("dense_win", "dense_rank_10_20")}


class Memory:
    """Encoder function that stores its rows in a file. A text can be an alias of another and then has its row."""

    def __init__(self, name: str, path: Path) -> None:
        self._encoder, self._path = load(Settings(encoder=name)), path
        self._rows: dict[bytes, np.ndarray] = {}
        if path.exists():
            with np.load(path) as stored:
                self._rows = dict(zip(map(bytes, stored["keys"]), stored["rows"], strict=True))
        self.stands_for: dict[str, str] = {}

    def __call__(self, texts: list[str], role: Role) -> np.ndarray:
        named = {text_key(role, own): own for text in texts for own in [self.stands_for.get(text, text)]}
        unknown = [key for key in named if key not in self._rows]
        if unknown:
            rows = self._encoder.encode([named[key] for key in unknown], role)
            self._rows |= dict(zip(unknown, rows, strict=True))
        return np.stack([self._rows[text_key(role, self.stands_for.get(text, text))] for text in texts])

    def save(self) -> None:
        keys = np.frombuffer(b"".join(self._rows), np.uint8).reshape(len(self._rows), -1)
        np.savez(self._path, keys=keys, rows=np.stack(list(self._rows.values())))


def rows_of(folder: Path, source: str) -> dict[str, Row]:
    """Return the records of one source by query. Records of a query with several positives are merged."""
    names = FILES.get(source, (source,))
    path = next(path for name in names for path in sorted(folder.glob(f"*/{name}.*")))
    mined = path.parent.name == "mined"
    settings = Settings(collection=str(folder)) if mined else Settings()
    by_query: dict[str, Row] = {}
    for record in open_source(resolve_sources([str(path)])[0], settings):
        if isinstance(record, Record):
            row = by_query.setdefault(record.query, {"query": record.query, "pos": [], "neg": []})
            row["pos"] += [text for text in record.positives if text not in row["pos"]]
            row["neg"] += [text for text in record.negatives if text not in row["neg"]]
    return {query: row for query, row in by_query.items() if row["neg"]}


class Context:
    """Texts from which damages are drawn."""

    def __init__(self, memory: Memory, passages: list[str], foreign: list[str], number: int) -> None:
        self.memory, self.passages, self.foreign, self.number = memory, passages, foreign, number


Damage = Callable[[list[Row], np.random.Generator, Context], list[Row]]


def some(rows: list[Row], draw: np.random.Generator, share: float) -> list[tuple[int, int]]:
    """Draw a share of all negatives at random, as (row, negative)."""
    places = [(r, k) for r, row in enumerate(rows) for k in range(len(row["neg"]))]
    return [places[i] for i in draw.choice(len(places), round(share * len(places)), replace=False)]


def as_it_is(rows: list[Row], draw: np.random.Generator, context: Context) -> list[Row]:
    return rows


def positives(share: float) -> Damage:
    """Replace negatives by labelled positives: unchanged, in capitals, with extra spaces, without their first words."""

    def damage(rows: list[Row], draw: np.random.Generator, context: Context) -> list[Row]:
        for number, (r, k) in enumerate(some(rows, draw, share)):
            text = str(draw.choice(rows[r]["pos"]))
            words = text.split()
            ways = (text, text.upper(), "  ".join(words), " ".join(words[min(12, len(words) // 10) :]))
            rows[r]["neg"][k] = ways[number % len(ways)]
        return rows

    return damage


def unlabelled(rows: list[Row], draw: np.random.Generator, context: Context) -> list[Row]:
    """Label only the first half of a positive in each record, and use the second half as a negative."""
    halves = {r: str(draw.choice(row["pos"])).split() for r, row in enumerate(rows)}
    for r, words in halves.items():
        rows[r]["pos"] = [" ".join(words[: len(words) // 2])]
    for r, row in enumerate(rows):
        row["neg"][int(draw.integers(len(row["neg"])))] = " ".join(halves[r][len(halves[r]) // 2 :])
    return rows


def replaced(share: float, foreign: bool = False) -> Damage:
    """Replace negatives by random passages of the collection, or by paragraphs in another language."""

    def damage(rows: list[Row], draw: np.random.Generator, context: Context) -> list[Row]:
        texts = context.foreign if foreign else context.passages
        for r, k in some(rows, draw, share):
            rows[r]["neg"][k] = texts[int(draw.integers(len(texts)))]
        return rows

    return damage


def preambles(rows: list[Row], draw: np.random.Generator, context: Context) -> list[Row]:
    """Put a generator's opening before a tenth of the negatives, in one of five languages per draw. Vectors stay."""
    opening = PREAMBLES[context.number % len(PREAMBLES)]
    for r, k in some(rows, draw, 0.1):
        text = rows[r]["neg"][k]
        context.memory.stands_for[opening + text] = context.memory.stands_for.get(text, text)
        rows[r]["neg"][k] = opening + text
    return rows


def shuffled(rows: list[Row], draw: np.random.Generator, context: Context) -> list[Row]:
    """Assign all negatives of each query to another query."""
    shift = int(draw.integers(1, len(rows)))
    lists = [row["neg"] for row in rows]
    return [{**row, "neg": lists[(r + shift) % len(rows)]} for r, row in enumerate(rows)]


def tenth_shuffled(rows: list[Row], draw: np.random.Generator, context: Context) -> list[Row]:
    """Replace a tenth of the negatives by those of other queries."""
    lists = [list(row["neg"]) for row in rows]
    for r, k in some(rows, draw, 0.1):
        other = lists[(r + int(draw.integers(1, len(rows)))) % len(rows)]
        rows[r]["neg"][k] = other[int(draw.integers(len(other)))]
    return rows


def shortened(words: Callable[[int], int]) -> Damage:
    """Cut every negative to its first words."""

    def damage(rows: list[Row], draw: np.random.Generator, context: Context) -> list[Row]:
        for row in rows:
            row["neg"] = [" ".join(text.split()[: words(len(text.split()))]) or text for text in row["neg"]]
        return rows

    return damage


def mojibake(rows: list[Row], draw: np.random.Generator, context: Context) -> list[Row]:
    """Decode a tenth of the negatives, with quotes and dashes added, with the wrong encoding."""
    for r, k in some(rows, draw, 0.1):
        text = rows[r]["neg"][k]
        spoilt = f"“{text}” – naïve".encode().decode("cp1252", "replace")
        context.memory.stands_for[spoilt] = context.memory.stands_for.get(text, text)
        rows[r]["neg"][k] = spoilt
    return rows


DAMAGES: dict[str, Damage] = {
    "5 % labelled positives": positives(0.05),
    "10 % labelled positives": positives(0.1),
    "20 % labelled positives": positives(0.2),
    "10 % unlabelled positives": unlabelled,
    "shuffled": shuffled,
    "a tenth shuffled": tenth_shuffled,
    "10 % preambles": preambles,
    "first six words": shortened(lambda n: 6),
    "first half": shortened(lambda n: max(1, n // 2)),
    "10 % in German": replaced(0.1, foreign=True),
    "100 % in German": replaced(1.0, foreign=True),
    "10 % mojibake": mojibake,
    "30 % random": replaced(0.3),
    "50 % random": replaced(0.5),
    "70 % random": replaced(0.7),
}


def write(path: Path, rows: Sequence[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def baseline_of(sources: dict[str, list[Row]], memory: Memory, folder: Path) -> GateReference:
    files = [write(folder / f"{name}.jsonl", rows) for name, rows in sources.items()]
    encoder = from_callable(memory, "remembered")
    secid.score(files, encoder, run=folder / "run", force=True, controls="none")
    write_baseline(*collect_baseline(folder / "run"), folder / "baseline.json")
    return prepare(folder / "baseline.json", Policy(), "derived", None)


def verdicts(
    rows: list[Row], source: str, against: GateReference, memory: Memory, folder: Path
) -> Iterator[tuple[str, Any]]:
    """Return the verdicts on one sample: under a new name and, if the baseline has its source, under that name."""
    resolved = settings_for(against.baseline, resolve({}))
    frequencies, known = read_baseline_table(check_table(Path(against.where), against.baseline), against.baseline.idf)
    gated = write(folder / "incoming.jsonl", rows)
    encoder = from_callable(memory, "remembered")
    sources, background = resolve_sources([str(gated)]), Background(frequencies, known=known)
    with (
        tempfile.TemporaryDirectory() as work,
        read_sources(sources, resolved, QuerySubset(), background, Path(work), Clock(), Silent()) as read,
    ):
        context = measure(read, encoder, None, background, Path(work), Clock(), Silent())
        scored, plan = assemble_run(context, read, encoder, background, Clock(), None), read.plan
        yield "new", source_verdict(scored, plan, against, "")
        if source in against.baseline.sources:
            as_known = replace(against, policy=Policy(names={"incoming": source}))
            yield "known", source_verdict(scored, plan, as_known, "")


def line_of(key: tuple[Any, ...], name: str, verdict: SourceVerdict) -> str:
    checks = verdict.checks
    collection, split, source, size, label, number = key
    return json.dumps({
        "collection": collection, "split": split, "source": source, "size": size, "what": label, "draw": number,
        "name": name, "outcome": verdict.outcome,
        "failed": [check.name for check in checks if check.outcome == "fail"],
        "undecided": [check.name for check in checks if check.outcome == "undecided"],
        "notices": [check.name for check in checks if check.notice],
        "left_out": list(verdict.left_out),
        "numbers": {check.name: [check.measured, check.limit, check.before] for check in checks},
    })  # fmt: skip


def run(options: argparse.Namespace) -> None:
    """Compute all cells of one collection, split by split, and append them to the file. Existing lines are kept."""
    collection = options.collection.name
    done = set()
    if options.out.exists():
        for line in options.out.read_text().splitlines():
            old = json.loads(line)
            done.add(tuple(old[key] for key in ("collection", "split", "source", "size", "what", "draw")))
    memory = Memory(options.encoder, options.out.with_suffix(".npz"))
    tables = {source: rows_of(options.collection, source) for source in BASELINES}
    queries = sorted(set.intersection(*(set(table) for table in tables.values())))
    passages = [
        f"{row.get('title') or ''} {row['text']}".strip()
        for row in map(json.loads, (options.collection / "corpus.jsonl").read_text(encoding="utf-8").splitlines())
    ]
    foreign = [json.loads(line)["text"] for line in options.foreign.read_text(encoding="utf-8").splitlines()]
    labels = options.what or ["fresh", *DAMAGES]
    started = time.process_time()
    for split in range(options.splits):
        draw = np.random.default_rng([options.seed, split])
        order = [queries[i] for i in draw.permutation(len(queries))]
        unseen, known = order[: options.unseen], order[options.unseen :]
        for source, of_baseline in BASELINES.items():
            with tempfile.TemporaryDirectory() as temporary:
                folder, against = Path(temporary), None
                for size in options.sizes:
                    for label in labels:
                        for number in range(options.draws * (2 if label == "fresh" else 1)):
                            key = (collection, split, source, size, label, number)
                            if key in done or (source == "dense_win" and label != "fresh"):
                                continue
                            if against is None:
                                parts = {name: [tables[name][query] for query in known] for name in of_baseline}
                                against = baseline_of(parts, memory, folder)
                            own = np.random.default_rng([options.seed, split, size, number, *label.encode()])
                            sample = own.choice(unseen, size, replace=False)
                            rows = [{**tables[source][q], "pos": list(tables[source][q]["pos"]),
                                     "neg": list(tables[source][q]["neg"])} for q in sample]  # fmt: skip
                            context = Context(memory, passages, foreign, split * options.draws + number)
                            rows = DAMAGES.get(label, as_it_is)(rows, own, context)
                            lines = [line_of(key, *pair) for pair in verdicts(rows, source, against, memory, folder)]
                            with options.out.open("a", encoding="utf-8") as file:
                                file.write("".join(f"{line}\n" for line in lines))
            memory.save()
            print(f"{collection} {split} {source}: {time.process_time() - started:.0f} s of processor time", flush=True)


def table(paths: list[Path]) -> str:
    """Return a Markdown table per collection: pass/undecided/fail by damage, size and name, and failed checks."""
    lines = [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    text = ""
    for collection in dict.fromkeys(line["collection"] for line in lines):
        cells: dict[str, dict[tuple[int, str], list[dict[str, Any]]]] = {}
        for line in lines:
            if line["collection"] == collection:
                what = f"{line['what']}{', a new miner' if line['source'] == 'dense_win' else ''}"
                cells.setdefault(what, {}).setdefault((line["size"], line["name"]), []).append(line)
        columns = sorted({column for row in cells.values() for column in row})
        text += (
            f"\n**{collection}**\n\n| what | {' | '.join(f'{size} {name}' for size, name in columns)} | failed on |\n"
        )
        text += f"|---|{'---|' * len(columns)}---|\n"
        for what, row in cells.items():
            counts = [
                "/".join(str(sum(line["outcome"] == outcome for line in row[column])) for outcome in OUTCOMES)
                if column in row
                else "–"
                for column in columns
            ]
            checks = Counter(check for column in row.values() for line in column for check in line["failed"])
            on = ", ".join(check.removeprefix("findings.") for check, _ in checks.most_common(3))
            text += f"| {what} | {' | '.join(counts)} | {on or '–'} |\n"
    return text


OUTCOMES = ("pass", "undecided", "fail")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, nargs="?")
    parser.add_argument("--foreign", type=Path, help="corpus.jsonl of a collection in another language")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--draws", type=int, default=5, help="samples of a cell and split; twice as many fresh")
    parser.add_argument("--unseen", type=int, default=600, help="queries that a split keeps from its baseline")
    parser.add_argument("--sizes", type=int, nargs="+", default=[60, 200, 500], help="queries of a sample")
    parser.add_argument("--what", nargs="+", help="only these")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("verdicts.jsonl"))
    parser.add_argument("--table", type=Path, nargs="+", help="print the results of these files")
    options = parser.parse_args()
    if options.table:
        print(table(options.table))
    else:
        run(options)


if __name__ == "__main__":
    main()
