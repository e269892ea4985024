"""report.md: the run for a pull request or a step summary. Foreign text cannot act as markup."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from secid.report.content import page_of
from secid.report.foreign import markdown as safe
from secid.report.foreign import short
from secid.report.numerals import fraction, plural
from secid.report.page import Cases, Page, Part, Section, Table
from secid.results import Run, TripletExample

LARGEST_PAGE = 60_000
"""Bytes: GitHub takes 65,536 characters of a comment, and a step summary may hold several reports."""
EXAMPLE_CHARACTERS, MOST_TERMS = 200, 8
MOST_ROWS = 40
"""Rows a table keeps once a page is too large."""


def to_markdown(run: Run) -> str:
    """The page as Markdown, at most LARGEST_PAGE bytes; a line says what was cut for that."""
    return render(page_of(run))


def render(page: Page) -> str:
    """The page with as much as fits: examples go first, then folded tables, explanations, and rows."""
    cut: list[str] = []
    text = _fill(page, cut)
    for name, smaller in CUTS:
        if len(text.encode("utf-8")) <= LARGEST_PAGE:
            break
        page = replace(page, sections=tuple(smaller(section) for section in page.sections))
        cut.append(name)
        text = _fill(page, cut)
    while len(text.encode("utf-8")) > LARGEST_PAGE and len(page.sections) > 1:
        cut.append(f"section “{page.sections[-1].title}”")
        page = replace(page, sections=page.sections[:-1])
        text = _fill(page, cut)
    return text


def _fewer_rows(section: Section) -> Section:
    parts = tuple(
        replace(part, table=replace(part.table, rows=part.table.rows[:MOST_ROWS], shades=part.table.shades[:MOST_ROWS]))
        for part in section.parts
    )
    return replace(section, parts=parts, bullets=section.bullets[:MOST_ROWS])


CUTS: tuple[tuple[str, Callable[[Section], Section]], ...] = (
    ("examples", lambda section: replace(section, cases=())),
    (
        "folded tables",
        lambda section: replace(section, parts=tuple(part for part in section.parts if not part.table.folded)),
    ),
    (f"rows after the first {MOST_ROWS} of each table", _fewer_rows),
    ("explanations", lambda section: replace(section, terms=())),
)


def _fill(page: Page, cut: Sequence[str]) -> str:
    parts = [
        f"# {safe(page.title)}",
        safe(page.subtitle),
        "\n".join(f"{number}. **{safe(label)}.** {safe(text)}" for number, (label, text) in enumerate(page.verdict, 1)),
        f"> {safe(page.caution)}",
        *(block for section in page.sections for block in _section(section)),
        f"Left out for size: {safe(', '.join(cut))}. report.html and report.json hold the rest." if cut else "",
        safe(page.footer),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section) -> list[str]:
    blocks = [
        f"## {safe(section.title)}",
        *map(safe, section.paragraphs),
        "\n".join(f"- {safe(bullet)}" for bullet in section.bullets),
        *(block for part in section.parts for block in _part(part)),
        _folded(
            "What the numbers mean",
            "\n".join(f"- **{safe(term)}**: {safe(meaning)}" for term, meaning in section.terms),
        ),
    ]
    for source in dict.fromkeys(case.source for case in section.cases):
        cases = [case for case in section.cases if case.source == source]
        blocks.append(_folded(f"Examples: {source}", "\n".join(_case(case) for case in cases)))
    return blocks


def _part(part: Part) -> list[str]:
    if part.table.drawn:
        return []
    body = table(part.table)
    if part.table.folded:
        return [_folded(part.table.caption, body)]
    return (
        [f"**{safe(part.table.caption)}**", body, safe(part.note)]
        if part.chart is None
        else [f"**{safe(part.table.caption)}**", body]
    )


def table(shown: Table) -> str:
    """A Markdown table. No rows, no text."""
    head = [safe(column.title) for column in shown.columns]
    ruler = ["---:" if column.kind in ("number", "wrapped") else "---" for column in shown.columns]
    return "\n".join(_line(cells) for cells in (head, ruler, *(map(safe, row) for row in shown.rows)))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _folded(summary: str, body: str) -> str:
    """HTML that GitHub folds; elsewhere the body stands open."""
    return f"<details><summary>{safe(summary, 100)}</summary>\n\n{body}\n\n</details>" if body else ""


def _case(case: Cases) -> str:
    lines = [f"- {safe(case.bucket)} ({safe(case.rule)}; {plural(case.n_triplets, 'negative')})"]
    return "\n".join([*lines, *(_example(item) for item in case.examples[:1])])


def _example(item: TripletExample) -> str:
    texts = (("query", item.query), ("positive", item.positive), ("negative", item.negative))
    told = "\n".join(f"  - {name}: {safe(text, EXAMPLE_CHARACTERS)}" for name, text in texts)
    gates = f"π {fraction(item.consistency)}, ρ {fraction(item.locality)}, c {fraction(item.coverage)}"
    cosines = ", ".join(map(fraction, (item.s_query_positive, item.s_query_negative, item.s_positive_negative)))
    terms = ", ".join(f"{safe(word, 30)} {idf:.1f}" for word, idf in item.matched_terms[:MOST_TERMS])
    shared = f"\n  - words of the query in the negative, with IDF: {terms}" if terms else ""
    numbers = (
        f"{gates}, weight {fraction(item.weight)}; cosines query–positive, query–negative, positive–negative {cosines}"
    )
    return f"{told}\n  - {numbers}; line {item.line} of {safe(short(item.path))}{shared}"
