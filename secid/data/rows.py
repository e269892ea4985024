"""What every container yields: numbered rows, or the reason why one is none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any] | list[Any]
"""A JSON object or table row with named columns, or a row whose columns have only positions."""

ROW_LIMIT = 64 << 20
"""Largest row in bytes (64 MiB): four orders of magnitude above a record of ten long passages,
and small enough that a hostile file cannot fill the memory."""

DETAIL_LENGTH = 200
"""Characters of a defect's detail; `Defect` documents it."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A row that could not be parsed. `reason` is a key of REASONS. Never subscriptable: extractors rely on it."""

    reason: str
    detail: str


Rows = Iterator[tuple[int, Row | Broken]]
"""(1-based line or row number, row)."""


def shorten(text: str, length: int = DETAIL_LENGTH) -> str:
    """One line of at most `length` characters."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else line[: length - 1] + "…"
