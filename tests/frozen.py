"""Run secid's commands on fixed inputs, and compare their results with those of an earlier tree.

    python -m tests.frozen freeze FOLDER --data DIR [--tree PATH]
    python -m tests.frozen compare FOLDER [--tree PATH] [--only CASE] [--strict] [--text] [--jobs 2]

`freeze` prepares the inputs in FOLDER from the collections in DIR (scifact/ and cranfield/ in BEIR's layout) and stores
all JSON documents, rows and exit codes. `compare` runs the same commands on another tree, or on the same tree later. It
exits with 1 if a number differs by more than a relative 1e-9, or if anything else differs. A key that only the new tree
has counts as added. List keys that a refactoring moves on purpose in RENAMED. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.frozen_inputs import cases, prepare, rows_of

ROOT = Path(__file__).resolve().parents[1]
Key = tuple[str | int, ...]
"""Place of a value in a file: keys of objects, positions in lists."""

RENAMED: Mapping[str, str | None] = {"analyses.ablations[*].range_nats": None}
"""Places in the frozen tree's files, with their places in the new tree; None for places removed on purpose.

A place covers everything below it, and * is any key or position: "sources[*].eci_nats": "sources[*].score.nats". A file
name may precede it: "check.json:sources[*].n_rows". The stars of both sides correspond in order. An entry is ignored in
files where the new tree still has the old place (unless as the new place of an entry), or has nothing below the first
key of the new place. If the old place was null or empty as a whole, the new tree need not have it.
"""
REORDERED = ("analyses.margins", "analyses.guide.sources")
"""Places in the new tree of lists whose parts are compared by `name` or `source`. A changed order is reported."""
VARIES = (
    "timing",
    "seconds",
    "environment",
    "secid_version",
    "schema_version",
    *(
        f"{place}.{name}"
        for place in ("cost", "analyses.cost")
        for name in ("scoring_seconds", "tokens_per_second", "epoch_seconds", "epoch_share")
    ),
)
"""Places that vary by run, machine or version. Never compared."""
LEFT_OUT = ("state", "states", "cache", "*.html", "log.txt", "*.stderr", "*.safetensors")
"""Folders and files that are not compared; the commands that read them are."""
AS_TEXT = (".md", ".xml", ".toml", ".stdout")
"""Wording, compared with --text only. A stdout that is a JSON document is compared as such."""

SECONDS = re.compile(r"[\d.,]+\u00a0(s|min)\b")

TOLERANCE = 1e-9
NEAR_ZERO = 1e-3
"""Absolute tolerance as a part of the relative one, for numbers near 0 that are differences of numbers near 1."""

PROGRAM = """
import json, os, runpy, sys
import ftfy, pandas, py3langid, pyarrow.dataset, pyarrow.parquet, rich.console, scipy.sparse, scipy.stats, torch, typer
for line in sys.stdin:
    label, arguments = json.loads(line)
    child = os.fork()
    if not child:
        for number, stream in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(f"{label}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = ["secid", *arguments]
        runpy.run_module("secid", run_name="__main__", alter_sys=True)
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Program that reads labelled commands line by line and prints their exit codes. Each command runs in a fork that has
the large packages, which saves the two seconds that a process takes to load them.
"""


def run_case(folder: Path, commands: Mapping[str, list[str]], tree: Path) -> float:
    """Run a case in a new folder; return its seconds."""
    start = time.perf_counter()
    folder.mkdir(parents=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SECID_", "GITHUB_"))}
    own = {"PYTHONPATH": str(tree), "SECID_CACHE_DIR": "cache", "COLUMNS": "120", "NO_COLOR": "1"}
    own |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    lines = "".join(json.dumps(item) + "\n" for item in commands.items())
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=lines, stdout=subprocess.PIPE, text=True, cwd=folder, env=kept | own
    )
    codes = dict(zip(commands, map(int, done.stdout.split()), strict=True))
    (folder / "codes.json").write_text(json.dumps(codes, indent=1), encoding="utf-8")
    return time.perf_counter() - start


def run_all(folder: Path, chosen: Mapping[str, Mapping[str, list[str]]], tree: Path, jobs: int) -> None:
    """Run cases, each in folder/NAME, and print their times."""
    if not (tree / "secid" / "__main__.py").is_file():
        sys.exit(f"{tree}: no tree of secid")
    shutil.rmtree(folder, ignore_errors=True)
    with ThreadPoolExecutor(jobs) as pool:
        started = {pool.submit(run_case, folder / name, chosen[name], tree): name for name in chosen}
        for running in as_completed(started):
            name = started[running]
            print(f"{name}: {len(chosen[name])} commands in {running.result():.0f} s", flush=True)


def values_of(folder: Path, with_text: bool) -> dict[str, dict[Key, Any]]:
    """Return every value with its place, by file. Empty lists and objects are values too."""
    found: dict[str, dict[Key, Any]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder)
        if any(fnmatch(part, pattern) for part in name.parts for pattern in LEFT_OUT):
            continue
        document = read(path, with_text)
        if document is not None:
            found[name.as_posix()] = dict(flat(document, ()))
    return found


def read(path: Path, with_text: bool) -> Any:
    """Return a file's document, rows or text; None for wording that is not compared. Rows are lists by column."""
    if path.suffix in (".parquet", ".jsonl", ".gz"):
        rows = rows_of(path)
        names = dict.fromkeys(name for row in rows for name in row)
        return {"n_rows": len(rows), **{name: [row.get(name) for row in rows] for name in names}}
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json" or (path.suffix == ".stdout" and text.startswith("{")):
        return json.loads(text)
    if path.suffix in AS_TEXT:
        return SECONDS.sub("a time", text).splitlines() if with_text else None
    raise ValueError(f"{path}: say in LEFT_OUT or AS_TEXT what becomes of such files")


def flat(value: Any, place: Key) -> Iterator[tuple[Key, Any]]:
    """Yield every value below a place that holds no other values."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not value or not items:
        yield place, value
    for key, item in items:
        yield from flat(item, (*place, key))


def keys_of(pattern: str) -> tuple[str, ...]:
    """Return the keys, positions and stars of a pattern of places."""
    return tuple(re.findall(r"[^.\[\]]+", pattern))


def covers(pattern: tuple[str, ...], place: Key) -> bool:
    """Return whether a place matches the pattern or lies below it."""
    return len(pattern) <= len(place) and all(a in ("*", str(b)) for a, b in zip(pattern, place, strict=False))


class Places:
    """Patterns of places, for a file of this name."""

    def __init__(self, patterns: Mapping[str, str | None], file: str) -> None:
        self.patterns: dict[tuple[str, ...], str | None] = {}
        for pattern, target in patterns.items():
            name, colon, place = pattern.rpartition(":")
            if not colon or Path(file).match(name):
                self.patterns[keys_of(place)] = target

    def drop_unmoved(self, new: Iterable[Key]) -> None:
        """Drop the patterns that RENAMED ignores in this file."""
        places = {place[:length] for place in new for length in range(1, len(place) + 1)}
        aims = [keys_of(target) for target in self.patterns.values() if target is not None]
        for pattern, target in list(self.patterns.items()):
            aim = keys_of(target) if target is not None else None
            below = (place for place in places if covers(pattern, place))
            left = any(not any(covers(aim[: len(place)], place) for aim in aims) for place in below)
            if left or (aim and (aim[0],) not in places):
                del self.patterns[pattern]

    def matched(self, place: Key) -> tuple[tuple[str, ...], str | None] | None:
        """Return the longest pattern that covers a place, and its target."""
        for length in range(len(place), 0, -1):
            for pattern, target in self.patterns.items():
                if len(pattern) == length and covers(pattern, place):
                    return pattern, target
        return None

    def moved(self, place: Key) -> Key | None:
        """Return a place's position in the new tree; None if it was removed."""
        found = self.matched(place) if self.patterns else None
        if found is None:
            return place
        pattern, target = found
        if target is None:
            return None
        stars = iter([key for name, key in zip(pattern, place, strict=False) if name == "*"])
        keys = (next(stars) if name == "*" else int(name) if name.isdigit() else name for name in keys_of(target))
        return (*keys, *place[len(pattern) :])


def equal(old: Any, new: Any, tolerance: float) -> bool:
    """Return whether two values are equal: numbers within the tolerance, anything else exactly. NaN equals NaN."""
    if type(old) in (int, float) and type(new) in (int, float):
        close = math.isclose(old, new, rel_tol=tolerance, abs_tol=NEAR_ZERO * tolerance)
        return close or (math.isnan(old) and math.isnan(new))
    return type(old) is type(new) and bool(old == new)


def positions(values: Mapping[Key, Any], place: Key) -> dict[Any, int]:
    """Return the positions of a list's parts by name or source; empty if a part has neither, or two share one."""
    labels = [(key[-2], value) for key, value in values.items() if key[:-2] == place and key[-1] in ("name", "source")]
    n_parts = len({key[len(place)] for key in values if key[: len(place)] == place and len(key) > len(place)})
    found = {label: int(position) for position, label in labels}
    return found if len(found) == len(labels) == n_parts else {}


def in_order_of(old: Mapping[Key, Any], new: Mapping[Key, Any]) -> tuple[dict[Key, Any], list[Key]]:
    """Return the old values with REORDERED lists in the new tree's order, and the lists whose order changed."""
    values, changed = dict(old), []
    for place in map(keys_of, REORDERED):
        before, after = positions(values, place), positions(new, place)
        if before == after or before.keys() != after.keys():
            continue
        changed.append(place)
        at, moved = len(place), {before[label]: after[label] for label in before}
        values = {
            (*place, moved[key[at]], *key[at + 1 :]) if key[:at] == place else key: value
            for key, value in values.items()
        }
    return values, changed


def compared(
    old: Mapping[str, Mapping[Key, Any]],
    new: Mapping[str, Mapping[Key, Any]],
    renamed: Mapping[str, str | None] = RENAMED,
    tolerance: float = TOLERANCE,
) -> tuple[list[tuple[str, Key, str]], list[tuple[str, Key]], list[tuple[str, Key]]]:
    """Return differences (file, place, what), values only in the new tree, and reordered lists (file, place)."""
    differences: list[tuple[str, Key, str]] = []
    added: list[tuple[str, Key]] = [(file, ()) for file in new if file not in old]
    reordered: list[tuple[str, Key]] = []
    for file, values in old.items():
        if file not in new:
            differences.append((file, (), "the file is missing"))
            continue
        ignored = Places(dict.fromkeys(VARIES), file)
        expected, lists = in_order_of(moved_values(values, new[file], renamed, file), new[file])
        reordered += [(file, place) for place in lists]
        for place, value in expected.items():
            if place not in new[file]:
                differences.append((file, place, f"{value!r:.80} is missing"))
            elif not equal(value, new[file][place], tolerance):
                differences.append((file, place, f"{value!r:.80} -> {new[file][place]!r:.80}"))
        added += [(file, place) for place in new[file] if place not in expected and not ignored.matched(place)]
    return differences, added, reordered


def moved_values(
    old: Mapping[Key, Any], new: Mapping[Key, Any], renamed: Mapping[str, str | None], file: str
) -> dict[Key, Any]:
    """Return the old values to compare, at their places in the new tree."""
    places, ignored = Places(renamed, file), Places(dict.fromkeys(VARIES), file)
    places.drop_unmoved(new)
    found: dict[Key, Any] = {}
    for place, value in old.items():
        moved = places.moved(place)
        if moved is None or ignored.matched(place):
            continue
        entry = places.matched(place)
        gone = entry and len(entry[0]) == len(place) and not any(key[: len(moved)] == moved for key in new)
        if not (gone and (value is None or value in ([], {}))):
            found[moved] = value
    return found


def named(place: Key, any_position: bool = False) -> str:
    """Return a place as RENAMED writes it, optionally with * for each position."""
    parts = [f"[{'*' if any_position else key}]" if isinstance(key, int) else f".{key}" for key in place]
    return "".join(parts).removeprefix(".")


def report(
    differences: list[tuple[str, Key, str]],
    added: list[tuple[str, Key]],
    reordered: list[tuple[str, Key]],
    shown: int,
) -> None:
    """Print the differences, the first few of each kind of place, and counts."""
    kinds: Counter[tuple[str, str]] = Counter()
    for file, place, what in differences:
        kind = (file, named(place, any_position=True))
        kinds[kind] += 1
        if kinds[kind] <= shown:
            print(f"{file}: {named(place)}: {what}")
    for (file, kind_of_place), count in kinds.items():
        if count > shown:
            print(f"{file}: {kind_of_place}: {count - shown} more")
    for (file, place_added), count in Counter((file, named(place, any_position=True)) for file, place in added).items():
        print(f"added: {file}: {place_added or 'the file'}" + (f" ({count})" if count > 1 else ""))
    for file, place in reordered:
        print(f"order: {file}: {named(place)}")
    print(f"{len(differences)} differences in {len({file for file, _, _ in differences})} files, {len(added)} added")


def seconds_since(start: float) -> str:
    """Return the wall time, and the processor time of all commands, which depends less on other programs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return f"{time.perf_counter() - start:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processor time"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("freeze", "compare"))
    parser.add_argument("folder", type=Path, help="outside the repository; freeze makes it")
    parser.add_argument("--data", type=Path, help="folder with scifact/ and cranfield/, for freeze")
    parser.add_argument("--tree", type=Path, default=ROOT, help="checkout whose secid runs [default: this one]")
    parser.add_argument("--only", action="append", metavar="CASE", help="compare this case alone; repeatable")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=1, help="cases at a time")
    parser.add_argument("--text", action="store_true", help="also compare what is printed, and report.md")
    parser.add_argument("--strict", action="store_true", help="also fail if the new tree adds a key")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    parser.add_argument("--show", type=int, default=3, help="differences of each kind of place that are printed")
    args = parser.parse_args()
    start, folder = time.perf_counter(), args.folder.resolve()
    inputs, frozen, tree = folder / "inputs", folder / "frozen", args.tree.resolve()
    if args.action == "freeze":
        if args.data is None or folder.exists():
            parser.error("freeze needs --data, and a folder that does not exist yet")
        prepare(inputs, args.data, ROOT / "fixtures")
        print(f"inputs prepared in {time.perf_counter() - start:.0f} s")
        run_all(frozen, cases(inputs), tree, args.jobs)
        n_values = sum(len(values) for name in cases(inputs) for values in values_of(frozen / name, True).values())
        print(f"{n_values:,} values frozen in {seconds_since(start)}")
        return
    chosen = {name: commands for name, commands in cases(inputs).items() if name in (args.only or [name])}
    run_all(folder / "new", chosen, tree, args.jobs)
    differences: list[tuple[str, Key, str]] = []
    added: list[tuple[str, Key]] = []
    reordered: list[tuple[str, Key]] = []
    for name in chosen:
        both = [values_of(folder / run / name, args.text) for run in ("frozen", "new")]
        found, more, lists = compared(*both, tolerance=args.tolerance)
        differences += [(f"{name}/{file}", place, what) for file, place, what in found]
        added += [(f"{name}/{file}", place) for file, place in more]
        reordered += [(f"{name}/{file}", place) for file, place in lists]
    report(differences, added, reordered, args.show)
    print(seconds_since(start))
    sys.exit(bool(differences or (args.strict and added)))


if __name__ == "__main__":
    main()
