"""The files behind a run, read again: only if they are still what was scored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from secid.errors import InputError, UsageError
from secid.pool import Plan, PlannedSource, make_plan
from secid.pool.make import TextRules
from secid.read import once_only, open_source
from secid.records import Source
from secid.results import Run, SourceResult
from secid.settings import FIELDS, Settings

PLACEHOLDER = "source"
"""Name a source is planned under: its own may end in the split that the plan adds to it."""


@dataclass(frozen=True)
class Original:
    """One source of a run, planned again. split: the value of the source column that it is, or ""."""

    name: str
    split: str
    planned: PlannedSource

    @property
    def paths(self) -> tuple[str, ...]:
        return self.planned.source.paths


def settings_of(run: Run, **changes: Any) -> Settings:
    """The settings that a run was made with, but for the changes; settings of a newer secid are left out."""
    values = {name: entry["value"] for name, entry in run.settings.items() if name in FIELDS}
    return replace(Settings(**values), **changes)


def find_source(run: Run, name: str) -> SourceResult:
    """The source of that name. Raises UsageError with the known ones."""
    for source in run.sources:
        if source.name == name:
            return source
    names = ", ".join(source.name for source in run.sources)
    raise UsageError(f"no source {name!r} in this run", remedy=f"its sources are {names}")


def check_unchanged(source: SourceResult) -> None:
    """Raises InputError where a file of the source is gone, or is not the one that was scored."""
    for file in source.paths:
        if once_only(file.path):
            raise InputError("cannot be read again", where=file.path, remedy="save it to a file and score that")
        try:
            with Path(file.path).open("rb") as handle:
                found = hashlib.file_digest(handle, "sha256").hexdigest()
        except OSError as error:
            raise InputError(
                f"cannot be read again ({error.strerror})",
                where=file.path,
                remedy="call secid from the folder in which the run was made, with the files in their place",
            ) from error
        if found != file.sha256:
            raise InputError(
                "has changed since it was scored: its SHA-256 is another",
                where=file.path,
                remedy="score it again, or bring the old file back",
            )


def plan_again(
    run: Run, names: Sequence[str], settings: Settings, folder: Path, text_rules: TextRules | None
) -> tuple[Plan, dict[str, Original]]:
    """The named sources of a run, checked and planned as they were; the caller closes the plan.

    folder : an empty folder for spool files.   text_rules : as in `plan_of`; only the named sources are read.
    Raises InputError where a file has changed or no longer gives the source.
    """
    results = [find_source(run, name) for name in names]
    for result in results:
        check_unchanged(result)
    groups: dict[tuple[str, ...], Source] = {}
    for result in results:
        paths = tuple(file.path for file in result.paths)
        groups.setdefault(paths, Source(f"{PLACEHOLDER}{len(groups)}", paths))
    streams = ((source, open_source(source, settings).blocks()) for source in groups.values())
    plan = make_plan(streams, settings, folder, text_rules=text_rules)
    found = {}
    for result in results:
        source = groups[tuple(file.path for file in result.paths)]
        found[result.name] = _matching(result.name, source, plan)
    return plan, found


def _matching(name: str, source: Source, plan: Plan) -> Original:
    """The planned source that had this name."""
    splits: Mapping[str, PlannedSource] = {
        planned.name.removeprefix(source.name).removeprefix(":"): planned
        for planned in plan.sources
        if planned.source is source
    }
    split = split_of(name, splits, source.paths[0])
    return Original(name, split, splits[split])


def split_of(name: str, splits: Iterable[str], path: str) -> str:
    """The split that a source's name stands for: the longest one that the name ends in.

    Raises InputError where the file under `path` gives none that fits.
    """
    fitting = [split for split in splits if not split or name.endswith(f":{split}")]
    if not fitting:
        raise InputError(f"no longer gives the source {name!r}", where=path, remedy="score it again")
    return max(fitting, key=len)
