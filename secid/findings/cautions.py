"""Cautions: what a source as a whole should be looked at for. No column of the triplet table says it."""

from __future__ import annotations

from dataclasses import dataclass

from secid.results import Example


@dataclass(frozen=True)
class Case:
    """n things that a caution is about, and the share of all in [0, 1].

    detail : what distinguishes them, in words; may be empty.
    """

    n: int
    fraction: float
    detail: str = ""
    examples: tuple[Example, ...] = ()
