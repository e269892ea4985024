"""Test what the progress bars of downloads show on a terminal, and that they show nothing elsewhere."""

from __future__ import annotations

import io
import re
import sys

import pytest

from secid.progress import download_bars


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_bar_shows_names_without_escapes_and_only_on_a_terminal(monkeypatch, is_terminal):
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stderr", shown)
    with download_bars()(total=2, desc="\x1b[2Jone\n\u202e.jsonl") as bar:
        bar.update()
        bar.set_description("\x9b2Jtwo.jsonl")
        bar.set_postfix_str("\x1b]0;three")
    for name in ("one", "two", "three"):
        assert (name in shown.getvalue()) is is_terminal
    assert all(line.isprintable() for line in re.split(r"\r|\n$", shown.getvalue()))
