"""Rows of JSON: lines, or a document that is parsed as a whole.

orjson parses. Where it refuses what Python's json writes (NaN, Infinity), json decides; NaN is null, since pandas
writes it for a missing cell.
"""

from __future__ import annotations

import codecs
import json
import re
from shlex import quote
from typing import Any

import orjson

from secid.errors import InputError
from secid.read.rewrites import as_lines, in_python, in_utf8, rewrite
from secid.read.rows import PART_BYTES, ROW_LIMIT, Broken, Part, Parts, Row, shorten, too_large, wrong_type
from secid.read.schemas.patterns import NEGATIVE, QUERY, fits
from secid.read.stream import CHUNK, ByteStream
from secid.records import Fact, fault_text

BOM = codecs.BOM_UTF8
DOCUMENT_LIMIT = 256 << 20
"""Largest JSON array or object that is a whole file (256 MiB): parsed it takes two to four times as much."""

WRAPPERS = ("data", "rows", "records", "examples", "train")
"""Keys under which a JSON object may hold its list of records."""

KEY_END = re.compile(rb'"[ \t\r\n]*:')
"""Every key of an object ends like this; texts rarely hold it. So its count is never below the number of keys."""

TOO_DEEP = Broken("too_deep", Fact("depth"))
"""orjson stops at 1024, Python's recursion a little before; nothing a record needs comes near it."""


def json_lines(stream: ByteStream) -> Parts:
    """One row per line, counted from 1; blank lines are skipped. Lines end at \\n alone: U+0085 and U+2028 are text."""
    number = 1
    for block in stream.line_blocks(ROW_LIMIT):
        if block is None:
            yield Part((number,), (too_large("line"),))
            number += 1
            continue
        lines = block.removesuffix(b"\n").split(b"\n")
        numbers = range(number, number + len(lines))
        number += len(lines)
        rows = _objects(block, lines)
        if rows is not None:
            yield Part(numbers, rows)
            continue
        parsed = [
            (at, parse_row(line.removeprefix(BOM) if at == 1 else line))
            for at, line in zip(numbers, lines, strict=True)
            if line.strip()
        ]
        if parsed:
            yield Part([at for at, _ in parsed], [row for _, row in parsed])


def _objects(block: bytes, lines: list[bytes]) -> list[Row | Broken] | None:
    """The objects of all lines, parsed the quick way; None where some line needs a closer look."""
    try:
        rows = list(map(orjson.loads, lines))
        if not all(type(row) is dict for row in rows):
            return None
        # Equal counts prove that no key is repeated in any of them, at 1 GB/s.
        n_key_ends = len(KEY_END.findall(block))
        return rows if n_key_ends == sum(map(len, rows)) or n_key_ends == sum(map(count_keys, rows)) else None
    except (ValueError, RecursionError):
        return None


def parse_row(text: bytes | bytearray) -> Row | Broken:
    """One JSON object or array from UTF-8 bytes, every check applied; Broken says what is wrong."""
    try:
        value = orjson.loads(text)
    except ValueError as error:
        value = _lenient(text, str(error))
    if isinstance(value, Broken):
        return value
    if not isinstance(value, dict | list):
        return _wrong_type(value)
    try:
        suspicious = sum(1 for _ in KEY_END.finditer(text)) > count_keys(value)
        repeated = _repeated_key(text) if suspicious else None
    except RecursionError:
        return TOO_DEEP
    return value if repeated is None else Broken("duplicate_key", Fact("repeated_key", {"key": shorten(repeated, 60)}))


def _wrong_type(value: Any) -> Broken:
    return Broken("wrong_type", wrong_type(value, "row", "object or list"))


def _lenient(text: bytes | bytearray, problem: str) -> Any:
    """What Python's json reads and orjson does not: NaN (as null), Infinity, numbers beyond float64."""
    if "depth" in problem:
        return TOO_DEEP
    try:
        value = json.loads(text, parse_constant=lambda name: None if name == "NaN" else float(name))
        # A lone surrogate (\ud800) passes json but is no text: it could never be written as UTF-8.
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        return TOO_DEEP
    except UnicodeEncodeError:
        return Broken("broken_line", Fact("half_surrogate"))
    except ValueError:
        return Broken("broken_line", Fact(_syntax(text, problem), {"parser": shorten(problem)}))
    return value


def _syntax(text: bytes | bytearray, problem: str) -> str:
    """The kind of fault of a line that is not JSON: what a program may have written, or else the parser's problem."""
    text = text.strip()
    if "UTF-8" in problem:
        return "not_utf8"
    if text.endswith((b"},", b"],")):
        return "comma_at_end"
    if re.match(rb"[\[{\s]+'", text):
        return "python_quotes"
    return "several_values" if "content after" in problem else "syntax"


def count_keys(value: Any) -> int:
    """Keys of the objects inside a parsed value; fewer where they lie deeper than lists of objects."""
    if type(value) is not dict:
        return sum(map(count_keys, value)) if type(value) is list else 0
    total = len(value)
    for inner in value.values():
        kind = type(inner)
        if kind is list:
            if inner and type(inner[0]) is dict:
                total += sum([len(item) for item in inner if type(item) is dict])
        elif kind is dict:
            total += count_keys(inner)
    return total


def _repeated_key(text: bytes | bytearray) -> str | None:
    repeated: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        if len({key for key, _ in pairs}) < len(pairs):
            keys = [key for key, _ in pairs]
            repeated.append(next(key for key in keys if keys.count(key) > 1))

    json.loads(text, object_pairs_hook=look)
    return repeated[0] if repeated else None


def json_document(stream: ByteStream) -> Parts:
    """Rows of a file that is one JSON value: the elements of an array, the list in a wrapper, or an object as a row.

    Numbers count rows from 1. Raises InputError where the file is not valid JSON or larger than DOCUMENT_LIMIT.
    """
    data = bytearray()
    while chunk := stream.read():
        data += chunk
        if len(data) > DOCUMENT_LIMIT:
            raise InputError(
                f"a JSON document of over {DOCUMENT_LIMIT >> 20} MiB, which would have to be parsed as a whole",
                where=stream.path,
                remedy=as_lines(stream.path, bytes(data[:CHUNK]).lstrip(BOM + b" \t\r\n")),
            )
    if data.startswith(BOM):
        del data[: len(BOM)]
    n_bytes, value = len(data), parse_row(data)
    del data
    if isinstance(value, Broken):
        raise InputError(
            f"not valid JSON ({fault_text(value.fact)})",
            where=stream.path,
            remedy=json_remedy(value, stream.path),
        )
    elements = value if isinstance(value, list) else unwrap(value)
    if isinstance(value, dict) and elements[0] is not value:
        _refuse_several_lists(value, stream.path)
    rows = [row if isinstance(row, dict | list) else _wrong_type(row) for row in elements]
    step = max(1, PART_BYTES * len(rows) // n_bytes)
    for at in range(0, len(rows), step):
        yield Part(range(at + 1, min(at + step, len(rows)) + 1), rows[at : at + step])


def json_remedy(problem: Broken, path: str, *, lines: bool = False) -> str:
    """What to do with a document, or with lines none of which can be read."""
    kind = problem.fact.kind
    if kind == "not_utf8":
        return in_utf8(path)
    if kind == "repeated_key":
        return "keep one of the two in each object; in JSON lines only these records are skipped"
    if kind == "comma_at_end":
        return "write one object per line, with no comma between them"
    if kind == "python_quotes":
        texts = "filter(str.strip, sys.stdin)" if lines else "[sys.stdin.read()]"
        return f"write it as JSON: {in_python(path, 'ast.literal_eval(text)', texts, 'text')}"
    if kind == "half_surrogate":
        return "replace it; in JSON lines only these records are skipped"
    if kind == "several_values":
        return f"write one value per line: {rewrite(path, 'jq -c .')}"
    if lines:
        return "is it JSON lines, CSV, TSV, Parquet or Arrow, in UTF-8?"
    return "the file may be cut short: make it again, or write one record per line, so that a bad one can be skipped"


def _refuse_several_lists(value: dict[str, Any], path: str) -> None:
    """Raises InputError where a wrapper holds further lists of objects, perhaps with other keys."""
    lists = [
        name for name, inner in value.items() if isinstance(inner, list) and any(type(row) is dict for row in inner)
    ]
    if len(lists) > 1:
        raise InputError(
            f"several lists of records: {', '.join(lists)}",
            where=path,
            remedy=f"write each to a file of its own: jq -c '.{lists[0]}[]' {quote(path)} > {quote(lists[0])}.jsonl",
        )


def unwrap(value: Row) -> list[Any]:
    """The records inside a JSON object: a list under a wrapper's key, or one of objects with query and negatives.

    The object itself where it names query and negative, or holds no such list.
    """
    inner: Any = value
    while isinstance(inner, dict) and not _is_record(inner):
        lists = [name for name, rows in inner.items() if isinstance(rows, list) and rows and isinstance(rows[0], dict)]
        lists = [name for name in WRAPPERS if name in lists] or [name for name in lists if _is_record(inner[name][0])]
        if lists:
            rows: list[Any] = inner[lists[0]]
            return rows
        inner = next(iter(inner.values())) if len(inner) == 1 else None
    return [value]


def _is_record(value: dict[str, Any]) -> bool:
    return all(any(fits(key, role) for key in value) for role in (QUERY, NEGATIVE))
