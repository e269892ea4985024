"""report.json: the run as one JSON document, and back; and the JSON of every other result.

A document is the dataclass itself; pydantic checks and writes it, so no field is described twice.
"""

from __future__ import annotations

import json
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from secid.errors import InputError
from secid.records import encodable

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


def checked(kind: Any, text: str | bytes, where: str, version: str, what: str, again: str) -> Any:
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
        raise InputError(f"not a valid {what}: {place_of(error)}: {message}", where=where, remedy=again) from error


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def place_of(error: ValidationError) -> str:
    """Where the first error is, such as sources.0.trace."""
    return ".".join(map(str, error.errors(include_url=False)[0]["loc"])) or "as a whole"


def bytes_of(path: Path, what: str, again: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the {what}: {error.strerror}", where=str(path), remedy=again) from error


def read_check(path: Path) -> Check:
    """Read what `secid check -o FILE.json` wrote."""
    from secid.results.check import CHECK_SCHEMA_VERSION, Check

    text = bytes_of(path, "check", CHECK_AGAIN)
    check: Check = checked(Check, text, str(path), CHECK_SCHEMA_VERSION, "check", CHECK_AGAIN)
    return check


def read_probe(path: str | PathLike[str]) -> Probe | None:
    """Read the probe of a run folder or of a probe.json named directly; None for a folder without one."""
    from secid.results.probe import PROBE_SCHEMA_VERSION, Probe

    file = Path(path)
    if file.is_dir():
        file /= PROBE_NAME
        if not file.exists():
            return None
    text = bytes_of(file, "probe", PROBE_AGAIN)
    probe: Probe = checked(Probe, text, str(file), PROBE_SCHEMA_VERSION, "probe", PROBE_AGAIN)
    return probe


def schema_of(kind: Any, mode: Literal["serialization", "validation"] = "serialization") -> dict[str, Any]:
    """JSON Schema of a document. mode: as it is written, or as it may be read."""
    schema = adapter_of(kind).json_schema(mode=mode)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": kind.__name__, **schema}
