"""The boundary of repeated looks: published constants, and chances by simulation."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import norm

from secid.measure.interval import FIRST_SHARE, error_spent, information_times, levels_of_looks, max_equal_pairs

# Pocock (1977), two-sided 0.05 and 0.01, equally spaced looks
CONSTANTS = [
    (2, 0.05, 2.178), (3, 0.05, 2.289), (5, 0.05, 2.413), (10, 0.05, 2.555), (2, 0.01, 2.772), (5, 0.01, 2.986),
]  # fmt: skip


@pytest.mark.parametrize(("n_looks", "alpha", "constant"), CONSTANTS)
def test_equally_spaced_looks_give_the_published_constants(n_looks, alpha, constant):
    times = np.arange(1.0, n_looks + 1)
    narrower, wider = (error_spent(times, 2 * norm.sf(constant + step))[-1] for step in (6e-4, -6e-4))
    assert narrower < alpha < wider


def test_one_look_may_use_all_of_the_error():
    assert levels_of_looks(np.array([7.0]), 0.05) == 0.05
    assert error_spent(np.array([7.0]), 0.05) == pytest.approx([0.05], abs=1e-12)


def test_samples_without_replacement_cross_as_often_as_computed():
    """Means of growing samples out of one finite population, drawn for real."""
    generator = np.random.default_rng(0)
    population, sizes = generator.standard_normal(400), [20, 40, 100, 250]
    times = information_times(sizes, len(population))
    levels = levels_of_looks(times, 0.2)
    n_runs = 20_000
    drawn = generator.permuted(np.broadcast_to(population, (n_runs, 400)), axis=1)
    crossed = np.zeros(n_runs, bool)
    shares = []
    for size, level in zip(sizes, levels, strict=True):
        error = population.std(ddof=1) * np.sqrt((1 - size / 400) / size)
        crossed |= np.abs(drawn[:, :size].mean(1) - population.mean()) > norm.isf(level / 2) * error
        shares.append(crossed.mean())
    assert shares == pytest.approx(error_spent(times, levels), abs=0.012)  # 4 Monte Carlo errors
    assert error_spent(times, 1.5 * levels)[-1] > 0.2 + 0.012  # wider levels would be noticed


def test_what_is_spent_rises_and_ends_at_the_chance_allowed():
    times = information_times([30, 45, 67, 101, 151], 1000)
    levels = levels_of_looks(times, 0.05 / 6)
    used = error_spent(times, levels)
    assert used[0] == pytest.approx(levels[0])
    assert levels[0] == FIRST_SHARE * 0.05 / 6
    assert (levels[1:] == levels[1]).all()
    assert (np.diff(used) > 0).all()
    assert used[-1] == pytest.approx(0.05 / 6, rel=1e-6)


def brute_most_equal(names: list[str], open_pairs: set[tuple[str, str]]) -> int:
    """Try all assignments of values to sources; return the most equal pairs such that no equal pair is decided."""
    best = 0
    for values in product(range(len(names)), repeat=len(names)):
        equal = {pair for pair in combinations(range(len(names)), 2) if values[pair[0]] == values[pair[1]]}
        equal_names = {(names[a], names[b]) for a, b in equal}
        if equal_names <= open_pairs:
            best = max(best, len(equal_names))
    return best


def test_the_most_pairs_that_can_be_level_are_those_of_every_assignment():
    generator = np.random.default_rng(0)
    names = ["a", "b", "c", "d", "e"]
    pairs = list(combinations(names, 2))
    for _ in range(30):
        equal = {pair for pair in pairs if generator.random() < 0.6}
        assert max_equal_pairs(sorted(equal)) == brute_most_equal(names, equal)
    assert max_equal_pairs([]) == 0
    assert max_equal_pairs([("b", "a"), ("b", "c")]) == 1
    assert max_equal_pairs(pairs) == 10


def test_many_sources_count_all_their_open_pairs():
    pairs = list(combinations([f"{n:02d}" for n in range(12)], 2))[1:]
    assert max_equal_pairs(pairs) == len(pairs)
