"""Writes a page of a run to a file; the suffix picks the format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from secid.errors import OutputError, UsageError
from secid.report.document import to_json
from secid.report.markdown import to_markdown
from secid.results import Run

FORMATS: Mapping[str, Callable[[Run], str]] = {".json": to_json, ".md": to_markdown}


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


def write_whole(path: Path, text: str) -> None:
    """Writes a text file under a temporary name, then renames it. Raises OutputError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OutputError(f"cannot be written: {error.strerror}", where=str(path)) from error
