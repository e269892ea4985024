"""Every check: passes, fails, and stays undecided where the interval lies on both sides of the limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

from secid.gating.checks import all_checks
from secid.gating.limits import DERIVED
from secid.gating.policy import CHECK_NAMES
from secid.gating.subject import LEAST, MOST, UNDECIDED, WITHIN, Limit, Reference
from secid.results.catalogue import DEFECTS, FINDINGS
from secid.results.gate import CheckExample
from secid.triplets.estimates import Estimate
from tests.unit.gating.conftest import outcome, sample, source_of, triplets


def test_a_fresh_sample_of_the_same_process_passes_every_check(subject):
    checks = list(all_checks(subject()))
    assert {check.outcome for check in checks} == {"pass"}
    off = {"drift", *(f"findings.{name}" for name in FINDINGS if name not in DERIVED)}
    assert [check.name for check in checks] == [name for name in CHECK_NAMES if name not in off]


@pytest.mark.parametrize(
    ("shift", "name", "expected"),
    [
        ({"score": -0.2}, "score", "fail"),
        ({"score": 0.2}, "score", "pass"),
        ({"score": 0.2}, "drift.score_nats", "fail"),
        ({"score": -0.2}, "drift.score_nats", "fail"),
        ({"consistency": -0.2}, "means.consistency", "fail"),
        ({"consistency": -0.2}, "drift.consistency", "fail"),
        ({"locality": -0.2}, "means.locality", "fail"),
        ({"locality": 0.2}, "drift.locality", "fail"),
        ({"coverage": 0.2}, "means.coverage", "fail"),
        ({"coverage": -0.1}, "drift.coverage", "fail"),
        ({"query_similarity": -0.1}, "drift.query_similarity", "fail"),
        ({"query_similarity": -0.1}, "drift.unrelated", "fail"),
        ({"query_similarity": 0.1}, "drift.close", "fail"),
        ({"query_similarity": -0.4}, "controls.random", "fail"),
        ({"query_similarity": -0.4}, "controls.shuffled", "fail"),
    ],
)
def test_a_shifted_source_is_noticed(subject, shift, name, expected):
    check = outcome(subject(sample(**shift)), name)
    assert check.outcome == expected
    if expected == "fail":
        assert check.what_to_do
        assert check.interval_95 is not None
        assert check.limit is not None
        assert len(check.examples) == 3


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("score", {"score": {"tolerance_nats": 0.001}}),
        ("means.consistency", {"means": {"consistency_minimum": 0.8}}),
        ("means.locality", {"means": {"locality_minimum": 0.5}}),
        ("means.coverage", {"means": {"coverage_maximum": 0.2}}),
        ("findings.inversion", {"findings": {"inversion": 0.005}}),
        ("controls.random", {"controls": {"relatedness_minimum": 0.841}}),
        ("diversity", {"diversity": {"effective_rank_minimum": 50.0}}),
        ("drift.query_similarity", {"drift": {"query_similarity": 0.0001}}),
        ("drift.score_nats", {"drift": {"score_nats": 0.0001}}),
    ],
)
def test_an_interval_across_the_limit_is_undecided(subject, name, policy):
    check = outcome(subject(policy=policy), name)
    assert check.outcome == "not_evaluated"
    assert check.what_to_do == UNDECIDED
    assert check.holds_up


@pytest.mark.parametrize("name", sorted(DERIVED))
def test_the_share_of_a_finding_is_reported_in_the_catalogue_s_words(subject, name):
    check = outcome(subject(shares={name: 0.2}), f"findings.{name}")
    assert (check.outcome, check.measured) == ("fail", pytest.approx(0.2))
    assert f"20.00 % of 2,000 negatives {FINDINGS[name].says}" in check.message
    assert check.what_to_do == FINDINGS[name].do
    assert [(row.path, row.line, row.note, len(row.negative)) for row in check.examples] == [
        ("own.jsonl", 7, name, 300)
    ] * 3
    assert outcome(subject(), f"findings.{name}").outcome == "pass"


def test_defects_are_counted_and_other_findings_estimated(subject):
    policy = {"findings": {"empty": 0.2, "hub": 0.2, "truncated": "off"}}
    one = subject(policy=policy, shares={"empty": 0.2, "hub": 0.2})
    for name, expected in (("empty", "pass"), ("hub", "not_evaluated")):
        share = one.findings.shares[name]
        spread = share.estimate.per_query + 0.01 * (-1.0) ** np.arange(len(share.estimate.queries)) / 20
        one.findings.shares[name] = replace(share, estimate=replace(share.estimate, per_query=spread))
        check = outcome(one, f"findings.{name}")
        assert check.interval_95 is not None
        assert check.interval_95[0] < 0.2 < check.interval_95[1]
        assert check.outcome == expected


def test_a_finding_that_was_not_evaluated_is_not_a_pass(subject):
    check = outcome(subject(policy={"findings": {"truncated": 0.1}}), "findings.truncated")
    assert (check.outcome, check.holds_up) == ("not_evaluated", True)
    assert subject().missing["truncated"] in check.message


def test_a_number_that_is_not_finite_is_not_a_pass(subject):
    broken = sample()
    broken.table.s_query_negative[0] = np.nan
    for name in ("means.consistency", "drift.consistency"):
        assert outcome(subject(broken), name).outcome == "not_evaluated"


def test_diversity_fails_below_its_limit(subject):
    one = subject()
    few = Estimate(10.0, one.sample.queries, np.full(len(one.sample.queries), 0.01))
    assert outcome(replace(one, rank=few), "diversity").outcome == "fail"


def test_sizes(subject):
    policy = {"minimum_records": 401, "minimum_negatives": 2000}
    assert outcome(subject(policy=policy), "minimum_records").outcome == "fail"
    assert outcome(subject(policy=policy), "minimum_negatives").outcome == "pass"


def test_a_control_that_cannot_be_drawn_is_not_a_pass(subject):
    check = outcome(subject(controls={}, missing={"random": "too few"}), "controls.random")
    assert check.outcome == "not_evaluated"
    assert "too few" in check.message


def test_positives_no_nearer_than_the_control_decide_nothing(subject):
    unrelated = sample(3, positive=-0.6)
    assert outcome(subject(unrelated), "controls.random").outcome == "not_evaluated"


@pytest.mark.parametrize(("choice", "holds"), [("allow", False), ("hold", True)])
def test_a_source_without_a_last_version(subject, choice, holds):
    check = outcome(subject(previous=None, policy={"drift": {"new_source": choice}}), "drift")
    assert check.outcome == "not_evaluated"
    assert check.holds_up is holds


def test_off_leaves_a_check_out(subject):
    policy = {
        "score": {"tolerance_nats": "off"},
        "findings": {"inversion": "off"},
        "drift": {"close": "off"},
        "controls": {"differ_from": []},
        "diversity": {"effective_rank_minimum": "off"},
    }
    names = {check.name for check in all_checks(subject(policy=policy))}
    assert not names & {"score", "findings.inversion", "drift.close", "controls.random", "diversity"}
    assert "drift.unrelated" in names


def test_what_the_policy_names_may_stay_undecided(subject):
    policy = {"score": {"tolerance_nats": 0.001}}
    assert outcome(subject(policy=policy), "score").holds_up
    check = outcome(subject(policy={**policy, "allow_not_evaluated": ["score"]}), "score")
    assert (check.outcome, check.excused, check.holds_up) == ("not_evaluated", True, False)


def test_a_failure_cannot_be_excused(subject):
    assert outcome(subject(sample(score=-0.3), policy={"allow_not_evaluated": ["score"]}), "score").holds_up


def test_pairing_sees_what_independent_samples_cannot(subject):
    before = sample(seed=1, score_spread=1.0)
    moved = replace(before, score=replace(before.score, value=before.score.value - 0.05))
    reference = Reference("own", source_of(before), before)
    policy = {"score": {"tolerance_nats": 0.01}}
    paired = outcome(subject(moved, policy, reference=reference), "score")
    alone = outcome(subject(moved, policy, reference=replace(reference, sample=None)), "score")
    assert paired.outcome == "fail"
    assert " 400 " in paired.message
    assert alone.outcome == "not_evaluated"


def test_worst_rows_come_from_different_queries(subject):
    rows = outcome(subject(sample(consistency=-0.4)), "means.consistency").examples
    assert len({(row.line - 1) // 5 for row in rows}) == 3
    assert all(row.note.startswith("s_qn ") for row in rows)


def test_errors_of_a_few_queries_decide_nothing(subject):
    few = sample(n_queries=4)
    checks = {c.name: c for c in all_checks(subject(own=few, rank=Estimate(50.0, few.queries, np.full(4, 0.01))))}
    assert checks["minimum_queries"].outcome == "fail"
    for name, check in checks.items():
        if not name.startswith("minimum") and name.removeprefix("findings.") not in DEFECTS:
            assert check.outcome == "not_evaluated", name
            assert " 5 distinct" in check.message


def test_a_baseline_of_a_few_queries_decides_nothing_either(subject):
    few = source_of(sample(1, n_queries=4), n_queries=4)
    check = outcome(subject(reference=Reference("own", few, None)), "score")
    assert (check.outcome, check.interval_95) == ("not_evaluated", None)
    assert " 5 distinct" in check.message


def test_a_difference_uses_the_degrees_of_the_side_with_fewer_queries(subject):
    """Of 12 and 400 queries: Student's t with 11 degrees, times sqrt(12 / 11) as in a report."""
    few = source_of(sample(1, n_queries=12), n_queries=12, standard_error_nats=0.01)
    one = subject(reference=Reference("own", few, None))
    check = outcome(one, "score")
    assert check.interval_95 is not None
    error = np.hypot(one.sample.score.standard_error, 0.01)
    half = (check.interval_95[1] - check.interval_95[0]) / 2
    assert half / error == pytest.approx(student.ppf(0.975, 11) * np.sqrt(12 / 11), rel=1e-9)


def test_the_floor_asks_for_distinct_queries(subject):
    checks = {c.name: c for c in all_checks(subject(own=sample(n_queries=100), n_records=400))}
    assert checks["minimum_records"].outcome == "pass"
    assert checks["minimum_queries"].outcome == "fail"
    assert (checks["minimum_queries"].measured, checks["minimum_queries"].limit) == (100, 300)


@pytest.mark.parametrize(
    ("way", "name"), [(-1, "query_similarity"), (1, "query_similarity"), (-1, "locality"), (1, "coverage")]
)
def test_rows_of_a_drift_are_those_that_moved_it(subject, way, name):
    own = sample(**{name: 0.1 * way})
    check = outcome(subject(own=own), f"drift.{name}")
    assert check.outcome == "fail"
    values = own.columns[{"query_similarity": "s_query_negative"}.get(name, name)] * way
    shown = [row.line - 1 for row in check.examples]
    assert len(shown) == 3
    assert values[shown].min() > np.quantile(values, 0.98)


def test_a_negative_counts_once_however_many_positives_it_is_scored_against(subject):
    own = sample()
    query = np.repeat(np.arange(400), 5)
    every = replace(own, table=replace(own.table, triplets=triplets(query, np.full(len(query), 0.25))))
    assert (own.n_negatives, every.n_negatives) == (2000, 500)
    check = outcome(subject(every, {"minimum_negatives": 501}), "minimum_negatives")
    assert (check.outcome, check.measured) == ("fail", 500.0)


def test_a_source_that_is_too_small_shows_the_rows_that_were_left_out(subject):
    left_out = (CheckExample(path="own.jsonl", line=7, query="", negative="", note="left out: no negative"),)
    check = outcome(subject(policy={"minimum_records": 401}, left_out=left_out), "minimum_records")
    assert (check.outcome, check.examples) == ("fail", left_out)
    assert "1 record" in check.what_to_do


def test_rows_of_the_rank_are_those_that_add_least_to_it(subject):
    one = subject()
    per_query = np.linspace(0.0, 1e-3, len(one.sample.queries))[::-1].copy()
    check = outcome(replace(one, rank=Estimate(10.0, one.sample.queries, per_query)), "diversity")
    assert check.outcome == "fail"
    assert [(row.line - 1) // 5 for row in check.examples] == [399, 398, 397]


def test_a_low_rank_of_few_negatives_is_no_failure(subject):
    """A fifth of the baseline's negatives: from a fifth of the limit on, the number alone may be the cause."""
    few = sample(n_queries=80)
    for value, expected in ((5.0, "fail"), (20.0, "not_evaluated"), (50.0, "pass")):
        rank = Estimate(value, few.queries, np.full(80, 0.01))
        one = subject(few, {"diversity": {"effective_rank_minimum": 37.0}}, rank=rank)
        check = outcome(one, "diversity")
        assert check.outcome == expected
    rank = Estimate(20.0, few.queries, np.full(80, 0.01))
    one = subject(few, {"diversity": {"effective_rank_minimum": 37.0}}, rank=rank)
    message = outcome(one, "diversity").message
    assert all(number in message for number in ("2,000 ", "400 ", "7.4"))


@pytest.mark.parametrize(
    ("policy", "name", "vacuous"),
    [
        ({"findings": {"empty": 1.0}}, "findings.empty", True),
        ({"findings": {"inversion": 1.0}}, "findings.inversion", True),
        ({"findings": {"inversion": 0.99}}, "findings.inversion", False),
        ({"means": {"coverage_maximum": 1.0}}, "means.coverage", True),
        ({"means": {"locality_minimum": 0.0}}, "means.locality", True),
        ({"score": {"tolerance_nats": 0.31}}, "score", True),
        ({"score": {"tolerance_nats": 0.29}}, "score", False),
        ({"drift": {"coverage": 0.9}}, "drift.coverage", True),
        ({"drift": {"coverage": 0.5}}, "drift.coverage", False),
        ({"drift": {"query_similarity": 0.9}}, "drift.query_similarity", False),
        ({"diversity": {"effective_rank_minimum": 0.0}}, "diversity", True),
        ({"minimum_records": 1}, "minimum_records", True),
    ],
)
def test_a_limit_that_nothing_can_fail_is_marked(subject, policy, name, vacuous):
    check = outcome(subject(policy=policy), name)
    assert (check.vacuous, check.outcome) == (vacuous, "pass")
    assert check.limit_text.endswith(" (any)") is vacuous


def test_what_nothing_can_fail_is_passed_even_by_an_interval_beyond_it(subject):
    own = sample(n_queries=6)
    own.table.coverage[:] = 1.0
    own.table.coverage[:5] = 0.5
    check = outcome(subject(own, {"means": {"coverage_maximum": 1.0}}), "means.coverage")
    assert check.interval_95 is not None
    assert check.interval_95[1] > 1.0
    assert check.outcome == "pass"


def test_a_difference_of_nothing_has_no_sign(subject):
    before = sample(seed=1)
    message = outcome(subject(before), "drift.score_nats").message
    assert " 0.0000 " in message
    assert "-0" not in message


@pytest.mark.parametrize(
    ("bounds", "most", "least", "inside"),
    [
        ((0.1, 0.2), "pass", "fail", "pass"),
        ((0.4, 0.6), "fail", "pass", "fail"),
        ((0.2, 0.4), "not_evaluated", "not_evaluated", "not_evaluated"),
        ((-0.6, -0.4), "pass", "fail", "fail"),
        ((float("nan"), float("nan")), "not_evaluated", "not_evaluated", "not_evaluated"),
    ],
)
def test_decisions(bounds, most, least, inside):
    outcomes = {side: Limit(side, 0.3).outcome(bounds) for side in (MOST, LEAST, WITHIN)}
    assert outcomes == {MOST: most, LEAST: least, WITHIN: inside}
