"""Formats of a result by the suffix of its file: its page as HTML or Markdown, or the result itself as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from secid.pages import html, markdown
from secid.pages.page import Page
from secid.pages.sections import page_of
from secid.results import Run
from secid.results.document import to_json
from secid.results.probe import Probe

Result = TypeVar("Result")


def formats(page: Callable[[Result], Page], document: Callable[[Result], str]) -> Mapping[str, Callable[[Result], str]]:
    """The formats of one kind of result, from its page and its JSON document."""
    return {
        ".html": lambda result: html.render(page(result)),
        ".json": document,
        ".md": lambda result: markdown.render(page(result)),
    }


def run_formats(probe: Probe | None) -> Mapping[str, Callable[[Run], str]]:
    """Those of a run, with its probe on the pages; the JSON document is the run's alone."""
    return formats(lambda run: page_of(run, probe), to_json)


FORMATS = run_formats(None)
"""Those of a run without a probe."""
