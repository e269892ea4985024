"""report.json: the run as one JSON document, and back; and the JSON of every other result.

A document is the dataclass itself; pydantic checks and writes it, so no field is described twice.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from secid.errors import InputError, NumericalError, UsageError
from secid.records import encodable
from secid.results import SCHEMA_VERSION, Run

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

    from secid.results.check import Check
    from secid.results.probe import Probe

BYTE_ORDER_MARK = "\ufeff"
AGAIN = "name a run folder of `secid score`, or a report.json; if it was a run, score again with --run"

REPORT_NAME, PROBE_NAME = "report.json", "probe.json"
"""Of the file in a run folder."""
CHECK_AGAIN = "name a run folder, or what `secid check SOURCE… -o check.json` wrote"
PROBE_AGAIN = "name a probe.json of `secid probe`, or probe again"


@cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """pydantic's reader and writer of a dataclass."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def to_json(result: Any) -> str:
    """A result, such as a run or a verdict, as indented JSON, keys in the order of the dataclasses, ending in a line
    feed.

    Numbers carry full double precision. Of a run the version is that of these fields, even if it was read from a newer
    report; raises NumericalError where a number is not finite that a report cannot do without.
    """
    if not isinstance(result, Run):
        return json_of(result)
    from pydantic import ValidationError

    text = json_of(replace(result, schema_version=SCHEMA_VERSION))
    try:
        adapter_of(Run).validate_json(text)
    except ValidationError as error:
        raise NumericalError(
            f"{_place(error)} could not be computed, so there is no report to write", remedy="please report this run"
        ) from error
    return text


def json_of(value: Any) -> str:
    """A dataclass as indented JSON, ending in a line feed; bytes of a file's name that are no UTF-8 become U+FFFD."""
    from pydantic_core import PydanticSerializationError, to_json

    kind: Any = type(value)
    adapter = adapter_of(kind)
    try:
        text = adapter.dump_json(value, indent=2)
    except PydanticSerializationError:
        text = to_json(_encodable(adapter.dump_python(value)), indent=2)
    return text.decode("utf-8") + "\n"


def _encodable(value: Any) -> Any:
    """What a dataclass holds as plain values, every text in it `encodable`."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list | tuple) else value


def from_json(text: str | bytes, where: str = REPORT_NAME) -> Run:
    """The run that a report holds. Fields that a newer minor version added are ignored.

    Raises InputError where the text is no report or of another major version.
    """
    run: Run = _checked(Run, text, where, SCHEMA_VERSION, "report", AGAIN)
    if not run.sources:
        raise InputError("not a valid report: sources: it holds none", where=where, remedy=AGAIN)
    if wrong := [name for name, entry in run.settings.items() if not {"value", "from"} <= entry.keys()]:
        raise InputError(f"not a valid report: settings.{wrong[0]}: no value or origin", where=where, remedy=AGAIN)
    return run


def _checked(kind: Any, text: str | bytes, where: str, version: str, what: str, again: str) -> Any:
    """The result of a document, checked. version : of the fields that this secid knows.   what : its name in errors."""
    from pydantic import ValidationError

    try:
        text = (text if isinstance(text, str) else text.decode("utf-8")).removeprefix(BYTE_ORDER_MARK)
        stated = json.loads(text, parse_constant=_no_number)["schema_version"]
        major = str(stated).split(".")[0]
    except (ValueError, RecursionError) as error:
        message = f"not a secid {what}: no JSON document, or only part of one: {error}"
        raise InputError(message, where=where, remedy=again) from error
    except (KeyError, TypeError) as error:
        raise InputError(f"not a secid {what}: no schema_version", where=where, remedy=again) from error
    if major != version.split(".")[0]:
        raise InputError(
            f"{what} of schema version {stated}; this secid reads version {version.split('.')[0]}.x",
            where=where,
            remedy=f"render it with the secid that wrote it, or {'score' if what == 'report' else what} again",
        )
    try:
        return adapter_of(kind).validate_json(text)
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"]
        raise InputError(f"not a valid {what}: {_place(error)}: {message}", where=where, remedy=again) from error


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _place(error: ValidationError) -> str:
    """Where the first error is, such as sources.0.trace."""
    return ".".join(map(str, error.errors(include_url=False)[0]["loc"])) or "as a whole"


def _bytes_of(path: Path, what: str, again: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the {what}: {error.strerror}", where=str(path), remedy=again) from error


def read_run(folder: str | PathLike[str]) -> Run:
    """Read the run of a run folder, or of a report.json named directly."""
    path = Path(folder)
    if path.is_dir():
        path /= REPORT_NAME
    return from_json(_bytes_of(path, "report", AGAIN), str(path))


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


def read_check(path: Path) -> Check:
    """Read what `secid check -o FILE.json` wrote."""
    from secid.results.check import CHECK_SCHEMA_VERSION, Check

    text = _bytes_of(path, "check", CHECK_AGAIN)
    check: Check = _checked(Check, text, str(path), CHECK_SCHEMA_VERSION, "check", CHECK_AGAIN)
    return check


def read_probe(path: str | PathLike[str]) -> Probe | None:
    """Read the probe of a run folder or of a probe.json named directly; None for a folder without one."""
    from secid.results.probe import PROBE_SCHEMA_VERSION, Probe

    file = Path(path)
    if file.is_dir():
        file /= PROBE_NAME
        if not file.exists():
            return None
    text = _bytes_of(file, "probe", PROBE_AGAIN)
    probe: Probe = _checked(Probe, text, str(file), PROBE_SCHEMA_VERSION, "probe", PROBE_AGAIN)
    return probe


def schema_of(kind: Any, mode: Literal["serialization", "validation"] = "serialization") -> dict[str, Any]:
    """JSON Schema of a document. mode: as it is written, or as it may be read."""
    schema = adapter_of(kind).json_schema(mode=mode)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": kind.__name__, **schema}
