"""Snapshots: a changed text fails, an update writes it, and a file that no test names is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.snapshots import FOLDER, compare, situations, unused


def test_every_snapshot_is_named_by_a_test():
    sources = [path.read_text(encoding="utf-8") for path in FOLDER.parent.rglob("test_*.py")]
    names = [path.name for path in FOLDER.iterdir()]
    assert names
    assert unused(names, sources) == []


def test_a_snapshot_that_no_test_names_is_noticed():
    assert unused(["kept.txt", "left.txt", "eft.txt"], ['snapshot("kept.txt", text)', "left.txt"]) == [
        "eft.txt",
        "left.txt",
    ]


@pytest.mark.parametrize("now", ["said otherwise\n", "said\n ", "said", "said\r\n", ""])
def test_a_changed_text_fails_until_it_is_written(tmp_path: Path, now: str):
    path = tmp_path / "page.txt"
    compare(path, "said\n", update=True)
    compare(path, "said\n", update=False)
    with pytest.raises(AssertionError, match="--update-snapshots"):
        compare(path, now, update=False)
    assert path.read_bytes() == b"said\n"
    compare(path, now, update=True)
    compare(path, now, update=False)


def test_a_missing_snapshot_fails_even_for_no_text(tmp_path: Path):
    with pytest.raises(AssertionError, match=r"page\.txt"):
        compare(tmp_path / "page.txt", "", update=False)


def test_the_failure_shows_the_lines_that_differ(tmp_path: Path):
    compare(tmp_path / "page.txt", "same\nold\n", update=True)
    with pytest.raises(AssertionError, match=r"(?s)-old\n\+new$"):
        compare(tmp_path / "page.txt", "same\nnew\n", update=False)


def test_situations_are_headed_and_indented():
    assert situations({"one": "a\nb\n", "none": ()}) == "# one\n  a\n  b\n\n# none\n"
