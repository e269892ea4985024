"""Rows of JSON: lines, a streamed array, a whole object.

orjson parses. Where it refuses what Python's json writes (NaN, Infinity) json has the second word; NaN is null,
since pandas means a missing cell by it.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

import orjson

from secid.errors import InputError
from secid.read.rows import ENCODING, ROW_LIMIT, Broken, Part, Parts, Row, shorten
from secid.read.schemas.patterns import NEGATIVE, QUERY, fits
from secid.read.stream import CHUNK, ByteStream

BOM = codecs.BOM_UTF8
OBJECT_LIMIT = 256 << 20
"""Largest JSON object that is a whole file (256 MiB): it cannot be streamed, and parsed it takes a few times more."""

WRAPPERS = ("data", "rows", "records", "examples", "train")
"""Keys under which a JSON object may hold its list of records."""

KEY_END = re.compile(rb'"[ \t\r\n]*:')
"""Every key of an object ends so; texts hold it rarely. So its count is never below the number of keys."""

TOO_DEEP = Broken("too_deep", "nested about a thousand deep")
"""orjson stops at 1024, Python's recursion a little before; nothing a record needs comes near it."""


def json_lines(stream: ByteStream) -> Parts:
    """One row a line, counted from 1; blank ones are none. Lines end at \\n alone: U+0085 and U+2028 are of texts."""
    number = 1
    for block in stream.line_blocks(ROW_LIMIT):
        if block is None:
            yield Part((number,), (Broken("too_large", f"line over {ROW_LIMIT >> 20} MiB"),))
            number += 1
            continue
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        numbers = range(number, number + len(lines))
        number += len(lines)
        rows = _objects(block, lines)
        if rows is not None:
            yield Part(numbers, rows)
            continue
        found = [
            (at, parse_row(line.removeprefix(BOM) if at == 1 else line))
            for at, line in zip(numbers, lines, strict=True)
            if line.strip()
        ]
        yield Part([at for at, _ in found], [row for _, row in found])


def _objects(block: bytes, lines: list[bytes]) -> list[Row | Broken] | None:
    """The objects of all lines, parsed the quick way; None where some line needs a closer look."""
    try:
        rows = list(map(orjson.loads, lines))
        if not all(type(row) is dict for row in rows):
            return None
        # Equal counts prove that no key is there twice in any of them, at 1 GB/s.
        n_key_ends = len(KEY_END.findall(block))
        return rows if n_key_ends == sum(map(len, rows)) or n_key_ends == sum(map(count_keys, rows)) else None
    except (ValueError, RecursionError):
        return None


def parse_row(text: bytes) -> Row | Broken:
    """One JSON object or array from UTF-8 bytes, every check applied; Broken says what is wrong."""
    try:
        value = orjson.loads(text)
    except ValueError as error:
        value = _second_word(text, str(error))
    if isinstance(value, Broken):
        return value
    if not isinstance(value, dict | list):
        return Broken("wrong_type", f"a {type(value).__name__} where an object or array is expected")
    try:
        repeated = _repeated_key(text) if len(KEY_END.findall(text)) > count_keys(value) else None
    except RecursionError:
        return TOO_DEEP
    return value if repeated is None else Broken("duplicate_key", f"key {shorten(repeated, 60)!r} is there twice")


def _second_word(text: bytes, problem: str) -> Any:
    """What Python's json reads where orjson does not: NaN (as null), Infinity, numbers beyond float64."""
    if "depth" in problem:
        return TOO_DEEP
    try:
        value = json.loads(text, parse_constant=lambda name: None if name == "NaN" else float(name))
        # A lone surrogate (\ud800) passes json but is no text: it could never be written as UTF-8.
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        return TOO_DEEP
    except ValueError:
        return Broken("broken_line", shorten(problem + _hint(text)))
    return value


def _hint(text: bytes) -> str:
    """What is wrong with a line that a program has written so, and how it would be right."""
    text = text.strip()
    if text.endswith((b"},", b"],")):
        return "; a comma ends the line, as in an array without its brackets"
    if text.startswith((b"{'", b"['")):
        return "; single quotes are Python's, not JSON's: `json.dumps` writes it"
    return ""


def count_keys(value: Any) -> int:
    """Keys of the objects inside a parsed value; fewer where they lie deeper than lists of objects."""
    if type(value) is not dict:
        return sum(len(item) for item in value if type(item) is dict) if type(value) is list else 0
    total = len(value)
    for inner in value.values():
        kind = type(inner)
        if kind is list:
            if inner and type(inner[0]) is dict:
                total += sum([len(item) for item in inner if type(item) is dict])
        elif kind is dict:
            total += count_keys(inner)
    return total


def _repeated_key(text: bytes) -> str | None:
    repeated: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        if len({key for key, _ in pairs}) < len(pairs):
            keys = [key for key, _ in pairs]
            repeated.append(next(key for key in keys if keys.count(key) > 1))

    json.loads(text, object_pairs_hook=look)
    return repeated[0] if repeated else None


def json_array(stream: ByteStream) -> Iterator[tuple[int, Row | Broken, int]]:
    """Elements of one JSON array and their sizes, a window of the file at a time. Numbers count elements from 1.

    Raises InputError where the array is malformed or cut short (elements cannot be told apart any
    more), or where one element is larger than the row limit.
    """
    window = _Window(stream)
    window.take("[")
    number = 0
    while not window.ends("]"):
        if number:
            window.take(",")
        number += 1
        element = window.element(number)
        yield number, parse_row(element), len(element)
    if window.rest():
        raise InputError("text follows the end of the JSON array", where=stream.path)


class _Window:
    """A sliding view of decoded text over a stream, for one JSON value after another."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._scan = json.JSONDecoder().raw_decode
        self._text = ""
        self._at = 0
        self._done = False

    def _more(self) -> bool:
        """Drop what is consumed and append at least as much again as is left; False at the end."""
        if self._done:
            return False
        left = len(self._text) - self._at
        data = self._stream.read(max(CHUNK, left))
        try:
            text = self._decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise InputError(f"not valid UTF-8 ({error.reason})", where=self._stream.path, remedy=ENCODING) from error
        self._text = self._text[self._at :] + text
        self._at = 0
        self._done = not data
        return True

    def rest(self) -> str:
        """The next character that is not white space; "" at the end. It is not consumed."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def ends(self, character: str) -> bool:
        """Whether `character` comes next; consumes it."""
        if self.rest() != character:
            return False
        self._at += 1
        return True

    def take(self, character: str) -> None:
        if not self.ends(character):
            got = repr(self.rest()) if self.rest() else "the end of the file"
            raise InputError(
                f"not valid JSON: {character!r} expected, got {got}",
                where=self._stream.path,
                remedy="the file is cut short or damaged; make it again, or write one record a line",
            )

    def element(self, number: int) -> bytes:
        """The bytes of the next value."""
        self.rest()
        while True:
            try:
                _, end = self._scan(self._text, self._at)
            except RecursionError as error:
                raise InputError(f"element {number} is nested too deep", where=self._stream.path) from error
            except ValueError as error:
                comma = "a comma before the end" if self._text[self._at : self._at + 1] == "]" else ""
                problem = comma or str(error)
            else:
                # A number at the window's edge may go on behind it.
                if end < len(self._text) or not self._more():
                    value = self._text[self._at : end]
                    self._at = end
                    return value.encode("utf-8", errors="surrogatepass")
                continue
            if len(self._text) - self._at > ROW_LIMIT:
                raise InputError(
                    f"element {number} is malformed or larger than {ROW_LIMIT >> 20} MiB", where=self._stream.path
                )
            if not self._more():
                raise InputError(
                    f"element {number} of the JSON array is malformed or cut short ({problem})",
                    where=self._stream.path,
                    remedy="make the file again, or write one record a line so that a bad one can be skipped",
                )


def json_object(stream: ByteStream) -> Parts:
    """Rows of a file that is one JSON object: those under a wrapper key, else the object as the only row.

    Raises InputError where the file is no valid JSON or larger than OBJECT_LIMIT.
    """
    parts: list[bytes] = []
    size = 0
    while chunk := stream.read(CHUNK):
        parts.append(chunk)
        size += len(chunk)
        if size > OBJECT_LIMIT:
            raise InputError(
                f"one JSON object of over {OBJECT_LIMIT >> 20} MiB, which cannot be read piece by piece",
                where=stream.path,
                remedy="write one record a line (.jsonl)",
            )
    value = parse_row(b"".join(parts).removeprefix(BOM))
    if isinstance(value, Broken):
        raise InputError(
            f"not valid JSON ({value.detail})",
            where=stream.path,
            remedy="several values must stand on a line each (`jq -c .` writes so) or in one array",
        )
    rows = unwrap(value)
    if rows[0] is not value:
        _refuse_several_lists(value, stream.path)
    yield Part(range(1, len(rows) + 1), rows)


def _refuse_several_lists(value: Row, path: str) -> None:
    """Raises InputError where a wrapper holds other lists of objects, perhaps of other keys, beside the one read."""
    lists = [
        name
        for name, inner in (value.items() if isinstance(value, dict) else ())
        if isinstance(inner, list) and any(isinstance(row, dict) for row in inner)
    ]
    if len(lists) > 1:
        raise InputError(
            f"several lists of records: {', '.join(lists)}", where=path, remedy="write each into a file of its own"
        )


def unwrap(value: Row) -> list[Row]:
    """The records inside a JSON object: a list under a wrapper's key, or one of objects with query and negatives.

    The object itself where it names query and negative, or holds no such list.
    """
    inner: Any = value
    while isinstance(inner, dict) and not _is_record(inner):
        lists = [name for name, rows in inner.items() if isinstance(rows, list) and rows and isinstance(rows[0], dict)]
        lists = [name for name in WRAPPERS if name in lists] or [name for name in lists if _is_record(inner[name][0])]
        if lists:
            return [row if isinstance(row, dict | list) else {} for row in inner[lists[0]]]
        inner = next(iter(inner.values())) if len(inner) == 1 else None
    return [value]


def _is_record(value: dict[str, Any]) -> bool:
    return all(any(fits(key, role) for key in value) for role in (QUERY, NEGATIVE))
