"""Rows of Parquet and Arrow files, batch by batch and only the columns that are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from secid.errors import InputError, SchemaError, plainly
from secid.read.pages import BATCH_ROWS, batch_rows
from secid.read.rows import ROW_LIMIT, Broken, Part, Parts, Row, shorten

PIECE_BYTES = 16 << 20
"""Of a batch of rows in memory at once."""

VIEWS = ("string_view", "binary_view")
SHARED = ("list_view", "large_list_view", "run_end_encoded")
"""Arrow types, as they are printed, in which one value may stand for those of many rows; views tell its length."""

WIDTHS = {pa.string(): np.int32, pa.binary(): np.int32, pa.large_string(): np.int64, pa.large_binary(): np.int64}
"""Of the offsets of texts."""

Handle = str | BinaryIO
_opened = partial(pq.ParquetFile, memory_map=False, pre_buffer=False, buffer_size=1 << 20)


def parquet_rows(file: Handle, path: str, columns: Sequence[str] | None) -> Parts:
    """Rows of a Parquet file as dicts of `columns` (all where None). Raises InputError where it is damaged."""
    with _damage(path):
        table = _opened(file)
        names = _present(table.schema_arrow, columns, path)
        n_rows = table.metadata.num_rows
    batches = _batches(file, table, names, path)
    # The Parquet decoder makes its offsets itself.
    yield from _parts(batches, names, path, lambda number: number / n_rows, checked=True)


def _batches(file: Handle, table: pq.ParquetFile, names: Sequence[str], path: str) -> Iterator[pa.RecordBatch]:
    """The row groups' rows in batches, few where they are large."""
    for number in range(table.num_row_groups):
        # Damaged metadata of a column raise here, and in `RowGroupMetaData.column` end the process. No row is decoded.
        next(table.reader.iter_batches(0, [number], range(table.metadata.num_columns)), None)
        with Path(file).open("rb") if isinstance(file, str) else nullcontext(file) as opened:
            n_rows = batch_rows(table.metadata.row_group(number), names, opened, path)
        yield from table.iter_batches(batch_size=n_rows, columns=_paths(names), row_groups=[number])


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """What lies inside the lists and structs of an array whose offsets are known to be sound."""
    kind = array.type
    if not len(array):
        return
    if pa.types.is_struct(kind):
        for part in array.flatten():
            yield from _leaves(part)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        # Not `flatten`: that imports pyarrow.compute, which costs 0.05 s.
        first, last = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        yield from _leaves(array.values.slice(first, last - first))
    elif pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        yield from _leaves(array.values.slice(array.offset * size, len(array) * size))
    else:
        yield array


def _longest(array: pa.Array) -> int:
    """Bytes of the longest value in the dictionaries inside; 0 where there is none."""
    return max(
        (_longest_word(leaf.dictionary) for leaf in _leaves(array) if pa.types.is_dictionary(leaf.type)), default=0
    )


def _longest_word(words: pa.Array) -> int:
    width = WIDTHS.get(words.type)
    if width is None or not len(words):
        return int(words.nbytes)
    offsets = np.frombuffer(words.buffers()[1], width)[words.offset : words.offset + len(words) + 1]
    return int(np.diff(offsets).max())


def _decoded_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of the rows at most, once no value is left in a dictionary."""
    return sum(
        len(leaf) * _longest(leaf) if pa.types.is_dictionary(leaf.type) else max(leaf.nbytes, _viewed_bytes(leaf))
        for column in batch.columns
        for leaf in _leaves(column)
    )


def _viewed_bytes(leaf: pa.Array) -> int:
    """Bytes of all texts of an array of views, each counted whole where several look at one; 0 for another array.

    A view is 16 bytes, the first four of which are the text's length. Source: Arrow columnar format, view layout.
    """
    if str(leaf.type) not in VIEWS:
        return 0
    views = np.frombuffer(leaf.buffers()[1], np.int32, 4 * (leaf.offset + len(leaf))).reshape(-1, 4)
    return int(views[leaf.offset :, 0].clip(min=0).sum(dtype=np.int64))


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
        _refuse_shared(reader.schema, names, path)
        n_bytes = source.size() if isinstance(source, pa.NativeFile) else source.seek(0, 1)
    yield from _parts(batches, names, path, lambda number: source.tell() / n_bytes, checked=False)


def _refuse_shared(schema: pa.Schema, names: Sequence[str], path: str) -> None:
    """Raises SchemaError where a column's type lets many rows share one long value, so that their size is not told."""
    for name in names:
        waiting = [schema.field(name).type]
        while waiting:
            kind = waiting.pop()
            if str(kind).startswith(SHARED):
                raise SchemaError(
                    f"the column {name} is of Arrow type {shorten(str(kind), 60)}, which secid does not read",
                    where=path,
                    remedy="write it as plain `string` or `list`, or the file as Parquet",
                )
            waiting.extend(kind.field(place).type for place in range(kind.num_fields))


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
) -> Parts:
    """Rows of the batches. done: share of the file behind a row number."""
    number, rows, total = 0, list[Row | Broken](), 0
    for piece, n_bytes, sound in _pieces(batches, names, path, checked=checked):
        if rows and (len(rows) + piece.num_rows > BATCH_ROWS or total + n_bytes > PIECE_BYTES):
            yield Part(range(number + 1, number + 1 + len(rows)), rows, done(number + len(rows)))
            number, rows, total = number + len(rows), [], 0
        rows += _batch_rows(piece, path, checked=sound)
        total += n_bytes
        del piece
    if rows:
        yield Part(range(number + 1, number + 1 + len(rows)), rows, done(number + len(rows)))


def _pieces(
    batches: Iterator[pa.RecordBatch], names: Sequence[str], path: str, *, checked: bool
) -> Iterator[tuple[pa.RecordBatch, int, bool]]:
    """The batches' columns cut into pieces, with their bytes and whether they are sound."""
    batches = iter(batches)
    while True:
        with _damage(path):
            batch = next(batches, None)
        if batch is None:
            return
        batch = batch.select(names)
        sound = checked or _is_sound(batch)
        pieces = list(_halves(batch, sound))
        del batch  # or it would stay while the next one is decoded
        while pieces:
            yield *pieces.pop(0), sound


def _is_sound(batch: pa.RecordBatch) -> bool:
    """Whether offsets and texts hold; Arrow trusts those in a file, and damaged ones read foreign memory."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _halves(batch: pa.RecordBatch, sound: bool) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Halves of halves to BATCH_ROWS and PIECE_BYTES, with their bytes; of an unsound batch these are not known."""
    n = batch.num_rows
    n_bytes = _decoded_bytes(batch) if sound else 0
    if n > BATCH_ROWS or (n > 1 and n_bytes > PIECE_BYTES):
        yield from _halves(batch.slice(0, n // 2), sound)
        yield from _halves(batch.slice(n // 2), sound)
    elif n:
        yield batch, n_bytes


def _batch_rows(batch: pa.RecordBatch, path: str, *, checked: bool) -> list[Row | Broken]:
    """Rows of a batch. checked: whether its offsets and texts are known to be sound."""
    names = batch.schema.names
    if checked and batch.num_rows == 1 and _decoded_bytes(batch) > ROW_LIMIT:
        return [Broken("too_large", f"row over {ROW_LIMIT >> 20} MiB")]
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
    except MemoryError as error:  # pa.ArrowMemoryError is one
        raise InputError(
            f"not enough memory for rows of this size ({shorten(plainly(error), 160)})",
            where=path,
            remedy="free memory, or write the file with fewer rows a batch or row group, or shorter texts",
        ) from error
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise InputError(
            f"cannot be read as Parquet or Arrow: cut short or damaged ({shorten(plainly(error), 160)})",
            where=path,
            remedy="copy or make the file again",
        ) from error
