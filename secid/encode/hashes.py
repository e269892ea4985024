"""SHA-256 of files. Hashes of weights are stored: hashing 16 GB takes longer than a run from the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from secid.files import sha256_of

SETTLED_SECONDS = 10.0
"""Age from which the hash of a file is stored: one changed twice within a clock tick would look unchanged."""


def document_sha256(document: Mapping[str, Any]) -> str:
    """Hex SHA-256 of a JSON document, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def file_sha256(path: Path, memory: Path | None = None) -> str:
    """Hex SHA-256 of a file's bytes.

    memory : a file that stores hashes by path, size, modification time and inode, so that an unchanged file
             is not read again. It may be missing or damaged. None always reads the file.
    """
    if memory is None:
        return sha256_of(path)
    status, name = path.stat(), str(path.resolve())
    stamp = [status.st_size, status.st_mtime_ns, status.st_ino]
    entry = _read(memory).get(name)
    if entry is not None and entry[:-1] == stamp:
        return str(entry[-1])
    digest = sha256_of(path)
    if time.time() - status.st_mtime > SETTLED_SECONDS:
        _write(memory, {**_read(memory), name: [*stamp, digest]})
    return digest


def files_sha256(paths: Iterable[Path], memory: Path | None = None) -> str:
    """SHA-256 of one file; for several, of their sorted names and hashes. memory : as in `file_sha256`."""
    paths = sorted(paths)
    if len(paths) == 1:
        return file_sha256(paths[0], memory)
    lines = "".join(f"{path.name} {file_sha256(path, memory)}\n" for path in paths)
    return hashlib.sha256(lines.encode()).hexdigest()


def _read(memory: Path) -> dict[str, list[int | str]]:
    try:
        document = json.loads(memory.read_text(encoding="utf-8"))
        return {str(name): list(entry) for name, entry in document.items() if len(entry) == 4}
    except (OSError, ValueError, AttributeError, TypeError):  # missing, or not written by `_write`
        return {}


def _write(memory: Path, document: dict[str, list[int | str]]) -> None:
    """Writes the whole file or nothing; in a read-only folder the hash is computed again next time."""
    temporary = memory.with_name(f"{memory.name}.{secrets.token_hex(4)}")
    with contextlib.suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(document), encoding="utf-8")
        temporary.replace(memory)
