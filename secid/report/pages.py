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


def check_writable(paths: Iterable[Path]) -> None:
    """Raises OutputError for a file that could not be written, before any work is done."""
    for path in paths:
        if path.is_dir():
            raise OutputError("is a folder", where=str(path), remedy="name a file in it")
        if not path.parent.is_dir():
            raise OutputError("its folder is not there", where=str(path), remedy=f"make {path.parent} first")
        try:
            with _partial(path).open("x"):
                pass
            _partial(path).unlink()
        except OSError as error:
            raise OutputError(f"cannot be written: {error.strerror}", where=str(path)) from error


def _partial(path: Path) -> Path:
    """A name beside the file that it has until it is whole."""
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


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
    partial = _partial(path)
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OutputError(f"cannot be written: {error.strerror}", where=str(path)) from error
