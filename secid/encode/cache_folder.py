"""Manage the whole embedding cache: contents, size limit, verification and removal.

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

from secid.encode.segment import META_FILE, DamagedSegmentError, Segment
from secid.settings import Settings, flag_of

DAMAGED_PREFIX, REMOVAL_PREFIX = ".damaged-", ".gone-"
SEGMENT_NAME = re.compile(r"\d{20}-[0-9a-f]{8}")
CACHE_FOLDER = re.compile(rf"({re.escape(DAMAGED_PREFIX)}|{re.escape(REMOVAL_PREFIX)})?{SEGMENT_NAME.pattern}")
"""Pattern of the folders that the cache creates. The cache never touches other files, so they survive even if a home
folder is set as the cache by mistake."""
TRAINING_NAME = re.compile(r"[0-9a-f]{32}\.json")
"""Pattern of the files that hold finished training runs of `secid probe`."""

ABANDONED_SECONDS = 3600.0
"""Age above which a segment without readable rows counts as abandoned. Live runs seal their rows within seconds."""

FREE_SHARE, MAX_DEFAULT_BYTES = 0.5, 200 * 10**9
"""Default size limit: this share of (free space of the disk + present size of the cache), but at most 200 GB, which is
enough for 65 million texts with 768 dimensions."""


@dataclass(frozen=True)
class EncoderUse:
    """Size and last use of one encoder's cached rows.

    name      : the encoder's name in the newest segment, or "".
    last_used : time of the last use in seconds since the epoch.
    """

    fingerprint: str
    name: str
    n_segments: int
    n_rows: int
    n_bytes: int
    last_used: float


@dataclass(frozen=True)
class CacheInfo:
    """Contents of the cache.

    n_damaged   : number of quarantined segments, which are removed first if the cache exceeds its limit.
    n_trainings : number of finished training runs of `secid probe`. They take a few kB each, not included in n_bytes.
    """

    folder: str
    limit_bytes: int
    n_bytes: int
    n_damaged: int
    n_trainings: int
    encoders: tuple[EncoderUse, ...]


@dataclass(frozen=True)
class ClearResult:
    """Size of the removed files, and number and size of unsealed segments, which stay because a run may write them."""

    n_bytes_freed: int
    n_unsealed: int
    n_bytes_unsealed: int


@dataclass(frozen=True)
class Verification:
    """Result of reading every byte: number of intact segments, and names of quarantined and of unreadable segments."""

    n_whole: int
    damaged: tuple[str, ...]
    unreadable: tuple[str, ...]


class CacheFolder:
    """The whole embedding cache, with one folder per encoder fingerprint. It need not exist yet.

    limit_bytes : size limit, or None for the default, which depends on the free space of the disk.
    """

    def __init__(self, folder: Path, limit_bytes: int | None) -> None:
        self.folder = folder
        self._limit_bytes = limit_bytes

    @classmethod
    def of(cls, settings: Settings) -> CacheFolder:
        """Return the cache with the folder and limit of the settings. The default is the user's cache folder."""
        folder = Path(settings.cache_dir).expanduser() if settings.cache_dir else default_folder()
        return cls(folder, None if settings.cache_gb is None else int(settings.cache_gb * 10**9))

    @property
    def training_runs(self) -> Path:
        """Folder with the finished training runs of `secid probe`."""
        return self.folder / "probes"

    def limit(self, n_bytes: int) -> int:
        """Return the size limit in bytes of a cache that now holds n_bytes."""
        if self._limit_bytes is not None:
            return self._limit_bytes
        parents = (self.folder, *self.folder.parents)
        with contextlib.suppress(OSError):
            disk = shutil.disk_usage(next(parent for parent in parents if parent.exists()))
            return min(int(FREE_SHARE * (disk.free + n_bytes)), MAX_DEFAULT_BYTES)
        return MAX_DEFAULT_BYTES

    @property
    def remedy(self) -> str:
        """Remedy if the cache has too little room. If no limit is set, the disk's free space determines the limit."""
        if self._limit_bytes is None and self.limit(sum(self._sizes().values())) < MAX_DEFAULT_BYTES:
            return f"free space on the disk of {self.folder}, or use another disk with {flag_of('cache_dir', 'DIR')}"
        return f"{flag_of('cache_gb', 'N')} raises the limit"

    def room(self, in_use: Collection[Path]) -> int:
        """Return the number of bytes that can be written without removing these segments."""
        sizes = self._sizes()
        return max(0, self.limit(sum(sizes.values())) - sum(sizes.get(folder, 0) for folder in in_use))

    def info(self) -> CacheInfo:
        """Return counts and sizes per encoder, without reading rows."""
        encoders = []
        for home in self._encoder_folders():
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
        folders = [folder for home in self._encoder_folders() for folder in _cache_folders(home)]
        damaged = sum(folder.name.startswith(DAMAGED_PREFIX) for folder in folders)
        total = sum(_size(folder) for folder in folders)
        n_trainings = len(self._training_files())
        return CacheInfo(str(self.folder), self.limit(total), total, damaged, n_trainings, tuple(encoders))

    def clear(self) -> ClearResult:
        """Remove all segments and training runs, except unsealed segments, which a run may still be writing."""
        freed, unsealed = 0, []
        for file in self._training_files():
            with contextlib.suppress(OSError):
                size = file.stat().st_size
                file.unlink()
                freed += size
        for home in self._encoder_folders():
            for folder in _cache_folders(home):
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
        for home in self._encoder_folders():
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
        """Make room for n_more bytes under the limit. Segments in use stay.

        First remove all abandoned segments. Then remove quarantined and least recently used segments as needed.
        """
        sizes = self._sizes()
        total = sum(sizes.values())
        limit = self.limit(total)
        for folder in sorted(sizes, key=_last_used):
            is_whole = folder.name.startswith(DAMAGED_PREFIX) or (folder / META_FILE).exists()
            if is_whole and total + n_more <= limit:
                continue
            if folder not in in_use and not _in_progress(folder):
                _remove(folder)
                total -= sizes[folder]

    def _sizes(self) -> dict[Path, int]:
        return {folder: _size(folder) for home in self._encoder_folders() for folder in _cache_folders(home)}

    def _training_files(self) -> list[Path]:
        return [path for path in self.training_runs.glob("*.json") if TRAINING_NAME.fullmatch(path.name)]

    def _encoder_folders(self) -> Iterator[Path]:
        with contextlib.suppress(OSError):  # missing, or not readable
            yield from sorted(path for path in self.folder.iterdir() if path.is_dir())


def default_folder() -> Path:
    """Return the user's cache folder by the convention of the operating system."""
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
    """Rename a damaged segment so that no run reads it, but keep it for inspection. Ignore a missing segment."""
    try:
        folder.rename(folder.with_name(DAMAGED_PREFIX + folder.name))
    except OSError:
        return


def readable_segments(home: Path) -> list[Path]:
    """Return the folders of readable segments, oldest first. Others have a dot before their name, or lack META_FILE."""
    return sorted(
        path for path in _cache_folders(home) if not path.name.startswith(".") and (path / META_FILE).exists()
    )


def _cache_folders(home: Path) -> list[Path]:
    """Return an encoder's segment folders: finished, unfinished and quarantined."""
    try:
        return [path for path in home.iterdir() if CACHE_FOLDER.fullmatch(path.name) and path.is_dir()]
    except OSError:  # another user's folder, not readable
        return []


def _remove(folder: Path) -> None:
    """Rename a segment, then delete it, so that no reader sees half a segment. Also finish an interrupted removal."""
    match = SEGMENT_NAME.search(folder.name)
    hidden = folder.with_name(f"{REMOVAL_PREFIX}{match.group() if match else folder.name}")
    try:
        if folder != hidden:
            folder.rename(hidden)
    except OSError:
        return
    shutil.rmtree(hidden, ignore_errors=True)


def _in_progress(folder: Path) -> bool:
    """Return True if a run may still be writing the first rows of a segment, which cannot be read yet."""
    is_new = not folder.name.startswith(".") and not (folder / META_FILE).exists()
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
    return 0.0 if folder.name.startswith(".") else _modified(folder / META_FILE, missing=0.0)


def _modified(path: Path, missing: float) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return missing
