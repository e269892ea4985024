"""Wording, kept in files that are reviewed as diffs: tests/snapshots/NAME holds exactly what a page says.

`pytest --update-snapshots` writes the files anew. A name is written out in the test that uses it, so that a file which
no test names is noticed without running all of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from secid.errors import SecidError

FOLDER = Path(__file__).parent / "snapshots"
HOW = "If the new wording is meant, write it with `pytest --update-snapshots` and review the diff."
Snapshot = Callable[[str, str], None]


def compare(path: Path, text: str, update: bool) -> None:
    """Holds text against the file, or writes the file. Raises AssertionError with the differing lines."""
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
        return
    stored = path.read_bytes().decode() if path.exists() else ""
    lines = difflib.unified_diff(stored.splitlines(), text.splitlines(), path.name, "now", lineterm="", n=1)
    if not path.exists() or stored != text:
        raise AssertionError("\n".join([f"{path.name} differs from the text of this version. {HOW}", *lines]))


def unused(names: Iterable[str], sources: Iterable[str]) -> list[str]:
    """The names that no source text mentions as a string."""
    texts = list(sources)
    return sorted(name for name in names if not any(f'"{name}"' in text for text in texts))


def situations(texts: Mapping[str, str | Iterable[str]]) -> str:
    """One text of many: a line for each situation, and its text indented below it."""
    lines: list[str] = []
    for situation, text in texts.items():
        parts = text.splitlines() if isinstance(text, str) else text
        lines += [f"# {situation}", *(f"  {line}".rstrip() for line in parts), ""]
    return "\n".join(lines)


def refusal(call: Callable[[], object], kind: type[SecidError], where: str | Path | None) -> str:
    """The message and remedy of the error that the call raises, which must be of exactly this class and place."""
    with pytest.raises(SecidError) as caught:
        call()
    error = caught.value
    assert (type(error), error.where) == (kind, None if where is None else str(where)), str(error)
    return str(error)
