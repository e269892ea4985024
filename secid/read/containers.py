"""Recognise the container of a file from its first bytes, and read it as numbered rows, columnar files by batches."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from secid.errors import InputError, SchemaError, is_encryption_error, plain_message
from secid.read.stream import (
    CHUNK_BYTES,
    ROW_LIMIT,
    UTF_8_REMEDY,
    Broken,
    ByteStream,
    Part,
    PartIterator,
    Row,
    in_parts,
    shorten,
    too_large,
)
from secid.read.textrows import (
    BOM,
    READABLE_FORMATS,
    SNIFFED_LINES,
    Dialect,
    json_document,
    json_lines,
    sniff_table,
    table_rows,
    unwrap,
)
from secid.records import Fact

if TYPE_CHECKING:
    import pyarrow as pa

    from secid.read.evaluation import RetrievalRun

# Containers: recognised from a file's first bytes, opened as numbered rows.

Kind = Literal["empty", "jsonl", "json_array", "json_object", "table", "parquet", "arrow_stream", "arrow_file", "run"]
COLUMNAR_KINDS = frozenset({"parquet", "arrow_stream", "arrow_file"})
DOCUMENT_KINDS = frozenset({"json_array", "json_object"})

MAGIC: dict[bytes, Kind] = {
    b"PAR1": "parquet",
    b"PARE": "parquet",  # encrypted
    b"ARROW1": "arrow_file",
    b"\xff\xff\xff\xff": "arrow_stream",
}
UNPACK_REMEDY = "unpack it first"
OTHER_MAGIC = {
    b"PK\x03\x04": ("a zip archive, or an Excel workbook", f"{UNPACK_REMEDY}; save a workbook as CSV in UTF-8"),
    b"BZh": ("bzip2-compressed", UNPACK_REMEDY),
    b"\xfd7zXZ": ("xz-compressed", UNPACK_REMEDY),
    b"\xff\xfe": ("UTF-16 text", UTF_8_REMEDY),
    b"\xfe\xff": ("UTF-16 text", UTF_8_REMEDY),
    b"version https://git-lfs": ("a Git LFS pointer, not the file itself", "fetch the file: git lfs pull"),
}
"""First bytes of unsupported kinds of files -> (kind, remedy)."""
TAR_PLACE, TAR = 257, b"ustar"
PICKLE = re.compile(rb"\x80[\x02-\x05]")
PICKLE_REMEDY = "export it as Parquet or JSON lines with the program that wrote it"


@dataclass(frozen=True, slots=True)
class Container:
    """The format that holds a file's rows.

    dialect     : format of a table, else None.
    run         : settings for reading a TREC run, else None.
    """

    kind: Kind
    compression: str = ""
    dialect: Dialect | None = None
    run: RetrievalRun | None = None

    def __str__(self) -> str:
        name = self.kind.replace("_", " ")
        if self.dialect is not None:
            name = "tsv" if self.dialect.delimiter == "\t" else "csv"
            name += "" if self.dialect.header else " without header"
        return f"{name}, {self.compression}" if self.compression else name


def sniff(stream: ByteStream, header: bool | None = None, named: Collection[str] = ()) -> Container:
    """Return the container of a stream from its first bytes (at most CHUNK_BYTES), without consuming them.

    header, named : as in `header_of`.
    Raises InputError for an unsupported kind of file.
    """
    head, packed, path = stream.peek(), stream.compression, stream.path
    for magic, kind in MAGIC.items():
        if head.startswith(magic):
            return Container(kind, packed)
    text = head.removeprefix(BOM).lstrip(b" \t\r\n")
    _refuse_other_kinds(head, text, path)
    if not text:
        return Container("empty", packed)
    if text[:1] in b"{[":
        return Container(_json_kind(text, path), packed)
    if _lines_by_name(path):
        if any(map(_parsed, text.split(b"\n", SNIFFED_LINES)[:SNIFFED_LINES])):
            return Container("jsonl", packed)  # prose that a language model writes before its rows is bad lines
        raise InputError(
            f"named as JSON lines, but the first lines are not: {shorten(text[:200].decode(errors='replace'), 60)!r}",
            where=path,
            remedy="each line must be one JSON object; name a table .csv or .tsv",
        )
    return Container("table", packed, sniff_table(head.removeprefix(BOM), path, header, named))


def _refuse_other_kinds(head: bytes, text: bytes, path: str) -> None:
    """Refuse archives, binary data and text in UTF-16 or UTF-32. Raises InputError."""
    for magic, (what, remedy) in OTHER_MAGIC.items():
        if head.startswith(magic):
            raise InputError(f"this is {what}", where=path, remedy=remedy)
    if head[TAR_PLACE:].startswith(TAR):
        raise InputError("this is a tar archive", where=path, remedy=UNPACK_REMEDY)
    if PICKLE.match(head):
        raise InputError("this is a pickle, which can run code when loaded", where=path, remedy=PICKLE_REMEDY)
    is_json = text[:1] in (b"{", b"[") and b"\0" not in text[:4]
    if b"\0" in head[:512].split(b"\n", 1)[0] and not is_json:
        what = "this is binary data (an archive, a database), or UTF-16 text"
        raise InputError(what, where=path, remedy=f"{READABLE_FORMATS}; if it is text, {UTF_8_REMEDY}")


def _json_kind(text: bytes, path: str) -> Kind:
    """Tell apart JSON lines, a single array and a single object.

    A file whose first line is complete JSON is JSON lines, unless that line is the whole array or wrapper object. If
    only a later line is complete JSON, the file is JSON lines with a bad first line.
    """
    document: Kind = "json_array" if text[:1] == b"[" else "json_object"
    lines = text.split(b"\n")
    whole = lines if len(text) < CHUNK_BYTES // 2 else lines[:-1]
    if not whole:  # the first line is longer than the head, so the name decides
        return document if document == "json_array" or not _lines_by_name(path) else "jsonl"
    first = _parsed(whole[0])
    if first is None:
        if whole[0].strip() in (b"[", b"{") or re.match(rb"\[\s*[\[{]", text):
            return document
        later = [line for line in whole[1:SNIFFED_LINES] if line[:1] in (b"{", b"[")]
        # Only bad lines: if the name says JSON lines, the reader reports what is wrong with them.
        return "jsonl" if (later and _lines_by_name(path)) or any(map(_parsed, later)) else document
    if isinstance(first, list):
        return document if not first or isinstance(first[0], list | dict) else "jsonl"
    # If an object is the whole file, nothing follows its line.
    return "jsonl" if any(map(bytes.strip, lines[1:])) or unwrap(first) == [first] else "json_object"


def _lines_by_name(path: str) -> bool:
    return any(suffix in {".jsonl", ".ndjson"} for suffix in PurePath(path).suffixes)


def _parsed(line: bytes) -> Row | None:
    """Return a line's object or array, or None for anything else. The reader later checks for repeated keys."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def read_rows(path: str) -> Iterator[tuple[int, Row | Broken]]:
    """Yield (1-based line or row number, row) of a file."""
    stream = ByteStream(path)
    try:
        for part in open_parts(stream, sniff(stream)):
            yield from zip(part.numbers, part.rows, strict=True)
    finally:
        stream.close()


def open_parts(stream: ByteStream, container: Container, columns: Sequence[str] | None = None) -> PartIterator:
    """Return the rows of a stream in parts. columns: names of the columns to read from columnar files; None for all."""
    if container.run is not None:
        return container.run.parts(stream)
    if container.kind == "jsonl":
        return json_lines(stream)
    if container.kind in DOCUMENT_KINDS:
        return json_document(stream)
    if container.kind == "table" and container.dialect is not None:
        return in_parts(table_rows(stream, container.dialect))
    if container.kind in COLUMNAR_KINDS:
        # pyarrow is imported only if a file needs it: the import takes 0.1 s.
        file = stream.random_access()
        if container.kind == "parquet":
            return parquet_rows(file, stream.path, columns)
        return arrow_rows(file, stream.path, columns, streamed=container.kind == "arrow_stream")
    return iter(())


# Rows of Parquet and Arrow files, in small batches of the needed columns.

READ_BATCH_ROWS = 256
"""Maximum number of rows to decode at once. Larger batches are not faster, and padded lists may hold many nulls."""

BATCH_BYTES = 16 << 20
"""Maximum bytes to decode at once, estimated from the average row size of a row group."""

MEMORY_REMEDY = "free memory, or rewrite the file: fewer rows per batch or row group, shorter texts, or JSON lines"


def parquet_rows(file: BinaryIO, path: str, columns: Sequence[str] | None) -> PartIterator:
    """Yield the rows of a Parquet file as dicts of `columns`, or of all columns if None.

    Raises InputError if the file is damaged or its rows are larger than ROW_LIMIT on average.
    """
    import pyarrow.parquet as pq

    with _errors(path):
        table = pq.ParquetFile(file, memory_map=False, pre_buffer=False, buffer_size=1 << 20)
        names = _column_names(table.schema_arrow, columns, path)
    # pyarrow takes "a.b" as a path into a struct: a column with a dot in its name needs the whole table.
    column_paths = None if any("." in name for name in names) else names
    number, n_rows = 0, table.metadata.num_rows
    for place in range(table.num_row_groups):
        group = table.metadata.row_group(place)
        row_bytes = max(1, group.total_byte_size // max(1, group.num_rows))
        if row_bytes > ROW_LIMIT:
            raise InputError(
                f"rows average {row_bytes >> 20} MiB; secid reads rows of up to {ROW_LIMIT >> 20} MiB",
                where=path,
                remedy="write shorter texts or fewer of them per row",
            )
        batches = table.iter_batches(max(1, min(READ_BATCH_ROWS, BATCH_BYTES // row_bytes)), [place], column_paths)
        for batch in _next_batches(batches, path):
            for batch_slice in row_slices(batch.select(names)):
                rows = _rows(batch_slice, path, checked=True)
                yield Part(range(number + 1, number + 1 + len(rows)), rows, (number + len(rows)) / n_rows)
                number += len(rows)


def arrow_rows(file: BinaryIO, path: str, columns: Sequence[str] | None, *, streamed: bool) -> PartIterator:
    """Yield the rows of an Arrow IPC stream (as `datasets` writes) or file. Each batch is held in memory as a whole."""
    import pyarrow as pa

    n_bytes = file.seek(0, 2)
    file.seek(0)
    with _errors(path):
        reader = pa.ipc.open_stream(file) if streamed else pa.ipc.open_file(file)
        names = _column_names(reader.schema, columns, path)
    batches = iter(reader) if streamed else map(reader.get_batch, range(reader.num_record_batches))
    number = 0
    for batch in _next_batches(batches, path):
        # Arrow trusts the offsets in a file, and damaged ones may point anywhere, so check before converting.
        with _errors(path):
            sound = _is_utf8(batch.select(names))
            parts = row_slices(batch.select(names), single=not sound)
        for batch_slice in parts:
            rows = _rows(batch_slice, path, checked=sound)
            yield Part(range(number + 1, number + 1 + len(rows)), rows, file.tell() / n_bytes)
            number += len(rows)


def _next_batches(batches: Iterator[pa.RecordBatch], path: str) -> Iterator[pa.RecordBatch]:
    while True:
        with _errors(path):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch
        del batch  # else it would stay in memory while the next one is decoded


def _column_names(schema: pa.Schema, columns: Sequence[str] | None, path: str) -> list[str]:
    names = list(schema.names)
    if len(set(names)) < len(names):
        raise SchemaError(f"two columns of the same name: {', '.join(names)}", where=path, remedy="rename one of them")
    return names if columns is None else [name for name in names if name in set(columns)]


def row_slices(batch: pa.RecordBatch, *, single: bool = False) -> Iterator[pa.RecordBatch]:
    """Return slices of a batch: one row each if `single`, else at most READ_BATCH_ROWS rows and about BATCH_BYTES."""
    n_rows = 1 if single else min(READ_BATCH_ROWS, max(1, batch.num_rows * BATCH_BYTES // max(1, batch.nbytes)))
    return (batch.slice(at, n_rows) for at in range(0, batch.num_rows, n_rows))


def _is_utf8(batch: pa.RecordBatch) -> bool:
    """Tell whether all texts are UTF-8. Raises ArrowInvalid if an offset or length is wrong."""
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
    """Return the rows of a batch. A row over the limit, or with text that is not UTF-8, becomes Broken.

    checked : whether the offsets of the batch are known to be valid. Those of the Parquet decoder always are.
    """
    if checked and batch.num_rows == 1 and batch.nbytes > ROW_LIMIT:
        return [too_large("row")]
    with _errors(path):
        columns = _values(batch) if checked or _is_utf8(batch) else None
    if columns is not None:
        return [dict(zip(batch.schema.names, cells, strict=True)) for cells in zip(*columns, strict=True)]
    if batch.num_rows == 1:
        return [Broken("broken_line", Fact("not_utf8"))]
    return [row for batch_slice in row_slices(batch, single=True) for row in _rows(batch_slice, path, checked=checked)]


def _values(batch: pa.RecordBatch) -> list[list[Any]] | None:
    """Return the Python values of each column; None if a text is not UTF-8."""
    try:
        return [_cells(column) for column in batch.columns]
    except UnicodeDecodeError:
        return None


def _cells(column: pa.Array) -> list[Any]:
    """Return the Python values. Times outside the range of datetime (nanoseconds, far years) become whole numbers."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        raise
    except (ValueError, OverflowError):
        kind = with_inner_types(column.type, _without_time)
        if kind == column.type:
            raise
        values = column.cast(kind).to_pylist()
    return values


def _without_time(kind: pa.DataType) -> pa.DataType:
    """Return an integer type for a date, time or duration type, and any other type unchanged."""
    import pyarrow as pa

    return (pa.int32() if kind.bit_width == 32 else pa.int64()) if pa.types.is_temporal(kind) else kind


def with_inner_types(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return the type with `change` applied to its inner types, at any depth of structs and lists."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(with_inner_types(field.type, change)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(with_inner_types(kind.value_type, change))
    return pa.large_list(with_inner_types(kind.value_type, change)) if pa.types.is_large_list(kind) else change(kind)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Raise errors of pyarrow as InputError, with a plain message."""
    import pyarrow as pa

    try:
        yield
    except MemoryError as error:  # pa.ArrowMemoryError is one
        raise InputError(
            f"not enough memory for rows of this size ({shorten(plain_message(error), 160)})",
            where=path,
            remedy=MEMORY_REMEDY,
        ) from error
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        if is_encryption_error(error):
            remedy = "decrypt it first: secid cannot take keys"
            raise InputError("this Parquet file is encrypted", where=path, remedy=remedy) from error
        raise InputError(
            f"cannot be read as Parquet or Arrow: cut short or damaged ({shorten(plain_message(error), 160)})",
            where=path,
            remedy="copy or write the file again",
        ) from error
