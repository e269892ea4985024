"""Text for a terminal or a pipe: the verdict first, a table that fits, findings with the command that acts on each.

Untrusted text is never markup, and nothing is cut: where a table is too wide, its first cells get a line of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from secid.pages.findings import match_words, most_urgent
from secid.pages.glossary import ANSWER_TERMS, EXPLANATIONS, missing_lines, skipped_lines
from secid.pages.page import STATUSES, Page, SourceFindings, Table
from secid.pages.sections.ablations import ablations_sentence
from secid.pages.sections.controls import controls_line
from secid.pages.sections.guide import trusted
from secid.pages.sections.probe import next_command, probe_sentence
from secid.pages.sections.ranking import early_sentences
from secid.pages.sections.slices import slices_sentence
from secid.pages.sections.verdict import answer_table, own_score, score_without, verdict
from secid.pages.text import CODE, SPACE, count, inert, named, plain, without_isolates
from secid.results import Run, TripletExample
from secid.results.probe import Probe

SHOWN_FINDINGS = 5
SHOWN_EXAMPLES, EXAMPLE_CHARACTERS = 3, 80
"""Rows of a finding of a check or of the gate, and characters of a text in them."""
GAPS = (2, 1)
"""Spaces between two columns, where there is room for them."""
UNBROKEN = "\ue000"
"""Stands for a space at which a line must not break; untrusted text has none after `plain`."""
STYLES = {"good": "green", "warn": "yellow", "bad": "red"}


def print_run(console: Console, run: Run, legend: bool = False, probe: Probe | None = None) -> None:
    """Prints verdict, answer table, findings, what was left out, the probe or its command, and the path of the page."""
    run = trusted(run)
    headline, *others = (*verdict(run), *probe_sentence(probe))
    write(console, headline, "bold")
    write(console, " ".join(others))
    console.print()
    print_table(console, answer_table(run, full=False), heads=2)
    console.print()
    if legend:
        for term in ANSWER_TERMS:
            write(console, f"{term}: {EXPLANATIONS[term]}")
        console.print()
    _findings(console, run)
    for line in (_without_flagged(run), f"Controls. {controls_line(run)}", _settings(run), _slices(run)):
        write(console, line)
    if run.early_stop is not None:
        write(console, " ".join(early_sentences(run, run.early_stop)))
    for line in (*skipped_lines(run), *missing_lines(run, without=["cost"])):
        write(console, line, "yellow")
    if probe is None and (own := next_command(run)):
        write(console, "To see which source trains better, run a short training on each:")
        command(console, own, indent=4)
    if run.folder:
        command(console, f"report: {plain(run.folder).rstrip('/')}/report.html")


def _findings(console: Console, run: Run) -> None:
    """The most urgent findings, and where the others are."""
    groups, n_more = most_urgent(run, SHOWN_FINDINGS)
    if not groups:
        return
    where = f" ({count(n_more)} more in report.html)" if n_more else ""
    write(console, f"Findings{where}, and what to run", "bold")
    for group in groups:
        print_findings(console, group)
    console.print()


def print_findings(console: Console, group: SourceFindings, n_examples: int = 0) -> None:
    """The findings of one source, each with its command; the repair once, after the defects that it drops.

    n_examples: rows shown of each; without any, the place of one.
    """
    write(console, f"{group.source}: {group.status}")
    repair = group.command
    for item in group.items:
        if item.command:
            command(console, repair, indent=4)
            repair = ""
        write(console, f"{item.name}: {item.sentence}", indent=2, mark="- ")
        for example in item.examples[:n_examples]:
            write(console, _example(example), indent=4)
        if item.examples and not n_examples:
            write(console, f"for example {plain(item.examples[0].path)}:{item.examples[0].line}", indent=4)
        command(console, item.command, indent=4)
    command(console, repair, indent=4)


def _example(item: TripletExample) -> str:
    texts = (("query", item.query), ("negative", item.negative))
    quoted = [f"{role} “{plain(text, EXAMPLE_CHARACTERS)}”" for role, text in texts if text]
    match = match_words(item.match)
    return f"{plain(item.path)}:{item.line}: {', '.join(quoted)}{f' ({match})' if match else ''}"


def _without_flagged(run: Run) -> str:
    """The score without defects, of the sources to repair."""
    scores = [
        f"{named(source.name)} {score_without(source)} ({own_score(run, source)} as listed)"
        for source in run.sources
        if source.status == "repair" and score_without(source) != own_score(run, source)
    ]
    at = "" if run.budget == 1.0 else " at B = 1"
    return f"Score{at} without defects: {', '.join(scores)}." if scores else ""


def _settings(run: Run) -> str:
    line = ablations_sentence(run)
    return f"{line} See “How far the order depends on the settings” in the report." if line else ""


def _slices(run: Run) -> str:
    line = slices_sentence(run)
    return f"{line} See “Slices” in the report." if line else ""


def print_page(console: Console, page: Page) -> None:
    """Prints a page that has no text of its own, such as a check or a comparison, with a few rows of each finding."""
    headline, *others = page.verdict
    write(console, headline, "bold")
    for sentence in others:
        write(console, sentence)
    console.print()
    print_table(console, page.answer, heads=2)
    for group in page.findings:
        console.print()
        print_findings(console, group, SHOWN_EXAMPLES)
    if page.heat is not None:
        console.print()
        write(console, page.heat.caption, "bold")
        print_table(console, page.heat)
    for section in page.details:
        console.print()
        write(console, section.title, "bold")
        for sentence in (*section.paragraphs, *section.bullets):
            write(console, sentence)
        for table in section.tables:
            print_table(console, table, heads=2)


def write(console: Console, text: str, style: str = "", indent: int = 0, mark: str = "") -> None:
    """Prints a sentence within the width; "" prints nothing. mark: begins the first line, the others line up."""
    if not text:
        return
    line = Text(without_isolates(CODE.sub(r"`\1`", text)).replace(SPACE, UNBROKEN))
    width = max(1, console.width - indent - len(mark))
    for place, part in enumerate(line.wrap(console, width)):
        start = " " * indent + (mark if place == 0 else " " * len(mark))
        _print(console, Text(start + part.plain.rstrip().replace(UNBROKEN, " "), style=style))


def command(console: Console, text: str, indent: int = 0) -> None:
    """Prints a command on a line of its own, unbroken, so that it can be copied; "" prints nothing."""
    if text:
        _print(console, Text(" " * indent + plain(text), style="cyan"))


def _print(console: Console, line: Text) -> None:
    """Prints a line made inert: a wrapped one may begin anywhere in a sentence."""
    if inert(line.plain) != line.plain:
        line = Text(inert(line.plain), style=line.style)
    console.print(line, soft_wrap=True)


def print_table(console: Console, table: Table, heads: int = 1) -> None:
    """Prints a table. heads: how many of the first columns share a line of their own where the table is too wide."""
    for line in grid(table, console.width, heads):
        for part in [line] if cell_len(line.plain) <= console.width else line.wrap(console, console.width):
            part.rstrip()
            _print(console, part)


def grid(table: Table, width: int, heads: int = 1) -> list[Text]:
    """The lines of a table: rows in columns; else heads above their numbers; else a line for each cell."""
    titles = [plain(column.title) for column in table.columns]
    rows = [[_cell(cell) for cell in row] for row in table.rows]
    right = [column.kind in ("number", "wrapped") for column in table.columns]
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
    return without_isolates(text).replace("\n", " ").replace(SPACE, " ")
