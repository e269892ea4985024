"""Atomic writing of files, temporary folders for work files, and temporary databases."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import platform
import re
import secrets
import shutil
import sqlite3
import stat
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from secid.errors import OutputError, plain_message

if sys.platform != "win32":
    import fcntl

PARTIAL = re.compile(r"\.[0-9a-f]{8}\.partial$")
"""Suffix of the names that `partial_of` returns."""
PARTIAL_NAME_CHARACTERS = 50
"""Number of a file name's characters that its partial file repeats. At four bytes each, the name stays within 255
bytes."""


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def partial_of(path: Path) -> Path:
    """Return a unique path in the same folder, under which a file is written until it is complete."""
    return path.with_name(f".{path.name[:PARTIAL_NAME_CHARACTERS]}.{secrets.token_hex(4)}.partial")


@contextmanager
def partial_files(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Create an empty, locked partial file for each path. Remove those that still exist at the end.

    Partial files that killed runs left in the same folders are removed too. Raises OutputError.
    """
    partials = [partial_of(path) for path in paths]
    with ExitStack() as cleared:
        for path, partial in zip(paths, partials, strict=True):
            for old in path.parent.glob(".*.partial"):
                if PARTIAL.search(old.name):
                    _remove_abandoned(old)
            cleared.callback(partial.unlink, missing_ok=True)
            try:
                partial.touch(exist_ok=False)
            except OSError as error:
                raise write_error(error, path) from error
            cleared.enter_context(locked(partial))
        yield partials


def make_folder(path: Path) -> None:
    """Create the folder of a file, and its parents. Raises OutputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"cannot create its directory: {error.strerror}", where=str(path), remedy=OTHER_PATH_REMEDY
        ) from error


def check_writable(path: Path) -> None:
    """Raise OutputError if a file cannot be written at this path. Its folder may be missing, and is not created."""
    if path.is_dir():
        raise OutputError("is a directory", where=str(path), remedy="name a file in it")
    parent = next(parent for parent in (path.parent, *path.parent.parents) if parent.exists())
    probe = partial_of(parent / path.name)
    try:
        with probe.open("x"):
            pass
        probe.unlink()
    except OSError as error:
        raise write_error(error, path) from error


def write_whole(path: Path, text: str) -> None:
    """Write a text file atomically, and create its folder. Raises OutputError."""
    write_together({path: text.encode("utf-8")})


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write files that belong together: no file is replaced until all are written. Create their folders.

    If a path is a symbolic link, the link stays and its target is written. Raises OutputError.
    """
    for target in contents:
        make_folder(target)
    files = {path: Path(os.path.realpath(path)) for path in contents}
    partials = {path: partial_of(file) for path, file in files.items()}
    path = None
    try:
        for path, data in contents.items():
            partials[path].write_bytes(data)
        for path, partial in partials.items():
            partial.replace(files[path])
    except OSError as error:
        raise write_error(error, str(path)) from error
    finally:
        for partial in partials.values():
            with suppress(OSError):
                partial.unlink(missing_ok=True)


NO_ROOM = frozenset({errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})
"""Error numbers of a full disk, an exceeded quota, and a file above the size limit."""
FULL_DISK_REMEDY = "free some space, or set TMPDIR to a directory on another disk"
OTHER_DISK_REMEDY = "free some space, or name a path on another disk"
OTHER_PATH_REMEDY = "check the path and its permissions, or name another path"
FILE_SIZE_REMEDY = "raise the limit on file sizes: ulimit -f unlimited"
WORK_PREFIX = f"secid-{platform.node()}-"
"""Prefix of work folders' names. It contains the machine's name, because other machines' work folders on a shared disk
would look abandoned."""
UNLOCKED_SECONDS = 60.0
"""Age below which a work folder is kept even if no process has locked it, because its owner may be about to lock it."""


@contextmanager
def work_folder(inside: Path | None = None) -> Iterator[Path]:
    """Create an empty folder, and remove it at the end. inside: its parent; by default the system's temporary folder.

    In the system's temporary folder, this also removes work folders that killed runs left. A running process holds a
    lock on its folder. Raises OutputError if the folder cannot be created, or if the disk fills up inside the block.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=inside)
    except OSError as error:
        where = None if inside is None else str(inside)
        raise OutputError(
            f"cannot create a work folder ({plain_message(error)})", where=where, remedy=FULL_DISK_REMEDY
        ) from error
    with folder as name, locked(Path(name)):
        if inside is None:
            for old in Path(name).parent.glob(f"{glob.escape(WORK_PREFIX)}*"):
                if old.is_dir():
                    _remove_abandoned(old)
        try:
            yield Path(name)
        except (OSError, sqlite3.OperationalError) as error:
            if not _no_room(error):
                raise
            raise OutputError(
                f"no room left for work files ({plain_message(error)})", where=name, remedy=remedy_of(error)
            ) from error


def remedy_of(error: Exception) -> str:
    """Return the remedy for an error of a full disk or of the limit on file sizes."""
    return FILE_SIZE_REMEDY if isinstance(error, OSError) and error.errno == errno.EFBIG else FULL_DISK_REMEDY


def write_error(error: OSError, path: str | Path) -> OutputError:
    no_room = FILE_SIZE_REMEDY if error.errno == errno.EFBIG else OTHER_DISK_REMEDY
    remedy = no_room if _no_room(error) else OTHER_PATH_REMEDY
    return OutputError(f"cannot be written: {error.strerror}", where=str(path), remedy=remedy)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Lock a folder or file until the block ends. Yield whether it was locked.

    Yield False if another process holds the lock, and on Windows.
    """
    if sys.platform == "win32":  # Windows cannot lock folders, so no folder is removed there
        yield False
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked = True
    except OSError:
        locked = False
    try:
        yield locked
    finally:
        os.close(descriptor)


def _remove_abandoned(path: Path) -> None:
    """Remove this user's file or folder if no running process has locked it. Symbolic links and new files stay."""
    with suppress(OSError):
        status = path.lstat()
        old = time.time() - status.st_mtime > UNLOCKED_SECONDS
        if sys.platform == "win32" or not old or stat.S_ISLNK(status.st_mode) or status.st_uid != os.getuid():
            return
        with locked(path) as abandoned:
            if abandoned and stat.S_ISDIR(status.st_mode):
                shutil.rmtree(path, ignore_errors=True)
            elif abandoned:
                path.unlink()


def _no_room(error: OSError | sqlite3.OperationalError) -> bool:
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    return error.sqlite_errorcode == sqlite3.SQLITE_FULL


CACHE_KIB = 64 << 10
"""Memory that a database may use before it spills to disk (64 MiB). SQLite uses the same amount again to sort."""


def temporary_database(owner: object) -> sqlite3.Connection:
    """Return an empty database. It is in memory up to CACHE_KIB, and beyond that in an unnamed temporary file.

    It is closed when its owner is garbage-collected, because a reader that stops early never closes it. Python 3.13
    warns about databases left open.
    """
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    for pragma in (f"cache_size=-{CACHE_KIB}", "journal_mode=OFF", "synchronous=OFF", "temp_store=FILE"):
        database.execute(f"PRAGMA {pragma}")
    weakref.finalize(owner, database.close)
    return database
