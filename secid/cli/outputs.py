"""Output of commands: files that are checked before any work, screens, JSON, and messages through the sanitiser."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from secid.errors import UsageError
from secid.files import check_writable

if TYPE_CHECKING:
    from secid.pages.formats import Judged
    from secid.pages.screen import Screen

# Messages for standard error and documents for standard output, through the sanitiser.
#
# `pages.screen` prints pages, `console` prints notes and progress. A test checks that nothing else writes.


def print_stderr(text: str) -> None:
    """Print a text of one or more lines to standard error, which may be closed."""
    from secid.pages.text import log_line

    with suppress(OSError, AttributeError):
        sys.stderr.write("".join(f"{log_line(line)}\n" for line in text.rstrip("\n").split("\n")))
        sys.stderr.flush()


def print_json_text(text: str) -> None:
    """Print a JSON document to standard output."""
    from secid.pages.text import json_shown

    sys.stdout.write(json_shown(text))


# Output files, checked before any work so that they overwrite no input, and JSON.

Result = TypeVar("Result")


def check_outputs(
    outputs: Sequence[Path], suffixes: Collection[str], inputs: Iterable[Path], folders: str = ""
) -> None:
    """Refuse outputs that cannot be written, before any work.

    inputs  : files and folders; ignored without outputs.
    folders : text to add to the remedy for an output that may be meant as a folder.
    Raises UsageError if an output's suffix names no format, or if an output is an input or inside one, under any name;
    OutputError if it cannot be written.
    """
    from secid.pages.formats import METRICS, format_of

    for path in outputs:
        if format_of(path) not in suffixes:
            hint = folders if path.is_dir() or not path.suffix else ""
            if format_of(path) == METRICS:
                remedy = "give it to -o of secid score, or of secid report for one run"
                raise UsageError("only a single run has metrics", where=str(path), remedy=remedy)
            raise UsageError(
                f"no page format has the suffix {path.suffix!r}",
                where=str(path),
                remedy=f"use {', '.join(suffixes)}{hint}",
            )
        check_writable(path)
    existing = [path for path in inputs if path.exists()] if outputs else []
    for path in filter(Path.exists, outputs):
        for other in existing:
            if path.samefile(other) or (other.is_dir() and path.resolve().is_relative_to(other.resolve())):
                what = "an input" if path.samefile(other) else f"part of the input {other}"
                raise UsageError(
                    f"is also {what} and would be overwritten",
                    where=str(path),
                    remedy="name another file to write",
                )


def files_read(specs: Sequence[str], settings: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files of the sources, and those that the settings name, as the command line gives them."""
    from secid.read import resolve_sources
    from secid.settings import FIELDS, resolve

    values = resolve({name: value for name, value in settings.items() if name in FIELDS}).values
    sources = [path for source in resolve_sources(specs, values) for path in source.paths]
    yield from map(Path, (*sources, *filter(None, (values.encoder, values.corpus, values.queries))))


def write_results(
    files: Sequence[Path], formats: Mapping[str, Callable[[Result], str]], result: Result, quiet: bool
) -> None:
    """Write a result into each file, in the format of its suffix, and say so on standard error unless quiet."""
    from secid.files import write_whole

    for path in files:
        write_whole(path, formats[path.suffix](result))
        if not quiet:
            print_stderr(f"wrote {path}")


def print_result(result: Result, as_json: bool, shown: Callable[[Result], Screen]) -> None:
    """Print a result as one JSON document, or as the screen that a terminal shows."""
    from secid.results.document import json_of

    with suppress(BrokenPipeError):  # a reader that stops early changes no verdict
        if as_json:
            print_json_text(json_of(result))
        else:
            print_screen(shown(result))


def print_screen(screen: Screen) -> None:
    """Print a screen to standard output."""
    from secid.cli.console import stdout
    from secid.pages.screen import print_page

    print_page(stdout(), screen)


def print_lines(*lines: str) -> None:
    """Print lines to standard output without wrapping them."""
    from secid.pages.screen import literal, screen

    print_screen(screen(map(literal, lines)))


def print_verdict(result: Judged, quiet: bool) -> None:
    """Print the verdict as the last line of stderr, for scripts.

    Print nothing if quiet, or on a terminal, where the page above says the same in words.
    """
    from rich.text import Text

    from secid.cli.console import stderr
    from secid.pages.formats import verdict_line

    console = stderr()
    if not quiet and not console.file.isatty():
        with suppress(BrokenPipeError):
            sys.stdout.flush()  # the result comes first if both go to one file
        console.print(Text(verdict_line(result)))


def print_json(document: Any) -> None:
    """Print one JSON document."""
    print_json_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
