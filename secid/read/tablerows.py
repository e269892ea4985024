"""Rows of CSV and TSV tables."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass

from secid.read.jsonrows import BOM
from secid.read.rows import ROW_LIMIT, Broken, Row, shorten
from secid.read.stream import ByteStream

csv.field_size_limit(ROW_LIMIT)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a table is written. header: column names, or () where the first line is a row already."""

    delimiter: str
    quoted: bool
    header: tuple[str, ...]
    n_columns: int


HALF = Broken("broken_line", "half of a quoted field that goes over two lines, where most quotation marks are free")

NumberedRow = tuple[int, Row | Broken, int]
"""The number of a row's first line, the row, and its bytes."""


def table_rows(stream: ByteStream, dialect: Dialect) -> Iterator[NumberedRow]:
    """Rows and their sizes; as dicts where the table has a header, else as lists. Numbers are the row's first line.

    An empty cell is None: tables have no other null.
    A row with more or fewer fields than the table is Broken("extra_columns"). One that cannot be parsed or has
    the wrong width is Broken once for each of its lines: behind a quotation mark without end they may be rows.
    """
    rows = _rows(stream, dialect)
    return rows if dialect.quoted else _without_halves(rows)


def _without_halves(rows: Iterator[NumberedRow]) -> Iterator[NumberedRow]:
    """The rows of a table whose quotation marks are free; one that is HALF shows by the odd line beside it."""
    waiting: NumberedRow | None = None
    for number, row, size in rows:
        if waiting is not None:
            before = waiting[1]
            yield waiting[0], HALF if isinstance(row, Broken) and _is_open(before, -1) else before, waiting[2]
            row = HALF if isinstance(before, Broken) and _is_open(row, 0) else row
        waiting = (number, row, size)
    if waiting is not None:
        yield waiting


def _is_open(row: Row | Broken, place: int) -> bool:
    """Whether the quotation mark at the outer end of the row's last (-1) or first (0) cell has no other in it."""
    if isinstance(row, Broken):
        return False
    cell = list(row.values() if isinstance(row, dict) else row)[place] or ""
    return cell.count('"') % 2 == 1 and (cell.startswith('"') if place else cell.endswith('"'))


def _rows(stream: ByteStream, dialect: Dialect) -> Iterator[NumberedRow]:
    lines = _Lines(stream)
    reader = csv.reader(
        lines,
        delimiter=dialect.delimiter,
        quoting=csv.QUOTE_MINIMAL if dialect.quoted else csv.QUOTE_NONE,
        strict=True,
    )
    header = dialect.header
    names: list[str] | None = None
    while True:
        first = lines.start_row()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row: Row | Broken = lines.damage or Broken("broken_line", shorten(str(error)))
        else:
            if not (cells or lines.damage):
                continue
            if header and names is None:
                names = cells
                continue
            row = lines.damage or _row(cells, header, dialect.n_columns)
            if cells == names:  # files joined by `cat`
                row = Broken("broken_line", "the names of the columns again")
        n_lines = lines.number + 1 - first
        if isinstance(row, Broken) and n_lines > 1:
            told = Broken(row.reason, f"{row.detail}; a quotation mark joins {n_lines} lines")
            yield from ((number, told, lines.row_bytes // n_lines) for number in range(first, lines.number + 1))
        else:
            yield first, row, lines.row_bytes


def _row(cells: list[str], header: tuple[str, ...], n_columns: int) -> Row | Broken:
    if len(cells) != n_columns:
        return Broken("extra_columns", f"{len(cells)} fields, {n_columns} expected")
    values = [cell or None for cell in cells]
    return dict(zip(header, values, strict=True)) if header else values


class _Lines:
    """Decoded lines for csv.reader, with the number of the last one and what was wrong with it."""

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
            self.damage = Broken("too_large", f"line over {ROW_LIMIT >> 20} MiB")
            return "\n"
        self.row_bytes += len(line)
        if self.row_bytes > ROW_LIMIT:
            self.damage = Broken("too_large", f"row over {ROW_LIMIT >> 20} MiB")
            raise csv.Error
        if self.number == 1:
            line = line.removeprefix(BOM)
        if b"\0" in line:
            self.damage = Broken("broken_line", "NUL byte")
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            self.damage = Broken("broken_line", f"not valid UTF-8 ({error.reason})")
            return line.decode(errors="replace")
