"""How a file is packed: recognised from its first bytes, opened as numbered rows."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from shlex import quote
from typing import TYPE_CHECKING, Literal

from secid.errors import InputError
from secid.read.jsonrows import BOM, json_document, json_lines, unwrap
from secid.read.rewrites import in_utf8, unpacked
from secid.read.rows import Broken, Parts, Row, gathered, shorten
from secid.read.stream import CHUNK, ByteStream, on_disk
from secid.read.tablerows import KNOWN, SNIFFED_LINES, Dialect, sniff_table, table_rows

if TYPE_CHECKING:
    from secid.read.trec import Run

Kind = Literal["empty", "jsonl", "json_array", "json_object", "table", "parquet", "arrow_stream", "arrow_file", "run"]
COLUMNAR = frozenset({"parquet", "arrow_stream", "arrow_file"})
DOCUMENTS = frozenset({"json_array", "json_object"})

MAGIC: dict[bytes, Kind] = {
    b"PAR1": "parquet",
    b"PARE": "parquet",  # encrypted
    b"ARROW1": "arrow_file",
    b"\xff\xff\xff\xff": "arrow_stream",
}
UTF_16 = "UTF-16"
ZIP = b"PK\x03\x04"
OTHER_MAGIC = {
    ZIP: "a zip archive",
    b"BZh": "bzip2-compressed",
    b"\xfd7zXZ": "xz-compressed",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"version https://git-lfs": "a Git LFS pointer, not the file itself",
}
"""What files of other kinds start with, and what they are."""
UNPACKERS = {ZIP: "unzip -p", b"BZh": "bzip2 -dc <", b"\xfd7zXZ": "xz -dc <"}
TAR_PLACE, TAR = 257, b"ustar"
TAR_FLAG = {"gz": "-xzf", "zst": "-I zstd -xf", "": "-xf"}
PICKLE = re.compile(rb"\x80[\x02-\x05]")
PICKLE_REMEDY = "where it was written, write it as Parquet or JSON lines instead"


@dataclass(frozen=True, slots=True)
class Container:
    """How the rows of one file are packed. dialect: tables only.   run: how the lines of a TREC run are read."""

    kind: Kind
    compression: str = ""
    dialect: Dialect | None = None
    run: Run | None = None

    def __str__(self) -> str:
        name = self.kind.replace("_", " ")
        if self.dialect is not None:
            name = "tsv" if self.dialect.delimiter == "\t" else "csv"
            name += "" if self.dialect.header else " without header"
        return f"{name}, {self.compression}" if self.compression else name


def sniff(stream: ByteStream, header: bool | None = None, named: Collection[str] = ()) -> Container:
    """The container of a stream from its first bytes (at most CHUNK); nothing is consumed.

    header, named : as in `header_of`.
    Raises InputError for a kind of file that secid does not read.
    """
    head, packed, path = stream.peek(), stream.compression, stream.path
    for magic, kind in MAGIC.items():
        if head.startswith(magic):
            return Container(kind, packed)
    text = head.removeprefix(BOM).lstrip(b" \t\r\n")
    _refuse_other_kinds(head, text, path, packed)
    if not text:
        return Container("empty", packed)
    if text[:1] in b"{[":
        return Container(_json_kind(text, path), packed)
    if _lines_by_name(path):
        if any(map(_parsed, text.split(b"\n", SNIFFED_LINES)[:SNIFFED_LINES])):
            return Container("jsonl", packed)  # words of a language model before its rows are bad lines
        raise InputError(
            f"named as JSON lines, but the first lines are not: {shorten(text[:200].decode(errors='replace'), 60)!r}",
            where=path,
            remedy="each line must be one JSON object; name a table .csv or .tsv",
        )
    return Container("table", packed, sniff_table(head.removeprefix(BOM), path, header, named))


def _remedy(magic: bytes, path: str, packed: str) -> str:
    """What to do with a file that starts so."""
    if magic not in UNPACKERS:
        return in_utf8(path, UTF_16) if "UTF" in OTHER_MAGIC[magic] else "fetch the file: git lfs pull"
    if PurePath(path).suffix == ".xlsx":
        return "save it as CSV in UTF-8"
    path = on_disk(path)
    return unpacked(path, UNPACKERS[magic]) if not packed and Path(path).is_file() else "unpack it"


def _refuse_other_kinds(head: bytes, text: bytes, path: str, packed: str) -> None:
    """Raises InputError for archives, binary data and text in UTF-16 or UTF-32."""
    for magic, what in OTHER_MAGIC.items():
        if head.startswith(magic):
            raise InputError(f"this is {what}", where=path, remedy=_remedy(magic, path, packed))
    if head[TAR_PLACE:].startswith(TAR):
        remedy = f"unpack it: tar {TAR_FLAG[packed]} {quote(path)}"
        raise InputError("this is a tar archive", where=path, remedy=remedy)
    if PICKLE.match(head):
        raise InputError("this is a pickle, which can run code when loaded", where=path, remedy=PICKLE_REMEDY)
    is_json = text[:1] in (b"{", b"[") and b"\0" not in text[:4]
    if b"\0" in head[:512].split(b"\n", 1)[0] and not is_json:
        remedy = f"{KNOWN}; if it is text, {in_utf8(path, UTF_16 + ('BE' if head[0] == 0 else 'LE'))}"
        raise InputError("this is binary data (an archive, a database), or UTF-16 text", where=path, remedy=remedy)


def _json_kind(text: bytes, path: str) -> Kind:
    """Lines, one array or one object.

    A file whose first line is whole JSON is JSON lines, unless that line is the array or wrapper itself. One whose
    first line is not, while a later one is, is JSON lines with a bad first line.
    """
    document: Kind = "json_array" if text[:1] == b"[" else "json_object"
    lines = text.split(b"\n")
    whole = lines if len(text) < CHUNK // 2 else lines[:-1]
    if not whole:  # the first line is longer than what was looked at: only the name can tell
        return document if document == "json_array" or not _lines_by_name(path) else "jsonl"
    first = _parsed(whole[0])
    if first is None:
        if whole[0].strip() in (b"[", b"{") or re.match(rb"\[\s*[\[{]", text):
            return document
        later = [line for line in whole[1:SNIFFED_LINES] if line[:1] in (b"{", b"[")]
        # Bad lines alone are lines where the name says so: the reader reports what is wrong with them.
        return "jsonl" if (later and _lines_by_name(path)) or any(map(_parsed, later)) else document
    if isinstance(first, list):
        return document if not first or isinstance(first[0], list | dict) else "jsonl"
    # An object that is the whole file leaves nothing after its line.
    return "jsonl" if any(map(bytes.strip, lines[1:])) or unwrap(first) == [first] else "json_object"


def _lines_by_name(path: str) -> bool:
    return any(suffix in {".jsonl", ".ndjson"} for suffix in PurePath(path).suffixes)


def _parsed(line: bytes) -> Row | None:
    """A line's object or array; None where it is not JSON. Repeated keys and the like are the reader's business."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def rows_of(path: str) -> Iterator[tuple[int, Row | Broken]]:
    """Rows of a file, each with its 1-based line or row number."""
    stream = ByteStream(path)
    try:
        for part in open_parts(stream, sniff(stream)):
            yield from zip(part.numbers, part.rows, strict=True)
    finally:
        stream.close()


def open_parts(stream: ByteStream, container: Container, columns: Sequence[str] | None = None) -> Parts:
    """Rows of a stream, many at a time. columns: the only ones wanted, a saving for columnar files alone."""
    if container.run is not None:
        return container.run.parts(stream)
    if container.kind == "jsonl":
        return json_lines(stream)
    if container.kind in DOCUMENTS:
        return json_document(stream)
    if container.kind == "table" and container.dialect is not None:
        return gathered(table_rows(stream, container.dialect))
    if container.kind in COLUMNAR:
        # pyarrow is imported only where a file needs it: it costs 0.1 s.
        from secid.read.columnar import arrow_rows, parquet_rows

        file = stream.random_access()
        if container.kind == "parquet":
            return parquet_rows(file, stream.path, columns)
        return arrow_rows(file, stream.path, columns, streamed=container.kind == "arrow_stream")
    return iter(())
