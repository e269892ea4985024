"""Test means, ratios and shares with errors by query, and their intervals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student

from secid.measure.interval import Difference, interval
from secid.triplets.estimates import (
    Estimate,
    clustered_mean,
    comparable_keys,
    estimated_gap,
    paired_difference,
    unpaired_difference,
    wilson_interval,
)
from secid.triplets.random_reference import QuerySums


def names(*numbers: int) -> np.ndarray:
    return comparable_keys(np.array([[0] * 15 + [n] for n in numbers], np.uint8))


def test_a_mean_by_hand():
    found = clustered_mean(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1]), names(1, 2))
    assert found.value == 3.0
    np.testing.assert_allclose(found.per_query, [-2 / 3, 2 / 3])
    assert found.standard_error == pytest.approx(np.sqrt(8) / 3)


def test_shares_weigh_triplets():
    found = clustered_mean(np.array([1.0, 0.0]), np.array([0, 1]), names(1, 2), np.array([3.0, 1.0]))
    assert found.value == 0.75


def test_the_error_is_that_of_repeated_samples():
    draw = np.random.default_rng(0)
    values, errors = [], []
    for _ in range(400):
        query = np.repeat(draw.standard_normal(100), 5)
        found = clustered_mean(
            query + draw.standard_normal(500), np.repeat(np.arange(100), 5), np.arange(100).astype("S16")
        )
        values.append(found.value)
        errors.append(found.standard_error)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.1)


def test_names_that_end_in_zero_bytes_stay_apart():
    keys = np.array([[1] + [0] * 15, [1, 1] + [0] * 14, [0] * 16], np.uint8)
    assert len(np.unique(comparable_keys(keys))) == 3


def test_a_difference_of_equal_samples_is_certain():
    found = clustered_mean(np.array([1.0, 2.0, 4.0]), np.arange(3), names(1, 2, 3))
    gap = paired_difference(found, found)
    assert (gap.value, gap.standard_error, gap.n_shared) == (0.0, 0.0, 3)
    assert unpaired_difference(found, 7 / 3, found.standard_error, 3).standard_error > found.standard_error


def test_queries_of_only_one_side_count_too():
    first = Estimate(1.0, names(1, 2), np.array([0.1, -0.1]))
    second = Estimate(0.5, names(2, 3), np.array([0.1, -0.1]))
    gap = estimated_gap(first, second)
    assert gap.value == 0.5
    np.testing.assert_allclose(sorted(gap.per_query), [-0.2, 0.1, 0.1])


def test_a_ratio_by_the_delta_method():
    draw = np.random.default_rng(1)
    found = []
    for _ in range(500):
        top, bottom = 1 + draw.standard_normal(200), 2 + draw.standard_normal(200)
        sums = QuerySums.of(np.arange(200), top, bottom, None)
        error = np.sqrt((sums.influence(top.sum(), bottom.sum()) ** 2).sum())
        found.append((sums.value, error))
    values, errors = np.array(found).T
    assert errors.mean() == pytest.approx(values.std(), rel=0.1)


def test_a_ratio_to_nothing_is_none():
    for bottom in (0.0, -1.0, float("nan")):
        assert QuerySums(np.zeros(1, np.int64), np.ones(1), np.array([bottom])).value is None


def test_nothing_found_in_500_queries_is_less_than_one_percent():
    low, high = wilson_interval(Estimate(0.0, np.arange(500).astype("S16"), np.zeros(500)))
    assert low == 0.0
    assert high == pytest.approx(3.868 / 503.868, rel=1e-3)


def test_the_interval_of_a_share_holds_it():
    flags = (np.arange(1000) % 10 == 0).astype(float)
    found = clustered_mean(flags, np.arange(1000), np.arange(1000).astype("S16"))
    low, high = wilson_interval(found)
    assert low < 0.1 < high
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(0.09 / 1000), rel=0.02)


@pytest.mark.parametrize("n_negatives", [2, 3, 7])
def test_a_share_that_is_the_same_for_every_query_has_the_interval_of_one_draw_a_query(n_negatives):
    """1 of 3 negatives of each query: the mean of thirds leaves a spread of 1e-17, which is rounding and no error."""
    flags, cluster = np.tile(np.eye(n_negatives)[0], 30), np.repeat(np.arange(30), n_negatives)
    share = clustered_mean(flags, cluster, np.arange(30).astype("S16"))
    reach = student.ppf(0.975, 29) * np.sqrt(30 / 29)
    for end in wilson_interval(share):
        assert abs(end - share.value) == pytest.approx(reach * np.sqrt(end * (1 - end) / 30), rel=1e-9)


def test_the_interval_of_a_gate_is_that_of_a_report():
    """Student's t by the number of distinct queries, on both sides; with 1,000 queries it still differs from 1.96."""
    for n in (5, 12, 100, 1000):
        half = student.ppf(0.975, n - 1) * np.sqrt(n / (n - 1)) * 0.01
        assert interval(0.3, 0.01, n) == pytest.approx((0.3 - half, 0.3 + half), rel=1e-12)
        assert Difference(0.3, 0.01, n).interval == Difference(0.3, 0.01, n, n).interval_within(1.0)
        assert half > 1.961 * 0.01
    assert interval(0.3, 0.01, 4) == (-np.inf, np.inf)


def test_an_interval_keeps_to_the_values_that_there_can_be():
    assert interval(0.3, 1.0, 40, (0.0, 1.0)) == interval(0.3, 0.01, 4, (0.0, 1.0)) == (0.0, 1.0)
    assert np.isnan(interval(0.3, float("nan"), 40, (0.0, 1.0))).all()
    mean = Estimate(0.3, np.arange(12).astype("S16"), np.full(12, 0.01))
    assert mean.interval == interval(0.3, mean.standard_error, 12)


def test_the_interval_of_a_share_reaches_as_far():
    """Wilson's formula solved by its definition: |p - share| = reach * sqrt(p (1 - p) / n) at both ends."""
    share = Estimate(0.25, np.arange(12).astype("S16"), np.full(12, 0.125 / np.sqrt(12)))
    reach = student.ppf(0.975, 11) * np.sqrt(12 / 11)
    for end in wilson_interval(share):
        assert abs(end - 0.25) == pytest.approx(reach * np.sqrt(end * (1 - end) / 12), rel=1e-9)
    for value in (0.0, 0.5, 1.0):
        assert wilson_interval(Estimate(value, names(1, 2, 3, 4), np.full(4, 0.1))) == (0.0, 1.0)


def test_differences_keep_the_smaller_number_of_queries():
    few, many = (Estimate(0.0, np.arange(n).astype("S16"), np.zeros(n)) for n in (6, 40))
    assert paired_difference(few, many).n_queries == paired_difference(many, few).n_queries == 6
    assert unpaired_difference(many, 0.0, 0.1, 6).n_queries == unpaired_difference(few, 0.0, 0.1, 40).n_queries == 6
