"""Tests of the reference for METHOD 8."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.oracle import reference
from tests.oracle.reference import assert_close
from tests.oracle.samples import information_matrix, random_source


@pytest.mark.parametrize("budget", [1.0, 300.0])
@pytest.mark.parametrize("dimension", [3, 40])
def test_influences_sum_to_zero_and_match_the_inverse(budget, dimension):
    measured = random_source(11, 10, 3, dimension)
    values = reference.influence(measured.weight, measured.direction, budget)
    assert abs(math.fsum(values)) < 1e-10 * np.abs(values).sum()
    matrix = information_matrix(measured)
    inverse = np.linalg.inv(np.eye(dimension) + budget * matrix)
    direct = [
        budget * (weight * u @ inverse @ u - np.trace(inverse @ matrix))
        for weight, u in zip(measured.weight, measured.direction, strict=True)
    ]
    assert_close(values, direct, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("budget", [1.0, 100.0])
def test_influence_is_the_derivative_of_the_score_by_a_querys_share(budget):
    measured = random_source(12, 8, 3, 5)
    sums = reference.source_sums(measured, budget)
    for query, expected in sums.items():
        own = np.array([name == query for name in measured.queries])

        def score(step: float, own: np.ndarray = own) -> float:
            times = np.where(own, 1.0 + step, 1.0)
            weight = measured.weight * times * len(times) / times.sum()
            return reference.log_det_nats(reference.singular_values(weight, measured.direction), budget)

        slope = (score(1e-4) - score(-1e-4)) / 2e-4
        assert_close(slope, expected, rel=1e-5, abs=1e-9)


def test_leaving_one_query_out_moves_the_score_by_about_its_influence():
    measured = random_source(13, 400, 2, 4)
    sums = reference.source_sums(measured)
    whole = reference.summary(measured)["eci_nats"]
    for query in measured.queries[:10:2]:
        mask = np.array([name != query for name in measured.queries])
        left = reference.log_det_nats(reference.singular_values(measured.weight[mask], measured.direction[mask]))
        assert_close(whole - left, sums[query] * 400 / 399, rel=0.02, abs=1e-7)


def test_standard_error_agrees_with_the_bootstrap():
    measured = random_source(14, 150, 6, 5, ragged=True)
    sums = reference.source_sums(measured)
    draws = reference.bootstrap_scores(
        measured.queries,
        measured.weight,
        measured.direction,
        n_resamples=1500,
        generator=np.random.default_rng(15),
    )
    assert_close(reference.standard_error(sums), draws.std(ddof=1), rel=0.10)
    # 1,500 draws settle the bootstrap's own error at 1.8 %; triplets taken as independent must be off.
    naive = math.sqrt(math.fsum(reference.influence(measured.weight, measured.direction) ** 2)) / len(measured.weight)
    assert naive != pytest.approx(reference.standard_error(sums), rel=0.01)


def test_bias_matches_its_definition_and_the_bootstrap():
    measured = random_source(16, 40, 3, 4)
    budget = 200.0
    matrix = information_matrix(measured)
    inverse = np.linalg.inv(np.eye(4) + budget * matrix)
    total = 0.0
    for query in dict.fromkeys(measured.queries):
        own = [index for index, name in enumerate(measured.queries) if name == query]
        part = sum(
            measured.weight[index] * np.outer(measured.direction[index], measured.direction[index]) - matrix
            for index in own
        )
        total += np.trace(np.linalg.matrix_power(inverse @ part / len(measured.weight), 2))
    bias = reference.bias_nats(measured.queries, measured.weight, measured.direction, budget)
    assert_close(bias, 0.5 * budget**2 * total, rel=1e-9)
    draws = reference.bootstrap_scores(
        measured.queries,
        measured.weight,
        measured.direction,
        n_resamples=1500,
        generator=np.random.default_rng(17),
        budget=budget,
    )
    full = reference.budget_curve(reference.spectrum(measured.weight, measured.direction), [budget])[budget]
    assert_close(bias, full - draws.mean(), rel=0.25)


def test_paired_error_of_a_source_with_itself_is_zero_and_of_strangers_adds():
    first = reference.source_sums(random_source(18, 20, 2, 4))
    strangers = {f"other {query}": value for query, value in first.items()}
    error = reference.standard_error(first)
    assert reference.paired_standard_error(first, first) == 0.0
    assert_close(reference.paired_standard_error(first, strangers), error * math.sqrt(2), rel=1e-12)
    assert_close(reference.covariance(first, first), error**2, rel=1e-12)
    assert reference.covariance(first, strangers) == 0.0
    assert reference.standard_error(first, sampled_fraction=1.0) == 0.0


def test_comparison_arithmetic_by_hand():
    assert_close(reference.holm([0.01, 0.04, 0.03]), [0.03, 0.06, 0.06], rel=1e-12)
    assert reference.holm([0.6, 0.7]) == [1.0, 1.0]
    assert_close(reference.two_sided_p(1.959963984540054), 0.05, rel=1e-9)
    assert_close(reference.queries_needed(100, 0.98, 1.96), 400.0)
    assert_close(reference.queries_needed(100, 1.4, 1.96, 0.84), 400.0)
    assert reference.queries_needed(100, 0.0, 1.96) == math.inf
