"""Files written whole or not at all, and the folder for work files that lasts as long as a run."""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from secid.errors import OutputError, plainly

BEGINNING = 50
"""Characters of a file's name in that of its partial one: of four bytes each they leave room in 255."""


def partial_of(path: Path) -> Path:
    """A name beside a file, of this call alone, that it has until it is whole; no longer than file systems take."""
    return path.with_name(f".{path.name[:BEGINNING]}.{secrets.token_hex(4)}.partial")


def make_folder(path: Path) -> None:
    """Makes the folder that a file is to stand in. Raises OutputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"its folder cannot be made: {error.strerror}", where=str(path)) from error


def write_whole(path: Path, text: str) -> None:
    """Writes a text file whole or not at all. Raises OutputError."""
    write_together({path: text.encode("utf-8")})


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Writes files that belong together: none is replaced before all are written. Raises OutputError.

    Behind a link the file that it leads to is written, and the link stays.
    """
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


NO_ROOM = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)})
REMEDY = "free some, or name another folder: TMPDIR for work files, --run for those of a run"


@contextmanager
def work_folder(inside: Path | None = None) -> Iterator[Path]:
    """An empty folder, removed at the end. inside: the folder that it is made in, by default that for temporary files.

    Raises OutputError where it cannot be made, and where there is no room left for what is written within the block.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="secid-", dir=inside)
    except OSError as error:
        where = None if inside is None else str(inside)
        raise OutputError(f"no folder for work files ({plainly(error)})", where=where, remedy=REMEDY) from error
    with folder as name:
        try:
            yield Path(name)
        except (OSError, sqlite3.OperationalError) as error:
            if not _no_room(error):
                raise
            raise OutputError(f"no room left for work files ({plainly(error)})", where=name, remedy=REMEDY) from error


def _no_room(error: OSError | sqlite3.OperationalError) -> bool:
    if isinstance(error, OSError):
        return error.errno in NO_ROOM
    return error.sqlite_errorcode == sqlite3.SQLITE_FULL
