"""The first rows of a file, as detection sees them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secid.read.rows import Row

Key = str | int

ID = re.compile(r"(?=[^ ]*\d)[A-Za-z0-9_.:/#@+-]{1,64}")
"""A text that looks like an id, one short ASCII word with a digit: it needs a collection, or `--format`."""

ASCII_WORD = re.compile(r"[!-~]{1,256}")
MARK = re.compile(r"[_:]")
"""What half of a column's ASCII words have where they are ids: FEVER's (`Fox_Broadcasting`), DBpedia's."""

WORD = re.compile(r"\S{2,64}")

ID_FRACTION = 0.9
"""Share of such values that makes a column one of ids: a few odd cells must not turn all the others into texts."""

TAG_LENGTH = 24
"""Characters of the longest word that names a class or topic."""

QUERIES_A_TAG = 4
"""Queries that share a tag, on average: passages so short are seldom shared by two."""

LISTS = frozenset({"texts", "ids", "structs", "lists", "numbers", "empty"})
SCALARS = frozenset({"text", "id"})


@dataclass(frozen=True, slots=True)
class Head:
    """Good rows from a file's start, at least one, all dicts or all lists.

    kinds: each column's commonest kind of value (`kind_of`), in order of first appearance.
    """

    rows: tuple[Row, ...]
    kinds: Mapping[Key, str]

    @property
    def named(self) -> bool:
        """Whether columns have names; else they are positions, counted from 0."""
        return isinstance(self.rows[0], dict)

    def column(self, key: Key) -> list[Any]:
        """Values of a column, without nulls and absent ones."""
        return [value for row in self.rows if (value := cell(row, key)) is not None]

    def typical(self, key: Key) -> list[Any]:
        """Values of a column that are of its commonest kind."""
        return [value for value in self.column(key) if kind_of(value) == self.kinds[key]]

    def is_tag(self, query: Key, key: Key) -> bool:
        """Whether a column holds a few short words for many queries: topics or classes ("entailment"), no passages."""
        pairs = {(cell(row, query), value) for row in self.rows if isinstance(value := cell(row, key), str)
                 if isinstance(cell(row, query), str | int)}  # fmt: skip
        values = {value for _, value in pairs}
        return 0 < len(values) * QUERIES_A_TAG <= len(pairs) and all(len(value) <= TAG_LENGTH for value in values)


def cell(row: Row, key: Key) -> Any:
    """A row's value under a name or position; None where it is absent."""
    if isinstance(row, dict):
        return row.get(key) if isinstance(key, str) else None
    return row[key] if isinstance(key, int) and key < len(row) else None


def make_head(rows: Sequence[Row]) -> Head:
    """Head of the rows that have the commoner form (named or positional). `rows` holds at least one."""
    named = [row for row in rows if isinstance(row, dict)]
    alike: Sequence[Row] = named if 2 * len(named) >= len(rows) else [row for row in rows if isinstance(row, list)]
    counts: dict[Key, Counter[str]] = {}
    for row in alike:
        for key, value in row.items() if isinstance(row, dict) else enumerate(row):
            counts.setdefault(key, Counter())[kind_of(value)] += 1
    return Head(tuple(alike), {key: _commonest(kinds) for key, kinds in counts.items()})


def _commonest(kinds: Counter[str]) -> str:
    filled = [(n, kind) for kind, n in kinds.items() if kind not in ("null", "empty")]
    if filled:
        return max(filled, key=lambda pair: pair[0])[1]
    return "empty" if "empty" in kinds else "null"


def kind_of(value: Any) -> str:
    """text, id (an integer), number, flag, struct, bytes, null; texts, ids, structs, lists, numbers, empty (lists)."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        inner = next((item for item in value if item is not None), None)
        if isinstance(inner, list):  # not by recursion: a bad row may be nested without end
            return "lists"
        return "empty" if inner is None else LIST_KINDS.get(kind_of(inner), "lists")
    return SCALAR_KINDS.get(type(value), "other")


SCALAR_KINDS = {bool: "flag", int: "id", float: "number", dict: "struct", bytes: "bytes", type(None): "null"}
LIST_KINDS = {"text": "texts", "id": "ids", "struct": "structs", "number": "numbers", "flag": "ids"}


def look_like_words(values: Sequence[Any]) -> bool:
    """Whether ID_FRACTION of at least one value are single short words, as all ids are."""
    n_words = sum(bool(WORD.fullmatch(str(value))) for value in values)
    return bool(values) and n_words >= ID_FRACTION * len(values)


def look_like_names(values: Sequence[Any]) -> bool:
    """Whether ID_FRACTION of at least one value are single ASCII words, and half of these have `_` or `:`."""
    words = [value for value in values if isinstance(value, str) and ASCII_WORD.fullmatch(value)]
    n_marked = sum(bool(MARK.search(word)) for word in words)
    return bool(words) and len(words) >= ID_FRACTION * len(values) and 2 * n_marked >= len(words)


def look_like_ids(values: Sequence[Any]) -> bool:
    """Whether ID_FRACTION of at least one value are whole numbers or id-like words."""
    n_ids = sum(bool(ID.fullmatch(value)) if isinstance(value, str) else type(value) is int for value in values)
    return bool(values) and n_ids >= ID_FRACTION * len(values)
