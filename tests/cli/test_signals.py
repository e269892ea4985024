"""Signals in the middle of each command, a cache that cannot be written, and one row of very many negatives."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
import signal
import sys
from pathlib import Path
from unittest import mock

import pytest

import secid
from tests.cli.conftest import FIXTURES, Invoke, invoke_in_process, listing, write_rows
from tests.cli.gate.conftest import items, save_vectors
from tests.fake_encoder import HashEncoder
from tests.tiny_bert import save_tiny_bert

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGHUP is a POSIX signal")

SIGNALS = {"INT": 130, "TERM": 143, "HUP": 129}
COMMANDS = {
    "check": "check a.jsonl b.jsonl -o out.html",
    "mine": f"mine lex=bm25 any=random --collection {FIXTURES / 'collection'} -k 4 -o out",
    "probe": "probe a.jsonl b.jsonl --encoder ../bert --max-length 16 --steps 1 --folds 2 --seeds 2 --batch 8 "
    "--rate 1e-3",
    "gate": "gate a.jsonl --against ../base.json --encoder ../v.npz -o out.html",
    "shard": "score a.jsonl b.jsonl --encoder ../v.npz --shard 0/2 --state-dir out",
}
OF = {"check": SIGNALS, "probe": ("TERM",)}
"""Signals that a command gets; the others get INT and TERM. A process gets Ctrl-C in test_probe.py."""
HALFWAY = {
    "check": "secid.scoring.check.overlaps",
    "mine": "secid.tools.mining.find.write_rows",
    "probe": "secid.tools.probing.learner.Learner._gradients",
    "gate": "secid.scoring.stages.inspect_sets",
    "shard": "secid.scoring.stages.inspect_sets",
}
"""A function of each command that is called when it has done most of its work."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds two encoders, and a baseline of a source."""
    folder = tmp_path_factory.mktemp("signals")
    save_vectors(folder / "v.npz", [*items(120), *items(120, shared=(1, 3))])
    save_tiny_bert(folder / "bert", width=16, layers=1)
    source = write_rows(folder / "a.jsonl", items(120))
    arguments = ("score", source, "--encoder", folder / "v.npz", "--run", folder / "run", "--quiet")
    assert invoke_in_process(*arguments).code == 0
    assert invoke_in_process("baseline", folder / "run", "-o", folder / "base.json").code == 0
    return folder


@pytest.fixture
def work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with two sources and nothing else."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    write_rows(work / "a.jsonl", items(120))
    write_rows(work / "b.jsonl", items(120, shared=(1, 3)))
    return work


@pytest.mark.parametrize("command", COMMANDS)
def test_a_signal_leaves_nothing_half_written(command: str, work: Path, invoke: Invoke) -> None:
    arguments = COMMANDS[command].split()
    for name in OF.get(command, ("INT", "TERM")):
        number, calls = getattr(signal, f"SIG{name}"), []

        def ended(*_: object, number: int = number, calls: list[int] = calls) -> None:
            calls.append(number)
            signal.raise_signal(number)

        before = signal.signal(number, signal.default_int_handler if name == "INT" else signal.SIG_DFL)
        try:
            with mock.patch(HALFWAY[command], ended):
                assert _code(invoke, arguments) == SIGNALS[name]
        finally:
            signal.signal(number, before)
        assert calls == [number]
        assert [path for path in listing(work) if path not in ("out", "a.jsonl", "b.jsonl")] == []
        left = listing(work / "out") if (work / "out").exists() else []
        assert [path for path in left if not path.startswith("counts-")] == []  # whole: the shard goes on from there
    assert _code(invoke, arguments) in (0, 1)


def _code(invoke: Invoke, arguments: list[str]) -> object:
    try:
        return invoke(*arguments).code
    except SystemExit as error:  # the process would end here
        return error.code


def test_a_program_that_outlives_its_terminal_continues(work: Path, invoke: Invoke) -> None:
    """The program is started as by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with mock.patch(HALFWAY["check"], side_effect=lambda _: signal.raise_signal(signal.SIGHUP) or ()):
            assert invoke("check", "a.jsonl").code == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(work: Path, folder: Path, invoke: Invoke) -> None:
    """Permissions do not stop root from writing, so a read-only disk is imitated."""
    write_rows(work / "a.jsonl", items(30))
    score = (
        "score",
        "a.jsonl",
        "--encoder",
        folder / "bert",
        "--json",
        "--set",
        "controls=none",
        "--set",
        f"cache_dir={work / 'cache'}",
    )
    first = json.loads(invoke(*score).out)
    refused = OSError(errno.EROFS, "Read-only file system")
    for is_cached in (True, False):  # its rows are read; where there are none, texts are encoded
        if not is_cached:
            shutil.rmtree(work / "cache")
        with contextlib.ExitStack() as stack:
            for call in ("secid.encode.cache.SegmentWriter", "secid.encode.segment.os.utime"):
                stack.enter_context(mock.patch(call, side_effect=refused))
            outcome = invoke(*score)
        assert outcome.code == 0, outcome.err
        second = json.loads(outcome.out)
        assert (second["timing"]["encode"]["n_encoded"] == 0) == is_cached
        assert second["sources"][0]["score"]["nats"] == pytest.approx(first["sources"][0]["score"]["nats"], rel=1e-5)
        assert ("Read-only" in outcome.err) == (not is_cached)


def test_a_row_of_more_negatives_than_a_block(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More triplets than a window and more bytes than a chunk of the file."""
    monkeypatch.setattr("secid.triplets.embedding.COPY_WINDOW", 16)
    monkeypatch.setattr("secid.read.stream.CHUNK_BYTES", 1024)
    negatives = [f"negative {n}, a passage of about as many letters as a line" for n in range(50)]
    row = {"query": "the query", "pos": ["the positive"], "neg": negatives}
    write_rows(work / "many.jsonl", [row])
    checked = secid.check(["many.jsonl"]).texts["many"]
    (scored,) = secid.score(["many.jsonl"], HashEncoder(), controls="none").sources
    assert (checked.n_negatives, scored.n_triplets, scored.n_queries) == (50, 50, 1)
    assert 0 < scored.score.nats <= scored.score.trace
