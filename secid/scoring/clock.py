"""What each stage of a run took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Clock:
    """Seconds and counts of each stage, for the report."""

    stages: dict[str, dict[str, float]] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, **counts: float) -> Iterator[dict[str, float]]:
        """Times a stage; what is put in the yielded dictionary is reported with it."""
        entry: dict[str, float] = dict(counts)
        start = time.perf_counter()
        yield entry
        self.stages[name] = {"seconds": round(time.perf_counter() - start, 3), **entry}
