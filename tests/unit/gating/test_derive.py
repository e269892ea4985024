"""Limits from a baseline: the margin, what the user gave, and the file that `--init` writes."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

from secid.errors import UsageError
from secid.gating.baseline import Measurement
from secid.gating.init import policy_text, write_policy
from secid.gating.limits import DERIVED, Z_ROOM, common, complete, down, margin, share_margin, up
from secid.gating.policy import Policy, parse_policy, read_policy
from secid.measure.interval import reach_95
from secid.results.catalogue import DEFECTS
from secid.settings import resolve
from tests.snapshots import refusal
from tests.unit.gating.conftest import baseline_of, sample, source_of


def test_rounding_never_tightens():
    for value in (0.001234, 0.0999, 0.5, 1.0, 23.4, 7.0e-9):
        assert up(value) >= value - 1e-12
        assert down(value) <= value + 1e-12
        assert up(value) == pytest.approx(value, rel=0.11)
    assert up(0.0) == down(0.0) == 0.0
    assert (up(0.1234), down(0.1278)) == (0.13, 0.12)


def test_the_margin_covers_both_errors():
    known = source_of(sample(), n_queries=400)
    assert margin(known, 0.01, 400) == pytest.approx((reach_95(400) + Z_ROOM) * 0.01 * np.sqrt(2))
    assert margin(known, None, 400) == 0.0


def test_the_margin_lets_nearly_every_equal_sample_pass():
    """1 - 2 * Phi(-3.09) of the differences lie so near that their whole interval is inside."""
    draw = np.random.default_rng(0)
    n, error = 100_000, 0.01
    gaps = error * (draw.standard_normal(n) - draw.standard_normal(n))
    reach = np.abs(gaps) + reach_95(400) * error * np.sqrt(2)
    inside = (reach <= margin(source_of(sample(), n_queries=400), error, 400)).mean()
    assert 0.997 < inside < 0.9995


def test_a_small_share_gets_the_room_of_a_larger_one():
    """Tails of 2 % in samples of 500 clustered queries, each against its own baseline's interval."""
    draw = np.random.default_rng(0)
    known = source_of(sample(), n_queries=500)
    n, p = 20_000, 0.02
    error = np.sqrt(p * (1 - p) / 500)
    room = share_margin(known, Measurement(value=p, standard_error=error), 500)
    assert room > margin(known, error, 500)
    first, second = draw.binomial(500, p, (2, n)) / 500
    errors = np.sqrt(first * (1 - first) / 500 + second * (1 - second) / 500)
    reach = np.abs(second - first) + reach_95(500) * errors
    assert (reach <= room).mean() > 0.998 > (reach <= margin(known, error, 500)).mean()


def test_a_margin_widens_with_the_interval_of_a_small_sample():
    """12 queries of one side: 2.30 standard errors for the interval, and the room, by METHOD 8."""
    for known, new in ((12, 400), (400, 12)):
        factor = margin(source_of(sample(), n_queries=known), 0.01, new) / (0.01 * np.sqrt(1 + known / new))
        assert factor == pytest.approx(student.ppf(0.975, 11) * np.sqrt(12 / 11) + student.ppf(0.999, np.inf), rel=1e-9)


def test_shares_without_an_error_get_no_margin():
    known = source_of(sample())
    assert share_margin(known, Measurement(value=0.0, standard_error=0.0), 500) == 0.0
    assert share_margin(known, Measurement(value=0.3, standard_error=None), 500) == 0.0


def test_what_is_given_stays_and_the_rest_is_filled_in():
    baseline = baseline_of(own=source_of(sample()))
    given = parse_policy({"findings": {"empty": 0.2, "inversion": "off", "truncated": 0.3}, "minimum_records": 50}, "x")
    policy = complete(given, baseline, "own")
    limits = policy.findings.model_dump()
    assert (limits.pop("empty"), limits.pop("inversion"), limits.pop("truncated")) == (0.2, "off", 0.3)
    assert policy.minimum_records == 50
    assert {name for name, limit in limits.items() if limit == 0.01} == {*DEFECTS} - {"empty"}
    assert {name for name, limit in limits.items() if limit != "off"} == DERIVED - {"empty", "inversion"}
    dumped = policy.model_dump()
    dumped["score"].pop("named")
    assert None not in [
        value for table in dumped.values() for value in (table.values() if isinstance(table, dict) else [table])
    ]


def test_a_smaller_sample_gets_more_room():
    baseline = baseline_of(own=source_of(sample()))
    small, large = (complete(parse_policy({"minimum_records": n}, "x"), baseline, "own") for n in (50, 5000))
    assert small.score.tolerance_nats > large.score.tolerance_nats


def test_a_second_small_source_does_not_loosen_the_limits_of_the_first():
    own = source_of(sample(), n_queries=4000, n_records=4000)
    small = source_of(sample(3, n_queries=40), n_queries=40, n_records=40, score_nats=0.2)
    alone, beside = baseline_of(own=own), baseline_of(own=own, small=small)
    assert complete(Policy(), beside, "own").drift == complete(Policy(), alone, "own").drift
    assert complete(Policy(), beside, "own").score == complete(Policy(), alone, "own").score
    assert complete(Policy(), beside, "own").minimum_queries == 500
    theirs = complete(Policy(), beside, "small")
    assert theirs.minimum_queries == 30
    for name, limit in complete(Policy(), beside, "own").drift.model_dump().items():
        if name != "new_source":
            assert getattr(theirs.drift, name) > 1.2 * limit, name
    assert complete(Policy(), beside, "new").minimum_queries == 30
    assert complete(Policy(), beside, "new").drift.close is None


def test_what_differs_from_source_to_source_is_left_open_and_listed():
    beside = baseline_of(own=source_of(sample()), other=source_of(sample(3, score_spread=0.5)))
    policy = common(Policy(), beside)
    assert policy.minimum_queries == 300
    assert policy.drift.score_nats is None
    text = policy_text(beside, "b.json")
    assert parse_policy(tomllib.loads(text)["gate"], "x") == policy
    each = {name: complete(policy, beside, name).drift.score_nats for name in ("own", "other")}
    assert each["other"] > 5 * each["own"]
    assert f"own {each['own']}, other {each['other']}." in text


def test_a_spoilt_baseline_sets_no_example():
    spoilt = source_of(sample())
    spoilt = replace(spoilt, findings={**spoilt.findings, "preamble": Measurement(value=0.3, standard_error=0.02)})
    assert complete(Policy(), baseline_of(own=spoilt), "own").findings.preamble == 0.05


def test_the_written_policy_is_the_derived_one():
    baseline = baseline_of(own=source_of(sample()))
    text = policy_text(baseline, "secid-baseline.json")
    written = parse_policy(tomllib.loads(text)["gate"], "x")
    assert written == complete(Policy(), baseline, "own")
    for line in text.splitlines():
        assert len(line) <= 120


def test_hostile_names_stay_in_their_comment():
    name = 'x"\nminimum_records = 1\x1b[31m'
    text = policy_text(baseline_of(**{name: source_of(sample(), like_controls=("random",))}), name)
    assert tomllib.loads(text)["gate"]["minimum_records"] == 300
    assert "\x1b" not in text


def test_settings_are_kept_and_a_policy_is_not_written_over(tmp_path):
    path = tmp_path / "secid.toml"
    path.write_text("seed = 3\n", encoding="utf-8")
    baseline = baseline_of(own=source_of(sample()))
    write_policy(baseline, "b.json", path)
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    assert table["seed"] == 3
    assert table["gate"]["minimum_records"] == 300
    assert "[gate]" in refusal(lambda: write_policy(baseline, "b.json", path), UsageError, path)


def test_a_policy_goes_where_it_is_read(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text('[project]\nname = "x"\n[tool.secid]\nseed = 3\n', encoding="utf-8")
    baseline = baseline_of(own=source_of(sample()))
    write_policy(baseline, "b.json", path)
    assert read_policy(None, tmp_path) == (complete(Policy(), baseline, "own"), "pyproject.toml")
    assert "[tool.secid.gate]" in refusal(lambda: write_policy(baseline, "b.json", path), UsageError, path)


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("pyproject.toml", '[tool]\nsecid = {encoder="minilm"}\n', "table"),
        ("pyproject.toml", "[[tool.secid]]\nseed = 3\n", "table"),
        ("p.toml", "minimum_records = 9\n", ": 'minimum_records' "),
    ],
)
def test_a_file_that_cannot_take_the_policy_stays_as_it_is(tmp_path, name, text, part):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    message = refusal(lambda: write_policy(baseline_of(own=source_of(sample())), "b.json", path), UsageError, path)
    assert part in message
    assert "--policy" in message
    assert path.read_text(encoding="utf-8") == text


def test_line_ends_and_links_are_kept(tmp_path):
    (tmp_path / "real.toml").write_bytes(b"seed = 3\r\n")
    (tmp_path / "secid.toml").symlink_to("real.toml")
    write_policy(baseline_of(own=source_of(sample())), "b.json", tmp_path / "secid.toml")
    assert (tmp_path / "secid.toml").is_symlink()
    written = (tmp_path / "real.toml").read_bytes()
    assert written.startswith(b"seed = 3\r\n\r\n#")
    assert written.count(b"\n") == written.count(b"\r\n") > 50


def test_a_written_policy_hides_no_settings(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.secid]\nseed = 3\n", encoding="utf-8")
    write_policy(baseline_of(own=source_of(sample())), "b.json", tmp_path / "secid.toml")
    assert resolve({}, environment={}, directory=tmp_path).values.seed == 3


def test_a_limit_that_nothing_can_fail_is_marked_in_the_policy():
    """A baseline of a few queries, whose errors exclude nothing."""
    few = source_of(sample(n_queries=6, score_spread=5.0), n_queries=6, n_records=6, score_nats=0.3)
    lines = policy_text(baseline_of(own=few), "b.json").splitlines()
    keys = [lines[at + 1].split(" = ")[0] for at, line in enumerate(lines) if "Nothing can" in line]
    assert "tolerance_nats" in keys
    assert "Nothing can" not in policy_text(baseline_of(own=source_of(sample())), "b.json")
