"""Sources of long names, told apart on every page of a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from secid.report.foreign import short
from secid.results import Run

SHORTEST = 30
"""Characters to which pages shorten a name at most; where a name has less room, its rank stands beside it."""
NAMING = ("sources", "controls", "comparisons", "crossings", "overlaps", "ablations", "slices", "early_stop")
"""Parts of a run in which a string that equals a source's name is that name."""


def told_apart(run: Run) -> Run:
    """The run with the rank behind the names of sources that would read alike once shortened or made plain."""
    shown = Counter(short(source.name, SHORTEST) for source in run.sources)
    names = {
        source.name: f"{source.name} #{source.rank}"
        for source in run.sources
        if shown[short(source.name, SHORTEST)] > 1
    }
    if not names:
        return run
    longest_first = sorted(names, key=len, reverse=True)
    named = re.compile("|".join(map(re.escape, longest_first)))
    warnings = tuple(named.sub(lambda match: names[match.group()], text) for text in run.warnings)
    return replace(run, warnings=warnings, **{part: _renamed(getattr(run, part), names) for part in NAMING})


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """The value with names replaced wherever a whole string or key is one."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, Mapping):
        return {names.get(key, key): _renamed(item, names) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_renamed(item, names) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _renamed(getattr(value, field.name), names) for field in fields(value)})
    return value
