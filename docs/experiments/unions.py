"""Does a union of two sources, scored for real, agree with the formula over the parts' states?

    python docs/experiments/unions.py SOURCE SOURCE... --encoder minilm

For every pair of sources: a file of all negatives of both by record, and one of those that stand in both, are written
and scored in one run, so that coverage has one pool. Results: unions.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from itertools import combinations
from pathlib import Path

import secid
from secid.measure.information import log_det_nats
from secid.measure.mixture import union
from secid.read import open_source, resolve_sources
from secid.records import Record
from secid.run_folder.read import read_states
from secid.settings import Settings

BUDGETS = (1.0, 100.0, 10_000.0)


def negatives(path: str) -> dict[tuple[str, str], list[str]]:
    """Distinct negatives by (query, first positive), in the order of reading."""
    (source,) = resolve_sources([path], Settings())
    found: dict[tuple[str, str], dict[str, None]] = {}
    for record in open_source(source, Settings()):
        if isinstance(record, Record):
            found.setdefault((record.query, record.positives[0]), {}).update(dict.fromkeys(record.negatives))
    return {key: list(texts) for key, texts in found.items()}


def write(path: Path, table: dict[tuple[str, str], list[str]]) -> None:
    """JSON lines of the records that have negatives."""
    with path.open("w", encoding="utf-8") as file:
        for (query, positive), texts in table.items():
            if texts:
                print(json.dumps({"query": query, "pos": [positive], "neg": texts}), file=file)


def main() -> None:
    """Prints one line a pair and budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--encoder", default="minilm")
    arguments = parser.parse_args()
    tables = {f"source{number}": negatives(path) for number, path in enumerate(arguments.sources)}
    print(dict(zip(tables, arguments.sources, strict=True)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = dict(tables)
        for first, second in combinations(tables, 2):
            a, b = tables[first], tables[second]
            keys = dict.fromkeys([*a, *b])
            files[f"{first}+{second}"] = {k: list(dict.fromkeys([*a.get(k, []), *b.get(k, [])])) for k in keys}
            files[f"{first}&{second}"] = {k: [text for text in a.get(k, []) if text in b.get(k, [])] for k in keys}
        for stem, table in files.items():
            write(folder / f"{stem}.jsonl", table)
        filled = [str(folder / f"{stem}.jsonl") for stem, table in files.items() if any(table.values())]
        secid.score(filled, arguments.encoder, run=folder / "run", controls="none")
        states = read_states(folder / "run")
    for first, second in combinations(tables, 2):
        one, other, both = states[first], states[second], states[f"{first}+{second}"]
        shared = states.get(f"{first}&{second}")
        formula = one + other if shared is None else union(one, other, shared)
        assert formula.n_negatives == both.n_negatives
        for budget in BUDGETS:
            real = log_det_nats(both.matrix(), budget)
            once = log_det_nats(formula.matrix(), budget) / real - 1
            twice = log_det_nats((one + other).matrix(), budget) / real - 1
            n_shared = 0 if shared is None else shared.n_negatives
            print(
                f"{first}+{second} shared {n_shared:.0f} B {budget:g}: {real:.6f} once {once:+.1e} twice {twice:+.1e}"
            )


if __name__ == "__main__":
    main()
