"""SIGKILL while a run encodes: the next resumes, repeats nothing that was finished, and ends with the same report."""

from __future__ import annotations

import copy
import random
import shutil
import sys

import pytest

from tests.cli.conftest import FIXTURES, listing
from tests.kills import Killable, differences, kill
from tests.tiny_bert import save_tiny_bert

KILLS = 2
SEED = 7

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a POSIX signal")


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Return a job that scores the fixtures with an encoder that takes a second or two."""
    folder = tmp_path_factory.mktemp("kill")
    encoder = save_tiny_bert(folder / "encoder", width=128, layers=3)
    return Killable(folder, encoder, [FIXTURES / "sources" / name for name in ("random.jsonl", "dense.parquet")])


@pytest.fixture
def expected(job, invoke):
    """Return the report of a run without interruptions. The cache is empty after it."""
    if job.report("undisturbed") is None:
        assert invoke(*job.arguments("undisturbed")).code == 0
        shutil.rmtree(job.cache)
    return job.report("undisturbed")


def test_killed_runs_resume_repeat_nothing_and_end_with_the_same_report(job, expected, invoke):
    generator = random.Random(SEED)
    kept = 0
    for _ in range(KILLS):
        before = job.n_sealed()
        child = job.fork("killed")
        job.wait_for_rows(before + generator.randint(0, 100), child)
        assert kill(child)
        rows = job.n_rows()
        assert rows > kept
        assert job.report("killed") is None
        (left,) = [name for name in listing(job.folder / "runs") if name != "undisturbed"]
        assert left.startswith(".partial-")  # of the one before nothing is left
        kept = rows
    assert invoke(*job.arguments("killed")).code == 0
    assert listing(job.folder / "runs") == ["killed", "undisturbed"]
    report = job.report("killed")
    encode = report["timing"]["encode"]
    assert (encode["n_cached"], encode["n_encoded"]) == (kept, expected["timing"]["encode"]["n_texts"] - kept)
    assert 0 < kept < encode["n_texts"]
    assert differences(expected, report) == []


def test_two_runs_at_once_on_one_cache_are_both_right(job, expected, invoke):
    """One is a child, the other starts here when the child has sealed its first rows."""
    shutil.rmtree(job.cache, ignore_errors=True)
    child = job.fork("left")
    job.wait_for_rows(0, child)
    assert invoke(*job.arguments("right")).code == 0
    _, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    for run in ("left", "right"):
        assert differences(expected, job.report(run)) == []


def test_the_comparison_of_reports_can_fail(expected):
    other = copy.deepcopy(expected)
    other["timing"]["encode"]["n_texts"] += 1
    assert differences(expected, other) == []
    other["sources"][0]["score"]["nats"] *= 1.001
    other["sources"][1]["rows"]["n_used"] += 1
    del other["controls"][0]
    assert len(differences(expected, other)) == 3
