"""The parts of a page, from which HTML, Markdown and terminal text are made.

All strings are plain text, never markup; each renderer escapes them. Names in sentences are made with `text.named`.
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

MAX_DESCRIBED, MAX_DESCRIBED_CHARACTERS = 20, 30
"""Maximum number of names in the description of a chart, and characters of each; the table has all of them."""

MAX_EXAMPLES = 3
"""Maximum number of examples of a finding; `secid flagged` lists all."""
QUOTED_CHARACTERS = 80
"""Maximum number of characters of a text that is quoted in a line."""
MAX_PAIRS = 300
"""Maximum number of pairs in a table, those of 25 sources. The 19,900 pairs of 200 sources would take 16 MB."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    kind: "number" (right-aligned), "wrapped" (right-aligned, in up to two lines), "text" (secid's own words), "status"
    (a word of STATUSES), or "foreign" (untrusted text in any language and direction).
    is_name: True if the title is a name from the data, such as that of a source. Pages do not explain such a title.
    """

    title: str
    kind: Literal["text", "number", "wrapped", "status", "foreign"] = "text"
    is_name: bool = False


text = partial(Column, kind="text")
number = partial(Column, kind="number")
wrapped = partial(Column, kind="wrapped")
foreign = partial(Column, kind="foreign")
status = partial(Column, kind="status")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table. Its first column has the headings of the rows.

    shades : for a heat table, a shade for each cell from 0 (lowest) to 9; None for no shade.
    breaks : rows before which a gap separates two groups.
    n_controls : number of controls, which are the last rows and shown in grey.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    shades: tuple[tuple[int | None, ...], ...] = ()
    breaks: frozenset[int] = frozenset()
    n_controls: int = 0


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart.

    title, description : text for readers who cannot see the picture.   draw : function that makes the SVG.
    note : how to read the chart.   numbers : a record of the drawn numbers for each row.
    """

    title: str
    description: str
    draw: Callable[[], Markup]
    numbers: tuple[Mapping[str, object], ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section. Tables without rows are left out.

    terms : explanation of each number, with its range and better direction.
    """

    anchor: str
    title: str
    paragraphs: tuple[str, ...] = ()
    bullets: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    terms: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", tuple(table for table in self.tables if table.rows))


@dataclass(frozen=True, kw_only=True)
class Item:
    """One finding of one source.

    sentence : its numbers, and what to do.   command : command that acts on it; "" if there is none, or if the source's
    own command does.   rows : command that lists its rows, if the source's own command acts on it.
    """

    name: str
    sentence: str
    command: str
    examples: tuple[TripletExample, ...]
    n_negatives: int
    rows: str = ""


@dataclass(frozen=True, kw_only=True)
class ShownFindings:
    """Findings of one source, the worst first.

    status : a word of STATUSES.   command : command that repairs the source; "" without one.
    """

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
    """A page, in reading order.

    verdict : sentences; the first is the headline.
    answer  : a row for each source. Its first cell is the source's name in `findings`.
    second  : an answer of another kind, shown unfolded below the first, with a link in the navigation.
    below   : lines under the answer table.   gaps : table under the first picture.
    heat    : shares by source and finding.   details : folded sections.
    rows    : rows to browse in HTML with a script. If there is no room for all, the first are kept.
    rows_note : origin of these rows.
    """

    title: str
    subtitle: str
    verdict: tuple[str, ...]
    answer: Table
    second: Section | None = None
    pictures: tuple[Chart, ...] = ()
    findings: tuple[ShownFindings, ...] = ()
    below: tuple[str, ...] = ()
    gaps: Table | None = None
    heat: Table | None = None
    rows: tuple[ExampleRow, ...] = ()
    rows_note: str = ""
    details: tuple[Section, ...]
    footer: str

    @property
    def findings_title(self) -> str:
        """Return the title of the findings. Those of a gate, which have no shares, are checks."""
        return "Failure buckets" if self.heat else "Findings"


STATUSES: Mapping[str, Literal["good", "warn", "bad"]] = {
    **dict.fromkeys(("no defects", "accepted", "pass"), "good"),
    **dict.fromkeys(("repair first", "not ranked", "no verdict", "undecided"), "warn"),
    **dict.fromkeys(("do not use", "rejected", "fail"), "bad"),
}
"""Severity of each status word, including those of the gate."""


def each_term_once(sections: Iterable[Section]) -> tuple[Section, ...]:
    """Return the sections with each term explained only once, in the first section that uses it."""
    explained: set[str] = set()
    shortened = []
    for section in sections:
        shortened.append(replace(section, terms=tuple(item for item in section.terms if item[0] not in explained)))
        explained |= {term for term, _ in section.terms}
    return tuple(shortened)


def each_example_once(source: ShownFindings, limit: int = MAX_EXAMPLES) -> ShownFindings:
    """Return a source's findings with up to `limit` examples each, those that an earlier finding shows last."""
    shown: set[tuple[str, int, str]] = set()
    items: list[Item] = []
    for item in source.items:
        examples = sorted(item.examples, key=lambda example: _key(example) in shown)[:limit]
        shown |= set(map(_key, examples))
        items.append(replace(item, examples=tuple(examples)))
    return replace(source, items=tuple(items))


def _key(example: TripletExample) -> tuple[str, int, str]:
    return example.path, example.line, example.negative


def described(items: Iterable[tuple[str, str]]) -> str:
    """Return the text alternative of a chart, with a clause for each of the first names. items: (name, clause)."""
    return "; ".join(
        f"{short(name, MAX_DESCRIBED_CHARACTERS)}: {clause}" for name, clause in islice(items, MAX_DESCRIBED)
    )


def showing_equal_positive(example: TripletExample) -> TripletExample:
    """Return the example. If its negative equals a known labelled positive, that one replaces the scored positive.

    Its cosine is the negative's if the texts are identical, and unknown if they differ in case or spaces.
    """
    text = example.match.text if example.match else ""
    if not text or text == example.positive:
        return example
    cosine = example.s_query_negative if text == example.negative else None
    return replace(example, positive=text, s_query_positive=cosine)


def match_words(match: Match | None) -> str:
    """Return words for the text that an example's negative repeats; "" if it is unknown."""
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
