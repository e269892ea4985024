"""SHA-256 of files. Those of weights are remembered: hashing 16 GB takes longer than a run from the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import Iterable
from pathlib import Path

SETTLED_SECONDS = 10.0
"""Age from which a hash is remembered: a file changed twice within the clock's step would look unchanged."""


def file_sha256(path: Path, memory: Path | None = None) -> str:
    """Hex SHA-256 of a file's bytes.

    memory : a file that keeps hashes by path, size, time of change and inode, so that an unchanged file
             is not read again. It may be absent or damaged; None reads the file in any case.
    """
    if memory is None:
        return _hashed(path)
    status, name = path.stat(), str(path.resolve())
    seen = [status.st_size, status.st_mtime_ns, status.st_ino]
    known = _read(memory).get(name)
    if known is not None and known[:-1] == seen:
        return str(known[-1])
    found = _hashed(path)
    if time.time() - status.st_mtime > SETTLED_SECONDS:
        _write(memory, {**_read(memory), name: [*seen, found]})
    return found


def files_sha256(paths: Iterable[Path], memory: Path | None = None) -> str:
    """SHA-256 of one file; of several, of their names and hashes in sorted order. memory : as for `file_sha256`."""
    paths = sorted(paths)
    if len(paths) == 1:
        return file_sha256(paths[0], memory)
    lines = "".join(f"{path.name} {file_sha256(path, memory)}\n" for path in paths)
    return hashlib.sha256(lines.encode()).hexdigest()


def _hashed(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _read(memory: Path) -> dict[str, list[int | str]]:
    try:
        document = json.loads(memory.read_text(encoding="utf-8"))
        return {str(name): list(entry) for name, entry in document.items() if len(entry) == 4}
    except (OSError, ValueError, AttributeError, TypeError):  # absent, or not what `_write` makes
        return {}


def _write(memory: Path, document: dict[str, list[int | str]]) -> None:
    """Whole or not at all; a folder that cannot be written costs a hash next time and nothing else."""
    temporary = memory.with_name(f"{memory.name}.{secrets.token_hex(4)}")
    with contextlib.suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(document), encoding="utf-8")
        temporary.replace(memory)
