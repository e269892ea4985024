"""Tests of the reference for METHOD 3, 4 and 7."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from secid.measure.information import InformationState, eigenvalues, mixture_state, spectral_nats
from tests.oracle import reference
from tests.oracle.reference import assert_close
from tests.oracle.samples import hand_made, information_matrix, random_source, sigma

# METHOD 3 and 4


def test_variant_weights_by_hand():
    _, measured = hand_made(temperature=0.1)
    pi, rho, residual = sigma(2.0), sigma(3.6), 0.5
    expected = {
        "full": pi * rho * residual,
        "without_consistency": rho * residual,
        "without_locality": pi * residual,
        "without_residual": pi * rho,
        "residual_only": 1.0,
        "gradient_weighted": ((1 - pi) / 0.1) ** 2 * 0.08,  # ||n - p||^2 = 0.2^2 + 0.2^2
        "margin_hardness": 1 - pi,
        "fisher": 4 * pi * (1 - pi) * rho * residual,
    }
    found = {variant: reference.variant_weight(measured, variant)[0] for variant in reference.VARIANTS}
    assert_close(found, expected, rel=1e-12)


def test_only_weights_beyond_one_are_scaled_by_their_mean_over_the_run():
    sources = {"one": random_source(1, 9, 2, 4), "two": random_source(2, 4, 5, 4)}
    scaled = reference.run_weights(sources, "gradient_weighted")
    assert_close(float(np.mean(np.concatenate(list(scaled.values())))), 1.0, rel=1e-12)
    ratio = scaled["one"] / reference.variant_weight(sources["one"], "gradient_weighted")
    assert_close(ratio, [ratio[0]] * 18, rel=1e-12)
    for variant in set(reference.VARIANTS) - {"gradient_weighted"}:
        raw = reference.variant_weight(sources["two"], variant)
        assert_close(reference.run_weights(sources, variant)["two"], raw, rel=1e-15)
        assert raw.max() <= 1.0


def test_pair_and_record_proxies_by_hand():
    _, measured = hand_made(temperature=0.1)
    pair, record = reference.pair_proxies(measured), reference.record_proxies(measured)
    first, second = math.exp(-2.0), math.exp(-8.0)
    total = 1 + first + second
    pull = (first * np.array([-0.2, 0.2]) + second * np.array([-0.8, 0.4])) / total
    assert_close(record["mnrl_loss"], math.log(total), rel=1e-12)
    assert_close(record["gradient_energy"], float(pull @ pull) / 0.1**2, rel=1e-10)
    energy = [((1 - sigma(2.0)) / 0.1) ** 2 * 0.08, ((1 - sigma(8.0)) / 0.1) ** 2 * 0.8]
    assert_close(pair["gradient_energy"], sum(energy) / 2, rel=1e-10)
    assert_close(pair["mnrl_loss"], (math.log1p(first) + math.log1p(second)) / 2, rel=1e-12)
    assert (pair["ambiguity"], record["ambiguity"]) == (0.0, 0.0)


def test_pair_and_record_proxies_agree_where_each_record_has_one_negative():
    measured = random_source(8, 30, 1, 5)
    assert_close(reference.record_proxies(measured), reference.pair_proxies(measured), rel=1e-10)
    assert reference.pair_proxies(measured)["ambiguity"] > 0


def test_rank_stability_is_one_for_the_same_order_and_zero_reversed():
    assert reference.rank_stability([1, 2, 3], [10, 20, 30]) == 1.0
    assert reference.rank_stability([1, 2, 3], [3, 2, 1]) == 0.0
    assert_close(reference.rank_stability([1, 2, 3], [1, 3, 2]), 2 / 3)


def test_gate_buckets_by_hand():
    _, measured = hand_made(temperature=0.1)
    found = {name: flags.tolist() for name, flags in reference.gate_buckets(measured, near_copy=0.96 - 1e-9).items()}
    assert found == {
        "inversion": [False, False],
        "low_locality": [False, False],
        "high_coverage": [True, False],
        "valid_but_lexical": [False, False],  # pi = 0.88
        "valid_but_far": [False, False],
        "near_copy": [True, False],
    }
    assert not reference.gate_buckets(measured)["near_copy"].any()


# METHOD 7


def test_budget_curve_and_spectrum_of_planted_eigenvalues():
    # Weights N * lambda on orthogonal directions plant the eigenvalues lambda.
    planted = [0.2, 0.1, 0.05]
    eigenvalues = reference.spectrum(np.array(planted) * 3, np.eye(4)[:3])
    assert_close(eigenvalues, [*planted, 0.0], rel=1e-12)
    curve = reference.budget_curve(eigenvalues, [1, 1000])
    assert_close(curve[1], sum(math.log(1 + value) for value in planted), rel=1e-12)
    assert_close(curve[1000], math.log(201) + math.log(101) + math.log(51), rel=1e-12)


def test_shape_of_a_flat_spectrum():
    shape = reference.shape_of_spectrum(np.array([0.1] * 4 + [0.0]), top=2)
    expected = {
        "trace": 0.4, "frobenius_norm": 0.2, "effective_rank": 4.0, "top_shares": [0.25, 0.25],
        "diversity_fraction": 1 - 4 * math.log(1.1) / 0.4,
    }  # fmt: skip
    assert_close(shape, expected, rel=1e-12)
    with pytest.raises(ValueError, match="zero matrix"):
        reference.shape_of_spectrum(np.zeros(3))


def test_mixture_is_the_weighted_sum_of_matrices_and_concave():
    sources = {"one": random_source(1, 9, 2, 4), "two": random_source(2, 4, 5, 4)}
    matrix = 0.3 * information_matrix(sources["one"]) + 0.7 * information_matrix(sources["two"])
    mixed = reference.mixture_nats(sources, {"one": 0.3, "two": 0.7}, budget=50.0)
    assert_close(mixed, np.linalg.slogdet(np.eye(4) + 50.0 * matrix)[1], rel=1e-12)
    ends = [reference.mixture_nats(sources, {name: 1.0}, budget=50.0) for name in sources]
    assert mixed > 0.3 * ends[0] + 0.7 * ends[1]


def test_the_score_of_a_hybrid_is_that_of_the_reference_and_of_the_pooled_negatives():
    sources = {"one": random_source(1, 9, 2, 4), "two": random_source(2, 4, 5, 4)}
    states = {
        name: InformationState(torch.from_numpy(information_matrix(source) * len(source.weight)), len(source.weight))
        for name, source in sources.items()
    }
    pooled = states["one"] + states["two"]
    shares = {name: state.n_negatives / pooled.n_negatives for name, state in states.items()}
    for proportions in ({"one": 0.3, "two": 0.7}, shares):
        matrix = mixture_state(list(states.values()), list(proportions.values()))
        nats = spectral_nats(eigenvalues(matrix, 4), 50.0)
        assert_close(nats, reference.mixture_nats(sources, proportions, 50.0), rel=1e-10)
    assert_close(nats, spectral_nats(eigenvalues(pooled, 4), 50.0), rel=1e-10)
