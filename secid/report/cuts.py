"""What goes first where a page is too large: the page of any run fits, and says what it leaves out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from secid.report.foreign import END_ISOLATE, ISOLATE
from secid.report.page import Page, Part, Section, Table

MOST_ROWS = 40
"""Rows a table keeps once a page is too large."""
CELL_LIMIT, SENTENCE_LIMIT = 300, 2_000
"""Characters of a cell and of a sentence on any page: ours are shorter, foreign ones may have any length."""

Cuts = tuple[tuple[str, Callable[[Section], Section]], ...]
Fill = Callable[[Page, Sequence[str]], str]


def _fewer_rows(section: Section) -> Section:
    parts = tuple(
        replace(part, table=replace(part.table, rows=part.table.rows[:MOST_ROWS], shades=part.table.shades[:MOST_ROWS]))
        for part in section.parts
    )
    return replace(section, parts=parts, bullets=section.bullets[:MOST_ROWS])


EXAMPLES: Cuts = (("examples", lambda section: replace(section, cases=())),)
TABLES: Cuts = (
    (
        "folded tables",
        lambda section: replace(section, parts=tuple(part for part in section.parts if not part.table.folded)),
    ),
    (f"rows after the first {MOST_ROWS} of each table", _fewer_rows),
    ("explanations", lambda section: replace(section, terms=())),
)
CHARTS: Cuts = (
    (
        "charts",
        lambda section: replace(section, parts=tuple(replace(part, chart=None, note="") for part in section.parts)),
    ),
)


def fit(page: Page, fill: Fill, limit: int, cuts: Cuts) -> str:
    """The page as text of at most limit bytes, as far as leaving out cuts in turn and then sections from the end
    helps. fill: makes the text of a page and of the names of what was cut.
    """
    cut: list[str] = []
    text = fill(page, cut)
    for name, smaller in cuts:
        if n_bytes(text) <= limit:
            return text
        page = replace(page, sections=tuple(smaller(section) for section in page.sections))
        cut.append(name)
        text = fill(page, cut)
    while n_bytes(text) > limit and page.sections:
        cut.append(f"section “{page.sections[-1].title}”")
        page = replace(page, sections=page.sections[:-1])
        text = fill(page, cut)
    return text


def n_bytes(text: str) -> int:
    """Bytes that the text takes in a file."""
    return len(text.encode("utf-8"))


def clipped(page: Page) -> Page:
    """The page with every cell and sentence of bounded length; no longer one is ours."""
    return replace(
        page,
        subtitle=_clip(page.subtitle),
        verdict=tuple((label, _clip(sentence)) for label, sentence in page.verdict),
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


def _clip(text: str, limit: int = SENTENCE_LIMIT) -> str:
    """The text cut to limit characters; a name that is cut ends its isolate."""
    if len(text) <= limit:
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
