"""Texts of sources against the positives that a baseline knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from secid.gating import aside
from secid.gating.aside import look
from secid.gating.runs import stored
from secid.gating.texts import Texts
from secid.read import resolve_sources
from secid.records import Record
from secid.settings import Settings

POSITIVE = " ".join(f"word{n}" for n in range(40))


@pytest.fixture
def task(tmp_path: Path):
    """Two sources, one with a known positive that only the baseline knows."""
    positives = Texts(lambda: [Record("q 0", (POSITIVE,), ("nothing of it",), "old.jsonl", 1)]).positives
    save_file(stored(positives.values()), tmp_path / "b.idf.safetensors")
    rows = [{"query": f"q {n}", "pos": [f"answer {n}"], "neg": [f"no answer {n}", f"nor {n}"]} for n in range(30)]
    for name in ("clean", "new"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        rows[0]["neg"] = [POSITIVE.upper(), "nor 0"]
    return resolve_sources([str(tmp_path / "*.jsonl")], Settings()), Settings(), tmp_path / "b.idf.safetensors"


def told(found: aside.Looked) -> dict[str, dict[str, int]]:
    return {Path(paths[0]).stem: {k: n for k, n in item.flagged.items() if n} for (paths, _), item in found.items()}


EXPECTED = {"clean": {}, "new": {"known_positive": 1}}


def test_known_positives_of_the_baseline_are_noticed(task):
    assert told(look(*task)) == EXPECTED
