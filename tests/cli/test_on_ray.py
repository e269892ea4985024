"""Shards on a Ray cluster of this machine: killed workers and drivers change nothing, and no process stays."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

import secid
from secid.analyses.registry import from_json
from tests.cli.conftest import child_environment
from tests.fake_encoder import HashEncoder
from tests.shard_runs import differences, write_sources

needs_ray = pytest.mark.skipif(
    not any((Path(folder) / "ray" / "__init__.py").is_file() for folder in sys.path), reason="ray is not installed"
)
PROGRAM = """
import os, sys, time
from pathlib import Path
import secid
from tests.fake_encoder import HashEncoder

state, marks, *sources = sys.argv[1:]

class Waiting(HashEncoder):
    '''Once some shards are done it waits for a file `go`, after it has written who waits.'''
    def encode(self, texts, role):
        if list(Path(state).glob("shard-*.safetensors")) and not Path(marks, "go").exists():
            Path(marks, str(os.getpid())).touch()
            while not Path(marks, "go").exists():
                time.sleep(0.05)
        return super().encode(texts, role)

class Notes:
    def start(self, *a): pass
    advance = at = start
    def note(self, text): print(text, file=sys.stderr, flush=True)

settings = {"sums": "float64", "controls": "none", "cache": False}
run = secid.score_on_ray(sources, Waiting(), shards=4, state_dir=state, progress=Notes(), **settings)
print(secid.to_json(run))
"""


def wait_until(condition, seconds=240.0):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return value


def processes(folder):
    """Ids of all processes whose environment names the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if str(folder).encode() in path.read_bytes() and b") Z" not in (path.parent / "stat").read_bytes():
                found.append(int(path.parent.name))
    return found


@pytest.fixture(scope="module")
def ray_environment():
    """For children: folders of Ray alone, with a short name for its sockets, and a key and cache of its own."""
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    key = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    key["XDG_CACHE_HOME"] = str(folder / "cache")  # rows of an earlier test run would leave nothing to encode
    yield child_environment(RAY_TMPDIR=str(folder), RAY_USAGE_STATS_ENABLED="0", RAY_ADDRESS="", **key)
    try:
        wait_until(lambda: not processes(folder), 20)
    finally:
        for process in processes(folder):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(ray_environment):
    """The environment of drivers on a cluster of two simulated GPUs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = ["--head", "--block", "--node-ip-address=127.0.0.1", f"--port={address.rpartition(':')[2]}"]
    words += ["--num-cpus=2", "--num-gpus=2", "--include-dashboard=false", "--object-store-memory=100000000"]
    ray_start = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", *words]
    head = subprocess.Popen(
        ray_start, env=ray_environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    wait_until(lambda: any(Path(ray_environment["RAY_TMPDIR"]).glob("ray/ray_current_cluster")))
    yield {**ray_environment, "RAY_ADDRESS": address}
    head.terminate()
    head.wait(30)


@pytest.fixture
def job(cluster, tmp_path):
    """Starts the driver; its folders, and the run of one process."""
    sources = write_sources(tmp_path / "sources", n_queries=40)
    marks, state = tmp_path / "marks", tmp_path / "state"
    marks.mkdir()
    children = []

    class Job:
        expected = secid.score(sources, HashEncoder(), sums="float64", controls="none")

        def start(self):
            words = [sys.executable, "-c", PROGRAM, str(state), str(marks), *sources]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            children.append(subprocess.Popen(words, env=cluster, cwd=tmp_path, text=True, **pipes))
            return children[-1]

        def waiting(self, n, child):
            """Ids of n workers that wait in a shard."""

            def enough():
                assert child.poll() is None, child.communicate()[1]
                alive = [path for path in marks.iterdir() if Path("/proc", path.name).exists()]
                return len(alive) >= n and [int(path.name) for path in alive]

            return wait_until(enough)

        def finish(self, child):
            """Wait for the driver, check that its run equals that of one process, and return its stderr."""
            (marks / "go").touch()
            out, err = child.communicate(timeout=240)
            assert child.returncode == 0, err
            apart = differences(self.expected, from_json(out))
            assert [place for place, *_ in apart if place != "not_evaluated.cost"] == []  # of what was encoded here
            return err

        def states(self):
            return {path.name: path.stat().st_mtime_ns for path in state.glob("*.safetensors")}

    yield Job()
    for child in children:
        child.kill()
        child.communicate()


@needs_ray
def test_a_killed_worker_of_two_loses_its_shard_and_another_one_takes_it(job):
    child = job.start()
    os.kill(job.waiting(2, child)[0], signal.SIGKILL)
    err = job.finish(child)
    assert err.count("failed (ActorDiedError); trying again") == 1
    notes = [line for line in err.splitlines() if "hash: " in line]
    assert len(notes) == len(set(notes)) <= 1


@needs_ray
def test_a_killed_driver_resumes_from_the_states(job):
    child = job.start()
    workers = job.waiting(2, child)
    child.kill()
    child.communicate()
    wait_until(lambda: not any(Path("/proc", str(worker)).exists() for worker in workers))
    before = job.states()
    assert any(name.startswith("shard-") for name in before)
    job.finish(job.start())
    assert before.items() <= job.states().items()


@needs_ray
def test_an_error_of_a_worker_ends_the_run_the_third_time(cluster, tmp_path):
    words = [*write_sources(tmp_path, n_queries=20)]
    program = PROGRAM.replace("        if list", "        raise ValueError('odd')\n        if list").replace("=4", "=1")
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "state"), str(tmp_path), *words],
        env={**cluster, "SECID_DEVICE": "cpu"}, cwd=tmp_path, text=True, capture_output=True, timeout=240,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert "NotEvaluatedError: score 0/1: failed 3 times on Ray, ValueError: odd" in done.stderr
    assert done.stderr.count("failed (ValueError); trying again") == 2


@needs_ray
def test_an_address_that_does_not_answer_is_an_error_within_seconds(invoke, source, monkeypatch):
    words = ["score", source, "--encoder", "minilm", "--shards", 2, "--state-dir", "states", "--quiet"]
    began = time.monotonic()
    outcome = invoke(*words, "--on", "ray://127.0.0.1:1")
    assert (outcome.code, outcome.out) == (2, "")
    remedy = "  start the cluster, or name its address: --on ray://HOST:PORT\n"
    assert outcome.err == f"secid: ray://127.0.0.1:1: Ray does not answer: Connection refused\n{remedy}"
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    outcome = invoke(*words, "--on", "ray")
    assert outcome.err == f"secid: 127.0.0.1:1: Ray does not answer: Connection refused\n{remedy}"
    assert time.monotonic() - began < 20


def test_what_cannot_run_is_refused_before_ray_starts(invoke, source, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    whole = ["--on", "ray", "--shards", 2, "--state-dir", "states"]

    def refused(*words):
        outcome = invoke("score", source, "--encoder", "minilm", "--quiet", *words)
        assert (outcome.code, outcome.out) == (2, "")
        return outcome.err

    assert "pip install 'secid[ray]'" in refused(*whole)
    for words in (whole[:2], whole[2:4], whole[:4], whole[2:]):
        assert "--on ray --shards 8 --state-dir URL" in refused(*words)
    assert refused("--on", "dask", *whole[2:]).startswith(
        "secid: --on: unknown cluster 'dask'\n  use ray, or ray://HOST:PORT"
    )
    assert refused("--on", "ray", "--shards", 0, *whole[4:]).startswith(
        "secid: --shards: 0 is too small\n  give at least 1"
    )
    assert refused(*whole, "--prepare").startswith("secid: --prepare: ")
    assert refused(*whole, "--shard", "0/2").startswith("secid: --shard: ")
    assert refused(*whole, "--max-records", 5).startswith("secid: --max-records: ")
    assert refused(*whole, "--encoder", "e5-base").startswith("secid: --encoder: ")
    assert refused("-", *whole).startswith("secid: -: ")
    Path("run").mkdir()
    assert refused(*whole, "--run", "run").startswith("secid: run: already exists")
