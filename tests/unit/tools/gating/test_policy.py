"""Test the files that hold a policy, what a policy rejects, and that reading one loads nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from secid.errors import SettingsError, UsageError
from secid.pages.explain import explained
from secid.results.document import json_schema
from secid.settings import resolve
from secid.tools.gating.policy import CHECK_NAMES, LIMITED_CHECKS, Policy, parse_policy, read_policy
from tests.snapshots import Snapshot, refusal, situations


@pytest.mark.parametrize(
    ("table", "part", "remedy"),
    [
        ({"minimum_querie": 5}, "unknown key 'minimum_querie'", "did you mean 'minimum_queries'?"),
        ({"score": {"tolerance_nats": 0.1}}, "unknown key 'score'", ""),
        ({"findings": {"repeats": 0.1}}, "unknown key 'findings.repeats'", "did you mean 'repeat'?"),
        ({"findings": {"zzz": 0.1}}, "unknown key 'findings.zzz'", "known: false_negative, near_copy"),
        ({"findings": {"empty": True}}, "findings.empty = True ", '"off"'),
        ({"drift": {"score_nats": "none"}}, "drift.score_nats = 'none' ", '"off"'),
        ({"hardness_minimum": "none"}, "hardness_minimum = 'none' ", '"off"'),
        ({"new_source": "review"}, "new_source = 'review' ", None),
        ({"defects_maximum": 1.0}, "defects_maximum = 1.0 ", None),
        ({"names": {"a": 3}}, "names", None),
        ({"minimum_queries": 0}, "minimum_queries = 0 ", None),
        ([], "got list", None),
    ],
)
def test_refusals(table, part, remedy):
    with pytest.raises(SettingsError) as caught:
        parse_policy(table, "secid.toml")
    assert caught.value.where == "secid.toml"
    assert part in caught.value.message
    if remedy is not None:
        assert remedy in (caught.value.remedy or "")


def test_the_files_that_a_policy_is_read_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_policy(None) == (Policy(), "")
    (tmp_path / "pyproject.toml").write_text("[tool.secid.gate]\nminimum_queries = 7\n", encoding="utf-8")
    assert read_policy(None)[0].minimum_queries == 7
    (tmp_path / "secid.toml").write_text("seed = 1\n", encoding="utf-8")
    assert read_policy(None)[0].minimum_queries == 7
    (tmp_path / "secid.toml").write_text("[gate]\nminimum_queries = 8\n", encoding="utf-8")
    assert read_policy(None)[0].minimum_queries == 8
    for name, text in (("a.toml", "minimum_queries = 9\n"), ("b.toml", "[gate]\nminimum_queries = 9\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert read_policy(tmp_path / name)[0].minimum_queries == 9


def test_a_missing_file_and_one_that_is_not_toml_are_refused(tmp_path):
    none, bad = tmp_path / "none.toml", tmp_path / "bad.toml"
    assert "secid gate --init" in refusal(lambda: read_policy(none), UsageError, none)
    bad.write_text("= 3", encoding="utf-8")
    assert "TOML" in refusal(lambda: read_policy(bad), SettingsError, bad)


def test_the_schema_names_every_key():
    schema = json_schema(Policy, "validation")
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(Policy.model_fields)
    assert "description" in schema["$defs"]["FindingsPolicy"]["properties"]["preamble"]


def test_names_of_checks():
    names = {"queries", "hardness", "languages", "findings.empty", "new_source", "drift.unrelated"}
    assert names <= {*CHECK_NAMES}
    assert {*LIMITED_CHECKS} == {*CHECK_NAMES} - {"queries", "new_source"}
    for name in CHECK_NAMES:
        assert len(*explained(name).values()) > 1
    with pytest.raises(UsageError):
        explained("findings.nothing")


def test_it_loads_nothing_heavy():
    code = (
        "import sys, secid.tools.gating.policy\nprint([m for m in ('torch', 'numpy', 'pyarrow') if m in sys.modules])"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "[]"


def test_off_is_offered_only_if_it_is_allowed():
    for table, offered in (({"minimum_queries": "off"}, False), ({"findings": {"hub": "of"}}, True)):
        with pytest.raises(SettingsError) as caught:
            parse_policy(table, "secid.toml")
        assert ('"off"' in (caught.value.remedy or "")) is offered


def test_a_settings_file_without_a_policy_is_refused(tmp_path):
    for name, text, table in (
        ("secid.toml", "seed = 1\n", "[gate]"),
        ("pyproject.toml", '[project]\nname = "x"\n', "[tool.secid.gate]"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        path = tmp_path / name
        message = refusal(lambda path=path: read_policy(path), SettingsError, path)
        assert all(part in message for part in (f" {table} ", "secid gate --init --policy"))
    (tmp_path / "pyproject.toml").write_text("[tool.secid.gate]\nminimum_queries = 9\n", encoding="utf-8")
    assert read_policy(tmp_path / "pyproject.toml")[0].minimum_queries == 9


def test_a_table_with_letters_swapped_is_not_a_setting(tmp_path):
    (tmp_path / "secid.toml").write_text("[gaet]\nminimum_queries = 9\n", encoding="utf-8")
    with pytest.raises(SettingsError, match="setting 'gaet'") as caught:
        resolve({}, environment={}, directory=tmp_path)
    assert caught.value.remedy == "did you mean 'gate'?"


@pytest.mark.parametrize(
    ("name", "text", "key", "remedy"),
    [
        ("p.toml", "[gate]\n[finding]\nempty = 0.0\n", "'finding'", "did you mean 'gate.findings'?"),
        ("p.toml", "minimum_queries = 9\n[gate]\n", "'minimum_queries'", "did you mean 'gate.minimum_queries'?"),
        ("p.toml", "[gate]\n[drift]\nunrelated = 0.5\n", "'drift'", "did you mean 'gate.drift'?"),
        ("secid.toml", "[gate]\n[findings]\nempty = 0.0\n", "'findings'", "did you mean 'gate.findings'?"),
        ("pyproject.toml", "[tool.secid.gate]\n[tool.secid.drift]\nunrelated = 0.1\n", "'tool.secid.drift'",
            "did you mean 'tool.secid.gate.drift'?"),
    ],
)  # fmt: skip
def test_a_limit_outside_the_policy_is_refused(tmp_path, name, text, key, remedy):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=f": {key} .*outside") as caught:
        read_policy(tmp_path / name)
    assert caught.value.remedy == remedy


def test_settings_and_tables_of_other_tools_are_allowed_outside_the_policy(tmp_path):
    others = "[tool.coverage]\nx = 1\n[project]\nname = 'x'\n[build]\n[score-card]\n[dist]\n"
    for name, text in (
        ("p.toml", "title = 'limits'\n[gate]\nminimum_queries = 9\n" + others),
        ("secid.toml", "seed = 1\ncontrols = 'random'\n[gate]\nminimum_queries = 9\n"),
        ("pyproject.toml", "[findings]\n[tool.secid]\nseed = 1\n[tool.secid.gate]\nminimum_queries = 9\n" + others),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert read_policy(tmp_path / name)[0].minimum_queries == 9


def test_a_pipe_is_not_a_policy(tmp_path):
    os.mkfifo(tmp_path / "p.toml")
    assert "pipe" in refusal(lambda: read_policy(tmp_path / "p.toml"), UsageError, tmp_path / "p.toml")


POLICIES = {
    "secid.toml without a table": ("secid.toml", "seed = 1\n"),
    "a table with letters swapped": ("p.toml", "[gaet]\nminimum_queries = 9\n"),
    "a limit outside the policy": ("p.toml", "[gate]\n[findings]\nempty = 0.0\n"),
    "an unknown finding": ("p.toml", "[gate.findings]\npreambles = 0.1\n"),
    "a key of an older version": ("p.toml", "[gate]\nminimum_records = 9\n"),
    "off where a number is needed": ("p.toml", '[gate]\nminimum_queries = "off"\n'),
    "a share above 1": ("p.toml", "[gate.findings]\nempty = 1.5\n"),
    "off for a table": ("p.toml", '[gate]\ndrift = "off"\n'),
    "a table that is a number": ("p.toml", "gate = 3\n"),
    "an unknown check": ("p.toml", '[gate]\nallow_undecided = ["hardnes"]\n'),
}


def test_policies_that_are_refused(tmp_path, snapshot: Snapshot):
    texts = {}
    for name, (file, text) in POLICIES.items():
        path = tmp_path / file
        path.write_text(text, encoding="utf-8")
        texts[name] = refusal(lambda path=path: read_policy(path), SettingsError, path).replace(str(tmp_path), "WORK")
    snapshot("policy-refusals.txt", situations(texts))
