"""Formats of a result by the suffix of its file: its page as HTML or Markdown, or the result itself as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from secid.pages import html, markdown
from secid.pages.page import Page
from secid.pages.sections import page_of
from secid.results.document import to_json

Result = TypeVar("Result")


def formats(page: Callable[[Result], Page], document: Callable[[Result], str]) -> Mapping[str, Callable[[Result], str]]:
    """The formats of one kind of result, from its page and its JSON document."""
    return {
        ".html": lambda result: html.render(page(result)),
        ".json": document,
        ".md": lambda result: markdown.render(page(result)),
    }


FORMATS = formats(page_of, to_json)
"""Those of a run."""
