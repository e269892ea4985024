"""Conversion of results to JSON documents and back, and the settings that the documents store."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from functools import cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from secid.errors import EncoderError, InputError, SettingsError
from secid.records import encodable
from secid.results import Run
from secid.settings import ENCODERS, FIELDS, Settings, checked_settings, encoder_kind, flag_of

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

    from secid.results.check import Check
    from secid.results.probe import Probe

# Results as JSON documents.
#
# pydantic writes and checks the dataclasses themselves, so a document needs no separate schema.

BYTE_ORDER_MARK = "\ufeff"
RUN_REMEDY = "name a run folder of `secid score`, or a report.json; if this run is damaged, score again with --run"

REPORT_NAME, PROBE_NAME = "report.json", "probe.json"
"""Names of the files in a run folder."""
CHECK_REMEDY = "name a run folder, or a file of `secid check SOURCE… -o check.json`"
PROBE_REMEDY = "name a probe.json of `secid probe`, or probe again"


@cache
def adapter_of(kind: Any) -> TypeAdapter[Any]:
    """Return the pydantic adapter that reads and writes a dataclass."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


LONG_NUMBERS = re.compile(rb"\[\n(?: +[-0-9][-+.0-9eE]*,\n){63,} +[-0-9][-+.0-9eE]*\n *\]")
"""An indented JSON array of at least 64 numbers. JSON strings contain no line feed, so they cannot match."""


def json_of(value: Any) -> str:
    """Return a dataclass as indented JSON that ends in a line feed. Lone surrogates become U+FFFD.

    An array of 64 or more numbers, such as a probe's metrics by query, is written on one line.
    """
    from pydantic_core import PydanticSerializationError, to_json

    kind: Any = type(value)
    adapter = adapter_of(kind)
    try:
        text = adapter.dump_json(value, indent=2)
    except PydanticSerializationError:
        text = to_json(_encodable(adapter.dump_python(value)), indent=2)
    one_line = LONG_NUMBERS.sub(lambda match: b"".join(match[0].split()), text)
    return one_line.decode("utf-8") + "\n"


def _encodable(value: Any) -> Any:
    """Return nested dictionaries and lists with `encodable` applied to every text."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list | tuple) else value


def parse_document(kind: Any, text: str | bytes, where: str, version: str, what: str, again: str) -> Any:
    """Parse and check a document. Raises InputError.

    where : path of the document, for errors.   version : schema version that this secid reads.
    what  : name of the document in errors.   again : remedy in errors.
    """
    from pydantic import ValidationError

    try:
        text = (text if isinstance(text, str) else text.decode("utf-8")).removeprefix(BYTE_ORDER_MARK)
        stated = json.loads(text, parse_constant=_no_number)["schema_version"]
        major = str(stated).split(".")[0]
    except (ValueError, RecursionError) as error:
        message = f"not a secid {what}: not JSON, or truncated: {error}"
        raise InputError(message, where=where, remedy=again) from error
    except (KeyError, TypeError) as error:
        raise InputError(f"not a secid {what}: no schema_version", where=where, remedy=again) from error
    if major != version.split(".")[0]:
        raise InputError(
            f"{what} has schema version {stated}, but this secid reads version {version.split('.')[0]}.x",
            where=where,
            remedy=f"use the version of secid that wrote it, or {again}",
        )
    try:
        return adapter_of(kind).validate_json(text)
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"]
        raise InputError(f"not a valid {what}: {error_place(error)}: {message}", where=where, remedy=again) from error


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def error_place(error: ValidationError) -> str:
    """Return the path of the first invalid field, such as sources.0.trace."""
    return ".".join(map(str, error.errors(include_url=False)[0]["loc"])) or "as a whole"


def read_bytes(path: Path, what: str, again: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the {what}: {error.strerror}", where=str(path), remedy=again) from error


def read_check(path: Path) -> Check:
    """Read a file of `secid check -o FILE.json`. Raises InputError."""
    from secid.results.check import CHECK_SCHEMA_VERSION, Check

    text = read_bytes(path, "check", CHECK_REMEDY)
    check: Check = parse_document(Check, text, str(path), CHECK_SCHEMA_VERSION, "check", CHECK_REMEDY)
    return check


def read_probe(path: str | PathLike[str]) -> Probe | None:
    """Read the probe.json of a run folder, or a probe.json; None for a folder without it. Raises InputError."""
    from secid.results.probe import PROBE_SCHEMA_VERSION, Probe

    file = Path(path)
    if file.is_dir():
        file /= PROBE_NAME
        if not file.exists():
            return None
    text = read_bytes(file, "probe", PROBE_REMEDY)
    probe: Probe = parse_document(Probe, text, str(file), PROBE_SCHEMA_VERSION, "probe", PROBE_REMEDY)
    return probe


def json_schema(kind: Any, mode: Literal["serialization", "validation"] = "serialization") -> dict[str, Any]:
    """Return the JSON Schema of a document. mode: "serialization" for written, "validation" for accepted documents."""
    schema = adapter_of(kind).json_schema(mode=mode)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": kind.__name__, **schema}


# Settings stored in a run folder, a state or a baseline. They determine the numbers.
#
# A stored setting never grants a permission, and never selects a local folder or an address. Those come from the
# command, the environment or a settings file.


LOADING_SETTINGS = (
    "device", "batch_tokens", "cache", "cache_dir", "cache_gb", "threads", "trust_remote_code", "allow_pickle",
)  # fmt: skip
"""Machine settings and permissions. A command that loads a stored encoder never takes these from the file."""


def settings_of(run: Run | Check, **changes: Any) -> Settings:
    """Return the settings of a run or a check, with changes.

    Encoders, permissions and machine settings keep their defaults, because the command decides them. Unknown settings
    from a newer secid are ignored. Raises InputError for an invalid value.
    """
    names = FIELDS.keys() - {*ENCODERS, *LOADING_SETTINGS}
    values = {name: entry["value"] for name, entry in run.settings.items() if name in names}
    try:
        return replace(checked_settings(values, dict.fromkeys(values, REPORT_NAME)), **changes)
    except SettingsError as error:
        raise InputError(f"settings.{error.message}", where=REPORT_NAME, remedy=RUN_REMEDY) from None


def refuse_unnamed(stored: str | None, setting: str, where: str) -> None:
    """Raise EncoderError if a stored encoder is a local folder or an address. The remedy is the flag to add.

    Short names, hub names and vectors files are accepted, since they run no code and receive no text.
    setting : one of ENCODERS.   where : file or folder that stores the name.
    """
    if stored and (kind := _place(stored)):
        raise EncoderError(
            f"{setting} is {kind}, and only this file names it",
            where=where,
            remedy=f"if you trust it, add {_shell_flag(setting, stored)}",
        )


def _place(encoder: str) -> str:
    """Return "an address" or "a local folder"; "" for any other encoder."""
    if encoder_kind(encoder) == "endpoint":
        return "an address"
    return "a local folder" if Path(encoder).expanduser().is_dir() else ""


def _shell_flag(setting: str, name: str) -> str:
    """Return the flag with its value, quoted for a shell."""
    flag, space, value = flag_of(setting, name).partition(" ")
    return f"{flag} {shlex.quote(value)}" if space else flag
