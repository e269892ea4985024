"""Test which pairs a look decides, and how often a declared order is wrong."""

from __future__ import annotations

from functools import cache, partial
from itertools import combinations, pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from secid.analyses.ranking import FIRST_LOOK, Looks, _decide_pairs, _look_level, look_sizes, looks_of
from secid.analyses.shared_queries import PairGap
from secid.measure.interval import error_spent, information_times, levels_of_looks
from secid.measure.uncertainty import Influence, difference

NAMES = ("a", "b", "c")
PAIRS = [("a", "b"), ("a", "c"), ("b", "c")]


def seen(share: float) -> dict[str, float]:
    """Return the same share of the queries of every source."""
    return dict.fromkeys((*NAMES, "rare", "even"), share)


def item(name: str, values: np.ndarray) -> SimpleNamespace:
    """A source whose score is the mean of one number a query."""
    n = len(values)
    per_query = ((values - values.mean()) / n)[:, None]
    empty = np.empty(0)
    effect = Influence((1.0,), empty, empty, np.arange(n), per_query, np.zeros(1))
    return SimpleNamespace(name=name, influence=effect, nats=lambda _: float(values.mean()))


def gaps(items: list[SimpleNamespace]) -> list[PairGap]:
    """All pairs, whichever queries they share."""
    return [
        PairGap(a.name, b.name, difference(a.influence, b.influence, a.nats(1.0) - b.nats(1.0))).higher_first()
        for a, b in combinations(items, 2)
    ]


def wrong_share(level_times: float, n_runs: int, seed: int) -> float:
    """Share of runs that declare a wrong order among three sources of nearly equal scores before the last look."""
    generator = np.random.default_rng(seed)
    n = 200
    wrong = 0
    sizes = [size for size in look_sizes(n) if size < n]
    levels = cache(lambda n_open: level_times * levels_of_looks(information_times(sizes, n), 0.2 / n_open))
    for _ in range(n_runs):
        # Differences of a hundredth of a standard deviation: any order declared is chance
        table = {name: generator.standard_normal(n) + 0.01 * place for place, name in enumerate(NAMES)}
        truth = {name: values.mean() for name, values in table.items()}
        drawn = generator.permutation(n)
        open_pairs, failed = list(PAIRS), False
        for look, size in enumerate(sizes):
            items = [item(name, values[drawn[:size]]) for name, values in table.items()]
            found = _decide_pairs(
                gaps(items), open_pairs, partial(_look_level, levels, look), size, seen(size / n), None
            )
            failed |= any(truth[pair.first] < truth[pair.second] for pair in found)
            decided = {tuple(sorted((pair.first, pair.second))) for pair in found}
            open_pairs = [pair for pair in open_pairs if pair not in decided]
        wrong += failed
    return wrong / n_runs


def test_wrong_orders_stay_below_the_error_and_a_wider_level_would_be_seen():
    # 0.2 may be wrong, and 100 runs have a standard error of 0.04. Two-sided levels and Holm leave room: half is seen
    assert wrong_share(1.0, 100, seed=0) <= 0.2
    assert wrong_share(12.0, 100, seed=0) > 0.3


def test_pairs_are_decided_from_the_clearest_on_and_leave_the_error_to_those_that_can_be_level():
    generator = np.random.default_rng(1)
    base = generator.standard_normal(50)
    items = [item("a", base), item("b", base + 0.5 * generator.standard_normal(50) + 0.5), item("c", base + 9)]
    asked: list[int] = []

    def level(n_open: int) -> float:
        asked.append(n_open)
        return 0.05 / n_open

    found = _decide_pairs(gaps(items), PAIRS, level, 50, seen(0.1), None)
    assert asked == [3, 1, 1]  # with c apart from a, b can be level with one of them only
    assert [(pair.first, pair.second, pair.outcome) for pair in found] == [
        ("c", "a", "ordered"),
        ("c", "b", "ordered"),
        ("b", "a", "ordered"),
    ]


def test_with_ties_all_open_pairs_share_the_error():
    base = np.random.default_rng(1).standard_normal(50)
    asked: list[int] = []
    items = [item("a", base), item("b", base + 5), item("c", base + 9)]
    _decide_pairs(gaps(items), PAIRS, lambda n_open: asked.append(n_open) or 0.05 / n_open, 50, seen(0.1), 1e-3)
    assert asked == [3, 2, 1]


def test_a_tie_needs_the_whole_interval_within_it():
    generator = np.random.default_rng(2)
    base = generator.standard_normal(200)
    items = [item("a", base), item("b", base + 0.01 * generator.standard_normal(200))]
    half = 0.01 / np.sqrt(200) * 2
    assert _decide_pairs(gaps(items), [("a", "b")], lambda _: 0.05, 200, seen(0.0), half / 4) == []
    (tied,) = _decide_pairs(gaps(items), [("a", "b")], lambda _: 0.05, 200, seen(0.0), 4 * half)
    assert tied.outcome == "tied"


def test_a_score_that_rests_on_few_queries_is_not_judged_before_they_are_seen():
    """One query in twenty is strong in a source that is better; thirty queries hold none of them in 21 % of draws."""
    generator = np.random.default_rng(5)
    rare = np.where(np.arange(600) % 20 == 0, 1.5, 0.0) + 0.003 * generator.standard_normal(600)
    even = np.full(600, 0.02) + 0.003 * generator.standard_normal(600)
    sizes = look_sizes(600)
    level = cache(lambda n_open: levels_of_looks(information_times(sizes[:-1], 600), 0.05 / n_open)[0])
    wrong = {"planned": 0, "thirty": 0}
    for _ in range(200):
        drawn = generator.permutation(600)
        for name, size in (("planned", sizes[0]), ("thirty", 30)):
            items = [item("rare", rare[drawn[:size]]), item("even", even[drawn[:size]])]
            found = _decide_pairs(gaps(items), [("even", "rare")], level, size, seen(size / 600), None)
            wrong[name] += any(pair.first == "even" for pair in found)
    assert wrong["planned"] <= 0.05 * 200
    assert wrong["thirty"] > 0.05 * 200


def test_a_small_source_holds_up_only_its_own_pairs():
    base = np.random.default_rng(6).standard_normal(120)
    items = [item("a", base), item("b", base + 5), item("c", base[:4])]
    found = _decide_pairs(gaps(items), PAIRS, lambda _: 0.01, 120, seen(0.1), None)
    assert [(pair.first, pair.second) for pair in found] == [("b", "a")]


def test_looks_rise_by_a_tenth_at_least_and_end_with_all():
    assert look_sizes(50) == (50,)
    for n in range(101, 3000, 7):
        sizes = look_sizes(n)
        assert sizes[-1] == n
        assert all(later > 1.09 * sooner for sooner, later in pairwise(sizes))


def test_all_queries_seen_leave_nothing_to_chance_and_few_decide_nothing():
    values = np.random.default_rng(3).standard_normal(100)
    close = [item("a", values), item("b", values + np.random.default_rng(4).standard_normal(100) * 1e-3)]
    (pair,) = _decide_pairs(gaps(close), [("a", "b")], lambda _: 0.05, 100, seen(1.0), None)
    assert pair.difference_nats == pytest.approx(abs(close[0].nats(1.0) - close[1].nats(1.0)))
    still = [item("a", np.zeros(100)), item("b", np.full(100, 0.125))]
    assert (
        _decide_pairs(gaps(still), [("a", "b")], lambda _: 0.05, 100, seen(0.5), None) == []
    )  # nothing varied in what was seen
    few = [item("a", values[:4]), item("b", values[:4] + 5.0)]
    assert _decide_pairs(gaps(few), [("a", "b")], lambda _: 0.05, 4, seen(1.0), None) == []


def test_the_source_of_which_less_was_seen_decides_how_sure_a_pair_is():
    generator = np.random.default_rng(7)
    base = generator.standard_normal(100)
    pair = [item("a", base), item("b", base + generator.standard_normal(100) + 0.15)]

    def outcome(a: float, b: float) -> int:
        return len(_decide_pairs(gaps(pair), [("a", "b")], lambda _: 0.05, 100, {"a": a, "b": b}, None))

    assert outcome(0.99, 0.99) == 1
    assert outcome(0.99, 0.1) == outcome(0.1, 0.99) == outcome(0.1, 0.1) == 0


def places_of(*sizes: int, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Sources of these numbers of queries, none shared, and a random sample's order of all."""
    ends = np.cumsum(sizes)
    order = np.random.default_rng(seed).permutation(int(ends[-1]))
    return np.split(np.arange(int(ends[-1])), ends[:-1]), order / len(order)


def looks_at(*sizes: int, seed: int = 0) -> Looks:
    queries, position = places_of(*sizes, seed=seed)
    return looks_of(queries, position, sizes, sum(sizes))


def test_sources_are_judged_from_their_own_queries_not_from_those_of_all():
    looks = looks_at(600, 600, 600, 600, 40)
    seen = looks.read_share * [600, 600, 600, 600, 40]
    assert (looks.ready[:, :4] == (seen[:, :4] >= FIRST_LOOK)).all()
    assert (looks.ready[:, 4] == (looks.read_share[:, 4] == 1.0)).all()  # all that it has
    assert looks.ready[0].sum() == 2  # no look before there is a pair to judge
    assert 300 < looks.sizes[0] < 500
    assert looks.ready[-1].all()


def test_where_queries_are_shared_looks_and_their_times_are_those_of_the_sample():
    same = np.arange(600)
    looks = looks_of([same, same], np.random.default_rng(0).permutation(600) / 600, [600, 600], 600)
    assert looks.sizes == look_sizes(600)
    assert looks.sizes[0] == 100
    assert looks.ready.all()
    expected = information_times(looks.sizes[:-1], 600)
    assert looks.times == pytest.approx(expected / expected[0])


def test_times_rise_as_those_of_the_source_that_gains_most():
    """A small source of which nearly all is seen gains more from look to look than a large one's sample."""
    queries, position = places_of(300, 300)
    slow, both = (looks_of(queries, position, n_read, sum(n_read)) for n_read in ((9000, 9000), (9000, 300)))
    assert slow.sizes == both.sizes
    assert (np.diff(np.log(both.times)) > np.diff(np.log(slow.times))).all()
    assert levels_of_looks(both.times, 0.05)[-1] < levels_of_looks(slow.times, 0.05)[-1]
    whole = looks_of([np.arange(150), np.arange(600)], np.arange(600) / 600, [150, 6000], 6000)
    assert (whole.read_share[1:, 0] == 1.0).all()
    assert np.isfinite(whole.times).all()


def test_sources_seen_whole_before_another_is_ready_leave_levels_for_every_look():
    generator = np.random.default_rng(11)
    same = np.arange(2)
    for _ in range(50):
        looks = looks_of([same, same, np.arange(2, 142)], generator.permutation(142) / 142, [2, 2, 140], 142)
        assert (np.diff(looks.times) > 0).all()
        if len(looks.times):
            assert error_spent(looks.times, levels_of_looks(looks.times, 0.05))[-1] == pytest.approx(0.05, rel=1e-6)


def test_a_source_of_rare_strong_queries_keeps_its_place_among_sources_of_other_queries():
    """No two of the four sources share a query, so the first hundred queries have 25 of each."""
    generator = np.random.default_rng(8)
    names = ("rare", "b", "c", "d")
    values = {name: 0.02 + 0.003 * generator.standard_normal(600) for name in names}
    values["rare"] = np.where(np.arange(600) % 20 == 0, 1.5, 0.0) + 0.003 * generator.standard_normal(600)
    wrong = {"planned": 0, "together": 0}
    for seed in range(100):
        queries, position = places_of(600, 600, 600, 600, seed=seed)
        looks = looks_of(queries, position, [600] * 4, 2400)
        level = cache(lambda n_open, times=looks.times: levels_of_looks(times, 0.05 / n_open)[0])
        for how, size, ready in (
            ("planned", looks.sizes[0], looks.ready[0]),
            ("together", FIRST_LOOK, np.ones(4, np.bool_)),
        ):
            drawn = [np.flatnonzero(position[own] * 2400 < size - 0.5) for own in queries]
            judged = [
                item(name, values[name][part]) for name, part, fit in zip(names, drawn, ready, strict=True) if fit
            ]
            share = {name: len(part) / 600 for name, part in zip(names, drawn, strict=True)}
            found = _decide_pairs(gaps(judged), [(name, "rare") for name in names[1:]], level, size, share, None)
            wrong[how] += any(pair.second == "rare" for pair in found)
    assert wrong["planned"] <= 0.05 * 100
    assert wrong["together"] > 0.05 * 100
