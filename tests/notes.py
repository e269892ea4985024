"""Record the progress that a run reports."""

from __future__ import annotations

from secid.progress import Silent


class Notes(Silent):
    """Record notes and how far the last stage came. The total is -1 before the first stage."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.total: int | None = -1
        self.done = 0

    def start(self, stage: str, total: int | None, unit: str) -> None:
        self.total = total

    def advance(self, n: int) -> None:
        self.done += n

    def note(self, text: str) -> None:
        self.notes.append(text)
