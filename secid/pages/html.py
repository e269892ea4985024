"""report.html: one file that asks for nothing, runs nothing, and reads well with its styles off."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from math import ceil
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from secid.pages.cuts import CHARTS, TABLES, clipped, fit, n_bytes
from secid.pages.numbers import fraction, percent, plural
from secid.pages.page import Column, Page, Table
from secid.pages.sanitize import CODE, END_ISOLATE, ISOLATE, plain, short
from secid.pages.sections import page_of
from secid.results import Run

if TYPE_CHECKING:
    from jinja2 import Environment

LARGEST_PAGE = 300_000
"""Bytes. Above it examples are shortened, then left out, then more: a page that opens at once is worth more."""
LEFT_OUT = "Left out for size:"
ALL = 1_000
EXAMPLE_LIMITS = ((600, ALL), (300, ALL), (200, 2), (200, 1), (120, 1), (60, 1))
"""Characters of a passage and examples of a finding tried in turn until the page fits."""


def to_html(run: Run) -> str:
    """The run as one HTML file, at most LARGEST_PAGE bytes; a line says what was cut for that."""
    return render(page_of(run))


def render(page: Page) -> str:
    """The page with the longest examples that fit; where none fit, tables, charts and sections give way in turn."""
    page = clipped(page)
    whole = _fill(page, *EXAMPLE_LIMITS[0])
    if n_bytes(whole) <= LARGEST_PAGE:
        return whole
    bare = fit(page, lambda page, cut: _fill(page, 0, 0, cut), LARGEST_PAGE, TABLES + CHARTS)
    if LEFT_OUT in bare:
        return bare
    shorter = (_fill(page, *limits) for limits in EXAMPLE_LIMITS[1:])
    return next((text for text in shorter if n_bytes(text) <= LARGEST_PAGE), bare)


def _fill(page: Page, example_limit: int, n_examples: int, cut: Sequence[str] = ()) -> str:
    tables = [part.table for section in page.sections for part in section.parts]
    style = files("secid.pages").joinpath("templates", "page.css").read_text(encoding="utf-8") + fitting(tables)
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            style=Markup(style),  # noqa: S704  our own file
            policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
            example_limit=example_limit,
            n_examples=n_examples,
            left_out=f"{LEFT_OUT} {', '.join(cut)}. report.json holds the rest." if cut else "",
        )
    )


DIGIT_REM, POINT_REM, PADDING_REM = 0.56, 0.28, 1.2
"""Width of a digit, of a point or space, and of a cell's padding at the size that tables have, in a wide font; narrower
ones leave room."""
BOLD = 1.07
"""How much wider letters of a heading are."""
WORDS_REM, LONG_CELL = 9.0, 20
"""Least width of cells of foreign or long texts, and the characters from which a text is long; page.css, page.html."""
POINTS = frozenset(" \u00a0.,:;()|'ijl")
STEP_REM = 2
CHART_REM, LARGEST_CHART_REM, GAP_REM = 20, 28, 2
"""Width of a chart beside its table: as small as on a phone, larger where there is room; and the gap between."""
STACKED = (
    "--block: block; --head: none; --row: grid; --label: block; "
    "--air: .4rem; --pad: .1rem 0; --least: 0; --most: none; --wrap: normal; --side: end"
)


def rem(table: Table) -> int:
    """Width below which a table's rows become lists, in rem, a multiple of STEP_REM: an estimate from its texts."""
    columns = zip(table.columns, zip(*table.rows, strict=True), strict=True) if table.rows else ()
    needed = sum(_column_rem(place, column, cells) + PADDING_REM for place, (column, cells) in enumerate(columns))
    return STEP_REM * ceil((needed - PADDING_REM) / STEP_REM)


def _column_rem(place: int, column: Column, cells: Sequence[str]) -> float:
    word, head = max(map(_longest_word, cells)), min(9.0, BOLD * _longest_word(column.title))
    if place == 0:
        body = min(15.0, max(BOLD * word, 12.0 if max(map(len, cells)) > 20 else 3.0))
    elif column.kind == "number":
        body = max(map(_text_rem, cells))
    else:
        body = max(6.5, word) if column.kind == "wrapped" else _words_rem(column, cells)
    return max(3.0, head, body)


def _words_rem(column: Column, cells: Sequence[str]) -> float:
    """Width of a column of words: where page.css gives its cells a least width, that."""
    least = column.kind == "foreign" or max(map(len, cells)) > LONG_CELL
    return WORDS_REM if least else min(WORDS_REM, max(map(_text_rem, cells)))


def _longest_word(text: str) -> float:
    return max(map(_text_rem, re.split("[ \n-]", text)))


def _text_rem(text: str) -> float:
    return sum(POINT_REM if char in POINTS else DIGIT_REM for char in text)


def fitting(tables: Sequence[Table]) -> str:
    """The rules by which charts and tables of these widths stand beside or above each other, as tables or lists."""
    return "".join(
        f"@container (width < {width}rem) {{ .w{width} {{ {STACKED} }} }}\n"
        f"@container (width >= {width + GAP_REM + CHART_REM}rem) {{ .p{width} {{ {_beside(width)} }} }}\n"
        for width in sorted({rem(table) for table in tables})
    )


def _beside(width: int) -> str:
    columns = f"minmax({CHART_REM}rem, {LARGEST_CHART_REM}rem) minmax({width}rem, 1fr)"
    return f"--columns: {columns}; --second: 2; --both: 1 / span 2"


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
        "plain": plain,
        "fraction": fraction,
        "percent": percent,
        "direction": _direction,
        "rem": rem,
        "short": short,
    }
    environment.globals |= {"plural": plural, "all": ALL}
    return environment


def _bdi(text: str) -> Markup:
    """A sentence with its names in elements of their own direction, and its code as code; all of it escaped."""
    return Markup(  # noqa: S704  escaped first
        CODE.sub(r"<code>\1</code>", str(escape(text)))
        .replace(ISOLATE, '<bdi class="name">')
        .replace(END_ISOLATE, "</bdi>")
    )


def _direction(cell: str, kind: str) -> str | None:
    """The direction of a cell: foreign text has its own, names within a sentence of ours theirs."""
    return "auto" if kind == "foreign" and ISOLATE not in cell else None
