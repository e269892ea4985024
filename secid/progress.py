"""Long-running work: its progress, bars of downloads, and the duration of each stage."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol


class Progress(Protocol):
    """Receiver of a run's progress. Stages begin in order, one at a time."""

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """Begin a stage. total: number of units to do; None if unknown."""

    def advance(self, n: int) -> None:
        """Mark n more units of the current stage as done."""

    def at(self, place: str, total: int) -> None:
        """Show the part of the current stage that is running, and update the stage's total."""

    def note(self, text: str) -> None:
        """Show a line to the user, for example how a file was read, or which rows were skipped."""


class Silent:
    """Progress that reports nothing."""

    def start(self, stage: str, total: int | None, unit: str) -> None: ...

    def advance(self, n: int) -> None: ...

    def at(self, place: str, total: int) -> None: ...

    def note(self, text: str) -> None: ...


@cache
def download_bars() -> type[Any]:
    """Return the class of progress bars for downloads from the hub. They show only on a terminal.

    Unprintable characters in a file name become U+FFFD.
    """
    from huggingface_hub.utils.tqdm import tqdm

    class Bars(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": not sys.stderr.isatty() or options.get("disable")})  # type: ignore[no-untyped-call]

        def __str__(self) -> str:
            return "".join(char if char.isprintable() else "\ufffd" for char in super().__str__())

    return Bars


@dataclass
class Clock:
    """Recorder of the seconds and counts of each stage, for the report. started: time at which it was created."""

    stages: dict[str, dict[str, float]] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    def loaded(self) -> None:
        """End the stage "load", which began when the clock was created: libraries, files and encoder are loaded."""
        self.stages["load"] = {"seconds": round(time.perf_counter() - self.started, 3)}

    @contextmanager
    def stage(self, name: str, **counts: float) -> Iterator[dict[str, float]]:
        """Time a stage. Stages with the same name are summed. Yield a dictionary; counts added to it are reported."""
        entry: dict[str, float] = dict(counts)
        start = time.perf_counter()
        yield entry
        entry = {"seconds": round(time.perf_counter() - start, 3), **entry}
        before = self.stages.get(name, {})
        self.stages[name] = before | {key: before.get(key, 0.0) + value for key, value in entry.items()}
