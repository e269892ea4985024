"""Differences with the error of queries and of runs: coverage by simulation, and what is made of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from secid.results.probe import Gap
from secid.tools.probing.judge import Judge, between_runs, effective_number, gap
from secid.tools.probing.task import NegativeSource

N, PER_GROUP, N_FOLDS = 300, 2, 3
GROUP = np.arange(N) // PER_GROUP
FOLD = GROUP % N_FOLDS


def differences(seed: int, n_seeds: int, of_groups: float, of_runs: float, of_rest: float) -> np.ndarray:
    """(S, n) differences of mean 0: what a group of queries shares, what a run of a fold shares, and the rest."""
    draws = np.random.default_rng(seed)
    groups = draws.normal(0, of_groups, N)[GROUP]
    runs = draws.normal(0, of_runs, (n_seeds, N_FOLDS))[:, FOLD]
    return groups + runs + draws.normal(0, of_rest, (n_seeds, N))


def alone(values: np.ndarray, group: np.ndarray = GROUP, fold: np.ndarray = FOLD) -> Gap:
    """Return one difference, with the between-run error of its own values."""
    return gap(values, group, between_runs(np.stack([values, np.zeros_like(values)]), fold))


def coverage(n_seeds: int, *deviations: float) -> tuple[float, float]:
    """Share of 1,500 simulations in which the interval holds 0: with both errors, and with that of the queries."""
    hits = []
    for seed in range(1500):
        item = alone(differences(seed, n_seeds, *deviations))
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
    items = [alone(differences(seed, 5, 0.05, 0.02, 0.05)) for seed in range(300)]
    assert np.mean([item.error_runs**2 for item in items if item.error_runs is not None]) == pytest.approx(
        0.02**2 / 5 / N_FOLDS, rel=0.15
    )
    of_queries = 0.05**2 * PER_GROUP / N + (0.05**2 + 0.02**2 * PER_GROUP) / 5 / N
    assert np.mean([item.error_queries**2 for item in items]) == pytest.approx(of_queries, rel=0.1)


def test_without_clusters_and_runs_it_is_a_t_test() -> None:
    """Runs that do not differ, each query a group: Student's t over the queries."""
    one = np.random.default_rng(0).normal(0.01, 0.1, 40)
    item = alone(np.stack([one, one]), np.arange(40), np.arange(40) % 2)
    expected = stats.ttest_1samp(one, 0)
    low, high = expected.confidence_interval(0.95)
    assert item.error_runs == 0
    assert item.interval_95 == pytest.approx((low, high), abs=1e-9)
    assert item.p == pytest.approx(expected.pvalue)


def test_one_seed_has_no_interval() -> None:
    item = alone(differences(0, 1, 0.05, 0.02, 0.05))
    assert (item.interval_95, item.p, item.error_runs) == (None, None, None)
    assert item.standard_error == item.error_queries > 0
    pairs, ties = judge({"a": np.ones((1, N)), "b": np.zeros((1, N))}).pairs()
    assert [(pair.p_holm, pair.established) for pair in pairs] == [(None, False)]
    assert ties == {"a": "A", "b": "A"}


def test_identical_sources_are_no_different() -> None:
    values = differences(0, 3, 0.05, 0.02, 0.05)
    item = alone(values - values)
    assert (item.value, item.interval_95, item.p) == (0.0, (0.0, 0.0), 1.0)
    assert judge({"a": values, "b": values}).pairs()[0][0].gap == item, "no other source shows an error of runs"
    always = alone(np.full((3, N), 0.1))
    assert always.p == 0.0


def judge(values: dict[str, np.ndarray]) -> Judge:
    return Judge({NegativeSource(name): own for name, own in values.items()}, GROUP, FOLD)


def shifted(*shifts: float, n_seeds: int = 3) -> dict[str, np.ndarray]:
    """Return sources a, b, … that are better by these shifts, each with separate noise."""
    return {
        chr(97 + place): shift + 0.5 + differences(place, n_seeds, 0.02, 0.001, 0.02)
        for place, shift in enumerate(shifts)
    }


def test_pairs_are_adjusted_by_holm_and_tied_by_letters() -> None:
    pairs, ties = judge(shifted(0.0, 0.05, 0.051, -0.05)).pairs()
    assert [(pair.first, pair.second) for pair in pairs][-1] == ("a", "d")
    raw = sorted((pair.gap.p, pair.p_holm) for pair in pairs)
    running = 0.0
    for place, (p, adjusted) in enumerate(raw):
        assert p is not None
        running = max(running, min(1.0, p * (6 - place)))
        assert adjusted == pytest.approx(running)
    assert ties["b"] == ties["c"] == "A"
    assert (ties["a"], ties["d"]) == ("B", "C")
    assert all(pair.gap.value > 0 for pair in pairs)


def test_a_source_with_fewer_seeds_is_compared_over_those_that_both_have() -> None:
    values = shifted(0.0, 0.05)
    values["b"] = values["b"][:2]
    values["a"][2] += 100
    pairs, _ = judge(values).pairs()
    assert pairs[0].first == "b"
    assert 0 < pairs[0].gap.value < 0.1


def test_a_copy_of_a_source_changes_no_error_of_another() -> None:
    values = shifted(0.0, 0.05, 0.051)
    values["b"][1] += 0.02 * FOLD  # runs of one source differ more
    gains, with_copy = (judge(own).gains(np.zeros(N)) for own in (values, values | {"copy": values["b"]}))
    assert {source: with_copy[source] for source in gains} == gains


def test_only_clear_losers_trail() -> None:
    values = shifted(0.0, 0.05, 0.0499, 0.0501)
    assert judge(values).trailing() == {NegativeSource("a")}
    assert judge({name: values[name] for name in "abc"}).trailing() == set(), "of few sources none stops"
    assert judge({name: own[:1] for name, own in values.items()}).trailing() == set()


def test_a_source_that_was_stopped_is_not_ranked_by_the_seeds_that_it_had() -> None:
    """Seeds are good or bad for all: those that a stopped source had were the good ones."""
    values = shifted(0.02, 0.0, 0.019, 0.018, n_seeds=6)
    for own in values.values():
        own[2:] -= 0.1
    values["b"] = values["b"][:2]
    judged = judge(values)
    pairs, ties = judged.pairs()
    gains = judged.gains(np.zeros(N))
    assert gains[NegativeSource("b")].value < min(gains[NegativeSource(name)].value for name in "acd")
    assert all(pair.gap.value >= 0 for pair in pairs)
    assert ties["b"] == "B"
    assert judged.n_seeds == 2


def equal_sources(seed: int, n_sources: int, n_seeds: int) -> dict[str, np.ndarray]:
    """Return sources with equal training results, with common seeds and queries but separate errors."""
    draws = np.random.default_rng([seed, 7])
    common = draws.normal(0, 0.02, (n_seeds, N_FOLDS))[:, FOLD]
    return {
        chr(97 + place): common + differences(1000 * seed + place, n_seeds, 0.05, 0.02, 0.05)
        for place in range(n_sources)
    }


def established(n_seeds: int, n_probes: int = 500) -> float:
    """Share of simulated probes of four equal sources in which an order is established."""
    probes = (judge(equal_sources(seed, 4, n_seeds)).pairs()[0] for seed in range(n_probes))
    return float(np.mean([any(pair.established for pair in pairs) for pairs in probes]))


@pytest.mark.parametrize("n_seeds", [2, 3])
def test_equal_sources_are_rarely_told_apart(n_seeds: int) -> None:
    assert established(n_seeds) <= 0.075


def test_without_pooled_runs_equal_sources_are_told_apart_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_the_pair(judge: Judge, first: NegativeSource, second: NegativeSource) -> Gap:
        return alone(judge._values[first] - judge._values[second])

    monkeypatch.setattr(Judge, "difference", of_the_pair)
    assert established(2, 200) > 0.075


def test_the_pooled_error_of_two_arms_is_that_of_their_difference() -> None:
    values = np.stack([*equal_sources(0, 2, 3).values()])
    of_gap, pooled = alone(values[0] - values[1]), between_runs(values, FOLD)
    assert pooled is not None
    assert of_gap.error_runs == pytest.approx(max(0.0, pooled.variance / 3) ** 0.5)
    assert pooled.degrees == N_FOLDS * 2


def test_stopping_sources_that_trail_establishes_no_order_of_equal_ones() -> None:
    """Four equal sources and four seeds: those that trail after two have no further ones."""
    wrong = []
    for seed in range(500):
        values = equal_sources(seed, 4, 4)
        for n_seeds in (2, 3):
            running = {name: own[:n_seeds] for name, own in values.items() if len(own) == 4}
            for source in judge(running).trailing():
                values[source.name] = values[source.name][:n_seeds]
        wrong.append(any(pair.established for pair in judge(values).pairs()[0]))
    assert np.mean(wrong) <= 0.08


def test_one_large_group_tells_as_much_as_few() -> None:
    assert effective_number(np.arange(40)) == pytest.approx(40)
    large = np.where(np.arange(100) < 40, 0, np.arange(100))
    assert effective_number(large) == pytest.approx(1 / (0.4**2 + 60 * 0.01**2))
