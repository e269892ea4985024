"""`secid report`: what is read, what is written, and what is refused."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from secid.analyses.registry import read_run
from tests.cli.conftest import FIXTURES, listing
from tests.unit.pages.samples import GOLDEN


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run").mkdir()
    shutil.copy(GOLDEN / "1.0.json", tmp_path / "run" / "report.json")
    return "run"


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "-o", "a.html", "--out", "b.md"],
        ["-o", "a.html", "run/report.json", "-o", "b.md"],
    ],
)
def test_one_run_gives_several_pages(run, arguments, invoke):
    outcome = invoke("report", *arguments)
    assert outcome.code == 0
    sizes = [f"wrote {name}: {Path(name).stat().st_size:,} bytes" for name in ("a.html", "b.md")]
    assert (outcome.out, outcome.err.splitlines()) == ("", sizes)
    assert listing(".") == ["a.html", "b.md", "run"]


def test_several_runs_and_several_files(run, tmp_path, invoke):
    shutil.copytree(tmp_path / run, tmp_path / "other")
    assert invoke("report", run, "other", "-o", "a.html", "-o", "b.md", "-o", "c.json").code == 0
    assert listing(".") == ["a.html", "b.md", "c.json", "other", "run"]


@pytest.mark.parametrize("named", ["run", "run/report.json"])
def test_a_report_is_never_written_over(run, named, invoke):
    """Written by a newer version, it may hold fields that reading leaves out."""
    path = Path("run/report.json")
    newer = json.loads(path.read_text(encoding="utf-8")) | {"schema_version": "1.7", "later": 1}
    path.write_text(json.dumps(newer), encoding="utf-8")
    before = path.read_bytes()
    outcome = invoke("report", named, "-o", "a.html", "-o", "run/report.json")
    assert outcome.code == 2
    assert "run/report.json: is also an input and would be overwritten" in outcome.err
    assert path.read_bytes() == before
    assert listing(".") == ["run"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "a.html"], "-o a.html"),
        (["run", "-o", "a.html", "b.json"], "-o b.json"),
        (["-o", "a.html", "b.md"], "-o b.md"),
        (["run", "-o", "a.pdf"], ".html, .json, .md"),
        (["nothing", "-o", "a.html"], "nothing: cannot read the report"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_type(run, arguments, said, invoke):
    outcome = invoke("report", *arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert listing(".") == ["run"]


@pytest.mark.parametrize("command", [["report", "bad.json"], ["compare", "bad.json", "--against", "table.csv"]])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema_version": "2\\u001b[31m"}', "version 2\ufffd[31m"),
        ("[" * 100_000, "not a secid report"),
        ("no sources", "it has no sources"),
    ],
    ids=["escapes", "deep", "no sources"],
)
def test_a_report_that_is_none_is_refused_in_harmless_words(tmp_path, invoke, monkeypatch, command, text, said):
    monkeypatch.chdir(tmp_path)
    if text == "no sources":
        document = json.loads((GOLDEN / "1.0.json").read_text(encoding="utf-8"))
        text = json.dumps(document | {"sources": []})
    (tmp_path / "bad.json").write_text(text, encoding="utf-8")
    (tmp_path / "table.csv").write_text("source,ndcg\na,1\n", encoding="utf-8")
    outcome = invoke(*command)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert "\x1b" not in outcome.err


def test_commands_name_the_folder_as_it_was_typed(run, tmp_path, invoke):
    (tmp_path / run / "negatives.parquet").touch()
    for folder in (run, str(tmp_path / run)):
        out = invoke("report", folder).out
        commands = [
            line.split() for line in out.splitlines() if line.strip().startswith(("secid select", "secid flag"))
        ]
        assert {words[2] for words in commands} == {folder}
        assert f"report: {folder}/report.html" in out


def test_json_is_the_document_that_a_file_would_hold(run, tmp_path, invoke):
    shutil.copytree(tmp_path / run, tmp_path / "other")
    for runs in ((run,), (run, "other")):
        outcome = invoke("report", *runs, "--json", "-o", f"{len(runs)}.json")
        assert outcome.code == 0
        assert outcome.out == Path(f"{len(runs)}.json").read_text(encoding="utf-8")
        assert json.loads(outcome.out)["schema_version"]


def test_metrics_are_the_numbers_of_the_report_and_nothing_else(run, invoke):
    report = json.loads(Path("run/report.json").read_text(encoding="utf-8"))
    report["sources"][0]["hardness"] = None
    Path("run/report.json").write_text(json.dumps(report), encoding="utf-8")
    assert invoke("report", run, "-o", "metrics.json", "-o", "a.metrics.json", "-o", "no-metrics.json").code == 0
    text = Path("metrics.json").read_text(encoding="utf-8")
    expected = {}
    for source in report["sources"]:
        shares = {f"findings.{item['name']}": item["share"] for item in source["findings"]}
        of_score = {f"eci_{key}" if key in ("nats", "per_dimension") else key: v for key, v in source["score"].items()}
        of_hardness = {"value": "hardness", "interval_95": "hardness_interval_95", "n_queries": "hardness_queries"}
        hardness = {of_hardness[key]: value for key, value in (source["hardness"] or {}).items()}
        values = source | source["rows"] | of_score | hardness
        numbers = {key: value for key, value in values.items() if type(value) in (int, float)}
        ends = {key: value for key, value in values.items() if key.endswith("interval_95") and value}
        numbers |= {f"{key}_{end}": value[end == "high"] for key, value in ends.items() for end in ("low", "high")}
        expected |= {f"{source['name']}/{key}": value for key, value in (numbers | shares).items()}
    assert json.loads(text) == expected == read_run(run).metrics()
    assert list(json.loads(text)) == sorted(expected)
    first, second = (source["name"] for source in report["sources"][:2])
    assert f"{first}/hardness" not in expected
    assert {f"{second}/hardness", f"{second}/findings.false_negative"} <= expected.keys()
    assert Path("a.metrics.json").read_text(encoding="utf-8") == text
    assert "schema_version" in json.loads(Path("no-metrics.json").read_text(encoding="utf-8"))


def test_a_number_that_is_not_finite_is_not_a_metric(run):
    whole = read_run(run)
    damaged = replace(whole.sources[0].score, trace=math.nan, frobenius=math.inf)
    broken = replace(whole, sources=(replace(whole.sources[0], score=damaged),))
    lost = {f"{whole.sources[0].name}/{name}" for name in ("trace", "frobenius")}
    alone = replace(whole, sources=whole.sources[:1])
    assert alone.metrics().keys() - broken.metrics().keys() == lost


def test_several_runs_and_other_results_have_no_metrics(run, tmp_path, invoke):
    shutil.copytree(tmp_path / run, tmp_path / "other")
    for arguments in (("report", run, "other"), ("check", FIXTURES / "sources" / "poisoned.jsonl")):
        outcome = invoke(*arguments, "-o", "metrics.json")
        assert (outcome.code, "only for a single run" in outcome.err, Path("metrics.json").exists()) == (2, True, False)
