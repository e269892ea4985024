"""The manifest beside the files of `secid mine`, and which of them were changed since."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from secid.files import PARTIAL, sha256_of

MANIFEST = ".manifest.json"


def changed_files(paths: Iterable[str]) -> list[str]:
    """The files that a manifest beside them names with another hash. What is no manifest of ours names none."""
    files = [(path, Path(path)) for path in paths]
    noted = [(path, file, _noted(file, file.parent / MANIFEST)) for path, file in files]
    return [path for path, file, sha256 in noted if sha256 and sha256 != sha256_of(file)]


def left_by_a_kill(folder: Path) -> list[Path]:
    """Files of a run that was killed between the first and its manifest, which comes last and still has a partial
    name: those with the hash that it names, and then the manifest itself.
    """
    manifests = [path for path in folder.glob(f".{MANIFEST}.*") if PARTIAL.search(path.name)]
    noted = [(path, _noted(path, manifest)) for manifest in manifests for path in folder.iterdir()]
    return [*(path for path, sha256 in noted if sha256 and sha256 == sha256_of(path)), *manifests]


def _noted(path: Path, manifest: Path) -> str | None:
    """The hash that a manifest has of a file; None without one."""
    try:
        files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
        sha256 = files[path.name]["sha256"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return sha256 if isinstance(sha256, str) and path.is_file() else None
