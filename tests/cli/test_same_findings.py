"""`secid check`, `secid score` and `secid gate` state the same findings of the same file."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from secid.results.catalogue import TEXT_FINDINGS
from secid.results.check import CHECKED_FINDINGS
from tests.cli.conftest import FIXTURES, Invoke, rows, write_rows
from tests.unit.findings.test_summary import with_everything

OF_ROWS = ("inversion", "low_locality", "random_like")
"""Findings that need an encoder and no document frequencies, which a gate takes from its baseline."""
Stated = dict[str, tuple[int, float, float, list[float], list[tuple[str, int]]]]


def stated(document: str, name: str, findings: Collection[str] = CHECKED_FINDINGS) -> Stated:
    """n, share, its error, interval and places of examples of each finding."""
    sources = (source.get("report", source) for source in json.loads(document)["sources"])
    (source,) = (source for source in sources if source["name"] == name)

    def one(finding: dict[str, Any]) -> Any:
        places = [(Path(example["path"]).name, example["line"]) for example in finding["examples"]]
        return finding["n_negatives"], finding["share"], finding["standard_error"], finding["interval_95"], places

    return {finding["name"]: one(finding) for finding in source["findings"] if finding["name"] in findings}


def test_one_file_under_three_commands(tiny, tmp_path, invoke: Invoke):
    source, base = write_rows(tmp_path / "own.jsonl", with_everything()), write_rows(tmp_path / "base.jsonl", rows(40))
    check = invoke("check", source, "--json", "--quiet")
    encoder = ("--encoder", tiny, "--set", "max_bad_fraction=1", "--quiet")
    score = invoke("score", source, "--json", "--run", "run", *encoder)
    assert (check.code, score.code) == (0, 0), score.err
    assert stated(score.out, "own") == stated(check.out, "own")
    assert all(n and places for n, *_, places in stated(check.out, "own").values())
    assert invoke("score", base, "--run", "base", *encoder).code == 0
    assert invoke("baseline", "base", "-o", "baseline.json").code == 0
    gate = invoke("gate", source, "--against", "baseline.json", "--json", *encoder)
    assert gate.code == 1, gate.err
    assert stated(gate.out, "own") == stated(check.out, "own")
    assert len(stated(gate.out, "own", OF_ROWS)) == 3
    assert stated(gate.out, "own", OF_ROWS) == stated(score.out, "own", OF_ROWS)


def test_the_poisoned_fixture_among_the_others(fixture_run, invoke: Invoke):
    files = sorted((FIXTURES / "sources").iterdir())
    check = invoke("check", *files, "--json", "--quiet").out
    report = (fixture_run.folder / "report.json").read_text(encoding="utf-8")
    for name in ("bm25", "counterfactual", "dense", "poisoned", "random"):
        assert stated(report, name) == stated(check, name)
    counts = {name: n for name, (n, *_) in stated(check, "poisoned").items() if n}
    counts.pop("length")  # made-up texts are
    assert counts == {"false_negative": 37, "repeat": 16, "hub": 21}


def test_a_sample_has_the_findings_of_the_whole_file(tiny, tmp_path, invoke: Invoke):
    """One query drawn twice does not turn a clean source into one to repair."""
    clean = list(rows(400))
    sources = {"own": with_everything(), "clean": [*clean, {**clean[0], "neg": [*clean[0]["neg"]] * 2}]}
    files = [write_rows(tmp_path / f"{name}.jsonl", table) for name, table in sources.items()]
    check = invoke("check", *files, "--json", "--quiet").out
    options = ("--encoder", tiny, "--set", "max_bad_fraction=1", "--quiet", "--set", "controls=none")
    score = invoke("score", *files, "--json", "--run", "run", *options, "--max-records", 7)
    assert score.code == 0, score.err
    for name in sources:
        checked, scored = stated(check, name), stated(score.out, name)
        assert {key: scored[key] for key in TEXT_FINDINGS} == {key: checked[key] for key in TEXT_FINDINGS}
        status, again = (
            [{key: own[key] for key in ("status", "n_flagged", "flagged_share")} for own in json.loads(out)["sources"]]
            for out in (check, score.out)
        )
        assert sorted(status, key=str) == sorted(again, key=str)
    assert {own["name"]: own["status"] for own in json.loads(score.out)["sources"]}["clean"] == "no_defects"
    assert {item["n_rows"] for own in json.loads(score.out)["sources"] for item in own["findings"]} == {None, 0, 1}
