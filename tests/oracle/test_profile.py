"""The gate profile and differences at equal margins, against definitions in plain loops (METHOD 15, 16.3)."""

from __future__ import annotations

from itertools import permutations
from math import exp, sqrt
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from secid.analyses.equal_hardness import EqualHardness, EqualMargins, deciles, equal_margins, holm_adjusted, unranked
from secid.analyses.profile import FACTORS, gap_to_random, profile, shapley
from secid.analyses.shared_queries import PairGap
from secid.measure.blocks import Triplets
from secid.measure.interval import Difference, reach_95
from secid.triplets.table import TripletTable
from tests.oracle.closeness import assert_close

TAU, SMALLEST = 0.1, 1e-3


class Row(NamedTuple):
    """A triplet: its query, weight in counts, s_qp, s_qn, s_pn and coverage."""

    query: int
    share: float
    qp: float
    qn: float
    pn: float
    coverage: float

    def gates(self) -> dict[str, float]:
        """Nothing where n is p: the triplet adds nothing to M."""
        if sqrt(max(0.0, 2 - 2 * self.pn)) <= SMALLEST:
            return dict.fromkeys(FACTORS, 0.0)
        return {
            "consistency": 1 / (1 + exp(-(self.qp - self.qn) / TAU)),
            "locality": 1 / (1 + exp(-(self.pn - self.qn) / TAU)),
            "residual": 1 - self.coverage,
        }

    @property
    def weight(self) -> float:
        gates = self.gates()
        return gates["consistency"] * gates["locality"] * gates["residual"]


def rows(seed: int, queries: range, harder: float = 0.0) -> list[Row]:
    """Return rows of one to five negatives. Some equal the positive, and some have equal margins."""
    draw = np.random.default_rng(seed)
    found = []
    for query in queries:
        qp, share = float(draw.uniform(0.5, 0.8)), float(draw.choice([1.0, 0.5]))
        for _ in range(draw.integers(1, 6)):
            qn = float(draw.uniform(0.0, 0.6)) + harder
            pn = 1.0 if draw.uniform() < 0.1 else float(draw.uniform(0.0, 0.9))
            margin = round(qp - qn, 1) if draw.uniform() < 0.3 else qp - qn
            found.append(Row(query, share, qp, qp - margin, pn, float(draw.uniform(0, 1))))
    return found


def measured(own: list[Row], name: str = "a") -> Any:
    """Return the product's form of these rows, with one record per row."""
    query, share, qp, qn, pn, coverage = (np.array(column) for column in zip(*own, strict=True))
    ids = np.arange(len(own))
    triplets = Triplets(
        query=query, positive=ids, negative=ids, record_offsets=np.arange(len(own) + 1), record=ids, place=ids,
        share=share,
    )  # fmt: skip
    table = TripletTable(
        triplets, None, TAU, qp, np.zeros(len(own)), qn, pn, coverage, np.zeros(len(own), np.uint32), frozenset()
    )
    keys = np.unique(query).astype(">u8").view(np.uint8).reshape(-1, 8)
    return SimpleNamespace(name=name, table=table, triplets=triplets, query_keys=keys)


def mean(own: list[Row], value: Any) -> float:
    return sum(row.share * value(row) for row in own) / sum(row.share for row in own)


def influence(own: list[Row], value: Any, query: int) -> float:
    """Return the change of the mean with a query's weight."""
    middle, total = mean(own, value), sum(row.share for row in own)
    return sum(row.share * (value(row) - middle) for row in own if row.query == query) / total


def part(name: str, row: Row) -> float:
    """Return the Shapley value of a gate: its effect on the product, averaged over the six orders."""
    gates, effects = row.gates(), []
    for order in permutations(FACTORS):
        product = 1.0
        for each in order:
            if each == name:
                effects.append(product * gates[each] - product)
            product *= gates[each]
    return sum(effects) / len(effects)


def gap(own: list[Row], random: list[Row]) -> dict[str, tuple[float, float]]:
    """Return the value and standard error of each part on the shared queries."""
    shared = {row.query for row in own} & {row.query for row in random}
    own, random = ([row for row in side if row.query in shared] for side in (own, random))
    values = {name: lambda row, name=name: part(name, row) for name in FACTORS} | {"weight": lambda row: row.weight}
    return {
        name: (
            mean(own, value) - mean(random, value),
            sqrt(sum((influence(own, value, q) - influence(random, value, q)) ** 2 for q in shared)),
        )
        for name, value in values.items()
    }


@pytest.mark.parametrize("seed", range(5))
def test_the_gap_to_random_and_its_parts_are_those_of_the_loops(seed):
    own, random = rows(seed, range(30)), rows(seed + 100, range(8, 40), -0.3)
    expected, found = gap(own, random), gap_to_random(measured(own), measured(random), SMALLEST)
    assert found.n_queries == 22
    for name, (value, error) in expected.items():
        ends = (value - reach_95(22) * error, value + reach_95(22) * error)
        mine = getattr(found, name)
        assert_close([mine.value, *mine.interval_95], [value, *ends], rel=1e-10, abs=1e-12)
    assert found.weight.value == pytest.approx(sum(getattr(found, name).value for name in FACTORS), abs=1e-12)


def test_the_reference_notices_another_order_of_gates_and_another_weight():
    own, random = rows(0, range(30)), rows(100, range(30), -0.3)
    expected, found = gap(own, random), gap_to_random(measured(own), measured(random), SMALLEST)
    first, *others = sorted(own, key=lambda row: row.pn)
    for changed in (first._replace(coverage=first.coverage / 2), first._replace(share=2 * first.share)):
        other = gap([changed, *others], random)
        assert other["weight"][0] != pytest.approx(found.weight.value, rel=1e-9)
    alone, of_random = (mean(side, lambda row: row.gates()["consistency"]) for side in (own, random))
    assert alone - of_random != pytest.approx(
        expected["consistency"][0], rel=1e-6
    )  # the gate taken first, not averaged


def test_the_worked_examples():
    gates = (
        {"consistency": 0.5, "locality": 0.8, "residual": 0.9},
        {"consistency": 0.9, "locality": 0.7, "residual": 0.95},
    )
    first, second = (shapley({name: np.array([value]) for name, value in own.items()}) for own in gates)
    assert [round(float(first[name][0] - second[name][0]), 3) for name in FACTORS] == [-0.345, 0.135, -0.028]


def test_a_profile_is_the_mean_of_its_gates():
    own = rows(3, range(20))
    usable = [row for row in own if row.pn < 1]
    found = profile(measured(usable))
    for name in FACTORS:
        assert getattr(found, name).value == pytest.approx(mean(usable, lambda row, name=name: row.gates()[name]))
        low, high = getattr(found, name).interval_95
        assert 0 <= low <= getattr(found, name).value <= high <= 1
    assert found.weight.value == pytest.approx(mean(usable, lambda row: row.weight))


def test_without_a_query_in_common_there_is_no_gap():
    assert gap_to_random(measured(rows(0, range(5))), measured(rows(1, range(5, 9))), SMALLEST) is None


def strata(first: list[Row], second: list[Row]) -> list[float]:
    """Nine margins that part the negatives, each source weighing one half."""
    margins = sorted(
        (row.qp - row.qn, row.share / sum(other.share for other in side) / 2)
        for side in (first, second)
        for row in side
    )
    total, edges = sum(weight for _, weight in margins), []
    for k in range(1, 10):
        reached = 0.0
        for margin, weight in margins:
            reached += weight
            if reached >= k / 10 * total - 1e-13:
                edges.append(margin)
                break
    return edges


def at_equal_margins(first: list[Row], second: list[Row]) -> dict[str, Any]:
    shared = {row.query for row in first} & {row.query for row in second}
    sides = [[row for row in side if row.query in shared] for side in (first, second)]
    edges = strata(*sides)
    in_stratum = [
        [[row for row in side if sum(row.qp - row.qn >= edge for edge in edges) == k] for k in range(10)]
        for side in sides
    ]
    shares = [
        [sum(row.share for row in part) / sum(row.share for row in side) for part in parts]
        for side, parts in zip(sides, in_stratum, strict=True)
    ]
    smaller = [min(one, other) for one, other in zip(*shares, strict=True)]
    overlap = sum(smaller)
    if overlap < 0.2:
        return {"n_queries": len(shared), "overlap": overlap, "difference": None}
    value, per_query = 0.0, dict.fromkeys(shared, 0.0)
    for k in range(10):
        if not smaller[k]:
            continue
        for sign, parts in zip((1, -1), in_stratum, strict=True):
            weigh = smaller[k] / overlap
            value += sign * weigh * mean(parts[k], lambda row: row.weight)
            for query in shared:
                per_query[query] += sign * weigh * influence(parts[k], lambda row: row.weight, query)
    error = sqrt(sum(own**2 for own in per_query.values()))
    reach = reach_95(len(shared)) * error
    return {
        "n_queries": len(shared),
        "overlap": overlap,
        "difference": value,
        "interval_95": (value - reach, value + reach),
    }


def at_equal(first: list[Row], second: list[Row]) -> EqualMargins:
    (found,) = holm_adjusted([equal_margins(measured(first), measured(second, "b"), SMALLEST)])
    return found


def numbers(found: EqualMargins) -> dict[str, Any]:
    own = {"n_queries": found.n_queries, "overlap": found.overlap, "difference": found.difference}
    return own if found.difference is None else own | {"interval_95": found.interval_95}


@pytest.mark.parametrize("harder", [0.0, 0.2, 0.6])
@pytest.mark.parametrize("seed", range(4))
def test_differences_at_equal_margins_are_those_of_the_loops(seed, harder):
    first, second = rows(seed, range(40)), rows(seed + 50, range(10, 60), harder)
    expected, found = at_equal_margins(first, second), at_equal(first, second)
    assert (expected["difference"] is None) == (found.difference is None)
    assert_close(numbers(found), expected, rel=1e-9, abs=1e-12)
    assert found.established == (
        found.interval_95 is not None and not found.interval_95[0] <= 0 <= found.interval_95[1]
    )
    turned = at_equal(second, first)
    assert (turned.overlap, turned.difference) == (
        pytest.approx(found.overlap),
        None if found.difference is None else pytest.approx(-found.difference),
    )


def test_pairs_that_hardly_overlap_are_not_compared():
    found = at_equal(rows(0, range(40)), rows(1, range(40), 0.6))
    assert found.overlap < 0.2
    assert (found.difference, found.interval_95, found.established) == (None, None, False)


def test_the_reference_notices_a_moved_margin_and_weights_of_one_source():
    first, second = rows(0, range(40)), rows(50, range(40), 0.2)
    found = at_equal(first, second)
    moved = at_equal_margins([row._replace(qn=row.qn + 0.05) for row in first], second)
    assert moved["difference"] != pytest.approx(found.difference, rel=1e-6)
    plain = mean(first, lambda row: row.weight) - mean(second, lambda row: row.weight)
    assert plain != pytest.approx(found.difference, rel=1e-2)


def test_rows_in_another_order_give_the_same_differences():
    first, second = rows(2, range(40)), rows(52, range(40), 0.2)
    shuffled = at_equal(first[::-1], second[::-1])
    assert_close(numbers(shuffled), numbers(at_equal(first, second)), rel=1e-9)


def test_edges_part_the_weights_not_the_rows():
    assert deciles(np.array([3.0, 1.0, 2.0]), np.array([8.0, 1.0, 1.0])).tolist() == [1.0, 2.0] + 7 * [3.0]


def pair(first: str, second: str, overlap: float) -> EqualMargins:
    return EqualMargins(
        first=first,
        second=second,
        n_queries=50,
        overlap=overlap,
        difference=None,
        interval_95=None,
        p_holm=None,
        established=False,
    )


def test_what_is_too_easy_or_apart_is_not_ranked():
    names, apart = ["a", "b", "c"], [pair("a", "b", 0.5), pair("a", "c", 0.19), pair("b", "c", 0.1)]
    assert unranked(names, {"a": 0.5, "b": 0.4, "c": 0.3}, apart) == {"c": "apart"}
    assert unranked(names, {"a": 0.5, "b": 0.099, "c": 0.3}, apart) == {"b": "too_easy", "c": "apart"}
    assert unranked(names, {"a": 0.05, "b": 0.04, "c": 0.3}, apart) == {}  # never all of them
    assert unranked(names, {}, apart) == {}
    assert unranked(names[:2], {"a": 0.5, "b": 0.4}, [pair("a", "b", 0.1)]) == {}
    assert unranked(names, {"a": 0.5, "b": 0.1, "c": 0.3}, []) == {}  # no pair at all: nothing is known of overlaps


def test_what_is_compared_with_nothing_is_not_ranked():
    names, upper, own = ["a", "b", "c", "d"], dict.fromkeys("abcd", 0.5), [pair("a", "b", 0.5), pair("b", "c", 0.5)]
    assert unranked(names, upper, own) == {"d": "few_shared"}
    assert unranked(names, {}, own) == {"d": "few_shared"}
    assert unranked(names, upper | {"b": 0.05}, own) == {"d": "few_shared", "b": "too_easy"}
    easy = dict.fromkeys("abc", 0.05) | {"d": 0.5}
    assert unranked(names, easy, own) == {"d": "few_shared"}  # it does not win where all others are too easy
    far = [pair("a", "b", 0.1)]
    assert unranked(names[:3], upper, far) == {"c": "few_shared"}  # a and b are ranked, as without c


def test_shards_together_decide_what_is_compared():
    """In the sample, d was not compared and b was too easy. Over all queries, c is not compared."""
    sample = EqualHardness(pairs=(), unranked={"d": "few_shared", "b": "too_easy"})
    gaps = [PairGap(*names, Difference(0.1, 0.01, 50, 50)) for names in ("ab", "ad")]
    assert sample.with_gaps(["a", "b", "c", "d"], gaps).unranked == {"c": "few_shared", "b": "too_easy"}
    assert sample.with_gaps(["a", "b", "c", "d"], []).unranked == {"b": "too_easy"}
    assert sample.with_gaps(["b", "c"], [PairGap("b", "d", Difference(0.1, 0.01, 50, 50))]).unranked == {
        "c": "few_shared"
    }
