"""The bytes of one input, decompressed on the way, and what every container makes of them: numbered rows of cells."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from secid.errors import InputError, plainly
from secid.records import Fact, is_object

# The bytes of one input: opened once, counted and hashed as they pass, decompressed on the way.
#
# Compression is recognised by its magic bytes, never by the file's name.

STDIN = "-"
HUB = "hf://"
"""How the address of a file of the model hub starts (secid/read/hub.py)."""
CHUNK = 1 << 20
"""Bytes requested at once: larger does not read faster, and memory stays near it."""

BLOCK = 1 << 18
"""Bytes of lines handled at once: what is made of them stays in the processor's cache."""

SPOOL_LIMIT = 16 << 30
"""Largest Parquet or Arrow input copied to a temporary file (16 GiB): these formats need random access."""

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
"""A zstd frame, or one without data, such as pzstd writes first."""


def on_disk(path: str) -> str:
    """The file behind a path: itself, or the copy of an address in the hub's cache."""
    if not path.startswith(HUB):
        return path
    from secid.read.hub import local  # only where an address is met: it costs 0.3 s

    return local(path)


def once_only(path: str) -> bool:
    """Whether a path can be read only once: standard input, an object, a pipe (`<(command)`, mkfifo), a device."""
    file = Path(path)
    return path == STDIN or is_object(path) or (file.exists() and not file.is_file())


class _Counted(io.RawIOBase):
    """Passes bytes through, keeping their number and their SHA-256."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self.n_bytes = 0
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._raw.read(len(buffer))
        buffer[: len(data)] = data
        self.n_bytes += len(data)
        self.digest.update(data)
        return len(data)

    def whole(self) -> None:
        """Counts and hashes a file that was read at random places."""
        self._raw.seek(0)
        self.digest = hashlib.file_digest(self._raw, "sha256")  # type: ignore[arg-type]
        self.n_bytes = self._raw.tell()

    def close(self) -> None:
        if self._raw is not sys.stdin.buffer:
            self._raw.close()
        super().close()


class ByteStream:
    """One opened input, decompressed.

    path : a file or pipe, or "-" for standard input.   raw : its bytes as a temporary file, for a Python object.
    `n_bytes_read` counts the bytes as they lie on disk; `sha256` is theirs, whole after `drain`.
    Raises InputError where the input cannot be opened or its compression is damaged.
    """

    def __init__(self, path: str, raw: BinaryIO | None = None) -> None:
        self.path = path
        self._raw = _open(path) if raw is None else raw
        self._in_place = raw is not None or not once_only(path)
        self._counted = _Counted(self._raw)
        self._packed = io.BufferedReader(cast("io.RawIOBase", self._counted), CHUNK)
        self._random: BinaryIO | None = None
        with self._errors():
            magic = self._packed.peek(4)[:4]
        self.compression = "gz" if magic.startswith(GZIP_MAGIC) else "zst" if ZSTD_MAGIC.match(magic) else ""
        self._plain = self._packed
        if self.compression:
            unpacked = _gzip(self._packed) if self.compression == "gz" else _zstd(self._packed)
            self._plain = io.BufferedReader(unpacked, CHUNK)

    @property
    def n_bytes_read(self) -> int:
        """Bytes taken from the disk so far, before decompression."""
        return self._counted.n_bytes

    @property
    def sha256(self) -> str:
        """Hex SHA-256 of the bytes read so far."""
        return self._counted.digest.hexdigest()

    def peek(self) -> bytes:
        """The first decompressed bytes (up to CHUNK of them) without consuming them; b"" where there are none."""
        with self._errors():
            return self._plain.peek(CHUNK)

    def lines(self, limit: int) -> Iterator[bytes | None]:
        """Lines with their \\n, which alone ends one; None for a line of more than `limit` bytes, passed over.

        Memory stays below `limit` plus a chunk, whatever the file holds.
        """
        readline = self._plain.readline
        with self._errors():
            while line := readline(limit + 1):
                if len(line) <= limit or line.endswith(b"\n"):
                    yield line
                    continue
                while (rest := readline(CHUNK)) and not rest.endswith(b"\n"):
                    pass
                yield None

    def line_blocks(self, limit: int) -> Iterator[bytes | None]:
        """The same lines, at most BLOCK bytes of whole ones at a time; None for one line of more than `limit` bytes."""
        plain, lines = self._plain, self.lines(limit)
        while True:
            with self._errors():
                ahead = plain.peek(1)
                block = plain.read(ahead.rfind(b"\n", 0, BLOCK) + 1)
            if block:
                yield block
            elif not ahead:
                return
            else:
                yield next(lines)

    def read(self) -> bytes:
        """Up to CHUNK decompressed bytes; b"" at the end."""
        with self._errors():
            return self._plain.read(CHUNK)

    def random_access(self) -> BinaryIO:
        """The decompressed bytes as a seekable file: the input itself, or a temporary copy."""
        if self._random is None and not self.compression and self._in_place:
            self._random = self._raw
        if self._random is None:
            self._random = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
            while chunk := self.read():
                if self._random.tell() > SPOOL_LIMIT:
                    raise InputError(f"unpacks to more than {SPOOL_LIMIT >> 30} GiB", where=self.path)
                self._random.write(chunk)
        self._random.seek(0)
        return self._random

    def drain(self) -> None:
        """Read what is left, so that count and hash cover the whole input."""
        with self._errors():
            if self._random is self._raw:
                self._counted.whole()
                return
            while self._plain.read(CHUNK) or self._packed.read(CHUNK):
                pass

    def close(self) -> None:
        """Close the file; standard input stays open."""
        for file in (self._plain, self._packed, self._random):
            if file is not None:
                file.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Read errors in the user's words."""
        try:
            yield
        except (OSError, EOFError, zlib.error, ValueError) as error:
            if getattr(error, "errno", None) is None and self.compression:
                raise InputError(
                    f"the compressed data are damaged or cut short ({plainly(error)})",
                    where=self.path,
                    remedy="copy or make the file again",
                ) from error
            raise InputError(f"cannot be read ({plainly(error)})", where=self.path) from error


def _gzip(packed: BinaryIO) -> io.RawIOBase:
    return cast("io.RawIOBase", gzip.GzipFile(fileobj=packed, mode="rb"))


def _zstd(packed: BinaryIO) -> io.RawIOBase:
    # Imported where a file needs it.
    import pyarrow as pa

    return cast("io.RawIOBase", pa.CompressedInputStream(pa.PythonFile(packed, "r"), "zstd"))


def _open(path: str) -> BinaryIO:
    if path == STDIN:
        return sys.stdin.buffer
    try:
        # A pipe gives what has arrived; with a buffer it waits for as much as is requested.
        return Path(on_disk(path)).open("rb", buffering=CHUNK if once_only(path) else 0)
    except OSError as error:
        raise InputError(f"cannot be opened ({error.strerror})", where=path) from error


# What every container yields: numbered rows, or the reason why one is none.

Row = dict[str, Any] | list[Any]
"""A JSON object or table row with named columns, or a row whose columns have only positions."""

ROW_LIMIT = 64 << 20
"""Largest row in bytes (64 MiB): four orders of magnitude above a record of ten long passages,
and small enough that a hostile file cannot fill the memory."""

PART_BYTES = 1 << 20
"""Rows handled at once, in bytes: hundreds of usual rows hide the cost of a call, and one row of the limit fits too."""

PART_ROWS = 4096
"""Rows handled at once where they are short: as objects, those of two bytes take a hundred times as much."""

SHOWN_LENGTH = 200
"""Most characters of a text that an error or a defect shows."""

UTF_8 = "write it in UTF-8: iconv -f ENCODING -t UTF-8"

KINDS = {dict: "object", list: "list", tuple: "list", str: "text", bool: "true or false", int: "number",
         float: "number", type(None): "null"}  # fmt: skip
"""JSON types by those of Python."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A row that could not be parsed. `reason` is a key of REASONS. Never subscriptable: extractors rely on it."""

    reason: str
    fact: Fact


class Part(NamedTuple):
    """Rows that follow each other in a file, with the 1-based line or row number of each.

    done: share of the file behind the last row; 0.0 where the bytes read show it.
    """

    numbers: Sequence[int]
    rows: Sequence[Row | Broken]
    done: float = 0.0


Parts = Iterator[Part]


def gathered(rows: Iterator[tuple[int, Row | Broken, int]]) -> Parts:
    """Rows with their sizes in bytes, in parts of PART_BYTES or PART_ROWS."""
    numbers: list[int] = []
    values: list[Row | Broken] = []
    total = 0
    for number, row, size in rows:
        numbers.append(number)
        values.append(row)
        total += size
        if total > PART_BYTES or len(values) == PART_ROWS:
            yield Part(numbers, values)
            numbers, values, total = [], [], 0
    if numbers:
        yield Part(numbers, values)


def wrong_type(value: Any, of: str, expected: str) -> Fact:
    """A value of another type than its place asks for. of: the place."""
    return Fact("type", {"of": of, "got": KINDS.get(type(value), type(value).__name__), "expected": expected})


def too_large(of: str) -> Broken:
    """A line or row that is over the limit."""
    return Broken("too_large", Fact("size", {"of": of, "mib": ROW_LIMIT >> 20}))


def shorten(text: str, length: int = SHOWN_LENGTH) -> str:
    """One line of at most `length` characters."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else line[: length - 1] + "…"


def shown(value: Any, length: int = SHOWN_LENGTH) -> str:
    """A text, or any other value as JSON, in one line of at most `length` characters, however deep it is nested."""
    if isinstance(value, str):
        return shorten(value, length)
    parts = json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value)
    return shorten("".join(islice(parts, length + 1)), length)


# What one cell holds: a text, or the id of one.

TEXT_KEYS = ("text", "contents", "content", "passage_text", "document_text", "passage", "document", "body")
ID_KEYS = ("docid", "doc_id", "pid", "psg_id", "passage_id", "corpus_id", "corpus-id", "document_id", "_id", "id")
TITLE_KEY = "title"


def passage_text(passage: Mapping[str, Any]) -> Any:
    """The text of a passage object, whatever its type; None where it has none."""
    return next((passage[key] for key in TEXT_KEYS if key in passage), None)


def passage_id(passage: Mapping[str, Any]) -> Any:
    """The id of a passage object; None where it has none."""
    return next((passage[key] for key in ID_KEYS if key in passage), None)


def join_title(title: Any, text: str) -> str:
    """Title, space, text, as in Tevatron, DPR, E5 and BEIR; only one of them where the other is empty."""
    if not isinstance(title, str) or not title:
        return text
    return f"{title} {text}" if text else title


def leaves(value: Any) -> Iterator[Any]:
    """Every text or id inside a cell, a list, or a dict of lists; for detection only."""
    waiting = [value]  # no recursion: a bad row may be nested arbitrarily deep
    while waiting:
        value = waiting.pop()
        if isinstance(value, list | tuple):
            waiting.extend(reversed(value))
        elif isinstance(value, dict):
            text = passage_text(value)
            leaf = passage_id(value) if text is None else text
            if leaf is not None:
                yield leaf
            else:
                waiting.extend(inner for inner in value.values() if isinstance(inner, list))
        elif value is not None:
            yield value
