"""Test how progress looks without a terminal."""

from __future__ import annotations

import re
import time

import pytest

from secid.cli import console
from secid.cli.console import ConsoleProgress, amount, duration


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(console, "FIRST_LINE_SECONDS", 0.05)
    monkeypatch.setattr(console, "HEARTBEAT_SECONDS", 0.1)


def lines_after(capsys, n: int) -> list[str]:
    """Return the output once it has n lines. Wait at most ten seconds."""
    said, end = "", time.monotonic() + 10
    while said.count("\n") < n and time.monotonic() < end:
        time.sleep(0.01)
        said += capsys.readouterr().err
    return said.splitlines()


def test_a_stage_that_does_not_advance_shows_that_it_is_alive(quick, capsys):
    with ConsoleProgress(quiet=False) as progress:
        progress.start("load minilm", None, "")
        lines = lines_after(capsys, 1)
        progress.start("controls", 6, "kinds")
        lines += lines_after(capsys, 2)
    assert lines[0] == "load minilm: 0 s so far"
    assert lines[-2:] == ["controls: 0 of 6 kinds, 0 s so far"] * 2


def test_a_heartbeat_says_how_far_a_stage_is_and_how_long_it_takes(quick, capsys):
    with ConsoleProgress(quiet=False) as progress:
        progress.start("lex alphanumeric", 50_000, "texts")
        progress.advance(12_000)
        (line, *_) = lines_after(capsys, 1)
    assert re.fullmatch(r"lex alphanumeric: 12,000 of 50,000 texts, [\d,]+ texts/s, 0 s left, 0 s so far", line)


def test_a_stage_names_what_is_being_done_and_its_total_may_shrink(quick, capsys):
    with ConsoleProgress(quiet=False) as progress:
        progress.start("train", 900, "steps")
        progress.at("[red]a\x1b[0m, fold 1, seed 1", 600)
        (line, *_) = lines_after(capsys, 1)
    assert line.startswith("train: [red]a")
    assert "\x1b" not in line
    assert "fold 1, seed 1, 0 of 600 steps" in line


def test_a_short_stage_is_not_announced(capsys):
    with ConsoleProgress(quiet=False) as progress:
        for _ in range(10):
            progress.start("lex", 10, "texts")
            progress.advance(10)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.2, "4 s"), (99, "99 s"), (125, "2 min"), (5990, "100 min"), (12_600, "3.5 h")]
)
def test_a_duration_is_short(seconds, text):
    assert duration(seconds) == text


def test_amounts_are_counted_in_their_unit():
    assert amount(1240, "texts") == "1,240 texts"
    assert amount(463_202, "bytes") == "0.5 MB"


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
