"""Consoles for results and for everything else, and the display of progress."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from secid.pages.text import log_line, plain, short

FIRST_LINE_SECONDS = 2.0
"""Without a terminal, a stage is announced if it takes longer than this."""
HEARTBEAT_SECONDS = 30.0
MOST_DESCRIBED = 60
"""Most characters of the description next to the bar."""
NARROW, BAR_COLUMNS, NUMBERS_COLUMNS, RATE_COLUMNS = 90, 20, 42, 34
"""NARROW: with fewer columns there is neither a bar nor a rate. The others are widths in columns: of the bar; of the
count with the time left; of the bar with the rate. The description gets the rest.
"""
PIPE_COLUMNS = 80
"""Width of a table in a file or a pipe."""


class Results(Console):
    """A console that raises BrokenPipeError when its reader leaves. rich would exit with 1, which is a verdict here."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704  rich calls this while it handles the error


class Notes(Console):
    """A console that falls silent when its reader leaves, while the work continues."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def stdout() -> Console:
    """Return the console for results: coloured and as wide as the terminal, plain in a pipe. COLUMNS sets its width."""
    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Results(file=sys.stdout, highlight=False, width=None if known else PIPE_COLUMNS)


def stderr() -> Console:
    """Return the console for everything else. It is quiet if stderr is closed, where rich would print to stdout."""
    return Notes(file=sys.stderr, quiet=sys.stderr is None, highlight=False, soft_wrap=True)


class TimeLeft(ProgressColumn):
    """The remaining time of a stage, labelled."""

    def render(self, task: Task) -> Text:
        return Text("" if task.time_remaining is None else f"({duration(task.time_remaining)} left)")


class ConsoleProgress:
    """Progress on stderr: on a terminal, a bar with "n of N", rate and time left; elsewhere, a line for each stage of
    two seconds or more, and another every 30 s. Nothing if quiet.
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
        """Print the progress of a stage: first after FIRST_LINE_SECONDS, then every HEARTBEAT_SECONDS."""
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
        """Return the count in words: "1,200 of 5,000 texts, 300 texts/s", or "0 of 5,000 texts" before the first."""
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
    """Return a count with its unit: "5,000 texts"; bytes as "4.9 MB"."""
    return f"{n / 1e6:,.1f} MB" if unit == "bytes" else f"{n:,} {unit}"


def duration(seconds: float) -> str:
    """Return a time in words: "40 s", "12 min" or "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
