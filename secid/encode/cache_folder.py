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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from secid.encode.segment import DAMAGED, META, TEMPORARY, DamagedSegmentError, Segment
from secid.settings import Settings

NAME = re.compile(r"\d{20}-[0-9a-f]{8}")
REMOVAL = f"{TEMPORARY}gone-"
PIECE = re.compile(rf"({re.escape(TEMPORARY)}(gone-)?|{re.escape(DAMAGED)})?{NAME.pattern}")
"""Names of the folders that the cache creates (segment.write_segment and below). Nothing else is ever touched, so that
other files survive even if a home folder is given as the cache by mistake."""

ABANDONED_SECONDS = 3600.0
"""A segment being written for longer than this was left behind by a killed run; writing one takes seconds."""


@dataclass(frozen=True)
class EncoderUse:
    """What the cache holds of one encoder. last_used: seconds since the epoch.

    name : the latest one; "" if no segment states it.
    """

    fingerprint: str
    name: str
    n_segments: int
    n_rows: int
    n_bytes: int
    last_used: float


@dataclass(frozen=True)
class CacheInfo:
    """What the cache holds. n_damaged: quarantined segments, the first to go when the cache exceeds its limit."""

    folder: str
    limit_bytes: int
    n_bytes: int
    n_damaged: int
    encoders: tuple[EncoderUse, ...]


@dataclass(frozen=True)
class Verification:
    """Result of reading every byte: number of intact segments, and the names of those quarantined."""

    n_whole: int
    damaged: tuple[str, ...]


class CacheFolder:
    """The whole embedding cache: a folder per encoder fingerprint. It need not exist yet."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes

    @classmethod
    def of(cls, settings: Settings) -> CacheFolder:
        """The folder and limit from the settings; by default the user's cache folder."""
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
                    _encoder_name(segments[-1]),
                    len(segments),
                    sum(_n_rows(segment) for segment in segments),
                    sum(_size(segment.folder) for segment in segments),
                    max(_last_used(segment.folder) for segment in segments),
                )
            )
        pieces = [folder for home in self._homes() for folder in _pieces(home)]
        damaged = sum(1 for folder in pieces if folder.name.startswith(DAMAGED))
        total = sum(_size(folder) for folder in pieces)
        return CacheInfo(str(self.folder), self.limit_bytes, total, damaged, tuple(encoders))

    def clear(self) -> int:
        """Removes every segment and no other file; returns the number of bytes freed. Concurrent runs keep the
        segments that they have open or are writing.
        """
        freed = 0
        for home in self._homes():
            for folder in _pieces(home):
                if not _in_progress(folder):
                    freed += _size(folder)
                    _remove(folder)
        return freed

    def verify(self) -> Verification:
        """Reads every byte of every segment; quarantines the damaged ones."""
        whole, damaged = 0, []
        for home in self._homes():
            for folder in finished(home):
                try:
                    Segment(folder).verify()
                    whole += 1
                except (DamagedSegmentError, OSError):
                    if folder.is_dir():  # otherwise another run has removed it
                        quarantine(folder)
                        damaged.append(f"{home.name}/{folder.name}")
        return Verification(whole, tuple(damaged))

    def shrink(self) -> None:
        """Brings the cache under its limit: quarantined segments go first, then the least recently used."""
        sizes: dict[Path, int] = {}
        for home in self._homes():
            for folder in _pieces(home):
                if not folder.name.startswith(TEMPORARY):
                    sizes[folder] = _size(folder)
                elif not _in_progress(folder):
                    _remove(folder)
        total = sum(sizes.values())
        for folder in sorted(sizes, key=lambda path: (not path.name.startswith(DAMAGED), _last_used(path))):
            if total <= self.limit_bytes:
                return
            _remove(folder)
            total -= sizes[folder]

    def _homes(self) -> Iterator[Path]:
        if self.folder.is_dir():
            yield from sorted(path for path in self.folder.iterdir() if path.is_dir())


def default_folder() -> Path:
    """The user's cache folder, by the convention of each system."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "secid" / "embeddings"


def hash_memory(settings: Settings) -> Path | None:
    """The file that stores hashes of weights (`hashes.file_sha256`); None if the cache is off."""
    return CacheFolder.of(settings).folder / "weights.json" if settings.cache else None


def quarantine(folder: Path) -> None:
    """Takes a damaged segment out of use but leaves it on disk for inspection. One already removed is no error."""
    try:
        folder.rename(folder.with_name(DAMAGED + folder.name))
    except OSError:
        return


def finished(home: Path) -> list[Path]:
    """Finished segment folders, oldest first. Names of unfinished and quarantined ones start with a dot."""
    if not home.is_dir():
        return []
    return sorted(path for path in _pieces(home) if not path.name.startswith("."))


def _pieces(home: Path) -> list[Path]:
    """An encoder's segment folders: finished, unfinished and quarantined."""
    try:
        return [path for path in home.iterdir() if PIECE.fullmatch(path.name) and path.is_dir()]
    except OSError:  # another user's folder, not readable
        return []


def _remove(folder: Path) -> None:
    """Renames before it deletes, so that no reader sees half a segment. Remains of a killed removal go as well."""
    match = NAME.search(folder.name)
    hidden = folder.with_name(f"{REMOVAL}{match.group() if match else folder.name}")
    try:
        if folder != hidden:
            folder.rename(hidden)
    except OSError:
        return
    shutil.rmtree(hidden, ignore_errors=True)


def _in_progress(folder: Path) -> bool:
    """Whether a run is writing it. False for one that is being removed."""
    name = folder.name
    writing = name.startswith(TEMPORARY) and not name.startswith(REMOVAL)
    return writing and time.time() - _modified(folder) <= ABANDONED_SECONDS


def _n_rows(segment: Segment) -> int:
    try:
        return int(segment.meta["n"])
    except (DamagedSegmentError, OSError):
        return 0


def _encoder_name(segment: Segment) -> str:
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


def _last_used(folder: Path) -> float:
    """When a segment was last used, in seconds since the epoch; 0 if unknown."""
    try:
        return (folder / META).stat().st_mtime
    except OSError:
        return 0.0
