"""State files in a folder, on a disk or in an object store: arrays with a header, whole or absent.

A state is NAME.safetensors, with a header in its metadata, and large files NAME.KEY, which are written before it.
Source: docs/decisions/state-files.md.
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

from secid.errors import InputError, OutputError, SecidError, UsageError, plainly
from secid.files import NO_ROOM, check_writable, make_folder, partial_files, sha256_of, work_folder

SUFFIX = ".safetensors"
NAME = re.compile(r"[a-z0-9-]+")
CREDENTIALS = re.compile(r"//[^/]*@")
"""User and password before the host of a URL: no message shows them."""
RECORD = "secid_state"
"""The key of the metadata. Its value: a SHA-256, and the JSON that it is of, with the header and hashes of the rest."""
FIRST_BYTES, MOST_BYTES = 1 << 16, 100_000_000
"""Of a file in an object store, what the first request for its header asks for, so that most need no second; and the
longest header that safetensors allows, so that a foreign file is not downloaded as one."""
PIECES, PIECE_BYTES = 64, 1 << 16
"""What is hashed of a large file on a disk, where hashing gigabytes would cost a quarter of a merge."""


class StateDir:
    """State files in a folder: a local path, or any URL of fsspec (s3://, gs://, memory://).

    A name or key has only [a-z0-9-]; others are a ValueError. Raises InputError with the URL of a file that is missing,
    damaged, cut, foreign or cannot be read, and OutputError for one that cannot be written.
    """

    def __init__(self, url: str) -> None:
        """Makes nothing. Raises UsageError for no name, an unknown protocol, or one whose package is not installed."""
        if not url:
            raise UsageError("names no folder", where="--state-dir", remedy="name a local path, or a URL")
        self.url = url
        self._shown = CREDENTIALS.sub("//", url).rstrip("/")
        self._store: Any  # None for a local folder
        self._store, self._root = _opened(url, self._shown) if "://" in url else (None, str(Path(url)))

    def check_writable(self) -> None:
        """Raises OutputError for a local folder that cannot be written; of an object store the first write shows it."""
        if self._store is None:
            check_writable(Path(self._root, "state"))

    def names(self) -> list[str]:
        """Sorted names of the states that are there; [] where the folder does not exist."""
        files: list[str] = []
        with self._reading(""), suppress(FileNotFoundError):
            if self._store is None:
                files = [path.name for path in Path(self._root).iterdir()]
            else:
                self._store.invalidate_cache()  # its listings lack what other processes have written since
                files = [path.rsplit("/", 1)[-1] for path in self._store.ls(self._root, detail=False)]
        names = (file.removesuffix(SUFFIX) for file in files if file.endswith(SUFFIX))
        return sorted(name for name in names if NAME.fullmatch(name))

    def has(self, name: str) -> bool:
        """Whether the state is there, and so all of its large files. Its content is not looked at."""
        return name in self.names()

    def write(
        self,
        name: str,
        header: Mapping[str, Any],
        arrays: Mapping[str, npt.NDArray[Any]],
        files: Mapping[str, Path] = {},
    ) -> None:
        """Writes a state whole or not at all, and creates its folder. One of the same name is replaced.

        header : JSON values.   arrays : bool, integers, floats, complex64, of any shape.   files : by key; copied.
        """
        file = _file(name)
        own = {key: np.asarray(a, a.dtype.newbyteorder("="), order="C") for key, a in arrays.items()}
        listed = {
            key: {"bytes": path.stat().st_size, "sha256": sha256_of(path), "pieces_sha256": _sha256_of_pieces(path)}
            for key, path in files.items()
        }
        text = json.dumps(
            {"name": name, "header": dict(header), "arrays_sha256": _sha256_of_arrays(own), "files": listed}
        )
        with work_folder() as folder, self._writing(file):
            save_file(own, folder / file, {RECORD: f"{_sha256(text)} {text}"})
            if files and self.has(name):  # it must not count as present with the large files of another one
                with suppress(FileNotFoundError):  # another process writes it, too
                    self._remove(file)
            for key, path in files.items():
                self._put(path, _file(name, key))
            self._put(folder / file, file)

    def header(self, name: str) -> dict[str, Any]:
        """The header of a state. Its arrays are not read, so of a remote state, a cut among them is not noticed."""
        return dict(self._record(name)["header"])

    def read(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """All arrays of a state, checked by their SHA-256."""
        file = _file(name)
        with work_folder() as folder, self._reading(file):
            with safe_open(self._get(file, folder), "np") as state:
                record, arrays = _record_of(state.metadata(), name), dict(state.get_tensors())
            if _sha256_of_arrays(arrays) != record["arrays_sha256"]:
                raise ValueError("the SHA-256 of its arrays is not that in its header")
            return arrays

    def file(self, name: str, key: str, folder: Path) -> Path:
        """A large file of a state: its own path where that is local, otherwise a download into the folder.

        Its size is checked, and the SHA-256 of a download, or that of some pieces of a local file.
        """
        file, listed = _file(name, key), self._record(name)["files"]
        with self._reading(file):
            if key not in listed:
                raise ValueError(f"{_file(name)} does not list it")
            path = self._get(file, folder)
            if (n_bytes := path.stat().st_size) != listed[key]["bytes"]:
                raise ValueError(f"it has {n_bytes} bytes, and {listed[key]['bytes']} in {_file(name)}")
            own = _sha256_of_pieces(path) if self._store is None else sha256_of(path)
            if own != listed[key]["pieces_sha256" if self._store is None else "sha256"]:
                raise ValueError(f"its SHA-256 is not that in {_file(name)}")
            return path

    def _record(self, name: str) -> dict[str, Any]:
        file = _file(name)
        with self._reading(file):
            if self._store is None:
                with safe_open(Path(self._root, file), "np") as state:
                    return _record_of(state.metadata(), name)
            data = self._store.cat_file(f"{self._root}/{file}", start=0, end=FIRST_BYTES)
            end = 8 + int.from_bytes(data[:8], "little")
            if len(data) < end < MOST_BYTES:
                data = self._store.cat_file(f"{self._root}/{file}", start=0, end=end)
            return _record_of(json.loads(data[8:end]).get("__metadata__"), name)

    def _get(self, file: str, folder: Path) -> Path:
        """The path of a local file, or of a download in the folder."""
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
        state = (
            where.removesuffix(Path(file).suffix) + SUFFIX
        )  # of a large file: while it is there, its shard is skipped
        again = f"remove {'it' if state == where else state} and run the shard again" if file else None
        try:
            yield
        except FileNotFoundError as error:
            remedy = "run the shard again" if state == where else again
            raise InputError("not found", where=where, remedy=remedy) from error
        except (ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
            raise InputError(f"cannot be used: {plainly(error)}", where=where, remedy=again) from error
        except Exception as error:  # a store's library has its own, such as one for missing credentials
            if isinstance(error, SecidError) or getattr(error, "errno", None) in NO_ROOM:  # for work_folder
                raise
            raise InputError(f"cannot be read: {plainly(error)}", where=where) from error

    @contextmanager
    def _writing(self, file: str) -> Iterator[None]:
        try:
            yield
        except SecidError:
            raise
        except Exception as error:
            raise OutputError(f"cannot be written: {plainly(error)}", where=f"{self._shown}/{file}") from error


def _opened(url: str, shown: str) -> tuple[Any, str]:
    """fsspec's file system, None for the local one, and the path of the folder in it. Raises UsageError."""
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    try:
        store, root = url_to_fs(url)
    except ImportError as error:
        package = getattr(error.__cause__, "name", None) or error.name
        raise UsageError(f"needs the package {package}", where=shown, remedy=f"pip install {package}") from error
    except (ValueError, OSError) as error:
        raise UsageError(
            plainly(error), where=shown, remedy="name a local path, or a URL such as s3://BUCKET/FOLDER"
        ) from error
    return None if isinstance(store, LocalFileSystem) else store, root


def _file(name: str, key: str = SUFFIX[1:]) -> str:
    """The file of a state, or of one of its large files. Raises ValueError for what could lead out of the folder."""
    if not (NAME.fullmatch(name) and NAME.fullmatch(key)):
        raise ValueError(f"{name!r}, {key!r}: only a-z, 0-9 and - are allowed")
    return f"{name}.{key}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _sha256_of_pieces(path: Path) -> str:
    """Of pieces evenly apart, from the first byte to the last one; together they are all of a file up to 4 MiB."""
    digest, last = hashlib.sha256(), max(path.stat().st_size - PIECE_BYTES, 0)
    with path.open("rb") as file:
        for number in range(PIECES):
            file.seek(last * number // (PIECES - 1))
            digest.update(file.read(PIECE_BYTES))
    return digest.hexdigest()


def _sha256_of_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Of names, types, shapes and values, in the order of the names."""
    digest = hashlib.sha256()
    for key in sorted(arrays):
        digest.update(json.dumps([key, arrays[key].dtype.name, arrays[key].shape]).encode("utf-8"))
        digest.update(arrays[key].reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _record_of(metadata: Mapping[str, str] | None, name: str) -> dict[str, Any]:
    """Raises ValueError where the metadata of a safetensors file is not what `StateDir.write` wrote of this state."""
    if not metadata or RECORD not in metadata:
        raise ValueError("another program wrote it")
    digest, _, text = metadata[RECORD].partition(" ")
    if digest != _sha256(text):
        raise ValueError("its header is damaged")
    record: dict[str, Any] = json.loads(text)
    if record["name"] != name:
        raise ValueError(f"it is a copy of {record['name']}")
    return record
