"""The policy: where it is read, what it refuses and with which words, and that it loads nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from secid.errors import SettingsError, UsageError
from secid.gating.policy import CHECK_NAMES, Policy, parse_policy, policy_schema, read_policy
from secid.settings import resolve


@pytest.mark.parametrize(
    ("table", "told", "remedy"),
    [
        ({"minimum_record": 5}, "unknown key 'minimum_record'", "did you mean 'minimum_records'?"),
        ({"findings": {"repeats": 0.1}}, "unknown key 'findings.repeats'", "did you mean 'repeat'?"),
        ({"findings": {"zzz": 0.1}}, "unknown key 'findings.zzz'", "known: false_negative, near_copy"),
        ({"findings": {"empty": 1.5}}, "findings.empty = 1.5 is not allowed", '"off"'),
        ({"findings": {"empty": True}}, "findings.empty = True is not allowed", '"off"'),
        ({"score": {"tolerance_nats": "none"}}, "score.tolerance_nats = 'none' is not allowed", '"off"'),
        ({"score": {"against": "first"}}, "score.against = 'first' is not allowed", None),
        ({"score": {"against": "named"}}, "score.named is not given", None),
        ({"controls": {"differ_from": ["bm25"]}}, "controls.differ_from = 'bm25' is not allowed", None),
        ({"diversity": {"budget": 5}}, "diversity.budget = 5 is not allowed", None),
        ({"allow_not_evaluated": ["scor"]}, "names no check: 'scor'", "did you mean 'score'?"),
        ({"minimum_records": 0}, "minimum_records = 0 is not allowed", None),
        ({"score": 3}, "score = 3 is not allowed", None),
        ({"score": "off"}, "score = 'off' is not allowed: it is a table", "write [gate.score]"),
        ({"controls": {"differ_from": ["random", "random"]}}, "names a control twice: random, random", "each once"),
        ([], "expected a table", None),
    ],
)
def test_refusals(table, told, remedy):
    with pytest.raises(SettingsError) as caught:
        parse_policy(table, "secid.toml")
    assert caught.value.where == "secid.toml"
    assert told in caught.value.message
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


def test_a_file_that_is_not_there_or_is_no_toml(tmp_path):
    with pytest.raises(UsageError, match="no such policy file"):
        read_policy(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("= 3", encoding="utf-8")
    with pytest.raises(SettingsError, match="not valid TOML"):
        read_policy(tmp_path / "bad.toml")


def test_the_schema_names_every_key():
    schema = policy_schema()
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(Policy.model_fields)
    assert "description" in schema["$defs"]["FindingsPolicy"]["properties"]["preamble"]


def test_every_table_has_its_checks():
    assert {"score", "means.locality", "findings.empty", "controls.shuffled", "diversity", "drift.close"} <= {
        *CHECK_NAMES
    }


def test_it_loads_nothing_heavy():
    code = "import sys, secid.gating.policy\nprint([m for m in ('torch', 'numpy', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_off_is_offered_only_where_it_is_allowed():
    for table, offered in (({"minimum_records": "off"}, False), ({"means": {"coverage_maximum": "of"}}, True)):
        with pytest.raises(SettingsError) as caught:
            parse_policy(table, "secid.toml")
        assert ('"off"' in (caught.value.remedy or "")) is offered


@pytest.mark.parametrize("against", ["own", "best", "median"])
def test_a_named_source_that_would_not_be_used_is_told(against):
    with pytest.raises(SettingsError, match=r"score\.named .* score\.against") as caught:
        parse_policy({"score": {"named": "bm25", "against": against}}, "secid.toml")
    assert 'against = "named"' in (caught.value.remedy or "")


def test_a_settings_file_without_a_policy_is_told(tmp_path):
    for name, text, table in (
        ("secid.toml", "seed = 1\n", "[gate]"),
        ("pyproject.toml", '[project]\nname = "x"\n', "[tool.secid.gate]"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(SettingsError) as caught:
            read_policy(tmp_path / name)
        assert f"no {table}" in caught.value.message
    (tmp_path / "pyproject.toml").write_text("[tool.secid.gate]\nminimum_records = 9\n", encoding="utf-8")
    assert read_policy(tmp_path / "pyproject.toml")[0].minimum_records == 9


def test_a_table_with_letters_swapped_is_told(tmp_path):
    (tmp_path / "p.toml").write_text("[gaet]\nminimum_records = 9\n", encoding="utf-8")
    with pytest.raises(SettingsError, match="key 'gaet'") as caught:
        read_policy(tmp_path / "p.toml")
    assert caught.value.remedy == "did you mean 'gate'?"
    (tmp_path / "p.toml").rename(tmp_path / "secid.toml")
    with pytest.raises(SettingsError, match="setting 'gaet'") as caught:
        resolve({}, environment={}, directory=tmp_path)
    assert caught.value.remedy == "did you mean 'gate'?"


@pytest.mark.parametrize(
    ("name", "text", "told", "remedy"),
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
def test_a_limit_beside_the_policy_is_refused(tmp_path, name, text, told, remedy):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=f"{told} .*beside") as caught:
        read_policy(tmp_path / name)
    assert caught.value.remedy == remedy


def test_settings_and_tables_of_others_may_stand_beside_the_policy(tmp_path):
    others = "[tool.coverage]\nx = 1\n[project]\nname = 'x'\n[build]\n[score-card]\n[dist]\n"
    for name, text in (
        ("p.toml", "title = 'limits'\n[gate]\nminimum_records = 9\n" + others),
        ("secid.toml", "seed = 1\ncontrols = 'random'\n[gate]\nminimum_records = 9\n"),
        ("pyproject.toml", "[findings]\n[tool.secid]\nseed = 1\n[tool.secid.gate]\nminimum_records = 9\n" + others),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert read_policy(tmp_path / name)[0].minimum_records == 9


def test_a_pipe_is_no_policy(tmp_path):
    os.mkfifo(tmp_path / "p.toml")
    with pytest.raises(UsageError, match="pipe"):
        read_policy(tmp_path / "p.toml")
