"""Files that are written whole or not at all, a run's temporary folder for work files, and temporary databases."""

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
"""The ending of the names that `partial_of` returns."""
NAME_CHARACTERS = 50
"""Characters of a file's name that its partial file repeats; even at four bytes each, the name stays within 255."""


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def partial_of(path: Path) -> Path:
    """Return a unique path in the same folder, to write a file under until it is whole."""
    return path.with_name(f".{path.name[:NAME_CHARACTERS]}.{secrets.token_hex(4)}.partial")


@contextmanager
def partial_files(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Create an empty partial file for each path, and remove those that still exist at the end.

    Each is locked until then. Partial files that killed runs left in the same folders are removed too.
    Raises OutputError.
    """
    partials = [partial_of(path) for path in paths]
    with ExitStack() as cleared:
        for path, partial in zip(paths, partials, strict=True):
            _clear_partials(path.parent)
            cleared.callback(partial.unlink, missing_ok=True)
            try:
                partial.touch(exist_ok=False)
            except OSError as error:
                raise OutputError(f"cannot be written: {error.strerror}", where=str(path)) from error
            cleared.enter_context(locked(partial))
        yield partials


def _clear_partials(folder: Path) -> None:
    """Remove partial files from a folder, except those that a living process has locked."""
    for file in folder.glob(".*.partial"):
        if PARTIAL.search(file.name):
            _remove_abandoned(file)


def make_folder(path: Path) -> None:
    """Create the folder of a file, and its parents. Raises OutputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot create its directory: {error.strerror}", where=str(path)) from error


def check_writable(path: Path) -> None:
    """Refuse a path that cannot be written. Its folder need not exist, and is not created. Raises OutputError."""
    if path.is_dir():
        raise OutputError("is a directory", where=str(path), remedy="name a file in it")
    parent = next(parent for parent in (path.parent, *path.parent.parents) if parent.exists())
    probe = partial_of(parent / path.name)
    try:
        with probe.open("x"):
            pass
        probe.unlink()
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", where=str(path)) from error


def write_whole(path: Path, text: str) -> None:
    """Write a text file whole or not at all, and create its folder. Raises OutputError."""
    write_together({path: text.encode("utf-8")})


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write files that belong together: none is replaced before all are written. Create their folders.

    A symbolic link stays, and its target is written. Raises OutputError.
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
        raise OutputError(f"cannot be written: {error.strerror}", where=str(path)) from error
    finally:
        for partial in partials.values():
            with suppress(OSError):
                partial.unlink(missing_ok=True)


NO_ROOM = frozenset({errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})
"""Error numbers of a full disk, an exceeded quota, and the limit on the size of a file."""
REMEDY = "free some; TMPDIR names another directory for work files"
LIMITED = "raise the limit on the size of a file: ulimit -f unlimited"
WORK_PREFIX = f"secid-{platform.node()}-"
"""Prefix of work folders' names. It holds the machine, since on a shared disk the work folders of other machines look
abandoned."""
UNLOCKED_SECONDS = 60.0
"""A work folder younger than this may not have been locked yet."""


@contextmanager
def work_folder(inside: Path | None = None) -> Iterator[Path]:
    """Create an empty folder, and remove it at the end. inside: its parent, by default the system's temporary folder.

    In the system's folder, work folders that killed runs left are removed too: a living run holds a lock on its folder,
    which ends with its process.
    Raises OutputError if it cannot be created, or if the disk is full while the block writes.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix=WORK_PREFIX, dir=inside)
    except OSError as error:
        where = None if inside is None else str(inside)
        raise OutputError(
            f"cannot create a work folder ({plain_message(error)})", where=where, remedy=REMEDY
        ) from error
    with folder as name, locked(Path(name)):
        if inside is None:
            _clear_abandoned(Path(name).parent)
        try:
            yield Path(name)
        except (OSError, sqlite3.OperationalError) as error:
            if not _no_room(error):
                raise
            raise OutputError(
                f"no room left for work files ({plain_message(error)})", where=name, remedy=remedy_of(error)
            ) from error


def remedy_of(error: Exception) -> str:
    """Return the remedy if there is no room for work files."""
    return LIMITED if isinstance(error, OSError) and error.errno == errno.EFBIG else REMEDY


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Lock a folder or file until the block or this process ends.

    Yield False if that fails, because another process holds the lock or the system has no such locks (Windows).
    """
    if sys.platform == "win32":  # folders cannot be locked there, so none is cleared
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


def _clear_abandoned(parent: Path) -> None:
    """Remove this user's work folders that no living process has locked."""
    for folder in parent.glob(f"{glob.escape(WORK_PREFIX)}*"):
        if folder.is_dir():
            _remove_abandoned(folder)


def _remove_abandoned(path: Path) -> None:
    """Remove a file or folder of this user that no living process has locked. Links and anything new stay."""
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
"""Memory of the database before it goes to disk (64 MiB). SQLite uses as much again to sort."""


def temporary_database(owner: object) -> sqlite3.Connection:
    """Return an empty database, in memory up to CACHE_KIB and in an unnamed temporary file beyond that.

    It is closed with the last reference to its owner. Python 3.13 warns about a database that is never closed, and
    a reader may stop before its end.
    """
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    for pragma in (f"cache_size=-{CACHE_KIB}", "journal_mode=OFF", "synchronous=OFF", "temp_store=FILE"):
        database.execute(f"PRAGMA {pragma}")
    weakref.finalize(owner, database.close)
    return database
