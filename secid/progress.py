"""How long-running work reports its progress, without knowing about terminals."""

from __future__ import annotations

from typing import Protocol


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
