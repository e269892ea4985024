"""Print and write the results of commands. Everything that is printed passes the sanitiser."""

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

# Print messages and JSON documents through the sanitiser.
#
# `pages.screen` prints pages, and `console` prints notes and progress. A test checks that nothing else prints.


def print_stderr(text: str) -> None:
    """Print lines to standard error. If it is closed, do nothing."""
    from secid.pages.text import log_line

    with suppress(OSError, AttributeError):
        sys.stderr.write("".join(f"{log_line(line)}\n" for line in text.rstrip("\n").split("\n")))
        sys.stderr.flush()


def print_json_text(text: str) -> None:
    """Print a JSON document to standard output."""
    from secid.pages.text import json_shown

    sys.stdout.write(json_shown(text))


# Check output files before any work, then write and print results.

Result = TypeVar("Result")


def check_outputs(
    outputs: Sequence[Path], suffixes: Collection[str], inputs: Iterable[Path], folders: str = ""
) -> None:
    """Refuse outputs that cannot be written.

    suffixes : suffixes of the formats.   inputs : files and folders that will be read; ignored without outputs.
    folders  : text to add to the remedy if an output may be meant as a folder.
    Raises UsageError if an output's suffix is not one of `suffixes`, or if an output is an input or lies inside one,
    even under another name. Raises OutputError if it cannot be written.
    """
    from secid.pages.formats import METRICS, format_of

    for path in outputs:
        if format_of(path) not in suffixes:
            hint = folders if path.is_dir() or not path.suffix else ""
            if format_of(path) == METRICS:
                remedy = "use -o metrics.json with secid score, or with secid report for one run"
                raise UsageError("metrics are written only for a single run", where=str(path), remedy=remedy)
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
                    f"is also {what} and would be overwritten", where=str(path), remedy="name another output file"
                )


def files_read(specs: Sequence[str], settings: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files of the sources and those in the settings."""
    from secid.read import resolve_sources
    from secid.settings import FIELDS, resolve

    values = resolve({name: value for name, value in settings.items() if name in FIELDS}).values
    sources = [path for source in resolve_sources(specs, values) for path in source.paths]
    yield from map(Path, (*sources, *filter(None, (values.encoder, values.corpus, values.queries))))


def write_results(
    files: Sequence[Path], formats: Mapping[str, Callable[[Result], str]], result: Result, quiet: bool
) -> None:
    """Write a result to each file in the format of its suffix. Unless quiet, name the files on standard error."""
    from secid.files import write_whole

    for path in files:
        write_whole(path, formats[path.suffix](result))
        if not quiet:
            print_stderr(f"wrote {path}")


def print_result(result: Result, as_json: bool, shown: Callable[[Result], Screen]) -> None:
    """Print a result as one JSON document, or as the screen that a terminal shows."""
    from secid.results.document import json_of

    with suppress(BrokenPipeError):  # the verdict is the same if the reader stops early
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
    from secid.pages.screen import Line, screen

    print_screen(screen(Line(line, "literal") for line in lines))


def print_verdict(result: Judged, quiet: bool) -> None:
    """Print the verdict for scripts, as the last line of stderr.

    Print nothing if quiet, or on a terminal, where the page above has the verdict in words.
    """
    from rich.text import Text

    from secid.cli.console import stderr
    from secid.pages.formats import verdict_line

    console = stderr()
    if not quiet and not console.file.isatty():
        with suppress(BrokenPipeError):
            sys.stdout.flush()  # so that the result comes first if both go to one file
        console.print(Text(verdict_line(result)))


def print_json(document: Any) -> None:
    """Print one JSON document."""
    print_json_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
