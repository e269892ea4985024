"""Test comparisons of sources, and the number of queries that a difference needs, against METHOD 8 by hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations
from math import ceil
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secid.analyses.ranking import comparisons, letter, tie_letters
from secid.analyses.shared_queries import PairGap, SourcePairs
from secid.measure.interval import Difference
from secid.measure.uncertainty import Influence, difference
from secid.results import Comparison


def source(name: str, nats: float, per_query: np.ndarray) -> SimpleNamespace:
    """Return a source with this score and one influence per query. Its queries are numbered from 0."""
    empty = np.empty(0)
    queries = np.arange(len(per_query))
    influence = Influence((1.0,), empty, empty, queries, per_query[:, None], np.zeros(1))
    return SimpleNamespace(name=name, influence=influence, nats=lambda _: nats)


def alternating(n: int, standard_error: float) -> np.ndarray:
    """Influences that sum to 0, whose squares add up to the squared standard error."""
    return np.where(np.arange(n) % 2 == 0, 1.0, -1.0) * standard_error / np.sqrt(n)


def compare(sources: list[SimpleNamespace]) -> tuple[Comparison, ...]:
    """Return all pairs, whichever queries they share."""
    gaps = [
        PairGap(a.name, b.name, difference(a.influence, b.influence, a.nats(1.0) - b.nats(1.0)))
        for a, b in combinations(sources, 2)
    ]
    return comparisons(SourcePairs(tuple(gaps)), 1.0)


def test_queries_needed_are_those_of_the_method_at_each_step_of_holm():
    """n (z*/z)^2 for 50 % power and n ((z* + 0.84)/z)^2 for 80 %; z* of the two-sided 0.05/3, 0.05/2 and 0.05.

    b has no noise of its own, so differences from it have the other source's error; those of a and c share queries.
    """
    a = source("a", 0.50, alternating(100, 0.01))
    b = source("b", 0.45, np.zeros(100))
    c = source("c", 0.43, np.roll(np.repeat([1.0, -1.0], 20), 1) * 0.016 / np.sqrt(40))
    pairs = {(pair.first, pair.second): pair for pair in compare([a, b, c])}
    a_minus_c = a.influence.per_query[:, 0].copy()
    a_minus_c[:40] -= c.influence.per_query[:, 0]
    expected = {
        ("a", "b"): (0.05 / 0.01, 100, 3),
        ("a", "c"): (0.07 / float(np.sqrt((a_minus_c**2).sum())), 40, 2),
        ("b", "c"): (0.02 / 0.016, 40, 1),
    }
    for names, (z, n, step) in expected.items():
        z_star = NormalDist().inv_cdf(1 - 0.05 / 2 / step)
        assert pairs[names].z == pytest.approx(z)
        assert pairs[names].queries_needed_50 == ceil(n * (z_star / z) ** 2)
        assert pairs[names].queries_needed_80 == ceil(n * ((z_star + 0.8416) / z) ** 2)
    # The same in numbers, with z* = 2.3940 and 1.9600: 100 (2.3940/5)^2, 100 (3.2356/5)^2, 40 (1.9600/1.25)^2, ...
    assert (pairs["a", "b"].queries_needed_50, pairs["a", "b"].queries_needed_80) == (23, 42)
    assert (pairs["b", "c"].queries_needed_50, pairs["b", "c"].queries_needed_80) == (99, 201)
    assert [pairs[names].established for names in expected] == [True, True, False]


def test_no_number_of_queries_establishes_a_difference_of_zero():
    noise = alternating(100, 0.01)
    (pair,) = compare([source("a", 0.5, noise), source("b", 0.5, -noise)])
    assert (pair.z, pair.queries_needed_50, pair.queries_needed_80) == (None, None, None)


def test_the_sign_of_the_difference_does_not_matter():
    a, b = source("a", 0.5, alternating(100, 0.01)), source("b", 0.48, np.zeros(100))
    (falling,), (rising,) = compare([a, b]), compare([b, a])
    assert rising.z == -(falling.z or 0.0) == pytest.approx(-2.0)
    assert rising.queries_needed_80 == falling.queries_needed_80 == ceil(100 * ((1.95996 + 0.84162) / 2.0) ** 2)


def test_three_pairs_share_the_error_of_five_percent():
    """With 10,000 queries a z of 2.2, 2.17 and 2.13 has p of 0.028 to 0.033, above 0.05/3; one of 2.6 is below."""
    names = [("a", "b"), ("a", "c"), ("b", "c")]

    def established(*z: float) -> list[bool]:
        gaps = [Difference(0.01 * value, 0.01, 10_000, 10_000) for value in z]
        pairs = comparisons(SourcePairs(tuple(PairGap(*own, gap) for own, gap in zip(names, gaps, strict=True))), 1.0)
        assert all(pair.p < 0.05 for pair in pairs)
        return [pair.established for pair in pairs]

    assert established(2.2, 2.17, 2.13) == [False, False, False]
    assert established(2.13, 2.6, 2.17) == [False, True, False]
    assert established(2.0, 2.6, 2.3) == [True, True, True]


def pair(first: str, second: str, *, established: bool) -> SimpleNamespace:
    return SimpleNamespace(first=first, second=second, established=established)


def test_a_source_that_was_not_compared_with_all_others_has_no_letter():
    """a and c share no queries, and b is established below a: a letter that all three share would deny it."""
    pairs = [pair("a", "b", established=True), pair("b", "c", established=False)]
    assert tie_letters(["a", "b", "c"], pairs) == {"a": "A", "b": "B", "c": None}
    assert tie_letters(["a", "b", "c"], pairs[:1]) == {"a": "A", "b": "B", "c": None}
    assert tie_letters(["a", "b"], []) == {"a": None, "b": None}
    assert tie_letters(["a"], []) == {"a": None}
    all_pairs = [*pairs, pair("a", "c", established=True)]
    assert tie_letters(["a", "b", "c"], all_pairs) == {"a": "A", "b": "B", "c": "B"}
    assert tie_letters(["a", "b"], all_pairs) == {"a": "A", "b": "B"}, "pairs with other sources are passed over"


def letters_are_right(letters: Mapping[str, set[str]], apart: Collection[tuple[str, str]]) -> bool:
    """Return whether pairs share a letter if and only if they are not established, and each source has a letter."""
    shared = {(a, b): bool(letters[a] & letters[b]) for a, b in combinations(letters, 2)}
    return all(letters.values()) and all(shares == (own not in apart) for own, shares in shared.items())


def without_one(letters: Mapping[str, set[str]]) -> list[dict[str, set[str]]]:
    """Return every way to remove one letter from one source."""
    return [{**letters, name: own - {each}} for name, own in letters.items() for each in own]


@given(st.data())
def test_sources_share_a_letter_if_and_only_if_their_difference_is_not_significant(data):
    """Any symmetric relation of up to seven sources; no letter can go, and no pair can change unnoticed."""
    names = "abcdefg"[: data.draw(st.integers(2, 7))]
    every = list(combinations(names, 2))
    apart = data.draw(st.sets(st.sampled_from(every)))
    compared = [pair(*own, established=own in apart) for own in every]
    letters = {name: set(own or "") for name, own in tie_letters(names, compared).items()}
    assert letters_are_right(letters, apart)
    assert not any(letters_are_right(fewer, apart) for fewer in without_one(letters))
    assert "A" in letters["a"]
    damaged = data.draw(st.sampled_from(every))
    assert not letters_are_right(letters, apart ^ {damaged})


def test_the_one_between_has_both_letters_and_many_letters_stay_apart():
    pairs = [pair("a", "b", established=False), pair("c", "b", established=False), pair("a", "c", established=True)]
    assert tie_letters("abc", pairs) == {"a": "A", "b": "AB", "c": "B"}
    assert [letter(place) for place in (0, 25, 26, 53)] == ["A", "Z", "A1", "B2"]


def test_a_relation_of_many_cliques_needs_no_more_columns_than_pairs():
    """Fifteen established pairs of thirty sources: 2^15 largest sets without one, which are not all formed."""
    names = [f"s{place}" for place in range(30)]
    apart = set(zip(names[::2], names[1::2], strict=True))
    compared = [pair(*own, established=own in apart) for own in combinations(names, 2)]
    letters = tie_letters(names, compared)
    assert max(len(own or "") for own in letters.values()) < 435


def test_a_difference_without_an_error_has_no_z():
    assert Difference(value=0.5, standard_error=0.0, n_queries=100, n_shared=100).z is None
