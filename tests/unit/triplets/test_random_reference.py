"""Hardness and what rests on random passages, from planted vectors and by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from secid.arrays import narrow
from secid.measure.blocks import PLANS, Triplets, Vectors
from secid.measure.sweep import sweep
from secid.triplets import random_reference as module
from secid.triplets.estimates import clustered_mean, paired_difference, wilson_interval
from secid.triplets.random_reference import (
    MIN_PASSAGES,
    PASSAGES_PER_QUERY,
    PassageMeans,
    RandomReference,
    hardness,
    near_positive,
    passage_means,
    random_like,
    random_reference,
    sampled,
)

D = 48


@dataclass(frozen=True)
class Texts:
    keys: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class World:
    """queries, passages : rows by id, float32 of length 1.   positives : (query, passage) pairs that are labelled."""

    plan: SimpleNamespace
    vectors: Vectors
    n_queries: int

    def renumbered(self, generator: np.random.Generator) -> tuple[World, np.ndarray, np.ndarray]:
        """Return the same texts under other ids, and the new id of each query and passage."""
        query, passage = (generator.permutation(len(store)) for store in (self.plan.queries, self.plan.passages))
        back_query, back_passage = np.argsort(query), np.argsort(passage)
        n = len(passage)
        known = query[self.plan.known_positives // n] * n + passage[self.plan.known_positives % n]
        plan = SimpleNamespace(
            queries=Texts(self.plan.queries.keys[back_query]),
            passages=Texts(self.plan.passages.keys[back_passage]),
            known_positives=np.sort(known),
        )
        vectors = Vectors(self.vectors.queries[back_query], self.vectors.passages[back_passage])
        return World(plan, vectors, self.n_queries), query, passage


def unit(rows: np.ndarray) -> torch.Tensor:
    return torch.from_numpy((rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32))


def world(n_queries: int = 120, n_passages: int = 400, seed: int = 0) -> World:
    """Passage i of the first n_queries is the positive of query i, at a cosine of about 0.7; the rest is random."""
    draw = np.random.default_rng(seed)
    passages = draw.standard_normal((n_passages, D))
    queries = passages[:n_queries] + draw.standard_normal((n_queries, D))
    keys = [draw.integers(0, 256, (n, 16), dtype=np.uint8) for n in (n_queries, n_passages)]
    known = np.arange(n_queries) * n_passages + np.arange(n_queries)
    plan = SimpleNamespace(queries=Texts(keys[0]), passages=Texts(keys[1]), known_positives=known)
    return World(plan, Vectors(unit(queries), unit(passages)), n_queries)


def triplets(query: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> Triplets:
    """One record for each run of equal queries."""
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    return Triplets(
        query=narrow(query),
        positive=narrow(positive),
        negative=narrow(negative),
        record_offsets=np.append(starts, len(query)),
        record=np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(query)))),
        place=np.arange(len(query)),
    )


def random_source(run: World, per_query: int = 8, seed: int = 1) -> Triplets:
    """Passages that are no query's positive, any of them."""
    query = np.repeat(np.arange(run.n_queries), per_query)
    negatives = np.random.default_rng(seed).integers(run.n_queries, len(run.plan.passages), len(query))
    return triplets(query, query, negatives)


def cosines(run: World, rows: Triplets) -> tuple[np.ndarray, np.ndarray]:
    dots = sweep(run.vectors, rows, {}, ()).dots
    return dots.query_negative.numpy(), dots.query_positive.numpy()


def by_hand() -> RandomReference:
    return RandomReference(
        queries=np.array([2, 5]),
        names=np.array([b"b", b"a"]),
        n_passages=np.array([30, 30]),
        mean=np.array([0.1, 0.3]),
        percentile_90=np.array([0.4, 0.5]),
    )


def test_hardness_by_hand():
    """Query 2 is above random by 0.4 and 0.2 of 0.8, query 5 by 0.3 of 0.4; query 7 is not sampled: 0.9 / 2.0."""
    query = np.array([2, 2, 5, 7])
    estimate = hardness(query, np.array([0.5, 0.3, 0.6, 0.9]), np.array([0.9, 0.9, 0.7, 0.1]), None, by_hand())
    assert estimate is not None
    assert estimate.value == pytest.approx(0.45)
    assert estimate.queries.tolist() == [b"a", b"b"]
    # influence of a query: its sum of (above - h * span), divided by the sum of spans
    np.testing.assert_allclose(estimate.per_query, [(0.3 - 0.45 * 0.4) / 2.0, (0.6 - 0.45 * 1.6) / 2.0])
    assert estimate.standard_error == pytest.approx(0.06 * np.sqrt(2))


def test_hardness_weighs_triplets_by_their_share():
    query = np.array([2, 2, 5])
    estimate = hardness(query, np.array([0.5, 0.3, 0.6]), np.array([0.9, 0.9, 0.7]), np.array([1, 0.5, 0.5]), by_hand())
    assert estimate is not None
    assert estimate.value == pytest.approx((0.4 + 0.1 + 0.15) / (0.8 + 0.4 + 0.2))


def test_hardness_of_nothing_is_none():
    one = np.array([0.5])
    assert hardness(np.array([7]), one, one, None, by_hand()) is None  # no sampled query
    assert hardness(np.array([2]), one, np.array([0.1]), None, by_hand()) is None  # positives no nearer than random
    assert hardness(np.array([2]), one, np.array([np.nan]), None, by_hand()) is None
    assert hardness(np.zeros(0, np.int64), one[:0], one[:0], None, by_hand()) is None


def test_flags_by_hand():
    query = np.array([2, 2, 5, 7])
    assert sampled(query, by_hand()).tolist() == [True, True, True, False]
    assert random_like(query, np.array([0.4, 0.41, 0.5, 0.0]), by_hand()).tolist() == [True, False, True, False]
    assert random_like(query, np.array([0.39, 0.41, 0.6, 0.0]), by_hand()).tolist() == [True, False, False, False]


def test_random_negatives_have_hardness_0_and_look_random():
    run = world()
    rows = random_source(run)
    reference = random_reference(run.plan, [rows], run.vectors, seed=0)
    assert reference is not None
    near, best = cosines(run, rows)
    estimate = hardness(rows.query, near, best, None, reference)
    assert estimate is not None
    low, high = estimate.interval
    assert low < 0 < high
    assert high - low < 0.06
    flags = random_like(rows.query, near, reference).astype(float)
    share = clustered_mean(flags, rows.query, reference.names)
    low, high = wilson_interval(share)
    assert low < 27.1 / 31 < high
    assert high - low < 0.08
    assert not random_like(rows.query, best, reference).any()


def test_positives_offered_as_negatives_have_hardness_1():
    run = world()
    own = np.arange(run.n_queries)
    rows = triplets(own, own, own)
    reference = random_reference(run.plan, [rows, random_source(run)], run.vectors, seed=0)
    assert reference is not None
    near, best = cosines(run, rows)
    estimate = hardness(rows.query, near, best, None, reference)
    assert estimate is not None
    assert (estimate.value, estimate.standard_error) == pytest.approx((1.0, 0.0), abs=1e-12)
    assert not random_like(rows.query, near, reference).any()


def test_sources_of_planted_hardness_come_in_order_and_compare_paired():
    """Negatives are mixed from the query's positive and a random passage: more of the positive, harder."""
    run = world(n_queries=150, n_passages=750)
    table = run.vectors.passages.numpy().astype(np.float64)
    for place, part in enumerate((0.2, 0.5, 0.8)):
        rows = slice(150 * (place + 1), 150 * (place + 2))
        table[rows] = part * table[:150] + (1 - part) * table[rows]
    run = replace(run, vectors=Vectors(run.vectors.queries, unit(table)))
    own = np.arange(150)
    sources = [triplets(own, own, own + 150 * (place + 1)) for place in range(4)]
    reference = random_reference(run.plan, sources, run.vectors, seed=0)
    assert reference is not None
    estimates = [hardness(rows.query, *cosines(run, rows), None, reference) for rows in sources]
    easy, middle, hard, random = [item for item in estimates if item is not None]
    assert random.value < 0.1 < easy.value < middle.value < hard.value < 1
    gap = paired_difference(hard, middle)
    assert gap.n_shared == 150
    assert gap.interval[0] > 0
    assert gap.standard_error < np.hypot(hard.standard_error, middle.standard_error)


def planted_positives(n_positives: int) -> tuple[World, Triplets]:
    """One query with many labelled positives that equal it; the other passages are random: 30 of them."""
    draw = np.random.default_rng(3)
    query = draw.standard_normal((1, D))
    passages = np.concatenate([np.repeat(query, n_positives, axis=0), draw.standard_normal((PASSAGES_PER_QUERY, D))])
    keys = [draw.integers(0, 256, (n, 16), dtype=np.uint8) for n in (1, len(passages))]
    plan = SimpleNamespace(queries=Texts(keys[0]), passages=Texts(keys[1]), known_positives=np.arange(n_positives))
    negative = np.arange(len(passages))
    rows = triplets(np.zeros_like(negative), np.zeros_like(negative), negative)
    return World(plan, Vectors(unit(query), unit(passages)), 1), rows


@pytest.mark.parametrize("n_positives", [1, 5, 200])
def test_no_labelled_positive_is_drawn_however_many_there_are(n_positives):
    run, rows = planted_positives(n_positives)
    reference = random_reference(run.plan, [rows], run.vectors, seed=0)
    assert reference is not None
    values = (run.vectors.passages[n_positives:].double() @ run.vectors.queries[0].double()).numpy()
    assert reference.n_passages.tolist() == [PASSAGES_PER_QUERY]
    np.testing.assert_allclose(reference.mean, values.mean(), atol=1e-7)
    ordered = np.sort(values)
    np.testing.assert_allclose(reference.percentile_90, ordered[26] + 0.1 * (ordered[27] - ordered[26]), atol=1e-7)


def test_positives_that_no_triplet_holds_change_no_draw():
    """Controls and objectives plan them, so that hardness would depend on both."""
    run = world()
    pool, queries = np.arange(len(run.plan.passages) - 1), np.arange(run.n_queries)
    beyond = queries * len(run.plan.passages) + len(pool)
    more = SimpleNamespace(**{**vars(run.plan), "known_positives": np.sort([*run.plan.known_positives, *beyond])})
    plain, planned = (module.random_passages(plan, queries, pool, 0) for plan in (run.plan, more))
    np.testing.assert_array_equal(planned, plain)
    whole = np.arange(len(run.plan.passages))
    assert not np.array_equal(*(module.random_passages(plan, queries, whole, 0) for plan in (run.plan, more)))


def test_a_small_run_uses_what_there_is_and_a_smaller_one_has_no_reference():
    for n_random in (MIN_PASSAGES, MIN_PASSAGES - 1):
        run, rows = planted_positives(2)
        keep = np.arange(2 + n_random)
        cut = triplets(rows.query[keep], rows.positive[keep], rows.negative[keep])
        reference = random_reference(run.plan, [cut], run.vectors, seed=0)
        if n_random == MIN_PASSAGES:
            assert reference is not None
            assert reference.n_passages.tolist() == [MIN_PASSAGES]
        else:
            assert reference is None
    assert random_reference(run.plan, [], run.vectors, seed=0) is None
    none = np.zeros(0, np.int64)
    assert random_reference(run.plan, [triplets(none, none, none)], run.vectors, seed=0) is None


def test_a_draw_is_uniform_and_without_repeats():
    run = world(n_queries=1, n_passages=41)
    pool, counts = np.arange(41), np.zeros(41)
    for seed in range(2_000):
        passages = module.random_passages(run.plan, np.array([0]), pool, seed)[0]
        assert len(set(passages.tolist())) == PASSAGES_PER_QUERY
        counts[passages] += 1
    assert counts[0] == 0  # the positive
    assert np.abs(counts[1:] / 2_000 - 30 / 40).max() < 4.5 * np.sqrt(0.75 * 0.25 / 2_000)


def by_name(reference: RandomReference | None) -> dict[bytes, tuple[float, float]]:
    assert reference is not None
    return {
        name: (mean, high)
        for name, mean, high in zip(
            reference.names.tolist(), reference.mean.tolist(), reference.percentile_90.tolist(), strict=True
        )
    }


def test_no_order_of_files_or_rows_changes_the_passages():
    run = world()
    rows = random_source(run)
    other, query, passage = run.renumbered(np.random.default_rng(5))
    backwards = slice(None, None, -1)
    same = triplets(query[rows.query[backwards]], passage[rows.positive[backwards]], passage[rows.negative[backwards]])
    first = random_reference(run.plan, [rows], run.vectors, seed=0)
    second = random_reference(other.plan, [same], other.vectors, seed=0)
    assert second is not None
    assert np.all(np.diff(second.queries) > 0)
    assert by_name(first).keys() == by_name(second).keys()
    for name, values in by_name(first).items():
        assert by_name(second)[name] == pytest.approx(values, abs=1e-12)
    assert by_name(random_reference(run.plan, [rows], run.vectors, seed=1)) != by_name(first)


def test_neither_batches_nor_mapped_rows_change_the_cosines(monkeypatch):
    run = world()
    rows = random_source(run)
    seen: list[int] = []

    def gather(role: str, ids: np.ndarray, out: torch.Tensor) -> None:
        out.copy_((run.vectors.queries if role == "query" else run.vectors.passages)[ids])

    whole = random_reference(run.plan, [rows], run.vectors, seed=0)
    monkeypatch.setitem(PLANS, "cpu", replace(PLANS["cpu"], n_triplets=64, window_bytes=4 * D * 100))
    from_file = Vectors(run.vectors.queries, run.vectors.passages, gather, seen.append)
    parts = random_reference(run.plan, [rows], from_file, seed=0)
    assert whole is not None
    assert parts is not None
    np.testing.assert_allclose(parts.mean, whole.mean, atol=1e-14)
    np.testing.assert_allclose(parts.percentile_90, whole.percentile_90, atol=1e-14)
    assert seen == []  # progress counts the triplets of sources and controls only


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same():
    run = world()
    rows = random_source(run)
    on_gpu = Vectors(run.vectors.queries.cuda(), run.vectors.passages.cuda())
    first, second = (random_reference(run.plan, [rows], vectors, seed=0) for vectors in (run.vectors, on_gpu))
    assert by_name(first).keys() == by_name(second).keys()
    assert first is not None
    assert second is not None
    np.testing.assert_allclose(second.percentile_90, first.percentile_90, atol=1e-12)
    means = [passage_means(run.plan, [rows], vectors).mean for vectors in (run.vectors, on_gpu)]
    np.testing.assert_allclose(means[1], means[0], atol=1e-12)


def test_the_sample_is_of_each_source_and_the_same_for_sources_of_the_same_queries(monkeypatch):
    monkeypatch.setattr(module, "MAX_REFERENCE_QUERIES", 20)
    run = world()
    large = random_source(run)
    twin = random_source(run, per_query=3, seed=9)
    few = np.arange(10)
    small = triplets(few, few, few + 200)
    alone = random_reference(run.plan, [large], run.vectors, seed=0)
    both = random_reference(run.plan, [large, twin], run.vectors, seed=0)
    mixed = random_reference(run.plan, [large, small], run.vectors, seed=0)
    assert alone is not None
    assert both is not None
    assert mixed is not None
    assert len(alone.queries) == 20
    np.testing.assert_array_equal(alone.queries, both.queries)
    np.testing.assert_array_equal(mixed.queries, np.union1d(alone.queries, few))
    assert sampled(small.query, mixed).all()


def test_a_negative_that_is_one_of_the_random_passages_is_flagged_whatever_rounding_does():
    """With 11 passages, the 90th percentile is exactly the second largest."""
    run, rows = planted_positives(2)
    keep = np.arange(2 + 11)
    cut = triplets(rows.query[keep], rows.positive[keep], rows.negative[keep])
    reference = random_reference(run.plan, [cut], run.vectors, seed=0)
    assert reference is not None
    near, _ = cosines(run, cut)
    order = np.argsort(near)
    for noise in (-1e-15, 0.0, 1e-15):
        flags = random_like(cut.query, near + noise, reference)
        assert flags[order].tolist() == [True] * 10 + [False] * 3


def test_a_positive_that_half_of_the_random_passages_outscore_is_weak():
    draw = np.random.default_rng(4)
    for _ in range(200):
        values = draw.standard_normal(PASSAGES_PER_QUERY)
        reference = replace(
            by_hand(),
            queries=np.array([0]),
            mean=np.array([values.mean()]),
            percentile_90=np.array([np.percentile(values, 90)]),
        )
        outscored = np.sort(values)[[0, 7, 14]]  # by 29, 22 and 15 of 30
        assert random_like(np.zeros(3, np.int64), outscored, reference).all()


def test_near_the_positive_by_hand():
    """From 0 to 0.625 it is 0.5625 to the limit, which both numbers hold exactly, and from 0.25 to 0.75 it is 0.7."""
    means = PassageMeans(np.array([2, 5, 7, 8]), np.array([0.0, 0.25, 0.5, np.nan]))
    query = np.array([2, 2, 2, 5, 5, 5, 7, 7, 8])
    near = np.array([0.5625, 0.562, 0.9, 0.7, 0.69, -1.0, 0.9, 0.9, 0.9])
    best = np.array([0.625, 0.625, 0.625, 0.75, 0.75, 0.75, 0.5, 0.4, 0.9])
    expected = [True, False, True, True, False, False, False, False, False]
    for noise in (-1e-15, 0.0, 1e-15):
        flags, h = near_positive(near + noise, best, means.of(query))
        assert flags.tolist() == expected
        assert np.isnan(h).tolist() == [False] * 6 + [True] * 3  # no nearer than random passages, or too few of them
        np.testing.assert_allclose(h[:6], [0.9, 0.8992, 1.44, 0.9, 0.88, -2.5])


def test_the_mean_is_over_every_passage_but_the_positives():
    run = world()
    rows = random_source(run)
    means = passage_means(run.plan, [rows, random_source(run, seed=2)], run.vectors)
    pool = np.union1d(rows.positive, np.concatenate([rows.negative, random_source(run, seed=2).negative]))
    tables = (table.double().numpy() for table in (run.vectors.queries, run.vectors.passages))
    queries, passages = (table / np.linalg.norm(table, axis=1, keepdims=True) for table in tables)
    all_cosines = queries @ passages[pool].T
    assert means.queries.tolist() == list(range(run.n_queries))
    for query in range(run.n_queries):
        assert means.mean[query] == pytest.approx(all_cosines[query][pool != query].mean(), abs=1e-14)


def test_queries_with_few_passages_have_no_mean():
    for n_random in (MIN_PASSAGES, MIN_PASSAGES - 1):
        run, rows = planted_positives(2)
        keep = np.arange(2 + n_random)
        cut = triplets(rows.query[keep], rows.positive[keep], rows.negative[keep])
        means = passage_means(run.plan, [cut], run.vectors)
        assert np.isnan(means.mean).tolist() == [n_random < MIN_PASSAGES]


def test_neither_order_nor_mapped_rows_change_the_means(monkeypatch):
    run = world()
    rows = random_source(run)
    whole = passage_means(run.plan, [rows], run.vectors)

    def gather(role: str, ids: np.ndarray, out: torch.Tensor) -> None:
        out.copy_((run.vectors.queries if role == "query" else run.vectors.passages)[ids])

    monkeypatch.setattr(module, "REFERENCE_ROWS_AT_ONCE", 7)
    parts = passage_means(run.plan, [rows], Vectors(run.vectors.queries, run.vectors.passages, gather))
    np.testing.assert_allclose(parts.mean, whole.mean, atol=1e-14)
    other, query, passage = run.renumbered(np.random.default_rng(5))
    same = triplets(query[rows.query], passage[rows.positive], passage[rows.negative])
    np.testing.assert_allclose(passage_means(other.plan, [same], other.vectors).mean[query], whole.mean, atol=1e-14)


def test_it_is_the_mean_that_random_passages_estimate():
    run = world()
    rows = random_source(run)
    reference = random_reference(run.plan, [rows], run.vectors, seed=0)
    assert reference is not None
    means = passage_means(run.plan, [rows], run.vectors)
    gap = reference.mean - means.mean[np.searchsorted(means.queries, reference.queries)]
    assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(len(gap))
    assert 0.5 < gap.std() * np.sqrt(PASSAGES_PER_QUERY * D) < 1.5  # a cosine of random rows has a variance of 1/D
