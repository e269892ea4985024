"""Every check: passes, fails, and stays undecided where the interval lies on both sides of the limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student
from secid.gating.columns import _shares

from secid.gating.checks import all_checks, excused
from secid.gating.policy import CHECK_NAMES, DEFECT_BUCKETS
from secid.gating.subject import Reference, at_least, at_most, within
from secid.triplets.estimates import Estimate
from tests.unit.gating.conftest import columns, findings, outcome, source_of


def test_a_fresh_sample_of_the_same_process_passes_every_check(subject):
    drafts = list(all_checks(subject()))
    assert {draft.check.outcome for draft in drafts} == {"pass"}
    assert [draft.check.name for draft in drafts] == [name for name in CHECK_NAMES if name != "drift"]


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
        ({"consistency": -0.4}, "buckets.inversion", "fail"),
        ({"coverage": 0.4}, "buckets.high_coverage", "fail"),
        ({"s_positive_negative": 0.6}, "buckets.near_copy", "fail"),
        ({"s_query_negative": -0.1}, "drift.query_similarity", "fail"),
        ({"s_query_negative": -0.1}, "drift.unrelated", "fail"),
        ({"s_query_negative": 0.1}, "drift.close", "fail"),
        ({"s_query_negative": -0.4}, "controls.random", "fail"),
        ({"s_query_negative": -0.4}, "controls.shuffled", "fail"),
    ],
)
def test_a_shifted_source_is_told(subject, shift, name, expected):
    draft = outcome(subject(columns(**shift)), name)
    assert draft.check.outcome == expected
    if expected == "fail":
        assert draft.check.what_to_do
        assert draft.check.interval_95 is not None
        assert draft.check.limit is not None


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("score", {"score": {"tolerance_nats": 0.001}}),
        ("means.consistency", {"means": {"consistency_minimum": 0.8}}),
        ("means.locality", {"means": {"locality_minimum": 0.5}}),
        ("means.coverage", {"means": {"coverage_maximum": 0.2}}),
        ("buckets.inversion", {"buckets": {"inversion": 0.002}}),
        ("buckets.high_coverage", {"buckets": {"high_coverage": 0.005}}),
        ("controls.random", {"controls": {"relatedness_minimum": 0.667}}),
        ("diversity", {"diversity": {"effective_rank_minimum": 50.0}}),
        ("drift.query_similarity", {"drift": {"query_similarity": 0.0001}}),
        ("drift.score_nats", {"drift": {"score_nats": 0.0001}}),
    ],
)
def test_an_interval_across_the_limit_is_undecided(subject, name, policy):
    check = outcome(subject(policy=policy), name).check
    assert check.outcome == "not_evaluated"
    assert "more records" in check.what_to_do
    assert check.holds_up


@pytest.mark.parametrize("name", [name for name in DEFECT_BUCKETS if name != "near_copy"])
def test_defects_are_counted(subject, name):
    draft = outcome(subject(texts={name: 0.2}), f"buckets.{name}")
    assert draft.check.outcome == "fail"
    assert draft.check.measured == pytest.approx(0.2)
    assert len(draft.rows) == 3
    assert outcome(subject(), f"buckets.{name}").check.outcome == "pass"


def test_a_number_that_is_not_finite_is_no_pass(subject):
    broken = columns()
    broken.values["consistency"][0] = np.nan
    for name in ("means.consistency", "drift.consistency"):
        assert outcome(subject(broken), name).check.outcome == "not_evaluated"


def test_diversity_fails_below_its_limit(subject):
    made = subject()
    few = Estimate(10.0, made.columns.queries, np.full(len(made.columns.queries), 0.01))
    assert outcome(replace(made, rank=few), "diversity").check.outcome == "fail"


def test_sizes(subject):
    policy = {"minimum_records": 401, "minimum_negatives": 2000}
    assert outcome(subject(policy=policy), "minimum_records").check.outcome == "fail"
    assert outcome(subject(policy=policy), "minimum_negatives").check.outcome == "pass"


def test_a_control_that_cannot_be_made_is_no_pass(subject):
    check = outcome(subject(controls={}, missing={"random": "fewer than two queries"}), "controls.random").check
    assert check.outcome == "not_evaluated"
    assert "fewer than two queries" in check.message


def test_positives_no_nearer_than_the_control_decide_nothing(subject):
    unrelated = columns(3, s_query_positive=-0.6)
    assert outcome(subject(unrelated), "controls.random").check.outcome == "not_evaluated"


@pytest.mark.parametrize(("choice", "holds"), [("allow", False), ("hold", True)])
def test_a_source_without_a_last_version(subject, choice, holds):
    check = outcome(subject(previous=None, policy={"drift": {"new_source": choice}}), "drift").check
    assert check.outcome == "not_evaluated"
    assert check.holds_up is holds


def test_off_leaves_a_check_out(subject):
    policy = {
        "score": {"tolerance_nats": "off"},
        "buckets": {"inversion": "off"},
        "drift": {"close": "off"},
        "controls": {"differ_from": []},
        "diversity": {"effective_rank_minimum": "off"},
    }
    names = {draft.check.name for draft in all_checks(subject(policy=policy))}
    assert not names & {"score", "buckets.inversion", "drift.close", "controls.random", "diversity"}
    assert "drift.unrelated" in names


def test_what_the_policy_names_may_stay_undecided(subject):
    policy = {"score": {"tolerance_nats": 0.001}, "allow_not_evaluated": ["score"]}
    made = subject(policy=policy)
    draft = excused(outcome(made, "score"), made.policy)
    assert draft.check.outcome == "not_evaluated"
    assert not draft.check.holds_up
    other = excused(outcome(subject(policy={"score": {"tolerance_nats": 0.001}}), "score"), subject().policy)
    assert other.check.holds_up


def test_a_failure_cannot_be_excused(subject):
    made = subject(columns(score=-0.3), policy={"allow_not_evaluated": ["score"]})
    assert excused(outcome(made, "score"), made.policy).check.holds_up


def test_pairing_sees_what_independent_samples_cannot(subject):
    before = columns(seed=1, score_spread=1.0)
    moved = replace(before, score=replace(before.score, value=before.score.value - 0.05))
    reference = Reference("own", source_of(before), before)
    policy = {"score": {"tolerance_nats": 0.01}}
    paired = outcome(subject(moved, policy, reference=reference), "score").check
    alone = outcome(subject(moved, policy, reference=replace(reference, columns=None)), "score").check
    assert paired.outcome == "fail"
    assert "paired over 400 shared queries" in paired.message
    assert alone.outcome == "not_evaluated"


def test_worst_rows_come_from_different_queries(subject):
    made = subject(columns(consistency=-0.4))
    rows = outcome(made, "buckets.inversion").rows
    assert len(rows) == 3
    assert len({(place[1] - 1) // 5 for place, _ in rows}) == 3


def test_findings_of_the_fixture_are_what_they_say():
    found = columns()
    assert findings(found, duplicate=0.4).shares["duplicate"].value == pytest.approx(0.4)


def test_errors_of_a_few_queries_decide_nothing(subject):
    few = columns(n_queries=4)
    drafts = list(all_checks(subject(own=few, rank=Estimate(50.0, few.queries, np.full(4, 0.01)))))
    found = {draft.check.name: draft.check.outcome for draft in drafts}
    assert found["minimum_queries"] == "fail"
    for name, decision in found.items():
        if not name.startswith("minimum") and name.removeprefix("buckets.") not in DEFECT_BUCKETS:
            assert decision == "not_evaluated", name
    for name in ("score", "buckets.inversion", "diversity"):
        message = next(d for d in drafts if d.check.name == name).check.message
        assert "no 95 % interval from fewer than 5 distinct queries" in message


def test_a_baseline_of_a_few_queries_decides_nothing_either(subject):
    few = source_of(columns(1, n_queries=4), n_queries=4)
    found = outcome(subject(reference=Reference("own", few, None)), "score").check
    assert (found.outcome, found.interval_95) == ("not_evaluated", None)
    assert "fewer than 5 distinct queries" in found.message


def test_a_difference_uses_the_degrees_of_the_side_with_fewer_queries(subject):
    """Of 12 and 400 queries: Student's t with 11 degrees, times sqrt(12 / 11) as in a report."""
    few = source_of(columns(1, n_queries=12), n_queries=12, standard_error_nats=0.01)
    made = subject(reference=Reference("own", few, None))
    found = outcome(made, "score").check
    assert found.interval_95 is not None
    error = np.hypot(made.columns.score.standard_error, 0.01)
    half = (found.interval_95[1] - found.interval_95[0]) / 2
    assert half / error == pytest.approx(student.ppf(0.975, 11) * np.sqrt(12 / 11), rel=1e-9)


def test_the_floor_asks_for_distinct_queries(subject):
    drafts = {d.check.name: d.check for d in all_checks(subject(own=columns(n_queries=100), n_records=400))}
    assert drafts["minimum_records"].outcome == "pass"
    assert drafts["minimum_queries"].outcome == "fail"
    assert drafts["minimum_queries"].message == "100 distinct queries to score; the policy asks for at least 300"


@pytest.mark.parametrize(
    ("way", "name"), [(-1, "query_similarity"), (1, "query_similarity"), (-1, "locality"), (1, "coverage")]
)
def test_rows_of_a_drift_are_those_that_moved_it(subject, way, name):
    column = {"query_similarity": "s_query_negative"}.get(name, name)
    own = columns(**{column: 0.1 * way})
    draft = outcome(subject(own=own), f"drift.{name}")
    assert draft.check.outcome == "fail"
    values = own.values[column] * way
    shown = [place[1] - 1 for place, _ in draft.rows]
    assert len(shown) == 3
    assert values[shown].min() > np.quantile(values, 0.98)


def test_a_negative_counts_once_however_many_positives_it_is_scored_against(subject):
    own = columns()
    every = replace(own, share=np.full(len(own.cluster), 0.25))
    assert (own.n_negatives, every.n_negatives) == (2000, 500)
    policy = {"minimum_negatives": 501}
    check = outcome(subject(every, policy), "minimum_negatives").check
    assert (check.outcome, check.measured) == ("fail", 500.0)
    assert "of 500 negatives" in outcome(subject(every, policy), "buckets.inversion").check.message


def test_a_near_copy_of_one_of_several_positives_counts_whole(subject):
    own = columns()
    pairs = np.arange(len(own.cluster))
    near = np.where(pairs % 40 == 0, 1.0, 0.4)  # one pair in forty, so one negative in ten
    flat = np.zeros(len(pairs))
    values = {**own.values, "s_positive_negative": near, "consistency": near - 0.5}
    every = replace(own, values=values, share=flat + 0.25, negative=pairs // 4)
    check = outcome(subject(every), "buckets.near_copy").check
    assert (check.outcome, check.measured) == ("fail", 0.1)
    assert outcome(subject(every), "buckets.inversion").check.measured == pytest.approx(39 / 40)
    half = every.restricted(own.queries[:200]).buckets(0.5, 0.99)["near_copy"]
    assert (half.value, len(half.queries)) == (pytest.approx(0.1), 200)


def test_triplets_of_a_run_folder_share_their_negative():
    share, negative = _shares(np.array([0, 0, 0, 0, 1]), np.array([0, 1, 0, 1, 0]))
    assert share is not None
    assert negative is not None
    assert share.tolist() == [0.5, 0.5, 0.5, 0.5, 1.0]
    assert negative.tolist() == [0, 1, 0, 1, 2]
    assert _shares(np.array([0, 0]), np.array([0, 1])) == (None, None)


def test_a_source_that_is_too_small_shows_the_rows_that_were_left_out(subject):
    left_out = ((("own.jsonl", 7, 0), "left out: no negative"),)
    draft = outcome(subject(policy={"minimum_records": 401}, left_out=left_out), "minimum_records")
    assert (draft.check.outcome, draft.rows) == ("fail", left_out)
    assert draft.check.what_to_do == "add 1 record: so few decide little"


def test_rows_of_the_rank_are_those_that_add_least_to_it(subject):
    made = subject()
    per_query = np.linspace(0.0, 1e-3, len(made.columns.queries))[::-1].copy()
    draft = outcome(replace(made, rank=Estimate(10.0, made.columns.queries, per_query)), "diversity")
    assert draft.check.outcome == "fail"
    assert [(place[1] - 1) // 5 for place, _ in draft.rows] == [399, 398, 397]


def test_a_low_rank_of_few_negatives_is_no_failure(subject):
    """A fifth of the baseline's negatives: from a fifth of the limit on, the number alone may be the cause."""
    few = columns(n_queries=80)
    for value, expected in ((5.0, "fail"), (20.0, "not_evaluated"), (50.0, "pass")):
        rank = Estimate(value, few.queries, np.full(80, 0.01))
        made = subject(few, {"diversity": {"effective_rank_minimum": 37.0}}, rank=rank)
        check = outcome(made, "diversity").check
        assert check.outcome == expected
    few_reach = "where 2,000, as in the baseline, reach the limit, 400 may reach no more than 7.4"
    rank = Estimate(20.0, few.queries, np.full(80, 0.01))
    made = subject(few, {"diversity": {"effective_rank_minimum": 37.0}}, rank=rank)
    assert few_reach in outcome(made, "diversity").check.message


@pytest.mark.parametrize(
    ("policy", "name", "vacuous"),
    [
        ({"buckets": {"empty": 1.0}}, "buckets.empty", True),
        ({"buckets": {"inversion": 1.0}}, "buckets.inversion", True),
        ({"buckets": {"inversion": 0.99}}, "buckets.inversion", False),
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
    check = outcome(subject(policy=policy), name).check
    assert (check.vacuous, check.outcome) == (vacuous, "pass")
    assert check.limit_text.endswith(" (any)") is vacuous


def test_what_nothing_can_fail_is_passed_even_by_an_interval_beyond_it(subject):
    own = columns(n_queries=6)
    own.values["coverage"][:] = 1.0
    own.values["coverage"][:5] = 0.5
    check = outcome(subject(own, {"means": {"coverage_maximum": 1.0}}), "means.coverage").check
    assert check.interval_95 is not None
    assert check.interval_95[1] > 1.0
    assert check.outcome == "pass"


def test_a_difference_of_nothing_has_no_sign(subject):
    before = columns(seed=1)
    message = outcome(subject(before), "drift.score_nats").check.message
    assert "moved by 0.0000 from 0.3000" in message
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
    assert at_most(bounds, 0.3) == most
    assert at_least(bounds, 0.3) == least
    assert within(bounds, 0.3) == inside
