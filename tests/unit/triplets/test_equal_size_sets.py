"""Sources cut to equal size, where their own sizes would give the other order."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from secid.measure.blocks import Triplets
from secid.triplets.measure_set import equal_size_sets, sample_positions

BUDGET = 1_000.0
DIMENSION = 200


def triplets(queries: range, n_negatives: int, first_negative: int, share: float | None = None) -> Triplets:
    query = np.repeat(np.array(queries), n_negatives)
    n = len(query)
    return Triplets(
        query=query,
        positive=query,
        negative=first_negative + np.arange(n),
        record_offsets=np.arange(0, n + 1, n_negatives),
        record=query - query[0],
        place=np.arange(n),
        share=None if share is None else np.full(n, share),
    )


@pytest.fixture
def plan() -> SimpleNamespace:
    queries, passages = (
        SimpleNamespace(keys=np.random.default_rng(seed).integers(0, 256, (n, 16), dtype=np.uint8))
        for seed, n in ((0, 60), (1, 400))
    )
    return SimpleNamespace(queries=queries, passages=passages)


def nats(rows: Triplets, weight: float) -> float:
    """ECI_B of rows of one weight, each negative a direction of its own."""
    directions = np.random.default_rng(1).standard_normal((300, DIMENSION))[rows.negative]
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    matrix = weight * directions.T @ directions / len(rows)
    return float(np.linalg.slogdet(np.eye(DIMENSION) + BUDGET * matrix)[1])


def test_equal_numbers_reverse_the_order_that_sizes_give(plan):
    many, few = triplets(range(60), 4, 0), triplets(range(10), 2, 250)
    assert nats(many, 0.1) > nats(few, 0.3)
    cut_many, cut_few = equal_size_sets(plan, [many, few], seed=0)
    assert nats(cut_many, 0.1) < nats(cut_few, 0.3)
    for cut, own in ((cut_many, many), (cut_few, few)):
        assert (len(np.unique(cut.query)), len(cut)) == (10, 20)
        assert set(cut.negative) <= set(own.negative)
        # dealt round by round, so no query has two more than another
        assert set(np.bincount(cut.query)[np.unique(cut.query)]) == {2}
        assert cut.record_offsets[-1] == len(cut)


def test_the_smallest_set_is_not_measured_again(plan):
    many, few = triplets(range(60), 4, 0), triplets(range(10), 2, 250)
    cut_many, cut_few = equal_size_sets(plan, [many, few], seed=0)
    assert cut_few is few
    assert cut_many is not many


def test_sets_of_equal_size_stay_themselves(plan):
    first, second = triplets(range(10), 2, 0), triplets(range(5, 15), 2, 100)
    assert all(cut is own for cut, own in zip(equal_size_sets(plan, [first, second], 0), (first, second), strict=True))


def test_shared_pairs_are_not_cut_and_count_by_negatives(plan):
    halves = triplets(range(10), 4, 0, share=0.5)
    assert equal_size_sets(plan, [halves, triplets(range(10), 4, 100)], 0) is None
    same = [halves, triplets(range(20, 30), 2, 100, share=1.0)]
    assert equal_size_sets(plan, same, 0) == same


def test_a_sample_is_a_share_of_the_queries_that_were_scored(plan):
    plan.queries = type("Queries", (SimpleNamespace,), {"__len__": lambda self: len(self.keys)})(keys=plan.queries.keys)
    scored = [triplets(range(10, 20), 2, 0), triplets(range(15, 30), 2, 0)]
    everything, some = sample_positions(plan, 0), sample_positions(plan, 0, scored)
    assert sorted(everything) == [place / 60 for place in range(60)]
    assert sorted(some[10:30]) == [place / 20 for place in range(20)]
    assert set(some[:10]) | set(some[30:]) == {1.0}
    assert list(np.argsort(some[10:30])) == list(np.argsort(everything[10:30]))
