"""Test the probe's groups and metrics against plain Python, and that the test notices damage to either."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from secid.findings.copies import run_sets
from secid.pool.normal_form import FormKeys
from secid.pool.texts import Packed
from secid.tools.probing import task
from secid.tools.probing.learner import measures
from tests.oracle import probe as reference

WORDS = [f"w{number}" for number in range(40)]


def labelled(seed: int) -> tuple[int, np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return queries, passages and copies of passages, sparse enough that groups of all sizes occur."""
    draws = np.random.default_rng(seed)
    n = 30
    return n, draws.integers(0, n, 25), draws.integers(0, 40, 25), (draws.integers(0, 40, 4), draws.integers(0, 40, 4))


def as_sets(group: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(group == name).tolist()) for name in np.unique(group)}


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_those_of_a_union_find(seed: int) -> None:
    n, query, passage, copies = labelled(seed)
    expected = reference.groups(n, zip(query, passage, strict=True), zip(*copies, strict=True))
    group = task.query_groups(query, passage, copies, n)
    assert as_sets(group) == expected
    assert sorted(np.unique(group)) == list(range(len(expected)))


def test_a_lost_link_is_noticed() -> None:
    n, query, passage, copies = labelled(0)
    expected = reference.groups(n, zip(query, passage, strict=True), zip(*copies, strict=True))
    damaged = [task.query_groups(np.delete(query, i), np.delete(passage, i), copies, n) for i in range(len(query))]
    assert any(as_sets(group) != expected for group in damaged)


def test_without_labels_each_query_is_a_group() -> None:
    none = np.zeros(0, np.int64)
    assert task.query_groups(none, none, (none, none), 3).tolist() == [0, 1, 2]


def copies_of(texts: list[str]) -> set[tuple[int, int]]:
    first, second = task.copies_among(run_sets(FormKeys.of(Packed.of(texts))))
    return set(zip(first.tolist(), second.tolist(), strict=True))


def changed(seed: int) -> list[str]:
    """Return texts with a common opening, and copies that are shortened, lengthened or have other words."""
    draws = np.random.default_rng(seed)
    opening, texts = "all texts here begin with these very words", []
    for _ in range(12):
        words = draws.choice(WORDS, draws.integers(1, 30)).tolist()
        texts.append(f"{opening} {' '.join(words)}" if draws.random() < 0.5 else " ".join(words))
    for text in list(texts):
        words = text.split()
        for place in range(len(words)):
            if draws.random() < 0.05:
                words[place] = "other"
        start = draws.integers(0, max(1, len(words) // 2))
        texts.append(" ".join([*words[start:], *draws.choice(WORDS, draws.integers(0, 10)).tolist()]))
    return texts


def expected_copies(texts: list[str]) -> set[tuple[int, int]]:
    """Pairs of texts with runs: two without are joined by their normal form, not here."""
    with_runs = [place for place, text in enumerate(texts) if len(reference.runs(text)) >= 2]
    return {(a, b) for a in with_runs for b in with_runs if a < b and reference.near_copy(texts[a], texts[b])}


@pytest.mark.parametrize("seed", range(10))
def test_near_copies_are_those_of_sets_of_runs(seed: int) -> None:
    texts = changed(seed)
    found = {(a, b) for a, b in copies_of(texts) if len(reference.runs(texts[a])) >= 2 <= len(reference.runs(texts[b]))}
    assert found == expected_copies(texts)


def test_a_lost_near_copy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [changed(seed) for seed in range(10)]
    monkeypatch.setattr(task, "MIN_SHARED_FRACTION", 1.0)  # only a text's very rarest run is looked up
    assert any(not expected_copies(texts) <= copies_of(texts) for texts in every)


def rankings(seed: int, n_candidates: int) -> tuple[np.ndarray, np.ndarray, list[set[int]]]:
    """Return rows of multiples of 1/4, whose float32 products are exact and often equal."""
    draws = np.random.default_rng(seed)
    queries, candidates = draws.integers(-2, 3, (7, 4)) / 4, draws.integers(-2, 3, (n_candidates, 4)) / 4
    return queries, candidates, [set(draws.choice(n_candidates, 1 + draws.integers(0, 14)).tolist()) for _ in queries]


def measured(queries: np.ndarray, candidates: np.ndarray, relevant: list[set[int]]) -> np.ndarray:
    row = np.repeat(np.arange(len(relevant)), [len(own) for own in relevant])
    place = np.array([place for own in relevant for place in own])
    return measures(torch.tensor(queries).float(), torch.tensor(candidates).float(), row, place)


@pytest.mark.parametrize("n_candidates", [5, 60, 300])
@pytest.mark.parametrize("seed", range(5))
def test_measures_are_those_of_plain_python(seed: int, n_candidates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secid.triplets.search.QUERY_BLOCK", 3)
    given = rankings(seed, n_candidates)
    assert np.abs(measured(*given) - reference.measures(*given)).max() < 1e-12


@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_damaged_ranking_is_noticed(column: int) -> None:
    queries, candidates, relevant = rankings(1, 300)
    damaged = reference.measures(queries, candidates[::-1], relevant)
    assert np.abs(measured(queries, candidates, relevant) - damaged)[:, column].max() > 0.01


def test_ties_are_decided_by_place() -> None:
    """With equal scores everywhere the first candidate is the first hit."""
    queries, candidates = np.ones((2, 4)) / 2, np.ones((20, 4)) / 2
    values = measured(queries, candidates, [{0}, {12}])
    assert values.tolist() == [[1.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
