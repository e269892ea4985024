"""Prints a screen on a terminal or a pipe.

Untrusted text is never markup, and nothing is cut: where a table is too wide, its first cells get a line of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from secid.pages.page import STATUSES, Table
from secid.pages.screen import Line, Screen
from secid.pages.text import CODE, SPACE, inert, plain, without_isolates

GAPS = (2, 1)
"""Spaces between two columns, where there is room for them."""
UNBROKEN = "\ue000"
"""Stands for a space at which a line must not break; untrusted text has none after `plain`."""
STYLES = {"good": "green", "warn": "yellow", "bad": "red"}
TONES = {"sentence": "", "strong": "bold", "warning": "yellow", "command": "cyan", "literal": ""}


def print_page(console: Console, screen: Screen) -> None:
    """Prints the parts of a screen, with an empty line between them."""
    for place, part in enumerate(screen):
        if place:
            console.print()
        for block in part:
            for line in _of_table(block, console) if isinstance(block, Table) else _of_line(block, console):
                if inert(line.plain) != line.plain:  # a wrapped line may begin anywhere in a sentence
                    line = Text(inert(line.plain), style=line.style)
                console.print(line, soft_wrap=True)


def _of_line(line: Line, console: Console) -> Iterator[Text]:
    """The lines of a sentence within the width, or the one line of a command."""
    style, start = TONES[line.kind], " " * line.indent
    text = plain(without_isolates(CODE.sub(r"`\1`", line.text)))
    if line.kind in ("command", "literal"):
        yield Text(f"{start}{text}", style=style)
        return
    parts = Text(text.replace(SPACE, UNBROKEN)).wrap(console, max(1, console.width - line.indent - len(line.mark)))
    for place, part in enumerate(parts):
        head = line.mark if place == 0 else " " * len(line.mark)
        yield Text(f"{start}{head}{part.plain.rstrip().replace(UNBROKEN, ' ')}", style=style)


def _of_table(table: Table, console: Console) -> Iterator[Text]:
    for line in table_lines(table, console.width):
        for part in [line] if cell_len(line.plain) <= console.width else line.wrap(console, console.width):
            part.rstrip()
            yield part


def table_lines(table: Table, width: int) -> list[Text]:
    """The lines of a table: rows in columns; else heads above their numbers; else a line for each cell.

    The heads are the first cell, and the second where it is no number.
    """
    titles = [plain(column.title) for column in table.columns]
    rows = [[_cell(cell) for cell in row] for row in table.rows]
    right = [column.kind in ("number", "wrapped") for column in table.columns]
    heads = 1 if len(titles) < 3 or right[1] else 2
    for start, indent in ((0, 0), (heads, 2)):
        widths = [max(map(cell_len, column)) for column in zip(titles, *rows, strict=True)][start:]
        for gap in GAPS:
            if indent + sum(widths) + gap * (len(widths) - 1) <= width:
                return list(_lines(titles, rows, right, widths, start, indent, gap))
    return list(_stacked(titles, rows, heads))


def _lines(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[bool],
    widths: Sequence[int],
    start: int,
    indent: int,
    gap: int,
) -> Iterator[Text]:
    """The table in columns from `start` on; the cells before that on a line above, parted by a colon."""
    for place, row in enumerate((titles, *rows)):
        if start:
            yield _joined(row[:start])
        cells = []
        for cell, size, to_right in zip(row[start:], widths, right[start:], strict=True):
            space = " " * (size - cell_len(cell))
            cells.append(Text.assemble(space, _styled(cell)) if to_right else Text.assemble(_styled(cell), space))
        line = Text(" " * indent) + Text(" " * gap).join(cells)
        line.rstrip()
        if not place:
            line.stylize("bold")
        yield line


def _stacked(titles: Sequence[str], rows: Sequence[Sequence[str]], heads: int) -> Iterator[Text]:
    for row in rows:
        yield _joined(row[:heads])
        for title, cell in zip(titles[heads:], row[heads:], strict=True):
            yield Text(f"  {title}: {cell}")


def _joined(cells: Sequence[str]) -> Text:
    return Text(": ").join(map(_styled, cells))


def _styled(cell: str) -> Text:
    grave = STATUSES.get(cell)
    return Text(cell, style=STYLES[grave] if grave else "")


def _cell(text: str) -> str:
    """A cell on one line."""
    return plain(without_isolates(text)).replace(SPACE, " ")
