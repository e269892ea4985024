"""The folder for what a run keeps on disk while it lasts: texts, tokens, vectors."""

from __future__ import annotations

import errno
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from secid.errors import OutputError, plainly

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
