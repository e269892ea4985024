"""Compare the negatives of `secid mine` with those of another script, by document id, on SciFact.

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
from itertools import zip_longest
from pathlib import Path
from typing import Any

import secid

K, DEEP = 10, 200
WHOLE = "relative=0.05,ranks=1-5183"
METHODS = {
    "dense": ("dense:relative=none", "dense"),
    "dense_win": ("dense:ranks=11-20,relative=none", "dense_win"),
    "dense95": ("dense:relative=0.05", "dense95"),
    "dense95_whole": (f"dense:{WHOLE}", "dense95"),
}
"""Method, and file to compare it with, by name."""
TIED = 1e-6
"""Scores that differ by less may change places: float32 products of one row differ by this much."""


def mined(methods: dict[str, str], arguments: argparse.Namespace, k: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the rows of each source by query id."""
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
            print(f"{source.name}, K = {k}: {source.n_negatives:,} negatives, short {dict(source.short)}")
        return {
            source.name: {
                row["query_id"]: row
                for row in map(json.loads, Path(source.path).read_text(encoding="utf-8").splitlines())
            }
            for source in result.sources
        }


def main() -> None:
    """Print, for each method, how many places differ, by kind of query."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("mined", type=Path)
    parser.add_argument("--encoder", default="minilm")
    arguments = parser.parse_args()
    own = mined({name: method for name, (method, _) in METHODS.items()}, arguments, K)
    deep = mined({"deep": "dense:relative=none"}, arguments, DEEP)["deep"]
    for name, (_, file_name) in METHODS.items():
        with gzip.open(arguments.mined / f"{file_name}.jsonl.gz", "rt", encoding="utf-8") as file:
            compare(name, own[name], [json.loads(line) for line in file], deep)


def compare(
    name: str, own: dict[str, dict[str, Any]], theirs: list[dict[str, Any]], deep: dict[str, dict[str, Any]]
) -> None:
    """Print how many places differ between the two files, by the property of the query that may explain it."""
    rows, places, gaps = Counter[str](), Counter[str](), []
    n = 0
    for row in theirs:
        key, negatives = row["qid"], row["neg"]
        ours = own[key]["neg_ids"] if key in own else []
        scores = dict(zip(ours, own[key]["neg_scores"], strict=True)) if ours else {}
        differ = [(a, b) for a, b in zip_longest(negatives, ours) if a != b]
        n += len(negatives)
        if not differ:
            continue
        scores |= dict(zip(deep[key]["neg_ids"], deep[key]["neg_scores"], strict=True))
        pairs = [abs(scores[a] - scores[b]) for a, b in differ if a in scores and b in scores]
        if row["pos"] != deep[key]["pos_ids"][0]:
            kind = "a row of another positive"
        elif len(ours) < len(negatives):
            kind = "fewer here"
        elif len(pairs) == len(differ) and max(pairs) < TIED:
            kind = "tied"
            gaps += pairs
        elif len(deep[key]["pos_ids"]) > 1:
            kind = "several positives"
        else:
            kind = f"other, such as {key}"
        rows[kind] += 1
        places[kind] += len(differ)
    print(f"{name}: {places.total():,} of {n:,} places differ; rows {dict(rows)}, places {dict(places)}")
    if gaps:
        print(f"  tied: scores differ by {max(gaps):.1e} at most")


if __name__ == "__main__":
    main()
