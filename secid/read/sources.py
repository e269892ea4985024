"""Resolve the words given as SOURCE to named sources with files, and compare files with the hashes in a manifest."""

from __future__ import annotations

import difflib
import glob
import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secid.errors import InputError, UsageError
from secid.files import PARTIAL, sha256_of
from secid.progress import Progress
from secid.read.objects import ObjectSpec, Spec, specs_of
from secid.read.stream import HUB_PREFIX, is_read_once
from secid.records import STANDARD_INPUT, Source, encodable

if TYPE_CHECKING:
    from secid.read.hub import HubFiles

# The manifest next to the files of `secid mine`, and files that changed since it was written.

MANIFEST = ".manifest.json"


def changed_files(paths: Iterable[str]) -> list[str]:
    """Return the files whose hash differs from the one in the manifest in their folder.

    A file named like a manifest is ignored if secid did not write it.
    """
    files = [(path, Path(path)) for path in paths]
    hashes = [(path, file, _manifest_hash(file, file.parent / MANIFEST)) for path, file in files]
    return [path for path, file, sha256 in hashes if sha256 and sha256 != sha256_of(file)]


def files_of_killed_run(folder: Path) -> list[Path]:
    """Return the files of a run that was killed before it renamed its manifest, followed by the manifest.

    Such a manifest still has a partial name. The run's files are those whose hashes it lists.
    """
    manifests = [path for path in folder.glob(f".{MANIFEST}.*") if PARTIAL.search(path.name)]
    hashes = [(path, _manifest_hash(path, manifest)) for manifest in manifests for path in folder.iterdir()]
    return [*(path for path, sha256 in hashes if sha256 and sha256 == sha256_of(path)), *manifests]


def _manifest_hash(path: Path, manifest: Path) -> str | None:
    """Return the hash of a file in a manifest; None without one."""
    try:
        files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
        sha256 = files[path.name]["sha256"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return sha256 if isinstance(sha256, str) and path.is_file() else None


# Named sources with their files, from the words given as SOURCE.
#
# - A file is a source named after its stem: bm25.jsonl.gz is `bm25`.
# - Shards `bm25-00000-of-00008.parquet` are one source `bm25`. All N shards must exist.
# - If the files of a folder belong together (shards, `part-*` files or a `datasets` folder), the folder is one source
#   with the folder's name. If they have different stems, each stem is a source.
# - `name=` before a file, glob or folder makes one source with that name from all its files.
# - An address on the hub (hub.py) names files, or a folder and all below it, by the same rules. A data set of only one
#   source gives it its name.
# - `-` is standard input, named `stdin`. Only one source can read standard input or a pipe, and only once.
# - A Python object (`objects.py`) is one source, named by the user, or `source-1`, `source-2` by its position.
# - If names that the user did not choose are equal, folder names are put in front until they differ: train/a.jsonl and
#   dev/a.jsonl are `train/a` and `dev/a`. In the same folder they keep their suffixes: `a.jsonl`, `a.csv`.

PACKING = (".gz", ".zst", ".zstd")
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt", ".parquet", ".arrow", ".trec", ".run")
SHARD_FILE = re.compile(r"(?P<stem>.*?)[-_.]?(?P<index>\d{2,6})-of-(?P<total>\d{2,6})")
PART_FILE = re.compile(r"(?i)(?P<stem>(?:part|shard|chunk|file|data|train)?)[-_.]?\d+([-_.][0-9a-f-]{8,}.*)?")
"""Pattern of numbered files from Spark and the hub: part-00000-<uuid>.parquet, 0000.parquet, train-3.jsonl."""
SPLIT = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[^:]+))?:(?P<config>[^:/]+):(?P<split>[^:/]+)")
"""Pattern of files on the hub by config and split: OWNER/NAME:CONFIG:SPLIT."""
PINNED_COMMIT = re.compile(r"@[0-9a-f]{40}(?=/)")
SIDE_FILE = re.compile(r"(?i)[._].*|readme.*|licen[cs]e\.txt|dataset_infos?\.json|dataset_dict\.json|state\.json")
"""Pattern of files that are published or saved next to data files but hold no rows."""


@dataclass
class _Entry:
    """A source before its name is final.

    home : parent folder of the file or folder that gives the name; None if the user chose the name.
    data : rows of a Python object, else None.
    """

    name: str
    paths: list[str]
    home: Path | None
    data: ObjectSpec | None = None


def sources_and_words(sources: Any, progress: Progress) -> tuple[tuple[Source, ...], list[str]]:
    """Return sources as `resolve_sources` does, and the words that name them on a command line. Note unread files.

    The word for an object is `-`, as for standard input, because no command can read it again.
    """
    specs = specs_of(sources)
    resolved = resolve_sources(specs)
    words = [spec if isinstance(spec, str) else STANDARD_INPUT for spec in specs]
    for line in notes_on_unread_files(words):
        progress.note(line)
    return resolved, words


def resolve_sources(sources: Any) -> tuple[Source, ...]:
    """Return the named sources of a command line or an API call (see `specs_of`) in the same order.

    Raises InputError if a pattern or path matches nothing or may not be read, or a shard is missing. Raises UsageError
    if a file is named twice, two sources have the same name, or several sources are standard input or the same pipe.
    """
    try:
        entries = _entries(specs_of(sources))
    except PermissionError as error:
        raise InputError("permission denied", where=str(error.filename), remedy="allow this user to read it") from error
    for entry in entries:
        if entry.home is not None or len(entry.paths) > 1:  # NAME=FILE may be a single shard
            entry.paths = _checked_shards(entry.paths)
    _make_names_differ(entries)
    named = tuple(Source(encodable(entry.name), tuple(entry.paths), entry.data) for entry in entries)
    _refuse_repeats(named)
    return named


def _entries(specs: Sequence[Spec]) -> list[_Entry]:
    entries: dict[Hashable, _Entry] = {}
    for spec in specs:
        if isinstance(spec, ObjectSpec):
            entries[len(entries)] = _Entry(spec.name, [spec.path], None, spec)
            continue
        name, pattern = _split_name(spec)
        if name is not None or pattern == STANDARD_INPUT:
            entries[len(entries)] = _Entry(name or "stdin", _named_paths(pattern), None)
            continue
        inner = _address(pattern) if is_address(pattern) else []
        for path in [pattern] if inner else _expand(pattern):
            if parts := inner or (_folder(path) if Path(path).is_dir() else []):
                entries |= {len(entries) + at: entry for at, entry in enumerate(parts)}
                continue
            # If the shell expanded a glob, each shard is a word.
            key = (str(Path(path).parent), _shard_key(path))
            entry = entries.setdefault(key, _Entry(stem(path), [], _home(path)))
            if path in entry.paths:
                raise UsageError("is named twice", where=path, remedy="name each file once")
            entry.paths.append(path)
    return list(entries.values())


def _home(path: str) -> Path:
    """Return the parent of the path that names a source: its file, or its folder if its shards have no stem."""
    parent = Path(PINNED_COMMIT.sub("", path)).parent
    return parent if Path(path).name.startswith(stem(path)) else parent.parent


def _make_names_differ(entries: Sequence[_Entry]) -> None:
    """Give longer names to sources with equal names, except names that the user chose."""
    for name in [name for name, uses in Counter(entry.name for entry in entries).items() if uses > 1]:
        unnamed = [(entry, entry.home) for entry in entries if entry.name == name and entry.home is not None]
        others = {entry.name for entry in entries if entry.name != name or entry.home is None}
        deepest = max((len(home.parts) for _, home in unnamed), default=0)
        for suffix, n_folders in product((False, True), range(deepest + 1)):
            longer = [_longer_name(entry, home, n_folders, suffix) for entry, home in unnamed]
            if len({*longer, *others}) == len(longer) + len(others):
                for (entry, _), longer_name in zip(unnamed, longer, strict=True):
                    entry.name = longer_name
                break


def _longer_name(entry: _Entry, home: Path, n_folders: int, suffix: bool) -> str:
    """Return a source's last folders and its name, or with `suffix` the full name of its first file."""
    folders = [part for part in home.parts if part != home.anchor]
    last = Path(entry.paths[0]).name if suffix else entry.name
    return "/".join([*folders[max(0, len(folders) - n_folders) :], last])


def stem(path: str) -> str:
    """Return the name of a file without folder, suffixes and shard numbers."""
    name = _without_suffixes(path)
    shard = SHARD_FILE.fullmatch(name)
    return (shard["stem"] or Path(path).resolve().parent.name) if shard else name


def _without_suffixes(path: str) -> str:
    name = Path(path).name
    for suffixes in (PACKING, SUFFIXES):
        for suffix in suffixes:
            if name.lower().endswith(suffix) and len(name) > len(suffix):
                name = name[: -len(suffix)]
                break
    return name


def _shard_key(path: str) -> str:
    """Return a key for grouping files: equal for the shards of one source, distinct for any other file of a folder."""
    shard = SHARD_FILE.fullmatch(_without_suffixes(path))
    return f"{shard['stem']} of {int(shard['total'])}" if shard else Path(path).name


def _split_name(spec: str) -> tuple[str | None, str]:
    """Split `name=path` into (name, path). The name is None for a word without "=" and for an existing path."""
    name, separator, pattern = spec.partition("=")
    if not separator or Path(spec).exists():
        return None, spec
    if "/" in name or glob.has_magic(name):
        if glob.glob(pattern) and not glob.glob(spec):  # noqa: PTH207
            raise UsageError(
                f"the name of a source must not contain /, *, ? or [: {name!r}", remedy="leave these characters out"
            )
        return None, spec
    if not name.strip() or not pattern:
        raise UsageError(f"{spec!r} is neither a path nor name=path", remedy="write both parts of name=path")
    return name.strip(), pattern


def _named_paths(pattern: str) -> list[str]:
    if pattern == STANDARD_INPUT:
        return [STANDARD_INPUT]
    return [file for path in _expand(pattern) for file in (_folder_files(path) if Path(path).is_dir() else [path])]


def is_address(word: str) -> bool:
    """Tell whether a word names files of the model hub: `hf://…`, or OWNER/NAME:CONFIG:SPLIT if no such path exists."""
    return word.startswith(HUB_PREFIX) or (SPLIT.fullmatch(word) is not None and not Path(word).exists())


def _hub_files(address: str) -> HubFiles:
    from secid.read.hub import fetch_files

    return fetch_files(address)


def _expand(pattern: str) -> list[str]:
    """Return the sorted paths of an existing path, a glob or an address. Raises InputError if nothing matches."""
    if is_address(pattern):
        return list(_hub_files(pattern).files)
    if Path(pattern).exists():
        return [pattern]
    # Path.glob does not accept absolute patterns.
    matches = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else []  # noqa: PTH207
    if matches:
        return matches
    if Path(pattern).is_symlink():
        message = f"broken symlink to {Path(pattern).readlink()}"
        raise InputError(message, where=pattern, remedy="name the file itself, or make the link again")
    problem = "matches no file" if glob.has_magic(pattern) else "no such file or directory"
    raise InputError(problem, where=pattern, remedy=_similar_names(Path(pattern)))


def _similar_names(path: Path) -> str:
    if not path.parent.is_dir():
        return f"check the path: there is no directory {path.parent}"
    names = {child.name: stem(child.name) for child in sorted(path.parent.iterdir()) if child.name[0] != "."}
    near = difflib.get_close_matches(stem(path.name), names.values(), n=3, cutoff=0.6)
    near = [name for name in names if names[name] in near][:3]
    return f"similar names in {path.parent}: {', '.join(near)}" if near else "check the path"


def _folder(path: str) -> list[_Entry]:
    files, name, folder = _folder_files(path), Path(path).resolve().name, Path(path)
    return [_Entry(name, files, folder.parent)] if _is_saved_dataset(folder) else _groups(name, folder, files)


def _groups(name: str, folder: Path, files: list[str]) -> list[_Entry]:
    """Return the sources of the files in one folder: one source with the folder's name, or one per stem."""
    stems = {part["stem"] if (part := PART_FILE.fullmatch(_without_suffixes(file))) else stem(file) for file in files}
    if len(stems) == 1:
        return [_Entry(name, files, folder.parent)]
    groups: dict[str, list[str]] = {}
    for file in files:
        groups.setdefault(_shard_key(file), []).append(file)
    home = folder.parent if len(groups) == 1 else folder
    return [_Entry(stem(group[0]), group, home) for group in groups.values()]


def _address(address: str) -> list[_Entry]:
    """Return the sources of a hub address that names a folder; [] if it names files."""
    hub = _hub_files(address)
    if hub.name is None:
        return []
    folders: dict[Path, list[str]] = {}
    for file in hub.files:
        folders.setdefault(Path(PINNED_COMMIT.sub("", file)).parent, []).append(file)
    entries = [entry for folder, files in folders.items() for entry in _groups(folder.name, folder, files)]
    if not address.startswith(HUB_PREFIX) or len(entries) == 1:  # a split, or a single source
        return [_Entry(hub.name, list(hub.files), Path(address).parent)]
    return entries


def data_files(path: str) -> list[str]:
    """Return the data files of a file, folder or address. Raises InputError if there is none, or a shard is missing."""
    if not is_address(path) and not Path(path).is_dir():
        return [path]
    return _checked_shards(_named_paths(path))


def _folder_files(folder: str) -> list[str]:
    """Return the sorted data files of a folder, without side files. Raises InputError if there are none."""
    path = Path(folder)
    if _is_saved_dataset(path):
        return _saved_files(path)
    if (path / "dataset_dict.json").is_file():
        parts = sorted(child.name for child in path.iterdir() if _is_saved_dataset(child))
        if len(parts) == 1:
            return _saved_files(path / parts[0])
        raise InputError(
            f"a saved dataset of several splits ({', '.join(parts)})",
            where=folder,
            remedy=f"name one: {path / ('train' if 'train' in parts or not parts else parts[0])}",
        )
    files = [str(child) for child in sorted(path.iterdir()) if child.is_file() and is_data(child.name)]
    if not files:
        inner = sorted(child.name for child in path.iterdir() if child.is_dir())
        remedy = f"expected {', '.join(SUFFIXES)}, compressed or not"
        if inner:
            remedy = f"{remedy}; subfolders are not searched, so name one: {', '.join(inner[:3])}"
        raise InputError("the folder holds no data file", where=folder, remedy=remedy)
    return files


def notes_on_unread_files(words: Sequence[str]) -> list[str]:
    """Return one note for each hub address read from its Parquet conversion, and for each folder with unread files.

    words : sources as given on the command line.
    The note on a folder lists up to five unread files, without hidden ones.
    """
    patterns = [pattern for pattern in (_split_name(word)[1] for word in words) if pattern != STANDARD_INPUT]
    lines = [note for note in (_hub_files(pattern).note for pattern in patterns if is_address(pattern)) if note]
    for folder in [Path(path) for pattern in patterns for path in _expand(pattern) if Path(path).is_dir()]:
        has_index = _is_saved_dataset(folder) or (folder / "dataset_dict.json").is_file()
        read = set() if has_index else set(_folder_files(str(folder)))
        left = [child.name for child in sorted(folder.iterdir()) if child.is_file() and str(child) not in read]
        left = [name for name in left if not name.startswith(".")]
        if read and left:
            lines.append(f"{folder}: not read: {', '.join(left[:5])}" + (", …" if len(left) > 5 else ""))
    return lines


def is_data(name: str) -> bool:
    """Tell whether a file counts as data: it has a data suffix and is not a side file."""
    lower = name.lower()
    for suffix in PACKING:
        lower = lower.removesuffix(suffix)
    return lower.endswith(SUFFIXES) and not SIDE_FILE.fullmatch(name)


def _is_saved_dataset(path: Path) -> bool:
    return (path / "state.json").is_file() and (path / "dataset_info.json").is_file()


def _saved_files(path: Path) -> list[str]:
    """Return the Arrow files of a `save_to_disk` folder that its state.json names."""
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        names = [entry["filename"] for entry in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            "state.json lacks the list of files that `save_to_disk` writes",
            where=str(path),
            remedy="save the dataset again",
        ) from error
    files = [path / Path(name).name for name in names]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise InputError(
            f"files named in state.json are missing: {', '.join(missing[:3])}",
            where=str(path),
            remedy="copy the folder again",
        )
    return [str(file) for file in files]


def _checked_shards(paths: Iterable[str]) -> list[str]:
    """Return the paths sorted. Raises InputError if they are shards i-of-N, from 0 or 1, and one is missing."""
    paths = sorted(paths)
    groups: dict[tuple[str, int], set[int]] = {}
    for path in paths:
        if shard := SHARD_FILE.fullmatch(_without_suffixes(path)):
            key = (str(Path(path).parent / shard["stem"]), int(shard["total"]))
            groups.setdefault(key, set()).add(int(shard["index"]))
    for (name, total), present in groups.items():
        start = int(total in present and 0 not in present)
        missing = sorted(set(range(start, total + start)) - present)
        if missing:
            shown = ", ".join(f"{index:05d}" for index in missing[:5]) + (", …" if len(missing) > 5 else "")
            raise InputError(
                f"{len(missing)} of {total} shards are missing: {shown}",
                where=name,
                remedy="add these files; NAME=FILE takes a single shard",
            )
    return paths


def _refuse_repeats(sources: Sequence[Source]) -> None:
    """Refuse sources that share a name or an input that can be read only once. Raises UsageError."""
    by_name: dict[str, Source] = {}
    by_pipe: dict[Path, str] = {}
    for source in sources:
        for path in filter(is_read_once, source.paths if source.data is None else ()):
            other = by_pipe.setdefault(Path("/dev/stdin" if path == STANDARD_INPUT else path).resolve(), source.name)
            if other != source.name or source.name in by_name:
                raise UsageError(
                    f"{path} can be read only once and cannot feed two sources ({other}, {source.name})",
                    remedy="save it to a file and name the file",
                )
        if source.name in by_name:
            other_name = f"other={source.paths[0]}" if source.data is None else '("other", object)'
            raise UsageError(
                f"two sources would be named {source.name!r}: {by_name[source.name].paths[0]} and {source.paths[0]}",
                remedy=f"name one yourself: {other_name}",
            )
        by_name[source.name] = source
