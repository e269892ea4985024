"""The bytes of one input: counted and hashed as they pass, unpacked on the way.

Compression is recognised by its magic bytes, never by the file's name.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from secid.errors import InputError, plainly

STDIN = "-"
CHUNK = 1 << 20
"""Bytes asked for at once: larger does not read faster, and memory stays near it."""

BLOCK = 1 << 18
"""Bytes of lines handled at once: what is made of them stays in the processor's cache."""

ZSTD_WINDOW = 1 << 27
"""Largest zstd window accepted (128 MiB, what `zstd --long` writes): a frame may ask for 2 GB."""

ZSTD_SLICE = 1 << 10
"""Packed bytes handed to zstd at once: 4 bytes may say 128 KiB, so a bomb of 1 KiB unpacks to 32 MiB at most."""

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_SKIPPED = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
"""A frame that holds no data, such as pzstd writes first."""
DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error, zstandard.ZstdError)


def once_only(path: str) -> bool:
    """Whether a path gives its bytes only once: standard input, a pipe (`<(command)`, mkfifo), a device."""
    file = Path(path)
    return path == STDIN or (file.exists() and not file.is_file())


class _Counted(io.RawIOBase):
    """Passes bytes through, keeping their number and their SHA-256.

    The hash is taken in a thread (hashlib lets go of the interpreter), one block behind the reader.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self.n_bytes = 0
        self._digest = hashlib.sha256()
        self._hashing = ThreadPoolExecutor(max_workers=1)
        self._behind: Future[None] | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        # `read` instead of `readinto`: the hash needs bytes of its own.
        data = self._raw.read(len(buffer))
        buffer[: len(data)] = data
        self.n_bytes += len(data)
        self._wait()
        if data:
            self._behind = self._hashing.submit(self._digest.update, data)
        return len(data)

    def sha256(self) -> str:
        self._wait()
        return self._digest.hexdigest()

    def _wait(self) -> None:
        if self._behind is not None:
            self._behind.result()
            self._behind = None

    def close(self) -> None:
        self._hashing.shutdown()
        if self._raw is not sys.stdin.buffer:
            self._raw.close()
        super().close()


class _ZstdFrames(io.RawIOBase):
    """zstd frames unpacked one after another; a frame cut short is an error, not an end.

    zstandard's own stream reader takes a frame cut short for its end, so frames are fed by hand.
    """

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._unused = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            data = self._unused or self._packed.read(ZSTD_SLICE)
            if not data:
                if self._frame is not None:
                    raise EOFError("a zstd frame has no end")
                return 0
            frame = self._frame or self._decompressor.decompressobj()
            self._ready = memoryview(frame.decompress(data))
            self._unused = frame.unused_data if frame.eof else b""
            self._frame = None if frame.eof else frame
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


class ByteStream:
    """One opened input, unpacked.

    path : a file or pipe, or "-" for standard input.
    `n_bytes_read` counts the bytes as they lie on disk; `sha256` is theirs, whole after `drain`.
    Raises InputError where the input cannot be opened or its compression is damaged.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._counted = _Counted(_open(path))
        packed = io.BufferedReader(cast("io.RawIOBase", self._counted), CHUNK)
        self._packed = packed
        with self._readable():
            magic = packed.peek(4)[:4]
        if magic.startswith(GZIP_MAGIC):
            self.compression = "gz"
            self._plain = io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=packed, mode="rb")), CHUNK)
        elif magic == ZSTD_MAGIC or ZSTD_SKIPPED.match(magic):
            self.compression = "zst"
            self._plain = io.BufferedReader(_ZstdFrames(packed), CHUNK)
        else:
            self.compression = ""
            self._plain = packed

    @property
    def n_bytes_read(self) -> int:
        """Bytes taken from the disk so far, before unpacking."""
        return self._counted.n_bytes

    @property
    def sha256(self) -> str:
        """Hex SHA-256 of the bytes read so far."""
        return self._counted.sha256()

    def peek(self) -> bytes:
        """The first unpacked bytes (up to CHUNK of them) without taking them; b"" where there are none."""
        with self._readable():
            return self._plain.peek(CHUNK)

    def lines(self, limit: int) -> Iterator[bytes | None]:
        """Lines with their \\n, which alone ends one; None for a line of more than `limit` bytes, passed over.

        Memory stays below `limit` plus a chunk, whatever the file holds.
        """
        readline = self._plain.readline
        with self._readable():
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
            with self._readable():
                ahead = plain.peek(1)
                block = plain.read(ahead.rfind(b"\n", 0, BLOCK) + 1)
            if block:
                yield block
            elif not ahead:
                return
            else:
                yield next(lines)

    def read(self, size: int = CHUNK) -> bytes:
        """Up to `size` unpacked bytes; b"" at the end."""
        with self._readable():
            return self._plain.read(size)

    def drain(self) -> None:
        """Read what is left, so that count and hash cover the whole input."""
        while self.read():
            pass
        with self._readable():
            while self._packed.read(CHUNK):
                pass

    def close(self) -> None:
        """Close the file; standard input stays open."""
        self._plain.close()
        self._packed.close()

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Read errors in the user's words."""
        try:
            yield
        except DAMAGED as error:
            raise InputError(
                f"the compressed data are damaged or cut short ({error})",
                where=self.path,
                remedy="copy or make the file again",
            ) from error
        except (OSError, ValueError) as error:
            raise InputError(f"cannot be read ({plainly(error)})", where=self.path) from error


def _open(path: str) -> BinaryIO:
    if path == STDIN:
        return sys.stdin.buffer
    try:
        # A pipe gives what has arrived; with a buffer it waits for as much as is asked for.
        return Path(path).open("rb", buffering=CHUNK if once_only(path) else 0)
    except OSError as error:
        raise InputError(f"cannot be opened ({error.strerror})", where=path) from error
