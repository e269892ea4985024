"""How a file is packed: recognised from its first bytes, opened as numbered rows."""

from __future__ import annotations

import csv
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import BinaryIO, Literal

from secid.errors import InputError
from secid.read.headers import header_of
from secid.read.jsonrows import BOM, json_array, json_lines, json_object, unwrap
from secid.read.rows import ENCODING, Parts, Row, Rows, gathered, numbered, shorten
from secid.read.schemas.refusals import TREC, TREC_REMEDY
from secid.read.stream import CHUNK, ByteStream, once_only
from secid.read.tablerows import Dialect, table_rows

Kind = Literal["empty", "jsonl", "json_array", "json_object", "table", "parquet", "arrow_stream", "arrow_file"]

PARQUET_MAGIC = b"PAR1"
ARROW_FILE_MAGIC = b"ARROW1"
ARROW_STREAM_MAGIC = b"\xff\xff\xff\xff"
KNOWN = "secid reads .jsonl, .json, .csv, .tsv, .parquet and .arrow, each also .gz or .zst"
OTHER_MAGIC = {
    b"PK\x03\x04": ("a zip archive", "unpack it; an Excel workbook (.xlsx) is one: save that as CSV in UTF-8"),
    b"BZh": ("bzip2-compressed", "unpack it with bunzip2"),
    b"\xfd7zXZ": ("xz-compressed", "unpack it with unxz"),
    b"SQLite": ("an SQLite database", "export its table as CSV"),
    **{
        b"\x80%c" % protocol: (
            "a pickle",
            "in pandas: `to_parquet(path)`, or `to_json(path, orient='records', lines=True)`",
        )
        for protocol in range(2, 6)
    },
    b"\x89HDF": ("an HDF5 file", KNOWN),
    b"\xff\xfe\0\0": ("UTF-32 text", ENCODING),
    b"\0\0\xfe\xff": ("UTF-32 text", ENCODING),
    b"\xff\xfe": ("UTF-16 text", ENCODING),
    b"\xfe\xff": ("UTF-16 text", ENCODING),
    b"version https://git-lfs": ("a Git LFS pointer, not the file itself", "fetch the file: `git lfs pull`"),
}
"""What files of other kinds start with: what they are, and what to do with them."""
UTF_16 = re.compile(rb"[\t -~]\0[\t -~]\0|\0[\t -~]\0[\t -~]")
"""Two ASCII characters of UTF-16 without a byte order mark."""
TREC_LINE = re.compile(r"\S+ +(0|Q0) +\S+ +-?\d+( +\S+ +\S+)? *")
"""A judgement, or with a score and a name behind it a line of a run, parted by spaces as TREC does."""
COLUMNAR = frozenset({"parquet", "arrow_stream", "arrow_file"})
SPOOL_LIMIT = 16 << 30
"""Largest columnar file unpacked to a temporary one (16 GiB): such files need random access."""

SNIFFED_LINES = 50
OTHER_DELIMITERS = {";": "semicolons", "|": "vertical bars", "，": "full-width commas", "；": "full-width semicolons"}


@dataclass(frozen=True, slots=True)
class Container:
    """How the rows of one file are packed. dialect: tables only."""

    kind: Kind
    compression: str = ""
    dialect: Dialect | None = None

    def __str__(self) -> str:
        name = self.kind.replace("_", " ")
        if self.dialect is not None:
            name = "tsv" if self.dialect.delimiter == "\t" else "csv"
            name += "" if self.dialect.header else " without header"
        return f"{name}, {self.compression}" if self.compression else name


def sniff(stream: ByteStream, header: bool | None = None) -> Container:
    """The container of a stream from its first bytes (at most CHUNK); nothing is consumed.

    header : whether the first row of a table names its columns; found from the rows where None.
    Raises InputError for a kind of file that secid does not read.
    """
    head = stream.peek()
    packed = stream.compression
    if head.startswith(PARQUET_MAGIC):
        return Container("parquet", packed)
    if head.startswith(ARROW_FILE_MAGIC):
        return Container("arrow_file", packed)
    if head.startswith(ARROW_STREAM_MAGIC):
        return Container("arrow_stream", packed)
    for magic, (what, remedy) in OTHER_MAGIC.items():
        if head.startswith(magic) or (what == "UTF-16 text" and UTF_16.match(head)):
            raise InputError(f"this is {what}", where=stream.path, remedy=remedy)
    if head[257:262] == b"ustar":
        raise InputError("this is a tar archive", where=stream.path, remedy="unpack it and name the files")
    text = head.removeprefix(BOM).lstrip(b" \t\r\n")
    if not text:
        return Container("empty", packed)
    if text[:1] in b"{[":
        return Container(_json_kind(text, stream.path), packed)
    if _lines_by_name(stream.path):
        if any(map(_parsed, text.split(b"\n", SNIFFED_LINES)[:SNIFFED_LINES])):
            return Container("jsonl", packed)  # words of a language model before its rows are bad lines
        raise InputError(
            f"the name says JSON lines, the first lines are none: {shorten(text[:200].decode(errors='replace'), 60)!r}",
            where=stream.path,
            remedy="each line must be one JSON object; name a table .csv or .tsv",
        )
    return Container("table", packed, sniff_table(head.removeprefix(BOM), stream.path, header))


def _json_kind(text: bytes, path: str) -> Kind:
    """Lines, one array or one object.

    A file whose first line is whole JSON is JSON lines, unless that line is the array or wrapper
    itself. One whose first line is not, while a later one is, is JSON lines with a bad first line.
    """
    document: Kind = "json_array" if text[:1] == b"[" else "json_object"
    lines = text.split(b"\n")
    whole = lines if len(text) < CHUNK // 2 else lines[:-1]
    if not whole:
        # The first line is longer than what was looked at: only the name can tell.
        return document if document == "json_array" or not _lines_by_name(path) else "jsonl"
    if whole[0].strip() in (b"[", b"{"):
        return document
    first = _parsed(whole[0])
    if first is None:
        if _opens_array(text):
            return "json_array"
        later = [line for line in whole[1:SNIFFED_LINES] if line[:1] in (b"{", b"[")]
        # Bad lines alone are lines where the name says so: of those, the reader tells what is wrong.
        return "jsonl" if (later and _lines_by_name(path)) or any(map(_parsed, later)) else document
    if isinstance(first, list):
        return document if not first or isinstance(first[0], list | dict) else "jsonl"
    # A whole object leaves nothing behind its line.
    return "jsonl" if any(map(bytes.strip, lines[1:])) or unwrap(first) == [first] else "json_object"


def _opens_array(text: bytes) -> bool:
    """Whether a bracket and a whole object or list open the text: an array, however it is cut into lines."""
    if text[:1] != b"[":
        return False
    try:
        element, _ = json.JSONDecoder().raw_decode(text[1:].lstrip().decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return False
    return isinstance(element, dict | list)


def _lines_by_name(path: str) -> bool:
    return any(suffix in {".jsonl", ".ndjson"} for suffix in PurePath(path).suffixes)


def _parsed(line: bytes) -> Row | None:
    """A line's object or array; None where it is no JSON. Repeated keys and the like are the reader's business."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def sniff_table(head: bytes, path: str, header: bool | None = None) -> Dialect:
    """Delimiter, quoting and header of a table from its first bytes.

    The delimiter is a tab where the first line has one. Fields are quoted in CSV; in TSV only where every
    field that opens with a quotation mark also closes as CSV asks, and holds one or all fields do, or where lines
    of different widths come to rows of one width so: MS MARCO's passages quote freely. header : as in `sniff`.
    """
    text = head.decode("utf-8", errors="replace")
    whole = text if len(head) < CHUNK // 2 else text[: text.rfind("\n") + 1]
    first = whole.split("\n", 1)[0].rstrip("\r")
    if "\n" not in text and text.count("\r") > 1:
        raise InputError("lines end in a lone carriage return", where=path, remedy="write it with a newline after each")
    delimiter = "\t" if "\t" in first else ","
    suffixes = PurePath(path).suffixes
    if first.lower().startswith("sep="):
        raise InputError("the first line is a note to Excel (sep=)", where=f"{path}:1", remedy="take that line out")
    other = next((mark for mark in OTHER_DELIMITERS if first.count(mark) > 1), None)
    if delimiter not in first and other is not None:
        raise InputError(
            f"fields separated by {OTHER_DELIMITERS[other]}",
            where=path,
            remedy="write it with commas or tabs between the fields",
        )
    if TREC_LINE.fullmatch(first):
        raise InputError(TREC, where=path, remedy=TREC_REMEDY)
    if delimiter not in first and not {".csv", ".tsv"} & set(suffixes):
        raise InputError(
            f"neither JSON nor a table: the file starts with {shorten(first, 60)!r}",
            where=path,
            remedy=KNOWN,
        )
    quoted = delimiter == "," or _tsv_is_quoted(whole) or _quotes_join_lines(whole)
    rows = _first_rows(whole, delimiter, quoted)
    if not rows:
        raise InputError("no row could be read", where=path)
    try:
        names = header_of(rows, header, path)
    except InputError:
        if "\ufffd" in first:
            raise InputError("not valid UTF-8", where=f"{path}:1", remedy=ENCODING) from None
        raise
    return Dialect(delimiter, quoted, names, len(rows[0]))


def _tsv_is_quoted(text: str) -> bool:
    cells = [cell for line in text.split("\n")[:SNIFFED_LINES] for cell in line.rstrip("\r").split("\t")]
    opened = [cell for cell in cells if cell.startswith('"')]
    if not opened or not all(re.fullmatch(r'"(?:[^"]|"")*"', cell) for cell in opened):
        return False
    # What quotes one field of many that need no quotation marks is the text itself.
    needed = all('""' in cell[1:-1] for cell in opened)
    return needed or all(re.match(r'"|-?[\d.]+$', cell) for cell in cells if cell)


def _quotes_join_lines(text: str) -> bool:
    """Whether lines of a TSV differ in width, and its rows do not where quotation marks may join lines."""
    lines = [line + "\n" for line in text.split("\n") if line.strip()]
    n_tabs = lines[0].count("\t")
    if '"' not in text or all(line.count("\t") == n_tabs for line in lines):
        return False
    reader = csv.reader(lines, delimiter="\t", strict=True)
    at = 0
    try:
        for row in reader:
            if len(row) != n_tabs + 1:
                return False
            at = reader.line_num
    except csv.Error:
        # The text may end within a row, but none lies behind a quotation mark that has no end.
        return at > 0 and not any('"' not in line and line.count("\t") == n_tabs for line in lines[at:])
    return True


def _first_rows(text: str, delimiter: str, quoted: bool) -> list[list[str]]:
    rows: list[list[str]] = []
    lines = (line + "\n" for line in text.split("\n") if line.strip())
    reader = csv.reader(
        lines, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, strict=True
    )
    while len(rows) < SNIFFED_LINES:
        try:
            rows.append(next(reader))
        except StopIteration:
            break
        except csv.Error:
            continue
    return [row for row in rows if row]


def open_rows(stream: ByteStream, container: Container, columns: Sequence[str] | None = None) -> Rows:
    """Numbered rows of a stream. columns: as in open_parts."""
    return numbered(open_parts(stream, container, columns))


def open_parts(stream: ByteStream, container: Container, columns: Sequence[str] | None = None) -> Parts:
    """Rows of a stream, many at a time. columns: the only ones wanted, a saving for columnar files alone."""
    if container.kind == "jsonl":
        return json_lines(stream)
    if container.kind == "json_array":
        return gathered(json_array(stream))
    if container.kind == "json_object":
        return json_object(stream)
    if container.kind == "table" and container.dialect is not None:
        return gathered(table_rows(stream, container.dialect))
    if container.kind in COLUMNAR:
        return _columnar(stream, container, columns)
    return iter(())


def _columnar(stream: ByteStream, container: Container, columns: Sequence[str] | None) -> Parts:
    # pyarrow is imported only where a file asks for it: it costs 0.1 s.
    from secid.read import columnar

    arrow_rows = partial(columnar.arrow_rows, streamed=container.kind == "arrow_stream")
    reads = columnar.parquet_rows if container.kind == "parquet" else arrow_rows
    if once_only(stream.path) or container.compression:
        with _spooled(stream) as file:
            yield from reads(file, stream.path, columns)
    else:
        yield from reads(stream.path, stream.path, columns)


def _spooled(stream: ByteStream) -> BinaryIO:
    """The stream's bytes in a temporary file, deleted when it is closed."""
    spool: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    size = 0
    while chunk := stream.read():
        size += len(chunk)
        if size > SPOOL_LIMIT:
            raise InputError(f"unpacks to more than {SPOOL_LIMIT >> 30} GiB", where=stream.path)
        spool.write(chunk)
    spool.seek(0)
    return spool
