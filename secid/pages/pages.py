"""Writes pages of a run, or of several compared, to files; the suffix picks the format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from secid.errors import UsageError
from secid.files import write_whole
from secid.records import encodable
from secid.results import Run
from secid.results.document import to_json


def _html(run: Run) -> str:
    from secid.pages.html import to_html

    return to_html(run)


def _markdown(run: Run) -> str:
    from secid.pages.markdown import to_markdown

    return to_markdown(run)


FORMATS: Mapping[str, Callable[[Run], str]] = {".html": _html, ".json": to_json, ".md": _markdown}


def check_formats(paths: Iterable[Path], folders: str = "") -> None:
    """Raises UsageError for a file whose suffix names no format, before any work is done.

    folders: what to say of a path that may be meant as a folder.
    """
    for path in paths:
        if path.suffix not in FORMATS:
            told = folders if path.is_dir() or not path.suffix else ""
            raise UsageError(
                f"no page format has the suffix {path.suffix!r}",
                where=str(path),
                remedy=f"use {', '.join(FORMATS)}{told}",
            )


def check_not_read(outputs: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Raises UsageError for an output that is a file read, or one in a folder read, under whatever name."""
    read = [path for path in inputs if path.exists()]
    for path in outputs:
        if not path.exists():
            continue  # nothing there to be lost
        for other in read:
            if path.samefile(other) or (other.is_dir() and path.resolve().is_relative_to(other.resolve())):
                raise UsageError(
                    f"would be overwritten, and is read{'' if path.samefile(other) else f' with {other}'}",
                    where=str(path),
                    remedy="name another file to write",
                )


def write_page(run: Run, path: Path) -> None:
    """Writes the page whole or not at all."""
    write_whole(path, FORMATS[path.suffix](run))


def write_comparison(runs: Sequence[tuple[str, Run]], path: Path) -> None:
    """Writes the comparison of named runs whole or not at all."""
    from secid.pages.comparison import compare
    from secid.pages.comparison_page import COMPARISON_FORMATS

    write_whole(path, COMPARISON_FORMATS[path.suffix](compare(runs)))


def labels(paths: Sequence[Path]) -> list[str]:
    """Names to tell runs apart by: the folder's own, or the whole path where two have the same.

    Bytes of a path that are no UTF-8 become U+FFFD. Raises UsageError where two paths are one run.
    """
    for first, second in combinations((path.parent if path.name == "report.json" else path for path in paths), 2):
        if first == second or (first.exists() and second.exists() and first.samefile(second)):
            raise UsageError("this run is named twice", where=str(second), remedy="name each run once")
    own = [path.parent.name if path.name == "report.json" else path.name for path in paths]
    told = [name if name and own.count(name) == 1 else str(path) for name, path in zip(own, paths, strict=True)]
    return [encodable(name) for name in told]
