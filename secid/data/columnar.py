"""Rows of Parquet and Arrow files, batch by batch and only the columns that are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from secid.data.rows import ROW_LIMIT, Broken, Part, Parts, Row, shorten
from secid.errors import InputError, SchemaError, plainly

BATCH_ROWS = 1024
"""Rows decoded at once: rows of ten passages come to about 5 MB, and larger batches read no faster."""

BATCH_BYTES = 64 << 20
"""Bytes that the rows decoded at once may have; a few rows where they are of megabytes."""

PIECE_BYTES = 16 << 20
"""Bytes of the rows that are made Python values at once."""

PROBE_ROWS = 64
"""Rows read for a look at a dictionary: one of them should use it."""

USUAL_DICTIONARY, USUAL_WORD = 2 << 20, 16 << 10
"""Bytes of a dictionary and of its words on average beyond which it is looked at (10 ms): writers stop near 1 MiB."""

DICTIONARIES = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})
"""Encodings of a Parquet column in which one text may stand for many."""

VIEWS = ("string_view", "binary_view")
SHARED = ("list_view", "large_list_view", "run_end_encoded")
"""Arrow types, as they are printed, in which one value may stand for those of many rows; views tell its length."""

HEADER_BYTES = 64
NEXT_NUMBER, STRUCTURE = 0x15, 12
"""Thrift's compact marks of a field: the next one, a 32-bit number; one of any number, a structure."""

WIDTHS = {pa.string(): np.int32, pa.binary(): np.int32, pa.large_string(): np.int64, pa.large_binary(): np.int64}
"""Of the offsets of texts."""

Handle = str | BinaryIO
_opened = partial(pq.ParquetFile, memory_map=False, pre_buffer=False, buffer_size=1 << 20)


def parquet_rows(file: Handle, path: str, columns: Sequence[str] | None, groups: range | None = None) -> Parts:
    """Rows of a Parquet file as dicts of `columns` (all where None). Raises InputError where it is damaged.

    groups: row groups to read; all where None. Rows keep the numbers that they have in the file.
    """
    with _damage(path):
        table = _opened(file)
        names = _present(table.schema_arrow, columns, path)
        groups = range(table.num_row_groups) if groups is None else groups
        n_rows = table.metadata.num_rows
        before = sum(table.metadata.row_group(group).num_rows for group in range(groups.start))
    batches = _batches(file, table, names, groups)
    # The Parquet decoder makes its offsets itself.
    yield from _parts(batches, names, path, lambda number: number / n_rows, checked=True, before=before)


def _batches(
    file: Handle, table: pq.ParquetFile, names: Sequence[str], groups: Iterable[int]
) -> Iterator[pa.RecordBatch]:
    """The row groups' rows in batches of BATCH_ROWS; fewer where rows are so large that these outgrow BATCH_BYTES."""
    words = _Words(file, table)
    for number in groups:
        size = _row_bytes(table.metadata.row_group(number), names, words, number)
        n_rows = min(BATCH_ROWS, max(1, int(BATCH_BYTES / max(1.0, size))))
        yield from table.iter_batches(batch_size=n_rows, columns=_paths(names), row_groups=[number])


class _Words:
    """The dictionaries of a Parquet file. They are looked at where a text may stand there once for many rows."""

    def __init__(self, file: Handle, table: pq.ParquetFile) -> None:
        self._file, self._table = file, table
        self._coded: pq.ParquetFile | None = None

    def may_be_long(self, chunk: Any) -> bool:
        """Whether a dictionary is larger than usual, by the header of its page. chunk: metadata of a column."""
        if chunk.dictionary_page_offset is None:
            return True
        if isinstance(self._file, str):
            with Path(self._file).open("rb") as file:
                file.seek(chunk.dictionary_page_offset)
                head = file.read(HEADER_BYTES)
        else:
            self._file.seek(chunk.dictionary_page_offset)
            head = self._file.read(HEADER_BYTES)
        n_bytes, n_words = _page_sizes(head) or (USUAL_DICTIONARY + 1, 1)
        return n_bytes > USUAL_DICTIONARY or n_bytes > USUAL_WORD * n_words

    def longest(self, group: int, names: Sequence[str]) -> dict[str, int]:
        """Bytes of the longest word of each column's dictionaries in a row group; 0 where none was met."""
        if self._coded is None:
            leaves = [self._table.schema.column(place) for place in range(len(self._table.schema))]
            texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
            self._coded = _opened(self._file, read_dictionary=texts, metadata=self._table.metadata)
        rows = next(self._coded.iter_batches(PROBE_ROWS, row_groups=[group], columns=_paths(names)))
        return {name: _longest(column) for name, column in zip(rows.schema.names, rows.columns, strict=True)}


def _page_sizes(head: bytes) -> tuple[int, int] | None:
    """Unpacked bytes and words of a dictionary's page from its Thrift header; None where it is another one.

    Its first fields are numbers (type, unpacked and packed bytes, perhaps a checksum), then the structure of a
    dictionary, which begins with the number of its words. Source: parquet.thrift, PageHeader.
    """
    numbers: list[int] = []
    at = 0
    try:
        while head[at] == NEXT_NUMBER:
            value, at = _number(head, at + 1)
            numbers.append(value)
        if len(numbers) < 3 or head[at] & 15 != STRUCTURE or head[at + 1] != NEXT_NUMBER:
            return None
        return numbers[1], _number(head, at + 2)[0]
    except IndexError:
        return None


def _number(head: bytes, at: int) -> tuple[int, int]:
    """The number that starts there, not negative, in 7 bits a byte and a bit for its sign; and where it ends."""
    value = shift = 0
    while True:
        value |= (head[at] & 127) << shift
        shift += 7
        at += 1
        if head[at - 1] < 128:
            return value >> 1, at


def _row_bytes(group: Any, names: Sequence[str], words: _Words, number: int) -> float:
    """Bytes of a decoded row of a row group, on average, if every value in a long dictionary were its longest one.

    group : the row group's metadata.   number : its place in the file.
    """
    n_rows: int = max(1, group.num_rows)
    size = 0.0
    coded: dict[str, tuple[int, int]] = {}
    for chunk in map(group.column, range(group.num_columns)):
        name = next((name for name in names if f"{chunk.path_in_schema}.".startswith(f"{name}.")), None)
        if name is None:
            continue
        size += chunk.total_uncompressed_size / n_rows
        if (
            chunk.physical_type == "BYTE_ARRAY"
            and DICTIONARIES.intersection(chunk.encodings)
            and words.may_be_long(chunk)
        ):
            n_values, n_bytes = coded.get(name, (0, 0))
            coded[name] = n_values + chunk.num_values, max(n_bytes, chunk.total_uncompressed_size)
    if sum(n * n_bytes for n, n_bytes in coded.values()) * min(1.0, BATCH_ROWS / n_rows) <= BATCH_BYTES:
        return size
    found = words.longest(number, list(coded))
    return size + sum(n * (found.get(name) or n_bytes) for name, (n, n_bytes) in coded.items()) / n_rows


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
        batch = batch.select(names)
        sound = checked or _is_sound(batch)
        for piece in _pieces(batch, sound):
            rows = _batch_rows(piece, path, checked=sound)
            numbers = range(number + 1, number + 1 + len(rows))
            number += len(rows)
            yield Part(numbers, rows, done(number))


def _is_sound(batch: pa.RecordBatch) -> bool:
    """Whether offsets and texts hold; Arrow trusts those in a file, and damaged ones read foreign memory."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _pieces(batch: pa.RecordBatch, sound: bool) -> Iterator[pa.RecordBatch]:
    """The batch in halves of halves, down to BATCH_ROWS and PIECE_BYTES; of an unsound one the bytes are not known."""
    n = batch.num_rows
    if n > BATCH_ROWS or (sound and n > 1 and _decoded_bytes(batch) > PIECE_BYTES):
        yield from _pieces(batch.slice(0, n // 2), sound)
        yield from _pieces(batch.slice(n // 2), sound)
    elif n:
        yield batch


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
