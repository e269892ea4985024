"""Rows of Parquet and Arrow files, batch by batch and only the columns that are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from secid.data.rows import Broken, Part, Parts, Row, shorten
from secid.errors import InputError, SchemaError, plainly

BATCH_ROWS = 1024
"""Rows decoded at once: rows of ten passages come to about 5 MB, and larger batches read no faster."""

Handle = str | BinaryIO


def parquet_rows(file: Handle, path: str, columns: Sequence[str] | None, groups: range | None = None) -> Parts:
    """Rows of a Parquet file as dicts of `columns` (all where None). Raises InputError where it is damaged.

    groups: row groups to read; all where None. Rows keep the numbers that they have in the file.
    """
    with _damage(path):
        table = pq.ParquetFile(file, memory_map=False, pre_buffer=False, buffer_size=1 << 20)
        names = _present(table.schema_arrow, columns, path)
        groups = range(table.num_row_groups) if groups is None else groups
        batches = table.iter_batches(batch_size=BATCH_ROWS, columns=_paths(names), row_groups=list(groups))
        n_rows = table.metadata.num_rows
        before = sum(table.metadata.row_group(group).num_rows for group in range(groups.start))
    # The Parquet decoder makes its offsets itself.
    yield from _parts(batches, names, path, lambda number: number / n_rows, checked=True, before=before)


def arrow_rows(file: Handle, path: str, columns: Sequence[str] | None, *, streamed: bool) -> Parts:
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
        n_bytes = source.size() if isinstance(source, pa.NativeFile) else source.seek(0, 1)
    yield from _parts(batches, names, path, lambda number: source.tell() / n_bytes, checked=False)


def group_sizes(path: str) -> list[int]:
    """Rows of each row group of a Parquet file."""
    with _damage(path):
        metadata = pq.ParquetFile(path).metadata
        return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]


def _paths(names: Sequence[str]) -> list[str] | None:
    # pyarrow takes "a.b" as a path into a struct: a top-level name with a dot needs the whole table.
    return None if any("." in name for name in names) else list(names)


def _present(schema: pa.Schema, columns: Sequence[str] | None, path: str) -> list[str]:
    names = list(schema.names)
    if len(set(names)) < len(names):
        raise SchemaError(f"two columns of the same name: {', '.join(names)}", where=path)
    return names if columns is None else [name for name in names if name in set(columns)]


def _parts(
    batches: Iterator[pa.RecordBatch],
    names: Sequence[str],
    path: str,
    done: Callable[[int], float],
    *,
    checked: bool,
    before: int = 0,
) -> Parts:
    """Rows of the batches. done: share of the file behind a row number.   before: rows of the file before them."""
    number = before
    batches = iter(batches)
    while True:
        with _damage(path):
            batch = next(batches, None)
        if batch is None:
            return
        for start in range(0, batch.num_rows, BATCH_ROWS):
            rows = _batch_rows(batch.slice(start, BATCH_ROWS).select(names), path, checked=checked)
            numbers = range(number + 1, number + 1 + len(rows))
            number += len(rows)
            yield Part(numbers, rows, done(number))


def _batch_rows(batch: pa.RecordBatch, path: str, *, checked: bool) -> list[Row | Broken]:
    """Rows of a batch. checked: whether its offsets and texts are known to be sound."""
    names = batch.schema.names
    try:
        with _damage(path):
            values = _values(batch, checked=checked)
    except _NotUtf8:
        if batch.num_rows == 1:
            return [Broken("broken_line", "a text that is not valid UTF-8")]
        return [row for at in range(batch.num_rows) for row in _batch_rows(batch.slice(at, 1), path, checked=checked)]
    return [dict(zip(names, cells, strict=True)) for cells in zip(*values, strict=True)]


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
        return [_cells(column) for column in batch.columns]
    except UnicodeDecodeError as error:
        raise _NotUtf8 from error


def _cells(column: pa.Array) -> list[Any]:
    """Python values. Times that Python's datetime cannot hold (nanoseconds, far years) are whole numbers."""
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        kind = _without_times(column.type)
        if kind == column.type:
            raise
        values = column.cast(kind).to_pylist()
    return values


def _without_times(kind: pa.DataType) -> pa.DataType:
    """The type with whole numbers in place of dates, times and durations, at any depth of structs and lists."""
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_without_times(kind.value_type))
    return kind


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """pyarrow's errors in the user's words."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise InputError(
            f"cannot be read as Parquet or Arrow: cut short or damaged ({shorten(plainly(error), 160)})",
            where=path,
            remedy="copy or make the file again",
        ) from error
