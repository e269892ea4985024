"""What a command prints and writes: results, messages, progress, and files, which are checked before any work."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from secid.errors import UsageError
from secid.files import check_writable
from secid.pages.text import log_line, plain, short

if TYPE_CHECKING:
    from secid.pages.formats import Judged
    from secid.pages.screen import Screen


FIRST_LINE_SECONDS = 2.0
"""A stage that takes longer is announced where there is no terminal."""
HEARTBEAT_SECONDS = 30.0
MOST_DESCRIBED = 60
"""Characters of what is being done, next to the bar."""
NARROW, BAR_COLUMNS, NUMBERS_COLUMNS, RATE_COLUMNS = 90, 20, 42, 34
"""Below so many columns there is neither a bar nor a rate; columns of the bar, of the count with the time left, and of
the bar with the rate, beside which the description is cut.
"""
PIPE_COLUMNS = 80
"""Width of a table in a file or a pipe."""


class Results(Console):
    """A console whose reader may leave: rich would end the program with code 1, which is a verdict here."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704  rich calls this where it has caught the error


class Notes(Console):
    """A console that may be closed while the work goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def stdout() -> Console:
    """The console of results: colours and width of the terminal, plain text in a pipe. COLUMNS sets its width."""
    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Results(file=sys.stdout, highlight=False, width=None if known else PIPE_COLUMNS)


def stderr() -> Console:
    """The console of everything else. rich would print to stdout where stderr is closed."""
    return Notes(file=sys.stderr, quiet=sys.stderr is None, highlight=False, soft_wrap=True)


class TimeLeft(ProgressColumn):
    """The time that a stage still takes, labelled."""

    def render(self, task: Task) -> Text:
        return Text("" if task.time_remaining is None else f"({duration(task.time_remaining)} left)")


class ConsoleProgress:
    """On a terminal a bar with "n of N", rate and time left. Elsewhere a line for each stage of two seconds or more,
    and another every 30 s. Nothing when quiet.
    """

    def __init__(self, quiet: bool) -> None:
        self._console = stderr()
        self._quiet = quiet
        self._stage, self._unit, self._total, self._done = "", "", None, 0  # type: tuple[str, str, int | None, int]
        self._place = ""
        self._began = self._spoke = time.monotonic()
        self._over = threading.Event()
        self._bars: Bars | None = None
        self._task: TaskID | None = None

    @property
    def _is_narrow(self) -> bool:
        return self._console.width < NARROW

    def __enter__(self) -> ConsoleProgress:
        if not self._quiet and self._console.file.isatty():
            self._bars = Bars(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
                *(() if self._is_narrow else (BarColumn(BAR_COLUMNS),)),
                TextColumn("{task.fields[count]}", table_column=Column(no_wrap=True)),
                TimeLeft(table_column=Column(no_wrap=True)),
                console=self._console,
                transient=True,
            )
            self._bars.start()
        elif not self._quiet:
            threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        if self._bars is not None:
            self._bars.stop()

    def _beat(self) -> None:
        """Prints how far a stage is: first after FIRST_LINE_SECONDS, then every HEARTBEAT_SECONDS."""
        while not self._over.wait(min(FIRST_LINE_SECONDS, HEARTBEAT_SECONDS) / 4):
            now = time.monotonic()
            due = HEARTBEAT_SECONDS if self._spoke > self._began else FIRST_LINE_SECONDS
            if self._stage and now - max(self._began, self._spoke) >= due:
                self._spoke = now
                seconds = now - self._began
                parts = (
                    short(self._place, MOST_DESCRIBED),
                    self._count(),
                    self._left(seconds),
                    f"{duration(seconds)} so far",
                )
                self._console.print(Text(log_line(f"{self._stage}: {', '.join(filter(None, parts))}")))

    def _count(self) -> str:
        """ "1,200 of 5,000 texts, 300 texts/s"; "0 of 5,000 texts" before the first."""
        if not self._done:
            return "" if self._total is None else f"0 of {amount(self._total, self._unit)}"
        total = "" if self._total is None else f" of {amount(self._total, self._unit)}"
        rate = round(self._done / max(1e-9, time.monotonic() - self._began))
        done = amount(self._done, self._unit)
        per_second = f", {amount(rate, self._unit)}/s" if rate and not (self._bars and self._is_narrow) else ""
        return f"{done.split()[0] if total else done}{total}{per_second}"

    def _left(self, seconds: float) -> str:
        if not self._done or self._total is None:
            return ""
        return f"{duration(seconds * (self._total - self._done) / self._done)} left"

    def start(self, stage: str, total: int | None, unit: str) -> None:
        self._stage, self._unit, self._total, self._done = stage, unit, total, 0
        self._place, self._began = "", time.monotonic()
        if self._bars is not None:
            if self._task is not None:
                self._bars.remove_task(self._task)
            self._task = self._bars.add_task(plain(stage), total=total, count=self._count())

    def advance(self, n: int) -> None:
        self._done += n
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, advance=n, count=self._count())

    def at(self, place: str, total: int) -> None:
        self._place, self._total = place, total
        if self._bars is not None and self._task is not None:
            room = self._console.width - (NUMBERS_COLUMNS if self._is_narrow else NUMBERS_COLUMNS + RATE_COLUMNS)
            described = short(f"{self._stage} {place}", max(12, min(MOST_DESCRIBED, room)))
            self._bars.update(self._task, description=described, total=total, count=self._count())

    def note(self, text: str) -> None:
        if not self._quiet:
            self._console.print(Text(log_line(text), style="dim"))


def amount(n: int, unit: str) -> str:
    """ "5,000 texts"; bytes as "4.9 MB"."""
    return f"{n / 1e6:,.1f} MB" if unit == "bytes" else f"{n:,} {unit}"


def duration(seconds: float) -> str:
    """ "40 s", "12 min" or "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


# Writes messages to standard error and documents to standard output through the sanitiser.
#
# `pages.screen` prints pages, `console` prints notes and progress. A test checks that nothing else writes.


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


def write_results(
    files: Sequence[Path], formats: Mapping[str, Callable[[Result], str]], result: Result, quiet: bool
) -> None:
    """Write a result into each file, in the format of its suffix, and say so on standard error unless quiet."""
    from secid.files import write_whole

    for path in files:
        write_whole(path, formats[path.suffix](result))
        if not quiet:
            complain(f"wrote {path}")


def print_result(result: Result, as_json: bool, shown: Callable[[Result], Screen]) -> None:
    """Prints a result as one JSON document, or what a terminal shows of it."""
    from secid.results.document import json_of

    with suppress(BrokenPipeError):  # a reader that stops early changes no verdict
        if as_json:
            say_json(json_of(result))
        else:
            print_screen(shown(result))


def print_screen(screen: Screen) -> None:
    """Prints a screen to standard output."""
    from secid.pages.screen import print_page

    print_page(stdout(), screen)


def say(*lines: str) -> None:
    """Prints lines that are never broken to standard output."""
    from secid.pages.screen import literal, screen

    print_screen(screen(map(literal, lines)))


def print_verdict(result: Judged, quiet: bool) -> None:
    """Prints the verdict as the last line of stderr, for scripts; nothing when quiet, or on a terminal, where the page
    above it says the same in words.
    """
    from rich.text import Text

    from secid.pages.formats import verdict_line

    console = stderr()
    if not quiet and not console.file.isatty():
        with suppress(BrokenPipeError):
            sys.stdout.flush()  # the result first, where both go to one file
        console.print(Text(verdict_line(result)))


def print_json(document: Any) -> None:
    """Prints one JSON document."""
    say_json(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
