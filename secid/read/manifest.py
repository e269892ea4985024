"""The manifest beside the files of `secid mine`, and which of them were changed since."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

MANIFEST = ".manifest.json"


def sha256_of(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def changed_files(paths: Iterable[str]) -> list[str]:
    """The files that a manifest beside them names with another hash. What is no manifest of ours names none."""
    return [path for path in paths if (sha256 := _noted(Path(path))) and sha256 != sha256_of(Path(path))]


def _noted(path: Path) -> str | None:
    """The hash that the manifest has of a file; None without one."""
    try:
        files = json.loads((path.parent / MANIFEST).read_text(encoding="utf-8"))["files"]
        sha256 = files[path.name]["sha256"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return sha256 if isinstance(sha256, str) and path.is_file() else None
