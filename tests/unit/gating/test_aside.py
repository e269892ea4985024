"""Texts looked at by a process of its own: the same findings, whatever becomes of the process."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from secid.errors import InputError
from secid.gating import aside
from secid.gating.aside import Aside, look
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


def test_another_process_finds_the_same(task, monkeypatch):
    monkeypatch.setattr(aside, "LEAST_BYTES", 0)
    monkeypatch.setattr(aside.os, "cpu_count", lambda: 2)
    here = look(*task)
    monkeypatch.setattr(aside, "look", lambda *task: pytest.fail("looked here"))
    with Aside(*task) as beside:
        found = beside.findings()
    assert told(found) == told(here) == EXPECTED
    for key, item in here.items():
        assert found[key].places == item.places
        for name, share in item.shares.items():
            assert found[key].shares[name].value == share.value
            assert np.array_equal(found[key].shares[name].per_query, share.per_query)
            assert np.array_equal(found[key].shares[name].queries, share.queries)


@pytest.mark.parametrize("start", ["raise SystemExit(1)", "import os; os.close(0); os.write(1, b'half')", "1 +"])
def test_a_process_that_dies_is_not_missed(task, monkeypatch, start):
    monkeypatch.setattr(aside, "LEAST_BYTES", 0)
    monkeypatch.setattr("secid.processes.start.START", start)
    with Aside(*task) as beside:
        assert told(beside.findings()) == EXPECTED


def test_small_sources_need_no_process(task, monkeypatch):
    monkeypatch.setattr(aside, "started", lambda serve: pytest.fail("a process was started"))
    with Aside(*task) as beside:
        assert told(beside.findings()) == EXPECTED


def test_the_process_ends_with_the_block(task, monkeypatch):
    monkeypatch.setattr(aside, "LEAST_BYTES", 0)
    monkeypatch.setattr(aside.os, "cpu_count", lambda: 2)
    monkeypatch.setattr("secid.processes.start.START", "import time; time.sleep(600)")
    with Aside(*task) as beside:
        process = beside._helper.process
    assert process is not None
    assert process.returncode is not None


def test_errors_are_told_by_the_process_that_asked(task, monkeypatch, capfd):
    monkeypatch.setattr(aside, "LEAST_BYTES", 0)
    sources, settings, table = task
    Path(sources[1].paths[0]).write_text("no JSON\n", encoding="utf-8")
    with Aside(sources, settings, table) as beside, pytest.raises(InputError, match="new"):
        beside.findings()
    assert capfd.readouterr().err == ""
