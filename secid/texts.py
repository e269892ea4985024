"""Distinct texts of one role, on disk: written once in a stream, then read back by id.

In memory a distinct text costs 28 bytes (offset, length, key); the text itself stays in the file.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

Role = Literal["query", "passage"]
KEY_BYTES = 16
RECENT_TEXTS = 8192
"""Texts gathered in memory before they are written, so that near repeats are not written again."""
RECENT_CHARACTERS = 8 << 20
RESIDENT_BYTES = 64 << 20
"""Bytes of the spool file read before its pages are let go of: mapped pages count as memory of the process."""


def text_key(role: Role, text: str) -> bytes:
    """16 bytes that stand for (role, text), the same on every machine: the key of plan and cache."""
    hasher = _hasher(role)
    hasher.update(text.encode("utf-8"))
    return hasher.digest()


def _hasher(role: Role) -> blake2b:
    """A hash to be copied for each text: that takes two thirds of the time of a new one."""
    return blake2b(digest_size=KEY_BYTES, person=role.encode())


class TextSpool:
    """Takes texts in a stream and gives each occurrence a number; `store` makes them distinct."""

    def __init__(self, role: Role, path: Path) -> None:
        self._hasher = _hasher(role)
        self._path = path
        self._file = path.open("wb", buffering=1 << 20)
        self._recent: dict[str, int] = {}
        self._n_texts = 0
        self._waiting: list[str] = []
        self._characters = 0
        self._keys = bytearray()
        self._lengths = array("i")

    def add(self, text: str) -> int:
        """Occurrence number of this text; a recent repeat gets its earlier number."""
        number = self._recent.get(text)
        if number is not None:
            return number
        number = self._recent[text] = self._n_texts
        self._n_texts = number + 1
        self._waiting.append(text)
        self._characters += len(text)
        if len(self._waiting) >= RECENT_TEXTS or self._characters > RECENT_CHARACTERS:
            self._write()
        return number

    def _write(self) -> None:
        """Texts not yet written go to the file, and all are forgotten: in one go, which takes half the time."""
        texts = self._waiting
        joined = "".join(texts)
        data = memoryview(joined.encode("utf-8"))
        lengths = list(map(len, texts if joined.isascii() else [text.encode("utf-8") for text in texts]))
        self._file.write(data)
        self._lengths.extend(lengths)
        copy, keys, start = self._hasher.copy, [], 0
        for length in lengths:
            hasher = copy()
            hasher.update(data[start : (start := start + length)])
            keys.append(hasher.digest())
        self._keys += b"".join(keys)
        self._waiting.clear()
        self._recent.clear()
        self._characters = 0

    def store(self) -> tuple[TextStore, npt.NDArray[np.int64]]:
        """The distinct texts, and for each occurrence number the id of its text. Ends the writing.

        Texts are equal when all 16 bytes of their keys are. Ids follow the first occurrence.
        """
        self._write()
        self._file.close()
        keys = np.frombuffer(self._keys, np.uint8).reshape(-1, KEY_BYTES)
        lengths = np.frombuffer(self._lengths, np.int32)
        self._keys, self._lengths = bytearray(), array("i")
        first, ids = _first_occurrences(keys)
        offsets = np.cumsum(lengths, dtype=np.int64)
        offsets -= lengths
        return TextStore(self._path, offsets[first], lengths[first], keys[first]), ids


def _first_occurrences(keys: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Places of the first of each run of equal keys, in order of appearance, and each key's id."""
    words = keys.view(np.uint64).reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0]))  # stable, so the first of equals comes first
    ordered = words[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    heads = order[new]
    rank = np.empty(len(heads), np.int64)
    appearance = np.argsort(heads)
    rank[appearance] = np.arange(len(heads))
    ids = np.empty(len(order), np.int64)
    ids[order] = rank[np.cumsum(new) - 1]
    return heads[appearance], ids


class TextStore:
    """Distinct texts by id. len(store), store.get(start, stop), store.take(ids); keys: (n, 16) uint8."""

    def __init__(
        self,
        path: Path,
        offsets: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int32],
        keys: npt.NDArray[np.uint8],
    ) -> None:
        self._path = path
        self._offsets = offsets
        self._lengths = lengths
        self.keys = keys
        self._n_resident = 0
        with path.open("rb") as file:
            self._data: mmap.mmap | bytes = (
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""
            )

    def __len__(self) -> int:
        return len(self._offsets)

    def get(self, start: int, stop: int) -> list[str]:
        """The texts with ids start … stop-1."""
        return self._decoded(self._offsets[start:stop], self._lengths[start:stop])

    def take(self, ids: npt.NDArray[np.int64]) -> list[str]:
        """The texts with these ids."""
        return self._decoded(self._offsets[ids], self._lengths[ids])

    def only(self, ids: npt.NDArray[np.int64]) -> TextStore:
        """The store of these texts alone, numbered 0 … len(ids)-1 in the order given."""
        return TextStore(self._path, self._offsets[ids], self._lengths[ids], self.keys[ids])

    def close(self) -> None:
        """Lets go of the file, so that it can be removed."""
        if isinstance(self._data, mmap.mmap):
            self._data.close()

    def _decoded(self, offsets: Sequence[int] | npt.NDArray[np.int64], lengths: npt.NDArray[np.int32]) -> list[str]:
        data = self._data
        texts = [
            str(data[start : start + length], "utf-8")
            for start, length in zip(np.asarray(offsets).tolist(), lengths.tolist(), strict=True)
        ]
        self._n_resident += int(lengths.sum(dtype=np.int64))
        if self._n_resident > RESIDENT_BYTES and isinstance(data, mmap.mmap):
            self._n_resident = 0
            let_go(data)
        return texts


def let_go(mapped: mmap.mmap) -> None:
    """Takes the pages of a file that were read so far out of this process; the kernel may keep them."""
    if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
        mapped.madvise(mmap.MADV_DONTNEED)
