"""What a process and its helpers say to each other: JSON, and arrays as they lie in memory. Nothing read can run.

A message is the size of its head in eight bytes, the head in JSON, and then the bytes of its arrays; in
the head each array's place is held by {"array": type code, "n": length}.
"""

from __future__ import annotations

import json
import traceback
from array import array
from collections.abc import Mapping
from typing import IO, Any

from secid import errors
from secid.errors import SecidError

SIZE_BYTES = 8
ERRORS: Mapping[str, type[SecidError]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, SecidError)
}


class HelperFailedError(RuntimeError):
    """A helper process met an error that is none of secid's; the message is what it would have printed."""


def send(pipe: IO[bytes], value: Any) -> None:
    """Writes one message: what JSON holds, but for dictionaries with keys from a file, and arrays.

    An array of numpy is sent as its `.data`.
    """
    arrays: list[memoryview] = []

    def held_place(value: Any) -> dict[str, Any]:
        if not isinstance(value, array | bytearray | memoryview):
            raise TypeError(f"{type(value).__name__} has no form for the wire")
        arrays.append(memoryview(value))
        return {"array": arrays[-1].format, "n": len(value)}

    head = json.dumps(value, default=held_place).encode()
    pipe.write(len(head).to_bytes(SIZE_BYTES, "little"))
    pipe.write(head)
    for values in arrays:
        pipe.write(values)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Reads one message. Raises EOFError where the other side has ended."""

    def filled(value: dict[str, Any]) -> Any:
        if value.keys() != {"array", "n"}:
            return value
        found = array(value["array"])
        found.frombytes(_exactly(pipe, value["n"] * found.itemsize))
        return found

    head = _exactly(pipe, int.from_bytes(_exactly(pipe, SIZE_BYTES), "little"))
    return json.loads(head, object_hook=filled)  # objects are met in the order they were written


def _exactly(pipe: IO[bytes], n_bytes: int) -> bytes:
    data = pipe.read(n_bytes)
    if len(data) < n_bytes:
        raise EOFError
    return data


def told(error: Exception) -> dict[str, Any]:
    """An error in values that can be sent."""
    if isinstance(error, SecidError):
        return {"class": type(error).__name__, **vars(error)}
    if isinstance(error, OSError) and error.errno is not None:
        path = [] if error.filename is None else [str(error.filename)]
        return {"class": "OSError", "values": [error.errno, error.strerror, *path]}
    return {"class": None, "text": "".join(traceback.format_exception(error))}


def error_of(value: Mapping[str, Any]) -> Exception:
    """The error that was told: the same class, message and fields; HelperFailedError for one that is unknown here."""
    name = value["class"]
    if name in ERRORS:
        return ERRORS[name](value["message"], where=value["where"], remedy=value["remedy"])
    if name == "OSError":
        return OSError(*value["values"])
    return HelperFailedError(f"a helper process failed:\n{value.get('text', name)}")
