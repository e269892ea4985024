"""What the user typed as SOURCE, made into named sources with their files.

- A file is a source named after its stem: bm25.jsonl.gz is `bm25`.
- Shards `bm25-00000-of-00008.parquet` are one source `bm25`; all N must be there.
- A folder is one source of its own name where its files are one (shards, `part-*` files or a
  `datasets` folder); where they have different stems, each is its own source.
- `name=` before a file, glob or folder names one source of all its files.
- `-` is standard input, named `stdin`. What gives its bytes once (a pipe, too) is one source only.
- Where names are equal, those that the user did not give take as many of their folders as tell them apart:
  train/a.jsonl and dev/a.jsonl are `train/a` and `dev/a`. In one folder they take their suffixes: `a.jsonl`, `a.csv`.
"""

from __future__ import annotations

import difflib
import glob
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path

from secid.errors import InputError, UsageError
from secid.read.stream import STDIN, once_only
from secid.records import Source, encodable
from secid.settings import Settings

PACKING = (".gz", ".zst", ".zstd")
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt", ".parquet", ".arrow")
SHARD = re.compile(r"(?P<stem>.*?)[-_.]?(?P<index>\d{2,6})-of-(?P<total>\d{2,6})")
PART = re.compile(r"(?i)(?P<stem>(?:part|shard|chunk|file|data|train)?)[-_.]?\d+([-_.][0-9a-f-]{8,}.*)?")
"""Numbered files as Spark and the hub write them: part-00000-<uuid>.parquet, 0000.parquet, train-3.jsonl."""
SIDE_FILE = re.compile(r"(?i)[._].*|readme.*|licen[cs]e\.txt|dataset_infos?\.json|dataset_dict\.json|state\.json")
"""Files that lie beside the data of a folder, as data sets are published or saved."""


def resolve_sources(specs: Sequence[str], settings: Settings) -> tuple[Source, ...]:
    """The sources of a command line, in its order.

    Raises InputError where a pattern or path matches nothing or a shard is missing, UsageError
    where a file is given twice, two sources were given one name, or several are standard input or one pipe.
    """
    sources: list[Source] = []
    homes: dict[int, Path] = {}
    loose: dict[tuple[str, str], list[str]] = {}
    for spec in specs:
        name, pattern = _split_name(spec)
        if name is not None:
            sources.append(_named(name, pattern))
        elif pattern == STDIN:
            sources.append(Source("stdin", (STDIN,)))
        else:
            for path in _expand(pattern):
                if Path(path).is_dir():
                    found = _folder(path)
                    home = Path(path).parent if len(found) == 1 else Path(path)
                    homes |= dict.fromkeys(range(len(sources), len(sources) + len(found)), home)
                    sources.extend(found)
                    continue
                # Shards may come as separate words, where the shell expanded the glob.
                key = (str(Path(path).parent), _shard_key(path))
                if key not in loose:
                    loose[key] = []
                    homes[len(sources)] = _home(path)
                    sources.append(Source(stem(path), ("", *key)))
                if path in loose[key]:
                    raise UsageError(f"{path} is given twice")
                loose[key].append(path)
    resolved = _told_apart([_with_shards(source, loose) for source in sources], homes)
    resolved = [Source(encodable(source.name), source.paths) for source in resolved]
    _refuse_same_names(resolved)
    _refuse_same_pipes(resolved)
    return tuple(resolved)


def _home(path: str) -> Path:
    """The folder that holds what a file's source is named after: the file, or for shards without a stem its folder."""
    parent = Path(path).parent
    return parent if Path(path).name.startswith(stem(path)) else parent.parent


def _told_apart(sources: list[Source], homes: Mapping[int, Path]) -> list[Source]:
    """Sources of equal names under longer ones. homes: by place, the folder of each whose name was not given."""
    names = [source.name for source in sources]
    for name in [name for name, uses in Counter(names).items() if uses > 1]:
        places = [place for place in homes if sources[place].name == name]
        others = {found for place, found in enumerate(names) if place not in places}
        deepest = max((len(homes[place].parts) for place in places), default=0)
        for suffix, n_folders in product((False, True), range(deepest + 1)):
            longer = [_longer(sources[place], homes[place], n_folders, suffix) for place in places]
            if len({*longer, *others}) == len(longer) + len(others):
                for place, found in zip(places, longer, strict=True):
                    names[place] = found
                break
    return [Source(name, source.paths) for name, source in zip(names, sources, strict=True)]


def _longer(source: Source, home: Path, n_folders: int, suffix: bool) -> str:
    """A source's name, or that of its first file as it stands, behind the last folders of its home."""
    folders = [part for part in home.parts if part != home.anchor]
    last = Path(source.paths[0]).name if suffix else source.name
    return "/".join([*folders[max(0, len(folders) - n_folders) :], last])


def _with_shards(source: Source, loose: dict[tuple[str, str], list[str]]) -> Source:
    """A placeholder of loose files, filled now that all words of the command line are seen."""
    if source.paths[0] != "":
        return source
    paths = loose[source.paths[1], source.paths[2]]
    return Source(source.name, _checked_shards(paths))


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
    """`name=path` taken apart; an existing path that holds "=" is a path."""
    name, separator, pattern = spec.partition("=")
    if not separator or Path(spec).exists() or "/" in name or glob.has_magic(name):
        return None, spec
    if not name.strip() or not pattern:
        raise UsageError(f"{spec!r} is neither a path nor name=path", remedy="write name=path, both not empty")
    return name.strip(), pattern


def _named(name: str, pattern: str) -> Source:
    if pattern == STDIN:
        return Source(name, (STDIN,))
    paths = _expand(pattern)
    files = [file for path in paths for file in (_folder_files(path) if Path(path).is_dir() else [path])]
    if not files:
        raise InputError("holds no data file", where=pattern)
    # One shard asked for by its own path is meant as it stands.
    return Source(name, (files[0],) if len(files) == 1 else _checked_shards(files))


def _expand(pattern: str) -> list[str]:
    """Existing paths of a word: itself, or what it matches as a glob, sorted."""
    if Path(pattern).exists():
        return [pattern]
    # Path.glob takes no absolute pattern.
    matches = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else []  # noqa: PTH207
    if matches:
        return matches
    if Path(pattern).is_symlink():
        raise InputError(
            f"a broken link: {Path(pattern).readlink()} is not there", where=pattern, remedy="link to the file again"
        )
    name, _, file = pattern.partition("=")
    if file and glob.has_magic(name) and Path(file).exists():
        raise InputError("matches no file", where=pattern, remedy="in name=path the name may not hold *, ? or [")
    what = "matches no file" if glob.has_magic(pattern) else "no such file or folder"
    raise InputError(what, where=pattern, remedy=_near(pattern))


def _near(pattern: str) -> str:
    parent = Path(pattern).parent
    if not parent.is_dir():
        return f"there is no folder {parent}"
    names = sorted(path.name for path in parent.iterdir() if not path.name.startswith("."))
    if not names:
        return f"the folder {parent} is empty"
    near = difflib.get_close_matches(Path(pattern).name, names, n=3, cutoff=0.4) or names[:3]
    return f"near it in {parent}: {', '.join(near)}"


def _folder(path: str) -> list[Source]:
    files = _folder_files(path)
    name = Path(path).resolve().name
    if not files:
        inner = sorted(child.name for child in Path(path).iterdir() if child.is_dir())
        more = f"; folders within are not looked into, name one: {', '.join(inner[:3])}" if inner else ""
        raise InputError(
            "the folder holds no data file", where=path, remedy=f"looked for {', '.join(SUFFIXES)}, packed or not{more}"
        )
    if _is_saved_dataset(Path(path)) or len({_folder_stem(file) for file in files}) == 1:
        return [Source(name, _checked_shards(files))]
    groups: dict[str, list[str]] = {}
    for file in files:
        groups.setdefault(_shard_key(file), []).append(file)
    return [Source(stem(group[0]), _checked_shards(group)) for group in groups.values()]


def _folder_stem(path: str) -> str:
    part = PART.fullmatch(_without_suffixes(path))
    return part["stem"] if part else stem(path)


def data_files(folder: str) -> list[str]:
    """All data files of a folder as one list, shards checked. Raises InputError where there is none."""
    files = _folder_files(folder)
    if not files:
        raise InputError("the folder holds no data file", where=folder)
    return list(_checked_shards(files))


def _folder_files(folder: str) -> list[str]:
    """Data files of a folder in sorted order; side files are none."""
    path = Path(folder)
    if _is_saved_dataset(path):
        return _saved_files(path)
    if (path / "dataset_dict.json").is_file():
        parts = sorted(child.name for child in path.iterdir() if _is_saved_dataset(child))
        if len(parts) == 1:
            return _saved_files(path / parts[0])
        raise InputError(
            f"a saved data set of several splits ({', '.join(parts)})",
            where=folder,
            remedy=f"name one: {Path(folder) / ('train' if 'train' in parts or not parts else parts[0])}",
        )
    return [str(child) for child in sorted(path.iterdir()) if child.is_file() and _is_data(child.name)]


def passed_over(specs: Sequence[str]) -> list[str]:
    """A line for each folder that specs name, of its files that are not read; hidden ones go without saying."""
    paths = [path for _, pattern in map(_split_name, specs) if pattern != STDIN for path in _expand(pattern)]
    lines = []
    for folder in [Path(path) for path in paths if Path(path).is_dir()]:
        read = set() if _has_index(folder) else set(_folder_files(str(folder)))
        left = [child.name for child in sorted(folder.iterdir()) if child.is_file() and str(child) not in read]
        left = [name for name in left if not name.startswith(".")]
        if read and left:
            lines.append(f"{folder}: not read: {', '.join(left[:5])}" + (", …" if len(left) > 5 else ""))
    return lines


def _is_data(name: str) -> bool:
    lower = name.lower()
    for suffix in PACKING:
        lower = lower.removesuffix(suffix)
    return lower.endswith(SUFFIXES) and not SIDE_FILE.fullmatch(name)


def _has_index(path: Path) -> bool:
    """Whether a file of the folder says which of the others are data."""
    return _is_saved_dataset(path) or (path / "dataset_dict.json").is_file()


def _is_saved_dataset(path: Path) -> bool:
    return (path / "state.json").is_file() and (path / "dataset_info.json").is_file()


def _saved_files(path: Path) -> list[str]:
    """Arrow files of a `save_to_disk` folder, as its state names them."""
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        names = [entry["filename"] for entry in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError("state.json is not one that `save_to_disk` writes", where=str(path)) from error
    files = [path / Path(name).name for name in names]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise InputError(f"files named in state.json are missing: {', '.join(missing[:3])}", where=str(path))
    return [str(file) for file in files]


def _checked_shards(paths: Iterable[str]) -> tuple[str, ...]:
    """Paths sorted; where they are shards i-of-N, all N must be there, each once."""
    paths = sorted(paths)
    groups: dict[tuple[str, int], list[int]] = {}
    for path in paths:
        if shard := SHARD.fullmatch(_without_suffixes(path)):
            key = (str(Path(path).parent / shard["stem"]), int(shard["total"]))
            groups.setdefault(key, []).append(int(shard["index"]))
    for (name, total), found in groups.items():
        missing = sorted(set(range(total)) - set(found))
        if missing and found and max(found) == total and 0 not in found:
            missing = sorted(set(range(1, total + 1)) - set(found))
        if missing:
            shown = ", ".join(f"{index:05d}" for index in missing[:5]) + (", …" if len(missing) > 5 else "")
            raise InputError(
                f"{len(missing)} of {total} shards are missing: {shown}",
                where=name,
                remedy="copy them too; name=FILE takes one shard alone",
            )
    return tuple(paths)


def _refuse_same_names(sources: Sequence[Source]) -> None:
    seen: dict[str, Source] = {}
    for source in sources:
        if source.name in seen:
            raise UsageError(
                f"two sources would be named {source.name!r}: {seen[source.name].paths[0]} and {source.paths[0]}",
                remedy=f"name one yourself: other={source.paths[0]}",
            )
        seen[source.name] = source


def _refuse_same_pipes(sources: Sequence[Source]) -> None:
    seen: dict[Path, str] = {}
    for source in sources:
        for path in filter(once_only, source.paths):
            pipe = Path("/dev/stdin" if path == STDIN else path).resolve()
            if pipe in seen:
                raise UsageError(
                    f"{path} gives its bytes once, so it is one source only, not {seen[pipe]!r} and {source.name!r}",
                    remedy="save it to a file and name that",
                )
            seen[pipe] = source.name
