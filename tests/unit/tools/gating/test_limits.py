"""Limits from a baseline against formulas and simulations of their own, and what the policy changes in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm, t

from secid.results.catalogue import DEFECTS
from secid.tools.gating.baseline import Tail
from secid.tools.gating.limits import (
    GROSS_DAMAGE,
    Bound,
    above_advice,
    known_languages,
    limits_for,
    margin,
    minimum_queries,
    round_down,
    round_up,
    share_margin,
)
from secid.tools.gating.policy import Policy, parse_policy
from tests.unit.tools.gating.conftest import baseline_of, measured, source_of

DRAWS = 4_000


def reach(n):
    """Student's t for the mean of n, as in METHOD 8."""
    return t.ppf(0.975, n - 1) * np.sqrt(n / (n - 1))


def bounds_of(previous="own", policy=None, **sources):
    return limits_for(parse_policy(policy or {}, "p.toml"), baseline_of(**(sources or {"own": source_of()})), previous)


def wilson(share, n, n_queries=None):
    """Return the 95 % interval of a share of n independent draws."""
    k = reach(n_queries or n) ** 2 / n
    middle, half = (share + k / 2) / (1 + k), np.sqrt(k * share * (1 - share) + k * k / 4) / (1 + k)
    return np.maximum(0.0, middle - half), np.minimum(1.0, middle + half)


def test_limits_are_rounded_away_from_the_reference():
    for value in (0.001234, 0.0999, 0.5, 1.0, 23.4, 7.0e-9):
        assert round_up(value) >= value - 1e-12
        assert round_down(value) <= value + 1e-12
        assert round_up(value) == pytest.approx(value, rel=0.11)
    assert (round_up(0.1234), round_down(0.1278), round_down(-0.1234), round_up(0.0)) == (0.13, 0.12, -0.13, 0.0)


@pytest.mark.parametrize(("n_known", "n"), [(400, 100), (12, 400), (400, 12), (50, 50)])
def test_the_margin_is_room_for_the_estimate_and_for_its_interval(n_known, n):
    """Both errors; the degrees of freedom of the side with fewer queries."""
    both = 0.01 * np.sqrt(1 + n_known / n)
    expected = (norm.ppf(0.95) + reach(min(n_known, n))) * both
    assert margin(measured(0.5, n_known, 0.01), n) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("share", [0.003, 0.02, 0.1, 0.3, 0.45])
def test_the_margin_of_a_share_has_the_error_at_the_limit(share):
    """room = base * (z + reach * sqrt(v(p + room) / v(p))), solved by bisection; v(p) = p (1 - p), at most 1/4."""
    known, n = measured(share, 400), 100
    base = known.standard_error * np.sqrt(1 + 400 / n)

    def excess(room):
        limit = min(0.5, share + room)
        return room - base * (norm.ppf(0.95) + reach(100) * np.sqrt(limit * (1 - limit) / (share * (1 - share))))

    assert share_margin(known, n) == pytest.approx(brentq(excess, 0.0, 5.0, xtol=1e-14), rel=1e-6)
    assert share_margin(known, n) > margin(known, n)


@pytest.mark.parametrize(("n_known", "times", "least"), [(160, 2, 0.995), (1000, 1, 0.95)])
def test_a_fresh_sample_passes_each_check(n_known, times, least):
    """Baseline and sample drawn anew each time from one process of five negatives a query: the whole interval is within
    the limit."""
    draw = np.random.default_rng(0)
    spread, shares, n_draws = 0.2, {"random_like": 0.3, "inversion": 0.1, "weak_positive": 0.02}, 1_000
    inside = dict.fromkeys(("hardness", "drift.score_nats", "drift.unrelated", *shares), 0)

    def mean(n):
        return draw.normal(0, spread / np.sqrt(n)), spread / np.sqrt(n)

    for _ in range(n_draws):
        own = source_of(n_known, 0.5 + mean(n_known)[0])
        known = {
            name: measured(draw.binomial(5 * n_known, share) / (5 * n_known), 5 * n_known)
            for name, share in shares.items()
        }
        own = replace(own, findings={**own.findings, **{k: replace(v, n_queries=n_known) for k, v in known.items()}})
        limits = bounds_of(own=own)
        n = times * limits.minimum_queries
        value, error = mean(n)
        inside["hardness"] += 0.5 + value - reach(n) * error >= limits.bounds["hardness"].value
        value, error = mean(n)
        both = reach(min(n, n_known)) * spread * np.sqrt(1 / n + 1 / n_known)
        inside["drift.score_nats"] += abs(mean(n_known)[0] - value) + both <= limits.bounds["drift.score_nats"].value
        tail = draw.binomial(n, 0.02) / n
        both = reach(min(n, n_known)) * np.sqrt(tail * (1 - tail) / n + own.unrelated.share.standard_error**2)
        inside["drift.unrelated"] += abs(tail - 0.02) + both <= limits.bounds["drift.unrelated"].value
        for name, share in shares.items():
            own_share = draw.binomial(5 * n, share) / (5 * n)
            inside[name] += (
                wilson(own_share, n if own_share == 0 else 5 * n, n)[1] <= limits.bounds[f"findings.{name}"].value
            )
    assert {name: count / n_draws for name, count in inside.items() if count < least * n_draws} == {}


def test_a_source_that_shows_nothing_leaves_room_for_a_sample_that_shows_nothing():
    limits = bounds_of()
    assert wilson(0.0, limits.minimum_queries)[1] < limits.bounds["findings.weak_positive"].value < 0.06


@pytest.mark.parametrize("previous", ["own", None])
def test_a_defect_of_the_baseline_admits_no_more_of_it(previous):
    sources = {"own": source_of(preamble=0.11), "other": source_of(preamble=0.11)}
    bound = bounds_of(previous, **sources).bounds["findings.preamble"]
    assert (bound.value, bound.counted, bound.basis, bound.reference) == (0.01, True, "policy", "")
    for policy in ({"defects_maximum": 0.1}, {"findings": {"preamble": 0.1}}):
        assert bounds_of(previous, policy, **sources).bounds["findings.preamble"].value == 0.1
    assert {name for name, bound in bounds_of().bounds.items() if bound.counted} == {
        *(f"findings.{name}" for name in DEFECTS),
        "languages",
    }


def test_a_new_source_is_held_against_the_easiest_and_a_known_one_against_its_own():
    sources = {"easy": source_of(hardness=0.2), "hard": source_of(hardness=0.8), "odd": source_of(hardness=None)}
    new, known = bounds_of(None, **sources).bounds["hardness"], bounds_of("hard", **sources).bounds["hardness"]
    assert (new.reference, new.before, new.basis) == ("easy", 0.2, "extreme")
    assert (known.reference, known.before, known.basis) == ("hard", 0.8, "source")
    assert new.value < 0.2 < known.value < 0.8
    assert "hardness" not in bounds_of("odd", **sources).bounds


def test_estimated_findings_of_a_new_source_are_held_against_the_largest_share():
    sources = {"easy": source_of(random_like=0.4), "hard": source_of(random_like=0.1)}
    new = bounds_of(None, **sources).bounds["findings.random_like"]
    assert (new.reference, new.before, new.notice) == ("easy", 0.4, False)
    assert bounds_of("hard", **sources).bounds["findings.random_like"].value < 0.4 < new.value


def test_what_a_new_kind_of_miner_may_have_is_a_notice():
    new, known = bounds_of(None).bounds, bounds_of().bounds
    noticed = {name for name, bound in new.items() if bound.notice}
    assert noticed == {f"findings.{name}" for name in ("inversion", "suspect", "shared_opening", "hub")}
    assert {name for name, bound in known.items() if bound.notice} == {"findings.hub"}
    assert set(known.keys() - new.keys()) == {"drift.score_nats", "drift.unrelated"}


def test_a_source_too_small_to_be_gated_loosens_no_limit_of_new_ones():
    sources = {"bm25": source_of(500, 0.58, random_like=0.1), "dense": source_of(500, 0.85)}
    tiny = source_of(20, 0.2, random_like=0.5)
    alone, beside = bounds_of(None, **sources), bounds_of(None, **sources, tiny=tiny)
    assert alone.bounds == beside.bounds
    assert bounds_of(None, tiny=replace(tiny, n_queries=20)).minimum_queries == 20


def test_a_share_that_is_the_same_for_every_query_has_room_too():
    own = replace(source_of(400), findings={**source_of(400).findings, "other_language": measured(0.2, 400, 0.0)})
    low, high = wilson(0.2, 400, 400)
    assert low < high < bounds_of(own=own).bounds["findings.other_language"].value


def test_other_languages_have_room_above_the_share_that_the_baseline_has():
    for previous in (None, "own"):
        assert bounds_of(previous, own=source_of(), old=source_of()).bounds["languages"].value == 0.055


def test_a_language_counts_as_known_from_one_percent():
    other = replace(source_of(), languages={"de": 0.01})
    baseline = baseline_of(own=source_of(), other=other)
    assert known_languages(baseline, "own") == {"en"}
    assert known_languages(baseline, None) == {"en", "de"}


@pytest.mark.parametrize("n", [60, 160, 1000])
def test_the_damage_that_is_detected_is_that_of_a_simulation(n):
    """The least share, in percent, with which the whole interval of half of the samples lies beyond the limit."""
    sources = source_of(n, 0.5, random_like=0.2, weak_positive=0.03)
    bounds = bounds_of(own=sources).bounds
    draw = np.random.default_rng(n)

    def least(fails):
        return next(share for share in np.arange(0.01, 1.01, 0.01) if fails(share) >= 0.5)

    def hard(share):
        error = sources.hardness.standard_error
        return (
            (1 - share) * 0.5 + error * draw.standard_normal(DRAWS) + reach(n) * error < bounds["hardness"].value
        ).mean()

    def of_share(name, before, full):
        def fails(share):
            p = before + share * (full - before)
            return (wilson(draw.binomial(n, p, DRAWS) / n, n)[0] > bounds[name].value).mean()

        return fails

    def unrelated(share):
        p = draw.binomial(n, 0.02 + share * (0.7 - 0.02), DRAWS) / n
        error = np.sqrt(p * (1 - p) / n + sources.unrelated.share.standard_error**2)
        return (p - 0.02 - reach(n) * error > bounds["drift.unrelated"].value).mean()

    simulated = {
        "hardness": least(hard),
        "findings.random_like": least(of_share("findings.random_like", 0.2, 0.87)),
        "findings.weak_positive": least(of_share("findings.weak_positive", 0.03, 1.0)),
        "drift.unrelated": least(unrelated),
    }
    for name, share in simulated.items():
        assert bounds[name].detects == pytest.approx(share, abs=0.0201), name


def test_a_check_that_would_not_see_gross_damage_is_left_out():
    strong = bounds_of(own=source_of(random_like=0.2))
    assert strong.left_out == ()
    weak = bounds_of(own=source_of(random_like=0.75))
    assert weak.left_out == ("findings.random_like",)
    assert "findings.random_like" not in weak.bounds
    assert strong.bounds["findings.random_like"].detects < GROSS_DAMAGE
    assert bounds_of(own=source_of(random_like=0.5)).bounds["findings.random_like"].detects == 0.69
    assert bounds_of(own=source_of(random_like=0.58)).left_out == ("findings.random_like",)  # 0.86 would do
    given = bounds_of("own", {"findings": {"random_like": 0.8}}, own=source_of(random_like=0.75))
    assert (given.left_out, given.bounds["findings.random_like"].value) == ((), 0.8)
    tail = Tail(bound=0.0, share=measured(0.02, 8, 0.2))
    assert "drift.unrelated" in bounds_of(own=replace(source_of(8), unrelated=tail)).left_out


DEFECT = Bound(side="at most", value=0.01, basis="policy", counted=True)
"""Bound of every counted defect without a line in the policy."""


def test_the_policy_s_value_wins_and_off_drops():
    policy = {
        "minimum_queries": 101,
        "hardness_minimum": -0.1,
        "languages_maximum": "off",
        "findings": {"preamble": 0.2, "inversion": "off", "truncated": 0.4, "hub": 0.1},
        "drift": {"score_nats": "off", "unrelated": 0.5},
    }
    limits, free = bounds_of("own", policy), bounds_of()
    assert limits.minimum_queries == 101
    assert free.bounds.keys() - limits.bounds.keys() == {"languages", "findings.inversion", "drift.score_nats"}
    assert limits.bounds.keys() - free.bounds.keys() == {"findings.truncated"}
    given = {name: bound for name, bound in limits.bounds.items() if bound.basis == "policy" and bound != DEFECT}
    assert {name: (bound.side, bound.value, bound.counted) for name, bound in given.items()} == {
        "hardness": ("at least", -0.1, False),
        "findings.preamble": ("at most", 0.2, True),
        "findings.truncated": ("at most", 0.4, False),
        "findings.hub": ("at most", 0.1, False),
        "drift.unrelated": ("at most", 0.5, False),
    }
    assert not any(bound.notice for bound in given.values())


@pytest.mark.parametrize(
    ("sizes", "previous", "expected"), [((400,), "a", 100), ((66,), "a", 66), ((3,), None, 5), ((40, 60, 90), None, 60)]
)
def test_the_least_number_of_queries(sizes, previous, expected):
    baseline = baseline_of(**dict(zip("abc", map(source_of, sizes), strict=False)))
    assert minimum_queries(Policy(), baseline, previous) == expected


def test_what_is_above_the_advice():
    baseline = baseline_of(good=source_of(hub=0.01, low_locality=0.9), bad=source_of(hub=0.0569, inversion=0.3))
    assert above_advice(baseline) == {"bad": {"hub": 0.0569, "inversion": 0.3}}
