"""report.html: one file that asks for nothing, runs nothing, and reads well with its styles off."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from secid.report.content import page_of
from secid.report.foreign import END_ISOLATE, ISOLATE, plain
from secid.report.numerals import fraction, percent, plural
from secid.report.page import Page
from secid.results import Run

if TYPE_CHECKING:
    from jinja2 import Environment

LARGEST_PAGE = 300_000
"""Bytes. Above it examples are shortened, then left out: a page that opens at once is worth more."""
EXAMPLE_LIMITS = (600, 300, 200, 120, 60)
"""Characters of a passage tried in turn until the page fits."""


def to_html(run: Run) -> str:
    """The run as one HTML file, at most LARGEST_PAGE bytes as far as shortening examples can help."""
    return render(page_of(run))


def render(page: Page) -> str:
    """The page with the longest examples that fit; without examples where none fit."""
    for limit in EXAMPLE_LIMITS:
        text = _fill(page, limit)
        if len(text.encode("utf-8")) <= LARGEST_PAGE:
            return text
    return _fill(page, 0)


def _fill(page: Page, example_limit: int) -> str:
    style = files("secid.report").joinpath("templates", "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            style=Markup(style),  # noqa: S704  our own file
            policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
            example_limit=example_limit,
        )
    )


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("secid.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"bdi": _bdi, "plain": plain, "fraction": fraction, "percent": percent}
    environment.globals |= {"plural": plural}
    return environment


def _bdi(text: str) -> Markup:
    """A sentence with its names in elements of their own direction; all of it escaped."""
    return Markup(  # noqa: S704  escaped first
        str(escape(text)).replace(ISOLATE, '<bdi class="name">').replace(END_ISOLATE, "</bdi>")
    )
