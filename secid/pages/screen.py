"""What a terminal shows: parts with an empty line between them, each of lines and tables.

All strings are text, never markup; `terminal` makes them harmless and prints them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from secid.pages.findings import match_words
from secid.pages.page import Page, Section, ShownFindings, Table
from secid.pages.text import plain
from secid.results import TripletExample

SHOWN_FINDINGS = 5
"""Most findings on a screen; the page has all."""
SHOWN_EXAMPLES, EXAMPLE_CHARACTERS = 3, 80
"""Rows of a finding of the gate, and characters of a text in them."""


@dataclass(frozen=True)
class Line:
    """A sentence, broken to the width; a command or literal line is never broken, so that it can be copied.

    mark: begins the first line, and the others line up.
    """

    text: str
    kind: Literal["sentence", "strong", "warning", "command", "literal"] = "sentence"
    indent: int = 0
    mark: str = ""


Block = Line | Table
Screen = tuple[tuple[Block, ...], ...]


def screen(*parts: Iterable[Block | str]) -> Screen:
    """The parts that say something. A string is a sentence; lines without text and tables without rows are left out."""
    every = (tuple(Line(block) if isinstance(block, str) else block for block in part) for part in parts)
    shown = (tuple(filter(_says_something, part)) for part in every)
    return tuple(filter(None, shown))


def _says_something(block: Block) -> bool:
    return bool(block.rows if isinstance(block, Table) else block.text)


def strong(text: str) -> Line:
    """A headline."""
    return Line(text, "strong")


def warning(text: str) -> Line:
    """What was left out or could not be done."""
    return Line(text, "warning")


def command(text: str, indent: int = 0) -> Line:
    """A command to copy."""
    return Line(text, "command", indent)


def literal(text: str, indent: int = 0) -> Line:
    """A line that is shown as it is, however long."""
    return Line(text, "literal", indent)


def bullet(text: str, indent: int = 0) -> Line:
    """One of several."""
    return Line(text, indent=indent, mark="- ")


def screen_of(page: Page) -> Screen:
    """A page that has no screen of its own, such as a comparison, with a few rows of each finding."""
    headline, *others = page.verdict
    return screen(
        (strong(headline), *others),
        (page.answer,),
        *(findings_lines(group, SHOWN_EXAMPLES) for group in page.findings),
        () if page.heat is None else (strong(page.heat.caption), page.heat),
        *map(_section, page.details),
    )


def _section(section: Section) -> Iterator[Block]:
    yield strong(section.title)
    yield from map(Line, (*section.paragraphs, *section.bullets))
    yield from section.tables


def findings_lines(group: ShownFindings, n_examples: int = 0) -> Iterator[Line]:
    """The findings of one source, each with its command; the repair once, after the defects that it drops.

    n_examples: rows shown of each; without any, the place of one.
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
    quoted = [f"{role} “{plain(text, EXAMPLE_CHARACTERS)}”" for role, text in texts if text]
    match = match_words(item.match)
    return f"{item.path}:{item.line}: {', '.join(quoted)}{f' ({match})' if match else ''}"
