"""Measure formal findings on sound sources, where every alarm is false, and on planted defects.

    python docs/experiments/form.py COLLECTION... [--sources FILE...]

COLLECTION is a BEIR folder; the script mines random and BM25 negatives of its queries. FILE holds sources with ids of
the first collection. Defects are planted in BM25 negatives of the first collection. Results: form.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import secid
from secid.pages.statuses import above_limit
from secid.results.catalogue import FORMAL_FINDINGS
from secid.results.check import Check

CLEAN_ROWS = 240
Rows = list[dict[str, Any]]
PLANTS: dict[str, tuple[int, Callable[[str], str]]] = {
    "mojibake": (15, lambda text: f"“{text}”".encode().decode("cp1252", errors="ignore")),
    "trailing_note": (15, lambda text: f"{text} (Note: this passage is related, but does not answer the query.)"),
    "wrapper": (15, lambda text: json.dumps({"hard_negative": text}) if len(text) % 2 else f"```markdown\n{text}\n```"),
    "loop": (15, lambda text: f"{text[:40]} {'the ' * 60}"),
    "unfinished": (20, lambda text: text[: len(text) * 2 // 3].rsplit(" ", 1)[0].rstrip(".")),
    "markup": (15, lambda text: f"<p class='text'>{text.replace('. ', '.</p><br/><p>')}</p>"),
    "preamble": (15, lambda text: f"Sure! Here is a hard negative passage: {text}"),
}
"""Number of negatives that get a defect, and the function that plants it, by finding."""


def mined(collection: str, folder: Path) -> list[str]:
    """Mine random and BM25 negatives, and return their files."""
    result = secid.mine(["random=random", "bm25=bm25"], folder, collection=collection, k=10)
    return [source.path for source in result.sources]


def print_table(name: str, check: Check) -> None:
    """Print a row for each source: shares of negatives and positives, and the findings that stand out."""
    for source in check.sources:
        findings = [source.finding(each) for each in FORMAL_FINDINGS]
        cells = [
            "0" if not item.n_negatives and not item.positives.n_positives else
            f"{100 * item.share:.1f} / {100 * item.positives.share:.1f}" for item in findings
        ]  # fmt: skip
        alarms = ", ".join(item.name for item in findings if above_limit(item)) or "none"
        print(
            f"| {name} | {source.name} | {source.n_triplets:,} | {' | '.join(cells)} | {source.status} | {alarms} |",
            flush=True,
        )


def print_planted(rows: Rows, folder: Path) -> None:
    """Print a row for each kind: the number of planted negatives, and how many of these and of the others are found."""
    print("\n| kind | planted | found | false alarms on clean rows | stands out |\n|---|---|---|---|---|")
    clean = _numbers(rows, folder / "clean.jsonl")
    for name, (n, change) in PLANTS.items():
        planted = [{**row, "neg": list(row["neg"])} for row in rows]
        for row in planted[:: len(rows) // n][:n]:
            row["neg"][0] = change(row["neg"][0])
        n_found, stands_out = _numbers(planted, folder / f"{name}.jsonl")[name]
        n_clean = clean[name][0]
        print(f"| {name} | {n} | {n_found - n_clean} | {n_clean} | {'yes' if stands_out else 'no'} |")


def _numbers(rows: Rows, path: Path) -> dict[str, tuple[int, bool]]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (source,) = secid.check([path]).sources
    return {item.name: (item.n_negatives, above_limit(item)) for item in source.findings}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+")
    parser.add_argument("--sources", nargs="*", default=[])
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as made:
        print(f"| collection | source | negatives | {' | '.join(FORMAL_FINDINGS)} | status | stands out |")
        print(f"|{'---|' * (len(FORMAL_FINDINGS) + 5)}")
        for number, collection in enumerate(given.collections):
            files = mined(collection, Path(made) / str(number))
            print_table(Path(collection).name, secid.check(files))
        if given.sources:
            print_table(Path(given.collections[0]).name, secid.check(given.sources, collection=given.collections[0]))
        rows = [json.loads(line) for line in (Path(made) / "0" / "bm25.jsonl").read_text("utf-8").splitlines()]
        print_planted([{**row, "neg": row["neg"][:1]} for row in rows[:CLEAN_ROWS]], Path(made))


if __name__ == "__main__":
    main()
