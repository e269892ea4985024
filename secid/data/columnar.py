"""Rows of Parquet and Arrow files, batch by batch and only the columns that are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from secid.data.rows import Broken, Rows, shorten
from secid.errors import InputError, SchemaError

BATCH_ROWS = 1024
"""Rows decoded at once: rows of ten passages come to about 5 MB, and larger batches read no faster."""

Handle = str | BinaryIO


def parquet_rows(file: Handle, path: str, columns: Sequence[str] | None) -> Rows:
    """Rows of a Parquet file as dicts of `columns` (all where None). Raises InputError where it is damaged."""
    with _damage(path):
        table = pq.ParquetFile(file, memory_map=False, pre_buffer=False, buffer_size=1 << 20)
        names = _present(table.schema_arrow, columns, path)
        batches = table.iter_batches(batch_size=BATCH_ROWS, columns=_paths(names))
    # The Parquet decoder makes its offsets itself.
    yield from _rows(batches, names, path, checked=True)


def arrow_rows(file: Handle, path: str, columns: Sequence[str] | None, *, streamed: bool) -> Rows:
    """Rows of an Arrow IPC stream (`datasets` writes these) or file."""
    with _damage(path):
        source = pa.OSFile(file) if isinstance(file, str) else file
        if streamed:
            reader = pa.ipc.open_stream(source)
            batches: Iterator[pa.RecordBatch] = iter(reader)
        else:
            reader = pa.ipc.open_file(source)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        names = _present(reader.schema, columns, path)
    yield from _rows(batches, names, path, checked=False)


def column_names(file: Handle, path: str, kind: str) -> tuple[str, ...]:
    """Column names of a file, from its metadata alone."""
    with _damage(path):
        if kind == "parquet":
            return tuple(pq.ParquetFile(file).schema_arrow.names)
        source = pa.OSFile(file) if isinstance(file, str) else file
        reader = pa.ipc.open_stream(source) if kind == "arrow_stream" else pa.ipc.open_file(source)
        return tuple(reader.schema.names)


def _paths(names: Sequence[str]) -> list[str] | None:
    # pyarrow takes "a.b" as a path into a struct: a top-level name with a dot needs the whole table.
    return None if any("." in name for name in names) else list(names)


def _present(schema: pa.Schema, columns: Sequence[str] | None, path: str) -> list[str]:
    names = list(schema.names)
    if len(set(names)) < len(names):
        raise SchemaError(f"two columns of the same name: {', '.join(names)}", where=path)
    return names if columns is None else [name for name in names if name in set(columns)]


def _rows(batches: Iterator[pa.RecordBatch], names: Sequence[str], path: str, *, checked: bool) -> Rows:
    number = 0
    batches = iter(batches)
    while True:
        with _damage(path):
            batch = next(batches, None)
        if batch is None:
            return
        for start in range(0, batch.num_rows, BATCH_ROWS):
            part = batch.slice(start, BATCH_ROWS).select(names)
            yield from enumerate(_part_rows(part, path, checked=checked), number + 1)
            number += part.num_rows


def _part_rows(batch: pa.RecordBatch, path: str, *, checked: bool) -> Iterator[dict[str, Any] | Broken]:
    """Rows of a batch. checked: whether its offsets and texts are known to be sound."""
    names = batch.schema.names
    try:
        with _damage(path):
            values = _values(batch, checked=checked)
    except _NotUtf8:
        if batch.num_rows == 1:
            yield Broken("broken_line", "a text that is not valid UTF-8")
            return
        for row in range(batch.num_rows):
            yield from _part_rows(batch.slice(row, 1), path, checked=checked)
        return
    for cells in zip(*values, strict=True):
        yield dict(zip(names, cells, strict=True))


class _NotUtf8(Exception):  # noqa: N818 - never leaves this module
    """Some text of a batch is not valid UTF-8."""


def _values(batch: pa.RecordBatch, *, checked: bool) -> list[list[Any]]:
    """Python values, column by column."""
    if not checked:
        # Arrow trusts the offsets in a file; without this check damaged ones read foreign memory.
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            if "UTF8" in str(error):
                raise _NotUtf8 from error
            raise
    try:
        return [column.to_pylist() for column in batch.columns]
    except UnicodeDecodeError as error:
        raise _NotUtf8 from error


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """pyarrow's errors in the user's words."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise InputError(
            f"cannot be read as Parquet or Arrow: cut short or damaged ({shorten(str(error), 160)})",
            where=path,
            remedy="copy or make the file again",
        ) from error
