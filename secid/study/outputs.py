"""Files that a study writes beside its numbers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from secid.errors import OutputError


@contextmanager
def written_lines(path: Path) -> Iterator[TextIO]:
    """A text file that is whole or absent. Raises OutputError where it exists or cannot be written."""
    if not path.parent.is_dir():
        raise OutputError("is no folder that is there", where=str(path.parent), remedy="make it first")
    if path.exists():
        raise OutputError("already exists", where=str(path), remedy="name another file; nothing is replaced")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", where=str(path)) from error
    finally:
        partial.unlink(missing_ok=True)
