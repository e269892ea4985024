"""Read rows of JSON lines, JSON documents, and CSV and TSV tables."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

import orjson

from secid.errors import InputError
from secid.read.binding import NEGATIVE_NAMES, QUERY_NAMES, fits
from secid.read.columns import header_of
from secid.read.refusals import QRELS, QRELS_REMEDY
from secid.read.stream import (
    CHUNK_BYTES,
    PART_BYTES,
    ROW_LIMIT,
    UTF_8_REMEDY,
    Broken,
    ByteStream,
    Part,
    PartIterator,
    Row,
    shorten,
    too_large,
    wrong_type,
)
from secid.records import Fact, fault_text
from secid.settings import flag_of

# Rows of JSON: lines, or a document that is parsed as a whole.
#
# orjson parses first. If it refuses a row, Python's json decides, since it also reads NaN and Infinity. NaN counts as
# null, because pandas writes it for a missing cell.

BOM = codecs.BOM_UTF8
DOCUMENT_LIMIT = 256 << 20
"""Maximum size of a file that is one JSON value (256 MiB). Parsed, it takes two to four times as much memory."""

WRAPPERS = ("data", "rows", "records", "examples", "train")
"""Keys under which a JSON object may hold its list of records."""

KEY_END = re.compile(rb'"[ \t\r\n]*:')
"""Pattern of the end of an object's key. It is rare in texts, and occurs at least once per key."""

TOO_DEEP = Broken("too_deep", Fact("depth"))
"""Fault of a row that is nested too deeply. orjson stops at a depth of 1024, Python's recursion a little earlier."""


def json_lines(stream: ByteStream) -> PartIterator:
    """Yield the rows of a JSON lines file, numbered by line, without blank lines. Only \\n ends a line, not U+2028."""
    number = 1
    for block in stream.line_blocks(ROW_LIMIT):
        if block is None:
            yield Part((number,), (too_large("line"),))
            number += 1
            continue
        lines = block.removesuffix(b"\n").split(b"\n")
        numbers = range(number, number + len(lines))
        number += len(lines)
        rows = _objects(block, lines)
        if rows is not None:
            yield Part(numbers, rows)
            continue
        parsed = [
            (at, parse_row(line.removeprefix(BOM) if at == 1 else line))
            for at, line in zip(numbers, lines, strict=True)
            if line.strip()
        ]
        if parsed:
            yield Part([at for at, _ in parsed], [row for _, row in parsed])


def _objects(block: bytes, lines: list[bytes]) -> list[Row | Broken] | None:
    """Return the objects of all lines, parsed by orjson; None if some line needs the full checks of `parse_row`."""
    try:
        rows = list(map(orjson.loads, lines))
        if not all(type(row) is dict for row in rows):
            return None
        # Equal counts prove that no line repeats a key. Counting runs at 1 GB/s.
        n_key_ends = len(KEY_END.findall(block))
        return rows if n_key_ends == sum(map(len, rows)) or n_key_ends == sum(map(count_keys, rows)) else None
    except (ValueError, RecursionError):
        return None


def parse_row(text: bytes | bytearray) -> Row | Broken:
    """Parse one JSON object or array from UTF-8 bytes with every check. Return Broken with the fault of a bad row."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        line = f"line {error.lineno}, " if b"\n" in text else ""  # the reader adds the line of a row
        value = _lenient(text, f"{error.msg} at {line}column {error.colno}")
    if isinstance(value, Broken):
        return value
    if not isinstance(value, dict | list):
        return _wrong_type(value)
    try:
        suspicious = sum(1 for _ in KEY_END.finditer(text)) > count_keys(value)
        repeated = _repeated_key(text) if suspicious else None
    except RecursionError:
        return TOO_DEEP
    return value if repeated is None else Broken("duplicate_key", Fact("repeated_key", {"key": shorten(repeated, 60)}))


def _wrong_type(value: Any) -> Broken:
    return Broken("wrong_type", wrong_type(value, "row", "object or list"))


def _lenient(text: bytes | bytearray, problem: str) -> Any:
    """Parse values that Python's json reads and orjson does not: NaN (as null), Infinity, numbers beyond float64."""
    if "depth" in problem:
        return TOO_DEEP
    try:
        value = json.loads(text, parse_constant=lambda name: None if name == "NaN" else float(name))
        # json accepts a lone surrogate (\ud800), but no UTF-8 can hold it.
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        return TOO_DEEP
    except UnicodeEncodeError:
        return Broken("broken_line", Fact("half_surrogate"))
    except ValueError:
        return Broken("broken_line", Fact(_syntax(text, problem), {"parser": shorten(problem)}))
    return value


def _syntax(text: bytes | bytearray, problem: str) -> str:
    """Return the fault of a line that is not JSON: not_utf8, python_quotes or syntax."""
    if "UTF-8" in problem:
        return "not_utf8"
    return "python_quotes" if re.match(rb"[\[{\s]+'", text) else "syntax"


def count_keys(value: Any) -> int:
    """Count the keys of the objects inside a parsed value. Keys nested deeper than lists of objects are not counted."""
    if type(value) is not dict:
        return sum(map(count_keys, value)) if type(value) is list else 0
    total = len(value)
    for inner in value.values():
        kind = type(inner)
        if kind is list:
            if inner and type(inner[0]) is dict:
                total += sum([len(item) for item in inner if type(item) is dict])
        elif kind is dict:
            total += count_keys(inner)
    return total


def _repeated_key(text: bytes | bytearray) -> str | None:
    repeated: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        if len({key for key, _ in pairs}) < len(pairs):
            keys = [key for key, _ in pairs]
            repeated.append(next(key for key in keys if keys.count(key) > 1))

    json.loads(text, object_pairs_hook=look)
    return repeated[0] if repeated else None


def json_document(stream: ByteStream) -> PartIterator:
    """Yield the rows of a file that is one JSON value: the items of an array or of a wrapper's list, or one object.

    Rows are numbered from 1. Raises InputError if the file is not valid JSON or larger than DOCUMENT_LIMIT.
    """
    data = bytearray()
    while chunk := stream.read():
        data += chunk
        if len(data) > DOCUMENT_LIMIT:
            raise InputError(
                f"one JSON value of more than {DOCUMENT_LIMIT >> 20} MiB, too large to parse as a whole",
                where=stream.path,
                remedy="write one record per line: jq -c .[]",
            )
    if data.startswith(BOM):
        del data[: len(BOM)]
    n_bytes, value = len(data), parse_row(data)
    del data
    if isinstance(value, Broken):
        raise InputError(
            f"not valid JSON ({fault_text(value.fact)})",
            where=stream.path,
            remedy=JSON_REMEDIES.get(value.fact.kind, CUT_SHORT_REMEDY),
        )
    elements = value if isinstance(value, list) else unwrap(value)
    if isinstance(value, dict) and elements[0] is not value:
        _refuse_several_lists(value, stream.path)
    rows = [row if isinstance(row, dict | list) else _wrong_type(row) for row in elements]
    step = max(1, PART_BYTES * len(rows) // n_bytes)
    for at in range(0, len(rows), step):
        yield Part(range(at + 1, min(at + step, len(rows)) + 1), rows[at : at + step])


JSON_REMEDIES = {
    "not_utf8": UTF_8_REMEDY,
    "repeated_key": "use each key once per object; in a JSON lines file, only these records are skipped",
    "python_quotes": "this is Python notation, not JSON: write the file with json.dumps",
    "half_surrogate": "replace it; in a JSON lines file, only these records are skipped",
}
"""Kind of fault -> remedy, used for a JSON document or a file in which no line is readable."""
CUT_SHORT_REMEDY = (
    "the file may be cut short: write it again, or use one record per line, so that a bad record can be skipped"
)


def _refuse_several_lists(value: dict[str, Any], path: str) -> None:
    """Refuse a wrapper with several lists of objects, because their keys may differ. Raises InputError."""
    lists = [
        name for name, inner in value.items() if isinstance(inner, list) and any(type(row) is dict for row in inner)
    ]
    if len(lists) > 1:
        raise InputError(
            f"several lists of records: {', '.join(lists)}", where=path, remedy="write each to a separate file"
        )


def unwrap(value: Row) -> list[Any]:
    """Return the records inside a JSON object: the list under a key of WRAPPERS, or a list of records.

    An object is a record if it has one column named as a query and one named as a negative. If the value is itself a
    record, or has no such list, return [value].
    """
    inner: Any = value
    while isinstance(inner, dict) and not _is_record(inner):
        lists = [name for name, rows in inner.items() if isinstance(rows, list) and rows and isinstance(rows[0], dict)]
        lists = [name for name in WRAPPERS if name in lists] or [name for name in lists if _is_record(inner[name][0])]
        if lists:
            rows: list[Any] = inner[lists[0]]
            return rows
        inner = next(iter(inner.values())) if len(inner) == 1 else None
    return [value]


def _is_record(value: dict[str, Any]) -> bool:
    return all(any(fits(key, role) for key in value) for role in (QUERY_NAMES, NEGATIVE_NAMES))


# Rows of CSV and TSV tables, through Python's csv module.

csv.field_size_limit(ROW_LIMIT)

SNIFFED_LINES = 50
OTHER_DELIMITERS = {";": "semicolons", "|": "vertical bars"}
JUDGEMENT = re.compile(r"\S+ +(0|Q0) +\S+ +-?\d+ *")
"""Pattern of a relevance judgement with spaces between columns, as in TREC."""
READABLE_FORMATS = "secid reads .jsonl, .json, .csv, .tsv, .parquet and .arrow, each also .gz or .zst"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The format of a table. header: column names, or () if the first line is a row."""

    delimiter: str
    quoted: bool
    header: tuple[str, ...]
    n_columns: int

    def reader(self, lines: Iterator[str]) -> Iterator[list[str]]:
        """Return an iterator over the rows of lines. It raises csv.Error for a bad row, and can continue after it."""
        return csv.reader(
            lines, delimiter=self.delimiter, quoting=csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE, strict=True
        )


def sniff_table(head: bytes, path: str, header: bool | None, named: Collection[str]) -> Dialect:
    """Return the dialect of a table (delimiter, quoting, header) from its first bytes.

    The delimiter is a tab if the first line has one. CSV fields may be quoted. TSV fields count as quoted only if every
    field that opens with a quotation mark is a valid CSV quotation, and either all of these need quotes or all fields
    except numbers have them. Otherwise quotation marks belong to the text, as in MS MARCO.
    header, named : as in `header_of`.
    Raises InputError for a file that is not a table, or whose header is unclear.
    """
    text = head.decode("utf-8", errors="replace")
    lines = (text if len(head) < CHUNK_BYTES // 2 else text[: text.rfind("\n") + 1]).split("\n")[:SNIFFED_LINES]
    first = lines[0].rstrip("\r")
    _refuse_other_files(first, path)
    delimiter = "\t" if "\t" in first else ","
    dialect = Dialect(delimiter, delimiter == "," or _is_quoted_tsv(lines), (), 0)
    rows = _first_rows(lines, dialect)
    if not rows:
        raise InputError("no row can be read", where=path, remedy=READABLE_FORMATS)
    try:
        names = header_of(rows, header, path, named)
    except InputError:
        if "\ufffd" in first:
            raise InputError("not valid UTF-8", where=f"{path}:1", remedy=UTF_8_REMEDY) from None
        raise
    if delimiter == "," and not (names or named or header is False or _is_table_by_name(path)):
        raise InputError(  # prose has commas too
            f"neither JSON nor a table with a header: the file starts with {shorten(first, 60)!r}",
            where=path,
            remedy=f"{READABLE_FORMATS}; for a comma table without a header, name it .csv or add "
            f"{flag_of('header', False)}",
        )
    return Dialect(delimiter, dialect.quoted, names, len(rows[0]))


def _is_table_by_name(path: str) -> bool:
    return not {".csv", ".tsv"}.isdisjoint(PurePath(path).suffixes)


def _refuse_other_files(first: str, path: str) -> None:
    """Refuse a file whose first line is not from a table with commas or tabs. Raises InputError."""
    if JUDGEMENT.fullmatch(first):
        raise InputError(QRELS, where=path, remedy=QRELS_REMEDY)
    if "\t" in first or "," in first:
        return
    for mark, name in OTHER_DELIMITERS.items():
        if first.count(mark) > 1:
            raise InputError(f"fields separated by {name}", where=path, remedy="write it with commas or tabs")
    if not _is_table_by_name(path):
        what = f"neither JSON nor a table: the file starts with {shorten(first, 60)!r}"
        raise InputError(what, where=path, remedy=READABLE_FORMATS)


def _is_quoted_tsv(lines: list[str]) -> bool:
    cells = [cell for line in lines for cell in line.rstrip("\r").split("\t")]
    opened = [cell for cell in cells if cell.startswith('"')]
    if not opened or not all(re.fullmatch(r'"(?:[^"]|"")*"', cell) for cell in opened):
        return False
    # Quotation marks that only some fields have, and do not need, belong to the text.
    needed = all('""' in cell[1:-1] for cell in opened)
    return needed or all(re.match(r'"|-?[\d.]+$', cell) for cell in cells if cell)


def _first_rows(lines: list[str], dialect: Dialect) -> list[list[str]]:
    reader = dialect.reader(line + "\n" for line in lines if line.strip())
    rows: list[list[str]] = []
    while True:
        try:
            rows.append(next(reader))
        except StopIteration:
            return [row for row in rows if row]
        except csv.Error:
            continue


def table_rows(stream: ByteStream, dialect: Dialect) -> Iterator[tuple[int, Row | Broken, int]]:
    """Yield (number of the row's first line, row, size in bytes).

    A row is a dict if the table has a header, else a list. An empty cell is None, because tables have no other null. A
    row that cannot be parsed, or has more or fewer fields than the table, is Broken. It is yielded once per line,
    because the lines after an unclosed quotation mark may be rows.
    """
    lines = _Lines(stream)
    reader = dialect.reader(lines)
    names: list[str] | None = None
    while True:
        first, lines.row_bytes, lines.damage = lines.number + 1, 0, None
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row: Row | Broken = lines.damage or Broken("broken_line", Fact("syntax", {"parser": shorten(str(error))}))
        else:
            if not (cells or lines.damage):
                continue
            if dialect.header and names is None:
                names = cells
                continue
            row = lines.damage or _row(cells, dialect)
            if cells == names:  # files joined by `cat`
                row = Broken("broken_line", Fact("repeated_header"))
        n_lines = lines.number + 1 - first
        if isinstance(row, Broken) and n_lines > 1:
            row = Broken(row.reason, replace(row.fact, values={**row.fact.values, "n_lines": n_lines}))
            yield from ((number, row, lines.row_bytes // n_lines) for number in range(first, lines.number + 1))
        else:
            yield first, row, lines.row_bytes


def _row(cells: list[str], dialect: Dialect) -> Row | Broken:
    if len(cells) != dialect.n_columns:
        return Broken("extra_columns", Fact("field_count", {"n": len(cells), "expected": dialect.n_columns}))
    values = [cell or None for cell in cells]
    return dict(zip(dialect.header, values, strict=True)) if dialect.header else values


class _Lines:
    """Iterator over decoded lines for csv.reader.

    number : number of the last line.   row_bytes, damage : size and first fault of the current row's lines.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._lines = stream.lines(ROW_LIMIT)
        self.number = 0
        self.row_bytes = 0
        self.damage: Broken | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        if line is None:
            self.damage = too_large("line")
            return "\n"
        self.row_bytes += len(line)
        if self.row_bytes > ROW_LIMIT:
            self.damage = too_large("row")
            raise csv.Error
        if self.number == 1:
            line = line.removeprefix(BOM)
        if b"\0" in line:
            self.damage = Broken("broken_line", Fact("nul_byte"))
        try:
            return line.decode()
        except UnicodeDecodeError:
            self.damage = Broken("broken_line", Fact("not_utf8"))
            return line.decode(errors="replace")
