"""Budgets at which two curves change places."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from secid.analyses.budgets import crossings
from secid.measure.information import spectral_nats


def source(name: str, eigenvalues: list[float]) -> SimpleNamespace:
    values = np.sort(eigenvalues)
    return SimpleNamespace(name=name, eigenvalues=values, nats=lambda budget: spectral_nats(values, budget))


def test_curves_that_cross_twice_are_named_twice():
    a = source("a", [0.02, 0.07, 4e-6, 2e-5])
    b = source("b", [1e-3, 0.46, 2e-5, 3e-4])
    first, second = crossings([a, b], 10_000.0)
    assert (first.first, first.second) == ("b", "a")
    assert (second.first, second.second) == ("a", "b")
    assert 1 < first.budget < second.budget < 10_000
    for crossing in (first, second):
        level = [item.nats(crossing.budget) for item in (a, b)]
        assert level[0] == pytest.approx(level[1], rel=1e-9)
    for budget, ahead in ((1.0, b), (np.sqrt(first.budget * second.budget), a), (10_000.0, b)):
        scores = {item.name: item.nats(float(budget)) for item in (a, b)}
        assert max(scores, key=lambda name: scores[name]) == ahead.name


def test_one_crossing_at_its_known_budget():
    """log(1 + 0.5 B) = 2 log(1 + 0.1 B) at B = 30."""
    (crossing,) = crossings([source("flat", [0.1, 0.1]), source("steep", [0.5, 0.0])], 10_000.0)
    assert crossing.budget == pytest.approx(30.0, rel=1e-9)
    assert (crossing.first, crossing.second) == ("steep", "flat")


def test_equal_and_nested_curves_do_not_cross():
    assert crossings([source("a", [0.3, 0.1]), source("b", [0.1, 0.3])], 10_000.0) == ()
    assert crossings([source("a", [0.3, 0.1]), source("b", [0.3 + 1e-9, 0.1 - 1e-9])], 10_000.0) == ()
    assert crossings([source("a", [0.3, 0.1]), source("b", [0.2, 0.05])], 10_000.0) == ()


def test_crossings_are_sought_only_up_to_the_largest_budget():
    sources = [source("flat", [0.1, 0.1]), source("steep", [0.5, 0.0])]
    assert crossings(sources, 29.0) == ()
    assert len(crossings(sources, 31.0)) == 1


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-9])
def test_the_grid_is_as_fine_at_large_budgets(scale):
    """1 + 11.01 B + 10.11 B² + 0.1 B³ less b's polynomial is 0.1 B (B − 1) (B − 1.1): curves cross at 1 and 1.1."""
    product, total = 10.11 + 0.21, 11.01 - 0.11
    root = np.sqrt(total**2 / 4 - product)
    a = source("a", [10 * scale, 1 * scale, 0.01 * scale])
    b = source("b", [(total / 2 + root) * scale, (total / 2 - root) * scale, 0.0])
    found = [crossing.budget * scale for crossing in crossings([a, b], 1e12)]
    assert found[-1] == pytest.approx(1.1, rel=1e-6)
    if scale < 1.0:  # B = 1 itself is where the search begins
        assert found == pytest.approx([1.0, 1.1], rel=1e-6)
