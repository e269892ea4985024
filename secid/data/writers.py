"""Writers of rewritten rows, one a container."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

from secid.data.cells import Key, Layout, is_list
from secid.data.containers import Container
from secid.data.jsonedit import Member, Span, array_text, elements, members, removals, replaced
from secid.data.jsonrows import BOM
from secid.data.rows import Row
from secid.errors import OutputError, SchemaError

AnyKey = TypeVar("AnyKey", bound=Key)
SUFFIXES = {
    "jsonl": (".jsonl", ".ndjson"),
    "json_array": (".json",),
    "table": (".csv", ".tsv", ".txt"),
    "parquet": (".parquet",),
}
PARQUET_ROWS = 1024
"""Rows put together into one row group's batch: the readers' own batch size."""


class Chosen(NamedTuple):
    """One negative of the copy. place: of the row's own cell it is; None for another source's."""

    place: int | None
    value: Any


class Writer(Protocol):
    """Takes the rows of the copy in order."""

    def add(self, row: Row, raw: bytes | None, chosen: Sequence[Chosen], parallel: Sequence[str]) -> None:
        """One row. raw: its line in the original; parallel: columns that hold one value a negative."""

    def end(self) -> None:
        """After the last row."""


def writer_for(
    container: Container, layout: Layout, paths: Sequence[str], out: Path, file: BinaryIO | None, width: int | None
) -> Writer:
    """The writer for copies of this container. file: where to; None only to ask whether there is one.

    Raises SchemaError for a container that is read but not written, OutputError where the name says another.
    """
    known = SUFFIXES.get(container.kind)
    if known is None or (container.kind == "parquet" and container.compression):
        raise SchemaError(f"secid reads this container but does not write it: {container}", where=paths[0])
    names = [out.name.removesuffix(packing) for packing in (".gz", ".zst") if out.name.endswith(packing)] or [out.name]
    if not names[0].endswith(known) or (container.kind == "parquet" and names[0] != out.name):
        raise OutputError(
            f"the original is {container}, so the copy's name must end in {' or '.join(known)}", where=str(out)
        )
    to = file or io.BytesIO()
    if container.kind == "parquet":
        return ParquetWriter(paths, layout, to, width)
    if container.kind == "table":
        return TableWriter(container, layout, paths, to, width)
    return JsonWriter(container.kind == "json_array", layout, to, width)


class JsonWriter:
    """JSON lines, edited in their text; or one array, whose elements are written anew."""

    def __init__(self, array: bool, layout: Layout, file: BinaryIO, width: int | None) -> None:
        self._array, self._layout, self._file, self._width = array, layout, file, width
        self._n_rows = 0

    def add(self, row: Row, raw: bytes | None, chosen: Sequence[Chosen], parallel: Sequence[str]) -> None:
        line = json.dumps(row, ensure_ascii=False) if raw is None else raw.removeprefix(BOM).decode().rstrip("\r\n")
        edited = json_text(line, row, self._layout, chosen, parallel, self._width).encode()
        if self._array:
            self._file.write((b",\n" if self._n_rows else b"[\n") + edited)
        else:
            ending = b"\r\n" if raw is not None and raw.endswith(b"\r\n") else b"\n"
            self._file.write(edited + ending)
        self._n_rows += 1

    def end(self) -> None:
        if self._array:
            self._file.write(b"\n]\n" if self._n_rows else b"[]\n")


def json_text(
    text: str, row: Row, layout: Layout, chosen: Sequence[Chosen], parallel: Sequence[str], width: int | None
) -> str:
    """The text of a JSON row with other negatives; all else as it stands."""
    if isinstance(row, list):
        return _positional_text(text, layout, row, chosen, width)
    found = members(text)
    spans = {member.key: member.value for member in found}
    keys = layout.of_row(row)
    if len(keys) > 1:
        return replaced(text, _columns_changed(text, found, [str(key) for key in keys], chosen, width))
    key = str(keys[0])
    if layout.inner:
        return replaced(text, [(spans[key], json.dumps(_lists_cut(row[key], layout, chosen), ensure_ascii=False))])
    if not is_list(row[key], layout):
        return replaced(text, [(spans[key], _cell_text(text, [spans[key]], chosen[0]))])
    changes = []
    places = [cell.place for cell in chosen]
    for name in (key, *parallel):
        cells = elements(text, spans[name].start)
        if places == list(range(len(cells))):
            continue
        items = [
            text[slice(*cells[cell.place])] if cell.place is not None else json.dumps(cell.value, ensure_ascii=False)
            for cell in (chosen if name == key else [Chosen(cell.place, None) for cell in chosen])
        ]
        changes.append((spans[name], array_text(text, cells, items)))
    return replaced(text, changes)


def _columns_changed(
    text: str, found: Sequence[Member], keys: Sequence[str], chosen: Sequence[Chosen], width: int | None
) -> list[tuple[Span, str]]:
    """The changes by which a row holds the columns kept and no other.

    A row of JSON may lack any of its columns: a kept one that it lacks takes the place of one that goes.
    """
    own = {member.key: member for member in found if member.key in keys}
    cells = [own[key].value if key in own else None for key in keys]
    kept = keys_kept(keys, width)
    free = [key for key in own if key not in kept]
    changes, added = [], ""
    for key, cell in zip(kept, repeated(chosen, len(kept)), strict=True):
        value = _cell_text(text, cells, cell)
        member = f"{json.dumps(key, ensure_ascii=False)}: {value}"
        if key in own:
            changes.append((own[key].value, value))
        elif free:
            instead = own[free.pop(0)]
            changes.append((Span(instead.start, instead.value.end), member))
        else:
            added += f", {member}"
    end = max(member.value.end for member in own.values())
    return [*changes, (Span(end, end), added), *((span, "") for span in removals(found, free))]


def _positional_text(text: str, layout: Layout, row: list[Any], chosen: Sequence[Chosen], width: int | None) -> str:
    spans = elements(text)
    keys = layout.of_row(row)
    if len(keys) == 1 and not layout.rest and isinstance(row[int(keys[0])], list):
        cells = elements(text, spans[int(keys[0])].start)
        items = [_cell_text(text, cells, cell) for cell in chosen]
        return replaced(text, [(spans[int(keys[0])], array_text(text, cells, items))])
    own = [spans[int(key)] for key in keys]
    n_kept = len(chosen) if layout.rest else len(keys_kept(keys, width))
    items = [_cell_text(text, own, cell) for cell in repeated(chosen, n_kept)]
    others = [text[slice(*span)] for place, span in enumerate(spans) if place not in keys]
    return array_text(text, spans, [*others[:2], *items, *others[2:]])


def _cell_text(text: str, spans: Sequence[Span | None], cell: Chosen) -> str:
    span = None if cell.place is None else spans[cell.place]
    return json.dumps(cell.value, ensure_ascii=False) if span is None else text[slice(*span)]


def keys_kept(keys: Sequence[AnyKey], width: int | None) -> Sequence[AnyKey]:
    """The first columns of negatives that the copy keeps."""
    return keys if width is None else keys[:width]


def repeated(chosen: Sequence[Chosen], n: int) -> list[Chosen]:
    """Exactly n of the chosen: the first ones, or all of them over again from the first."""
    return [chosen[place % len(chosen)] for place in range(n)]


def n_filled(row: Row, layout: Layout, n_chosen: int, width: int | None) -> int:
    """How many cells of a row repeat a negative, where each has a column of its own."""
    keys = layout.of_row(row)
    if len(keys) < 2 or layout.rest:
        return 0
    return max(0, len(keys_kept(keys, width)) - n_chosen)


def _lists_cut(value: dict[str, Any], layout: Layout, chosen: Sequence[Chosen]) -> dict[str, Any]:
    """An object of parallel lists with the chosen places of each list as long as that of the negatives."""
    n = len(value[layout.inner])
    return {
        name: [cell[c.place] for c in chosen if c.place is not None]
        if isinstance(cell, list) and len(cell) == n
        else cell
        for name, cell in value.items()
    }


def column_values(
    row: dict[str, Any], layout: Layout, chosen: Sequence[Chosen], parallel: Sequence[str], width: int | None
) -> dict[str, Any]:
    """New values of the columns that change, by name."""
    if len(layout.keys) > 1:
        kept = keys_kept(layout.keys, width)
        return {str(key): cell.value for key, cell in zip(kept, repeated(chosen, len(kept)), strict=True)}
    key = str(layout.keys[0])
    if layout.inner:
        return {key: _lists_cut(row[key], layout, chosen)}
    if not is_list(row[key], layout):
        return {key: chosen[0].value}
    values: dict[str, Any] = {key: [cell.value for cell in chosen]}
    for name in parallel:
        values[name] = [None if cell.place is None else row[name][cell.place] for cell in chosen]
    return values


class TableWriter:
    """CSV and TSV. Fields keep their text; where fields are quoted, they are quoted as csv does."""

    def __init__(
        self, container: Container, layout: Layout, paths: Sequence[str], file: BinaryIO, width: int | None
    ) -> None:
        dialect = container.dialect
        if dialect is None:
            raise SchemaError("a table without a dialect", where=paths[0])
        self._layout, self._width = layout, width
        self._text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        self._writer = csv.writer(
            self._text,
            delimiter=dialect.delimiter,
            quoting=csv.QUOTE_MINIMAL if dialect.quoted else csv.QUOTE_NONE,
            quotechar='"' if dialect.quoted else None,
            lineterminator="\n",
        )
        gone = set(layout.keys[len(keys_kept(layout.keys, width)) :])
        self._columns = [name for name in dialect.header if name not in gone]
        if dialect.header:
            self._writer.writerow(self._columns)

    def add(self, row: Row, raw: bytes | None, chosen: Sequence[Chosen], parallel: Sequence[str]) -> None:
        if isinstance(row, dict):
            values = {**row, **column_values(row, self._layout, chosen, (), self._width)}
            cells = [values[name] for name in self._columns]
        else:
            keys = self._layout.of_row(row)
            n_kept = len(chosen) if self._layout.rest else len(keys_kept(keys, self._width))
            others = [cell for place, cell in enumerate(row) if place not in keys]
            cells = [*others[:2], *(cell.value for cell in repeated(chosen, n_kept)), *others[2:]]
        try:
            self._writer.writerow(cells)
        except csv.Error as error:
            raise OutputError(f"a text has a tab or line end, which this table cannot hold ({error})") from error

    def end(self) -> None:
        self._text.detach()


class ParquetWriter:
    """Parquet with the original's schema; columns that no row needs any more are gone from it."""

    def __init__(self, paths: Sequence[str], layout: Layout, file: BinaryIO, width: int | None) -> None:
        # pyarrow is imported only where a file asks for it: it costs 0.1 s.
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._layout, self._width = layout, width
        schema = pq.read_schema(paths[0])
        gone = {str(key) for key in layout.keys[len(keys_kept(layout.keys, width)) :]}
        if gone:
            # What `datasets` notes of the columns would no longer be true.
            metadata = {key: value for key, value in (schema.metadata or {}).items() if key != b"huggingface"}
            schema = pa.schema([field for field in schema if field.name not in gone], metadata)
        self._schema = schema
        self._rows: list[dict[str, Any]] = []
        self._batch = pa.RecordBatch
        self._file = pq.ParquetWriter(file, schema)

    def add(self, row: Row, raw: bytes | None, chosen: Sequence[Chosen], parallel: Sequence[str]) -> None:
        if isinstance(row, dict):
            self._rows.append({**row, **column_values(row, self._layout, chosen, parallel, self._width)})
        if len(self._rows) >= PARQUET_ROWS:
            self._flush()

    def end(self) -> None:
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        if self._rows:
            self._file.write_batch(self._batch.from_pylist(self._rows, schema=self._schema))
            self._rows.clear()
