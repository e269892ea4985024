"""How long work tells its caller how far it is, without knowing about terminals."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told of stages in order; one stage at a time."""

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """A stage begins. total: None when unknown."""

    def advance(self, n: int) -> None:
        """n more units of the current stage are done."""

    def note(self, text: str) -> None:
        """A line for the user: what was understood, chosen or left out."""


class Silent:
    """Tells nobody."""

    def start(self, stage: str, total: int | None, unit: str) -> None: ...

    def advance(self, n: int) -> None: ...

    def note(self, text: str) -> None: ...
