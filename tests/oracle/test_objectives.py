"""Tests of the reference for METHOD 9 and 10."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import reference
from tests.oracle.reference import assert_close
from tests.oracle.samples import sigma

# METHOD 9: objectives

POSITIVES, NEGATIVES = [2.0, -1.0, 0.5], [1.0, 0.3, -2.0, 2.5]


def test_with_one_positive_the_first_five_objectives_are_equal():
    losses = {
        name: reference.loss_value(reference.OBJECTIVES[name], [0.7], NEGATIVES)
        for name in ("SingleLH", "Rand1LH", "JointLH", "SumMargLH", "LSEPair")
    }
    expected = math.log(1 + sum(math.exp(score - 0.7) for score in NEGATIVES))
    assert_close(losses, dict.fromkeys(losses, expected), rel=1e-12)


def test_closed_forms_of_the_gradients():
    exp_p, exp_n = np.exp(POSITIVES), np.exp(NEGATIVES)
    whole, omega = exp_p.sum() + exp_n.sum(), 1 + exp_n.sum() * (1 / exp_p).sum()
    lone = exp_p[0] + exp_n.sum()
    expected = {
        "SingleLH": ([exp_p[0] / lone - 1, 0.0, 0.0], exp_n / lone),
        "Rand1LH": ((exp_p / (exp_p + exp_n.sum()) - 1) / 3, exp_n * (1 / (exp_p + exp_n.sum())).mean()),
        "JointLH": (exp_p / whole - 1 / 3, exp_n / whole),
        "SumMargLH": (-exp_p / whole * (whole / exp_p.sum() - 1), exp_n / whole),
        "LSEPair": (-exp_n.sum() / exp_p / omega, exp_n * (1 / exp_p).sum() / omega),
    }
    for name, (by_positive, by_negative) in expected.items():
        found = reference.gradients(reference.OBJECTIVES[name], POSITIVES, NEGATIVES)
        assert_close(found, (np.asarray(by_positive), by_negative), rel=1e-12, abs=1e-15, path=name)


@pytest.mark.parametrize("name", list(reference.OBJECTIVES))
def test_gradients_agree_with_central_differences(name):
    loss, scores = reference.OBJECTIVES[name], POSITIVES + NEGATIVES
    by_positive, by_negative = reference.gradients(loss, POSITIVES, NEGATIVES)
    for index, slope in enumerate([*by_positive, *by_negative]):
        ends = []
        for step in (1e-5, -1e-5):
            moved = [score + step * (index == place) for place, score in enumerate(scores)]
            ends.append(reference.loss_value(loss, moved[:3], moved[3:]))
        assert_close(slope, (ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-9)


def test_restricted_pair_objectives_by_hand():
    def pairs(positives: list[float], negatives: list[float]) -> float:
        return math.log(1 + sum(math.exp(low - high) for high in positives for low in negatives))

    expected = {
        "LSEPair": pairs(POSITIVES, NEGATIVES),
        "LSEPair maxP": pairs([2.0], NEGATIVES),
        "LSEPair maxN": pairs(POSITIVES, [2.5]),
        "LSEPair minP": pairs([-1.0], NEGATIVES),
        "LSEPair minP·maxN": pairs([-1.0], [2.5]),
    }
    found = {name: reference.loss_value(reference.OBJECTIVES[name], POSITIVES, NEGATIVES) for name in expected}
    assert_close(found, expected, rel=1e-12)


def test_masked_negatives_play_no_part():
    loss = reference.masked(reference.OBJECTIVES["SingleLH"], [True, False, True, False])
    expected = reference.loss_value(reference.OBJECTIVES["SingleLH"], POSITIVES, [1.0, -2.0])
    assert_close(reference.loss_value(loss, POSITIVES, NEGATIVES), expected, rel=1e-12)
    assert reference.gradients(loss, POSITIVES, NEGATIVES)[1][1] == 0.0


def test_huge_logits_stay_finite():
    for loss in reference.OBJECTIVES.values():
        assert math.isfinite(reference.loss_value(loss, [-2000.0, 0.0], [2000.0, 1.0]))
        assert all(np.isfinite(part).all() for part in reference.gradients(loss, [-2000.0, 0.0], [2000.0, 1.0]))


def test_mw_loss_and_gradients_by_hand():
    loss = sum(math.log(1 + math.exp(low - high)) for high in POSITIVES for low in NEGATIVES) / 12
    assert_close(reference.mw_loss(POSITIVES, NEGATIVES), loss, rel=1e-12)
    by_positive = np.array([-sum(sigma(low - high) for low in NEGATIVES) / 4 for high in POSITIVES])
    by_negative = np.array([sum(sigma(low - high) for high in POSITIVES) / 3 for low in NEGATIVES])
    assert_close(reference.mw_gradients(POSITIVES, NEGATIVES), (by_positive, by_negative), rel=1e-12)


# METHOD 10


def test_auc_equals_the_count_over_all_pairs():
    positives, negatives = [1.0, 2.0, 2.0, 5.0], [2.0, 0.0, 2.0, 6.0, 1.0]
    count = sum((high > low) + 0.5 * (high == low) for high in positives for low in negatives)
    assert reference.auc(positives, negatives) == count / 20
    assert reference.auc([1.0], [1.0]) == 0.5


def test_a_per_query_offset_moves_the_pooled_auc_alone():
    positives, negatives = {"a": [0.9, 0.5], "b": [0.8]}, {"a": [0.6], "b": [0.1, 0.2, 0.7], "c": [0.3]}
    found = reference.separation(positives, negatives, 0.05)
    assert_close(found["within_query_auc"], 0.75)
    assert_close(found["within_pair_auc"], 0.8)
    shifted = reference.separation({**positives, "b": [2.8]}, {**negatives, "b": [2.1, 2.2, 2.7]}, 0.05)
    assert_close(shifted["within_query_auc"], 0.75)
    assert_close([found["auc"], shifted["auc"]], [13 / 15, 8 / 15])


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(-8, 8), min_size=1, max_size=9),
    st.lists(st.integers(-8, 8), min_size=1, max_size=9),
)
def test_mw_loss_bounds_the_ordering_errors(positives, negatives):
    found = reference.separation({"q": positives}, {"q": negatives}, 2.0)
    assert found["aoc"] <= found["aoc_with_ties"] <= found["mw_loss"] / math.log(2) + 1e-12


def test_margins_by_hand():
    s_qp, s_qn = np.array([0.5, 0.5, -0.5, -0.5]), np.array([0.48, 0.3, -0.52, -0.6])
    assert reference.margin_flags(s_qp, s_qn, absolute=0.15).tolist() == [True, False, True, True]
    assert reference.margin_flags(s_qp, s_qn, relative=0.05).tolist() == [True, False, True, False]
    assert reference.margin_flags(s_qp, s_qn, maximum=0.3).tolist() == [True, True, False, False]
    assert not reference.margin_flags(s_qp, s_qn).any()
