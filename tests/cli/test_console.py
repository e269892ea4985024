"""How progress looks where there is no terminal."""

from __future__ import annotations

import time

import pytest

from secid.cli import console
from secid.cli.console import ConsoleProgress


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(console, "HEARTBEAT_SECONDS", 0.05)


def lines_after(capsys, n: int) -> list[str]:
    """What was said, once there are n lines; waits ten seconds for them at most."""
    said, end = "", time.monotonic() + 10
    while said.count("\n") < n and time.monotonic() < end:
        time.sleep(0.01)
        said += capsys.readouterr().err
    return said.splitlines()


def test_a_stage_that_does_not_advance_is_told_to_be_alive(quick, capsys):
    with ConsoleProgress(quiet=False) as progress:
        progress.start("controls", 6, "kinds")
        lines = lines_after(capsys, 2)
    assert lines[:2] == ["controls: 0 s", "controls: 0 s"]


def test_a_heartbeat_says_how_far_a_stage_is(quick, capsys):
    with ConsoleProgress(quiet=False) as progress:
        progress.start("lex alphanumeric", 50_000, "texts")
        progress.advance(12_000)
        (line, *_) = lines_after(capsys, 1)
    assert line.startswith("lex alphanumeric: 12.0k of 50.0k texts, ")
    assert line.endswith(" texts/s, 0 s")


def test_nothing_is_said_when_quiet_before_a_stage_or_after_the_end(quick, capsys):
    with ConsoleProgress(quiet=True) as progress:
        progress.start("lex", 10, "texts")
        time.sleep(0.2)
    with ConsoleProgress(quiet=False):
        time.sleep(0.2)
    with ConsoleProgress(quiet=False) as progress:
        progress.start("lex", 10, "texts")
    time.sleep(0.2)
    assert capsys.readouterr().err == ""
