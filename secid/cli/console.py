"""Consoles for results and for messages, and the display of progress."""

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
"""Without a terminal, print a line for a stage after this time."""
HEARTBEAT_SECONDS = 30.0
"""Without a terminal, print another line for the stage after this time."""
MAX_DESCRIPTION_COLUMNS = 60
"""Maximum width of the description next to the bar."""
MIN_BAR_TERMINAL_COLUMNS = 90
"""Show the bar and the rate only on a terminal that is at least this wide."""
BAR_COLUMNS, NUMBERS_COLUMNS, RATE_COLUMNS = 20, 42, 34
"""Widths of the bar, of the count with the time left, and of the bar with the rate. The description gets the rest."""
PIPE_COLUMNS = 80
"""Width of a table in a file or a pipe."""


class Results(Console):
    """A console that raises BrokenPipeError if the reader closes the pipe. rich would exit with 1, a verdict here."""

    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704  rich calls this while it handles the error


class Notes(Console):
    """A console that prints nothing more after the reader closes the pipe. The work continues."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def stdout() -> Console:
    """Return the console for results. It is coloured on a terminal and plain in a pipe. COLUMNS sets its width."""
    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Results(file=sys.stdout, highlight=False, width=None if known else PIPE_COLUMNS)


def stderr() -> Console:
    """Return the console for messages. It prints nothing if stderr is closed; rich would then print to stdout."""
    return Notes(file=sys.stderr, quiet=sys.stderr is None, highlight=False, soft_wrap=True)


class TimeLeft(ProgressColumn):
    """Column with the remaining time of a stage."""

    def render(self, task: Task) -> Text:
        return Text("" if task.time_remaining is None else f"({duration(task.time_remaining)} left)")


class ConsoleProgress:
    """Shows progress on stderr.

    On a terminal it is a bar with count, rate and time left. Otherwise it is a line for each stage after two seconds,
    and another every 30 s. If quiet, nothing is shown.
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
        return self._console.width < MIN_BAR_TERMINAL_COLUMNS

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
                    short(self._place, MAX_DESCRIPTION_COLUMNS),
                    self._count(),
                    self._time_left(seconds),
                    f"{duration(seconds)} so far",
                )
                self._console.print(Text(log_line(f"{self._stage}: {', '.join(filter(None, parts))}")))

    def _count(self) -> str:
        """Format the count: "1,200 of 5,000 texts, 300 texts/s", or "0 of 5,000 texts" at the start."""
        if not self._done:
            return "" if self._total is None else f"0 of {amount(self._total, self._unit)}"
        total = "" if self._total is None else f" of {amount(self._total, self._unit)}"
        rate = round(self._done / max(1e-9, time.monotonic() - self._began))
        done = amount(self._done, self._unit)
        per_second = f", {amount(rate, self._unit)}/s" if rate and not (self._bars and self._is_narrow) else ""
        return f"{done.split()[0] if total else done}{total}{per_second}"

    def _time_left(self, seconds: float) -> str:
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
            described = short(f"{self._stage} {place}", max(12, min(MAX_DESCRIPTION_COLUMNS, room)))
            self._bars.update(self._task, description=described, total=total, count=self._count())

    def note(self, text: str) -> None:
        if not self._quiet:
            self._console.print(Text(log_line(text), style="dim"))


def amount(n: int, unit: str) -> str:
    """Format a count with its unit: "5,000 texts"; bytes as "4.9 MB"."""
    return f"{n / 1e6:,.1f} MB" if unit == "bytes" else f"{n:,} {unit}"


def duration(seconds: float) -> str:
    """Format a time: "40 s", "12 min" or "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
