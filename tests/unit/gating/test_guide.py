"""Suspects in the gate: of the same guide alone, and of a new source a notice."""

from __future__ import annotations

import pytest

from secid import api
from secid.gating.baseline import read_baseline
from secid.gating.limits import limits_for
from secid.gating.policy import Policy
from tests.fake_encoder import HashEncoder, PieceEncoder
from tests.oracle.test_guide import vectors
from tests.unit.scoring.made_rows import clean_rows, write


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A baseline under a guide, its source under its own and under a new name, and two guides."""
    folder = tmp_path_factory.mktemp("gate")
    rows = clean_rows(150)
    guide, other = (str(vectors(folder / f"{d}.npz", rows, HashEncoder(d))) for d in (24, 12))
    for name in ("mined", "new"):
        write(folder / f"{name}.jsonl", rows)
    own = {"encoder": PieceEncoder(), "controls": "none", "cache": False, "guide": guide}
    api.score([folder / "mined.jsonl"], run=folder / "run", **own)
    api.baseline(folder / "run", folder / "baseline.json")
    return folder, guide, other


def suspects(files, source: str, guide: str | None):
    folder, *_ = files
    verdict = api.gate(
        [folder / source], folder / "baseline.json", encoder=PieceEncoder(), policy={}, cache=False, guide=guide
    )
    return next((check for check in verdict.sources[0].checks if check.name == "findings.suspect"), None)


def test_suspects_are_held_against_the_predecessor_of_the_same_guide(files):
    _, guide, other = files
    check = suspects(files, "mined.jsonl", guide)
    assert (check.outcome, check.notice, check.reference) == ("pass", False, "mined")
    assert suspects(files, "mined.jsonl", other) is None
    assert suspects(files, "mined.jsonl", None) is None


def test_suspects_of_a_new_source_are_a_notice(files):
    _, guide, _ = files
    check = suspects(files, "new.jsonl", guide)
    assert check.outcome == "pass"
    folder, *_ = files
    bounds = limits_for(Policy(), read_baseline(folder / "baseline.json"), None).bounds
    assert bounds["findings.suspect"].notice
