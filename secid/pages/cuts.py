"""What goes first where a page is too large: the page of any run fits, and says what it leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from secid.pages.page import Cases, Page, Part, Section, Table
from secid.pages.sanitize import END_ISOLATE, ISOLATE

MOST_ROWS = 40
"""Rows a table keeps once a page is too large."""
CELL_LIMIT, SENTENCE_LIMIT = 300, 2_000
"""Characters of a cell and of a sentence on any page: ours are shorter, foreign ones may have any length."""


class Cut(NamedTuple):
    """One step by which a page gets smaller. name: what it leaves out, in place of an earlier cut of the same group."""

    group: str
    name: str
    smaller: Callable[[Section], Section]


Cuts = tuple[Cut, ...]
Fill = Callable[[Page, Sequence[str]], str]


def _fewer_rows(section: Section) -> Section:
    parts = tuple(
        replace(part, table=replace(part.table, rows=part.table.rows[:MOST_ROWS], shades=part.table.shades[:MOST_ROWS]))
        for part in section.parts
    )
    return replace(section, parts=parts, bullets=section.bullets[:MOST_ROWS])


def _examples(
    n_examples: int, n_characters: int | None = None, n_findings: int | None = None
) -> Callable[[Section], Section]:
    """Keeps so many examples of a finding, characters of a passage, and findings of a source."""

    def smaller(section: Section) -> Section:
        kept: dict[str, list[Cases]] = {}
        for case in section.cases:
            kept.setdefault(case.source, []).append(case)
        cases = [case for own in kept.values() for case in own[:n_findings]]
        return replace(section, cases=tuple(_shorter(case, n_examples, n_characters) for case in cases))

    return smaller


def _shorter(case: Cases, n_examples: int, n_characters: int | None) -> Cases:
    examples = case.examples[:n_examples]
    return replace(
        case,
        examples=tuple(
            replace(
                item,
                query=_clip(item.query, n_characters),
                positive=_clip(item.positive, n_characters),
                negative=_clip(item.negative, n_characters),
            )
            for item in examples
        ),
    )


FEW_CHARACTERS = 100
EXAMPLES: Cuts = (
    Cut(
        "describing",
        "examples of findings without a limit",
        lambda section: replace(section, cases=tuple(case for case in section.cases if not case.describes)),
    ),
    *(Cut("examples", f"examples after the first {n} of each finding", _examples(n)) for n in (5, 3, 2)),
    Cut("examples", "examples after the first of each finding", _examples(1)),
    Cut(
        "examples",
        f"examples after the first of each finding, passages after {FEW_CHARACTERS} characters",
        _examples(1, FEW_CHARACTERS),
    ),
    *(
        Cut("examples", f"all examples but one of {which} of a source", _examples(1, FEW_CHARACTERS, n))
        for n, which in ((3, "each of the first 3 findings"), (1, "the first finding"))
    ),
    Cut("examples", "examples", lambda section: replace(section, cases=())),
)
TABLES: Cuts = (
    Cut(
        "folded",
        "folded tables",
        lambda section: replace(section, parts=tuple(part for part in section.parts if not part.table.folded)),
    ),
    Cut("rows", f"rows after the first {MOST_ROWS} of each table and list", _fewer_rows),
    Cut("explanations", "explanations", lambda section: replace(section, terms=())),
)
CHARTS: Cuts = (
    Cut(
        "charts",
        "charts",
        lambda section: replace(section, parts=tuple(replace(part, chart=None, note="") for part in section.parts)),
    ),
)


def fit(page: Page, fill: Fill, limit: int, cuts: Cuts) -> str:
    """The page as text of at most limit bytes, as far as leaving out cuts in turn and then sections from the end
    helps. fill: makes the text of a page and of the names of what was cut.
    """
    text = fill(page, ())
    if n_bytes(text) <= limit:
        return text
    steps = list(_steps(page, cuts))
    low, high = 0, len(steps)  # each step is smaller than the one before it, so few are ever filled
    while low < high:
        middle = (low + high) // 2
        tried = fill(*steps[middle])
        if n_bytes(tried) <= limit:
            high, text = middle, tried
        else:
            low = middle + 1
    return text if high < len(steps) else fill(*steps[-1]) if steps else text


def _steps(page: Page, cuts: Cuts) -> Iterator[tuple[Page, tuple[str, ...]]]:
    """The page ever smaller, and what was cut; a cut that finds nothing to leave out is none."""
    cut: dict[str, str] = {}
    for group, name, smaller in cuts:
        sections = tuple(smaller(section) for section in page.sections)
        if sections != page.sections:
            page, cut[group] = replace(page, sections=sections), name
            yield page, tuple(cut.values())
    while page.sections:
        cut[page.sections[-1].anchor] = f"section “{page.sections[-1].title}”"
        page = replace(page, sections=page.sections[:-1])
        yield page, tuple(cut.values())


def n_bytes(text: str) -> int:
    """Bytes that the text takes in a file."""
    return len(text.encode("utf-8"))


def clipped(page: Page) -> Page:
    """The page with every cell and sentence of bounded length; no longer one is ours."""
    return replace(
        page,
        subtitle=_clip(page.subtitle),
        verdict=tuple((label, _clip(sentence)) for label, sentence in page.verdict),
        settings=_clip(page.settings),
        sections=tuple(
            replace(
                section,
                paragraphs=tuple(map(_clip, section.paragraphs)),
                bullets=tuple(map(_clip, section.bullets)),
                parts=tuple(_part(part) for part in section.parts),
            )
            for section in page.sections
        ),
    )


def _part(part: Part) -> Part:
    table: Table = part.table
    rows = tuple(tuple(_clip(cell, CELL_LIMIT) for cell in row) for row in table.rows)
    columns = tuple(replace(column, title=_clip(column.title, CELL_LIMIT)) for column in table.columns)
    return replace(part, table=replace(table, caption=_clip(table.caption, CELL_LIMIT), columns=columns, rows=rows))


def _clip(text: str, limit: int | None = SENTENCE_LIMIT) -> str:
    """The text cut to limit characters; a name that is cut ends its isolate."""
    if limit is None or len(text) <= limit:
        return text
    kept = text[: limit - 1]
    return f"{kept}{END_ISOLATE * (kept.count(ISOLATE) - kept.count(END_ISOLATE))}…"


def hard_cut(text: str, limit: int, note: str) -> str:
    """The text cut at a line so that it fits limit bytes, with a note; "" where not even the note does."""
    if n_bytes(text) <= limit:
        return text
    room = limit - n_bytes(note)
    if room < 0:
        return ""
    part = text.encode("utf-8")[:room].decode("utf-8", "ignore")
    return part[: part.rfind("\n") + 1] + note
