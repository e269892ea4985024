"""How long-running work reports its progress, without knowing about terminals, and what each of its stages took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

# How long-running work reports its progress, without knowing about terminals.


class Progress(Protocol):
    """Receives stages in order, one at a time."""

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """A stage begins. total: None if unknown."""

    def advance(self, n: int) -> None:
        """n more units of the current stage are done."""

    def at(self, place: str, total: int) -> None:
        """What of the current stage is being done, and its total, where that has changed."""

    def note(self, text: str) -> None:
        """A line for the user: how a file was read, what was chosen or left out."""


class Silent:
    """Reports nothing."""

    def start(self, stage: str, total: int | None, unit: str) -> None: ...

    def advance(self, n: int) -> None: ...

    def at(self, place: str, total: int) -> None: ...

    def note(self, text: str) -> None: ...


# What each stage of a run took.


@dataclass
class Clock:
    """Seconds and counts of each stage, for the report. started: when the clock was made."""

    stages: dict[str, dict[str, float]] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    def loaded(self) -> None:
        """Ends the stage that began as the clock was made: libraries, files and the encoder are there."""
        self.stages["load"] = {"seconds": round(time.perf_counter() - self.started, 3)}

    @contextmanager
    def stage(self, name: str, **counts: float) -> Iterator[dict[str, float]]:
        """Times a stage, added to an earlier one of its name; what is put in the yielded dictionary is reported too."""
        entry: dict[str, float] = dict(counts)
        start = time.perf_counter()
        yield entry
        entry = {"seconds": round(time.perf_counter() - start, 3), **entry}
        before = self.stages.get(name, {})
        self.stages[name] = before | {key: before.get(key, 0.0) + value for key, value in entry.items()}
