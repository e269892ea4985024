"""What goes between processes arrives as it was sent: values, arrays, rows, errors."""

from __future__ import annotations

import inspect
import io
import json
from array import array
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secid import errors
from secid.errors import BadRecordsError, SchemaError, SecidError
from secid.pool import gathering
from secid.pool.collect import Rows
from secid.pool.gathering import Part, ShareReader, serve
from secid.pool.helpers import Job
from secid.processes import ERRORS, HelperFailedError, error_of, receive, send, start, told
from secid.read import open_source, resolve_sources
from secid.settings import Settings

SPOKEN = st.text(st.characters())
"""Lone surrogates too: a JSON file can hold them as escapes."""
NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1)).map(lambda values: array("q", values))
BYTES = st.binary().map(lambda data: array("B", data))


def across(value: Any) -> Any:
    """What the other side gets."""
    pipe = io.BytesIO()
    send(pipe, value)
    pipe.seek(0)
    found = receive(pipe)
    assert pipe.read() == b""
    return found


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | SPOKEN | NUMBERS | BYTES,
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["rows", "array", "n "]), inner),
    )
)
def test_values_and_arrays_arrive(value):
    assert across(value) == value


def test_several_messages_in_a_row():
    pipe = io.BytesIO()
    for number in range(3):
        send(pipe, [number, array("i", range(number)), bytearray(b"ab"), "\n"])
    pipe.seek(0)
    for number in range(3):
        assert receive(pipe) == [number, array("i", range(number)), array("B", b"ab"), "\n"]
    with pytest.raises(EOFError):
        receive(pipe)


def test_a_message_cut_short_is_an_end():
    pipe = io.BytesIO()
    send(pipe, {"values": array("q", range(10))})
    for size in range(len(pipe.getvalue())):
        with pytest.raises(EOFError):
            receive(io.BytesIO(pipe.getvalue()[:size]))


def test_objects_are_refused():
    with pytest.raises(TypeError, match="Path"):
        send(io.BytesIO(), [Path("file")])


@pytest.mark.parametrize("kind", sorted(ERRORS))
def test_an_error_arrives_as_the_same_class_with_its_fields(kind):
    error = ERRORS[kind]("what “went” wrong\n\ud800", where="a\tb.jsonl:3", remedy=None)
    found = error_of(across(told(error)))
    assert type(found) is type(error)
    assert vars(found) == vars(error)
    assert str(found) == str(error)
    assert found.exit_code == error.exit_code


def test_every_error_of_the_tree_is_known():
    def below(kind: type) -> set[type]:
        return {kind}.union(*map(below, kind.__subclasses__()))

    mine = {kind for kind in below(SecidError) if kind.__module__.startswith("secid.")}
    assert set(ERRORS.values()) == mine
    assert all(inspect.getmodule(kind) is errors for kind in mine)


def test_an_error_of_the_system_keeps_its_number_and_file():
    found = error_of(across(told(PermissionError(13, "Permission denied", "/data/a.jsonl"))))
    assert isinstance(found, PermissionError)
    assert (found.errno, found.strerror, found.filename) == (13, "Permission denied", "/data/a.jsonl")
    assert error_of(across(told(OSError(28, "No space left on device")))).args == (28, "No space left on device")


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), MemoryError(), OSError("odd"), KeyError("key")])
def test_an_unknown_error_is_told_with_its_traceback(error):
    try:
        raise error
    except Exception as caught:
        found = error_of(across(told(caught)))
    assert type(found) is HelperFailedError
    assert "Traceback" in str(found)
    assert "test_wire.py" in str(found)
    assert f"{type(error).__name__}" in str(found)


def rows_of(part: Part) -> list[dict[str, Any]]:
    return [vars(rows) for rows in part.collected.rows()]


def test_a_part_arrives_whole(tmp_path):
    """Splits, fields, bad rows, examples; the keys are no words of the wire."""
    lines = [
        {"query": "q", "pos": ["p"], "neg": {"array": ["n", "m"], "n": ["n", ""]}, "kind": "ü"},
        {"query": "r", "pos": ["p"], "neg": {"array": ["o"]}, "kind": "array"},
        {"query": "", "pos": ["p"], "neg": {"n": ["o"]}, "kind": None},
        [],
    ]
    path = tmp_path / "miners.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    settings = Settings(by="kind")
    sources = resolve_sources([str(path)], settings)
    (share,) = open_source(sources[0], settings).shares(1 << 20) or ()
    reader = ShareReader(sources, settings, tmp_path, "-0")
    part = reader.read(Job(0, share))
    found = Part.of(across(part.plain()))
    assert found.queries == [replace_keys(segment) for segment in part.queries]
    assert replace(found, collected=part.collected, queries=part.queries, passages=part.passages) == part
    sent, arrived = rows_of(part), rows_of(found)
    assert arrived == sent
    assert [rows["name"] for rows in arrived] == ["miners:array", "miners:n"]
    assert arrived[0]["skipped"] == Counter(wrong_type=1)
    reader.close()


def replace_keys(segment: Any) -> Any:
    """Keys are bytes on one side, an array of them on the other."""
    return segment._replace(keys=array("B", segment.keys))


def test_every_field_of_rows_is_sent():
    rows = Rows("name", None)
    assert rows.plain().keys() == vars(rows).keys()


def answer_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception) -> Any:
    """What a helper answers whose reading raises this."""

    def fail(self: ShareReader, job: Job) -> Part:
        raise error

    requests, answers = io.BytesIO(), tmp_path / "answers"
    send(requests, [[["a", ["a.jsonl"]]], vars(Settings()), str(tmp_path), "-1"])
    send(requests, Job(0, gathering.Share(0, 10, (0, 10))))
    requests.seek(0)
    monkeypatch.setattr(ShareReader, "read", fail)
    with answers.open("wb") as file, monkeypatch.context() as patch:
        patch.setattr(start.sys, "stdin", io.TextIOWrapper(requests))
        patch.setattr(start.os, "dup", lambda _: file.fileno())
        patch.setattr(start.os, "dup2", lambda *_: None)
        patch.setattr(start.os, "fdopen", lambda *_: file)
        serve()
    with answers.open("rb") as file:
        return receive(file)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SchemaError("fits two", where="a.jsonl", remedy="--format"), SchemaError),
        (BadRecordsError("too many"), BadRecordsError),
        (OSError(28, "No space left on device"), OSError),
        (ZeroDivisionError("by zero"), HelperFailedError),
    ],
)
def test_a_helper_answers_with_its_error(monkeypatch, tmp_path, error, kind):
    found = error_of(answer_of(monkeypatch, tmp_path, error)["error"])
    assert type(found) is kind
    assert str(error) in str(found)
