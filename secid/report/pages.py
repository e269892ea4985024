"""Writes pages of a run, or of several compared, to files; the suffix picks the format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from secid.errors import OutputError, UsageError
from secid.report.document import to_json
from secid.results import Run


def _html(run: Run) -> str:
    from secid.report.html import to_html

    return to_html(run)


def _markdown(run: Run) -> str:
    from secid.report.markdown import to_markdown

    return to_markdown(run)


FORMATS: Mapping[str, Callable[[Run], str]] = {".html": _html, ".json": to_json, ".md": _markdown}


def check_formats(paths: Iterable[Path]) -> None:
    """Raises UsageError for a file whose suffix names no format, before any work is done."""
    for path in paths:
        if path.suffix not in FORMATS:
            raise UsageError(
                f"no page format has the suffix {path.suffix!r}", where=str(path), remedy=f"use {', '.join(FORMATS)}"
            )


def write_page(run: Run, path: Path) -> None:
    """Writes the page whole or not at all."""
    write_whole(path, FORMATS[path.suffix](run))


def write_comparison(runs: Sequence[tuple[str, Run]], path: Path) -> None:
    """Writes the comparison of named runs whole or not at all."""
    from secid.report.comparison import COMPARISON_FORMATS, compare

    write_whole(path, COMPARISON_FORMATS[path.suffix](compare(runs)))


def labels(paths: Sequence[Path]) -> list[str]:
    """Names to tell runs apart by: the folder's own, or the whole path where two have the same."""
    own = [path.parent.name if path.name == "report.json" else path.name for path in paths]
    return [name if name and own.count(name) == 1 else str(path) for name, path in zip(own, paths, strict=True)]


def write_whole(path: Path, text: str) -> None:
    """Writes a text file under a temporary name, then renames it. Raises OutputError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OutputError(f"cannot be written: {error.strerror}", where=str(path)) from error
