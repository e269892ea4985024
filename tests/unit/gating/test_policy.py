"""The policy: where it is read, what it rejects, and that it loads nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from secid.errors import SettingsError, UsageError
from secid.gating.policy import CHECK_NAMES, Policy, parse_policy, read_policy
from secid.results.document import schema_of
from secid.settings import resolve
from tests.snapshots import refusal


@pytest.mark.parametrize(
    ("table", "part", "remedy"),
    [
        ({"minimum_record": 5}, "unknown key 'minimum_record'", "did you mean 'minimum_records'?"),
        ({"findings": {"repeats": 0.1}}, "unknown key 'findings.repeats'", "did you mean 'repeat'?"),
        ({"findings": {"zzz": 0.1}}, "unknown key 'findings.zzz'", "known: false_negative, near_copy"),
        ({"findings": {"empty": 1.5}}, "findings.empty = 1.5 ", '"off"'),
        ({"findings": {"empty": True}}, "findings.empty = True ", '"off"'),
        ({"score": {"tolerance_nats": "none"}}, "score.tolerance_nats = 'none' ", '"off"'),
        ({"score": {"against": "first"}}, "score.against = 'first' ", None),
        ({"score": {"against": "named"}}, "score.named", None),
        ({"controls": {"differ_from": ["bm25"]}}, "controls.differ_from = 'bm25' ", None),
        ({"diversity": {"budget": 5}}, "diversity.budget = 5 ", None),
        ({"allow_not_evaluated": ["scor"]}, "'scor' in allow_not_evaluated", "did you mean 'score'?"),
        ({"minimum_records": 0}, "minimum_records = 0 ", None),
        ({"score": 3}, "score = 3 ", None),
        ({"score": "off"}, "score = 'off' ", "[gate.score]"),
        ({"controls": {"differ_from": ["random", "random"]}}, "controls.differ_from lists", "once"),
        ([], " list,", None),
    ],
)
def test_refusals(table, part, remedy):
    with pytest.raises(SettingsError) as caught:
        parse_policy(table, "secid.toml")
    assert caught.value.where == "secid.toml"
    assert part in caught.value.message
    if remedy is not None:
        assert remedy in (caught.value.remedy or "")


def test_where_it_is_read(tmp_path):
    assert read_policy(None, tmp_path) == (Policy(), "derived from the baseline")
    (tmp_path / "pyproject.toml").write_text("[tool.secid.gate]\nminimum_records = 7\n", encoding="utf-8")
    assert read_policy(None, tmp_path)[0].minimum_records == 7
    (tmp_path / "secid.toml").write_text("seed = 1\n", encoding="utf-8")
    assert read_policy(None, tmp_path)[0].minimum_records == 7
    (tmp_path / "secid.toml").write_text("[gate]\nminimum_records = 8\n", encoding="utf-8")
    assert read_policy(None, tmp_path)[0].minimum_records == 8
    for name, text in (("a.toml", "minimum_records = 9\n"), ("b.toml", "[gate]\nminimum_records = 9\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert read_policy(tmp_path / name)[0].minimum_records == 9


def test_a_missing_file_and_one_that_is_not_toml_are_refused(tmp_path):
    none, bad = tmp_path / "none.toml", tmp_path / "bad.toml"
    assert "secid gate --init" in refusal(lambda: read_policy(none), UsageError, none)
    bad.write_text("= 3", encoding="utf-8")
    assert "TOML" in refusal(lambda: read_policy(bad), SettingsError, bad)


def test_the_schema_names_every_key():
    schema = schema_of(Policy, "validation")
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(Policy.model_fields)
    assert "description" in schema["$defs"]["FindingsPolicy"]["properties"]["preamble"]


def test_every_table_has_its_checks():
    assert {"score", "means.locality", "findings.empty", "controls.shuffled", "diversity", "drift.close"} <= {
        *CHECK_NAMES
    }


def test_it_loads_nothing_heavy():
    code = "import sys, secid.gating.policy\nprint([m for m in ('torch', 'numpy', 'pyarrow') if m in sys.modules])"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "[]"


def test_off_is_offered_only_where_it_is_allowed():
    for table, offered in (({"minimum_records": "off"}, False), ({"means": {"coverage_maximum": "of"}}, True)):
        with pytest.raises(SettingsError) as caught:
            parse_policy(table, "secid.toml")
        assert ('"off"' in (caught.value.remedy or "")) is offered


@pytest.mark.parametrize("against", ["own", "best", "median"])
def test_a_named_source_that_would_not_be_used_is_refused(against):
    with pytest.raises(SettingsError, match=r"score\.named .* score\.against") as caught:
        parse_policy({"score": {"named": "bm25", "against": against}}, "secid.toml")
    assert 'against = "named"' in (caught.value.remedy or "")


def test_a_settings_file_without_a_policy_is_refused(tmp_path):
    for name, text, table in (
        ("secid.toml", "seed = 1\n", "[gate]"),
        ("pyproject.toml", '[project]\nname = "x"\n', "[tool.secid.gate]"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        path = tmp_path / name
        message = refusal(lambda path=path: read_policy(path), SettingsError, path)
        assert all(part in message for part in (f" {table} ", "secid gate --init --policy"))
    (tmp_path / "pyproject.toml").write_text("[tool.secid.gate]\nminimum_records = 9\n", encoding="utf-8")
    assert read_policy(tmp_path / "pyproject.toml")[0].minimum_records == 9


def test_a_table_with_letters_swapped_is_refused(tmp_path):
    (tmp_path / "p.toml").write_text("[gaet]\nminimum_records = 9\n", encoding="utf-8")
    with pytest.raises(SettingsError, match="key 'gaet'") as caught:
        read_policy(tmp_path / "p.toml")
    assert caught.value.remedy == "did you mean 'gate'?"
    (tmp_path / "p.toml").rename(tmp_path / "secid.toml")
    with pytest.raises(SettingsError, match="setting 'gaet'") as caught:
        resolve({}, environment={}, directory=tmp_path)
    assert caught.value.remedy == "did you mean 'gate'?"


@pytest.mark.parametrize(
    ("name", "text", "key", "remedy"),
    [
        ("p.toml", "[gate]\n[findings]\nempty = 0.0\n", "'findings'", "did you mean 'gate.findings'?"),
        ("p.toml", "[gate]\n[finding]\nempty = 0.0\n", "'finding'", "did you mean 'gate.findings'?"),
        ("p.toml", "minimum_records = 9\n[gate]\n", "'minimum_records'", "did you mean 'gate.minimum_records'?"),
        ("p.toml", "[gate]\n[controls]\nrelatedness_minimum = 0.5\n", "'controls'", "did you mean 'gate.controls'?"),
        ("secid.toml", "[gate]\n[findings]\nempty = 0.0\n", "'findings'", "did you mean 'gate.findings'?"),
        (
            "pyproject.toml",
            "[tool.secid.gate]\n[tool.secid.drift]\nclose = 0.1\n",
            "'tool.secid.drift'",
            "did you mean 'tool.secid.gate.drift'?",
        ),
    ],
)
def test_a_limit_outside_the_policy_is_refused(tmp_path, name, text, key, remedy):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=f": {key} .*outside") as caught:
        read_policy(tmp_path / name)
    assert caught.value.remedy == remedy


def test_settings_and_tables_of_other_tools_are_allowed_outside_the_policy(tmp_path):
    others = "[tool.coverage]\nx = 1\n[project]\nname = 'x'\n[build]\n[score-card]\n[dist]\n"
    for name, text in (
        ("p.toml", "title = 'limits'\n[gate]\nminimum_records = 9\n" + others),
        ("secid.toml", "seed = 1\ncontrols = 'random'\n[gate]\nminimum_records = 9\n"),
        ("pyproject.toml", "[findings]\n[tool.secid]\nseed = 1\n[tool.secid.gate]\nminimum_records = 9\n" + others),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert read_policy(tmp_path / name)[0].minimum_records == 9


def test_a_pipe_is_not_a_policy(tmp_path):
    os.mkfifo(tmp_path / "p.toml")
    assert "pipe" in refusal(lambda: read_policy(tmp_path / "p.toml"), UsageError, tmp_path / "p.toml")
