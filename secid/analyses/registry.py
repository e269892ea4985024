"""The list of all analyses, and reading and writing of report.json.

To add an analysis, add one line to ANALYSES. Analyses run, and appear in report.json, in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, is_dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from secid.analyses.ablations import ABLATIONS
from secid.analyses.analysis import Analysis, Context
from secid.analyses.budgets import BUDGETS
from secid.analyses.cost import COST
from secid.analyses.equal_hardness import EQUAL_HARDNESS
from secid.analyses.guide import GUIDE, MARGINS
from secid.analyses.in_batch import IN_BATCH
from secid.analyses.objectives import OBJECTIVE_LENS
from secid.analyses.overlap import OVERLAP
from secid.analyses.profile import PROFILE
from secid.analyses.separation import SEPARATION
from secid.analyses.slices import SLICES
from secid.errors import BUG_REMEDY, InputError, NumericalError, UsageError
from secid.results import SCHEMA_VERSION, Run
from secid.results.document import REPORT_NAME, RUN_REMEDY, adapter_of, error_place, json_of, parse_document, read_bytes

ANALYSES: tuple[Analysis[Any], ...] = (
    ABLATIONS,
    PROFILE,
    EQUAL_HARDNESS,
    BUDGETS,
    SLICES,
    GUIDE,
    MARGINS,
    OBJECTIVE_LENS,
    SEPARATION,
    IN_BATCH,
    OVERLAP,
    COST,
)


def analyse(
    context: Context, stage: Callable[[str], AbstractContextManager[object]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Run all analyses. Return the results by name, and the reason for each part that was not evaluated.

    Analyses without a result are missing from the results.   stage : times the analysis of this name.
    """
    results: dict[str, Any] = {}
    missing = dict(context.not_evaluated)
    for analysis in ANALYSES:
        with stage(analysis.name):
            outcome = analysis.compute(context)
        if outcome.result is not None:
            results[analysis.name] = outcome.result
        missing |= outcome.not_evaluated
    return results, missing


def in_rank_order(result: Any, names: Sequence[str]) -> Any:
    """Sort the parts of a result that belong to sources in the order of `names`."""
    if isinstance(result, tuple):
        return tuple(sorted(result, key=lambda part: names.index(part.source))) if _of_sources(result) else result
    if is_dataclass(result) and not isinstance(result, type):
        parts = {field.name: getattr(result, field.name) for field in fields(result)}
        return replace(
            result, **{name: in_rank_order(part, names) for name, part in parts.items() if _of_sources(part)}
        )
    return result


def _of_sources(parts: Any) -> bool:
    return isinstance(parts, tuple) and all(hasattr(part, "source") for part in parts)


def reordered(results: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Sort the parts of all results in rank order. names: the sources in that order."""
    return {name: in_rank_order(result, names) for name, result in results.items()}


# report.json is a JSON document of a run and the results of its analyses.

if TYPE_CHECKING:
    Results = dict[str, Any]
else:
    Results = TypedDict("Results", {analysis.name: analysis.kind for analysis in ANALYSES}, total=False)


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(Run):
    """A run with typed `analyses`, for JSON."""

    analyses: Results


def to_json(result: Any) -> str:
    """Return a result, such as a run or a verdict, as indented JSON that ends in a line feed.

    Keys are in the order of the dataclasses, and numbers have full double precision. A run gets the current schema
    version, even if it was read from a newer report. Raises NumericalError if a required number is not finite.
    """
    from pydantic import ValidationError

    if not isinstance(result, Run):
        return json_of(result)
    results = result.analyses
    analyses = {analysis.name: results[analysis.name] for analysis in ANALYSES if analysis.name in results}
    parts = {field.name: getattr(result, field.name) for field in fields(result)}  # without cached properties
    text = json_of(Report(**{**parts, "schema_version": SCHEMA_VERSION, "analyses": analyses}))
    try:
        adapter_of(Report).validate_json(text)
    except ValidationError as error:
        raise NumericalError(
            f"{error_place(error)} could not be computed, so no report was written", remedy=BUG_REMEDY
        ) from error
    return text


def from_json(text: str | bytes, where: str = REPORT_NAME) -> Run:
    """Parse a report into a run. Fields that a newer minor version added are ignored.

    Raises InputError if the text is not a report, or has another major version.
    """
    report = parse_document(Report, text, where, SCHEMA_VERSION, "report", RUN_REMEDY)
    run = Run(**{field.name: getattr(report, field.name) for field in fields(report)})
    if not run.sources:
        raise InputError("not a valid report: it has no sources", where=where, remedy=RUN_REMEDY)
    if wrong := [name for name, entry in run.settings.items() if not {"value", "from"} <= entry.keys()]:
        raise InputError(f"not a valid report: settings.{wrong[0]}: no value or origin", where=where, remedy=RUN_REMEDY)
    return run


def read_run(folder: str | PathLike[str]) -> Run:
    """Read a run from a run folder, or from the path of a report.json."""
    path = Path(folder)
    if path.is_dir():
        path /= REPORT_NAME
    return from_json(read_bytes(path, "report", RUN_REMEDY), str(path))


def read_run_folder(folder: str | PathLike[str]) -> tuple[Path, Run]:
    """Return a run folder and its run. Raises UsageError for a file, since the states and tables are needed too."""
    path = Path(folder)
    if not path.is_file():
        return path, read_run(path)
    if path.name == REPORT_NAME:
        remedy = f"name the folder {path.parent}"
        raise UsageError("is only one file of a run folder, and all files are needed", where=str(path), remedy=remedy)
    remedy = "score the sources with `secid score … --run FOLDER`, then name FOLDER"
    raise UsageError("is a file, not a run folder", where=str(path), remedy=remedy)
