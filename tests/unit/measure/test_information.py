"""One decomposition for every budget, also those at which rounding leaves no Cholesky factor."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from secid.errors import NumericalError
from secid.measure import information
from secid.measure.information import (
    Eigen,
    InformationState,
    Spectrum,
    eigenvalues,
    log_det_nats,
    mixture_state,
    spectral_nats,
    spectrum,
)


def unit(n: int, d: int) -> torch.Tensor:
    rows = torch.from_numpy(np.random.default_rng(1).standard_normal((n, d)).astype(np.float32))
    return rows / rows.norm(dim=1, keepdim=True)


def state(n: int, d: int) -> InformationState:
    """Summed in float32 as a block is."""
    rows = unit(n, d)
    upper = torch.triu(rows.T @ rows).double()
    return InformationState(upper + torch.triu(upper, 1).T, float(n))


@pytest.mark.parametrize("budget", [1e8, 1e10, 1e12])
def test_large_budgets_of_few_triplets_have_a_score(budget):
    """The Cholesky factorisation fails here. The definition in float64, from the rows' products, gives the score."""
    item, rows = state(40, 96), unit(40, 96).double()
    exact = np.linalg.slogdet(np.eye(40) + budget / 40 * (rows @ rows.T).numpy())[1]
    assert spectral_nats(Eigen.of(item, 40).values, budget) == pytest.approx(exact, rel=1e-6)
    assert spectral_nats(eigenvalues(item, 40), budget) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("budget", [1e4, 1e8, 1e10])
def test_large_budgets_of_few_directions_have_a_score(budget):
    """Many triplets, few directions: what float32 leaves in the others is noise, as large above 0 as below."""
    rows = unit(20, 96)[torch.arange(1000) % 20]
    upper = torch.triu(rows.T @ rows).double()
    item = InformationState(upper + torch.triu(upper, 1).T, 1000.0)
    few = unit(20, 96).double()
    exact = np.linalg.slogdet(np.eye(20) + budget / 20 * (few @ few.T).numpy())[1]
    assert float(torch.linalg.eigvalsh(item.matrix())[0]) < 0.0
    assert spectral_nats(Eigen.of(item, 1000).values, budget) == pytest.approx(exact, rel=1e-6)
    assert log_det_nats(item, 1000, budget) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(("n", "by_eigenvalues"), [(300, False), (20, True)])
def test_only_a_matrix_of_full_rank_goes_without_eigenvalues(n, by_eigenvalues, monkeypatch):
    item, asked = state(n, 32), []
    monkeypatch.setattr(information, "eigenvalues", lambda *given: asked.append(given) or eigenvalues(*given))
    for budget in (1.0, 1e6):
        expected = spectral_nats(Eigen.of(item, n).values, budget)
        assert log_det_nats(item, n, budget) == pytest.approx(expected, rel=1e-12)
    assert bool(asked) is by_eigenvalues


def test_one_decomposition_gives_every_budget():
    item = state(300, 32)
    eigen = Eigen.of(item, 300)
    torch.testing.assert_close((eigen.basis * torch.from_numpy(eigen.values)) @ eigen.basis.T, item.matrix())
    for budget in (1.0, 100.0, 1e6):
        exact = np.linalg.slogdet(np.eye(32) + budget * item.matrix().numpy())[1]
        assert spectral_nats(eigen.values, budget) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("solve", [Eigen.of, eigenvalues, lambda item, n: log_det_nats(item, n, 1.0)])
def test_a_matrix_that_is_not_positive_is_refused(solve):
    with pytest.raises(NumericalError):
        solve(InformationState(torch.diag(torch.tensor([0.5, -0.1], dtype=torch.float64)), 1.0), 2)


@pytest.mark.parametrize("solve", [Eigen.of, eigenvalues])
def test_weights_too_small_for_the_digits_of_float32_are_no_error(solve):
    """A source whose every weight is about 1e-43: what rounding leaves is not small next to that."""
    item = InformationState(torch.diag(torch.tensor([8.6e-43, -5e-46], dtype=torch.float64)), 1.0)
    found = solve(item, 2)
    assert (found.values if isinstance(found, Eigen) else found).tolist() == [0.0, pytest.approx(8.6e-43)]


@pytest.mark.parametrize("solve", [Eigen.of, eigenvalues])
def test_where_the_solver_of_a_device_fails_the_cpu_decomposes(solve, monkeypatch):
    """A device is simulated by a solver that fails n_failures times: on the device, then on the CPU too."""

    def fails_first(n_failures):
        for name in ("eigh", "eigvalsh"):
            real, calls = getattr(torch.linalg, name), []

            def solver(matrix, real=real, calls=calls):
                calls.append(1)
                if len(calls) <= n_failures:
                    raise torch.linalg.LinAlgError("linalg.eigh: failed to converge")
                return real(matrix)

            monkeypatch.setattr(torch.linalg, name, solver)

    item = state(5, 32)  # 27 eigenvalues are 0
    expected = solve(item, 5)
    fails_first(1)
    found = solve(item, 5)
    if isinstance(found, Eigen):
        expected, found = expected.values, found.values
    np.testing.assert_array_equal(found, expected)
    monkeypatch.undo()
    fails_first(2)
    with pytest.raises(NumericalError, match="failed to converge"):
        solve(item, 5)


def test_a_mixture_of_one_is_its_matrix_and_nothing_has_a_spectrum_of_zeros():
    item = state(40, 8)
    assert torch.equal(mixture_state([item], [1.0]).matrix(), item.matrix())
    assert spectrum(np.zeros(3)) == Spectrum(0.0, 0.0, 0.0, ())
