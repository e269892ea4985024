"""Whether `secid mine` gives the negatives of other scripts: by document id, on SciFact.

    python docs/experiments/mine_scifact.py COLLECTION MINED [--encoder minilm]

COLLECTION is a BEIR folder. MINED holds dense, dense_win (ranks 11 to 20) and dense95 (below 95 % of the positive's
score) as {"qid", "pos", "neg": ten ids} in NAME.jsonl.gz, mined with texts cut at 128 tokens. Results: mine.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import secid

METHODS = {"dense": "dense", "dense_win": "dense:ranks=11-20", "dense95": "dense:relative=0.05"}
K, DEEP, TIED = 10, 200, 1e-5


def mined(methods: dict[str, str], arguments: argparse.Namespace, k: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Rows of each source by query id."""
    with tempfile.TemporaryDirectory() as folder:
        result = secid.mine(
            [f"{name}={method}" for name, method in methods.items()],
            folder,
            arguments.encoder,
            collection=arguments.collection,
            k=k,
            max_length=128,
        )
        for source in result.sources:
            print(f"{source.name}, K = {k}: short {source.n_short} {dict(source.short)}, {dict(source.excluded)}")
        return {
            source.name: {
                row["query_id"]: row
                for row in map(json.loads, Path(source.path).read_text(encoding="utf-8").splitlines())
            }
            for source in result.sources
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("mined", type=Path)
    parser.add_argument("--encoder", default="minilm")
    arguments = parser.parse_args()
    own = mined(METHODS, arguments, K)
    deep = mined({"deep": "dense"}, arguments, DEEP)["deep"]
    scores = {key: dict(zip(row["neg_ids"], row["neg_scores"], strict=True)) for key, row in deep.items()}
    for name in METHODS:
        with gzip.open(arguments.mined / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            theirs = {row["qid"]: row for row in map(json.loads, file)}
        compare(name, own[name], theirs, scores)


def compare(
    name: str,
    own: dict[str, dict[str, Any]],
    theirs: dict[str, dict[str, Any]],
    scores: dict[str, dict[str, float]],
) -> None:
    """Prints how many places differ, by what the query has that could explain it."""
    counts, kinds, examples = Counter[str](), Counter[str](), []
    for key, row in theirs.items():
        mine = own.get(key, {"neg_ids": [], "pos_ids": []})
        counts["places"] += len(row["neg"])
        counts["queries"] += 1
        short = len(mine["neg_ids"]) < len(row["neg"])
        differ = [
            (a, b)
            for a, b in zip(row["neg"], mine["neg_ids"] + [""] * (K - len(mine["neg_ids"])), strict=True)
            if a != b
        ]
        counts["places that differ"] += len(differ)
        if not differ:
            continue
        counts["queries that differ"] += 1
        known = scores[key]
        gaps = [abs(known[a] - known[b]) for a, b in differ if a in known and b in known]
        if len(gaps) == len(differ) and max(gaps) < TIED:
            kind = "tied scores"
        elif short:
            kind = "fewer than ten here"
        elif len(mine["pos_ids"]) > 1 and name == "dense95":
            kind = "several positives"
        else:
            kind = "other"
        kinds[kind] += 1
        counts[f"places: {kind}"] += len(differ)
        if kind != "tied scores" and len(examples) < 12:
            s_qp = mine["neg_scores"][0] + mine["neg_margins"][0] if mine["neg_ids"] else None
            examples.append(
                f"    {kind}: query {key}, positives {mine['pos_ids']}, theirs {row['pos']}, s_qp {s_qp}, "
                f"limit {None if s_qp is None else 0.95 * s_qp}: "
                + ", ".join(f"{a} ({known.get(a)}) / {b} ({known.get(b)})" for a, b in differ[:3])
            )
    print(f"{name}: {dict(counts)}; queries by kind {dict(kinds)}")
    print("\n".join(examples))


if __name__ == "__main__":
    main()
