"""Where the negatives of a row lie, as single cells that can be kept, left out or replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from secid.data.clean import Cleaner
from secid.data.passages import ID_KEYS, TEXT_KEYS, TITLE_KEY
from secid.data.rows import Row
from secid.data.schemas.binding import Binding
from secid.errors import SchemaError
from secid.records import Record

Key = str | int
PARALLEL = re.compile(r"(?i)(neg(ative)?s?|hard_neg(ative)?s?)_(scores?|ids?|labels?|doc_?ids?|pids?|logits?|indices)")
"""Columns that say something of each negative and go with it, where they are lists of the same length."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a file that hold negatives.

    keys : one column (a list, an object of lists, or a cell), or several columns of one cell each.
    rest : rows without names whose negatives are all that follows the positive.
    inner: the list inside an object of parallel lists ("doc_id"), else "".
    pairs: cells are [instruction, text].   ids: cells hold ids, not texts.
    later: columns of a row that are like `keys` and were not in the file's first rows.
    """

    keys: tuple[Key, ...]
    rest: bool = False
    inner: str = ""
    pairs: bool = False
    ids: bool = False
    later: Callable[[Row], Sequence[str]] = field(default=lambda row: (), compare=False)

    def of_row(self, row: Row) -> tuple[Key, ...]:
        """The keys of this row: some rows have more than others."""
        return tuple(range(2, len(row))) if self.rest else (*self.keys, *self.later(row))


def layout_of(binding: Binding, path: str) -> Layout:
    """The layout of a file's negatives.

    Raises SchemaError where they cannot be rewritten in place: rows that hold several sources,
    passages that a label makes negative, and titles in columns of their own.
    """
    if binding.splits or binding.labelled or binding.titles:
        what = "several sources in one row" if binding.splits else "labelled passages"
        raise SchemaError(
            f"{binding.schema} holds {what if not binding.titles else 'titles in columns of their own'}, "
            "which secid reads but does not write",
            where=path,
            remedy="turn it into one row a query with a list of negatives first, titles within the texts",
        )
    if binding.columns is None:
        first, _, last = binding.negatives.partition("…")
        if "…" in binding.negatives and not last:
            return Layout((), rest=True, ids=binding.passage_ids)
        return Layout(tuple(range(int(first), int(last or first) + 1)), ids=binding.passage_ids)
    inner = binding.negatives.partition(".")[2] if binding.schema == "simlm" else ""
    return Layout(binding.columns[2:], inner=inner, pairs=binding.pairs, ids=binding.passage_ids, later=binding.later)


def cells_of(row: Row, layout: Layout) -> list[Any]:
    """All cells of a row's negatives, usable or not, in the order that the reader takes them."""
    keys = layout.of_row(row)
    if len(keys) != 1 or layout.rest:
        return [_at(row, key) for key in keys]
    value = _at(row, keys[0])
    if layout.inner:
        return list(value[layout.inner])
    return list(value) if is_list(value, layout) else [value]


def is_list(value: Any, layout: Layout) -> bool:
    """Whether a column's value is a list of negatives, not a lone [instruction, text] pair."""
    lone_pair = layout.pairs and isinstance(value, list) and len(value) == 2 and all(isinstance(x, str) for x in value)
    return isinstance(value, list) and not lone_pair


def with_cells(row: Row, layout: Layout, values: Sequence[Any]) -> Row:
    """The row with these cells as its only negatives; columns of one cell beyond them are null."""
    keys = layout.of_row(row)
    if len(keys) == 1 and not layout.rest:
        old = _at(row, keys[0])
        new: Any = {layout.inner: list(values)} if layout.inner else values[0]
        return _set(row, {keys[0]: list(values) if is_list(old, layout) else new})
    return _set(row, dict(zip(keys, [*values, *[None] * (len(keys) - len(values))], strict=True)))


def usable(row: Row, line: int, record: Record, layout: Layout, cleaner: Cleaner) -> list[int]:
    """Places among the row's cells of the record's negatives, in order.

    Where the reader left some out, it is asked about each cell alone.
    Raises SchemaError where the two do not come to the same number.
    """
    cells = cells_of(row, layout)
    if len(cells) == len(record.negatives):
        return list(range(len(cells)))
    found = [
        place
        for place, cell in enumerate(cells)
        if any(isinstance(item, Record) for item in cleaner.items(line, with_cells(row, layout, [cell])))
    ]
    if len(found) != len(record.negatives):
        raise SchemaError(
            f"{len(found)} negatives found again of {len(record.negatives)} read", where=f"{record.path}:{line}"
        )
    return found


def parallels(row: Row, layout: Layout, n_cells: int) -> list[str]:
    """Names of the columns that hold one value for each negative of this row."""
    if not isinstance(row, dict) or len(layout.keys) != 1:
        return []
    return [
        name
        for name, value in row.items()
        if name not in layout.keys and PARALLEL.fullmatch(name) and isinstance(value, list) and len(value) == n_cells
    ]


def foreign_cell(text: str, like: Any, layout: Layout, where: str) -> Any:
    """A cell of the same make as `like` that holds another text.

    In a passage object the title is empty, since the text has it already, and all else is null.
    Raises SchemaError where the make is not one that holds a text.
    """
    if isinstance(like, str) and not layout.ids:
        return text
    if layout.pairs and isinstance(like, list):
        return [like[0], text]
    key = next((name for name in TEXT_KEYS if isinstance(like, Mapping) and name in like), None)
    if key is None or layout.ids:
        raise SchemaError("this schema has no room for the text of another source's negative", where=where)
    empty = {TITLE_KEY: "", **{name: "" for name in ID_KEYS if isinstance(like.get(name), str)}, key: text}
    return {name: empty.get(name) for name in like}


def _at(row: Row, key: Key) -> Any:
    if isinstance(row, dict):
        return row.get(str(key))
    return row[int(key)] if int(key) < len(row) else None


def _set(row: Row, values: Mapping[Key, Any]) -> Row:
    if isinstance(row, dict):
        return {**row, **{str(key): value for key, value in values.items()}}
    return [values.get(place, cell) for place, cell in enumerate(row)]
