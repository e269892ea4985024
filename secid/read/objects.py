"""Take Python objects as sources: write their rows to a temporary file, and read it like any other.

An object's type is recognised from its methods, so no table library is imported. Like standard input, an object can be
read only once, and no later command can read it again. Results and messages show its name in angle brackets in place of
a path: <bm25>.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, BinaryIO

import orjson

from secid.errors import InputError, UsageError, plain_message
from secid.read.stream import JSON_TYPES, shorten
from secid.records import path_of_object

Write = Callable[[BinaryIO], None]
SOURCE_TYPES = (
    "give a path, a datasets.Dataset or IterableDataset, a table that exports Arrow streams (pandas 2.2 or newer, "
    "polars, pyarrow), or an iterable of dicts; to name it, give (name, object)"
)
ONE_TYPE_REMEDY = "give each column one type, texts or lists of texts, or leave out those that secid does not need"
AS_JSON_REMEDY = "use only texts, numbers, lists and dicts in a row, and None for a missing value"


@dataclass(frozen=True, eq=False)
class ObjectSpec:
    """A source in memory. kind: container that `write` produces. write: function that writes all rows to a file."""

    name: str
    kind: str
    write: Write

    @property
    def path(self) -> str:
        """Return the text that replaces a path in results and messages."""
        return path_of_object(self.name)

    def open(self) -> BinaryIO:
        """Return a temporary file with all rows, at its start. Raises InputError if a row cannot be written."""
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by its reader
        try:
            self.write(file)
        except BaseException:
            file.close()
            raise
        file.seek(0)
        return file


Spec = str | ObjectSpec


def specs_of(sources: Any) -> list[Spec]:
    """Return the sources of an API call: paths and `name=path` as text, and objects as ObjectSpec.

    An object without a name is named after its position in the list: source-1, source-2.
    Raises UsageError for anything else, and lists what a source can be.
    """
    return [_spec(source, place) for place, source in enumerate(_listed(sources), 1)]


def _listed(sources: Any) -> list[Any]:
    """Return sources as a list, with items of a dict as (name, source). A list of dicts is one source."""
    if isinstance(sources, Mapping):
        return list(sources.items())
    is_table = hasattr(sources, "__arrow_c_stream__") or _is_dataset(sources)
    if isinstance(sources, str | PathLike) or is_table or not isinstance(sources, Iterable):
        return [sources]
    items = list(sources)
    return [items] if items and all(type(row) is dict for row in items) else items


def _spec(source: Any, place: int) -> Spec:
    if isinstance(source, ObjectSpec):
        return source
    name, value = f"source-{place}", source
    if isinstance(source, tuple):
        if len(source) != 2 or not isinstance(source[0], str) or not source[0].strip():
            raise UsageError(
                "a tuple must be (name, object), with a name that is not empty", where=name, remedy=SOURCE_TYPES
            )
        name, value = source[0].strip(), source[1]
    if isinstance(value, str | PathLike):
        path = fspath(value)
        return path if value is source else f"{name}={path}"
    if isinstance(value, Mapping):
        keys = [repr(key) for key in value] or ["'train'"]  # a DatasetDict, or sources by name
        raise UsageError(
            f"a {_kind(value)} holds several sources ({shorten(', '.join(keys), 100)})",
            where=name,
            remedy=f"give one: data[{keys[0]}]",
        )
    is_stored = _is_dataset(value) and hasattr(value, "__len__") and value.format["type"] != "custom"
    if is_stored or hasattr(value, "__arrow_c_stream__"):
        return ObjectSpec(name, "arrow_stream", lambda file: _write_arrow(value, name, file))
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return ObjectSpec(name, "jsonl", lambda file: _write_dicts(value, name, file))
    raise UsageError(f"not a source: {_kind(value)}", where=name, remedy=SOURCE_TYPES)


def _kind(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__.split('.')[0]}.{kind.__qualname__}"
    )


def _is_dataset(value: Any) -> bool:
    """Tell whether a value is a Dataset or IterableDataset of the `datasets` library."""
    return hasattr(value, "with_format") and hasattr(value, "features") and hasattr(value, "iter")


def _write_arrow(value: Any, name: str, file: BinaryIO) -> None:
    """Write a datasets.Dataset, or an object that exports an Arrow stream, batch by batch."""
    import pyarrow as pa

    from secid.read.containers import row_slices, with_inner_types

    try:
        if _is_dataset(value):
            # A shuffled Dataset gives each row as a chunk, and writing a batch per row takes minutes.
            tables = (table.combine_chunks() for table in value.with_format("arrow").iter(DATASET_ROWS))
            schema, batches = value.features.arrow_schema, (batch for table in tables for batch in table.to_batches())
        else:
            batches = pa.RecordBatchReader.from_stream(value)
            schema = batches.schema
        whole = pa.schema([field.with_type(with_inner_types(field.type, _without_view)) for field in schema])
        with pa.ipc.new_stream(file, whole) as writer:
            for batch in batches:
                for batch_slice in row_slices(batch if schema == whole else batch.cast(whole)):
                    writer.write_batch(
                        batch_slice
                    )  # slices, because a DataFrame is one batch and readers hold whole ones
    except (pa.ArrowException, ValueError, TypeError) as error:
        problem = shorten(" ".join(map(str, error.args)), 160)
        raise InputError(
            f"cannot be read as an Arrow table ({problem})", where=path_of_object(name), remedy=ONE_TYPE_REMEDY
        ) from error


DATASET_ROWS = 1000
"""Number of rows to take from a Dataset at once."""


def _without_view(kind: Any) -> Any:
    """Return the plain type for an Arrow view type (polars): a slice of a view is written with the whole column."""
    import pyarrow as pa

    return pa.large_string() if kind == pa.string_view() else pa.large_binary() if kind == pa.binary_view() else kind


def _write_dicts(rows: Iterable[Any], name: str, file: BinaryIO) -> None:
    """Write rows as JSON lines, with NaN as null.

    Raises InputError if the first row is not a dict or JSON cannot hold a value. A later row that is not a dict is
    written too, and the reader counts it as bad.
    """
    for number, row in enumerate(rows, 1):
        if number == 1 and not isinstance(row, Mapping):
            raise InputError(
                f"rows must be dicts, but the first is {JSON_TYPES.get(type(row), _kind(row))}",
                where=f"{path_of_object(name)}:1",
                remedy=SOURCE_TYPES,
            )
        file.write(_json(dict(row) if isinstance(row, Mapping) else row, name, number))


def _json(row: Any, name: str, number: int) -> bytes:
    try:
        return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        pass  # long integers, keys that are not text, lone surrogates: the reader reports these
    try:
        return f"{json.dumps(row)}\n".encode()
    except (TypeError, ValueError, RecursionError) as error:
        where = f"{path_of_object(name)}:{number}"
        raise InputError(
            f"cannot be read as JSON ({shorten(plain_message(error), 160)})", where=where, remedy=AS_JSON_REMEDY
        ) from error
