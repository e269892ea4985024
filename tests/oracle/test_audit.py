"""Compare AUROC, precision and recall of the audit with an independent reference (METHOD 10)."""

from __future__ import annotations

import numpy as np
import pytest

from secid.scoring.audit import AuditedNegatives, auroc, auroc_interval, rules, source_audit
from tests.oracle import audit as oracle
from tests.oracle.closeness import assert_close


def sample(seed: int, n_queries: int = 12, *, lift: float = 0.2) -> tuple[AuditedNegatives, np.ndarray, np.ndarray]:
    """Negatives with s_qn and s_qp, rounded so that many tie; cosines on both sides of 0, shares, three labels."""
    draw = np.random.default_rng(seed)
    counts = 1 + draw.integers(0, 6, n_queries)
    cluster = np.repeat(np.arange(n_queries), counts)
    grade = draw.choice([np.nan, 0.0, 1.0, 2.0], len(cluster), p=[0.5, 0.1, 0.2, 0.2])
    grade[:2] = [0.0, 1.0]
    s_qp = np.round(draw.uniform(-0.3, 0.6, n_queries), 1)[cluster]
    s_qn = np.round(s_qp + draw.normal(lift * (grade > 0), 0.2), 1)
    names = np.array([bytes([65 + place]) * 16 for place in range(n_queries)], "S16")
    return AuditedNegatives(grade, cluster, names, draw.uniform(0.2, 1.0, len(cluster))), s_qn, s_qp


@pytest.mark.parametrize("seed", range(5))
def test_auroc_and_its_error_equal_the_double_loop(seed):
    negatives, s_qn, s_qp = sample(seed)
    for rule in rules(s_qn, s_qp).values():
        estimate = auroc(rule.score, negatives)
        assert estimate is not None
        arguments = rule.score, negatives.relevant, negatives.share
        assert_close(estimate.value, oracle.auroc(*arguments))
        np.testing.assert_allclose(
            estimate.per_query, oracle.influence(*arguments, negatives.cluster), rtol=1e-6, atol=1e-9
        )


def test_the_reference_notices_damage():
    negatives, s_qn, s_qp = sample(0)
    score, relevant = rules(s_qn, s_qp)["consistency"].score, negatives.relevant.copy()
    right = auroc(score, negatives)
    relevant[:2] = ~relevant[:2]
    assert right is not None
    assert abs(oracle.auroc(score, relevant, negatives.share) - right.value) > 1e-3
    assert abs(oracle.auroc(score, negatives.relevant, np.ones(len(score))) - right.value) > 1e-4


def test_the_worked_example_and_its_reverse():
    names = np.array([b"a" * 16, b"b" * 16], "S16")
    negatives = AuditedNegatives(np.array([1.0, 1, 0, np.nan]), np.array([0, 1, 0, 1]), names, np.ones(4))
    score = np.array([0.9, 0.4, 0.5, 0.4])
    values = [auroc(way, negatives).value for way in (score, -score, np.zeros(4))]
    assert_close(np.array(values), np.array([0.625, 0.375, 0.5]))


@pytest.mark.parametrize("temperature", [0.01, 0.05, 1.0])
def test_flags_precision_and_recall_equal_the_definitions(temperature):
    negatives, s_qn, s_qp = sample(7, 40)
    result = source_audit("s", negatives, s_qn, s_qp, np.zeros(len(s_qn), np.bool_), 3, 9)
    for name, flags in oracle.flags(s_qn, s_qp, temperature).items():
        rule = result.rule(name)
        assert rules(s_qn, s_qp)[name].flags.tolist() == flags
        assert_close(
            np.array([rule.precision, rule.recall]),
            np.array(oracle.shares(flags, negatives.relevant, negatives.share)),
        )
        masks = (negatives.grade > 0, negatives.grade <= 0)
        counts = [round(negatives.share[np.array(flags) & mask].sum()) for mask in masks]
        assert [rule.n_flagged_relevant, rule.n_flagged_non_relevant] == counts
    counts = [negatives.share[mask].sum() for mask in (negatives.grade > 0, negatives.grade == 0)]
    assert [result.n_labelled_relevant, result.n_labelled_non_relevant] == [round(count) for count in counts]
    assert result.n_negatives == 9 + result.n_labelled_relevant + result.n_labelled_non_relevant + result.n_unjudged


def test_the_score_of_a_relative_margin_orders_negatives_by_the_margin_that_flags_them():
    """Below zero and at zero too: the smallest r that flags is the negated score."""
    s_qp = np.array([0.5, 0.5, -0.4, -0.4, 0.0, 0.0])
    s_qn = np.array([0.6, 0.4, -0.3, -0.5, 0.1, -0.1])
    score = rules(s_qn, s_qp)["relative"].score
    assert_close(score[:4], np.array([0.2, -0.2, 0.25, -0.25]))
    assert score[4:].tolist() == [np.inf, -np.inf]


def test_the_interval_covers_the_auroc_of_the_process():
    """Queries differ in level, so negatives of a query are alike. An error that treats them as independent fails."""
    inside = alone = 0
    draws, truth = 400, 0.760
    for seed in range(draws):
        draw = np.random.default_rng(seed)
        cluster = np.repeat(np.arange(60), 10)
        grade = (draw.random(600) < np.where(np.arange(60) % 3, 0.05, 0.6)[cluster]).astype(float)
        score = draw.normal(size=60)[cluster] + draw.normal(size=600) + 1.0 * np.sqrt(2) * (grade > 0)
        names = np.array([place.to_bytes(16, "big") for place in range(1, 61)], "S16")
        negatives = AuditedNegatives(grade, cluster, names, np.ones(600))
        low, high = auroc_interval(auroc(score, negatives), negatives)
        inside += low <= truth <= high
        each = AuditedNegatives(
            grade, np.arange(600), np.array([b"%d" % place for place in range(600)], "S16"), np.ones(600)
        )
        low, high = auroc_interval(auroc(score, each), each)
        alone += low <= truth <= high
    assert inside >= 0.93 * draws
    assert alone < 0.90 * draws


@pytest.mark.parametrize(
    ("grade", "reason"), [(np.nan, "none_relevant"), (0.0, "none_relevant"), (2.0, "all_relevant")]
)
def test_one_class_has_no_auroc(grade, reason):
    negatives, s_qn, s_qp = sample(3)
    negatives = AuditedNegatives(np.full(len(s_qn), grade), negatives.cluster, negatives.names, negatives.share)
    result = source_audit("s", negatives, s_qn, s_qp, np.zeros(len(s_qn), np.bool_), 0, 0)
    assert result.auroc_consistency is None
    assert result.not_evaluated["auroc"] == reason
    assert ("recall" in result.not_evaluated) == (reason == "none_relevant")


def test_few_queries_give_no_interval_and_a_perfect_order_still_has_a_width():
    names = np.array([bytes([65 + place]) * 16 for place in range(10)], "S16")
    for n_relevant, ends in ((4, (0.0, 1.0)), (6, None)):
        grade = np.tile([0.0, 1.0], 10) * (np.arange(20) < 2 * n_relevant)
        negatives = AuditedNegatives(grade, np.repeat(np.arange(10), 2), names, np.ones(20))
        estimate = auroc(grade.copy(), negatives)
        low, high = auroc_interval(estimate, negatives)
        assert estimate.value == 1.0
        assert (low, high) == ends if ends else (0.3 < low < 0.9 and high == 1.0)
