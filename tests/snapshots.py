"""Wording, kept in files that are reviewed as diffs: tests/snapshots/NAME holds exactly what a page says.

`pytest --update-snapshots` writes the files anew. A name is written out in the test that uses it, so that a file which
no test names is noticed without running all of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "snapshots"
HOW = "If the new wording is meant, write it with `pytest --update-snapshots` and review the diff."
Snapshot = Callable[[str, str], None]


def compare(path: Path, text: str, update: bool) -> None:
    """Holds text against the file, or writes the file. Raises AssertionError with the differing lines."""
    if update:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
        return
    kept = path.read_bytes().decode() if path.exists() else ""
    lines = difflib.unified_diff(kept.splitlines(), text.splitlines(), path.name, "now", lineterm="", n=1)
    if not path.exists() or kept != text:
        raise AssertionError("\n".join([f"{path.name} does not hold what is said now. {HOW}", *lines]))


def unused(names: Iterable[str], sources: Iterable[str]) -> list[str]:
    """The names that no source text mentions as a string."""
    texts = list(sources)
    return sorted(name for name in names if not any(f'"{name}"' in text for text in texts))


def situations(said: Mapping[str, str | Iterable[str]]) -> str:
    """One text of many: a line for each situation, and what is said there indented below it."""
    lines: list[str] = []
    for situation, text in said.items():
        told = text.splitlines() if isinstance(text, str) else text
        lines += [f"# {situation}", *(f"  {line}".rstrip() for line in told), ""]
    return "\n".join(lines)
