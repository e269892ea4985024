"""Rows of Parquet and Arrow files, a small batch at a time and only the columns that are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from secid.errors import InputError, SchemaError, of_encryption, plainly
from secid.read.rows import ROW_LIMIT, Broken, Part, Parts, Row, shorten, too_large
from secid.records import Fact

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 256
"""Rows decoded at once: larger batches read no faster, and lists may be padded with a million nulls."""

BATCH_BYTES = 16 << 20
"""Bytes that these rows may have on average in their row group; fewer rows where they are of megabytes."""

SMALLER = "free memory, or write the file with fewer rows per batch or row group, with shorter texts, or as JSON lines"


def parquet_rows(file: BinaryIO, path: str, columns: Sequence[str] | None) -> Parts:
    """Rows of a Parquet file as dicts of `columns` (all where None). Raises InputError where it is damaged."""
    import pyarrow.parquet as pq

    with _errors(path):
        table = pq.ParquetFile(file, memory_map=False, pre_buffer=False, buffer_size=1 << 20)
        names = _present(table.schema_arrow, columns, path)
    # pyarrow takes "a.b" as a path into a struct: a column with a dot in its name needs the whole table.
    wanted = None if any("." in name for name in names) else names
    number, n_rows = 0, table.metadata.num_rows
    for place in range(table.num_row_groups):
        group = table.metadata.row_group(place)
        row_bytes = max(1, group.total_byte_size // max(1, group.num_rows))
        if row_bytes > ROW_LIMIT:
            raise InputError(
                f"rows of {row_bytes >> 20} MiB on average; secid reads rows of up to {ROW_LIMIT >> 20} MiB",
                where=path,
                remedy="write shorter texts or fewer of them per row",
            )
        batches = table.iter_batches(max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes)), [place], wanted)
        for batch in _taken(batches, path):
            for piece in pieces(batch.select(names)):
                rows = _rows(piece, path, checked=True)
                yield Part(range(number + 1, number + 1 + len(rows)), rows, (number + len(rows)) / n_rows)
                number += len(rows)


def arrow_rows(file: BinaryIO, path: str, columns: Sequence[str] | None, *, streamed: bool) -> Parts:
    """Rows of an Arrow IPC stream (`datasets` writes these) or file. A batch of the file is in memory as a whole."""
    import pyarrow as pa

    n_bytes = file.seek(0, 2)
    file.seek(0)
    with _errors(path):
        reader = pa.ipc.open_stream(file) if streamed else pa.ipc.open_file(file)
        names = _present(reader.schema, columns, path)
    batches = iter(reader) if streamed else map(reader.get_batch, range(reader.num_record_batches))
    number = 0
    for batch in _taken(batches, path):
        # Arrow trusts the offsets in a file, and damaged ones point anywhere: nothing is converted unchecked.
        with _errors(path):
            sound = _is_utf8(batch.select(names))
            parts = pieces(batch.select(names), single=not sound)
        for piece in parts:
            rows = _rows(piece, path, checked=sound)
            yield Part(range(number + 1, number + 1 + len(rows)), rows, file.tell() / n_bytes)
            number += len(rows)


def _taken(batches: Iterator[pa.RecordBatch], path: str) -> Iterator[pa.RecordBatch]:
    while True:
        with _errors(path):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch
        del batch  # or it would stay while the next one is decoded


def _present(schema: pa.Schema, columns: Sequence[str] | None, path: str) -> list[str]:
    names = list(schema.names)
    if len(set(names)) < len(names):
        raise SchemaError(f"two columns of the same name: {', '.join(names)}", where=path)
    return names if columns is None else [name for name in names if name in set(columns)]


def pieces(batch: pa.RecordBatch, *, single: bool = False) -> Iterator[pa.RecordBatch]:
    """Slices of one row, or of at most BATCH_ROWS rows and, on average, BATCH_BYTES."""
    n_rows = 1 if single else min(BATCH_ROWS, max(1, batch.num_rows * BATCH_BYTES // max(1, batch.nbytes)))
    return (batch.slice(at, n_rows) for at in range(0, batch.num_rows, n_rows))


def _is_utf8(batch: pa.RecordBatch) -> bool:
    """Whether all texts are UTF-8. Raises ArrowInvalid where an offset or length is wrong."""
    import pyarrow as pa

    sound = True
    for column in batch.columns:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):
                raise
            sound = False
    return sound


def _rows(batch: pa.RecordBatch, path: str, *, checked: bool) -> list[Row | Broken]:
    """Rows of a batch; one over the limit, or with a text that is not UTF-8, is Broken.

    checked : whether the batch's offsets are known to be sound, as those are that the Parquet decoder makes.
    """
    if checked and batch.num_rows == 1 and batch.nbytes > ROW_LIMIT:
        return [too_large("row")]
    with _errors(path):
        columns = _values(batch) if checked or _is_utf8(batch) else None
    if columns is not None:
        return [dict(zip(batch.schema.names, cells, strict=True)) for cells in zip(*columns, strict=True)]
    if batch.num_rows == 1:
        return [Broken("broken_line", Fact("not_utf8"))]
    return [row for piece in pieces(batch, single=True) for row in _rows(piece, path, checked=checked)]


def _values(batch: pa.RecordBatch) -> list[list[Any]] | None:
    """Python values, column by column; None where a text is not UTF-8."""
    try:
        return [_cells(column) for column in batch.columns]
    except UnicodeDecodeError:
        return None


def _cells(column: pa.Array) -> list[Any]:
    """Python values. Times that Python's datetime cannot hold (nanoseconds, far years) are whole numbers."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        raise
    except (ValueError, OverflowError):
        kind = of_leaves(column.type, _without_time)
        if kind == column.type:
            raise
        values = column.cast(kind).to_pylist()
    return values


def _without_time(kind: pa.DataType) -> pa.DataType:
    """A whole number in place of a date, a time or a duration."""
    import pyarrow as pa

    return (pa.int32() if kind.bit_width == 32 else pa.int64()) if pa.types.is_temporal(kind) else kind


def of_leaves(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with its inner types changed, at any depth of structs and lists."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(of_leaves(field.type, change)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(of_leaves(kind.value_type, change))
    return pa.large_list(of_leaves(kind.value_type, change)) if pa.types.is_large_list(kind) else change(kind)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """pyarrow's errors in the user's words."""
    import pyarrow as pa

    try:
        yield
    except MemoryError as error:  # pa.ArrowMemoryError is one
        raise InputError(
            f"not enough memory for rows of this size ({shorten(plainly(error), 160)})", where=path, remedy=SMALLER
        ) from error
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        if of_encryption(error):
            remedy = "decrypt it first: secid takes no keys"
            raise InputError("this Parquet file is encrypted", where=path, remedy=remedy) from error
        raise InputError(
            f"cannot be read as Parquet or Arrow: cut short or damaged ({shorten(plainly(error), 160)})",
            where=path,
            remedy="copy or make the file again",
        ) from error
