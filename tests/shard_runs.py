"""Test runs in shards: make sources with everything that crosses shards, and compare a merged run with one process."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secid.encode import Role
from secid.findings.rows import AGAINST_PASSAGES
from secid.results import Run, SourceReport
from tests.fake_encoder import HashEncoder

TO_1E_12 = 1e-12
OF_SAMPLE = frozenset({"hardness", "languages", "repair"})
"""Fields of a source that a merge measures on its sample."""
OF_MERGE = frozenset({"timing", "environment", "folder", "settings", "probe", "merged"})
"""Fields of a run that describe how it was made."""
NAMES = ("one", "two", "three")


def write_sources(folder: Path, seed: int = 0, n_queries: int = 60) -> list[str]:
    """Write three files with the same queries: hubs, shared openings, preambles, copies, blanks, repeats, queries that
    differ only in case, rows of one record apart from each other, and broken lines.
    """
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in NAMES:
        lines = []
        for number in range(n_queries):
            subject = f"s{number % 7}"
            query = f"what is {number} on {subject}" if number % 9 else f"WHAT is {number - number % 2} on {subject}"
            positives = [f"answer {number} {rank} on {subject} with a few more words" for rank in range(1 + number % 3)]
            negatives = [
                f"{name} passage {draw.randrange(50)} on {draw.choice([subject, 's1', 's2'])} written for tests"
                for _ in range(1 + draw.randrange(5))
            ]
            if number % 5 == 0:
                negatives.append(f"{name} hub passage that serves many")
            if number % 6 == 0:
                negatives.append(f"Here is the passage {number}: it tells {draw.randrange(9)} things of {subject}")
            if number % 7 == 0:
                negatives += [negatives[0], positives[0].upper(), ""]
            if number % 8 == 0:
                negatives.append(f"in this short text we show {draw.randrange(99)} of {subject}")
            lines.append(json.dumps({"query": query, "pos": positives, "neg": negatives}))
            if number % 11 == 0:
                lines.append(json.dumps({"query": query, "pos": positives[:1], "neg": [f"late {number} on {subject}"]}))
        if name != "two":
            draw.shuffle(lines)
        lines.insert(5, '{"query": "cut')
        path = folder / f"{name}.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        paths.append(str(path))
    return paths


def score_shard_and_die(n_texts: int, arguments: list[str]) -> None:
    """Score a shard of sources into a folder of states, and kill the process once n_texts or more are encoded.

    The run has a cache of its own, because texts that another test has cached are not encoded.
    """
    import secid

    class Dying(HashEncoder):
        def encode(self, texts: Sequence[str], role: Role) -> np.ndarray:
            if self.n_encoded >= n_texts:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().encode(texts, role)

    *sources, shard, folder = arguments
    options = {"sums": "float64", "max_bad_fraction": 0.2, "cache_dir": f"{folder}-cache-{n_texts}"}
    secid.score_shard(sources, Dying(), shard=shard, state_dir=folder, **options)


def _without_cost(run: Run) -> Run:
    """Return a run without its cost, which depends on the machine and on the cache."""
    analyses, missing = (
        {name: item for name, item in items.items() if name != "cost"} for items in (run.analyses, run.not_evaluated)
    )
    return dataclasses.replace(run, analyses=analyses, not_evaluated=missing)


def differences(
    one: Run, merged: Run, tolerance: float = TO_1E_12, absolute: float = 0.0
) -> list[tuple[str, Any, Any]]:
    """List where a merged run differs from a run of one process: place and both values.

    For a merge on a sample, compare only the parts summed over all rows.
    absolute : tolerance for numbers near 0 that are differences of larger ones.
    """
    if merged.merged is None or merged.merged.sampled_queries is None:
        fields = [field.name for field in dataclasses.fields(Run) if field.name not in OF_MERGE]
        one, merged = (_without_cost(run) for run in (one, merged))
        pairs = [(name, getattr(one, name), getattr(merged, name)) for name in fields]
    else:
        pairs = [(name, getattr(one, name), getattr(merged, name)) for name in ("idf", "encoder")]
        pairs.append(("overlap", one.analyses["overlap"], merged.analyses["overlap"]))
        compared = ([dataclasses.replace(pair, hardness=None) for pair in run.comparisons] for run in (one, merged))
        pairs.append(("comparisons", *compared))
        pairs.append(
            ("sources", [_added_up(item) for item in one.sources], [_added_up(item) for item in merged.sources])
        )
    return [found for name, a, b in pairs for found in _apart(name, a, b, tolerance, absolute)]


def _added_up(source: SourceReport) -> dict[str, Any]:
    fields = {name: value for name, value in vars(source).items() if name not in OF_SAMPLE}
    fields["findings"] = [
        dataclasses.replace(item, examples=()) for item in source.findings if item.name not in AGAINST_PASSAGES
    ]
    fields["finding_overlaps"] = {
        first: {second: n for second, n in row.items() if second not in AGAINST_PASSAGES}
        for first, row in source.finding_overlaps.items()
        if first not in AGAINST_PASSAGES
    }
    shared, without = source.scored.on_shared, source.scored.without_flagged
    fields["score"] = dataclasses.replace(
        source.scored,
        equal_curve=(),
        on_shared=None if shared is None else dataclasses.replace(shared, hardness=None),
        without_flagged=dataclasses.replace(without, hardness=None),
    )
    return fields


def _apart(place: str, a: Any, b: Any, tolerance: float, absolute: float) -> Iterator[tuple[str, Any, Any]]:
    if dataclasses.is_dataclass(a) and type(a) is type(b):
        a, b = ({field.name: getattr(x, field.name) for field in dataclasses.fields(x)} for x in (a, b))
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        for key in a:
            if key != "repair":
                yield from _apart(f"{place}.{key}", a[key], b[key], tolerance, absolute)
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        for number, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _apart(f"{place}[{number}]", x, y, tolerance, absolute)
    elif isinstance(a, float) and isinstance(b, float):
        same = math.isclose(a, b, rel_tol=tolerance, abs_tol=max(absolute, 1e-3 * tolerance))
        if not same and not math.isnan(a) * math.isnan(b):
            yield place, a, b
    elif a != b:
        yield place, a, b
