"""Finished trainings in the cache folder: one small file each, named by all that decides its numbers."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from secid.arrays import Floats
from secid.encode import CacheFolder
from secid.errors import OutputError
from secid.files import write_whole
from secid.probing.measures import MEASURES
from secid.probing.task import Arm, Task
from secid.probing.training import HeldOut, Work
from secid.settings import Settings

RECIPE = (1, ".".join(version("torch").split(".")[:2]))
"""Of the code that decides a training's numbers: the first is one more where it changes them."""


class Kept:
    """The trainings of a task that are finished."""

    def __init__(self, task: Task, held: Sequence[HeldOut], settings: Settings, parts: Sequence[object] | None) -> None:
        """parts : what decides a training's numbers beside its texts; None where trainings are not kept."""
        self._folder = CacheFolder.of(settings).trainings if settings.cache and parts is not None else None
        keys, queries = task.passages.keys, task.queries.keys[task.query]
        texts: list[Any] = [queries, keys[task.positives.ids], task.positives.offsets, task.fold, keys[task.candidates]]
        self._shared = [RECIPE, str(parts), *map(_hash, [*texts, *(each.rows for each in held)])]
        self._of: dict[Arm | None, str] = {None: ""}
        self._of.update({arm: _hash(keys[own.ids]) + _hash(own.offsets) for arm, own in task.arms.items()})

    def read(self, work: Work, n: int) -> Floats | None:
        """(n, 3) of a finished training; None where it is not kept, or the file is damaged."""
        if self._folder is None:
            return None
        try:
            values = np.array(json.loads(self._path(self._folder, work).read_text(encoding="utf-8")), np.float64)
        except (OSError, ValueError, TypeError):
            return None
        whole = values.shape == (n, len(MEASURES)) and bool(((values >= 0) & (values <= 1)).all())
        return values if whole else None

    def write(self, work: Work, values: Floats) -> None:
        """Keeps one; a folder that cannot be written costs the next run time, no more."""
        if self._folder is not None:
            with contextlib.suppress(OutputError):
                write_whole(self._path(self._folder, work), json.dumps(values.tolist()))

    def _path(self, folder: Path, work: Work) -> Path:
        name = json.dumps([*self._shared, self._of[work.arm], work.fold, work.seed, work.rate])
        return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"


def _hash(values: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
