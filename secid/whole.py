"""Files written whole or not at all: first under names of their own beside where they belong, then renamed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from secid.errors import OutputError

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
