"""Formats of a result by the name of its file: its page as HTML or Markdown, the result as JSON, or its metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from secid.analyses.report import to_json
from secid.pages import html, markdown
from secid.pages.page import Page
from secid.pages.sections import page_of
from secid.records import encodable
from secid.results import Run
from secid.results.probe import Probe

Result = TypeVar("Result")


def formats(page: Callable[[Result], Page], document: Callable[[Result], str]) -> Mapping[str, Callable[[Result], str]]:
    """The formats of one kind of result, from its page and its JSON document."""
    return {
        ".html": lambda result: html.render(page(result)),
        ".json": document,
        ".md": lambda result: markdown.render(page(result)),
    }


METRICS = "metrics.json"
"""Name of a file of metrics, or its end after a dot."""


def format_of(path: Path) -> str:
    """The format that the name of a file picks: its suffix, or METRICS."""
    return METRICS if f".{path.name}".endswith(f".{METRICS}") else path.suffix


def run_formats(probe: Probe | None) -> Mapping[str, Callable[[Run], str]]:
    """Those of a run, with its probe on the pages; the JSON document is the run's alone."""
    return formats(lambda run: page_of(run, probe), to_json)


FORMATS = run_formats(None)
"""Those of a run without a probe, which its folder has."""
OF_METRICS: Mapping[str, Callable[[Run], str]] = {
    METRICS: lambda run: encodable(json.dumps(run.metrics(), indent=2, ensure_ascii=False)) + "\n"
}
