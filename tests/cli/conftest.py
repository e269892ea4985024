"""Run the command line in this process or a child, and write small sources for it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pytest

from secid import api
from secid.cli.app import END_SIGNALS, main
from tests.tiny_bert import save_tiny_bert

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "fixtures"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Invoke = Callable[..., Outcome]


def invoke_in_process(*arguments: object) -> Outcome:
    """Run the command line in this process, which saves a second import of torch."""
    out, err = io.StringIO(), io.StringIO()
    code = invoke_with(out, err, *arguments)
    return Outcome(code, out.getvalue(), err.getvalue())


def invoke_with(out: TextIO, err: TextIO, *arguments: object) -> int:
    """Run a command that prints to these streams, and return its exit code. Signal handlers are restored at the end."""
    handlers = {number: signal.getsignal(number) for number in END_SIGNALS}
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            return main([str(argument) for argument in arguments])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def invoke_for_a_reader_that_has_gone(*arguments: object) -> tuple[int, str]:
    """Return exit code and stderr of a command whose stdout is a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    err = io.StringIO()
    with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "w", buffering=1) as out:
        code = invoke_with(out, err, *arguments)
    return code, err.getvalue()


def child_environment(**more: str) -> dict[str, str]:
    """Return this environment without the user's settings, with one thread and no network."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SECID_")}
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**kept, "PYTHONPATH": python_path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **more}


def start(
    *arguments: object, cwd: Path, environment: dict[str, str] | None = None, **more: Any
) -> subprocess.Popen[str]:
    """Start `python -m secid …` as a child. Ctrl-C works there even if this process ignores it."""
    return subprocess.Popen(
        [sys.executable, "-m", "secid", *map(str, arguments)],
        cwd=cwd,
        env=environment or child_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no lock is touched
        **more,
    )


def listing(folder: str | Path) -> list[str]:
    """Return the names in a folder, hidden ones included."""
    return sorted(path.name for path in Path(folder).iterdir())


def run_child(*arguments: object, cwd: Path, text: str | None = None, **environment: str) -> Outcome:
    child = start(*arguments, cwd=cwd, environment=child_environment(**environment), stdin=subprocess.PIPE)
    out, err = child.communicate(text, timeout=120)
    return Outcome(child.returncode, out, err)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty directory, without settings from the environment."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SECID_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def invoke() -> Invoke:
    return invoke_in_process


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("encoder") / "tiny-bert")


def rows(n: int, n_negatives: int = 2, style: str = "plain") -> Iterator[dict[str, Any]]:
    """Yield FlagEmbedding rows of made-up texts."""
    for number in range(n):
        yield {
            "query": f"question {number} about subject {number % 5}",
            "pos": [f"answer {number} to it, on subject {number % 5}"],
            "neg": [f"{style} passage {number} {rank} of subject {(number + rank) % 7}" for rank in range(n_negatives)],
        }


def write_rows(path: Path, items: Iterator[dict[str, Any]] | list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    return path


def score_in(folder: Path, encoder: Path, tables: dict[str, list[dict[str, Any]]], **settings: Any) -> Path:
    """Write a file for each table, and score them into `run`. The folder can be copied: no file has its path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        paths = [write_rows(Path(f"{name}.jsonl"), table) for name, table in tables.items()]
        api.score(paths, str(encoder), run="run", **settings)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "small.jsonl", rows(8))


class FixtureRun(NamedTuple):
    outcome: Outcome
    folder: Path
    pages: Path


@pytest.fixture(scope="session")
def fixture_run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> FixtureRun:
    """Run the README's `secid score` over the fixtures once, with a tiny encoder."""
    base = tmp_path_factory.mktemp("fixture-run")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        for name in [name for name in os.environ if name.startswith("SECID_")]:
            patch.delenv(name)
        outcome = invoke_in_process(
            "score", "fixtures/sources/*", "--encoder", tiny, "--run", base / "run",
            "--out", base / "page.md", "--out", base / "page.json",
        )  # fmt: skip
    return FixtureRun(outcome, base / "run", base)
