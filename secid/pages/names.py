"""Sources of long names, told apart on every page of a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from secid.pages.sanitize import short
from secid.results import Run

SHORTEST = 30
"""Characters to which pages shorten a name at most; where a name has less room, its rank stands beside it."""
NAMING = ("sources", "controls", "comparisons", "crossings", "overlaps", "ablations", "slices", "early_stop")
"""Parts of a run in which a string that equals a source's name is that name."""


def told_apart(run: Run) -> Run:
    """The run with the rank behind the names of sources that would read alike once shortened or made plain."""
    names = distinct({source.name: source.rank for source in run.sources})
    if not names:
        return run
    longest_first = sorted(names, key=len, reverse=True)
    named = re.compile("|".join(map(re.escape, longest_first)))
    warnings = tuple(named.sub(lambda match: names[match.group()], text) for text in run.warnings)
    return replace(run, warnings=warnings, **{part: renamed(getattr(run, part), names) for part in NAMING})


def distinct(numbers: Mapping[str, int]) -> dict[str, str]:
    """Names with their numbers behind them, of those that would read alike once shortened or made plain."""
    shown = Counter(short(name, SHORTEST) for name in numbers)
    return {name: f"{name} #{number}" for name, number in numbers.items() if shown[short(name, SHORTEST)] > 1}


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """The value with names replaced wherever a whole string or key is one."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, Mapping):
        return {names.get(key, key): renamed(item, names) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(renamed(item, names) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: renamed(getattr(value, field.name), names) for field in fields(value)})
    return value
