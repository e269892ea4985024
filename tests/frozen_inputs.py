"""Inputs and commands of `python -m tests.frozen`: small collections, sources with planted defects, and vectors.

Hashes and seeds draw everything, so two folders prepared from the same data are equal.
"""

from __future__ import annotations

import gzip
import json
import math
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

SIZES = {"scifact": (240, 1500), "cranfield": (150, 900)}
"""Queries and passages of each collection: enough queries for slices, the gate's limits and a probe."""
PREAMBLES = ("Here is a hard negative passage: ", "Sure! Here's a passage that looks relevant:\n\n", "", "", "")
DEFECTS = ("", "<p>See <b>table</b></p> ", "Itâ€™s knownÂ that ", "again and again " * 12)
RESULTS = "source,ndcg,ndcg_se\nbm25,0.41,0.01\npoisoned,0.33,0.02\nrandom,0.37,0.01\nllm,0.3,0.02\nswapped,0.35,0.01\n"
"""Made-up training results, for `secid compare`."""

SCORED = "{own}/bm25.jsonl.gz {own}/random.parquet {own}/swapped.jsonl {own}/llm.jsonl {own}/poisoned.jsonl"
ENCODED = "--encoder {own}/vectors.npz"
GATED = "gate --against base.json " + ENCODED + " -q"
PROBED = "{in}/scifact/random.parquet {in}/scifact/bm25.jsonl.gz {in}/scifact/swapped.jsonl --encoder {in}/tiny -q"
PROBED += " --max-length 32"
CASES: Mapping[str, Mapping[str, str]] = {
    "fixtures": {
        "full": "score {in}/fixtures/sources/* --collection {in}/fixtures/collection --ablate --objectives --legend "
        "--encoder {in}/fixtures/vectors.npz --guide {in}/fixtures/guide.npz --run run -q",
        "plain": "score {in}/fixtures/sources/bm25.jsonl.gz --encoder {in}/fixtures/vectors.npz --run plain --json -q",
        "check": "check {in}/fixtures/sources/* -o check.json -q",
        "drop_in_check": "select check.json --source poisoned --drop false_negative,repeat -o clean.jsonl --json -q",
        "audit": "audit {in}/fixtures/sources/* --collection {in}/fixtures/collection "
        "--encoder {in}/fixtures/vectors.npz -o audit.json -q",
    },
    "broken": {},  # one `check` and its exit code for each file, added by `cases`
    "scifact": {
        "full": f"score {SCORED} {{own}}/known.jsonl --collection {{own}}/collection {ENCODED} "
        "--guide {own}/guide.npz --ablate --objectives --by kind --set encode_corpus=yes --run run -q",
        "report": "report run --legend -o metrics.json -o again.json",
        "compare": "compare run --against {in}/results.csv --json",
        "drop": "select run --source poisoned --drop false_negative,repeat -o drop.jsonl -q --json",
        "top": "select run --source bm25 --top 3 --by influence -o top.parquet -q --json",
        "weight": "select run --source llm --min-weight 0.1 --max 200 --by weight -o weight.jsonl -q --json --force",
        "mix": "mix run --shares bm25=0.5,random=0.3,swapped=0.2 -o mix.jsonl --json -q",
        "mix_scored": "mix run --shares bm25=0.7,llm=0.3 --budget 100 --json -q",
        "mix_text": "mix run --shares bm25=0.7,llm=0.3 -q",
        "flagged": "flagged run --finding inversion -o flagged.jsonl",
        "check": f"check {SCORED} --against-eval {{in}}/cranfield/collection -o check.json -q",
        "fail_on": f"check {SCORED} --fail-on preamble=0.01 --json -q",
    },
    "cranfield": {
        "full": f"score {SCORED} {{own}}/known.jsonl --collection {{own}}/collection {ENCODED} "
        "--guide {own}/guide.npz --ablate --objectives --by kind --set encode_corpus=yes --run run -q",
        "settings": f"score {SCORED} {ENCODED} --temperature 0.02 --max-records 100 --set positives=all "
        "--set seed=3 --run other -q",
        "until": f"score {SCORED} {ENCODED} --until-ranked 0.95 --set controls=none --run until --json -q",
        "encoders": f"score {SCORED} {ENCODED} --encoder {{own}}/guide.npz --guide {{own}}/guide.npz "
        "--guide-sample 200 --set controls=none --set budget=50 --run two --json -q",
        "reports": "report run other -o changes.json",
        "drop_suspects": "select run --source bm25 --drop suspect -o drop.jsonl -q --json",
    },
    "gate": {
        "score": "score {own}/bm25.jsonl.gz {own}/random.parquet " + ENCODED + " --run run --json -q",
        "baseline": "baseline run -o base.json",
        "policy": "gate --init --against base.json --policy policy.toml",
        "passed": GATED + " {own}/bm25.jsonl.gz {own}/random.parquet -o passed.json",
        "paired": GATED + " {own}/bm25.jsonl.gz --paired run --policy policy.toml --json",
        "failed": GATED + " bm25={own}/poisoned.jsonl -o failed.json",
        "undecided": GATED + " bm25={own}/small.jsonl -o undecided.json",
        "new": GATED + " {own}/llm.jsonl {own}/swapped.jsonl -o new.json -o new.xml",
        "update": "baseline update run -o base.json",
    },
    "mine": {
        "mine": "mine random=random bm25=bm25 near=dense:relative=0.05 window=dense:ranks=11-20 near95=nv-retriever-95 "
        "near_sim=simans both=hybrid:bm25=3,near=3 --collection {own}/collection "
        + ENCODED
        + " -k 6 -o mined --json -q",
        "pairs": "mine bm25=bm25 near=dense --pairs {own}/bm25.jsonl.gz --collection {own}/collection "
        + ENCODED
        + " --as st-ntuple --parquet --max-reuse 5 --on-short random -o pairs -q",
        "sweep": "mine bm25=bm25 near=dense --sweep --collection {own}/collection " + ENCODED + " "
        "--guide {own}/guide.npz --json -q",
    },
    "shards": {
        "shard_0": f"score {SCORED} {ENCODED} --shard 0/2 --state-dir states -q",
        "shard_1": f"score {SCORED} {ENCODED} --shard 1/2 --state-dir states -q",
        "merge": f"merge states {ENCODED} --ablate --objectives --by kind --run run -q",
        "merge_sample": f"merge states {ENCODED} --sample 80 --run sample --json -q",
    },
    "model": {
        "encoder": "encoder {in}/tiny --json",
        "score": "score " + PROBED + " --run run --set controls=all",
        "probe": "probe " + PROBED + " --collection {in}/scifact/collection --steps 3 --seeds 2 --folds 2 --batch 8 "
        "--rate 1e-3 --full --run run -o probe.json",
        "compare": "compare run --against probe.json --json",
    },
}
"""By case, labelled commands that run one after the other in a separate folder. {in} : the inputs; {own} : the inputs
of the collection with the case's name, and of Cranfield for other cases.
"""


def cases(inputs: Path) -> dict[str, dict[str, list[str]]]:
    """Return the arguments of each command. secid itself expands patterns such as *."""
    found = {}
    for name, commands in CASES.items():
        set_name = name if name in SIZES else "cranfield"
        values = {"in": f"../../{inputs.name}", "own": f"../../{inputs.name}/{set_name}"}
        found[name] = {label: [word.format(**values) for word in text.split()] for label, text in commands.items()}
    for path in sorted((inputs / "fixtures" / "broken").glob("*.*")):
        if path.suffix != ".md":
            found["broken"][path.name] = ["check", f"../../{inputs.name}/fixtures/broken/{path.name}", "--json", "-q"]
    return found


@dataclass(frozen=True)
class Collection:
    """A part of a BEIR collection: texts by id, and the relevant passages of each query, at least one."""

    queries: dict[str, str]
    passages: dict[str, dict[str, str]]
    relevant: dict[str, list[str]]

    def text(self, number: str) -> str:
        """Return the passage as secid reads it: the title, if any, a space and the text."""
        return " ".join(filter(None, (self.passages[number]["title"].strip(), self.passages[number]["text"].strip())))


def prepare(inputs: Path, data: Path, fixtures: Path) -> None:
    """Write all inputs. data: holds scifact/ and cranfield/ with corpus.jsonl, queries.jsonl and qrels."""
    from tests.tiny_bert import save_tiny_bert

    shutil.copytree(fixtures, inputs / "fixtures", ignore=shutil.ignore_patterns("__pycache__"))
    files = [*(inputs / "fixtures" / "sources").iterdir(), *(inputs / "fixtures" / "collection").glob("*.jsonl")]
    save_vectors(inputs / "fixtures", {text for path in files for text in texts_of(rows_of(path))})
    (inputs / "results.csv").write_text(RESULTS, encoding="utf-8")
    save_tiny_bert(inputs / "tiny", width=16, layers=1)
    for name, (n_queries, n_passages) in SIZES.items():
        part = part_of(data / name, n_queries, n_passages)
        save_collection(inputs / name / "collection", part)
        sources = sources_of(part)
        for file, rows in sources.items():
            write_rows(inputs / name / file, rows)
        texts = {*part.queries.values(), *map(part.text, part.passages), *texts_of(list(sources.values()))}
        answers = {
            text: [part.text(n) for n in part.relevant[query] if n in part.passages]
            for query, text in part.queries.items()
        }
        save_vectors(inputs / name, texts, answers)


def rows_of(path: Path) -> list[Any]:
    """Return the rows of a file of JSON lines, compressed or not, or of a Parquet file."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        return pq.read_table(path).to_pylist()
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def texts_of(value: Any) -> Iterator[str]:
    """Yield all strings in a value, and titles joined with their texts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        if {"title", "text"} <= value.keys():
            yield f"{value['title']} {value['text']}".strip()
        yield from texts_of(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)


def part_of(folder: Path, n_queries: int, n_passages: int) -> Collection:
    """Return the first queries by hash, their relevant passages, and other passages by hash."""
    relevant: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*qrels*.tsv")):
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            query, passage, grade = line.split("\t")
            if int(grade) > 0:
                relevant.setdefault(query, []).append(passage)
    queries = {row["_id"]: row["text"] for row in rows_of(folder / "queries.jsonl")}
    chosen = by_hash(number for number in relevant if number in queries)[:n_queries]
    corpus = {
        row["_id"]: {"title": row.get("title", ""), "text": row["text"]} for row in rows_of(folder / "corpus.jsonl")
    }
    first = dict.fromkeys(passage for number in chosen for passage in relevant[number])
    passages = [*first, *by_hash(corpus.keys() - first.keys())][:n_passages]
    return Collection(
        {number: queries[number] for number in chosen},
        {number: corpus[number] for number in sorted(passages)},
        {number: relevant[number] for number in chosen},
    )


def by_hash(values: Iterable[str], salt: str = "") -> list[str]:
    """Return the values in the order of a hash."""
    return sorted(values, key=lambda value: sha256(f"{salt}{value}".encode()).digest())


def save_collection(folder: Path, part: Collection) -> None:
    """Write a BEIR folder; every fourth query is in the split test."""
    write_rows(folder / "corpus.jsonl", [{"_id": number, **row} for number, row in part.passages.items()])
    write_rows(folder / "queries.jsonl", [{"_id": number, "text": text} for number, text in part.queries.items()])
    lines = {"train": ["query-id\tcorpus-id\tscore"], "test": ["query-id\tcorpus-id\tscore"]}
    for place, (query, passages) in enumerate(part.relevant.items()):
        lines["train" if place % 4 else "test"] += [f"{query}\t{passage}\t1" for passage in passages]
    (folder / "qrels").mkdir()
    for split, rows in lines.items():
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def sources_of(part: Collection) -> dict[str, list[dict[str, Any]]]:
    """Return rows by file name: BM25, random, positives of other queries, imitated language model output, labelled
    false negatives, passages by id, and a few rows of BM25.
    """
    import bm25s

    numbers = list(part.passages)
    index = bm25s.BM25()
    index.index([words(part.text(number)) for number in numbers], show_progress=False)
    rows: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("bm25", "random", "swapped", "llm", "poisoned", "known")
    }
    for query, text in part.queries.items():
        draw, known = random.Random(query), part.relevant[query]
        scores = dict(zip(numbers, index.get_scores(words(text)).tolist(), strict=True))
        ranked = [n for n in sorted(numbers, key=lambda n: (-round(scores[n], 4), n))[:30] if n not in known]
        others = [
            passages[0] for other, passages in part.relevant.items() if other != query and passages[0] not in known
        ]
        head = {"query": text, "pos": [part.text(known[0])]}
        kind = {"kind": "short" if len(words(text)) < 13 else "long"}
        rows["bm25"].append({**head, "neg": [part.text(n) for n in ranked[:8]], **kind})
        far = [n for n in by_hash(numbers, query) if n not in known][:5]
        negatives = {f"negative_{place}": part.text(n) for place, n in enumerate(far, 1)}
        rows["random"].append({"anchor": text, "positive": head["pos"][0], **negatives, **kind})
        rows["swapped"].append({**head, "neg": [part.text(n) for n in draw.sample(sorted(set(others)), 4)], **kind})
        written = [rewritten(part.text(known[0]), draw), rewritten(part.text(ranked[0]), draw), rewritten(text, draw)]
        rows["llm"].append(
            {
                "query_id": query,
                "query": text,
                "positive_passages": [{"docid": n, **part.passages[n]} for n in known if n in part.passages],
                "negative_passages": [{"docid": f"g{n}", "title": "", "text": t} for n, t in enumerate(written)],
                **kind,
            }
        )
        poisoned = [*known[1:4], *ranked[:4], *ranked[: draw.randrange(2)], numbers[0]]
        rows["poisoned"].append({**head, "neg": [part.text(n) for n in poisoned if n in part.passages], **kind})
        rows["known"].append({"qid": query, "pos": known[0], "neg": ranked[5:12]})
    names = {name: f"{name}.jsonl" for name in rows} | {"bm25": "bm25.jsonl.gz", "random": "random.parquet"}
    return {names[name]: found for name, found in rows.items()} | {"small.jsonl": rows["bm25"][:12]}


def rewritten(text: str, draw: random.Random) -> str:
    """Return the text with some words exchanged, a preamble or defect before it, or cut within a word."""
    tokens = text.split()
    for _ in range(1 + len(tokens) // 8):
        place = draw.randrange(len(tokens))
        tokens[place] = draw.choice(["not", str(draw.randrange(90)), draw.choice(tokens)])
    start = draw.choice(PREAMBLES) + (draw.choice(DEFECTS) if draw.random() < 0.2 else "")
    changed = start + " ".join(tokens[:120])
    return changed if draw.random() < 0.8 else changed[: len(changed) * 2 // 3].strip()


def words(text: str) -> list[str]:
    """Return the lower-case words of letters and digits."""
    return re.findall(r"\w+", text.lower())


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write JSON lines, compressed if the name ends in .gz, or Parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
        return
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def save_vectors(folder: Path, texts: set[str], answers: Mapping[str, list[str]] | None = None) -> None:
    """Write vectors.npz and guide.npz: sums of a random direction for each word, weighted by the square of the word's
    rarity, in float64 and rounded to float32. Texts without a word each get a random direction. Queries are moved
    towards their answers, further in the guide's file, so that both find most answers, as encoders do.
    """
    import numpy as np

    stated = sorted(texts)
    counts = [Counter(words(text)) or Counter([text]) for text in stated]
    frequency = Counter(word for count in counts for word in count)
    place = {text: row for row, text in enumerate(stated)}
    for name, dimension, nearer in (("vectors", 160, 0.4), ("guide", 128, 0.8)):
        seeds = {word: int.from_bytes(sha256(f"{name}:{word}".encode()).digest()[:8], "big") for word in frequency}
        directions = {word: np.random.default_rng(seed).standard_normal(dimension) for word, seed in seeds.items()}
        rows = np.empty((len(stated), dimension))
        for row, count in zip(rows, counts, strict=True):
            row[:] = sum(
                math.sqrt(n) * math.log(1 + len(stated) / frequency[word]) ** 2 * directions[word]
                for word, n in sorted(count.items())
            )
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        for query, passages in (answers or {}).items():
            rows[place[query]] += nearer * np.mean([rows[place[text]] for text in passages], axis=0)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        hashes = [sha256(text.encode()).hexdigest() for text in stated]
        np.savez(folder / f"{name}.npz", vector=rows.astype(np.float32), text_sha256=hashes)
