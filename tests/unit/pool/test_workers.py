"""Child processes give the same results whatever their number, report clear errors, and end with their parent."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import secid
from secid.errors import NotEvaluatedError
from secid.findings import copies, openings
from secid.findings.texts import text_rules
from secid.pool import texts, workers
from secid.pool.workers import Workers
from secid.records import Source
from tests.cli.conftest import write_rows
from tests.unit.findings.planned import pool_of

GOATS = "The goats of valley {} climb the steep rocks above the old mill, where the grass stays green until autumn."


@pytest.fixture(autouse=True)
def any_number_of_texts(monkeypatch):
    monkeypatch.setattr(workers, "MIN_TEXTS_FOR_PROCESSES", 0)


def test_findings_do_not_depend_on_the_number_of_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(openings, "FACTS_AT_ONCE", 7)
    monkeypatch.setattr(copies, "COMPARED_PAIRS_AT_ONCE", 5)
    others = [
        "n/a",
        "Die Ziegen klettern über die steilen Felsen oberhalb des Tals.",
        "Sure! Here is a passage on goats",
    ]
    rows = [
        (f"where do goats {n} live", [GOATS.format(n)], [f"{GOATS.format(n)} {n}", GOATS.format(n - 1), others[n % 3]])
        for n in range(40)
    ]
    with pool_of(tmp_path, rows[:25], rows[15:]) as plan:
        one, other = (text_rules(plan.queries, plan.passages, plan.sources, threads=n) for n in (1, 2))
    assert all(len(np.unique(found.negatives)) > 3 for found in one)
    for found, again in zip(one, other, strict=True):
        np.testing.assert_array_equal(found.negatives, again.negatives)
        np.testing.assert_array_equal(found.positives, again.positives)
        assert found.excess == again.excess


def test_texts_read_during_the_reading_of_rows_give_the_same_check(tmp_path, monkeypatch):
    """Texts occur again after the spool has forgotten them, in one chunk and in several."""
    monkeypatch.setattr(texts, "WAITING_TEXTS", 5)
    monkeypatch.setattr(texts, "RECENT_TEXTS", 3)
    monkeypatch.setattr(openings, "FACTS_AT_ONCE", 20)
    listed = [{"query": f"goat {n}", "pos": [GOATS.format(n)], "neg": [GOATS.format(n % 7), "N/A"]} for n in range(60)]
    source = write_rows(tmp_path / "in.jsonl", listed)
    started: list[int] = []
    start = Workers.start
    monkeypatch.setattr(
        Workers, "start", lambda self, function, part: started.append(len(part)) or start(self, function, part)
    )
    ahead: list[int] = []  # parts started before all rows were read
    facts = openings.PassageReader.facts
    monkeypatch.setattr(
        openings.PassageReader,
        "facts",
        lambda self, passages: ahead.append(len(self._started)) or facts(self, passages),
    )
    found = []
    for threads in (1, 2):
        started.clear()
        found.append(replace(secid.check(source, threads=threads), seconds=0.0))
        assert sum(started) == 61
    assert ahead[0] == 0
    assert ahead[1] > 1
    assert found[0].sources == found[1].sources
    assert found[0].texts == found[1].texts


def test_a_worker_that_dies_is_an_error():
    with pytest.raises(NotEvaluatedError, match="worker process ended"), Workers(1, 2) as some:
        list(some.map(os._exit, [1]))


def end_by_signal(seconds: float) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(seconds)


def test_a_worker_that_is_ended_by_a_signal_is_an_error_too():
    with pytest.raises(NotEvaluatedError, match="worker process ended"), Workers(1, 2) as some:
        list(some.map(end_by_signal, [60.0, 60.0]))
    with pytest.raises(NotEvaluatedError, match="worker process ended"), Workers(1, 2) as some:
        some.start(end_by_signal, 60.0)()


def test_an_error_while_rows_are_read_ends_the_workers():
    began = time.monotonic()
    with suppress(KeyError), openings.PassageReader(2) as reader:
        reader.workers(1).start(time.sleep, 600.0)
        raise KeyError
    assert time.monotonic() - began < 60


def test_an_error_of_a_worker_is_that_of_the_function():
    with pytest.raises(ValueError, match="ham"), Workers(1, 2) as some:
        list(some.map(int, ["1", "ham"]))


def test_a_child_process_gives_its_result_or_its_error():
    with workers.in_child_process(1, 2, pow, 2, 5) as result:
        assert [result(), result()] == [32, 32]
    with workers.in_child_process(1, 2, int, "ham") as result, pytest.raises(ValueError, match="ham"):
        result()
    with (
        workers.in_child_process(1, 2, os._exit, 1) as result,
        pytest.raises(NotEvaluatedError, match="worker process ended"),
    ):
        result()


def met(own: Path, other: Path) -> bool:
    """Create a file, and wait for another."""
    own.touch()
    end = time.monotonic() + 60
    while time.monotonic() < end and not other.exists():
        time.sleep(0.01)
    return other.exists()


def test_calls_run_at_once_if_there_are_cores_for_each(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    with workers.child_processes(2, 1, 2 * workers.CORES_PER_CALL) as call:
        results = [call(met, one, other), call(met, other, one)]
        assert [result() for result in results] == [True, True]


@pytest.mark.skipif(not hasattr(os, "nice"), reason="needs Unix")
def test_the_threads_that_feed_a_gpu_come_before_child_processes():
    with workers.in_child_process(1, 2, os.nice, 0) as niceness:
        assert niceness() == min(19, os.nice(0) + workers.NICENESS)


def test_a_child_process_ends_with_the_block():
    began = time.monotonic()
    with pytest.raises(KeyError), workers.in_child_process(1, 2, time.sleep, 600):
        raise KeyError
    assert time.monotonic() - began < 60


def test_without_a_child_the_call_is_made_once_when_it_is_asked_for():
    made = []
    with workers.in_child_process(1, 1, made.append, 1) as result:
        assert made == []
        result()
        result()
    assert made == [1]


def test_one_thread_and_few_texts_start_no_process(monkeypatch):
    assert Workers(1, 1).n == 1
    monkeypatch.setattr(workers, "MIN_TEXTS_FOR_PROCESSES", 2)
    assert [Workers(1, 2).n, Workers(2, 2).n] == [1, 2]


def test_without_shared_memory_this_process_does_the_work(monkeypatch):
    def refused(*_):
        raise OSError("no shared memory")

    monkeypatch.setattr(workers, "ProcessPoolExecutor", refused)
    with Workers(1, 2) as some:
        assert (some.n, list(some.map(int, ["1", "2"]))) == (1, [1, 2])


SCRIPT = """
import signal, sys, time
from secid.pool import texts, workers
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the tests' process leaves to its children
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
print("begun", flush=True)
workers.MIN_TEXTS_FOR_PROCESSES = 0
with workers.in_child_process(1, 2, time.sleep, 600), workers.Workers(1, 2) as some:
    list(some.map(time.sleep, [0.01, 0.01, 2, 2]))
"""
"""Without a guard for the main module: a child that ran it would begin again."""


def start(path: Path, script: str) -> subprocess.Popen[bytes]:
    """Run a script in a separate process group, so that a signal reaches the whole group as Ctrl-C does."""
    path.write_text(script, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, path], env=environment, start_new_session=True, **pipes)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are listed by Linux")
@pytest.mark.parametrize("sent", ["INT", "KILL"])
def test_no_child_outlives_its_parent(tmp_path, sent):
    with start(tmp_path / "script.py", SCRIPT) as parent:
        listed = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        until(
            lambda: len(listed.read_text().split()) >= 4
        )  # two workers, what runs beside, and what cleans up behind them
        children = [Path(f"/proc/{pid}") for pid in listed.read_text().split()]
        if sent == "INT":
            os.killpg(parent.pid, signal.SIGINT)
        else:
            parent.kill()
        output, errors = parent.communicate()
    assert output.decode() == "begun\n"
    said = errors.decode().split("Traceback (most recent call last):")[1:]
    if sent == "INT":
        assert len(said) == 1, (parent.returncode, errors)
    else:  # a child whose parent is killed while it begins cannot read what to do
        assert all(re.search("^(EOFError|FileNotFoundError|BrokenPipeError)", one, re.MULTILINE) for one in said)
    until(lambda: not any(map(Path.exists, children)))


def work_of_children() -> None:
    workers.MIN_TEXTS_FOR_PROCESSES = 0
    with Workers(1, 2) as some:
        list(some.map(time.sleep, [0.01] * 500))


NESTED = """
import signal
from secid.pool import texts, workers
from tests.unit.pool.test_workers import work_of_children
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
workers.MIN_TEXTS_FOR_PROCESSES = 0
with workers.in_child_process(1, 2, work_of_children) as result:
    print("begun", flush=True)
    result()
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are listed by Linux")
def test_a_child_that_is_ended_ends_its_own_children_and_leaks_nothing(tmp_path):
    with start(tmp_path / "script.py", NESTED) as parent:
        until(lambda: len(family(parent.pid)) >= 5)  # itself, what cleans up, a child and two of its own
        every = [Path(f"/proc/{pid}") for pid in family(parent.pid)[1:]]
        os.killpg(parent.pid, signal.SIGINT)
        errors = parent.communicate()[1].decode()
    assert errors.count("Traceback") == 1, errors
    assert "leaked" not in errors
    until(lambda: not any(map(Path.exists, every)))


def family(pid):
    """Return a process and all its descendants."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended
        return []
    return [pid, *(other for child in children for other in family(child))]


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_rows_in_memory_stay_with_their_process():
    source = Source("a", ("<a>",), lambda: None)  # which cannot be sent
    kind, parts = source.__reduce__()
    assert kind(*parts) == source
    assert kind(*parts).data is None


def test_where_no_process_can_start_this_one_does_the_work(monkeypatch):
    monkeypatch.setattr(workers, "MIN_TEXTS_FOR_PROCESSES", 0)
    monkeypatch.setattr(workers._Process, "start", refuse)
    with workers.in_child_process(1, 2, int, "7") as found:
        assert found() == 7


def refuse(*_):
    raise BlockingIOError("no process")
