"""report.md: the page for a pull request or a step summary. Untrusted text cannot act as markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from secid.pages.findings import match_words
from secid.pages.page import Item, Page, Section, ShownFindings, Table
from secid.pages.text import fraction, markdown_code, plain, plural, short
from secid.pages.text import markdown as safe
from secid.pages.text import markdown_html as safe_html
from secid.pages.text import markdown_sentence as sentence_of
from secid.results import TripletExample

LARGEST_PAGE = 60_000
"""Bytes: GitHub takes 65,536 characters of a comment, and a step summary may hold several reports."""
ASKED = frozenset({"guide", "early", "ablations", "slices", "objectives"})
"""Anchors of the sections that a flag asks for."""
EXAMPLE_CHARACTERS, SHOWN_EXAMPLES = 200, 2
"""Characters of a passage, and examples of a finding; report.html shows more."""
SENTENCE_CHARACTERS, CELL_CHARACTERS = 2_000, 300
"""Of any sentence and cell: ours are shorter, untrusted ones may have any length."""
CUT_NOTE = "\n\nThe rest is cut for size; the HTML page has it.\n"
METHOD = "Method and diagnostics"
DIGEST = re.compile(r"[0-9a-f]{7,64}")


def render(page: Page) -> str:
    """The page in at most LARGEST_PAGE bytes. Where it is larger the examples go, then the largest details; what a flag
    asked for stays.
    """
    text, smaller = _fill(page), _smaller(page)
    while len(text.encode()) > LARGEST_PAGE and (part := next(smaller, None)):
        missing = ["Examples"] if part.findings != page.findings else []
        missing += [section.title for section in page.details if section not in part.details]
        text = f"{_fill(part)}\nLeft out for size: {safe(', '.join(missing))}. The HTML page has it.\n"
    return hard_cut(text, LARGEST_PAGE, CUT_NOTE)


def _smaller(page: Page) -> Iterator[Page]:
    """The page without examples, then without its largest section that no flag asked for, and so on."""
    short_page = replace(page, findings=tuple(map(_without_examples, page.findings)))
    if short_page != page:
        yield short_page
    spare = [section for section in page.details if section.anchor not in ASKED]
    for section in sorted(spare, key=lambda section: -len("".join(_section(section)).encode())):
        short_page = replace(short_page, details=tuple(own for own in short_page.details if own is not section))
        yield short_page


def _without_examples(group: ShownFindings) -> ShownFindings:
    return replace(group, items=tuple(replace(item, examples=()) for item in group.items))


def _fill(page: Page) -> str:
    headline, *others = page.verdict
    parts = [
        f"# {safe(page.title)}",
        _sentence(page.subtitle),
        f"**{_sentence(headline)}**",
        *map(_sentence, others),
        table(page.answer),
        *_open(page.second),
        *(["## Findings"] if page.findings else []),
        *(block for group in page.findings for block in _source(group)),
        *([f"**Controls.** {_sentence(page.controls)}"] if page.controls else []),
        *([f"**{_sentence(page.heat.caption)}**", table(page.heat)] if page.heat else []),
        *([f"## {METHOD}"] if page.details else []),
        *(block for section in page.details for block in _section(section)),
        safe(page.footer),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _source(group: ShownFindings) -> list[str]:
    """The findings of one source, the repair after its name."""
    blocks = [f"### {safe(group.source)}: {safe(group.status)}", code_block(group.command)]
    for item in group.items:
        blocks += [
            f"- **{safe(item.name)}**: {_sentence(item.sentence)}",
            code_block(item.command or item.rows),
            _examples(item),
        ]
    return blocks


def _examples(item: Item) -> str:
    shown = item.examples[:SHOWN_EXAMPLES]
    return _folded(plural(len(shown), "example"), "\n".join(map(_example, shown)))


def _example(item: TripletExample) -> str:
    texts = (("query", item.query), ("positive", item.positive), ("negative", item.negative))
    match = match_words(item.match)
    lines = [f"- {safe(short(item.path))}, line {item.line}{f': {safe(match)}' if match else ''}{_cosines(item)}"]
    lines += [f"  - {name}: {safe(text, EXAMPLE_CHARACTERS)}" for name, text in texts if text]
    return "\n".join(lines)


def _cosines(item: TripletExample) -> str:
    if item.s_query_positive is None:
        return ""
    positive, negative = fraction(item.s_query_positive), fraction(item.s_query_negative)
    return f"; cosine to the query: positive {positive}, negative {negative}"


def _open(section: Section | None) -> list[str]:
    """A section whose tables are not folded; nothing for none."""
    if section is None:
        return []
    return [f"## {safe(section.title)}", *map(_sentence, section.paragraphs), *map(table, section.tables)]


def _section(section: Section) -> list[str]:
    return [
        f"### {safe(section.title)}",
        *map(_sentence, section.paragraphs),
        "\n".join(f"- {_sentence(bullet)}" for bullet in section.bullets),
        *(_folded(item.caption, table(item)) for item in section.tables),
        _folded("Terms", "\n".join(f"- **{safe(term)}**: {safe(meaning)}" for term, meaning in section.terms)),
    ]


def table(shown: Table) -> str:
    """A Markdown table. No rows, no text."""
    head = [safe(column.title, CELL_CHARACTERS) for column in shown.columns]
    ruler = ["---:" if column.kind in ("number", "wrapped") else "---" for column in shown.columns]
    return "\n".join(_line(cells) for cells in (head, ruler, *(map(_cell, row) for row in shown.rows)))


def code_block(text: str) -> str:
    """A command to copy; "" for none."""
    line = plain(text)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence}sh\n{line}\n{fence}" if text else ""


def _cell(text: str) -> str:
    """A cell with its code as code. A hash stays whole, as code: sites make no link of that."""
    is_digest = DIGEST.fullmatch(text) and not text.isdigit()
    return markdown_code(text) if is_digest else sentence_of(_clip(text, CELL_CHARACTERS))


def _sentence(text: str) -> str:
    return sentence_of(_clip(text, SENTENCE_CHARACTERS))


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _folded(summary: str, body: str) -> str:
    """HTML that GitHub folds; elsewhere the body is open."""
    return f"<details><summary>{safe_html(summary, 100)}</summary>\n\n{body}\n\n</details>" if body else ""


def hard_cut(text: str, limit: int, note: str) -> str:
    """The text cut at a line so that it fits limit bytes, with a note; "" where not even the note does."""
    whole = text.encode()
    if len(whole) <= limit:
        return text
    room = limit - len(note.encode())
    if room < 0:
        return ""
    part = whole[:room].decode("utf-8", "ignore")
    return part[: part.rfind("\n") + 1] + note
