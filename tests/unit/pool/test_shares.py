"""A plan is the same whoever reads the files: this process from start to end, shares of them, other processes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as deadlines
from hypothesis import strategies as st

from secid.errors import InputError, SecidError
from secid.pool import Plan, PlannedSource, gather, gather_shares, gathering, n_helpers_for, plan_of
from secid.pool.collect import Moved
from secid.read import open_source, resolve_sources
from secid.settings import Settings

WORDS = ["river", "stone", "über", "ключ", "load\u2028", "x", "水", '"quoted":', "\u0085"]
BAD_ROWS = [
    "{broken",
    '{"query": "q", "positive": "", "negative": "n"}',
    '{"a": 1, "a": 2}',
    "",
    "[]",
    "\ufeff{}",
    "  ",
]
LENIENT = Settings(max_bad_fraction=1.0)


def contents(plan: Plan) -> dict[str, Any]:
    """Everything a plan says, as plain values."""
    found: dict[str, Any] = {
        "queries": plan.queries.get(0, len(plan.queries)),
        "passages": plan.passages.get(0, len(plan.passages)),
        "packed": plan.passages.packed(0, len(plan.passages)).parts(),
        "keys": (plan.queries.keys.tolist(), plan.passages.keys.tolist()),
        "rest": (plan.slices, plan.empty, plan.n_queries_read, plan.known_positives.tolist(), plan.echoes.tolist()),
    }
    for planned in plan.sources:
        for field in fields(PlannedSource):
            value = getattr(planned, field.name)
            found[f"{planned.name}.{field.name}"] = value.tolist() if isinstance(value, np.ndarray) else value
    plan.close()
    return found


def planned(paths: list[Path], settings: Settings, n_helpers: int | None) -> dict[str, Any]:
    """What a plan of these files says; read by shares where n_helpers is a number."""
    sources = resolve_sources([str(path) for path in paths], settings)
    readers = [open_source(source, settings) for source in sources]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if n_helpers is None:
            streams = zip(sources, [reader.blocks() for reader in readers], strict=True)
            gathered = gather(streams, folder, lambda: None)
        else:
            gathered = gather_shares(readers, settings, folder, lambda: None, n_helpers)
        found = contents(plan_of(gathered, settings, with_positives=True, with_echoes=True))
    found["files"] = [reader.content() for reader in readers]
    found["bytes"] = [reader.bytes_read() for reader in readers]
    return found


def made_rows(n: int, seed: int) -> list[dict[str, Any]]:
    """Rows that repeat queries, positives and negatives of each other."""
    generator = random.Random(seed)

    def text() -> str:
        return " ".join(generator.choices(WORDS, k=generator.randint(1, 3)))

    return [
        {"query": text(), "positive": text(), "negative": text(), "kind": generator.choice(["a", "b", None])}
        for _ in range(n)
    ]


def lines_of(rows: list[dict[str, Any]], seed: int) -> str:
    """JSON lines with a bad one here and there."""
    generator = random.Random(seed)
    lines = [json.dumps(row, ensure_ascii=generator.random() < 0.5) for row in rows]
    for _ in range(len(rows) // 10):
        lines.insert(generator.randrange(len(lines)), generator.choice(BAD_ROWS))
    return "\n".join(lines)


def write_all(folder: Path, n: int) -> list[Path]:
    """Sources in several containers that share texts; one of labelled pairs, which no share can hold."""
    rows = made_rows(n, 1)
    (folder / "lines.jsonl").write_text(lines_of(rows, 1), encoding="utf-8")
    (folder / "crlf.jsonl").write_bytes(b"\xef\xbb\xbf" + lines_of(made_rows(n, 2), 2).replace("\n", "\r\n").encode())
    pq.write_table(pa.Table.from_pylist(made_rows(n, 3)), folder / "groups.parquet", row_group_size=7)
    for shard in range(2):
        path = folder / f"shards-{shard:05d}-of-00002.jsonl"
        path.write_text(lines_of(made_rows(n, 4 + shard), shard), encoding="utf-8")
    pairs = [{"query": row["query"], "passage": row[c], "label": int(c == "positive")} for row in rows for c in
             ("positive", "negative")]  # fmt: skip
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    miners = [{"query": row["query"], "pos": [row["positive"]], "neg": {"bm25": [row["negative"]], "dense": ["x"]}}
              for row in rows]  # fmt: skip
    (folder / "miners.jsonl").write_text(lines_of(miners, 5), encoding="utf-8")
    shards = sorted(folder.glob("shards*"))
    return [*(folder / f"{name}" for name in ("lines.jsonl", "pairs.jsonl", "crlf.jsonl", "groups.parquet")), *shards,
            folder / "miners.jsonl"]  # fmt: skip


@pytest.mark.parametrize("share_bytes", [1, 100, 1000, 1 << 20])
@pytest.mark.parametrize("settings", [LENIENT, Settings(max_bad_fraction=1.0, by="kind")], ids=["plain", "by"])
def test_shares_of_any_size_give_the_same_plan(tmp_path, monkeypatch, share_bytes, settings):
    paths = write_all(tmp_path, 60)
    monkeypatch.setattr(gathering, "SHARE_BYTES", share_bytes)
    assert planned(paths, settings, 0) == planned(paths, settings, None)


def test_helpers_give_the_same_plan(tmp_path, monkeypatch):
    paths = write_all(tmp_path, 300)
    monkeypatch.setattr(gathering, "SHARE_BYTES", 500)
    assert planned(paths, LENIENT, 2) == planned(paths, LENIENT, None)


def test_a_plan_of_other_files_is_noticed(tmp_path, monkeypatch):
    paths = write_all(tmp_path, 60)
    whole = planned(paths, LENIENT, None)
    text = paths[0].read_text(encoding="utf-8")
    paths[0].write_text("\n" + text, encoding="utf-8")  # every line one further on
    assert planned(paths, LENIENT, 0) != whole
    paths[0].write_text(text, encoding="utf-8")
    assert planned(paths, LENIENT, 0) == whole
    monkeypatch.setattr(gathering, "SHARE_BYTES", 500)
    monkeypatch.setattr(gathering, "Moved", lambda query, passage, line, slices: Moved(query, passage, 0, slices))
    assert planned(paths, LENIENT, 0) != whole  # lines counted from the start of each share


GOOD = st.sampled_from(
    ['{"query": "q", "positive": "p", "negative": "n"}', '{"query": "r", "positive": "p", "negative": "m"}']
)


@deadlines(deadline=None)
@given(
    lines=st.lists(GOOD | st.sampled_from(BAD_ROWS), max_size=12),
    ends=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    share_bytes=st.integers(1, 120),
)
def test_lines_are_cut_at_their_ends(lines, ends, last, share_bytes):
    text = ends.join(['{"query": "q", "positive": "p", "negative": "n"}', *lines]) + (ends if last else "")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "lines.jsonl"
        path.write_bytes(text.encode())
        patch.setattr(gathering, "SHARE_BYTES", share_bytes)
        try:
            whole = planned([path], LENIENT, None)
        except SecidError:  # more odd rows than good ones
            return
        assert planned([path], LENIENT, 0) == whole


def error_of(paths: list[Path], n_helpers: int | None) -> str:
    with pytest.raises(SecidError) as caught:
        planned(paths, Settings(), n_helpers)
    return f"{type(caught.value).__name__}: {caught.value}"


def test_an_error_is_that_of_one_process(tmp_path, monkeypatch):
    """Two damaged files: the first in order is named, also where the second is met first."""
    monkeypatch.setattr(gathering, "SHARE_BYTES", 500)
    paths = [tmp_path / f"{name}.parquet" for name in ("whole", "first", "second")]
    for path in paths:
        pq.write_table(pa.Table.from_pylist(made_rows(200, 1)), path, row_group_size=20, compression="none")
    for path in paths[1:]:
        data = bytearray(path.read_bytes())
        data[len(data) // 3 : len(data) // 2] = b"\xff" * (len(data) // 2 - len(data) // 3)
        path.write_bytes(data)
    alone = error_of(paths, None)
    assert "first.parquet" in alone
    assert alone.startswith(InputError.__name__)
    assert error_of(paths, 0) == error_of(paths, 2) == alone


def test_a_helper_that_dies_is_replaced(tmp_path, monkeypatch):
    paths = write_all(tmp_path, 60)
    monkeypatch.setattr(gathering, "SHARE_BYTES", 500)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert planned(paths, LENIENT, 1) == planned(paths, LENIENT, None)


def test_small_inputs_start_no_process(tmp_path, monkeypatch):
    paths = write_all(tmp_path, 10)
    readers = [open_source(source, LENIENT) for source in resolve_sources([str(path) for path in paths], LENIENT)]
    assert n_helpers_for(readers) == 0
    monkeypatch.setattr("secid.processes.start.HELPER_BYTES", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)
    assert n_helpers_for(readers) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupt_ends_the_helpers(tmp_path):
    """Ctrl-C while they read: no process is left."""
    write_all(tmp_path, 3000)
    script = (
        "import signal, sys, tempfile, pathlib, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # may be inherited as ignored\n"
        "from secid.pool import gathering, gather_shares\n"
        "from secid.pool.gathering import Helpers\n"
        "from secid.read import open_source, resolve_sources\n"
        "from secid.settings import Settings\n"
        "gathering.SHARE_BYTES = 50\n"
        "enter = Helpers.__enter__\n"
        "def told(self):\n"
        "    enter(self); print(*[h.process.pid for h in self._helpers], flush=True); return self\n"
        "Helpers.__enter__ = told\n"
        "readers = [open_source(s, Settings()) for s in resolve_sources(sys.argv[1:], Settings())]\n"
        "with tempfile.TemporaryDirectory() as d:\n"
        "    gather_shares(readers, Settings(), pathlib.Path(d), lambda: time.sleep(0.05), 2)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "lines.jsonl")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    helpers = list(map(int, process.stdout.readline().split()))
    assert len(helpers) == 2
    time.sleep(0.5)
    assert process.poll() is None, "done before it could be interrupted"
    process.send_signal(2)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert [pid for pid in helpers if Path(f"/proc/{pid}").exists()] == []
