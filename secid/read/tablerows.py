"""Rows of CSV and TSV tables, through Python's csv module."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath

from secid.errors import InputError
from secid.read.headers import header_of
from secid.read.jsonrows import BOM
from secid.read.rewrites import in_utf8, with_commas
from secid.read.rows import ROW_LIMIT, Broken, Row, shorten, too_large
from secid.read.schemas.refusals import QRELS, QRELS_REMEDY
from secid.read.stream import CHUNK, ByteStream
from secid.records import Fact
from secid.settings import flag_of

csv.field_size_limit(ROW_LIMIT)

SNIFFED_LINES = 50
OTHER_DELIMITERS = {";": "semicolons", "|": "vertical bars", "，": "full-width commas", "；": "full-width semicolons"}
JUDGEMENT = re.compile(r"\S+ +(0|Q0) +\S+ +-?\d+ *")
"""A relevance judgement, separated by spaces as TREC does."""
KNOWN = "secid reads .jsonl, .json, .csv, .tsv, .parquet and .arrow, each also .gz or .zst"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a table is written. header: column names, or () where the first line is a row already."""

    delimiter: str
    quoted: bool
    header: tuple[str, ...]
    n_columns: int

    def reader(self, lines: Iterator[str]) -> Iterator[list[str]]:
        """Rows of lines. Raises csv.Error for one that cannot be parsed, and goes on after it."""
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quoting=csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE,
            strict=True,
        )


def sniff_table(head: bytes, path: str, header: bool | None, named: Collection[str]) -> Dialect:
    """Delimiter, quoting and header of a table from its first bytes.

    The delimiter is a tab where the first line has one. Fields are quoted in CSV; in TSV only where every field that
    opens with a quotation mark is quoted as in CSV, and either needs to be or all others are quoted
    too, since passages hold free quotation marks (MS MARCO).
    header, named : as in `header_of`.
    """
    text = head.decode("utf-8", errors="replace")
    lines = (text if len(head) < CHUNK // 2 else text[: text.rfind("\n") + 1]).split("\n")[:SNIFFED_LINES]
    first = lines[0].rstrip("\r")
    _refuse_other_files(text, first, path)
    delimiter = "\t" if "\t" in first else ","
    dialect = Dialect(delimiter, delimiter == "," or _is_quoted_tsv(lines), (), 0)
    rows = _first_rows(lines, dialect)
    if not rows:
        raise InputError("no row could be read", where=path, remedy=KNOWN)
    try:
        names = header_of(rows, header, path, named)
    except InputError:
        if "\ufffd" in first:
            raise InputError("not valid UTF-8", where=f"{path}:1", remedy=in_utf8(path)) from None
        raise
    if delimiter == "," and not (names or named or header is False or _is_table_by_name(path)):
        raise InputError(  # prose has commas, too
            f"neither JSON nor a table with a header: the file starts with {shorten(first, 60)!r}",
            where=path,
            remedy=f"{KNOWN}; name a table with commas and no header .csv, or add {flag_of('header', False)}",
        )
    return Dialect(delimiter, dialect.quoted, names, len(rows[0]))


def _is_table_by_name(path: str) -> bool:
    return not {".csv", ".tsv"}.isdisjoint(PurePath(path).suffixes)


def _refuse_other_files(text: str, first: str, path: str) -> None:
    """Raises InputError for text that is not a table with commas or tabs."""
    if "\n" not in text and text.count("\r") > 1:
        raise InputError("lines end in a lone carriage return", where=path, remedy="write it with a newline after each")
    if first.lower().startswith("sep="):
        raise InputError("the first line is a note to Excel (sep=)", where=f"{path}:1", remedy="delete that line")
    separated = "\t" in first or "," in first
    other = next((mark for mark in OTHER_DELIMITERS if first.count(mark) > 1), None)
    if other is not None and (not separated or _fits_alone(text, other)):
        what = f"fields separated by {OTHER_DELIMITERS[other]}"
        raise InputError(what, where=path, remedy=with_commas(path, other))
    if JUDGEMENT.fullmatch(first):
        raise InputError(QRELS, where=path, remedy=QRELS_REMEDY)
    if not separated and not _is_table_by_name(path):
        what = f"neither JSON nor a table: the file starts with {shorten(first, 60)!r}"
        raise InputError(what, where=path, remedy=KNOWN)


def _fits_alone(text: str, mark: str) -> bool:
    """Whether the first lines have the same three fields or more with this mark between them, and not with commas."""
    widths = []
    for delimiter in (mark, ","):
        dialect = Dialect(delimiter, True, (), 0)
        widths.append({len(row) for row in _first_rows(text.split("\n")[:SNIFFED_LINES], dialect)})
    return "\t" not in text and len(widths[0]) == 1 and min(widths[0]) > 2 and widths[1] != {max(widths[1], default=0)}


def _is_quoted_tsv(lines: list[str]) -> bool:
    cells = [cell for line in lines for cell in line.rstrip("\r").split("\t")]
    opened = [cell for cell in cells if cell.startswith('"')]
    if not opened or not all(re.fullmatch(r'"(?:[^"]|"")*"', cell) for cell in opened):
        return False
    # What quotes one field of many that need no quotation marks is the text itself.
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
    """The number of each row's first line, the row, and its bytes; a dict where the table has a header, else a list.

    An empty cell is None: tables have no other null. A row that cannot be parsed or has more or fewer fields than the
    table is Broken, once for each of its lines: after an unclosed quotation mark they may be rows.
    """
    lines = _Lines(stream)
    reader = dialect.reader(lines)
    names: list[str] | None = None
    while True:
        first = lines.start_row()
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
    """Decoded lines for csv.reader, with the number of the last one and what was wrong with those of the row."""

    def __init__(self, stream: ByteStream) -> None:
        self._lines = stream.lines(ROW_LIMIT)
        self.number = 0
        self.row_bytes = 0
        self.damage: Broken | None = None

    def start_row(self) -> int:
        """Number of the line that the next row starts on; what was wrong with earlier lines is forgotten."""
        self.damage = None
        self.row_bytes = 0
        return self.number + 1

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
