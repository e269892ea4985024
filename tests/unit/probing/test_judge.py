"""Differences with the error of queries and of runs: coverage by simulation, and what is made of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from secid.probing.judge import gap, judge, trailing

N, PER_GROUP, N_FOLDS = 300, 2, 3
GROUP = np.arange(N) // PER_GROUP
FOLD = GROUP % N_FOLDS


def differences(seed: int, n_seeds: int, of_groups: float, of_runs: float, of_rest: float) -> np.ndarray:
    """(S, n) differences of mean 0: what a group of queries shares, what a run of a fold shares, and the rest."""
    draws = np.random.default_rng(seed)
    groups = draws.normal(0, of_groups, N)[GROUP]
    runs = draws.normal(0, of_runs, (n_seeds, N_FOLDS))[:, FOLD]
    return groups + runs + draws.normal(0, of_rest, (n_seeds, N))


def coverage(n_seeds: int, *deviations: float) -> tuple[float, float]:
    """Share of 1,500 simulations in which the interval holds 0: as it is, and with the error of the queries alone."""
    hits = []
    for seed in range(1500):
        item = gap(differences(seed, n_seeds, *deviations), GROUP, FOLD)
        assert item.interval_95 is not None
        hits.append((item.interval_95[0] <= 0 <= item.interval_95[1], abs(item.value) <= 1.98 * item.error_queries))
    whole, queries = np.mean(hits, axis=0).tolist()
    return whole, queries


@pytest.mark.parametrize("deviations", [(0.05, 0.02, 0.05), (0.08, 0.01, 0.03), (0.05, 0.0, 0.05)])
def test_intervals_cover_as_often_as_they_say(deviations: tuple[float, float, float]) -> None:
    whole, queries = coverage(3, *deviations)
    assert 0.93 <= whole <= 0.97
    if deviations[1] == 0.02:
        assert queries < 0.85, "without the error of runs"


def test_the_components_are_those_that_made_the_differences() -> None:
    items = [gap(differences(seed, 5, 0.05, 0.02, 0.05), GROUP, FOLD) for seed in range(300)]
    assert np.mean([item.error_runs**2 for item in items if item.error_runs is not None]) == pytest.approx(
        0.02**2 / 5 / N_FOLDS, rel=0.15
    )
    of_queries = 0.05**2 * PER_GROUP / N + (0.05**2 + 0.02**2 * PER_GROUP) / 5 / N
    assert np.mean([item.error_queries**2 for item in items]) == pytest.approx(of_queries, rel=0.1)


def test_without_clusters_and_runs_it_is_a_t_test() -> None:
    """Runs that do not differ, each query a group: Student's t over the queries."""
    one = np.random.default_rng(0).normal(0.01, 0.1, 40)
    item = gap(np.stack([one, one]), np.arange(40), np.arange(40) % 2)
    expected = stats.ttest_1samp(one, 0)
    low, high = expected.confidence_interval(0.95)
    assert item.error_runs == 0
    assert item.interval_95 == pytest.approx((low, high), abs=1e-9)
    assert item.p == pytest.approx(expected.pvalue)


def test_one_seed_has_no_interval() -> None:
    item = gap(differences(0, 1, 0.05, 0.02, 0.05), GROUP, FOLD)
    assert (item.interval_95, item.p, item.error_runs) == (None, None, None)
    assert item.standard_error == item.error_queries > 0
    pairs, ties = judge({"a": np.ones((1, N)), "b": np.zeros((1, N))}, GROUP, FOLD)
    assert [(pair.p_holm, pair.established) for pair in pairs] == [(None, False)]
    assert ties == {"a": 1, "b": 1}


def test_identical_sources_are_no_different() -> None:
    values = differences(0, 3, 0.05, 0.02, 0.05)
    item = gap(values - values, GROUP, FOLD)
    assert (item.value, item.interval_95, item.p) == (0.0, (0.0, 0.0), 1.0)
    always = gap(np.full((3, N), 0.1), GROUP, FOLD)
    assert always.p == 0.0


def shifted(*shifts: float, n_seeds: int = 3) -> dict[str, np.ndarray]:
    """Sources a, b, … that are better by these shifts, with noise of their own."""
    return {
        chr(97 + place): shift + 0.5 + differences(place, n_seeds, 0.02, 0.001, 0.02)
        for place, shift in enumerate(shifts)
    }


def test_pairs_are_adjusted_by_holm_and_tied_in_groups() -> None:
    pairs, ties = judge(shifted(0.0, 0.05, 0.051, -0.05), GROUP, FOLD)
    assert [(pair.first, pair.second) for pair in pairs][-1] == ("a", "d")
    raw = sorted((pair.gap.p, pair.p_holm) for pair in pairs)
    running = 0.0
    for place, (p, adjusted) in enumerate(raw):
        assert p is not None
        running = max(running, min(1.0, p * (6 - place)))
        assert adjusted == pytest.approx(running)
    assert ties["b"] == ties["c"] == 1
    assert (ties["a"], ties["d"]) == (2, 3)
    assert all(pair.gap.value > 0 for pair in pairs)


def test_a_source_with_fewer_seeds_is_compared_over_those_that_both_have() -> None:
    values = shifted(0.0, 0.05)
    values["b"] = values["b"][:2]
    values["a"][2] += 100
    pairs, _ = judge(values, GROUP, FOLD)
    assert pairs[0].first == "a"
    assert abs(pairs[0].gap.value) < 0.1


def test_only_clear_losers_trail() -> None:
    values = shifted(0.0, 0.05, 0.0499)
    assert trailing(values, GROUP, FOLD) == {"a"}
    assert trailing({name: values[name] for name in "bc"}, GROUP, FOLD) == set()
    one_seed = {name: own[:1] for name, own in values.items()}
    assert trailing(one_seed, GROUP, FOLD) == set()
