"""What each stage of a run took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


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
