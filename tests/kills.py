"""Run `secid score` as a child process and kill it; check its cache and report afterwards."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from secid.encode import CacheFolder
from secid.encode.segment import Segment
from secid.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
SEAL_SECONDS = 0.1
"""Seconds between two seals of the cache, instead of 30, so that short runs seal often."""

PROGRAM = "import sys; from tests.kills import run_program; run_program(sys.argv[1:])"
IMPORTED = ["secid.api", "secid.encode.transformer", "secid.scoring.run", "secid.run_folder", "secid.cli.score"]
IMPORTED += ["transformers.models.bert.modeling_bert", "transformers.models.auto.tokenization_auto", "tests.unpacked"]
"""What a forked child finds imported, of the commands and of what loads a BERT. A process has one server, so that
another list elsewhere would hold for whichever test comes first."""
NOT_OF_THE_RESULT = ("timing", "environment", "folder")
RELATIVE, ABSOLUTE = 1e-4, 1e-6
"""Tolerances. A text's row depends on its batch by float32 rounding (1e-7), and a resumed run has other batches.
Differences of scores, and their z, magnify this."""


Run = Callable[[list[str]], None]


class Killable:
    """One score command on one cache, to be run any number of times. folder : folder for its caches and runs."""

    def __init__(self, folder: Path, encoder: Path, sources: list[Path]) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self._arguments = ["score", *map(str, sources), "--encoder", str(encoder), "--quiet"]

    def arguments(self, run: str, cache: str = "cache") -> list[str]:
        """Return the command line after the program's name."""
        return [*self._arguments, "--set", f"cache_dir={self.folder / cache}", "--run", str(self.folder / "runs" / run)]

    def start(self, run: str) -> subprocess.Popen[str]:
        """Start a child that scores on one thread, in a new Python process."""
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *self.arguments(run)],
            env=_environment(),
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def fork(self, run: str) -> Forked:
        """Fork a child that scores on one thread, with all imports done."""
        return fork(self.arguments(run), self.folder, self.folder / run)

    def report(self, run: str) -> dict[str, Any] | None:
        """Return the report of a run; None if there is none."""
        path = self.folder / "runs" / run / "report.json"
        if not path.is_file():
            return None
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        report["analyses"].pop("cost", None)  # depends on time, and is absent if rows came from the cache
        report["not_evaluated"].pop("cost", None)
        return report

    def n_sealed(self) -> int:
        """Return the number of sealed rows in the cache."""
        return sum(use.n_rows for use in self._folder().info().encoders)

    def n_rows(self) -> int:
        """Return that number. Raise AssertionError if a segment is damaged or two segments have the same text."""
        assert self._folder().verify().damaged == ()
        keys = [Segment(path.parent).keys()[0] for path in sorted(self.cache.glob("*/[0-9]*/contents.json"))]
        if not keys:
            return 0
        table = np.concatenate(keys)
        assert len(np.unique(table, axis=0)) == len(table), "a sealed text was encoded again"
        return len(table)

    def wait_for_rows(self, n: int, child: Child, patience_seconds: float = 60.0) -> None:
        """Wait until the cache has more than n rows. Raise AssertionError if the child ends before."""
        end = time.monotonic() + patience_seconds
        while self.n_sealed() <= n:
            assert child.poll() is None, child.communicate()[1]
            assert time.monotonic() < end, f"{self.n_sealed()} of {n} rows came"
            time.sleep(0.01)

    def _folder(self) -> CacheFolder:
        return CacheFolder.of(Settings(cache_dir=str(self.cache)))


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SECID_")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def run_program(arguments: list[str]) -> None:
    """Run the command with segments sealed early, and exit."""
    from secid.cli.app import entry
    from secid.encode import cache

    cache.SEAL_SECONDS = SEAL_SECONDS
    sys.argv = ["secid", *arguments]
    entry()


def fork(arguments: Sequence[object], folder: Path, said: Path, run: Run | None = None, **environment: str) -> Forked:
    """Start a child that runs a command in a folder, on one thread: a fork of a server that only has the imports.

    said : path, without suffix, of the files for the child's output. run : function of a module that runs the command
    line; by default `run_program`. environment : additional variables.
    """
    return Forked(forked(run_forked, run or run_program, [*map(str, arguments)], folder, said, environment), said)


def forked(function: Callable[..., None], *arguments: Any) -> Any:
    """Start a process that calls a function of a module: a fork of the server that this process's tests share."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    process = context.Process(target=function, args=arguments)
    with mock.patch.dict(os.environ, _environment(), clear=True):  # the server starts with the first child
        process.start()
    return process


def run_forked(run: Run, arguments: list[str], folder: Path, said: Path, environment: dict[str, str]) -> None:
    """Run a command in a forked child, which writes its output to files and reacts to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    os.chdir(folder)
    out, err = (said.with_suffix(suffix) for suffix in (".out", ".err"))
    with err.open("w", encoding="utf-8") as sys.stderr, out.open("w", encoding="utf-8") as sys.stdout:
        run(arguments)


def die_with_a_file_written(arguments: list[str]) -> None:
    """Mine, and die when the first file is complete but still has its partial name."""
    from secid.tools.mining import find

    write = find.write_rows

    def killed(*given: Any) -> None:
        write(*given)
        os.kill(os.getpid(), signal.SIGKILL)

    find.write_rows = killed
    run_program(arguments)


def die_between_names(n: int, arguments: list[str]) -> None:
    """Mine, and die when n files in `out` have their final names."""
    replace, names = Path.replace, []

    def killed(path: Path, target: Any) -> Path:
        if path.name.endswith(".partial") and path.parent.name == "out":
            if len(names) == n:
                os.kill(os.getpid(), signal.SIGKILL)
            names.append(target)
        return replace(path, target)

    Path.replace = killed  # type: ignore[method-assign]
    run_program(arguments)


class Forked:
    """Forked child with the interface of subprocess.Popen."""

    def __init__(self, process: Any, said: Path) -> None:
        self._process, self._said = process, said

    def poll(self) -> int | None:
        return self._process.exitcode

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    def send_signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self._process.join(timeout)
        assert self._process.exitcode is not None, "still running"
        paths = (self._said.with_suffix(suffix) for suffix in (".out", ".err"))
        out, err = (path.read_text(encoding="utf-8") if path.is_file() else "" for path in paths)
        return out, err


Child = subprocess.Popen[str] | Forked


def kill(child: Child) -> bool:
    """Send SIGKILL. Return False if the child had already ended successfully."""
    alive = child.poll() is None
    child.kill()
    _, err = child.communicate()
    if not alive:
        assert child.returncode == 0, err
    return alive


def differences(first: Any, second: Any, where: str = "report") -> list[str]:
    """List the differences of two reports beyond rounding. Times and machine do not count."""
    if isinstance(first, dict) and isinstance(second, dict):
        ignored = NOT_OF_THE_RESULT if where in ("report", "report.not_evaluated") else ()
        if odd := (first.keys() ^ second.keys()).difference(ignored):
            return [f"{where}: {sorted(odd)}"]
        names = [name for name in first if name not in ignored]
        return [line for name in names for line in differences(first[name], second[name], f"{where}.{name}")]
    if isinstance(first, list) and isinstance(second, list):
        if len(first) != len(second):
            return [f"{where}: {len(first)} and {len(second)} items"]
        pairs = enumerate(zip(first, second, strict=True))
        return [line for place, (a, b) in pairs for line in differences(a, b, f"{where}[{place}]")]
    if isinstance(first, float) and isinstance(second, float | int):
        same = math.isclose(first, second, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    elif ".queries_needed" in where and first is not None and second is not None:
        same = math.isclose(first, second, rel_tol=RELATIVE, abs_tol=1)  # rounded up from a float
    else:
        same = first == second
    return [] if same else [f"{where}: {first!r} and {second!r}"]
