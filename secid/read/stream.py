"""Read the decompressed bytes of an input, and define the numbered rows that every container makes of them."""

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
from secid.records import STANDARD_INPUT, Fact, is_object

# The bytes of one input are opened once, and counted, hashed and decompressed as they are read. Magic bytes show the
# compression; the file's name is ignored.

OPEN_REMEDY = "check that the file exists and that this user may read it"
HUB_PREFIX = "hf://"
"""Prefix of an address on the model hub (secid/read/hub.py)."""
CHUNK_BYTES = 1 << 20
"""Bytes per read. Larger reads are not faster, and take more memory."""

PARSE_BLOCK_BYTES = 1 << 18
"""Maximum bytes of lines to parse at once, so that their rows stay in the processor's cache."""

SPOOL_LIMIT = 16 << 30
"""Maximum size of a temporary copy in bytes (16 GiB), so that no packed file fills the disk. Parquet and Arrow need
random access."""

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
"""Pattern of the start of a zstd frame, or of an empty frame, which pzstd writes first."""


def on_disk(path: str) -> str:
    """Return the path on disk: the path itself, or for an address its copy in the hub's cache."""
    if not path.startswith(HUB_PREFIX):
        return path
    from secid.read.hub import local  # only for an address: the import takes 0.3 s

    return local(path)


def is_read_once(path: str) -> bool:
    """Tell whether a path can be read only once: standard input, an object, a pipe (`<(command)`, mkfifo), a device."""
    file = Path(path)
    return path == STANDARD_INPUT or is_object(path) or (file.exists() and not file.is_file())


class _Counted(io.RawIOBase):
    """A stream that passes bytes through, and tracks their number and SHA-256."""

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
    """An open input that returns decompressed bytes.

    path : a file or pipe, or "-" for standard input.   raw : for a Python object, a temporary file with its rows.
    `n_bytes_read` and `sha256` describe the bytes on disk, and the whole input after `drain`.
    Raises InputError if the input cannot be opened or its compressed data are damaged.
    """

    def __init__(self, path: str, raw: BinaryIO | None = None) -> None:
        self.path = path
        self._raw = _open(path) if raw is None else raw
        self._in_place = raw is not None or not is_read_once(path)
        self._counted = _Counted(self._raw)
        self._packed = io.BufferedReader(cast("io.RawIOBase", self._counted), CHUNK_BYTES)
        self._random: BinaryIO | None = None
        with self._errors():
            magic = self._packed.peek(4)[:4]
        self.compression = "gz" if magic.startswith(GZIP_MAGIC) else "zst" if ZSTD_MAGIC.match(magic) else ""
        unpacked: Any = None
        if self.compression == "gz":
            unpacked = gzip.GzipFile(fileobj=self._packed, mode="rb")
        elif self.compression == "zst":
            import pyarrow as pa  # only if a file needs it

            unpacked = pa.CompressedInputStream(pa.PythonFile(self._packed, "r"), "zstd")
        self._plain = self._packed if unpacked is None else io.BufferedReader(unpacked, CHUNK_BYTES)

    @property
    def n_bytes_read(self) -> int:
        """Return the bytes read from disk so far, before decompression."""
        return self._counted.n_bytes

    @property
    def sha256(self) -> str:
        """Return the hex SHA-256 of the bytes read so far."""
        return self._counted.digest.hexdigest()

    def peek(self) -> bytes:
        """Return the first decompressed bytes (up to CHUNK_BYTES) without consuming them; b"" for an empty input."""
        with self._errors():
            return self._plain.peek(CHUNK_BYTES)

    def lines(self, limit: int) -> Iterator[bytes | None]:
        """Yield lines with their \\n, the only line end; None for one over `limit` bytes. Memory stays near `limit`."""
        readline = self._plain.readline
        with self._errors():
            while line := readline(limit + 1):
                if len(line) <= limit or line.endswith(b"\n"):
                    yield line
                    continue
                while (rest := readline(CHUNK_BYTES)) and not rest.endswith(b"\n"):
                    pass
                yield None

    def line_blocks(self, limit: int) -> Iterator[bytes | None]:
        """Yield blocks of whole lines, up to PARSE_BLOCK_BYTES, or one longer line; None for a line over `limit`."""
        plain, lines = self._plain, self.lines(limit)
        while True:
            with self._errors():
                ahead = plain.peek(1)
                block = plain.read(ahead.rfind(b"\n", 0, PARSE_BLOCK_BYTES) + 1)
            if block:
                yield block
            elif not ahead:
                return
            else:
                yield next(lines)

    def read(self) -> bytes:
        """Return up to CHUNK_BYTES of decompressed data; b"" at the end."""
        with self._errors():
            return self._plain.read(CHUNK_BYTES)

    def random_access(self) -> BinaryIO:
        """Return the decompressed bytes as a seekable file: the input itself, or a temporary copy."""
        if self._random is None and not self.compression and self._in_place:
            self._random = self._raw
        if self._random is None:
            self._random = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
            while chunk := self.read():
                if self._random.tell() > SPOOL_LIMIT:
                    message = f"unpacks to more than {SPOOL_LIMIT >> 30} GiB"
                    raise InputError(message, where=self.path, remedy="unpack it first, and name the unpacked file")
                self._random.write(chunk)
        self._random.seek(0)
        return self._random

    def drain(self) -> None:
        """Read the rest of the input, so that the count and hash cover all of it."""
        with self._errors():
            if self._random is self._raw:
                self._counted.count_whole_file()
                return
            while self._plain.read(CHUNK_BYTES) or self._packed.read(CHUNK_BYTES):
                pass

    def close(self) -> None:
        """Close the file; standard input stays open."""
        for file in (self._plain, self._packed, self._random):
            if file is not None:
                file.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise read errors as InputError, with a plain message."""
        try:
            yield
        except (OSError, EOFError, zlib.error, ValueError) as error:
            if getattr(error, "errno", None) is None and self.compression:
                raise InputError(
                    f"the compressed data are damaged or cut short ({plain_message(error)})",
                    where=self.path,
                    remedy="copy or write the file again",
                ) from error
            raise InputError(
                f"cannot be read ({plain_message(error)})", where=self.path, remedy="copy the file again"
            ) from error


def _open(path: str) -> BinaryIO:
    if path == STANDARD_INPUT:
        return sys.stdin.buffer
    try:
        # An unbuffered read of a pipe may return fewer bytes than requested; a buffered read waits for all of them.
        return Path(on_disk(path)).open("rb", buffering=CHUNK_BYTES if is_read_once(path) else 0)
    except OSError as error:
        raise InputError(f"cannot be opened ({error.strerror})", where=path, remedy=OPEN_REMEDY) from error


# The output of every container: numbered rows, with a reason for each row that cannot be parsed.

Row = dict[str, Any] | list[Any]
"""A dict of named columns, or a list of cells if columns have no names."""

ROW_LIMIT = 64 << 20
"""Maximum size of a row in bytes (64 MiB), ten thousand times a record with ten long passages. Memory holds it."""

PART_BYTES = 1 << 20
"""Target size of a part in bytes. Hundreds of typical rows hide the cost of a call. The last row may exceed it."""

PART_ROWS = 4096
"""Maximum number of rows in a part. As Python objects, two-byte rows take a hundred times as much memory."""

MAX_SHOWN_CHARS = 200
"""Maximum length of a text that an error or a defect shows."""

UTF_8_REMEDY = "write it in UTF-8: iconv -f ENCODING -t UTF-8"

JSON_TYPES = {dict: "object", list: "list", tuple: "list", str: "text", bool: "true or false", int: "number",
         float: "number", type(None): "null"}  # fmt: skip
"""Python type -> name of the JSON type."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A row that could not be parsed. `reason` is a key of SKIP_REASONS. It must not be subscriptable, because
    extractors rely on a TypeError.
    """

    reason: str
    fact: Fact


class Part(NamedTuple):
    """Consecutive rows of a file. numbers: their 1-based line or row numbers.

    fraction_read : of the file, up to the last row; 0.0 if the container's progress is measured in bytes instead.
    """

    numbers: Sequence[int]
    rows: Sequence[Row | Broken]
    fraction_read: float = 0.0


PartIterator = Iterator[Part]


def in_parts(rows: Iterator[tuple[int, Row | Broken, int]]) -> PartIterator:
    """Group rows into parts of PART_BYTES or PART_ROWS. rows: tuples (number, row, size in bytes)."""
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
    """Return the fact that a value has an unexpected type. of: name of the value's role, such as "query"."""
    return Fact("type", {"of": of, "got": JSON_TYPES.get(type(value), type(value).__name__), "expected": expected})


def too_large(of: str) -> Broken:
    """Return the Broken row for a line or row over ROW_LIMIT. of: "line" or "row"."""
    return Broken("too_large", Fact("size", {"of": of, "mib": ROW_LIMIT >> 20}))


def shorten(text: str, length: int = MAX_SHOWN_CHARS) -> str:
    """Return a text as one line of at most `length` characters."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else line[: length - 1] + "…"


def shown(value: Any, length: int = MAX_SHOWN_CHARS) -> str:
    """Return a value as one line of at most `length` characters: a text unchanged, others as JSON."""
    if isinstance(value, str):
        return shorten(value, length)
    parts = json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value)
    return shorten("".join(islice(parts, length + 1)), length)


# Cells hold a text or the id of a text.

TEXT_KEYS = ("text", "contents", "content", "passage_text", "document_text", "passage", "document", "body")
ID_KEYS = ("docid", "doc_id", "pid", "psg_id", "passage_id", "corpus_id", "corpus-id", "document_id", "_id", "id")
TITLE_KEY = "title"


def passage_text(passage: Mapping[str, Any]) -> Any:
    """Return the value under the first known text key of a passage object, of any type; None without one."""
    return next((passage[key] for key in TEXT_KEYS if key in passage), None)


def passage_id(passage: Mapping[str, Any]) -> Any:
    """Return the value under the first known id key of a passage object; None without one."""
    return next((passage[key] for key in ID_KEYS if key in passage), None)


def join_title(title: Any, text: str) -> str:
    """Return "title text", as Tevatron, DPR, E5 and BEIR do; only the title or the text if the other is empty."""
    if not isinstance(title, str) or not title:
        return text
    return f"{title} {text}" if text else title


def leaves(value: Any) -> Iterator[Any]:
    """Yield every text or id inside a cell, a list, or a dict of lists. Only detection uses it."""
    waiting = [value]  # no recursion, because a bad row may be nested to any depth
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
