"""Every check: passes, fails, and stays undecided where the interval lies on both sides of the limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from secid.gating.checks import all_checks, excused
from secid.gating.estimates import Estimate
from secid.gating.policy import CHECK_NAMES, DEFECT_BUCKETS
from secid.gating.subject import Reference
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
    assert "4 distinct queries tell no error" in next(d for d in drafts if d.check.name == "score").check.message


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
