"""The best mixture against a fine grid, an independent optimiser, planted optima, and its own certificate."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from secid.errors import NumericalError, UsageError
from secid.measure.information import InformationState, eigenvalues, spectral_nats
from secid.measure.mixture import Bounds, best_mixture, evaluate, mixed

ROUNDING = 1e-12


def matrix(seed: int, d: int = 12, rank: int = 9, scale: float = 1.0) -> torch.Tensor:
    """A random PSD matrix of trace `scale` with a falling spectrum."""
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal((rank, d)) * np.linspace(1.0, 0.1, rank)[:, None]
    table = torch.from_numpy(rows.T @ rows)
    return scale * table / torch.trace(table)


def value(matrices, alpha, budget: float) -> float:
    total = sum(share * m.numpy() for share, m in zip(alpha, matrices, strict=True))
    sign, nats = np.linalg.slogdet(np.eye(len(total)) + budget * total)
    assert sign > 0
    return float(nats)


def by_slsqp(matrices, budget: float, bounds: Bounds) -> float:
    def slopes(alpha):
        total = sum(share * m.numpy() for share, m in zip(alpha, matrices, strict=True))
        inverse = np.linalg.inv(np.eye(len(total)) + budget * total)
        return np.array([-budget * np.sum(inverse * m.numpy()) for m in matrices])

    found = minimize(
        lambda alpha: -value(matrices, alpha, budget),
        np.full(len(matrices), 1 / len(matrices)),
        jac=slopes,
        bounds=list(zip(bounds.lower, bounds.upper, strict=True)),
        constraints={"type": "eq", "fun": lambda alpha: alpha.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    return -float(found.fun)


@pytest.mark.parametrize("budget", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("n", [2, 3])
def test_no_point_of_a_fine_grid_holds_more(n, budget):
    matrices = [matrix(seed, scale=1.0 - 0.1 * seed) for seed in range(n)]
    found = best_mixture(matrices, budget, Bounds.of(n))
    ticks = np.linspace(0, 1, 1001 if n == 2 else 81)
    grid = [(*point, 1 - sum(point)) for point in product(ticks, repeat=n - 1) if sum(point) <= 1]
    best = max(value(matrices, point, budget) for point in grid)
    assert found.nats >= best - ROUNDING
    assert found.nats <= best + 0.01 * best  # and the grid is fine enough to come close
    assert found.nats == pytest.approx(value(matrices, found.proportions, budget), rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_agrees_with_an_independent_optimiser(seed):
    n = 2 + seed
    budget = 10.0**seed / 10
    matrices = [matrix(100 * seed + s, scale=1.0 - 0.05 * s) for s in range(n)]
    bounds = Bounds.of(n, 1.0 if seed % 2 else 0.7, {0: 0.05} if n > 2 else {})
    found = best_mixture(matrices, budget, bounds)
    assert found.nats == pytest.approx(by_slsqp(matrices, budget, bounds), rel=1e-8)
    assert found.gap_nats <= 1e-8 * found.nats
    assert found.proportions.sum() == pytest.approx(1.0, abs=1e-12)
    assert (found.proportions >= bounds.lower).all()
    assert (found.proportions <= bounds.upper + ROUNDING).all()


@pytest.mark.parametrize("budget", [1.0, 100.0])
def test_orthogonal_sources_of_equal_spectrum_share_equally(budget):
    matrices = [torch.diag(torch.eye(6, dtype=torch.float64)[2 * s] * 0.4) for s in range(3)]
    found = best_mixture(matrices, budget, Bounds.of(3))
    assert found.proportions == pytest.approx([1 / 3] * 3, abs=1e-6)
    assert found.nats == pytest.approx(3 * np.log1p(budget * 0.4 / 3), rel=1e-12)


def test_planted_optimum_of_two_unequal_directions():
    # log(1 + B a x) + log(1 + B b (1 - x)) is highest at x = (1 + 1/(B b) - 1/(B a)) / 2
    a, b, budget = 0.5, 0.2, 20.0
    matrices = [torch.diag(torch.tensor([a, 0.0])).double(), torch.diag(torch.tensor([0.0, b])).double()]
    found = best_mixture(matrices, budget, Bounds.of(2))
    x = (1 + 1 / (budget * float(np.float32(b))) - 1 / (budget * float(np.float32(a)))) / 2
    assert found.proportions == pytest.approx([x, 1 - x], abs=1e-5)


def test_at_budget_one_the_optimum_is_the_source_of_most_weight():
    matrices = [matrix(0, d=200, rank=150, scale=0.5), matrix(1, d=200, rank=150, scale=0.3)]
    assert best_mixture(matrices, 1.0, Bounds.of(2)).proportions.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("seed", range(20))
def test_the_gap_bounds_the_true_shortfall_of_any_mixture(seed):
    generator = np.random.default_rng(seed)
    matrices = [matrix(seed + s, scale=generator.uniform(0.2, 1)) for s in range(4)]
    budget, bounds = float(10 ** generator.uniform(0, 4)), Bounds.of(4, 0.6)
    best = best_mixture(matrices, budget, bounds)
    alpha = bounds.middle() + 0.1 * np.array([1, -1, 0, 0])
    shown, _ = evaluate(matrices, alpha, budget, bounds)
    shortfall = best.nats - shown.nats
    assert shortfall > 0
    assert shown.gap_nats >= shortfall


def test_the_certificate_is_that_of_the_reference():
    from tests.oracle import reference

    generator = np.random.default_rng(5)
    rows = {name: generator.standard_normal((30, 8)) for name in "abc"}
    weights = {name: generator.uniform(0, 1, 30) for name in "abc"}
    measured, matrices = {}, []
    for name, table in rows.items():
        unit = table / np.linalg.norm(table, axis=1, keepdims=True)
        measured[name] = type("Rows", (), {"direction": unit, "weight": weights[name]})()
        matrices.append(torch.from_numpy((unit.T * weights[name]) @ unit / 30))
    alpha = np.array([0.5, 0.3, 0.2])
    shown, _ = evaluate(matrices, alpha, 50.0, Bounds.of(3))
    shares = dict(zip("abc", alpha, strict=True))
    reference.assert_close(shown.nats, reference.mixture_nats(measured, shares, 50.0), rel=1e-10)
    reference.assert_close(shown.gap_nats, reference.duality_gap(measured, shares, 50.0), rel=1e-8)


def test_a_damaged_certificate_is_noticed():
    matrices = [matrix(1), matrix(2)]
    shown, _ = evaluate(matrices, np.array([0.95, 0.05]), 100.0, Bounds.of(2))
    shortfall = best_mixture(matrices, 100.0, Bounds.of(2)).nats - shown.nats
    damaged = replace(shown, gap_nats=0.1 * shown.gap_nats)
    assert shown.gap_nats >= shortfall
    assert not damaged.gap_nats >= shortfall


def test_one_source_is_its_own_mixture():
    found = best_mixture([matrix(3)], 7.0, Bounds.of(1))
    assert found.proportions.tolist() == [1.0]
    values = eigenvalues(InformationState(matrix(3), 1.0), len(matrix(3)))
    assert found.nats == pytest.approx(spectral_nats(values, 7.0), rel=1e-12)
    assert found.gap_nats == 0.0


def test_identical_sources_share_alike():
    found = best_mixture([matrix(3)] * 3, 100.0, Bounds.of(3))
    assert found.proportions == pytest.approx([1 / 3] * 3)
    assert found.gap_nats <= 1e-9 * found.nats


def test_sources_without_information_give_zero():
    found = best_mixture([torch.zeros(4, 4, dtype=torch.float64)] * 2, 100.0, Bounds.of(2))
    assert (found.nats, found.gap_nats) == (0.0, 0.0)
    assert found.proportions.sum() == pytest.approx(1.0)


def test_one_empty_source_gets_nothing():
    found = best_mixture([torch.zeros(12, 12, dtype=torch.float64), matrix(1)], 100.0, Bounds.of(2))
    assert found.proportions.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("max_share", "fixed"),
    [(0.3, {}), (1.0, {0: 0.7, 1: 0.6}), (0.2, {0: 0.3}), (1.2, {}), (float("nan"), {}), (1.0, {0: -0.1})],
)
def test_bounds_that_no_mixture_fits_are_refused(max_share, fixed):
    with pytest.raises(UsageError):
        Bounds.of(3, max_share, fixed)


def test_bounds_that_leave_one_mixture_give_it():
    found = best_mixture([matrix(s) for s in range(3)], 10.0, Bounds.of(3, 1.0, {0: 0.1, 1: 0.2, 2: 0.7}))
    assert found.proportions == pytest.approx([0.1, 0.2, 0.7])
    assert found.gap_nats == pytest.approx(0.0, abs=1e-12)


def test_unequal_dimensions_and_matrices_that_are_not_psd_are_refused():
    with pytest.raises(UsageError, match="dimension"):
        mixed([matrix(0, d=12), matrix(0, d=13)], np.array([0.5, 0.5]))
    with pytest.raises(UsageError, match="source"):
        mixed([], np.array([]))
    with pytest.raises(NumericalError):
        best_mixture([-torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)], 10.0, Bounds.of(2))
