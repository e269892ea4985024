"""Where results and everything else are printed, and how progress looks."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from secid.report.foreign import plain

HEARTBEAT_SECONDS = 30.0
PIPE_COLUMNS = 80
"""Width of a table that goes to a file or a pipe, where there is no terminal to ask."""


def stdout() -> Console:
    """The console of results: colours and width of the terminal, plain text in a pipe."""
    return Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)


def stderr() -> Console:
    """The console of everything else."""
    return Console(file=sys.stderr, highlight=False, soft_wrap=True)


class ConsoleProgress:
    """Bars with rate and time left on a terminal; elsewhere a line every 30 s; nothing when quiet."""

    def __init__(self, quiet: bool) -> None:
        self._console = stderr()
        self._quiet = quiet
        self._stage, self._unit, self._total, self._done = "", "", None, 0  # type: tuple[str, str, int | None, int]
        self._began = self._spoke = time.monotonic()
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
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def start(self, stage: str, total: int | None, unit: str) -> None:
        self._stage, self._unit, self._total, self._done = stage, unit, total, 0
        self._began = self._spoke = time.monotonic()
        if self._bars is not None:
            if self._task is not None:
                self._bars.remove_task(self._task)
            self._task = self._bars.add_task(stage, total=total, rate="")

    def advance(self, n: int) -> None:
        self._done += n
        now = time.monotonic()
        rate = f"{_short(self._done / max(1e-9, now - self._began))} {self._unit}/s"
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, advance=n, rate=rate)
        elif not self._quiet and now - self._spoke >= HEARTBEAT_SECONDS:
            self._spoke = now
            share = f" of {_short(self._total)}" if self._total else ""
            self._console.print(Text(f"{self._stage}: {_short(self._done)}{share} {self._unit}, {rate}"))

    def note(self, text: str) -> None:
        if not self._quiet:
            self._console.print(Text(plain(text), style="dim"))


def _short(number: float) -> str:
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= limit:
            return f"{number / (limit if suffix != 'k' else 1e3):.1f}{suffix}"
    return f"{number:.0f}"
