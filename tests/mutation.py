"""Inject one-line faults into the modules that compute numbers, and print those that no test notices.

python -m tests.mutation --cache DIR [--faults 200] [--seed 0] [--tests tests/unit/measure ...] [--again]

Needs Linux, and no package beyond those of the tests. Every run of tests is a fork of this process, which has loaded
torch and the other large packages once. DIR holds a copy of the repository for the faults, the lines that each
test reaches (measured again for a test file that changed) and one JSON line per outcome. A second start resumes from
there; with --again it first retries the faults that were not noticed or not decided, since tests may have been added.

Each fault runs the tests that reach its line: those of the module and of its folder first, then those that reach the
fewest lines. A fault is noticed once a test fails, and undecided after 60 seconds of processor time.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.faults import EQUIVALENT, Fault, drawn, targets

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 60
PRELOADED = ["bm25s", "ftfy", "hypothesis", "pandas", "py3langid", "pyarrow.dataset", "pyarrow.parquet", "rich.console"]
PRELOADED += ["scipy.special", "scipy.stats", "sentence_transformers", "torch", "typer.testing"]
PRELOADED += ["transformers.models.bert.modeling_bert"]
STAMPS = count(1_000_000_000 + int(time.time()) % 100_000_000 * 10)
"""Modification times for changed files: Python reuses a compiled module if size and second are the same."""


class Recorder:
    """Record the lines of target modules that each test reaches. A fixture's lines count for the whole file."""

    def __init__(self, tree: Path) -> None:
        self.modules = {str(tree / path): path for path in targets(tree)}
        self.texts = {path: (tree / path).read_text(encoding="utf-8").splitlines() for path in self.modules.values()}
        self.unseen: dict[Any, set[int]] = {}
        self.lines: set[int] = set()
        self.of_fixtures: set[int] = set()
        self.of_tests: dict[str, set[int]] = {}

    def call(self, frame: Any, event: str, _: object) -> Any:
        """Trace a function until all of its lines were seen."""
        if frame.f_code.co_filename not in self.modules:
            return None
        if frame.f_code not in self.unseen:
            self.unseen[frame.f_code] = {line for *_, line in frame.f_code.co_lines() if line}
        return self.line if self.unseen[frame.f_code] else None

    def line(self, frame: Any, event: str, _: object) -> Any:
        unseen, path = self.unseen[frame.f_code], self.modules[frame.f_code.co_filename]
        if frame.f_lineno in unseen:
            unseen.discard(frame.f_lineno)
            self.lines.add(line_key(path, self.texts[path][frame.f_lineno - 1]))
        return self.line

    def traced(self, into: set[int]) -> Iterator[None]:
        self.lines, self.unseen = into, {}
        for name, module in list(sys.modules.items()):  # so that cached results are computed again
            for value in list(vars(module).values()) if name.startswith(("secid", "tests")) else ():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
        threading.settrace(self.call)
        sys.settrace(self.call)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        yield from self.traced(self.of_fixtures)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        lines: set[int] = set()
        yield from self.traced(lines)
        self.of_tests[item.nodeid] = lines  # a test that fails without a fault is not used


class Chosen:
    """Run only these tests, and record the first error."""

    def __init__(self, tests: set[str], note: Path) -> None:
        self.tests, self.note = tests, note

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.tests]

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        self.note.write_text(f"{call.excinfo.typename} in {node.nodeid}", encoding="utf-8")


def line_key(path: str, line: str) -> int:
    """Return a key of a line from its text, so that a line added above does not invalidate measurements."""
    return crc32(f"{path} {line.strip()}".encode())


def run_tests(cache: Path, files: list[str], *options: str, plugin: object) -> int:
    quiet = "-Wignore::pytest.PytestAssertRewriteWarning"  # for plugins among the packages loaded before
    return int(pytest.main(["-q", quiet, f"--basetemp={cache / 'tmp'}", *options, *files], plugins=[plugin]))


def in_fork(cache: Path, work: Callable[[], int], seconds: float) -> int | None:
    """Return the exit code of work() in a fork with the copy's modules; None after these seconds of processor time."""
    tree, pid = cache / "tree", os.fork()
    if not pid:
        code = 70
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (max(1, round(seconds)),) * 2)
            log = os.open(cache / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(log, stream)
            for name in [name for name in sys.modules if name.split(".")[0] in ("secid", "tests")]:
                del sys.modules[name]
            sys.path[:] = [str(tree), *(path for path in sys.path if path not in (str(ROOT), ""))]
            os.environ["PYTHONPATH"] = str(tree)
            os.chdir(tree)
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    end, done, status = time.monotonic() + 4 * seconds, 0, 0
    try:
        while not done and time.monotonic() < end:
            time.sleep(0.05)
            done, status = os.waitpid(pid, os.WNOHANG)
        return os.WEXITSTATUS(status) if done and os.WIFEXITED(status) else None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # also processes started by its tests
        if not done:
            os.waitpid(pid, 0)


def measured(cache: Path, file: str) -> dict[str, set[int]]:
    """Return the lines that each test of a file reaches. They are measured only if the file has changed."""
    tree, kept = cache / "tree", cache / "lines" / f"{file.replace('/', ' ')}.json"
    digest = hashlib.sha256((tree / file).read_bytes()).hexdigest()

    def work() -> int:
        recorder = Recorder(tree)
        run_tests(cache, [file], plugin=recorder)
        keep({name: sorted(lines | recorder.of_fixtures) for name, lines in recorder.of_tests.items()})
        return 0

    def keep(tests: dict[str, list[int]]) -> None:
        kept.write_text(json.dumps({"digest": digest, "tests": tests}), encoding="utf-8")

    fresh = kept.exists() and json.loads(kept.read_text(encoding="utf-8"))["digest"] == digest
    if not fresh and in_fork(cache, work, 15 * SECONDS) != 0:
        print(f"{file}: its lines could not be measured, so it is left out", flush=True)
        keep({})
    tests = json.loads(kept.read_text(encoding="utf-8"))["tests"]
    return {name: set(lines) for name, lines in tests.items()}


def reaching(fault: Fault, texts: list[str], lines: dict[str, set[int]]) -> list[str]:
    """Return the tests that reach the fault, closest first. For a line run on import: those that reach the module."""
    keys = {line_key(fault.path, text) for text in texts[fault.first : fault.last + 1]}
    tests = [test for test, reached in lines.items() if not keys.isdisjoint(reached)] if "()" in fault.owner else []
    if not tests:
        keys = {line_key(fault.path, text) for text in texts}
        tests = [test for test, reached in lines.items() if not keys.isdisjoint(reached)]
    *_, folder, module = Path(fault.path).with_suffix("").parts
    return sorted(tests, key=lambda test: (module not in test, f"/{folder}/" not in test, len(lines[test]), test))


def attempt(cache: Path, fault: Fault, lines: dict[str, set[int]]) -> dict[str, str]:
    """Inject the fault into the copy, run the tests that reach it, undo it, and return the outcome."""
    file, note, left = cache / "tree" / fault.path, cache / "note.txt", float(SECONDS)
    source = file.read_bytes()
    tests = reaching(fault, source.decode().splitlines(), lines)
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))
    n_tried, outcome = 0, "survived"
    try:
        file.write_bytes(fault.within(source))
        os.utime(file, (next(STAMPS),) * 2)
        while outcome == "survived" and n_tried < len(files):
            part = files[n_tried : 3 * n_tried + 2]  # few files first, since collecting tests takes time, too
            note.write_text("the import", encoding="utf-8")
            chosen, before = Chosen(set(tests), note), sum(os.times()[2:4])
            code = in_fork(cache, partial(run_tests, cache, part, "-x", plugin=chosen), left)
            left -= sum(os.times()[2:4]) - before
            n_tried += len(part)
            if code in (1, 2, 4):
                return {"fault": fault.name, "outcome": "noticed", "by": note.read_text(encoding="utf-8")}
            if code != 0 or left < 1 < len(files) - n_tried:
                outcome = "undecided"
    finally:
        file.write_bytes(source)
        os.utime(file, (next(STAMPS),) * 2)
    return {"fault": fault.name, "outcome": outcome, "by": f"{len(tests)} tests in {n_tried} of {len(files)} files"}


def synchronise(tree: Path) -> None:
    """Bring the copy up to date with all files that git does not ignore, and remove other modules from it."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True)
    names = [name for name in listed.stdout.decode().splitlines() if (ROOT / name).is_file()]
    for name in names:
        if not (tree / name).exists() or (tree / name).read_bytes() != (ROOT / name).read_bytes():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
    for path in tree.glob("*/**/*.py"):
        if str(path.relative_to(tree)) not in names:
            path.unlink()


def summary(faults: list[Fault], outcomes: dict[str, dict[str, str]], wanted: int, tree: Path) -> str:
    """Return the numbers of the first decided faults, and each survivor with its line before and after."""
    of_kind: dict[str, list[Fault]] = {"noticed": [], "survived": [], "undecided": []}
    for fault in faults:
        if fault.name in outcomes and len(of_kind["noticed"]) + len(of_kind["survived"]) < wanted:
            of_kind[outcomes[fault.name]["outcome"]].append(fault)
    text, n_equivalent = "", sum(fault.name in EQUIVALENT for fault in of_kind["survived"])
    for fault in of_kind["survived"]:
        old = (tree / fault.path).read_text(encoding="utf-8").splitlines()[fault.first].strip()
        why = f"equivalent: {EQUIVALENT[fault.name]}" if fault.name in EQUIVALENT else outcomes[fault.name]["by"]
        text += f"\n{fault.path}:{fault.first + 1} {fault.owner}, {why}\n- {old}\n+ {fault.line}\n"
    n_noticed, n_survived, n_undecided = map(len, of_kind.values())
    return (
        f"{text}\n{n_noticed + n_survived} faults decided: {n_noticed} noticed, {n_equivalent} equivalent, "
        f"{n_survived - n_equivalent} not noticed. {n_undecided} undecided. {len(faults)} lines could hold one."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="folder outside the repository")
    parser.add_argument("--faults", type=int, default=200, help="number of decided faults after which the run ends")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="+", default=["tests/oracle", "tests/unit", "tests/property", "tests/cli"])
    parser.add_argument("--again", action="store_true", help="first retries what was not noticed")
    args = parser.parse_args()
    cache = args.cache.resolve()
    if cache.is_relative_to(ROOT):
        parser.error("--cache is inside the repository")
    tree, kept = cache / "tree", cache / "outcomes.jsonl"
    (cache / "lines").mkdir(parents=True, exist_ok=True)
    synchronise(tree)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that a fork ends, too
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    for module in PRELOADED:
        importlib.import_module(module)
    lines: dict[str, set[int]] = {}
    for path in (tree / name for name in args.tests):
        for file in [path] if path.is_file() else sorted(path.glob("**/test_*.py")):
            lines |= measured(cache, str(file.relative_to(tree)))
    kept.touch()
    outcomes = {line["fault"]: line for line in map(json.loads, kept.read_text(encoding="utf-8").splitlines())}
    faults = drawn(tree, args.seed)
    again = [fault for fault in faults if args.again and fault.name in outcomes and fault.name not in EQUIVALENT]
    again = [fault for fault in again if outcomes[fault.name]["outcome"] != "noticed"]
    for fault in again + [fault for fault in faults if fault.name not in outcomes]:
        n_decided = sum(outcomes[f.name]["outcome"] != "undecided" for f in faults if f.name in outcomes)
        if fault not in again and n_decided >= args.faults:
            break
        outcomes[fault.name] = attempt(cache, fault, lines)
        with kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcomes[fault.name], ensure_ascii=False) + "\n")
        print(*outcomes[fault.name].values(), sep=" | ", flush=True)
    print(summary(faults, outcomes, args.faults, tree))


if __name__ == "__main__":
    main()
