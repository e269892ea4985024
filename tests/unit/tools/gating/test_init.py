"""The policy file that `secid gate --init` writes, and the settings that a gate scores with."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from secid.errors import UsageError
from secid.settings import resolve
from secid.tools.gating.baseline import settings_for
from secid.tools.gating.limits import limits_for, policy_text, write_policy
from secid.tools.gating.policy import parse_policy, read_policy
from tests.snapshots import Snapshot, refusal
from tests.unit.tools.gating.conftest import UNKNOWN, baseline_of, source_of

BASELINE = baseline_of(bm25=source_of(random_like=0.75), dense=source_of(hub=0.0569, inversion=0.1, preamble=0.02))


def test_a_written_policy(snapshot: Snapshot):
    snapshot("policy.toml", policy_text(BASELINE, "b.json"))


def test_it_has_few_keys_and_changes_no_limit():
    text = policy_text(BASELINE, "b.json")
    table = tomllib.loads(text)["gate"]
    assert table == {"defects_maximum": 0.01, "new_source": "allow", "names": {}}
    written = parse_policy(table, "p.toml")
    for previous in ("bm25", "dense", None):
        assert limits_for(written, BASELINE, previous) == limits_for(parse_policy({}, "p.toml"), BASELINE, previous)
    assert all(len(line) <= 120 for line in text.splitlines())


@pytest.mark.parametrize("name", [UNKNOWN, 'x"\nminimum_queries = 1', "x\r\n[other]", "x\u2028y\x85z\x0c[t]"])
def test_hostile_names_stay_in_their_comment(name):
    hostile = baseline_of(**{name: source_of(hub=0.5), "dense": source_of()})
    text = policy_text(hostile, name)
    assert tomllib.loads(text) == tomllib.loads(policy_text(baseline_of(dense=source_of()), "b.json"))
    assert all(line.startswith("# ") for line in text.splitlines() if "x:y" in line or "hub" in line)
    assert not set("\x1b\x00\u202e\x0c") & set(text)


def test_settings_are_kept_and_a_policy_is_not_written_over(tmp_path):
    path = tmp_path / "secid.toml"
    path.write_text("seed = 3\n", encoding="utf-8")
    write_policy(BASELINE, "b.json", path)
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    assert (table["seed"], table["gate"]["defects_maximum"]) == (3, 0.01)
    assert resolve({}, environment={}, directory=tmp_path).values.seed == 3
    assert "[gate]" in refusal(lambda: write_policy(BASELINE, "b.json", path), UsageError, path)


def test_a_policy_is_written_to_the_file_that_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pyproject.toml"
    path.write_text('[project]\nname = "x"\n[tool.secid]\nseed = 3\n', encoding="utf-8")
    write_policy(BASELINE, "b.json", path)
    policy, where = read_policy(None)
    assert (policy.defects_maximum, where) == (0.01, "pyproject.toml")
    assert "[tool.secid.gate]" in refusal(lambda: write_policy(BASELINE, "b.json", path), UsageError, path)


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("pyproject.toml", '[tool]\nsecid = {encoder="minilm"}\n', "table"),
        ("p.toml", "minimum_queries = 9\n", ": 'minimum_queries' "),
    ],
)
def test_a_file_that_cannot_take_the_policy_stays_as_it_is(tmp_path, name, text, part):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    message = refusal(lambda: write_policy(BASELINE, "b.json", path), UsageError, path)
    assert part in message
    assert "--policy" in message
    assert path.read_text(encoding="utf-8") == text


def test_line_ends_and_links_are_kept(tmp_path):
    (tmp_path / "real.toml").write_bytes(b"seed = 3\r\n")
    (tmp_path / "secid.toml").symlink_to("real.toml")
    write_policy(BASELINE, "b.json", tmp_path / "secid.toml")
    assert (tmp_path / "secid.toml").is_symlink()
    written = (tmp_path / "real.toml").read_bytes()
    assert written.startswith(b"seed = 3\r\n\r\n#")
    assert written.count(b"\n") == written.count(b"\r\n") > 10


@pytest.mark.parametrize(
    ("dtype", "flags", "expected"),
    [("bf16", {}, "bf16"), ("bf16", {"dtype": "float32"}, "float32"), ("unknown", {}, "auto")],
)
def test_the_number_format_is_the_baseline_s_unless_given(dtype, flags, expected):
    baseline = replace(BASELINE, encoder=replace(BASELINE.encoder, dtype=dtype))
    settings = settings_for(baseline, resolve(flags, environment={}))
    assert (settings.values.dtype, settings.values.controls) == (expected, "none")
    stored = replace(baseline, encoder=replace(baseline.encoder, pooling="precomputed"))
    assert settings_for(stored, resolve({}, environment={})).values.dtype == "auto"
