"""report.json: a run with the results of its analyses as one JSON document, and back."""

from __future__ import annotations

from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from secid.analyses.registry import ANALYSES
from secid.errors import InputError, NumericalError, UsageError
from secid.results import SCHEMA_VERSION, Run
from secid.results.document import AGAIN, REPORT_NAME, adapter_of, bytes_of, checked, json_of, place_of

if TYPE_CHECKING:
    Results = dict[str, Any]
else:
    Results = TypedDict("Results", {analysis.name: analysis.kind for analysis in ANALYSES}, total=False)


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(Run):
    """A run whose `analyses` have their types, for JSON."""

    analyses: Results


def to_json(result: Any) -> str:
    """Return a result, such as a run or a verdict, as indented JSON, keys in the order of the dataclasses, ending in a
    line feed.

    Numbers carry full double precision. Of a run the version is that of these fields, even if it was read from a newer
    report; raises NumericalError where a number is not finite that a report cannot do without.
    """
    from pydantic import ValidationError

    if not isinstance(result, Run):
        return json_of(result)
    own = result.analyses
    analyses = {analysis.name: own[analysis.name] for analysis in ANALYSES if analysis.name in own}
    parts = {field.name: getattr(result, field.name) for field in fields(result)}  # without what is cached
    text = json_of(Report(**{**parts, "schema_version": SCHEMA_VERSION, "analyses": analyses}))
    try:
        adapter_of(Report).validate_json(text)
    except ValidationError as error:
        raise NumericalError(
            f"{place_of(error)} could not be computed, so there is no report to write", remedy="please report this run"
        ) from error
    return text


def from_json(text: str | bytes, where: str = REPORT_NAME) -> Run:
    """The run that a report holds. Fields that a newer minor version added are ignored.

    Raises InputError where the text is no report or of another major version.
    """
    report = checked(Report, text, where, SCHEMA_VERSION, "report", AGAIN)
    run = Run(**{field.name: getattr(report, field.name) for field in fields(report)})
    if not run.sources:
        raise InputError("not a valid report: sources: it holds none", where=where, remedy=AGAIN)
    if wrong := [name for name, entry in run.settings.items() if not {"value", "from"} <= entry.keys()]:
        raise InputError(f"not a valid report: settings.{wrong[0]}: no value or origin", where=where, remedy=AGAIN)
    return run


def read_run(folder: str | PathLike[str]) -> Run:
    """Read the run of a run folder, or of a report.json named directly."""
    path = Path(folder)
    if path.is_dir():
        path /= REPORT_NAME
    return from_json(bytes_of(path, "report", AGAIN), str(path))


def read_run_folder(folder: str | PathLike[str]) -> tuple[Path, Run]:
    """Return a run folder and its run. Raises UsageError for a file: the states and tables are needed too."""
    path = Path(folder)
    if not path.is_file():
        return path, read_run(path)
    if path.name == REPORT_NAME:
        remedy = f"name the folder {path.parent}"
        raise UsageError("is one file of a run, and all are needed", where=str(path), remedy=remedy)
    remedy = "score the sources with `secid score … --run FOLDER`, and name FOLDER"
    raise UsageError("is a file, not a run folder", where=str(path), remedy=remedy)
