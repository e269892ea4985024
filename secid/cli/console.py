"""Where results and everything else are printed, and how progress looks."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from secid.pages.sanitize import plain

HEARTBEAT_SECONDS = 30.0
PIPE_COLUMNS = 80
"""Width of a table that goes to a file or a pipe, where there is no terminal to ask."""


class Results(Console):
    """A console whose reader may go: rich would end the program with code 1, which is a verdict here."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Notes(Console):
    """A console that nobody need read: what is done goes on without it."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def stdout() -> Console:
    """The console of results: colours and width of the terminal, plain text in a pipe."""
    return Results(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)


def stderr() -> Console:
    """The console of everything else."""
    return Notes(file=sys.stderr, highlight=False, soft_wrap=True)


class ConsoleProgress:
    """Bars with rate and time left on a terminal; elsewhere a line every 30 s, whether or not anything has advanced;
    nothing when quiet.
    """

    def __init__(self, quiet: bool) -> None:
        self._console = stderr()
        self._quiet = quiet
        self._stage, self._unit, self._total, self._done = "", "", None, 0  # type: tuple[str, str, int | None, int]
        self._began = time.monotonic()
        self._over = threading.Event()
        self._bars: Bars | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> ConsoleProgress:
        if not self._quiet and self._console.is_terminal:
            self._bars = Bars(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
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
        """Says every HEARTBEAT_SECONDS how far a stage of at least that length is."""
        while not self._over.wait(HEARTBEAT_SECONDS):
            seconds = time.monotonic() - self._began
            if self._stage and seconds >= HEARTBEAT_SECONDS:
                share = f" of {_short(self._total)}" if self._total else ""
                done = f"{_short(self._done)}{share} {self._unit}, {self._rate(seconds)}, " if self._done else ""
                self._console.print(Text(f"{self._stage}: {done}{seconds:.0f} s"))

    def _rate(self, seconds: float) -> str:
        return f"{_short(self._done / max(1e-9, seconds))} {self._unit}/s"

    def start(self, stage: str, total: int | None, unit: str) -> None:
        self._stage, self._unit, self._total, self._done = stage, unit, total, 0
        self._began = time.monotonic()
        if self._bars is not None:
            if self._task is not None:
                self._bars.remove_task(self._task)
            self._task = self._bars.add_task(stage, total=total, rate="")

    def advance(self, n: int) -> None:
        self._done += n
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, advance=n, rate=self._rate(time.monotonic() - self._began))

    def note(self, text: str) -> None:
        if not self._quiet:
            self._console.print(Text(plain(text), style="dim"))


def _short(number: float) -> str:
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= limit:
            return f"{number / (limit if suffix != 'k' else 1e3):.1f}{suffix}"
    return f"{number:.0f}"
