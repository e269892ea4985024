"""What the user typed as SOURCE, made into named sources with their files and what a manifest says of them."""

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
from secid.read.stream import HUB, STDIN, once_only
from secid.records import Source, encodable
from secid.settings import Settings

if TYPE_CHECKING:
    from secid.read.hub import Found

# The manifest beside the files of `secid mine`, and which of them were changed since.

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


# What the user typed as SOURCE, made into named sources with their files.
#
# - A file is a source named after its stem: bm25.jsonl.gz is `bm25`.
# - Shards `bm25-00000-of-00008.parquet` are one source `bm25`; all N must be present.
# - A folder is one source of its own name where its files are one (shards, `part-*` files or a `datasets` folder);
#   where they have different stems, each is its own source.
# - `name=` before a file, glob or folder names one source of all its files.
# - An address of the hub (hub.py) names files, or a folder with all below it, by the same rules; a folder of files of
#   one stem is named after it, and a data set of one source has its name.
# - `-` is standard input, named `stdin`. What can be read only once (a pipe, too) can feed one source only.
# - A Python object (`objects.py`) is one source, named by the user or `source-1`, `source-2` after its place.
# - Where names are equal, those that the user did not give are prefixed by as many of their folders as make them
#   differ: train/a.jsonl and dev/a.jsonl are `train/a` and `dev/a`. In one folder they take their suffixes: `a.jsonl`,
#   `a.csv`.

PACKING = (".gz", ".zst", ".zstd")
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt", ".parquet", ".arrow", ".trec", ".run")
SHARD = re.compile(r"(?P<stem>.*?)[-_.]?(?P<index>\d{2,6})-of-(?P<total>\d{2,6})")
PART = re.compile(r"(?i)(?P<stem>(?:part|shard|chunk|file|data|train)?)[-_.]?\d+([-_.][0-9a-f-]{8,}.*)?")
"""Numbered files as Spark and the hub write them: part-00000-<uuid>.parquet, 0000.parquet, train-3.jsonl."""
SPLIT = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[^:]+))?:(?P<config>[^:/]+):(?P<split>[^:/]+)")
"""Files of the hub by config and split: OWNER/NAME:CONFIG:SPLIT."""
COMMIT = re.compile(r"@[0-9a-f]{40}(?=/)")
SIDE_FILE = re.compile(r"(?i)[._].*|readme.*|licen[cs]e\.txt|dataset_infos?\.json|dataset_dict\.json|state\.json")
"""Files that are published or saved with the data of a folder, but hold none."""


@dataclass
class _Entry:
    """A source in the making. home: the folder that holds what it is named after; None where the user named it.

    data : the rows of a Python object.
    """

    name: str
    paths: list[str]
    home: Path | None
    data: ObjectSpec | None = None


def given_sources(sources: Any, settings: Settings, progress: Progress) -> tuple[tuple[Source, ...], list[str]]:
    """Sources as `resolve_sources` gives them, after a note of the files that are passed over; and the words that name
    them on a command line: standard input for an object, since no command can read it again.
    """
    specs = specs_of(sources)
    found = resolve_sources(specs, settings)
    words = [spec if isinstance(spec, str) else STDIN for spec in specs]
    for line in passed_over(words):
        progress.note(line)
    return found, words


def resolve_sources(sources: Any, settings: Settings) -> tuple[Source, ...]:
    """The named sources of what a command line or the API is given (`specs_of`), in its order.

    Raises InputError where a pattern or path matches nothing, may not be read, or a shard is missing; UsageError where
    a file is given twice, two sources were given one name, or several are standard input or one pipe.
    """
    try:
        entries = _entries(specs_of(sources))
    except PermissionError as error:
        raise InputError("permission denied", where=str(error.filename), remedy="allow this user to read it") from error
    for entry in entries:
        if entry.home is not None or len(entry.paths) > 1:  # one shard named by the user is meant as it is
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
        if name is not None or pattern == STDIN:
            entries[len(entries)] = _Entry(name or "stdin", _named_paths(pattern), None)
            continue
        inner = _address(pattern) if is_address(pattern) else []
        for path in [pattern] if inner else _expand(pattern):
            if own := inner or (_folder(path) if Path(path).is_dir() else []):
                entries |= {len(entries) + at: entry for at, entry in enumerate(own)}
                continue
            # Shards may come as separate words, where the shell expanded the glob.
            key = (str(Path(path).parent), _shard_key(path))
            entry = entries.setdefault(key, _Entry(stem(path), [], _home(path)))
            if path in entry.paths:
                raise UsageError(f"{path} is given twice")
            entry.paths.append(path)
    return list(entries.values())


def _home(path: str) -> Path:
    """The folder that holds what a file's source is named after: the file, or for shards without a stem its folder."""
    parent = Path(COMMIT.sub("", path)).parent
    return parent if Path(path).name.startswith(stem(path)) else parent.parent


def _make_names_differ(entries: Sequence[_Entry]) -> None:
    """Longer names for those of equal names that the user did not name."""
    for name in [name for name, uses in Counter(entry.name for entry in entries).items() if uses > 1]:
        unnamed = [(entry, entry.home) for entry in entries if entry.name == name and entry.home is not None]
        others = {entry.name for entry in entries if entry.name != name or entry.home is None}
        deepest = max((len(home.parts) for _, home in unnamed), default=0)
        for suffix, n_folders in product((False, True), range(deepest + 1)):
            longer = [_longer(entry, home, n_folders, suffix) for entry, home in unnamed]
            if len({*longer, *others}) == len(longer) + len(others):
                for (entry, _), chosen in zip(unnamed, longer, strict=True):
                    entry.name = chosen
                break


def _longer(entry: _Entry, home: Path, n_folders: int, suffix: bool) -> str:
    """A source's name, or that of its first file with its suffix, after the last folders of its home."""
    folders = [part for part in home.parts if part != home.anchor]
    last = Path(entry.paths[0]).name if suffix else entry.name
    return "/".join([*folders[max(0, len(folders) - n_folders) :], last])


def stem(path: str) -> str:
    """The name of a file without folder, suffixes and shard numbers."""
    name = _without_suffixes(path)
    shard = SHARD.fullmatch(name)
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
    """Equal for shards of one source, different for any other two files of a folder."""
    shard = SHARD.fullmatch(_without_suffixes(path))
    return f"{shard['stem']} of {int(shard['total'])}" if shard else Path(path).name


def _split_name(spec: str) -> tuple[str | None, str]:
    """`name=path` split in two; an existing path that holds "=" is a path."""
    name, separator, pattern = spec.partition("=")
    if not separator or Path(spec).exists():
        return None, spec
    if "/" in name or glob.has_magic(name):
        if glob.glob(pattern) and not glob.glob(spec):  # noqa: PTH207
            raise UsageError(f"the name of a source may not hold /, *, ? or [: {name!r}", remedy="name it without them")
        return None, spec
    if not name.strip() or not pattern:
        raise UsageError(f"{spec!r} is neither a path nor name=path", remedy="write name=path, both not empty")
    return name.strip(), pattern


def _named_paths(pattern: str) -> list[str]:
    if pattern == STDIN:
        return [STDIN]
    return [file for path in _expand(pattern) for file in (_folder_files(path) if Path(path).is_dir() else [path])]


def is_address(word: str) -> bool:
    """Whether a word names files of the model hub: `hf://…`, or OWNER/NAME:CONFIG:SPLIT where no such path exists."""
    return word.startswith(HUB) or (SPLIT.fullmatch(word) is not None and not Path(word).exists())


def _of_hub(address: str) -> Found:
    from secid.read.hub import fetch_files

    return fetch_files(address)


def _expand(pattern: str) -> list[str]:
    """Existing paths of a word: itself, what it matches as a glob, or the files of an address of the hub; sorted."""
    if is_address(pattern):
        return list(_of_hub(pattern).files)
    if Path(pattern).exists():
        return [pattern]
    # Path.glob takes no absolute pattern.
    matches = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else []  # noqa: PTH207
    if matches:
        return matches
    if Path(pattern).is_symlink():
        raise InputError(f"broken symlink to {Path(pattern).readlink()}", where=pattern)
    problem = "matches no file" if glob.has_magic(pattern) else "no such file or directory"
    raise InputError(problem, where=pattern, remedy=_near(Path(pattern)))


def _near(path: Path) -> str | None:
    """What the user may have meant; None where no name is similar."""
    if not path.parent.is_dir():
        return f"no such directory: {path.parent}"
    names = {child.name: stem(child.name) for child in sorted(path.parent.iterdir()) if child.name[0] != "."}
    near = difflib.get_close_matches(stem(path.name), names.values(), n=3, cutoff=0.6)
    near = [name for name in names if names[name] in near][:3]
    return f"similar names in {path.parent}: {', '.join(near)}" if near else None


def _folder(path: str) -> list[_Entry]:
    """The sources of a folder."""
    files, name, folder = _folder_files(path), Path(path).resolve().name, Path(path)
    return [_Entry(name, files, folder.parent)] if _is_saved_dataset(folder) else _groups(name, folder, files)


def _groups(name: str, folder: Path, files: list[str]) -> list[_Entry]:
    """Sources of the files in one folder: one of its name, or each of its own stem."""
    stems = {part["stem"] if (part := PART.fullmatch(_without_suffixes(file))) else stem(file) for file in files}
    if len(stems) == 1:
        return [_Entry(name, files, folder.parent)]
    groups: dict[str, list[str]] = {}
    for file in files:
        groups.setdefault(_shard_key(file), []).append(file)
    home = folder.parent if len(groups) == 1 else folder
    return [_Entry(stem(group[0]), group, home) for group in groups.values()]


def _address(address: str) -> list[_Entry]:
    """The sources of an address of the hub that stands for a folder; [] where it names files."""
    found = _of_hub(address)
    if found.name is None:
        return []
    folders: dict[Path, list[str]] = {}
    for file in found.files:
        folders.setdefault(Path(COMMIT.sub("", file)).parent, []).append(file)
    entries = [entry for folder, files in folders.items() for entry in _groups(folder.name, folder, files)]
    if not address.startswith(HUB) or len(entries) == 1:  # a split, or all that is there
        return [_Entry(found.name, list(found.files), Path(address).parent)]
    return entries


def data_files(path: str) -> list[str]:
    """The data files of a file, a folder or an address as one list, shards checked.

    Raises InputError where there is none.
    """
    if not is_address(path) and not Path(path).is_dir():
        return [path]
    return _checked_shards(_named_paths(path))


def _folder_files(folder: str) -> list[str]:
    """Data files of a folder in sorted order, without side files. Raises InputError where there is none."""
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
        more = f"; subfolders are not searched, name one: {', '.join(inner[:3])}" if inner else ""
        remedy = f"expected {', '.join(SUFFIXES)}, compressed or not{more}"
        raise InputError("the folder holds no data file", where=folder, remedy=remedy)
    return files


def passed_over(words: Sequence[str]) -> list[str]:
    """A line for each folder that the words of a command line name, listing its files that are not read, hidden ones
    left out; and one for each address of which other files are read than its own.
    """
    patterns = [pattern for pattern in (_split_name(word)[1] for word in words) if pattern != STDIN]
    lines = [note for note in (_of_hub(pattern).note for pattern in patterns if is_address(pattern)) if note]
    for folder in [Path(path) for pattern in patterns for path in _expand(pattern) if Path(path).is_dir()]:
        has_index = _is_saved_dataset(folder) or (folder / "dataset_dict.json").is_file()
        read = set() if has_index else set(_folder_files(str(folder)))
        left = [child.name for child in sorted(folder.iterdir()) if child.is_file() and str(child) not in read]
        left = [name for name in left if not name.startswith(".")]
        if read and left:
            lines.append(f"{folder}: not read: {', '.join(left[:5])}" + (", …" if len(left) > 5 else ""))
    return lines


def is_data(name: str) -> bool:
    """Whether a file of this name is taken for data: by its suffix, and not a description of other files."""
    lower = name.lower()
    for suffix in PACKING:
        lower = lower.removesuffix(suffix)
    return lower.endswith(SUFFIXES) and not SIDE_FILE.fullmatch(name)


def _is_saved_dataset(path: Path) -> bool:
    return (path / "state.json").is_file() and (path / "dataset_info.json").is_file()


def _saved_files(path: Path) -> list[str]:
    """Arrow files of a `save_to_disk` folder, as its state names them."""
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        names = [entry["filename"] for entry in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError("state.json is not as `save_to_disk` writes it", where=str(path)) from error
    files = [path / Path(name).name for name in names]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise InputError(f"files named in state.json are missing: {', '.join(missing[:3])}", where=str(path))
    return [str(file) for file in files]


def _checked_shards(paths: Iterable[str]) -> list[str]:
    """Paths sorted; where they are shards i-of-N, all N must be present. They count from 0 or from 1."""
    paths = sorted(paths)
    groups: dict[tuple[str, int], set[int]] = {}
    for path in paths:
        if shard := SHARD.fullmatch(_without_suffixes(path)):
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
                remedy="copy them too; name=FILE takes one shard alone",
            )
    return paths


def _refuse_repeats(sources: Sequence[Source]) -> None:
    """Raises UsageError for two sources of one name, or of one input that can be read only once."""
    by_name: dict[str, Source] = {}
    by_pipe: dict[Path, str] = {}
    for source in sources:
        for path in filter(once_only, source.paths if source.data is None else ()):
            other = by_pipe.setdefault(Path("/dev/stdin" if path == STDIN else path).resolve(), source.name)
            if other != source.name or source.name in by_name:
                raise UsageError(
                    f"{path} can be read only once and cannot feed two sources ({other}, {source.name})",
                    remedy="save it to a file and name that",
                )
        if source.name in by_name:
            other_name = f"other={source.paths[0]}" if source.data is None else '("other", object)'
            raise UsageError(
                f"two sources would be named {source.name!r}: {by_name[source.name].paths[0]} and {source.paths[0]}",
                remedy=f"name one yourself: {other_name}",
            )
        by_name[source.name] = source
