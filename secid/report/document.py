"""report.json: the run as one JSON document, and back.

The document is the `Run` dataclass itself; pydantic checks and writes it, so no field is described twice.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secid.errors import InputError
from secid.results import SCHEMA_VERSION, Run

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@cache
def _adapter() -> TypeAdapter[Run]:
    from pydantic import TypeAdapter

    return TypeAdapter(Run)


def to_json(run: Run) -> str:
    """The run as indented JSON, keys in the order of the dataclasses, ending in a line feed.

    Numbers carry full double precision; a number that is not finite is null.
    """
    return _adapter().dump_json(run, indent=2).decode("utf-8") + "\n"


def from_json(text: str | bytes, where: str = "report.json") -> Run:
    """The run that a report holds. Fields that a newer minor version added are ignored.

    Raises InputError where the text is no report or of another major version.
    """
    from pydantic import ValidationError

    try:
        version = json.loads(text)["schema_version"]
        major = str(version).split(".")[0]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError("not a secid report: no schema_version", where=where) from error
    if major != SCHEMA_VERSION.split(".")[0]:
        raise InputError(
            f"report of schema version {version}; this secid reads version {SCHEMA_VERSION.split('.')[0]}.x",
            where=where,
            remedy="render it with the secid that wrote it, or score again",
        )
    try:
        run = _adapter().validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"not a valid report: {place}: {first['msg']}", where=where) from error
    if not run.sources:
        raise InputError("not a valid report: sources: it holds none", where=where, remedy="score again")
    return run


def read_run(folder: Path) -> Run:
    """The run of a run folder, or of a report.json named directly."""
    path = folder / "report.json" if folder.is_dir() else folder
    try:
        return from_json(path.read_bytes(), str(path))
    except OSError as error:
        raise InputError(
            f"cannot read the report: {error.strerror}", where=str(path), remedy="name a run folder of `secid score`"
        ) from error


def json_schema() -> dict[str, Any]:
    """JSON Schema of report.json."""
    schema = _adapter().json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "secid report", **schema}
