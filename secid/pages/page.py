"""Blocks of a page before it becomes HTML, Markdown or terminal text.

All strings are text, never markup: each renderer escapes every one of them. Names in sentences
come through `sanitize.named`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Literal

from markupsafe import Markup

from secid.pages.text import plural, short
from secid.results import Match, TripletExample

MOST_DESCRIBED, SHOWN_CHARACTERS = 20, 30
"""Names in the description of a chart, and characters of each; the table next to it has all."""

MOST_PAIRS = 300
"""Most pairs of sources in one table (those of 25 sources). The 19,900 pairs of 200 sources would take 16 MB."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    kind: "number" (right-aligned), "wrapped" (the same, with a line break before a second line), "text" (ours),
    "status" (a word of STATUSES), or "foreign" (of unknown language and direction).
    """

    title: str
    kind: Literal["text", "number", "wrapped", "status", "foreign"] = "text"


text = partial(Column, kind="text")
number = partial(Column, kind="number")
wrapped = partial(Column, kind="wrapped")
foreign = partial(Column, kind="foreign")
status = partial(Column, kind="status")


@dataclass(frozen=True, kw_only=True)
class Table:
    """The first column heads the rows.

    shades: for a heat table, a shade from 0 (lowest) to 9 per cell; None for no shade.
    n_controls: how many of the last rows are controls, shown in grey.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    shades: tuple[tuple[int | None, ...], ...] = ()
    n_controls: int = 0


@dataclass(frozen=True, kw_only=True)
class Chart:
    """title, description : in place of the picture for readers who cannot see it.   draw : makes the SVG.
    note : how to read it.
    numbers : what is drawn, a record for each row, as JSON.
    """

    title: str
    description: str
    draw: Callable[[], Markup]
    numbers: tuple[Mapping[str, object], ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One section. link: the title in a word.

    terms: each number of the section explained, with its range and which way is better.
    """

    anchor: str
    title: str
    link: str
    paragraphs: tuple[str, ...] = ()
    bullets: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    terms: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Item:
    """One finding of one source. sentence: with its numbers and what to do. command: acts on it; "" where none does.

    rows : writes its rows where the source's own command acts on it.
    """

    name: str
    sentence: str
    command: str
    examples: tuple[TripletExample, ...]
    n_negatives: int
    rows: str = ""


@dataclass(frozen=True, kw_only=True)
class ShownFindings:
    """Findings of one source, the worst first. status: a word of STATUSES. command: repairs it; "" if none."""

    source: str
    status: str
    items: tuple[Item, ...]
    command: str


@dataclass(frozen=True, kw_only=True)
class ExampleRow:
    """One example with its source and all findings that it is an example of.

    margin : the positive's cosine to the query minus the negative's; None without an encoder.
    """

    source: str
    findings: tuple[str, ...]
    example: TripletExample
    margin: float | None


@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole page, in the order in which it is read.

    verdict: the first sentence is the headline. answer: a row a source, its first cell the name in `findings`.
    second: an answer of another kind, open beneath it; its link is in the navigation.
    below: lines under the answer table. heat: source × finding. details: folded.
    rows: to browse in HTML with a script, in the order in which they are kept where there is no room for all.
    rows_note: where they are from.
    """

    title: str
    subtitle: str
    verdict: tuple[str, ...]
    answer: Table
    second: Section | None = None
    pictures: tuple[Chart, ...] = ()
    findings: tuple[ShownFindings, ...] = ()
    below: tuple[str, ...] = ()
    heat: Table | None = None
    rows: tuple[ExampleRow, ...] = ()
    rows_note: str = ""
    details: tuple[Section, ...]
    footer: str


STATUSES: Mapping[str, Literal["good", "warn", "bad"]] = {
    **dict.fromkeys(("no defects", "accepted", "pass"), "good"),
    **dict.fromkeys(("repair first", "not ranked", "no verdict", "undecided"), "warn"),
    **dict.fromkeys(("do not use", "rejected", "fail"), "bad"),
}
"""Severity of each status word, including those of the gate."""


def each_term_once(sections: Iterable[Section]) -> tuple[Section, ...]:
    """Return the sections with each term only where it is first needed."""
    explained: set[str] = set()
    shortened = []
    for section in sections:
        shortened.append(replace(section, terms=tuple(item for item in section.terms if item[0] not in explained)))
        explained |= {term for term, _ in section.terms}
    return tuple(shortened)


def described(items: Iterable[tuple[str, str]]) -> str:
    """Return the text alternative of a chart: a clause for each of the first few sources or other names."""
    return "; ".join(f"{short(name, SHOWN_CHARACTERS)}: {clause}" for name, clause in islice(items, MOST_DESCRIBED))


def showing_equal_positive(example: TripletExample) -> TripletExample:
    """The example with the labelled positive that its negative equals, if known, in place of the scored one."""
    text = example.match.text if example.match else ""
    return replace(example, positive=text, s_query_positive=None) if text else example


def match_words(match: Match | None) -> str:
    """Say what the negative of an example repeats; "" if nothing is known."""
    if match is None:
        return ""
    where = ":".join(str(part) for part in (match.path and short(match.path), match.line) if part is not None)
    if match.kind == "positive":
        return f"equals the labelled positive in {where}" if where else "equals a labelled positive of its query"
    if match.kind == "earlier":
        return f"listed earlier, as negative {match.n} in {where}"
    return (
        f"listed {match.n} times"
        if match.kind == "copies"
        else f"a negative of {plural(match.n or 0, 'query', 'queries')}"
    )
