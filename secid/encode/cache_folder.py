"""The embedding cache as a whole: what it holds, its size limit, a check of every byte, and its end.

Source: DESIGN 5.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from secid.encode.segment import DAMAGED, META, TEMPORARY, DamagedSegmentError, Segment
from secid.settings import Settings

NAME = re.compile(r"\d{20}-[0-9a-f]{8}")
GONE = f"{TEMPORARY}gone-"
PIECE = re.compile(rf"({re.escape(TEMPORARY)}(gone-)?|{re.escape(DAMAGED)})?{NAME.pattern}")
"""Folders that the cache made (segment.write_segment and below). Nothing else is ever touched, so that a
cache folder which holds other things, such as a home folder given by mistake, loses none of them."""

ABANDONED_SECONDS = 3600.0
"""A segment being written for longer than this was left by a killed run; writing one takes seconds."""


@dataclass(frozen=True)
class EncoderUse:
    """What the cache holds of one encoder. last_used: seconds since the epoch.

    name : the one it had last; "" where no segment tells.
    """

    fingerprint: str
    name: str
    n_segments: int
    n_rows: int
    n_bytes: int
    last_used: float


@dataclass(frozen=True)
class CacheInfo:
    """What the cache holds. n_damaged: segments set aside; they go first when space is short."""

    folder: str
    limit_bytes: int
    n_bytes: int
    n_damaged: int
    encoders: tuple[EncoderUse, ...]


@dataclass(frozen=True)
class Verification:
    """Outcome of reading every byte: segments found whole, and the names of those set aside."""

    n_whole: int
    damaged: tuple[str, ...]


class CacheFolder:
    """The whole embedding cache: a folder per encoder fingerprint. It need not exist yet."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes

    @classmethod
    def of(cls, settings: Settings) -> CacheFolder:
        """The folder and limit the settings name, the user's cache folder where they name none."""
        folder = Path(settings.cache_dir).expanduser() if settings.cache_dir else default_folder()
        return cls(folder, int(settings.cache_gb * 10**9))

    def info(self) -> CacheInfo:
        """Counts and sizes, by encoder; reads no rows."""
        encoders = []
        for home in self._homes():
            segments = [Segment(folder) for folder in finished(home)]
            if not segments:
                continue
            encoders.append(
                EncoderUse(
                    home.name,
                    _made_by(segments[-1]),
                    len(segments),
                    sum(_n_rows(segment) for segment in segments),
                    sum(_size(segment.folder) for segment in segments),
                    max(_used(segment.folder) for segment in segments),
                )
            )
        pieces = [folder for home in self._homes() for folder in _pieces(home)]
        damaged = sum(1 for folder in pieces if folder.name.startswith(DAMAGED))
        total = sum(_size(folder) for folder in pieces)
        return CacheInfo(str(self.folder), self.limit_bytes, total, damaged, tuple(encoders))

    def clear(self) -> int:
        """Removes every segment and no other file; returns the bytes freed. Runs that still read keep what
        they opened, and those that write what they are writing.
        """
        freed = 0
        for home in self._homes():
            for folder in _pieces(home):
                if not _under_way(folder):
                    freed += _size(folder)
                    _remove(folder)
        return freed

    def verify(self) -> Verification:
        """Reads every byte of every segment; sets the damaged ones aside."""
        whole, damaged = 0, []
        for home in self._homes():
            for folder in finished(home):
                try:
                    Segment(folder).verify()
                    whole += 1
                except (DamagedSegmentError, OSError):
                    if folder.is_dir():  # else another run made room
                        set_aside(folder)
                        damaged.append(f"{home.name}/{folder.name}")
        return Verification(whole, tuple(damaged))

    def shrink(self) -> None:
        """Brings the cache under its limit: what was set aside goes first, then what was used longest ago."""
        sizes: dict[Path, int] = {}
        for home in self._homes():
            for folder in _pieces(home):
                if not folder.name.startswith(TEMPORARY):
                    sizes[folder] = _size(folder)
                elif not _under_way(folder):
                    _remove(folder)
        total = sum(sizes.values())
        for folder in sorted(sizes, key=lambda path: (not path.name.startswith(DAMAGED), _used(path))):
            if total <= self.limit_bytes:
                return
            _remove(folder)
            total -= sizes[folder]

    def _homes(self) -> Iterator[Path]:
        if self.folder.is_dir():
            yield from sorted(path for path in self.folder.iterdir() if path.is_dir())


def default_folder() -> Path:
    """The user's cache folder, by the custom of each system."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "secid" / "embeddings"


def remembered_hashes(settings: Settings) -> Path | None:
    """The file that keeps the hashes of weights (`hashes.file_sha256`), None where nothing may be kept."""
    return CacheFolder.of(settings).folder / "weights.json" if settings.cache else None


def set_aside(folder: Path) -> None:
    """Takes a damaged segment out of use but keeps it for a look; gone already is as good."""
    try:
        folder.rename(folder.with_name(DAMAGED + folder.name))
    except OSError:
        return


def finished(home: Path) -> list[Path]:
    """Segment folders in order of making; what is being written or set aside starts with a dot."""
    if not home.is_dir():
        return []
    return sorted(path for path in _pieces(home) if not path.name.startswith("."))


def _pieces(home: Path) -> list[Path]:
    """Folders of an encoder that the cache made: segments, finished, being written or set aside."""
    try:
        return [path for path in home.iterdir() if PIECE.fullmatch(path.name) and path.is_dir()]
    except OSError:  # another's folder, which this user may not read
        return []


def _remove(folder: Path) -> None:
    """First out of sight, then gone: no reader finds half a segment. What a killed run left half gone goes as well."""
    found = NAME.search(folder.name)
    hidden = folder.with_name(f"{GONE}{found.group() if found else folder.name}")
    try:
        if folder != hidden:
            folder.rename(hidden)
    except OSError:
        return
    shutil.rmtree(hidden, ignore_errors=True)


def _under_way(folder: Path) -> bool:
    """Whether some run is writing it; what is being removed is not."""
    name = folder.name
    writing = name.startswith(TEMPORARY) and not name.startswith(GONE)
    return writing and time.time() - _modified(folder) <= ABANDONED_SECONDS


def _n_rows(segment: Segment) -> int:
    try:
        return int(segment.meta["n"])
    except (DamagedSegmentError, OSError):
        return 0


def _made_by(segment: Segment) -> str:
    try:
        return str(segment.meta.get("encoder", ""))
    except (DamagedSegmentError, OSError):
        return ""


def _size(folder: Path) -> int:
    total = 0
    with contextlib.suppress(OSError):  # finished or removed by another run meanwhile
        for path in folder.iterdir():
            total += path.stat().st_size
    return total


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()


def _used(folder: Path) -> float:
    """When a segment was last used; 0 where it cannot be told."""
    try:
        return (folder / META).stat().st_mtime
    except OSError:
        return 0.0
