"""A page as one HTML file: no request, no script but page.js, and readable without script and style."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import takewhile
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from secid.pages.findings import match_words
from secid.pages.page import STATUSES, Item, Page, ShownFindings
from secid.pages.text import CODE, END_ISOLATE, ISOLATE, fraction, plain, plural, short
from secid.results import TripletExample

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_EXAMPLES = 3
"""Of a finding of a source; the rest is `secid flagged`'s."""
MOST_OPEN = 3
"""Findings of a source that its command repairs and that stand open; the others are folded under their names."""
MOST_CHARACTERS = 2_000
"""Of a passage or a sentence. Ours are shorter; untrusted ones may have any length."""
CLAMPED_CHARACTERS = 150
"""Characters that every passage shows on a wide screen before its text is clamped; page.css sets the lines."""
RARE_WORD = 3.0
"""IDF from which a word shared with the query is marked: below it, one text in eight has the word."""
LONG_WORD = 4
"""Characters from which a shared word is marked where no IDF is known."""


def render(page: Page, *, framed: bool = False) -> str:
    """The page as one HTML file. Every text in it is escaped.

    framed : without links to its sections, which in the srcdoc of a frame lead to the document around it.
    """
    style, script = _own("page.css"), _own("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            groups=_groups([*map(_each_example_once, page.findings)]),
            style=Markup(style),  # noqa: S704  our own file
            script=Markup(script),  # noqa: S704  our own file
            policy=policy,
            links=[] if framed else _links(page),
            commands={item.source: item.command for item in page.findings if item.command},
        )
    )


@cache
def _own(name: str) -> str:
    return files("secid.pages").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What a content security policy allows: exactly this style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _links(page: Page) -> list[tuple[str, str]]:
    """(anchor, words) of the parts that the page has."""
    parts = (
        ("verdict", "Verdict", True),
        *([(page.second.anchor, page.second.link, True)] if page.second else []),
        ("charts", "Charts", page.pictures),
        ("findings", "Findings", page.findings),
        ("controls", "Controls", page.controls),
        ("shares", "All findings", page.heat),
        ("details", "Method and diagnostics", page.details),
    )
    return [(anchor, title) for anchor, title, shown in parts if shown]


def _each_example_once(source: ShownFindings) -> ShownFindings:
    """The source with examples that an earlier finding of it shows at the end of a later one's."""
    shown: set[tuple[str, int, str]] = set()
    items: list[Item] = []
    for item in source.items:
        examples = sorted(item.examples, key=lambda example: _key(example) in shown)[:MOST_EXAMPLES]
        shown |= {_key(example) for example in examples}
        items.append(replace(item, examples=tuple(examples)))
    return replace(source, items=tuple(items))


def _groups(findings: Sequence[ShownFindings]) -> list[tuple[ShownFindings, tuple[Item, ...], tuple[Item, ...]]]:
    """Each source with the findings that stand open and those that are folded.

    Open are those that the source's own command repairs, but few; without any the first, unless a source above has it
    open.
    """
    groups, seen = [], set[str]()
    for source in findings:
        repaired = takewhile(lambda item: source.command and not item.command, source.items)  # noqa: B023  read at once
        n = min(MOST_OPEN, sum(1 for _ in repaired)) or int(source.items[0].name not in seen)
        seen |= {item.name for item in source.items[:n]}
        groups.append((source, source.items[:n], source.items[n:]))
    return groups


def _key(example: TripletExample) -> tuple[str, int, str]:
    return example.path, example.line, example.negative


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("secid.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "bdi": _bdi,
        "direction": _direction,
        "breakable": _breakable,
        "fraction": fraction,
        "is_long": _is_long,
        "marked": _marked,
        "match": match_words,
        "plain": plain,
        "shared_words": shared_words,
        "short": short,
    }
    environment.globals |= {"plural": plural, "statuses": STATUSES}
    return environment


def _bdi(text: str) -> Markup:
    """A sentence with its names in elements of their own direction, and its code as code; all of it escaped."""
    if len(text) > MOST_CHARACTERS:
        text = text[: MOST_CHARACTERS - 1]
        text = f"{text}{END_ISOLATE * (text.count(ISOLATE) - text.count(END_ISOLATE))}…"
    return Markup(  # noqa: S704  escaped first
        CODE.sub(r"<code>\1</code>", str(escape(text)))
        .replace(ISOLATE, '<bdi class="name">')
        .replace(END_ISOLATE, "</bdi>")
    )


def _breakable(cell: Markup) -> Markup:
    """A cell whose names may break after an underscore."""
    return cell.replace("_", Markup("_<wbr>"))


def _direction(cell: str, kind: str) -> str | None:
    """The direction of a cell: untrusted text has its own, names within a sentence of ours theirs."""
    return "auto" if kind == "foreign" and ISOLATE not in cell else None


def _is_long(example: TripletExample) -> bool:
    """Whether the page may clamp a text of the example."""
    return max(map(len, (example.query, example.positive, example.negative))) > CLAMPED_CHARACTERS


def shared_words(example: TripletExample) -> tuple[str, ...]:
    """Words of the query that the negative repeats and that are worth marking."""
    if example.matched_terms:
        return tuple(word for word, idf in example.matched_terms if word and idf >= RARE_WORD)
    query, negative = (set(re.findall(r"\w+", text.casefold())) for text in (example.query, example.negative))
    return tuple(sorted(word for word in query & negative if len(word) >= LONG_WORD))


def _marked(text: str, words: Sequence[str]) -> Markup:
    """The text with these words marked wherever they occur; all of it escaped."""
    text = plain(text, MOST_CHARACTERS)
    if not words:
        return escape(text)
    parts = re.split(f"({'|'.join(map(_pattern, sorted(words, key=len, reverse=True)))})", text, flags=re.IGNORECASE)
    return Markup("").join(_alternate(parts))


def _pattern(word: str) -> str:
    """The word with borders, but in scripts without case, which may have no spaces."""
    return rf"(?<!\w){re.escape(word)}(?!\w)" if word.lower() != word.upper() or word.isdigit() else re.escape(word)


def _alternate(parts: Iterable[str]) -> Iterable[Markup]:
    """What a split gave: text and matches in turn."""
    for place, part in enumerate(parts):
        yield Markup("<mark>{}</mark>").format(part) if place % 2 else escape(part)
