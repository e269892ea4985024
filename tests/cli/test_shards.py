"""`secid score --shard` and `secid merge` as typed, and a shard that is killed. Source: METHOD 11."""

from __future__ import annotations

import json
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import secid
from tests.cli.conftest import listing, rows, write_rows
from tests.fake_encoder import HashEncoder
from tests.kills import fork
from tests.shard_runs import differences, score_shard_and_die, write_sources


def sources(folder: Path) -> tuple[list[Path], int]:
    """Two files over the same queries, one with copies of positives, and the number of their distinct texts."""
    sound, spoiled = list(rows(16, 3)), list(rows(16, 3, "spoiled"))
    for row in spoiled[::2]:
        row["neg"][:2] = [row["pos"][0], "one passage for all of them"]
    texts = {text for row in [*sound, *spoiled] for text in (row["query"], *row["pos"], *row["neg"])}
    paths = [write_rows(folder / f"{name}.jsonl", table) for name, table in (("sound", sound), ("spoiled", spoiled))]
    return paths, len(texts)


def test_shards_and_their_merge(invoke: Any, tmp_path: Path) -> None:
    state = tmp_path / "state"
    files, n_texts = sources(tmp_path)
    score = ("score", *files, "--encoder", "minilm", "--state-dir", state)
    for shard in ("0/2", "1/2"):
        counted = invoke(*score, "--shard", shard, "--prepare")
        assert (counted.code, counted.out) == (0, "")
    assert "wrote counts-00001-of-00002: 2 of 2" in counted.err
    first = invoke(*score, "--shard", "0/2", "--run", "first")
    assert (first.code, first.out) == (0, "")
    assert "wrote shard-00000-of-00002: 1 of 2" in first.err
    missing = invoke("merge", state)
    assert (missing.code, missing.out) == (2, "")
    assert "shard 1/2 is missing" in missing.err
    second = invoke(*score, "--shard", "1/2")
    assert f"All shards are done. Next: secid merge {state}" in second.err
    assert "already exists" in invoke(*score, "--shard", "1/2").err
    merged = invoke("merge", state, "--json", "--run", "merged", "-o", "metrics.json")
    assert merged.code == 0
    whole = invoke("score", *files, "--encoder", "minilm", "--json", "--run", "whole")
    own, other = (json.loads(outcome.out) for outcome in (whole, merged))
    held = other["merged"].pop("n_texts_held")
    assert n_texts < held < 2 * n_texts
    assert other["merged"] == {"n_shards": 2, "n_texts": n_texts, "sampled_queries": None}
    for a, b in zip(own["sources"], other["sources"], strict=True):
        assert a["name"] == b["name"]
        assert a["score"]["nats"] == pytest.approx(b["score"]["nats"], rel=1e-6)
    assert "metrics.json" in listing(tmp_path)
    assert (
        f"Together they encoded {held / n_texts:.2f} times the {n_texts}"
        in (tmp_path / "merged" / "report.html").read_text()
    )
    clean = invoke("select", "first", "--source", "spoiled", "--drop", "false_negative", "-o", "clean.jsonl")
    assert clean.code == 0
    assert invoke("merge", state, "--sample", 5).code == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--shard", "0/2"], "needs a folder for states"),
        (["--state-dir", "state"], "needs a part of the queries"),
        (["--prepare"], "needs a folder of states"),
        (["--shard", "0/2", "--state-dir", "state", "-o", "page.html"], "a shard has no report"),
        (["--shard", "0/2", "--state-dir", "state", "--json"], "a shard has no report"),
        (["--shard", "0/2", "--state-dir", "state", "--encoder", "other"], "shards are scored with one encoder"),
        (["--shard", "0/2", "--state-dir", "state", "--prepare", "--run", "run"], "--prepare writes no run folder"),
        (["--shard", "0/2", "--state-dir", "nowhere://bucket"], "nowhere"),
    ],
)
def test_wrong_use_of_shards(invoke: Any, source: Path, tmp_path: Path, flags: list[str], message: str) -> None:
    outcome = invoke("score", source, "--encoder", "minilm", *flags)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in " ".join(outcome.err.split())
    assert listing(tmp_path) == ["small.jsonl"]


def test_wrong_use_of_merge(invoke: Any) -> None:
    outcome = invoke("merge", "nothing", "--sample", 0)
    assert outcome.code == 2
    assert "give a number from 1 to 100,000" in outcome.err


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a POSIX signal")
def test_a_killed_shard_leaves_nothing_that_counts(tmp_path: Path) -> None:
    sources = write_sources(tmp_path / "sources", n_queries=60)
    state = tmp_path / "state"
    for n_texts in (0, 1, 100):
        child = fork([*sources, "0/2", state], tmp_path, tmp_path / "said", partial(score_shard_and_die, n_texts))
        child.communicate()
        assert child.returncode == -signal.SIGKILL
        names = listing(state) if state.exists() else []
        assert not [name for name in names if name.startswith("shard")]
    for shard in ("0/2", "1/2"):
        secid.score_shard(sources, HashEncoder(), shard=shard, state_dir=state, sums="float64", max_bad_fraction=0.2)
    merged = secid.merge(state, HashEncoder())
    assert differences(secid.score(sources, HashEncoder(), sums="float64", max_bad_fraction=0.2), merged) == []


def test_a_full_disk_is_an_error_that_names_the_folder(invoke: Any, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "small.jsonl", rows(8))
    (tmp_path / "state").write_text("a file where the folder should be")
    outcome = invoke("score", path, "--encoder", "minilm", "--shard", "0/1", "--state-dir", "state")
    assert outcome.code == 2
    assert "state" in outcome.err
