"""What a command writes: files, checked before any work, JSON, and lines through the sanitiser."""

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
    from rich.console import Console

    from secid.pages.formats import Judged
    from secid.write.writer import Written

# Writes lines to standard output and standard error through the sanitiser.
#
# `pages.terminal` prints pages, `console` prints notes and progress. A test checks that nothing else writes.


def say(*lines: str) -> None:
    """Print lines to standard output."""
    from secid.pages.text import log_line

    sys.stdout.write("".join(f"{log_line(line)}\n" for line in lines))


def complain(text: str) -> None:
    """Print a text of one or more lines to standard error, which may be closed."""
    from secid.pages.text import log_line

    with suppress(OSError, AttributeError):
        sys.stderr.write("".join(f"{log_line(line)}\n" for line in text.rstrip("\n").split("\n")))
        sys.stderr.flush()


def say_json(text: str) -> None:
    """Print a JSON document to standard output."""
    from secid.pages.text import json_shown

    sys.stdout.write(json_shown(text))


# What a command writes: files, checked before any work and none of those that it reads, and JSON.

Result = TypeVar("Result")


def check_outputs(
    outputs: Sequence[Path], suffixes: Collection[str], inputs: Iterable[Path], folders: str = ""
) -> None:
    """Raises UsageError for an output whose suffix names no format, or which is read under whatever name; OutputError
    for one that cannot be written.

    inputs  : files and folders; not looked at without outputs.
    folders : what to say of an output that may be meant as a folder.
    """
    from secid.pages.formats import METRICS, format_of

    for path in outputs:
        if format_of(path) not in suffixes:
            hint = folders if path.is_dir() or not path.suffix else ""
            if format_of(path) == METRICS:
                remedy = "name it by -o of secid score, or of secid report for one run"
                raise UsageError("only the result of one score has metrics", where=str(path), remedy=remedy)
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
                raise UsageError(
                    f"would be overwritten, and is read{'' if path.samefile(other) else f' with {other}'}",
                    where=str(path),
                    remedy="name another file to write",
                )


def files_read(specs: Sequence[str], settings: Mapping[str, Any]) -> Iterator[Path]:
    """The files of sources, and those that the settings name, as a command was given them."""
    from secid.read import resolve_sources
    from secid.settings import FIELDS, resolve

    values = resolve({name: value for name, value in settings.items() if name in FIELDS}).values
    sources = [path for source in resolve_sources(specs, values) for path in source.paths]
    yield from map(Path, (*sources, *filter(None, (values.encoder, values.corpus, values.queries))))


def print_result(result: Result, as_json: bool, show: Callable[[Console, Result], None]) -> None:
    """Prints a result as one JSON document, or as `show` does."""
    from secid.cli.console import stdout
    from secid.results.document import json_of

    with suppress(BrokenPipeError):  # a reader that stops early changes no verdict
        if as_json:
            say_json(json_of(result))
        else:
            show(stdout(), result)


def print_verdict(result: Judged, quiet: bool) -> None:
    """Prints the verdict as the last line of stderr, for scripts; nothing when quiet, or on a terminal, where the page
    above it says the same in words.
    """
    from rich.text import Text

    from secid.cli.console import stderr
    from secid.pages.formats import verdict_line

    console = stderr()
    if not quiet and not console.file.isatty():
        with suppress(BrokenPipeError):
            sys.stdout.flush()  # the result first, where both go to one file
        console.print(Text(verdict_line(result)))


def print_json(document: Any) -> None:
    """Prints one JSON document."""
    say_json(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


# What `secid select` and `secid mix` print of a file they wrote.

SCHEMA_HELP = (
    "Schema of the file: st-ntuple, flagembedding, tevatron or nvidia. [default: that of the source where it is one of "
    "these, else flagembedding]"
)
OUT_HELP = "A new file: .jsonl, .jsonl.gz or .parquet."
TRIPLETS = (
    "rows differ in their number of negatives, so each row is one triplet (anchor, positive, negative); an n-tuple "
    "needs the same number in every row"
)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Sentences in lines of the console's width."""
    from secid.pages.terminal import write
    from secid.pages.text import plain

    for line in lines:
        write(console, plain(line))


def counted(reasons: Mapping[str, int]) -> str:
    """ " (top 3, repeat 1)"; nothing where there is none."""
    counts = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    return f" ({counts})" if counts else ""


def written_lines(written: Written, path: str) -> Iterator[str]:
    """The file, its schema, and what the schema does not hold."""
    from secid.pages.glossary import lost_lines
    from secid.pages.text import plural

    layout = f" ({written.layout})" if written.layout else ""
    holds = f"{plural(written.n_rows, 'row')}, {plural(written.n_negatives, 'negative')}"
    yield f"wrote {path}: {written.schema}{layout}, {holds}"
    if written.layout == "triplets":
        yield TRIPLETS
    yield from lost_lines(written.schema, written.n_made_ids, written.not_held)
