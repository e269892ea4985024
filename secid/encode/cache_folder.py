"""The embedding cache as a whole: contents, size limit, verification and removal.

Source: DESIGN 5.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secid.encode.segment import META, DamagedSegmentError, Segment
from secid.settings import Settings, flag_of

DAMAGED, REMOVAL = ".damaged-", ".gone-"
NAME = re.compile(r"\d{20}-[0-9a-f]{8}")
PIECE = re.compile(rf"({re.escape(DAMAGED)}|{re.escape(REMOVAL)})?{NAME.pattern}")
"""Names of the folders that the cache creates. The cache never touches anything else, so that other files survive even
if a home folder is given as the cache by mistake."""
TRAINING_NAME = re.compile(r"[0-9a-f]{32}\.json")
"""Names of the files in which `secid probe` keeps its finished trainings."""

ABANDONED_SECONDS = 3600.0
"""Age from which a segment without readable rows counts as left by a killed run: living runs seal within seconds."""

FREE_SHARE, LARGEST_DEFAULT = 0.5, 200 * 10**9
"""The limit if none is set: this share of the disk's free space plus the cache's present size, at most 200 GB. That
holds the rows of 65 million texts at 768 dimensions."""


@dataclass(frozen=True)
class EncoderUse:
    """Size and use of one encoder's cached rows. last_used: seconds since the epoch.

    name : the encoder's name in the newest segment; "" if that does not state it.
    """

    fingerprint: str
    name: str
    n_segments: int
    n_rows: int
    n_bytes: int
    last_used: float


@dataclass(frozen=True)
class CacheInfo:
    """Contents of the cache. n_damaged: quarantined segments, which are removed first if the cache exceeds its limit.
    n_trainings: finished trainings of `secid probe`, a few kB each and not in n_bytes."""

    folder: str
    limit_bytes: int
    n_bytes: int
    n_damaged: int
    n_trainings: int
    encoders: tuple[EncoderUse, ...]


@dataclass(frozen=True)
class ClearResult:
    """Size of what `clear` removed, and the unsealed segments that it left because a run may be writing them."""

    n_bytes_freed: int
    n_unsealed: int
    n_bytes_unsealed: int


@dataclass(frozen=True)
class Verification:
    """Result of reading every byte: number of intact segments, names of the quarantined and of the unreadable ones."""

    n_whole: int
    damaged: tuple[str, ...]
    unreadable: tuple[str, ...]


class CacheFolder:
    """The whole embedding cache: a folder per encoder fingerprint. It need not exist yet.

    limit_bytes : None for the default, which depends on the free space of its disk.
    """

    def __init__(self, folder: Path, limit_bytes: int | None) -> None:
        self.folder = folder
        self._limit_bytes = limit_bytes

    @classmethod
    def of(cls, settings: Settings) -> CacheFolder:
        """Return the cache with the folder and limit from the settings; by default the user's cache folder."""
        folder = Path(settings.cache_dir).expanduser() if settings.cache_dir else default_folder()
        return cls(folder, None if settings.cache_gb is None else int(settings.cache_gb * 10**9))

    @property
    def trainings(self) -> Path:
        """The folder of the finished trainings of `secid probe`."""
        return self.folder / "probes"

    def limit(self, n_bytes: int) -> int:
        """Return the size limit of a cache that holds n_bytes."""
        if self._limit_bytes is not None:
            return self._limit_bytes
        parents = (self.folder, *self.folder.parents)
        with contextlib.suppress(OSError):
            disk = shutil.disk_usage(next(parent for parent in parents if parent.exists()))
            return min(int(FREE_SHARE * (disk.free + n_bytes)), LARGEST_DEFAULT)
        return LARGEST_DEFAULT

    @property
    def remedy(self) -> str:
        """Remedy for too little room. Without a set limit, the free space of the disk determines the limit."""
        if self._limit_bytes is None and self.limit(sum(self._sizes().values())) < LARGEST_DEFAULT:
            return f"free space on the disk of {self.folder}, or use another disk with {flag_of('cache_dir', 'DIR')}"
        return f"{flag_of('cache_gb', 'N')} raises the limit"

    def room(self, in_use: Collection[Path]) -> int:
        """Return the number of bytes that can be written without removing these segments."""
        sizes = self._sizes()
        return max(0, self.limit(sum(sizes.values())) - sum(sizes.get(folder, 0) for folder in in_use))

    def info(self) -> CacheInfo:
        """Return counts and sizes by encoder, without reading rows."""
        encoders = []
        for home in self._homes():
            segments = [Segment(folder) for folder in readable_segments(home)]
            if not segments:
                continue
            encoders.append(
                EncoderUse(
                    home.name,
                    str(_meta(segments[-1]).get("encoder", "")),
                    len(segments),
                    sum(_meta(segment).get("n", 0) for segment in segments),
                    sum(_size(segment.folder) for segment in segments),
                    max(_last_used(segment.folder) for segment in segments),
                )
            )
        pieces = [folder for home in self._homes() for folder in _pieces(home)]
        damaged = sum(folder.name.startswith(DAMAGED) for folder in pieces)
        total = sum(_size(folder) for folder in pieces)
        n_trainings = len(self._trainings())
        return CacheInfo(str(self.folder), self.limit(total), total, damaged, n_trainings, tuple(encoders))

    def clear(self) -> ClearResult:
        """Remove every segment and training, and no other file.

        Unsealed segments stay, since a run may still be writing them.
        """
        freed, unsealed = 0, []
        for file in self._trainings():
            with contextlib.suppress(OSError):
                size = file.stat().st_size
                file.unlink()
                freed += size
        for home in self._homes():
            for folder in _pieces(home):
                size = _size(folder)
                if _in_progress(folder):
                    unsealed.append(size)
                else:
                    freed += size
                    _remove(folder)
        return ClearResult(freed, len(unsealed), sum(unsealed))

    def verify(self) -> Verification:
        """Read every byte of every segment, and quarantine the damaged ones."""
        whole, damaged, unreadable = 0, [], []
        for home in self._homes():
            for folder in readable_segments(home):
                try:
                    Segment(folder).verify()
                    whole += 1
                except (DamagedSegmentError, FileNotFoundError):
                    if folder.is_dir():  # otherwise another run has removed it
                        quarantine(folder)
                        damaged.append(f"{home.name}/{folder.name}")
                except OSError:
                    unreadable.append(f"{home.name}/{folder.name}")
        return Verification(whole, tuple(damaged), tuple(unreadable))

    def shrink(self, in_use: Collection[Path] = (), n_more: int = 0) -> None:
        """Make room under the limit for n_more bytes. Segments in use stay.

        Remove all abandoned unfinished segments; then, as needed, quarantined ones and the least recently used ones.
        """
        sizes = self._sizes()
        total = sum(sizes.values())
        limit = self.limit(total)
        for folder in sorted(sizes, key=_last_used):
            is_whole = folder.name.startswith(DAMAGED) or (folder / META).exists()
            if is_whole and total + n_more <= limit:
                continue
            if folder not in in_use and not _in_progress(folder):
                _remove(folder)
                total -= sizes[folder]

    def _sizes(self) -> dict[Path, int]:
        return {folder: _size(folder) for home in self._homes() for folder in _pieces(home)}

    def _trainings(self) -> list[Path]:
        return [path for path in self.trainings.glob("*.json") if TRAINING_NAME.fullmatch(path.name)]

    def _homes(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):  # missing, or not readable
            yield from sorted(path for path in self.folder.iterdir() if path.is_dir())


def default_folder() -> Path:
    """Return the user's cache folder, by the convention of each system."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "secid" / "embeddings"


def hash_memory(settings: Settings) -> Path | None:
    """Return the file that stores hashes of weights (`segment.file_sha256`); None if the cache is off."""
    return CacheFolder.of(settings).folder / "weights.json" if settings.cache else None


def quarantine(folder: Path) -> None:
    """Take a damaged segment out of use, but leave it on disk for inspection. Ignore one that is already removed."""
    try:
        folder.rename(folder.with_name(DAMAGED + folder.name))
    except OSError:
        return


def readable_segments(home: Path) -> list[Path]:
    """Return the folders of readable segments, oldest first. Names of removed and quarantined ones start with a dot."""
    return sorted(path for path in _pieces(home) if not path.name.startswith(".") and (path / META).exists())


def _pieces(home: Path) -> list[Path]:
    """Return an encoder's segment folders: finished, unfinished and quarantined."""
    try:
        return [path for path in home.iterdir() if PIECE.fullmatch(path.name) and path.is_dir()]
    except OSError:  # another user's folder, not readable
        return []


def _remove(folder: Path) -> None:
    """Rename a segment, then delete it, so that no reader sees half of one. Also finish a removal that was killed."""
    match = NAME.search(folder.name)
    hidden = folder.with_name(f"{REMOVAL}{match.group() if match else folder.name}")
    try:
        if folder != hidden:
            folder.rename(hidden)
    except OSError:
        return
    shutil.rmtree(hidden, ignore_errors=True)


def _in_progress(folder: Path) -> bool:
    """Return whether a run is writing the segment's first rows, which cannot be read yet."""
    is_new = not folder.name.startswith(".") and not (folder / META).exists()
    return is_new and time.time() - _modified(folder, missing=time.time()) <= ABANDONED_SECONDS


def _meta(segment: Segment) -> Mapping[str, Any]:
    """Return a segment's metadata; {} if it cannot be read."""
    try:
        return segment.meta
    except (DamagedSegmentError, OSError):
        return {}


def _size(folder: Path) -> int:
    total = 0
    with contextlib.suppress(OSError):  # finished or removed by another run meanwhile
        for path in folder.iterdir():
            total += path.stat().st_size
    return total


def _last_used(folder: Path) -> float:
    """Return the time of a segment's last use in seconds since the epoch; 0 if it is quarantined or unfinished."""
    return 0.0 if folder.name.startswith(".") else _modified(folder / META, missing=0.0)


def _modified(path: Path, missing: float) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return missing
