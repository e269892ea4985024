"""Read and write segments of the embedding cache: folders with rows, the keys of their texts, and checksums."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secid.encode.encoder import Float32Rows
from secid.files import sha256_of

# Sixteen-byte keys of texts, looked up in sorted arrays without a Python loop.

KeyBytes = NDArray[np.uint8]
Words = NDArray[np.uint64]


def key_words(keys: KeyBytes) -> tuple[Words, Words]:
    """Return the two halves of 16-byte keys (n, 16) as (n,) uint64 each. The numbers sort in the order of the bytes."""
    words = np.ascontiguousarray(keys).view(">u8").astype(np.uint64)
    return words[:, 0], words[:, 1]


def find_keys(high: Words, low: Words, in_high: Words, in_low: Words) -> NDArray[np.int64]:
    """Return (n,) int64 position of each key among the stored keys; -1 for a missing key.

    high, low       : (n,) words of the keys to find. Sorted keys are fastest, because memory is then read in order.
    in_high, in_low : (m,) words of the stored keys, sorted by both words.
    All 16 bytes are compared.
    """
    positions = np.full(len(high), -1, dtype=np.int64)
    place = np.searchsorted(in_high, high)
    pending = np.flatnonzero(place < len(in_high))
    while len(pending):  # one round, except for keys that share their first eight bytes
        candidate = place[pending]
        same_high = in_high[candidate] == high[pending]
        hit = same_high & (in_low[candidate] == low[pending])
        positions[pending[hit]] = candidate[hit]
        pending = pending[same_high & ~hit]
        place[pending] += 1
        pending = pending[place[pending] < len(in_high)]
    return positions


def sha256_keys(texts: Sequence[str]) -> KeyBytes:
    """Return the first half of each text's SHA-256 (UTF-8), (n, 16) uint8. 128 bits rule out collisions in practice."""
    digests = b"".join([hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts])
    return np.frombuffer(digests, dtype=np.uint8).reshape(len(texts), 32)[:, :16]


# SHA-256 of files. Hashes of weights are stored, because hashing 16 GB takes longer than a run from the cache.

SETTLED_SECONDS = 10.0
"""Minimum age of a file for its hash to be stored. A newer file could change within a clock tick and look unchanged."""


def document_sha256(document: Mapping[str, Any]) -> str:
    """Return the hex SHA-256 of a JSON document, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def file_sha256(path: Path, memory: Path | None = None) -> str:
    """Return the hex SHA-256 of a file's bytes.

    memory : path of a file that stores hashes by path, size, modification time and inode, so that an unchanged file is
             not read again. It may be missing or damaged. With None, the file is always read.
    """
    if memory is None:
        return sha256_of(path)
    status, name = path.stat(), str(path.resolve())
    stamp = [status.st_size, status.st_mtime_ns, status.st_ino]
    entry = _read(memory).get(name)
    if entry is not None and entry[:-1] == stamp:
        return str(entry[-1])
    digest = sha256_of(path)
    if time.time() - status.st_mtime > SETTLED_SECONDS:
        _write(memory, {**_read(memory), name: [*stamp, digest]})
    return digest


def files_sha256(paths: Iterable[Path], memory: Path | None = None) -> str:
    """Return the SHA-256 of one file; for several files, the SHA-256 of their sorted names and hashes.

    memory : as in `file_sha256`.
    """
    paths = sorted(paths)
    if len(paths) == 1:
        return file_sha256(paths[0], memory)
    lines = "".join(f"{path.name} {file_sha256(path, memory)}\n" for path in paths)
    return hashlib.sha256(lines.encode()).hexdigest()


def _read(memory: Path) -> dict[str, list[int | str]]:
    try:
        document = json.loads(memory.read_text(encoding="utf-8"))
        return {str(name): list(entry) for name, entry in document.items() if len(entry) == 4}
    except (OSError, ValueError, AttributeError, TypeError):  # missing, or not written by `_write`
        return {}


def _write(memory: Path, document: dict[str, list[int | str]]) -> None:
    """Write the whole file or nothing. In a read-only folder, nothing is written, so later runs hash the file again."""
    temporary = memory.with_name(f"{memory.name}.{secrets.token_hex(4)}")
    with contextlib.suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(document), encoding="utf-8")
        temporary.replace(memory)


# A segment of the embedding cache is a folder with rows in the order of their arrival, their keys, and checksums.
#
# rows.bin      (m, d) float32, or float16 for an encoder that computes in 16 bits; unit rows
# keys.bin      (m, 17) uint8: the 16-byte key, then 1 if the text was cut at the maximum length, else 0
# contents.json the number of sealed rows, and the checksums of their blocks
#
# Files only grow, and contents.json is replaced as a whole after the rows that it counts are on disk. Therefore a
# reader sees only whole rows, even if the writer is killed. Files are open only while being read or written, and never
# memory-mapped. Source: DESIGN 5.

META_FILE, ROWS_FILE, KEYS_FILE = "contents.json", "rows.bin", "keys.bin"
FORMAT_VERSION = 2
ROW_DTYPES: Mapping[str, type[np.floating[Any]]] = {"float32": np.float32, "float16": np.float16}
MARKED_KEY_BYTES = 17
CHECKSUM_BLOCK_BYTES = 4 << 20
"""Maximum size of a block of rows with one checksum. Reading a row reads its block."""
N_READERS = min(8, os.cpu_count() or 1)
"""Number of threads that read and check blocks. SHA-256 takes 2 to 3 s for 4 GB on one core."""


class DamagedSegmentError(Exception):
    """Error for a segment whose files differ from what was written."""


class Segment:
    """A segment as contents.json describes it when it is first read. Rows that are added later are not seen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def meta(self) -> Mapping[str, Any]:
        """Contents of contents.json: n, dimension, dtype, encoder, block_rows, and the checksums of keys and blocks."""
        try:
            meta: dict[str, Any] = json.loads((self.folder / META_FILE).read_text(encoding="utf-8"))
            if meta.pop("checksum") != document_sha256(meta) or meta["format"] != FORMAT_VERSION:
                raise DamagedSegmentError(f"{META_FILE}: checksum or format differs")
            return meta
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedSegmentError(f"{META_FILE}: {error}") from error

    def keys(self) -> tuple[KeyBytes, NDArray[np.bool_]]:
        """Return (m, 16) keys of all rows, and (m,) flags of truncated texts. Raises the same errors as `rows`."""
        data = self._read(KEYS_FILE, 0, self.meta["n"] * MARKED_KEY_BYTES, self.meta["keys"])
        marked = np.frombuffer(data, np.uint8).reshape(-1, MARKED_KEY_BYTES)
        return marked[:, :-1], marked[:, -1].astype(np.bool_)

    def rows(self, places: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], Float32Rows]]:
        """Yield (places, rows) block by block. places: sorted row numbers. Only blocks with such rows are read.

        Raises DamagedSegmentError or OSError at the first block that cannot be used.
        """
        cuts = np.flatnonzero(np.diff(places // self.meta["block_rows"])) + 1
        parts = np.split(places, cuts)
        with ThreadPoolExecutor(N_READERS, "secid-cache-read") as pool:
            for start in range(0, len(parts), N_READERS):
                yield from pool.map(self._part, parts[start : start + N_READERS])

    def verify(self) -> None:
        """Read and check every byte. Raises DamagedSegmentError, or OSError if a file cannot be read."""
        self.keys()
        for _ in self.rows(np.arange(0, self.meta["n"], self.meta["block_rows"])):
            pass

    def touch(self) -> None:
        """Mark the segment as used now, for the size limit."""
        with suppress(OSError):  # a removed or read-only segment, whose rows are still correct
            os.utime(self.folder / META_FILE)

    def _part(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], Float32Rows]:
        meta, block_rows = self.meta, self.meta["block_rows"]
        number = int(places[0]) // block_rows
        n_rows = min(block_rows, meta["n"] - number * block_rows)
        dtype, d = np.dtype(ROW_DTYPES[meta["dtype"]]), meta["dimension"]
        row_bytes = d * dtype.itemsize
        data = self._read(ROWS_FILE, number * block_rows * row_bytes, n_rows * row_bytes, meta["blocks"][number])
        block = np.frombuffer(data, dtype).reshape(n_rows, d)
        rows = block if len(places) == n_rows else block[places - number * block_rows]
        if dtype == np.float16:  # rounding changed lengths by 1e-5
            rows = rows.astype(np.float32)
            rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        return places, rows

    def _read(self, name: str, start: int, n_bytes: int, checksum: str) -> bytes:
        with (self.folder / name).open("rb", buffering=0) as file:
            file.seek(start)
            data = file.read(n_bytes)
        if hashlib.sha256(data).hexdigest() != checksum:
            raise DamagedSegmentError(f"{name}: checksum differs")
        return data


class SegmentWriter:
    """A segment being written. Readers see its rows up to the last `seal`. Every method may raise OSError.

    n_bytes : number of bytes written so far.
    """

    def __init__(self, home: Path, dimension: int, dtype: str, encoder: str) -> None:
        self.folder = home / f"{time.time_ns():020d}-{secrets.token_hex(4)}"
        self.folder.mkdir(parents=True)
        self._row_bytes = dimension * np.dtype(ROW_DTYPES[dtype]).itemsize
        self._block_rows = max(1, CHECKSUM_BLOCK_BYTES // self._row_bytes)
        self._meta = {"format": FORMAT_VERSION, "dimension": dimension, "dtype": dtype, "encoder": encoder}
        self._dtype = ROW_DTYPES[dtype]
        self._blocks: list[str] = []
        self._block, self._key_hash = hashlib.sha256(), hashlib.sha256()
        self._n_rows = self._n_sealed = 0

    @property
    def n_bytes(self) -> int:
        return self._n_rows * (self._row_bytes + MARKED_KEY_BYTES)

    def add(self, keys: KeyBytes, rows: Float32Rows, truncated: NDArray[np.bool_]) -> None:
        """Append rows (n, d) with their keys (n, 16), and hash them."""
        rows = np.ascontiguousarray(rows, self._dtype)
        with (self.folder / ROWS_FILE).open("ab") as file:
            file.write(rows.data)
        marked = np.column_stack([keys, truncated.astype(np.uint8)])
        with (self.folder / KEYS_FILE).open("ab") as file:
            file.write(marked.data)
        self._key_hash.update(marked.data)
        start = 0
        while start < len(rows):
            left = self._block_rows - self._n_rows % self._block_rows
            part = rows[start : start + left]
            self._block.update(part.data)
            self._n_rows += len(part)
            start += len(part)
            if len(part) == left:
                self._blocks.append(self._block.hexdigest())
                self._block = hashlib.sha256()

    def seal(self) -> None:
        """Make the added rows durable: they are on disk, and readers see them."""
        if self._n_rows == self._n_sealed:
            return
        for name in (ROWS_FILE, KEYS_FILE):
            with (self.folder / name).open("ab") as file:
                os.fsync(file.fileno())
        rest = [self._block.hexdigest()] if self._n_rows % self._block_rows else []
        sums = {"n": self._n_rows, "block_rows": self._block_rows, "keys": self._key_hash.hexdigest()}
        meta = {**self._meta, **sums, "blocks": self._blocks + rest}
        temporary = self.folder / f".{META_FILE}"
        with temporary.open("w", encoding="utf-8") as text:
            json.dump({**meta, "checksum": document_sha256(meta)}, text)
            text.flush()
            os.fsync(text.fileno())
        temporary.replace(self.folder / META_FILE)
        _sync_folder(self.folder)
        if not self._n_sealed:
            _sync_folder(self.folder.parent)
        self._n_sealed = self._n_rows

    def close(self) -> None:
        """Stop writing, and remove unsealed rows, which frees space on a full disk."""
        for name, size in ((ROWS_FILE, self._row_bytes), (KEYS_FILE, MARKED_KEY_BYTES)):
            with suppress(OSError):
                os.truncate(self.folder / name, self._n_sealed * size)
        if not self._n_sealed:
            shutil.rmtree(self.folder, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    """Make a new name in the folder durable. Windows and some network disks have no such call, so ignore errors."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
