"""Read and write state files in a folder, on a disk or in an object store. A state is either complete or absent.

A state has a file NAME.safetensors with arrays, and a header in its metadata. It may have large files NAME.KEY, which
are written first. Source: docs/decisions/state-files.md.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from secid.errors import InputError, OutputError, SecidError, UsageError, plain_message
from secid.files import NO_ROOM, check_writable, make_folder, partial_files, sha256_of, work_folder

STATE_SUFFIX = ".safetensors"
STORE_REMEDY = "check the address of --state-dir, your credentials and the free space"
STATE_NAME = re.compile(r"[a-z0-9-]+")
CREDENTIALS = re.compile(r"//[^/]*@")
"""User and password before the host of a URL. They are removed from messages."""
RECORD = "secid_state"
"""Key of the metadata. Its value is a SHA-256 and the JSON that it hashes: the header, and hashes of the rest."""
HEADER_READ_BYTES, MAX_HEADER_BYTES = 1 << 16, 100_000_000
"""Bytes of the first request for a header in an object store; most headers need no second request. Maximum size of a
header, which is that of safetensors. A longer header belongs to another program and is not downloaded."""
HASH_SAMPLES, SAMPLE_BYTES = 64, 1 << 16
"""Number and size of the samples of a large local file that are hashed. Hashing all of it would take a quarter of the
time of a merge."""


class StateDir:
    """State files in a folder: a local path, or any URL of fsspec (s3://, gs://, memory://).

    Raises InputError with the URL of a file that is missing, damaged, incomplete, foreign or cannot be read, and
    OutputError for a file that cannot be written. Raises ValueError for a name or key with characters other than
    [a-z0-9-].
    """

    def __init__(self, url: str) -> None:
        """Open the folder; it is not created. Raises UsageError for an empty name, an unknown protocol, or a protocol
        whose package is not installed.
        """
        if not url:
            raise UsageError("the folder's name is empty", where="--state-dir", remedy="name a local path or a URL")
        self.url = url
        self._shown = CREDENTIALS.sub("//", url).rstrip("/")
        self._store: Any  # None for a local folder
        self._store, self._root = _opened(url, self._shown) if "://" in url else (None, str(Path(url)))

    def check_writable(self) -> None:
        """Raise OutputError if a local folder cannot be written. An object store is not checked."""
        if self._store is None:
            check_writable(Path(self._root, "state"))

    def names(self) -> list[str]:
        """Return the sorted names of the states in the folder; [] if it does not exist."""
        files: list[str] = []
        with self._reading(""), suppress(FileNotFoundError):
            if self._store is None:
                files = [path.name for path in Path(self._root).iterdir()]
            else:
                self._store.invalidate_cache()  # a cached listing lacks files that other processes have just written
                files = [path.rsplit("/", 1)[-1] for path in self._store.ls(self._root, detail=False)]
        names = (file.removesuffix(STATE_SUFFIX) for file in files if file.endswith(STATE_SUFFIX))
        return sorted(name for name in names if STATE_NAME.fullmatch(name))

    def has(self, name: str) -> bool:
        """Return True if the state exists. Then all of its large files exist. Their content is not checked."""
        return name in self.names()

    def write(
        self,
        name: str,
        header: Mapping[str, Any],
        arrays: Mapping[str, npt.NDArray[Any]],
        files: Mapping[str, Path] = {},
    ) -> None:
        """Write a state completely or not at all, and create its folder. A state with the same name is replaced.

        header : JSON values.   arrays : bool, integers, floats or complex64, of any shape.
        """
        file = _file(name)
        stored = {key: np.asarray(a, a.dtype.newbyteorder("="), order="C") for key, a in arrays.items()}
        listed = {
            key: {"bytes": path.stat().st_size, "sha256": sha256_of(path), "pieces_sha256": _sha256_of_samples(path)}
            for key, path in files.items()
        }
        text = json.dumps(
            {"name": name, "header": dict(header), "arrays_sha256": _sha256_of_arrays(stored), "files": listed}
        )
        with work_folder() as folder, self._writing(file):
            save_file(stored, folder / file, {RECORD: f"{_sha256(text)} {text}"})
            if files and self.has(name):  # the old state must not refer to the new large files
                with suppress(FileNotFoundError):  # another process may be writing it too
                    self._remove(file)
            for key, path in files.items():
                self._put(path, _file(name, key))
            self._put(folder / file, file)

    def header(self, name: str) -> dict[str, Any]:
        """Return the header of a state. Arrays are not read, so an incomplete remote state is not detected."""
        return dict(self._record(name)["header"])

    def read(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """Return all arrays of a state, after checking their SHA-256."""
        file = _file(name)
        with work_folder() as folder, self._reading(file):
            with safe_open(self._get(file, folder), "np") as state:
                record, arrays = _record_of(state.metadata(), name), dict(state.get_tensors())
            if _sha256_of_arrays(arrays) != record["arrays_sha256"]:
                raise ValueError("the SHA-256 of its arrays differs from that in its header")
            return arrays

    def file(self, name: str, key: str, folder: Path) -> Path:
        """Return the path of a large file of a state. A remote file is downloaded into the folder.

        The size is checked, and the SHA-256 of a download, or of samples of a local file.
        """
        file, listed = _file(name, key), self._record(name)["files"]
        with self._reading(file):
            if key not in listed:
                raise ValueError(f"{_file(name)} does not list it")
            path = self._get(file, folder)
            if (n_bytes := path.stat().st_size) != listed[key]["bytes"]:
                raise ValueError(f"it has {n_bytes} bytes, but {listed[key]['bytes']} in {_file(name)}")
            digest = _sha256_of_samples(path) if self._store is None else sha256_of(path)
            if digest != listed[key]["pieces_sha256" if self._store is None else "sha256"]:
                raise ValueError(f"its SHA-256 differs from that in {_file(name)}")
            return path

    def _record(self, name: str) -> dict[str, Any]:
        file = _file(name)
        with self._reading(file):
            if self._store is None:
                with safe_open(Path(self._root, file), "np") as state:
                    return _record_of(state.metadata(), name)
            data = self._store.cat_file(f"{self._root}/{file}", start=0, end=HEADER_READ_BYTES)
            end = 8 + int.from_bytes(data[:8], "little")
            if len(data) < end < MAX_HEADER_BYTES:
                data = self._store.cat_file(f"{self._root}/{file}", start=0, end=end)
            return _record_of(json.loads(data[8:end]).get("__metadata__"), name)

    def _get(self, file: str, folder: Path) -> Path:
        """Return the path of a local file, or of a download in the folder."""
        if self._store is None:
            return Path(self._root, file)
        self._store.get_file(f"{self._root}/{file}", str(folder / file))
        return folder / file

    def _remove(self, file: str) -> None:
        if self._store is None:
            Path(self._root, file).unlink()
        else:
            self._store.rm_file(f"{self._root}/{file}")

    def _put(self, path: Path, file: str) -> None:
        if self._store is not None:
            self._store.put_file(str(path), f"{self._root}/{file}")
            return
        target = Path(self._root, file)
        make_folder(target)
        with partial_files([target]) as [partial]:
            shutil.copyfile(path, partial)
            partial.replace(target)

    @contextmanager
    def _reading(self, file: str) -> Iterator[None]:
        where = f"{self._shown}/{file}".rstrip("/")
        # The state must be removed, since a shard with a state is skipped.
        state = where.removesuffix(Path(file).suffix) + STATE_SUFFIX
        again = f"remove {'it' if state == where else state} and run the shard again" if file else None
        try:
            yield
        except FileNotFoundError as error:
            remedy = "run the shard again" if state == where else again
            raise InputError("not found", where=where, remedy=remedy) from error
        except (ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            raise InputError(f"cannot be used: {plain_message(error)}", where=where, remedy=again) from error
        except Exception as error:  # the library of a store has its own exceptions, for example for missing credentials
            if isinstance(error, SecidError) or getattr(error, "errno", None) in NO_ROOM:  # work_folder handles it
                raise
            raise InputError(f"cannot be read: {plain_message(error)}", where=where, remedy=STORE_REMEDY) from error

    @contextmanager
    def _writing(self, file: str) -> Iterator[None]:
        try:
            yield
        except SecidError:
            raise
        except Exception as error:
            raise OutputError(
                f"cannot be written: {plain_message(error)}", where=f"{self._shown}/{file}", remedy=STORE_REMEDY
            ) from error


def _opened(url: str, shown: str) -> tuple[Any, str]:
    """Return fsspec's file system, None for the local one, and the path of the folder in it. Raises UsageError."""
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    try:
        store, root = url_to_fs(url)
    except ImportError as error:
        package = getattr(error.__cause__, "name", None) or error.name
        raise UsageError(
            f"needs the package {package}, which is not installed",
            where=shown,
            remedy=f"install it: pip install {package}",
        ) from error
    except (ValueError, OSError) as error:
        raise UsageError(
            plain_message(error), where=shown, remedy="name a local path, or a URL such as s3://BUCKET/FOLDER"
        ) from error
    return None if isinstance(store, LocalFileSystem) else store, root


def _file(name: str, key: str = STATE_SUFFIX[1:]) -> str:
    """Return the file name of a state or of a large file. Raises ValueError for a name that could leave the folder."""
    if not (STATE_NAME.fullmatch(name) and STATE_NAME.fullmatch(key)):
        raise ValueError(f"{name!r}, {key!r}: only a-z, 0-9 and - are allowed")
    return f"{name}.{key}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _sha256_of_samples(path: Path) -> str:
    """Hash evenly spaced samples of a file. They cover all of a file up to 4 MiB."""
    digest, last = hashlib.sha256(), max(path.stat().st_size - SAMPLE_BYTES, 0)
    with path.open("rb") as file:
        for number in range(HASH_SAMPLES):
            file.seek(last * number // (HASH_SAMPLES - 1))
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def _sha256_of_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Hash names, types, shapes and values, in the order of the names."""
    digest = hashlib.sha256()
    for key in sorted(arrays):
        digest.update(json.dumps([key, arrays[key].dtype.name, arrays[key].shape]).encode("utf-8"))
        digest.update(arrays[key].reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _record_of(metadata: Mapping[str, str] | None, name: str) -> dict[str, Any]:
    """Return the record in a file's metadata. Raises ValueError if it is not the record of this state."""
    if not metadata or RECORD not in metadata:
        raise ValueError("another program wrote this file")
    digest, _, text = metadata[RECORD].partition(" ")
    if digest != _sha256(text):
        raise ValueError("its header is damaged")
    record: dict[str, Any] = json.loads(text)
    if record["name"] != name:
        raise ValueError(f"it is a copy of {record['name']}")
    return record
