"""What every container yields: numbered rows, or the reason why one is none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from secid.records import Fact

Row = dict[str, Any] | list[Any]
"""A JSON object or table row with named columns, or a row whose columns have only positions."""

ROW_LIMIT = 64 << 20
"""Largest row in bytes (64 MiB): four orders of magnitude above a record of ten long passages,
and small enough that a hostile file cannot fill the memory."""

PART_BYTES = 1 << 20
"""Rows handled at once, in bytes: hundreds of usual rows hide the cost of a call, and one row of the limit fits too."""

PART_ROWS = 4096
"""Rows handled at once where they are short: as objects, those of two bytes take a hundred times as much."""

SHOWN_LENGTH = 200
"""Most characters of a text that an error or a defect shows."""

KINDS = {dict: "object", list: "list", tuple: "list", str: "text", bool: "true or false", int: "number",
         float: "number", type(None): "null"}  # fmt: skip
"""JSON types by those of Python."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A row that could not be parsed. `reason` is a key of REASONS. Never subscriptable: extractors rely on it."""

    reason: str
    fact: Fact


class Part(NamedTuple):
    """Rows that follow each other in a file, with the 1-based line or row number of each.

    done: share of the file behind the last row; 0.0 where the bytes read show it.
    """

    numbers: Sequence[int]
    rows: Sequence[Row | Broken]
    done: float = 0.0


Parts = Iterator[Part]


def gathered(rows: Iterator[tuple[int, Row | Broken, int]]) -> Parts:
    """Rows with their sizes in bytes, in parts of PART_BYTES or PART_ROWS."""
    numbers: list[int] = []
    values: list[Row | Broken] = []
    total = 0
    for number, row, size in rows:
        numbers.append(number)
        values.append(row)
        total += size
        if total > PART_BYTES or len(values) == PART_ROWS:
            yield Part(numbers, values)
            numbers, values, total = [], [], 0
    if numbers:
        yield Part(numbers, values)


def wrong_type(value: Any, of: str, expected: str) -> Fact:
    """A value of another type than its place asks for. of: the place."""
    return Fact("type", {"of": of, "got": KINDS.get(type(value), type(value).__name__), "expected": expected})


def too_large(of: str) -> Broken:
    """A line or row that is over the limit."""
    return Broken("too_large", Fact("size", {"of": of, "mib": ROW_LIMIT >> 20}))


def shorten(text: str, length: int = SHOWN_LENGTH) -> str:
    """One line of at most `length` characters."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else line[: length - 1] + "…"


def shown(value: Any, length: int = SHOWN_LENGTH) -> str:
    """A text, or any other value as JSON, in one line of at most `length` characters, however deep it is nested."""
    if isinstance(value, str):
        return shorten(value, length)
    parts = json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value)
    return shorten("".join(islice(parts, length + 1)), length)
