"""Print lines and tables on a terminal. A screen has parts that are separated by empty lines.

All strings are plain text, never markup. `print_page` sanitises them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from secid.pages.page import (
    MAX_EXAMPLES,
    QUOTED_CHARACTERS,
    STATUSES,
    Column,
    Page,
    Section,
    ShownFindings,
    Table,
    each_example_once,
    match_words,
)
from secid.pages.text import CODE, NO_BREAK_SPACE, plain, without_commands, without_isolates
from secid.results import TripletExample

SHOWN_FINDINGS = 5
"""Maximum number of findings on a screen; the page has all of them."""


@dataclass(frozen=True)
class Line:
    """A line of text. Sentences are wrapped; commands and literal lines are not, so that they can be copied.

    mark : start of the first line. Further lines are indented by its width.
    """

    text: str
    indent: int = 0
    kind: Literal["sentence", "strong", "warning", "command", "literal"] = "sentence"
    mark: str = ""


strong = partial(Line, kind="strong")
warning = partial(Line, kind="warning")
command = partial(Line, kind="command")
bullet = partial(Line, mark="- ")
ScreenBlock = Line | Table
Screen = tuple[tuple[ScreenBlock, ...], ...]


def screen(*parts: Iterable[ScreenBlock | str]) -> Screen:
    """Return a screen of these parts. A string is a sentence. Empty lines and tables without rows are left out."""
    every = (tuple(Line(block) if isinstance(block, str) else block for block in part) for part in parts)
    shown = (tuple(item for item in part if (item.rows if isinstance(item, Table) else item.text)) for part in every)
    return tuple(filter(None, shown))


def screen_of(page: Page) -> Screen:
    """Return a screen with the whole content of a page, such as a comparison, and a few rows of each finding."""
    headline, *others = page.verdict
    return screen(
        (strong(headline), *others),
        (page.answer,),
        *(findings_lines(each_example_once(group), MAX_EXAMPLES) for group in page.findings),
        () if page.heat is None else (strong(page.heat.caption), page.heat),
        *map(_section, page.details),
    )


def _section(section: Section) -> Iterator[ScreenBlock]:
    yield strong(section.title)
    yield from map(Line, (*section.paragraphs, *section.bullets))
    yield from section.tables


def findings_lines(group: ShownFindings, n_examples: int = 0) -> Iterator[Line]:
    """Yield the findings of one source, each with its command. The repair command follows the defects that it drops.

    n_examples : number of rows of each finding; with 0, only the place of one row is shown.
    """
    yield Line(f"{group.source}: {group.status}")
    repair = group.command
    for item in group.items:
        if item.command:
            yield command(repair, 4)
            repair = ""
        yield bullet(f"{item.name}: {item.sentence}", 2)
        for example in item.examples[:n_examples]:
            yield Line(_example(example), indent=4)
        if item.examples and not n_examples:
            yield Line(f"for example {item.examples[0].path}:{item.examples[0].line}", indent=4)
        yield command(item.command, 4)
    yield command(repair, 4)


def _example(item: TripletExample) -> str:
    texts = (("query", item.query), ("negative", item.negative))
    quoted = [f"{role} “{plain(text, QUOTED_CHARACTERS)}”" for role, text in texts if text]
    match = match_words(item.match)
    return f"{item.path}:{item.line}: {', '.join(quoted)}{f' ({match})' if match else ''}"


# Print a screen. Nothing is cut. If a table is too wide, the first cells of a row are on a separate line.

COLUMN_GAPS = (2, 1)
"""Spaces between two columns; the second number is used if the table is too wide with the first."""
PROTECTED_SPACE = "\ue000"
"""Replaces a space where a line must not break. `plain` removes it from untrusted text."""
STYLES = {"good": "green", "warn": "yellow", "bad": "red"}
TONES = {"sentence": "", "strong": "bold", "warning": "yellow", "command": "cyan", "literal": ""}


def print_page(console: Console, screen: Screen) -> None:
    """Print the parts of a screen, with an empty line between them."""
    for place, part in enumerate(screen):
        if place:
            console.print()
        for block in part:
            for line in _of_table(block, console) if isinstance(block, Table) else _of_line(block, console):
                if without_commands(line.plain) != line.plain:  # a wrapped line may begin anywhere in a sentence
                    line = Text(without_commands(line.plain), style=line.style)
                console.print(line, soft_wrap=True)


def _of_line(line: Line, console: Console) -> Iterator[Text]:
    style, start = TONES[line.kind], " " * line.indent
    text = plain(without_isolates(CODE.sub(r"`\1`", line.text)))
    if line.kind in ("command", "literal"):
        yield Text(f"{start}{text}", style=style)
        return
    parts = Text(text.replace(NO_BREAK_SPACE, PROTECTED_SPACE)).wrap(
        console, max(1, console.width - line.indent - len(line.mark))
    )
    for place, part in enumerate(parts):
        head = line.mark if place == 0 else " " * len(line.mark)
        yield Text(f"{start}{head}{part.plain.rstrip().replace(PROTECTED_SPACE, ' ')}", style=style)


def _of_table(table: Table, console: Console) -> Iterator[Text]:
    for line in table_lines(table, console.width):
        for part in [line] if cell_len(line.plain) <= console.width else line.wrap(console, console.width):
            part.rstrip()
            yield part


def table_lines(table: Table, width: int) -> list[Text]:
    """Return the lines of a table, in the first layout that fits the width.

    The layouts are: all cells in columns; the row heading on a separate line and the other cells in columns; a line for
    each cell. The row heading is the first cell, and also the second if it is not a number.
    """
    titles = [plain(column.title) for column in table.columns]
    rows = [[[_cell(cell) for cell in row]] for row in table.rows]
    in_columns = [[[_cell(cell) for cell in row] for row in _status_lines(part, table.columns)] for part in table.rows]
    right = [column.kind in ("number", "wrapped") for column in table.columns]
    heads = 1 if len(titles) < 3 or right[1] else 2
    for start, indent in ((0, 0), (heads, 2)):
        shown = rows if start else in_columns
        every = [row for lines in shown for row in lines]
        widths = [max(map(cell_len, column)) for column in zip(titles, *every, strict=True)][start:]
        for gap in COLUMN_GAPS:
            if indent + sum(widths) + gap * (len(widths) - 1) <= width:
                write = partial(_lines, right=right, widths=widths, start=start, indent=indent, gap=gap)
                head = list(write([titles]))
                head[-1].stylize("bold")
                return [*head, *_grouped([list(write(item)) for item in shown], table)]
    return _grouped([list(_stacked(titles, row, heads)) for (row,) in rows], table)


def _status_lines(row: Sequence[str], columns: Sequence[Column]) -> Iterator[Sequence[str]]:
    """Yield the row, then a row with the second line of its status if the status has two lines."""
    parts = [cell.split("\n") if column.kind == "status" else [cell] for cell, column in zip(row, columns, strict=True)]
    for line in range(max(map(len, parts))):
        yield [part[line] if line < len(part) else "" for part in parts]


def _grouped(rows: Sequence[list[Text]], table: Table) -> list[Text]:
    """Return the lines of all rows, with an empty line between groups. Those of the controls are dim."""
    first, lines = len(rows) - table.n_controls, list[Text]()
    for place, row_lines in enumerate(rows):
        if place in table.breaks:
            lines.append(Text())
        for line in row_lines:
            if place >= first:
                line.stylize("dim")
            lines.append(line)
    return lines


def _lines(
    rows: Iterable[Sequence[str]], *, right: Sequence[bool], widths: Sequence[int], start: int, indent: int, gap: int
) -> Iterator[Text]:
    """Yield rows with their cells from `start` on in columns. Earlier cells, with colons, are on a separate line.

    They are on the same line if the first of these columns are empty and leave enough room.
    """
    for row in rows:
        cells = []
        for cell, size, to_right in zip(row[start:], widths, right[start:], strict=True):
            space = " " * (size - cell_len(cell))
            cells.append(Text.assemble(space, _styled(cell)) if to_right else Text.assemble(_styled(cell), space))
        line = Text(" " * indent) + Text(" " * gap).join(cells)
        line.rstrip()
        head = _joined(row[:start])
        if start and not row[start] and line.plain.startswith(" " * (len(head) + 1)):
            line = head + line[len(head) :]
        elif start:
            yield head
        yield line


def _stacked(titles: Sequence[str], row: Sequence[str], heads: int) -> Iterator[Text]:
    yield _joined(row[:heads])
    for title, cell in zip(titles[heads:], row[heads:], strict=True):
        if cell:
            yield Text(f"  {title}: {cell}")


def _joined(cells: Sequence[str]) -> Text:
    return Text(": ").join(_styled(cell) for cell in cells if cell)


def _styled(cell: str) -> Text:
    grave = STATUSES.get(cell)
    return Text(cell, style=STYLES[grave] if grave else "")


def _cell(text: str) -> str:
    return plain(without_isolates(text)).replace(NO_BREAK_SPACE, " ")
