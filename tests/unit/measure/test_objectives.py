"""Test the closed forms of METHOD 9 against autograd of the definitions, and the results for a source."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from secid.measure import objectives as module
from secid.measure.blocks import CPU
from secid.measure.objectives import (
    CLOSED_FORMS,
    MULTI_POSITIVE,
    MW,
    OBJECTIVES,
    Records,
    objective_values,
)
from secid.measure.separation import PairMeans
from tests.meta import NoWait
from tests.oracle import objectives as oracle

TAU = 0.05


def drawn(n: int, seed: int, most_positives: int = 4) -> list[oracle.Record]:
    generator = np.random.default_rng(seed)
    records = []
    for _ in range(n):
        m, k = generator.integers(1, most_positives + 1), generator.integers(1, 11)
        scored = np.zeros(m)
        scored[generator.integers(m)] = 1.0
        records.append(
            oracle.Record(
                generator.uniform(0.2, 0.9, m).tolist(),
                generator.uniform(-0.1, 0.8, k).tolist(),
                scored.tolist(),
                (generator.uniform(size=k) < 0.3).tolist(),
            )
        )
    return records


def flat(records: list[oracle.Record]) -> Records:
    def offsets(name: str) -> np.ndarray:
        return np.cumsum([0, *(len(getattr(record, name)) for record in records)])

    def joined(name: str) -> np.ndarray:
        return np.concatenate([np.array(getattr(record, name)) for record in records])

    return Records(
        joined("positives"),
        offsets("positives"),
        joined("negatives"),
        offsets("negatives"),
        joined("scored"),
        joined("masked"),
    )


def gradient(name: str, records: list[oracle.Record], temperature: float = TAU) -> module.Gradient:
    rows = flat(records)
    ((scores, _),) = module._blocks(rows, np.ones((1, len(rows.negative))), temperature, CPU)
    form = module.all_pairs(scores.positive, scores.negative) if name == MW else CLOSED_FORMS[name]
    return form(scores)


@pytest.mark.parametrize("temperature", [0.01, TAU, 1.0])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_closed_form_is_the_gradient_of_the_definition(name, temperature):
    records = drawn(16, 7)
    losses, positive, negative = oracle.losses_and_gradients(name, records, temperature)
    ours = gradient(name, records, temperature)
    assert float(ours.loss.sum()) == pytest.approx(sum(losses), abs=1e-9)
    np.testing.assert_allclose(ours.positive, np.concatenate(positive), rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.negative, np.concatenate(negative), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_gradient_that_is_off_would_be_noticed(name):
    records = drawn(16, 7)
    _, _, negative = oracle.losses_and_gradients(name, records, TAU * 1.0001)
    assert np.abs(gradient(name, records).negative.numpy() - np.concatenate(negative)).max() > 1e-8


def test_with_one_positive_most_objectives_are_one():
    records = drawn(30, 3, most_positives=1)
    single, hardest = gradient("single_lh", records), gradient("lse_pair_max_n", records)
    for name in MULTI_POSITIVE:
        other = hardest if name == "lse_pair_min_p_max_n" else single
        for part in ("loss", "positive", "negative"):
            np.testing.assert_allclose(getattr(gradient(name, records), part), getattr(other, part), atol=1e-12)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_sums_over_a_source_are_those_of_the_reference_in_any_blocks(name, monkeypatch):
    records = drawn(24, 11)
    inside = [[s > 0.5 for s in record.negatives] for record in records]
    expected = oracle.values(name, records, TAU, inside)
    for block in (1, 50, 1 << 20):
        monkeypatch.setattr(module, "BLOCK_PASSAGES", block)
        flags = {"near": np.concatenate([np.array(row) for row in inside])}
        ours = objective_values(flat(records), flags, TAU, CPU, [name])[name]
        numbers = (ours.loss_nats, ours.shares["near"], ours.effective_negatives, ours.strongest, ours.weakest)
        np.testing.assert_allclose(numbers, expected, rtol=1e-8)


def test_positives_get_what_the_objectives_are_known_for():
    """One weak and one strong positive above the negatives: JointLH evens out, the others prefer one side."""
    records = [oracle.Record([0.9, 0.6], [0.5, 0.4], [1.0, 0.0], [False, False])] * 3
    ours = objective_values(flat(records), {}, TAU, CPU)
    assert ours["joint_lh"].strongest == pytest.approx(0.5, abs=0.01)
    assert ours["sum_marg_lh"].strongest > 0.99
    assert ours["lse_pair"].weakest > 0.99
    assert (ours["lse_pair_max_p"].strongest, ours["lse_pair_min_p"].weakest) == (1.0, 1.0)


def test_equal_scores_share_the_weight_of_the_best():
    records = [oracle.Record([0.5], [0.4, 0.4, 0.1], [1.0], [False] * 3)]
    assert objective_values(flat(records), {}, TAU, CPU)["lse_pair_max_n"].effective_negatives == pytest.approx(2.0)


def test_where_all_negatives_are_masked_no_gradient_is_left():
    records = [oracle.Record([0.5], [0.4, 0.3], [1.0], [True, True])]
    ours = objective_values(flat(records), {"near": np.array([True, False])}, TAU, CPU)["gist"]
    assert (ours.loss_nats, ours.shares, ours.effective_negatives) == (0.0, {"near": None}, None)


def test_extreme_temperatures_stay_finite():
    for temperature in (1e-6, 1e6):
        for name, ours in objective_values(flat(drawn(20, 5)), {}, temperature, CPU).items():
            assert np.isfinite(ours.loss_nats), name


def test_means_over_all_pairs_hold_their_bound():
    generator = torch.Generator().manual_seed(1)
    x, y = (10 * torch.randn(n, dtype=torch.float64, generator=generator) for n in (700, 900))
    loss, slope = PairMeans.of(x, y).at(x)
    gap = x.unsqueeze(1) - y
    assert float((loss - torch.nn.functional.softplus(gap).mean(1)).abs().max()) < 1e-10
    assert float((slope - torch.sigmoid(gap).mean(1)).abs().max()) < 1e-10


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_no_closed_form_waits_for_the_device(name):
    meta = torch.device("meta")
    passages = torch.empty(12, dtype=torch.float64, device=meta)
    record, masked = torch.empty(12, dtype=torch.int64, device=meta), torch.empty(12, dtype=torch.bool, device=meta)
    scores = module.BatchScores(passages, passages, record, record, passages, masked, 4)
    with NoWait():
        form = CLOSED_FORMS[name](scores)
        module._Sums(1, meta).add(form, torch.empty(2, 12, dtype=torch.float64, device=meta), module._ends(scores))
