"""Test where the verdict line is printed: last on stderr, only for scripts, and only if there is a verdict."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty

import pytest

from secid.cli.app import main
from tests.cli.conftest import FIXTURES, Invoke, invoke_for_a_reader_that_has_gone, invoke_with

POISONED, SOUND = FIXTURES / "sources" / "poisoned.jsonl", FIXTURES / "sources" / "bm25.jsonl.gz"
COLLECTION = FIXTURES / "collection"


FLAGS = ((), ("--json",), ("--quiet",))


@pytest.mark.parametrize(
    ("arguments", "word", "code", "flags"),
    [
        *((("check", POISONED, "--fail-on", "repeat"), "fail", 1, flags) for flags in FLAGS),
        (("check", SOUND, "--fail-on", "repeat"), "no_defects", 0, ()),
        *((("score", POISONED, "--run", "run", "--encoder"), "repair", 0, flags) for flags in FLAGS),
        (("audit", POISONED, "--collection", COLLECTION, "--encoder"), "relevant", 0, ()),
        (("probe", SOUND, POISONED, "--encoder"), "abstained", 0, ()),
    ],
)
def test_it_is_last_on_stderr_unless_quiet(invoke: Invoke, tiny, arguments, word, code, flags):
    more = (tiny, *flags) if arguments[-1] == "--encoder" else flags
    outcome = invoke(*arguments, *more)
    assert outcome.code == code
    assert "VERDICT" not in outcome.out
    if flags == ("--quiet",):
        assert outcome.err == ""
    else:
        assert outcome.err.count("VERDICT: ") == 1
        assert outcome.err.splitlines()[-1].startswith(f"VERDICT: {word} command={arguments[0]} ")


def test_an_error_has_none(invoke: Invoke, tiny, source):
    for arguments in (("check", "missing.jsonl"), ("score", source, "--encoder", tiny, "--run", "/proc/no/run")):
        outcome = invoke(*arguments)
        assert (outcome.code, "VERDICT" in outcome.err) == (2, False)
    outcome = invoke("check", "missing\nVERDICT: no_defects")
    assert (outcome.code, "VERDICT" in outcome.err) == (2, True)
    assert not [line for line in outcome.err.splitlines() if line.startswith("VERDICT")]


def test_a_terminal_shows_none():
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        assert invoke_with(io.StringIO(), terminal, "check", SOUND) == 0
    shown = b""
    with contextlib.suppress(OSError):  # which is how a terminal ends
        while part := os.read(ours, 1 << 16):
            shown += part
    assert b"bm25" in shown
    assert b"VERDICT" not in shown


def test_forced_colours_put_nothing_before_it(invoke: Invoke, monkeypatch):
    """FORCE_COLOR, which CI services set, does not make the log a terminal: no bar is drawn."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert invoke("check", SOUND).err.splitlines()[-1].startswith("VERDICT: no_defects ")


def test_a_reader_that_stops_early_misses_neither_the_run_folder_nor_the_verdict(tiny):
    score = ("score", SOUND, "--encoder", tiny, "--set", "controls=none", "--run", "run")
    code, err = invoke_for_a_reader_that_has_gone(*score)
    *_, folder, verdict = err.splitlines()
    assert (code, folder) == (0, "run folder: run")
    assert verdict.startswith("VERDICT: no_defects command=score ")


def test_a_closed_stderr_does_not_change_the_document():
    """Python sets sys.stderr to None if the program starts without one."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(None):
        assert main(["check", str(SOUND), "--json"]) == 0
    assert json.loads(out.getvalue())["sources"]
