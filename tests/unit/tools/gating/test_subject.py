"""Test decisions on a number and its interval, and the number of queries that a decision needs."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest

from secid.measure.interval import reach_95
from secid.tools.gating.baseline import Measurement
from secid.tools.gating.checks import MAX_NEEDED_FACTOR, decided, gap_between
from secid.tools.gating.limits import Bound
from secid.triplets.estimates import Estimate, wilson_interval

SIDES = ("at least", "at most", "within ±")


def outcome(side, interval, limit=0.3, measured=None, **more):
    middle = sum(interval) / 2 if measured is None else measured
    return decided("hardness", middle, interval, "hardness", Bound(side=side, value=limit, basis="policy", **more), 100)


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ((0.1, 0.2), ("fail", "pass", "pass")),
        ((0.4, 0.6), ("pass", "fail", "fail")),
        ((0.2, 0.4), ("undecided", "undecided", "undecided")),
        ((-0.6, -0.4), ("fail", "pass", "fail")),
        ((-0.4, 0.2), ("fail", "pass", "undecided")),
        ((-0.4, 0.4), ("undecided", "undecided", "undecided")),
        ((0.3, 0.3), ("pass", "pass", "pass")),
    ],
)
def test_the_whole_interval_decides(interval, expected):
    assert tuple(outcome(side, interval).outcome for side in SIDES) == expected


@pytest.mark.parametrize(("measured", "expected"), [(0.31, "fail"), (0.3, "pass"), (0.29, "pass")])
def test_only_the_number_of_a_counted_share_decides(measured, expected):
    for interval in ((0.0, 1.0), (-inf, inf)):
        check = outcome("at most", interval, measured=measured, counted=True)
        assert (check.outcome, check.interval_95, check.n_queries_needed) == (expected, None, None)


def test_a_notice_neither_fails_nor_stays_undecided():
    infinite = (-inf, inf)
    for measured, interval, noticed in (
        (0.5, (0.4, 0.6), True),
        (0.31, (0.2, 0.4), True),
        (0.3, (0.2, 0.4), False),
        (0.5, infinite, True),
        (0.1, infinite, False),
    ):
        check = outcome("at most", interval, measured=measured, notice=True)
        assert (check.outcome, check.notice) == ("pass", noticed)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("interval", [(nan, nan), (-inf, inf), (0.5, nan), (-inf, 0.1)])
def test_what_is_not_finite_decides_nothing(side, interval):
    check = outcome(side, interval, measured=0.2)
    assert (check.outcome, check.interval_95, check.n_queries_needed) == ("undecided", None, None)
    assert outcome(side, (0.1, 0.2), measured=nan).measured is None


def estimate(n, value=0.0, error=1.0):
    names = np.array([f"{number:06d}" for number in range(n)], "S16")
    return Estimate(value, names, np.full(n, error / n))


@pytest.mark.parametrize(("n", "expected"), [(4, "undecided"), (5, "pass")])
def test_fewer_than_five_queries_decide_nothing(n, expected):
    own = estimate(n, 0.9, 0.01)
    check = decided("hardness", 0.9, own.interval, "hardness", Bound(side="at least", value=0.1, basis="policy"), n)
    assert check.outcome == expected


@pytest.mark.parametrize(("value", "limit"), [(0.1, 0.2), (-0.4, 0.2), (0.5, 0.38)])
def test_the_queries_needed_would_decide(value, limit):
    """With this number of queries and the same mean, the interval no longer reaches the limit."""
    bound, n, draw = Bound(side="within ±", value=limit, basis="policy"), 20, np.random.default_rng(0)

    def drawn(n):
        values = draw.standard_normal(n)
        error = values.std() / np.sqrt(n)
        return decided("d", value, (value - reach_95(n) * error, value + reach_95(n) * error), "nats", bound, n)

    first = drawn(n)
    assert first.outcome == "undecided"
    needed = [drawn(n).n_queries_needed for _ in range(200)]
    assert n < np.median(needed) <= n * MAX_NEEDED_FACTOR
    decisions = [drawn(round(1.15 * np.median(needed))).outcome for _ in range(200)]
    assert sum(outcome != "undecided" for outcome in decisions) > 180
    fewer = [drawn(round(0.6 * np.median(needed))).outcome for _ in range(200)]
    assert sum(outcome == "undecided" for outcome in fewer) > 180


@pytest.mark.parametrize(("share", "limit"), [(0.0, 0.05), (0.1, 0.15), (0.4, 0.3), (0.9, 0.95)])
def test_the_queries_needed_of_a_share_would_decide(share, limit):
    """Wilson's interval, which of a share near 0 narrows faster than with the root of the queries."""

    def check(n):
        names = np.array([f"{number:06d}" for number in range(n)], "S16")
        own = Estimate(share, names, np.full(n, np.sqrt(share * (1 - share)) / n))
        bound = Bound(side="at most", value=limit, basis="policy")
        return decided("findings.inversion", share, wilson_interval(own), "share", bound, n)

    first = check(20)
    assert first.outcome == "undecided"
    needed = first.n_queries_needed
    assert check(needed).outcome != "undecided"
    assert check(round(0.8 * needed)).outcome == "undecided"


def test_more_queries_than_anybody_has_are_not_named():
    assert outcome("at most", (0.29, 0.32), measured=0.3).n_queries_needed is None
    assert outcome("at most", (0.0, 0.6001), measured=0.3001).n_queries_needed is None
    bound = Bound(side="at most", value=0.3, basis="policy")
    assert decided("drift.score_nats", 0.29, (0.2, 0.38), "nats", bound, 100).n_queries_needed == 8100
    assert decided("hardness", 0.29, (0.2, 0.38), "hardness", bound, 100).n_queries_needed is None  # 1,000 are sampled


def test_what_the_baseline_does_not_know_more_queries_do_not_tell():
    bound = Bound(side="within ±", value=0.3, basis="policy")
    half, error = 0.2, 0.05
    check = decided("drift.score_nats", 0.15, (-0.05, 0.35), "nats", bound, 100, fixed_error=error)
    z = reach_95(100)
    expected = 100 * ((half / z) ** 2 - error**2) / ((0.15 / z) ** 2 - error**2)
    assert check.n_queries_needed == int(np.ceil(expected)) > 178  # as many as without an error of the baseline
    assert (
        decided("drift.score_nats", 0.15, (-0.05, 0.35), "nats", bound, 100, fixed_error=0.08).n_queries_needed is None
    )


def test_shared_queries_are_paired_and_others_are_not():
    own, theirs = estimate(50, 0.5), estimate(50, 0.4)
    paired = gap_between(own, Measurement(value=0.4, standard_error=1.0, n_queries=50), theirs)
    assert (paired.n_shared, paired.value, paired.standard_error) == (50, pytest.approx(0.1), pytest.approx(0.0))
    for other in (None, Estimate(0.4, np.array([b"else"], "S16"), np.ones(1))):
        alone = gap_between(own, Measurement(value=0.4, standard_error=0.3, n_queries=12), other)
        error = np.hypot(own.standard_error, 0.3)
        assert (alone.n_shared, alone.n_queries, alone.standard_error) == (0, 12, pytest.approx(error))
