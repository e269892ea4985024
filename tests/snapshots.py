"""Compare wording with files that are reviewed as diffs: tests/snapshots/NAME holds the exact text of a page.

`pytest --update-snapshots` rewrites the files. Each test spells out the names of its files, so a file that no test uses
is found without running all tests.
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
    """Compare text with the file, or write the file. Raise AssertionError with the differing lines."""
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
        return
    stored = path.read_bytes().decode() if path.exists() else ""
    lines = difflib.unified_diff(stored.splitlines(), text.splitlines(), path.name, "now", lineterm="", n=1)
    if not path.exists() or stored != text:
        raise AssertionError("\n".join([f"{path.name} differs from the text of this version. {HOW}", *lines]))


def unused(names: Iterable[str], sources: Iterable[str]) -> list[str]:
    """Return the names that no source text contains as a string."""
    texts = list(sources)
    return sorted(name for name in names if not any(f'"{name}"' in text for text in texts))


def situations(texts: Mapping[str, str | Iterable[str]]) -> str:
    """Join texts into one: a line for each situation, and its text indented below it."""
    lines: list[str] = []
    for situation, text in texts.items():
        parts = text.splitlines() if isinstance(text, str) else text
        lines += [f"# {situation}", *(f"  {line}".rstrip() for line in parts), ""]
    return "\n".join(lines)


def refusal(call: Callable[[], object], kind: type[SecidError], where: str | Path | None) -> str:
    """Return message and remedy of the error that the call raises. Class and place must be exactly these."""
    with pytest.raises(SecidError) as caught:
        call()
    error = caught.value
    assert (type(error), error.where) == (kind, None if where is None else str(where)), str(error)
    return str(error)
