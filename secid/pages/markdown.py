"""report.md: the run for a pull request or a step summary. Foreign text cannot act as markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from secid.pages.cuts import EXAMPLES, TABLES, clipped, fit, hard_cut
from secid.pages.glossary import DRAWN
from secid.pages.numbers import fraction, listed, plural
from secid.pages.page import Cases, Page, Part, Section, Table
from secid.pages.sanitize import END_ISOLATE, ISOLATE, short
from secid.pages.sanitize import markdown as safe
from secid.pages.sanitize import markdown_html as safe_html
from secid.pages.sanitize import markdown_sentence as told
from secid.pages.sections import page_of
from secid.results import Run, TripletExample

LARGEST_PAGE = 60_000
"""Bytes: GitHub takes 65,536 characters of a comment, and a step summary may hold several reports."""
EXAMPLE_CHARACTERS, MOST_TERMS = 200, 8
CUT_NOTE = "\n\nThe rest is cut for size; report.html and report.json hold it.\n"


def to_markdown(run: Run) -> str:
    """The page as Markdown, at most LARGEST_PAGE bytes; a line says what was cut for that."""
    return render(page_of(run))


def render(page: Page) -> str:
    """The page with as much as fits: fewer examples go first, then all, folded tables, rows, explanations, sections."""
    text = fit(clipped(page), _fill, LARGEST_PAGE, EXAMPLES + TABLES)
    return hard_cut(text, LARGEST_PAGE, CUT_NOTE)


def _fill(page: Page, cut: Sequence[str]) -> str:
    parts = [
        f"# {safe(page.title)}",
        safe(page.subtitle),
        "\n".join(f"{number}. **{safe(label)}.** {told(text)}" for number, (label, text) in enumerate(page.verdict, 1)),
        f"**Settings.** {told(page.settings)}" if page.settings else "",
        f"> {safe(page.caution)}",
        *(block for section in page.sections for block in _section(section)),
        f"Left out for size: {safe(', '.join(cut))}. report.html and report.json hold the rest." if cut else "",
        _not_here(page),
        safe(page.footer),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _not_here(page: Page) -> str:
    """What the HTML page has and Markdown cannot show."""
    parts = [part for section in page.sections for part in section.parts]
    kinds = {
        re.sub(f"{ISOLATE}.*{END_ISOLATE}", "each source", part.table.caption) for part in parts if part.table.drawn
    }
    left_out = [
        *(["the charts"] if any(part.chart for part in parts) else []),
        *(["the shades of tables"] if any(any(map(any, part.table.shades)) for part in parts) else []),
        *(f"“{caption}”" for caption in sorted(kinds)),
    ]
    return f"On the HTML page alone: {safe(listed(left_out, len(left_out)))}." if left_out else ""


def _section(section: Section) -> list[str]:
    blocks = [
        f"## {safe(section.title)}",
        *map(told, section.paragraphs),
        "\n".join(f"- {told(bullet)}" for bullet in section.bullets),
        *(block for part in section.parts for block in _part(part)),
        _folded(
            "What the numbers mean",
            "\n".join(f"- **{safe(term)}**: {safe(meaning)}" for term, meaning in section.terms if term not in DRAWN),
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
    return "\n".join(_line(cells) for cells in (head, ruler, *(map(_cell, row) for row in shown.rows)))


DIGEST = re.compile(r"[0-9a-f]{7,64}")


def _cell(text: str) -> str:
    """A cell as `safe`. A hash stands whole, as code: sites make no link of that."""
    return f"`{text}`" if DIGEST.fullmatch(text) and not text.isdigit() else safe(text)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _folded(summary: str, body: str) -> str:
    """HTML that GitHub folds; elsewhere the body stands open."""
    return f"<details><summary>{safe_html(summary, 100)}</summary>\n\n{body}\n\n</details>" if body else ""


def _case(case: Cases) -> str:
    lines = [f"- {safe(case.finding)} ({plural(case.n_negatives, 'negative')})"]
    return "\n".join([*lines, *map(_example, case.examples)])


def _example(item: TripletExample) -> str:
    texts = (("query", item.query), ("positive", item.positive), ("negative", item.negative))
    lines = [f"  - {name}: {safe(text, EXAMPLE_CHARACTERS)}" for name, text in texts if text]
    terms = ", ".join(f"{safe(word, 30)} {idf:.1f}" for word, idf in item.matched_terms[:MOST_TERMS])
    numbers = f"{_numbers(item)}; " if item.consistency is not None else ""
    lines.append(f"  - {numbers}line {item.line} of {safe(short(item.path))}")
    lines += [f"  - words of the query in the negative, with IDF: {terms}"] if terms else []
    return "\n".join(lines)


def _numbers(item: TripletExample) -> str:
    gates = f"π {fraction(item.consistency)}, ρ {fraction(item.locality)}, c {fraction(item.coverage)}"
    cosines = ", ".join(map(fraction, (item.s_query_positive, item.s_query_negative, item.s_positive_negative)))
    return (
        f"{gates}, weight {fraction(item.weight)}; cosines query–positive, query–negative, positive–negative {cosines}"
    )
