"""Store the distinct texts of one role on disk. They are written once as a stream, then read by id.

In memory, a distinct text takes 28 bytes (offset, length, key). The text itself stays in the file.
"""

from __future__ import annotations

import mmap
import shutil
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

Role = Literal["query", "passage"]
KEY_BYTES = 16
RECENT_TEXTS = 1 << 16
"""Number of recent keys in memory, so that texts repeated soon are not written again."""
WAITING_TEXTS = 1024
WAITING_BYTES = 1 << 20
"""Number of texts, and their bytes, to collect before writing them."""
RANGE_BYTES = 16 << 20
"""Maximum bytes of texts to process at once. A chunk of passages is smaller; books reach the limit."""
ASCII_DELETE = 0x7F
"""First byte after the printable ASCII bytes."""
TEXT_SEPARATOR = b"\n"
"""Separator after every text of the spool. No token contains it, so adjacent texts can be lexed as one."""
MIN_FOR_RE2 = 512
"""Minimum number of texts to search with RE2. Importing RE2 takes 0.05 s, as long as these texts without it."""
RESIDENT_BYTES = 64 << 20
"""Bytes to read from the spool file before releasing its pages, because mapped pages count as memory of the process."""


def text_key(role: Role, text: str) -> bytes:
    """Return the 16-byte key of (role, text) in plan and cache. It is the same on every machine."""
    hasher = _hasher(role)
    hasher.update(text.encode("utf-8"))
    return hasher.digest()


def batch_ranges(
    n: int, n_texts: int, lengths: npt.NDArray[Any] | None = None, n_bytes: int = RANGE_BYTES
) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) ranges that cover n texts in order.

    A range has at most n_texts texts and n_bytes bytes, or a single longer text.
    lengths : (n,) bytes of each text; None to limit ranges only by n_texts.
    """
    start = 0
    while start < n:
        stop = min(n, start + n_texts)
        if lengths is not None:
            filled = np.cumsum(lengths[start:stop], dtype=np.int64)
            stop = start + max(1, int(np.searchsorted(filled, n_bytes, side="right")))
        yield start, stop
        start = stop


def _hasher(role: Role) -> blake2b:
    """Return a hash object to copy for each text. Copying one takes two thirds of the time of making a new one."""
    return blake2b(digest_size=KEY_BYTES, person=role.encode())


@dataclass(frozen=True)
class Packed:
    """Texts as one UTF-8 string, each followed by TEXT_SEPARATOR. lengths: (n,) bytes per text, without separator."""

    data: bytes
    lengths: npt.NDArray[np.int64]

    @staticmethod
    def of(texts: Sequence[str]) -> Packed:
        parts = [text.encode() for text in texts]
        return Packed(TEXT_SEPARATOR.join([*parts, b""]), np.fromiter(map(len, parts), np.int64, len(parts)))

    def __len__(self) -> int:
        return len(self.lengths)

    def ends(self) -> npt.NDArray[np.int64]:
        """Return (n,) end of each text in the data."""
        return np.cumsum(self.lengths + len(TEXT_SEPARATOR)) - len(TEXT_SEPARATOR)

    def parts(self) -> list[bytes]:
        ends = self.ends()
        return [self.data[a:b] for a, b in zip((ends - self.lengths).tolist(), ends.tolist(), strict=True)]

    def take(self, places: npt.NDArray[np.int64]) -> list[str]:
        ends = self.ends()[places]
        starts = ends - self.lengths[places]
        return [self.data[a:b].decode() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def first(self, n: int) -> npt.NDArray[np.uint8]:
        """Return (n_texts, n) first bytes of each text. A shorter text is followed by the separator and other bytes."""
        return _windows(self.data + bytes(n), n, self.ends() - self.lengths)

    def last(self, n: int) -> npt.NDArray[np.uint8]:
        """Return (n_texts, n) last bytes of each text. A shorter text is preceded by other bytes and TEXT_SEPARATOR."""
        return _windows(TEXT_SEPARATOR * n + self.data, n, self.ends())

    def n_bytes(self, low: int, stop: int) -> npt.NDArray[np.int64]:
        """Return (n,) number of bytes in each text with a value in range(low, stop)."""
        if low >= 0x80 and self.data.isascii():
            return np.zeros(len(self), np.int64)
        codes, ends = np.frombuffer(self.data, np.uint8), self.ends()
        places = np.flatnonzero((codes - low).astype(np.uint8, copy=False) < stop - low)
        return np.searchsorted(places, ends) - np.searchsorted(places, ends - self.lengths)

    def flags(self, rule: Callable[[str], bool], candidates: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return (n,) flags of the candidates that a rule accepts. candidates: (n,) flags of the texts to test."""
        places, flags = np.flatnonzero(candidates), np.zeros(len(self), np.bool_)
        flags[places] = list(map(rule, self.take(places)))
        return flags

    def may_match(self, pattern: str) -> npt.NDArray[np.bool_]:
        """Return (n,) flags of the texts in which RE2 finds the pattern; all if there are fewer than MIN_FOR_RE2 texts.

        RE2 sees each text followed by TEXT_SEPARATOR. Buffers are used because Arrow's conversions from lists and to
        arrays would import pandas.
        """
        if len(self) < MIN_FOR_RE2:
            return np.ones(len(self), np.bool_)
        import pyarrow as pa
        import pyarrow.compute as pc

        offsets = np.concatenate([[0], self.ends() + len(TEXT_SEPARATOR)])
        texts = pa.LargeStringArray.from_buffers(len(self), pa.py_buffer(offsets), pa.py_buffer(self.data))
        bits = np.frombuffer(pc.match_substring_regex(texts, pattern).buffers()[1], np.uint8)
        return np.unpackbits(bits, count=len(self), bitorder="little").astype(np.bool_)


def is_plain_ascii(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Return (n,) flags of rows with only printable ASCII and no two adjacent blanks. rows: (n, width) bytes."""
    blank, outside = rows == ord(" "), rows - ord(" ") >= ASCII_DELETE - ord(" ")
    outside[:, 1:] |= blank[:, 1:] & blank[:, :-1]
    return np.asarray(~outside.any(axis=1))


def _windows(data: bytes, n: int, starts: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return (len(starts), n) bytes: n from each start."""
    windows: npt.NDArray[np.uint8] = np.ndarray((max(0, len(data) - n) + 1, n), np.uint8, data, strides=(1, 1))
    return np.asarray(windows[starts])


def unread(spool: TextSpool) -> None:
    """Ignore that a spool has written texts."""


class TextSpool:
    """Write a stream of texts to a file, and number each occurrence. `store` returns the distinct texts.

    written : called with this spool after each write, so that texts can be read while later ones are still added.
    """

    def __init__(self, role: Role, path: Path, written: Callable[[TextSpool], None] = unread) -> None:
        self._role, self._hasher, self._written = role, _hasher(role), written
        self._path = path
        self._file = path.open("wb", buffering=1 << 20)
        self._recent: dict[bytes, int] = {}
        self._n_texts = 0
        self._waiting: list[bytes] = []
        self._n_waiting_bytes = 0
        self._keys = bytearray()
        self._lengths = array("i")
        self._n_taken = self._taken_bytes = 0  # texts that `new_texts` returned

    def add(self, texts: Iterable[str]) -> list[int]:
        """Add texts, and return their occurrence numbers. A recent repeat gets its earlier number."""
        copy, recent, n_texts = self._hasher.copy, self._recent, self._n_texts
        numbers: list[int] = []
        keys, waiting = self._keys, self._waiting
        n_before = len(waiting)
        for text in texts:
            data = text.encode()
            hasher = copy()
            hasher.update(data)
            key = hasher.digest()
            number = recent.setdefault(key, n_texts)
            if number == n_texts:
                n_texts += 1
                keys += key
                waiting.append(data)
            numbers.append(number)
        self._n_texts = n_texts
        self._n_waiting_bytes += sum(map(len, waiting[n_before:]))
        if len(waiting) >= WAITING_TEXTS or self._n_waiting_bytes >= WAITING_BYTES:
            self._write()
        return numbers

    def holds(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return (n,) flags of the texts that were added. Only the first eight bytes of keys are compared."""
        keys = np.array(np.frombuffer(self._keys, np.uint64)[::2])
        text_keys = b"".join([text_key(self._role, text)[:8] for text in texts])
        return np.isin(np.frombuffer(text_keys, np.uint64), keys)

    def _write(self) -> None:
        """Write the waiting texts to the file. Writing many at once takes half the time."""
        self._lengths.extend(map(len, self._waiting))
        self._file.write(TEXT_SEPARATOR.join([*self._waiting, b""]))
        self._waiting.clear()
        self._n_waiting_bytes = 0
        if len(self._recent) > RECENT_TEXTS:
            self._recent.clear()
        self._written(self)

    @property
    def n_written(self) -> int:
        """Number of texts in the file, with repeats of texts that are no longer recent."""
        return len(self._lengths)

    @property
    def n_new(self) -> int:
        """Number of texts that `new_texts` would return."""
        return self.n_written - self._n_taken

    def new_texts(self) -> TextStore:
        """Return the texts that were written since the last call. They need not be distinct."""
        self._file.flush()
        start, stop = self._n_taken, self.n_written
        lengths = np.array(self._lengths[start:stop], np.int32)
        offsets = self._taken_bytes + np.cumsum(lengths + np.int64(len(TEXT_SEPARATOR)))
        self._n_taken, self._taken_bytes = stop, self._file.tell()
        offsets -= lengths + len(TEXT_SEPARATOR)
        keys = np.frombuffer(bytes(self._keys[KEY_BYTES * start : KEY_BYTES * stop]), np.uint8)
        return TextStore(self._path, offsets, lengths, keys.reshape(-1, KEY_BYTES))

    def close(self) -> None:
        """Close the file. Use this if `store` is not called."""
        self._file.close()

    def store(self) -> tuple[TextStore, npt.NDArray[np.int64]]:
        """Close the file. Return the distinct texts, and the text id of each occurrence number.

        Texts with equal 16-byte keys are equal. Ids are in the order of first occurrence.
        """
        self._write()
        self._file.close()
        keys = np.frombuffer(self._keys, np.uint8).reshape(-1, KEY_BYTES)
        lengths = np.frombuffer(self._lengths, np.int32)
        first, ids = _first_occurrences(keys)
        offsets = np.cumsum(lengths + np.int64(len(TEXT_SEPARATOR)))
        offsets -= lengths + len(TEXT_SEPARATOR)
        if len(first) < len(keys):
            offsets, lengths, keys = offsets[first], lengths[first], keys[first]
        return TextStore(self._path, offsets, lengths, keys), ids


def _first_occurrences(keys: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the places of each distinct key's first occurrence, in order of appearance, and the id of each key."""
    words = keys.view(np.uint64).reshape(-1, 2)
    order = np.argsort(words[:, 0], kind="stable")  # stable, so that the first of equal keys comes first
    new = _differ(words[order, 0])
    if new.all():
        return np.arange(len(keys)), np.arange(len(keys))
    if not np.array_equal(new, _differ(words[order])):  # 8 bytes are hardly ever equal if 16 are not
        order = np.lexsort((words[:, 1], words[:, 0]))
        new = _differ(words[order])
    heads = order[new]
    rank = np.empty(len(heads), np.int64)
    appearance = np.argsort(heads)
    rank[appearance] = np.arange(len(heads))
    ids = np.empty(len(order), np.int64)
    ids[order] = rank[np.cumsum(new) - 1]
    return heads[appearance], ids


def _differ(ordered: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Return (n,) flags of the rows that differ from the previous row. The first row is flagged."""
    new = np.ones(len(ordered), np.bool_)
    differ = ordered[1:] != ordered[:-1]
    new[1:] = differ if ordered.ndim == 1 else differ.any(axis=1)
    return new


class TextStore:
    """Distinct texts by id, read with get(start, stop) or take(ids).

    path : path of the file, which must not change while the store is open.   keys : (n, 16) uint8 text keys.
    """

    def __init__(
        self, path: Path, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int32], keys: npt.NDArray[np.uint8]
    ) -> None:
        self._path = path
        self._offsets = offsets
        self._lengths = lengths
        self.keys = keys
        self._n_resident = 0

    @cached_property
    def _data(self) -> mmap.mmap:
        """The mapped file, opened for the first text: a store that only another process reads has no open file."""
        with self._path.open("rb") as file:
            empty = not self._path.stat().st_size  # an empty file cannot be mapped
            return mmap.mmap(-1, 1) if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Place in the file of each text, (n,). It is ascending unless texts were chosen in another order."""
        return self._offsets

    @property
    def folder(self) -> Path:
        """Folder of the file. It is removed with the run's spool files."""
        return self._path.parent

    @property
    def lengths(self) -> npt.NDArray[np.int32]:
        """Number of bytes of each text, (n,)."""
        return self._lengths

    def get(self, start: int, stop: int) -> list[str]:
        """Return the texts with ids start … stop-1."""
        return self._decoded(self._offsets[start:stop], self._lengths[start:stop])

    def take(self, ids: npt.NDArray[np.int64]) -> list[str]:
        return self._decoded(self._offsets[ids], self._lengths[ids])

    def packed(self, start: int, stop: int) -> Packed:
        """Return the texts with ids start … stop-1 packed."""
        return self._packed(self._offsets[start:stop], self._lengths[start:stop])

    def packed_of(self, ids: npt.NDArray[np.int64]) -> Packed:
        return self._packed(self._offsets[ids], self._lengths[ids])

    def only(self, ids: npt.NDArray[np.int64]) -> TextStore:
        """Return a store with only these texts. Their new ids are 0 … len(ids)-1, in this order."""
        return TextStore(self._path, self._offsets[ids], self._lengths[ids], self.keys[ids])

    def joined(self, other: TextStore) -> tuple[TextStore, npt.NDArray[np.int64]]:
        """Append another store's texts to this store's file. Return the joined store, and (n,) new ids of these texts.

        A text in both stores keeps its id in this store.
        """
        start = self._path.stat().st_size
        with self._path.open("ab") as file, other._path.open("rb") as texts:
            shutil.copyfileobj(texts, file)
        keys = np.concatenate([self.keys, other.keys])
        offsets = np.concatenate([self._offsets, start + other._offsets])
        lengths = np.concatenate([self._lengths, other._lengths])
        first, ids = _first_occurrences(keys)
        return TextStore(self._path, offsets[first], lengths[first], keys[first]), ids[len(self) :]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the store for another process, which opens the file itself."""
        return TextStore, (self._path, self._offsets, self._lengths, self.keys)

    def close(self) -> None:
        """Close the file, so that it can be removed."""
        if "_data" in self.__dict__:
            self._data.close()

    def _packed(self, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int32]) -> Packed:
        sizes = lengths.astype(np.int64) + len(TEXT_SEPARATOR)
        size = int(sizes.sum())
        if len(offsets) and np.array_equal(offsets[1:], offsets[:-1] + sizes[:-1]):  # adjacent texts, the usual case
            data = self._data[offsets[0] : offsets[0] + size]
        else:
            data = b"".join([self._data[a : a + n] for a, n in zip(offsets.tolist(), sizes.tolist(), strict=True)])
        self._read(size)
        return Packed(data, sizes - len(TEXT_SEPARATOR))

    def _decoded(self, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int32]) -> list[str]:
        data = self._data
        texts = [str(data[a : a + n], "utf-8") for a, n in zip(offsets.tolist(), lengths.tolist(), strict=True)]
        self._read(int(lengths.sum(dtype=np.int64)))
        return texts

    def _read(self, n_bytes: int) -> None:
        """Count the bytes read, and release the file's pages after every RESIDENT_BYTES."""
        self._n_resident += n_bytes
        if self._n_resident > RESIDENT_BYTES:
            self._n_resident = 0
            release_read_pages(self._data)


class StoredTexts(Sequence[str]):
    """Sequence of a store's texts in the order of the ids, read when needed."""

    def __init__(self, store: TextStore, ids: npt.NDArray[np.int64]) -> None:
        self._store, self._ids = store, ids

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return self._store.take(self._ids[place])
        return self._store.take(self._ids[[place]])[0]


def release_read_pages(mapped: mmap.mmap) -> None:
    """Release the pages of a mapped file that this process has read. The kernel may keep them cached."""
    if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
        mapped.madvise(mmap.MADV_DONTNEED)
