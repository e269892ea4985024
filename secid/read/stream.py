"""The bytes of one input, decompressed, and the numbered rows of cells that every container makes of them."""

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

from secid.errors import InputError, plain_message
from secid.records import Fact, is_object

# The bytes of one input: opened once, counted, hashed and decompressed as they are read.
#
# Magic bytes show the compression, never the file's name.

STDIN = "-"
HUB = "hf://"
"""Start of the address of a file of the model hub (secid/read/hub.py)."""
CHUNK = 1 << 20
"""Bytes per read. Larger reads are not faster, and memory stays near this size."""

BLOCK = 1 << 18
"""Bytes of lines handled at once, so that their rows stay in the processor's cache."""

SPOOL_LIMIT = 16 << 30
"""Largest Parquet or Arrow input copied to a temporary file (16 GiB): these formats need random access."""

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
"""Start of a zstd frame, or of one without data, which pzstd writes first."""


def on_disk(path: str) -> str:
    """Return the file behind a path: itself, or the copy of an address in the hub's cache."""
    if not path.startswith(HUB):
        return path
    from secid.read.hub import local  # only for an address: the import takes 0.3 s

    return local(path)


def once_only(path: str) -> bool:
    """Tell whether a path can be read only once: standard input, an object, a pipe (`<(command)`, mkfifo), a device."""
    file = Path(path)
    return path == STDIN or is_object(path) or (file.exists() and not file.is_file())


class _Counted(io.RawIOBase):
    """A stream that passes bytes through and keeps their number and SHA-256."""

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

    def count_whole_file(self) -> None:
        """Count and hash a file that was read at random places."""
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
    `n_bytes_read` and `sha256` are of the bytes on disk, and cover the whole input after `drain`.
    Raises InputError if the input cannot be opened or its compressed data are damaged.
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
        """Return the bytes read from disk so far, before decompression."""
        return self._counted.n_bytes

    @property
    def sha256(self) -> str:
        """Return the hex SHA-256 of the bytes read so far."""
        return self._counted.digest.hexdigest()

    def peek(self) -> bytes:
        """Return the first decompressed bytes (up to CHUNK) without consuming them; b"" for an empty input."""
        with self._errors():
            return self._plain.peek(CHUNK)

    def lines(self, limit: int) -> Iterator[bytes | None]:
        """Yield lines with their \\n, the only line end; None for a line of more than `limit` bytes, which is skipped.

        Memory stays below `limit` plus a chunk for any file.
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
        """Yield the lines of `lines`, at most BLOCK bytes of whole ones at a time; None for one over `limit`."""
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
        """Return up to CHUNK decompressed bytes; b"" at the end."""
        with self._errors():
            return self._plain.read(CHUNK)

    def random_access(self) -> BinaryIO:
        """Return the decompressed bytes as a seekable file: the input itself, or a temporary copy."""
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
        """Read the rest, so that count and hash cover the whole input."""
        with self._errors():
            if self._random is self._raw:
                self._counted.count_whole_file()
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
        """Raise read errors as InputError, in the user's words."""
        try:
            yield
        except (OSError, EOFError, zlib.error, ValueError) as error:
            if getattr(error, "errno", None) is None and self.compression:
                raise InputError(
                    f"the compressed data are damaged or cut short ({plain_message(error)})",
                    where=self.path,
                    remedy="copy or make the file again",
                ) from error
            raise InputError(f"cannot be read ({plain_message(error)})", where=self.path) from error


def _gzip(packed: BinaryIO) -> io.RawIOBase:
    return cast("io.RawIOBase", gzip.GzipFile(fileobj=packed, mode="rb"))


def _zstd(packed: BinaryIO) -> io.RawIOBase:
    # Imported only if a file needs it.
    import pyarrow as pa

    return cast("io.RawIOBase", pa.CompressedInputStream(pa.PythonFile(packed, "r"), "zstd"))


def _open(path: str) -> BinaryIO:
    if path == STDIN:
        return sys.stdin.buffer
    try:
        # A pipe returns what has arrived; with a buffer, a read waits for all that it requests.
        return Path(on_disk(path)).open("rb", buffering=CHUNK if once_only(path) else 0)
    except OSError as error:
        raise InputError(f"cannot be opened ({error.strerror})", where=path) from error


# The output of every container: numbered rows, and the reason for each that cannot be parsed.

Row = dict[str, Any] | list[Any]
"""A JSON object or table row with named columns, or a row whose columns have only positions."""

ROW_LIMIT = 64 << 20
"""Largest row in bytes (64 MiB): four orders of magnitude above a record of ten long passages, and small enough that
a hostile file cannot fill the memory."""

PART_BYTES = 1 << 20
"""Bytes of rows handled at once: hundreds of usual rows hide the cost of a call. One row more may exceed them."""

PART_ROWS = 4096
"""Most rows handled at once: as objects, rows of two bytes take a hundred times as much memory."""

SHOWN_LENGTH = 200
"""Most characters of a text that an error or a defect shows."""

UTF_8 = "write it in UTF-8: iconv -f ENCODING -t UTF-8"

KINDS = {dict: "object", list: "list", tuple: "list", str: "text", bool: "true or false", int: "number",
         float: "number", type(None): "null"}  # fmt: skip
"""Names of JSON types by Python type."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A row that could not be parsed. `reason` is a key of REASONS. Never subscriptable: extractors rely on it."""

    reason: str
    fact: Fact


class Part(NamedTuple):
    """Consecutive rows of a file, with the 1-based line or row number of each.

    done: share of the file read up to the last row; 0.0 if the bytes read show it.
    """

    numbers: Sequence[int]
    rows: Sequence[Row | Broken]
    done: float = 0.0


Parts = Iterator[Part]


def in_parts(rows: Iterator[tuple[int, Row | Broken, int]]) -> Parts:
    """Group numbered rows, given with their sizes in bytes, into parts of PART_BYTES or PART_ROWS."""
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
    """Return the fact that a value has another type than expected. of: its place."""
    return Fact("type", {"of": of, "got": KINDS.get(type(value), type(value).__name__), "expected": expected})


def too_large(of: str) -> Broken:
    """Return a line or row that is over the limit."""
    return Broken("too_large", Fact("size", {"of": of, "mib": ROW_LIMIT >> 20}))


def shorten(text: str, length: int = SHOWN_LENGTH) -> str:
    """Return a text as one line of at most `length` characters."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else line[: length - 1] + "…"


def shown(value: Any, length: int = SHOWN_LENGTH) -> str:
    """Return a text, or any other value as JSON of any depth, as one line of at most `length` characters."""
    if isinstance(value, str):
        return shorten(value, length)
    parts = json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value)
    return shorten("".join(islice(parts, length + 1)), length)


# Cells: a text, or the id of one.

TEXT_KEYS = ("text", "contents", "content", "passage_text", "document_text", "passage", "document", "body")
ID_KEYS = ("docid", "doc_id", "pid", "psg_id", "passage_id", "corpus_id", "corpus-id", "document_id", "_id", "id")
TITLE_KEY = "title"


def passage_text(passage: Mapping[str, Any]) -> Any:
    """Return the text of a passage object, of any type; None without one."""
    return next((passage[key] for key in TEXT_KEYS if key in passage), None)


def passage_id(passage: Mapping[str, Any]) -> Any:
    """Return the id of a passage object; None without one."""
    return next((passage[key] for key in ID_KEYS if key in passage), None)


def join_title(title: Any, text: str) -> str:
    """Return title, space, text, as in Tevatron, DPR, E5 and BEIR; only one of them if the other is empty."""
    if not isinstance(title, str) or not title:
        return text
    return f"{title} {text}" if text else title


def leaves(value: Any) -> Iterator[Any]:
    """Yield every text or id inside a cell, a list, or a dict of lists; for detection only."""
    waiting = [value]  # no recursion: a bad row may be nested without end
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
