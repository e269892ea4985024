"""Suspects in the gate: of the same guide alone, and of a new source a notice."""

from __future__ import annotations

import json
import shutil
from xml.etree import ElementTree

import numpy as np
import pytest

from secid import api
from secid.errors import UsageError
from secid.pages.formats import to_markdown
from secid.pages.gate_ci import to_junit
from secid.pages.gate_page import gate_page
from secid.pages.glossary import reason_text
from secid.results.document import json_of
from secid.tools.gating.baseline import read_baseline
from secid.tools.gating.limits import limits_for
from secid.tools.gating.policy import Policy
from tests.fake_encoder import PieceEncoder
from tests.oracle.test_guide import encoder_of, vectors
from tests.snapshots import refusal
from tests.unit.scoring.made_rows import clean_rows, write


def planted(rows, n_suspect=1):
    """Vectors in which the first negatives of a row lie along its query, the others along the next."""
    axes = np.eye(len(rows) + 1) + 0.02 * np.random.default_rng(0).random((len(rows) + 1, len(rows) + 1))
    return {
        text: axes[place + (at > n_suspect + 1)] + 0.001 * at
        for place, row in enumerate(rows)
        for at, text in enumerate((row["query"], *row["pos"], *row["neg"]))
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write a baseline with a guide, its source under its name and a new one, and two guides."""
    folder = tmp_path_factory.mktemp("gate")
    rows = clean_rows(150)
    table = planted(rows)
    guides = {"guide": encoder_of(table), "other": encoder_of({text: [*row, 0.0] for text, row in table.items()})}
    guide, other = (str(vectors(folder / f"{name}.npz", rows, own)) for name, own in guides.items())
    for name in ("mined", "new"):
        write(folder / f"{name}.jsonl", rows)
    own = {"encoder": PieceEncoder(), "controls": "none", "cache": False, "guide": guide}
    api.score([folder / "mined.jsonl"], run=folder / "run", **own)
    api.baseline(folder / "run", folder / "baseline.json")
    return folder, guide, other


def judged(files, source, guide: str | None, policy=()):
    folder, *_ = files
    own = {"encoder": PieceEncoder(), "policy": dict(policy), "cache": False, "guide": guide}
    return api.gate([folder / source], folder / "baseline.json", **own)


def suspects(files, source, guide: str | None, policy=()):
    checks = judged(files, source, guide, policy).sources[0].checks
    return next((check for check in checks if check.name == "findings.suspect"), None)


def test_suspects_are_held_against_the_predecessor_of_the_same_guide(files):
    _, guide, other = files
    check = suspects(files, "mined.jsonl", guide)
    assert (check.outcome, check.notice, check.reference) == ("pass", False, "mined")
    assert suspects(files, "mined.jsonl", None) == check  # the baseline's guide, by its name
    check = suspects(files, "mined.jsonl", other)
    assert (check.outcome, check.reason, check.measured) == ("undecided", "other_guide", None)


def test_another_guide_scores_nothing_and_every_page_lists_the_check(files, monkeypatch):
    *_, other = files
    monkeypatch.setattr("secid.scoring.stages.guide_scores", lambda *_: pytest.fail("a forward pass"))
    verdict = judged(files, "mined.jsonl", other)
    assert (verdict.outcome, verdict.guide) == ("undecided", None)
    assert "suspect" not in {finding.name for finding in verdict.sources[0].report.findings}
    for page in (to_markdown(gate_page(verdict)), json_of(verdict), to_junit(verdict)):
        assert "findings.suspect" in page
    case = ElementTree.fromstring(to_junit(verdict)).find(".//testcase[@name='findings.suspect']/error")
    assert reason_text("other_guide") in case.get("message")
    for policy, outcome in (
        ({"findings": {"suspect": "off"}}, "pass"),
        ({"allow_undecided": ["findings.suspect"]}, "pass"),
    ):
        assert judged(files, "mined.jsonl", other, policy).outcome == outcome
    assert judged(files, "mined.jsonl", None, {"findings": {"suspect": "off"}}).guide is None


def test_a_limit_of_the_policy_holds_for_any_guide(files):
    _, _, other = files
    verdict = judged(files, "mined.jsonl", other, {"findings": {"suspect": 0.9}})
    (check,) = (check for check in verdict.sources[0].checks if check.name == "findings.suspect")
    assert (check.outcome, check.basis, verdict.guide) == ("pass", "policy", other)


def test_a_baseline_without_a_guide_has_nothing_to_compare_suspects_with(files, tmp_path):
    folder, guide, _ = files
    api.score([folder / "mined.jsonl"], run=tmp_path / "run", encoder=PieceEncoder(), controls="none", cache=False)
    api.baseline(tmp_path / "run", tmp_path / "baseline.json")
    check = suspects((tmp_path,), folder / "mined.jsonl", guide)
    assert (check.outcome, check.reason) == ("undecided", "no_guide_before")
    assert suspects((tmp_path,), folder / "mined.jsonl", None) is None


def test_a_baseline_that_has_its_guide_s_name_no_more_checks_no_suspects(files, tmp_path):
    folder, *_ = files
    document = json.loads((folder / "baseline.json").read_text(encoding="utf-8"))
    document["settings"] = {name: value for name, value in document["settings"].items() if "guide" not in name}
    (tmp_path / "baseline.json").write_text(json.dumps(document), encoding="utf-8")
    shutil.copy(folder / "baseline.idf.safetensors", tmp_path)
    check = suspects((tmp_path,), folder / "mined.jsonl", None)
    assert (check.outcome, check.reason) == ("undecided", "no_guide")


def test_suspects_of_a_new_source_are_a_notice(files):
    _, guide, _ = files
    check = suspects(files, "new.jsonl", guide)
    assert check.outcome == "pass"
    folder, *_ = files
    bounds = limits_for(Policy(), read_baseline(folder / "baseline.json"), None).bounds
    assert bounds["findings.suspect"].notice


def test_suspects_of_a_guide_that_flags_random_passages_decide_nothing(files, tmp_path):
    """Under vectors of noise, more than a tenth of the random passages come near the positive or exceed it."""
    folder, *_ = files
    rows = clean_rows(150)
    draw = np.random.default_rng(0)
    blind = vectors(tmp_path / "blind.npz", rows, encoder_of({text: draw.normal(size=8) for text in planted(rows)}))
    check = suspects(files, "mined.jsonl", str(blind), {"findings": {"suspect": 0.9}})
    assert (check.outcome, check.reason, check.measured) == ("undecided", "guide_flags_random", None)
    run = api.score(
        [folder / "mined.jsonl"],
        run=tmp_path / "run",
        encoder=PieceEncoder(),
        controls="none",
        cache=False,
        guide=str(blind),
    )
    refused = refusal(
        lambda: api.select(tmp_path / "run", tmp_path / "out.jsonl", drop="suspect"), UsageError, "--drop"
    )
    assert f"{run.analyses['guide'].sources[0].n_random:,}" in refused
    assert not (tmp_path / "out.jsonl").exists()
