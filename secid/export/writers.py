"""Writers of rewritten rows, one a container."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from secid.errors import OutputError, SchemaError
from secid.export.cells import Chosen, Edit, Layout, columns_gone, value_at
from secid.export.jsonedit import Span, array_text, elements, members, removals, replaced, values
from secid.read.containers import Container
from secid.read.jsonrows import BOM
from secid.read.rows import Row

SUFFIXES = {
    "jsonl": (".jsonl", ".ndjson"),
    "json_array": (".json",),
    "table": (".csv", ".tsv", ".txt"),
    "parquet": (".parquet",),
}
PARQUET_ROWS = 1024
"""Rows put together into one row group's batch: the readers' own batch size."""


class Writer(Protocol):
    """Takes the rows of the copy in order."""

    def add(self, row: Row, raw: bytes | None, edit: Edit) -> None:
        """One row, edited. raw: its line in the original."""

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
        raise SchemaError(
            f"secid reads this container but does not write it: {container}",
            where=paths[0],
            remedy="save the rows as JSON lines or Parquet, and score that",
        )
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
    return JsonWriter(container.kind == "json_array", to)


class JsonWriter:
    """JSON lines, edited in their text; or one array, whose elements are written anew."""

    def __init__(self, array: bool, file: BinaryIO) -> None:
        self._array, self._file = array, file
        self._n_rows = 0

    def add(self, row: Row, raw: bytes | None, edit: Edit) -> None:
        line = json.dumps(row, ensure_ascii=False) if raw is None else raw.removeprefix(BOM).decode().rstrip("\r\n")
        edited = json_text(line, row, edit).encode()
        if self._array:
            self._file.write((b",\n" if self._n_rows else b"[\n") + edited)
        else:
            ending = b"\r\n" if raw is not None and raw.endswith(b"\r\n") else b"\n"
            self._file.write(edited + ending)
        self._n_rows += 1

    def end(self) -> None:
        if self._array:
            self._file.write(b"\n]\n" if self._n_rows else b"[]\n")


def json_text(text: str, row: Row, edit: Edit) -> str:
    """The text of a JSON row, edited; all else as it stands."""
    if isinstance(row, list) and edit.columns:
        return _positional_text(text, edit)
    changes = []
    spans = values(text) if edit.lists else {}
    for path, chosen in edit.lists:
        span = spans[path[0]]
        for key in path[1:]:
            span = values(text, span.start)[key]
        if text[span.start] != "[":
            changes.append((span, "null"))
            continue
        cells = elements(text, span.start)
        if [cell.place for cell in chosen] != list(range(len(cells))):
            changes.append((span, array_text(text, cells, [_cell_text(text, cells, cell) for cell in chosen])))
    if edit.columns:
        changes += _columns_changed(text, edit)
    return replaced(text, changes)


def _columns_changed(text: str, edit: Edit) -> list[tuple[Span, str]]:
    """The changes by which a row holds the columns kept and no other.

    A row of JSON may lack any of its columns: a kept one that it lacks takes the place of one that goes.
    """
    found = members(text)
    spans = {member.key: member for member in found}
    new: dict[str, str] = {}
    gone: list[str] = []
    for family, chosen in edit.columns:
        keys = [None if key is None else str(key) for key in family]
        cells = [spans[key].value if key in spans else None for key in keys]
        for key, cell in zip(keys, chosen, strict=False):
            value = _cell_text(text, cells, cell)
            if key is not None and (key in spans or value != "null"):
                new[key] = value
        gone += [key for key in keys[len(chosen) :] if key in spans]
    end = max(spans[key].value.end for key in (*new, *gone) if key in spans)
    changes, added = [], ""
    for key, value in new.items():
        member = f"{json.dumps(key, ensure_ascii=False)}: {value}"
        if key in spans:
            changes.append((spans[key].value, value))
        elif gone:
            instead = spans[gone.pop(0)]
            changes.append((Span(instead.start, instead.value.end), member))
        else:
            added += f", {member}"
    return [*changes, (Span(end, end), added), *((span, "") for span in removals(found, gone))]


def _positional_text(text: str, edit: Edit) -> str:
    spans = elements(text)
    ((keys, chosen),) = edit.columns
    own = [spans[key] for key in keys if isinstance(key, int)]
    items = [_cell_text(text, own, cell) for cell in chosen]
    others = [text[slice(*span)] for place, span in enumerate(spans) if place not in keys]
    return array_text(text, spans, [*others[:2], *items, *others[2:]])


def _cell_text(text: str, spans: Sequence[Span | None], cell: Chosen) -> str:
    """The text of a cell as it stands in the row; of a column that the row lacks null."""
    if cell.place is None:
        return json.dumps(cell.value, ensure_ascii=False)
    span = spans[cell.place]
    return "null" if span is None else text[slice(*span)]


def edited(row: Row, edit: Edit) -> Row:
    """The row with what the edit puts into its lists and columns."""
    for path, chosen in edit.lists:
        own = value_at(row, path)
        row = _put(row, path, [_value(own, cell) for cell in chosen] if isinstance(own, list) else None)
    if isinstance(row, list):
        for keys, chosen in edit.columns:
            others = [cell for place, cell in enumerate(row) if place not in keys]
            own = [row[key] for key in keys if isinstance(key, int)]
            row = [*others[:2], *(_value(own, cell) for cell in chosen), *others[2:]]
        return row
    new = dict(row)
    for keys, chosen in edit.columns:
        own = [value_at(row, (key,)) for key in keys]
        new.update((str(key), _value(own, cell)) for key, cell in zip(keys, chosen, strict=False) if key is not None)
    return new


def _value(own: Sequence[Any], cell: Chosen) -> Any:
    return cell.value if cell.place is None else own[cell.place]


def _put(row: Any, path: Sequence[Any], value: Any) -> Any:
    """A copy of a row with another value under a path."""
    if not path:
        return value
    inside = _put(row[path[0]], path[1:], value)
    if isinstance(row, dict):
        return {**row, path[0]: inside}
    return [inside if place == path[0] else cell for place, cell in enumerate(row)]


class TableWriter:
    """CSV and TSV. Fields keep their text; where fields are quoted, they are quoted as csv does."""

    def __init__(
        self, container: Container, layout: Layout, paths: Sequence[str], file: BinaryIO, width: int | None
    ) -> None:
        dialect = container.dialect
        if dialect is None:
            raise SchemaError("a table without a dialect", where=paths[0])
        self._text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        self._writer = csv.writer(
            self._text,
            delimiter=dialect.delimiter,
            quoting=csv.QUOTE_MINIMAL if dialect.quoted else csv.QUOTE_NONE,
            quotechar='"' if dialect.quoted else None,
            lineterminator="\n",
        )
        gone = columns_gone(layout, dialect.header, width)
        self._columns = [name for name in dialect.header if name not in gone]
        if dialect.header:
            self._writer.writerow(self._columns)

    def add(self, row: Row, raw: bytes | None, edit: Edit) -> None:
        new = edited(row, edit)
        cells = [new[name] for name in self._columns] if isinstance(new, dict) else new
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

        schema = pq.read_schema(paths[0])
        gone = columns_gone(layout, schema.names, width)
        if gone:
            # What `datasets` notes of the columns would no longer be true.
            metadata = {key: value for key, value in (schema.metadata or {}).items() if key != b"huggingface"}
            schema = pa.schema([field for field in schema if field.name not in gone], metadata)
        self._schema = schema
        self._rows: list[dict[str, Any]] = []
        self._batch = pa.RecordBatch
        self._file = pq.ParquetWriter(file, schema)

    def add(self, row: Row, raw: bytes | None, edit: Edit) -> None:
        new = edited(row, edit)
        if isinstance(new, dict):
            self._rows.append(new)
        if len(self._rows) >= PARQUET_ROWS:
            self._flush()

    def end(self) -> None:
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        if self._rows:
            self._file.write_batch(self._batch.from_pylist(self._rows, schema=self._schema))
            self._rows.clear()
