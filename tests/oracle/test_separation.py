"""Compare separation and in-batch false negatives with definitions in plain loops (METHOD 10)."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from secid.analyses.in_batch import conflicts
from secid.arrays import distinct
from secid.measure.blocks import Triplets
from secid.measure.false_negatives import Batch, Conflicts, flagged_counts
from secid.measure.separation import ERROR_BOUND, PassageScores, histogram, mw_loss, separation
from tests.meta import NoWait
from tests.oracle import separation as oracle
from tests.oracle.closeness import assert_close

QUERIES = 9


def drawn(seed: int) -> tuple[list[oracle.Passage], list[oracle.Passage]]:
    """Return positives and negatives of nine queries with offsets between queries, ties and shares."""
    draw = np.random.default_rng(seed)
    offset = draw.normal(0.0, 0.15, QUERIES)

    def passages(n: int, mean: float) -> list[oracle.Passage]:
        query = np.concatenate([np.arange(QUERIES), draw.integers(0, QUERIES, n - QUERIES)])
        values = (mean + offset[query] + draw.normal(0.0, 0.1, n)).clip(-1, 1).round(2)
        return list(zip(map(str, query), values.tolist(), draw.uniform(0.2, 1.0, n).tolist(), strict=True))

    return passages(24, 0.55), passages(130, 0.4)


def scores(passages: list[oracle.Passage]) -> PassageScores:
    query, values, weight = zip(*passages, strict=True)
    query_ids = torch.tensor(list(map(int, query)))
    return PassageScores(
        torch.tensor(values, dtype=torch.float64), query_ids, torch.tensor(weight, dtype=torch.float64)
    )


def ours(positives: list[oracle.Passage], negatives: list[oracle.Passage]) -> dict[str, float]:
    parts = separation(scores(positives), scores(negatives), QUERIES)
    return {"auc": parts.auc, "within_auc": parts.within_auc, "aoc": parts.aoc}


@pytest.mark.parametrize("seed", range(6))
def test_auc_within_queries_and_pooled_are_those_of_the_double_loop(seed):
    positives, negatives = drawn(seed)
    expected = oracle.of_pairs(positives, negatives, 0.05)
    del expected["mw_loss"]
    assert_close(ours(positives, negatives), expected, rel=1e-12)
    assert expected["auc"] + expected["aoc"] > 1.001  # there are ties


def test_the_worked_example():
    parts = separation(scores([("1", 0.5, 1.0), ("2", 0.9, 1.0)]), scores([("1", 0.4, 1.0), ("2", 0.8, 1.0)]), 3)
    assert (parts.auc, parts.within_auc, parts.aoc) == (0.75, 1.0, 0.25)


@pytest.mark.parametrize("change", [0.02, -0.02], ids=["up", "down"])
def test_the_reference_notices_one_changed_score_a_lost_tie_and_a_changed_query(change):
    positives, negatives = drawn(0)
    expected = oracle.of_pairs(positives, negatives, 0.05)
    query, value, weight = positives[3]
    for damaged in ((query, value + change, weight), (query, value + change / 1e6, weight), (query, value, 2 * weight)):
        found = oracle.of_pairs([*positives[:3], damaged, *positives[4:]], negatives, 0.05)
        with pytest.raises(AssertionError):
            assert_close(found, expected, rel=1e-9)
    moved = oracle.of_pairs(
        [*positives[:3], (str((int(query) + 1) % QUERIES), value, weight), *positives[4:]], negatives, 0.05
    )
    assert moved["auc"] == pytest.approx(expected["auc"], rel=1e-12)
    with pytest.raises(AssertionError):
        assert_close(moved, expected, rel=1e-9)


@pytest.mark.parametrize("name", ["auc", "within_auc"])
def test_influence_is_how_the_estimate_moves_with_a_query_s_weight(name):
    """Count a query 1 + e times: its passages in pooled pairs, and its pairs within queries."""
    positives, negatives = drawn(2)
    parts = separation(scores(positives), scores(negatives), QUERIES)
    influence = parts.auc_influence if name == "auc" else parts.within_influence
    step = 1e-6
    for query in map(str, range(QUERIES)):

        def heavier(passages, by, query=query):
            return [(own, value, weight * (1 + by * (own == query))) for own, value, weight in passages]

        moved = [
            oracle.of_pairs(heavier(positives, by), heavier(negatives, by if name == "auc" else 0.0), 0.05)[name]
            for by in (step, -step)
        ]
        assert float(influence[int(query)]) == pytest.approx((moved[0] - moved[1]) / (2 * step), abs=1e-8)


@pytest.mark.parametrize("tau", [1.0, 0.05, 0.01, 0.001, 1e-6])
@pytest.mark.parametrize("seed", range(3))
def test_the_mw_loss_is_that_of_the_double_loop_at_any_temperature(tau, seed):
    positives, negatives = drawn(seed)
    draw = np.random.default_rng(seed)
    positives, negatives = (  # not on the edges of cells
        [(query, value + draw.uniform(-5e-3, 5e-3), weight) for query, value, weight in part]
        for part in (positives, negatives)
    )
    expected = oracle.of_pairs(positives, negatives, tau)["mw_loss"]
    assert abs(mw_loss(scores(positives), scores(negatives), tau) - expected) <= ERROR_BOUND * max(1.0, expected)
    shifted = [(query, value + 1e-6 * tau, weight) for query, value, weight in positives]
    assert abs(oracle.of_pairs(shifted, negatives, tau)["mw_loss"] - expected) > ERROR_BOUND  # the reference notices it


def test_equal_scores_lose_log_2():
    same = scores([("0", 0.3, 1.0), ("1", 0.3, 0.5)])
    assert mw_loss(same, same, 0.05) == pytest.approx(log(2), abs=1e-12)


@given(
    st.lists(st.tuples(st.sampled_from("012"), st.floats(-1, 1), st.floats(0.01, 1)), min_size=1, max_size=12),
    st.lists(st.tuples(st.sampled_from("012"), st.floats(-1, 1), st.floats(0.01, 1)), min_size=1, max_size=12),
    st.floats(0.02, 2.0),
)
@settings(deadline=None)
def test_aoc_is_never_above_the_mw_loss_over_log_2(positives, negatives, tau):
    positives = [*positives, ("0", 0.1, 1.0)]
    negatives = [*negatives, ("0", 0.1, 1.0)]
    high, low = scores(positives), scores(negatives)
    parts = separation(high, low, QUERIES)
    assert parts.aoc <= mw_loss(high, low, tau) / log(2) + 1e-9
    assert 1 - parts.auc <= parts.aoc + 1e-12


def test_histograms_count_each_score_once():
    high, _ = map(scores, drawn(1))
    ends = (-1.003, 1.004)  # so that no score lies on an edge
    expected, _ = np.histogram(high.values, 40, ends, weights=high.weight)
    assert_close(histogram(high, *ends, 40).tolist(), expected.tolist())
    assert_close(float(histogram(high, 0.5, 0.6, 10).sum()), float(high.weight.sum()))


def rows_drawn(seed: int, n_rows: int) -> tuple[list[oracle.Row], dict[str, set[str]], Triplets, np.ndarray]:
    """Return rows of one positive and up to four negatives, some with one query and many shared texts; and triplets.

    A query has up to three labelled positives, one of which may be in no row.
    """
    draw = np.random.default_rng(seed)
    n_queries, n_texts = max(2, n_rows * 3 // 4), n_rows + 3
    query = np.sort(draw.integers(0, n_queries, n_rows))
    labelled = {q: draw.choice(n_texts, 1 + q % 3, replace=False) for q in range(n_queries)}
    positive = np.array([draw.choice(labelled[q]) for q in query])
    counts = 1 + np.arange(n_rows) % 4
    negatives = [draw.choice(n_texts, count, replace=False) for count in counts]
    record = np.repeat(np.arange(n_rows), counts)
    triplets = Triplets(
        query=query[record],
        positive=positive[record],
        negative=np.concatenate(negatives),
        record_offsets=np.concatenate([[0], np.cumsum(counts)]),
        record=10 + 2 * record,  # a sample of the records of a source
        place=np.arange(len(record)),
    )
    rows = [
        (f"q{q}", frozenset({f"t{p}", *(f"t{n}" for n in own)}))
        for q, p, own in zip(query, positive, negatives, strict=True)
    ]
    known = distinct(np.array([q * n_texts + t for q, own in labelled.items() for t in own]))
    return rows, {f"q{q}": {f"t{t}" for t in own} for q, own in labelled.items()}, triplets, np.append(known, n_texts)


def found_conflicts(triplets: Triplets, known: np.ndarray) -> Conflicts:
    return conflicts(triplets, known[:-1], int(known[-1]))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 9])
@pytest.mark.parametrize("seed", range(4))
def test_expectations_are_those_of_all_batches_there_are(size, seed):
    rows, labels, triplets, known = rows_drawn(seed, 9)
    found = found_conflicts(triplets, known)
    expected = oracle.of_batches(rows, labels, size)
    assert_close({"mean": found.mean(size), "affected": found.affected(size)}, expected, rel=1e-12)
    assert size in (1, 8, 9) or 0 < expected["affected"] < 1


def test_the_enumeration_notices_one_text_more_and_one_label_less():
    rows, labels, _, _ = rows_drawn(0, 9)
    expected = oracle.of_batches(rows, labels, 4)
    text = next(iter(labels[rows[0][0]]))
    other = next(number for number, (_, held) in enumerate(rows) if text not in held)
    more = [(query, held | {text} if number == other else held) for number, (query, held) in enumerate(rows)]
    less = {**labels, rows[0][0]: labels[rows[0][0]] - {text}}
    for damaged in (oracle.of_batches(more, labels, 4), oracle.of_batches(rows, less, 4)):
        with pytest.raises(AssertionError):
            assert_close(damaged, expected, rel=1e-9)


def test_expectations_are_those_of_a_simulation():
    rows, labels, triplets, known = rows_drawn(5, 400)
    found, draw = found_conflicts(triplets, known), np.random.default_rng(6)
    for size in (16, 128):
        numbers = []
        for _ in range(400):
            batch = draw.choice(len(rows), size, replace=False).tolist()
            numbers += [oracle.bought_in(rows, labels, row, batch) for row in batch[:8]]
        counts = np.array(numbers)
        error = counts.std() / len(counts) ** 0.5
        assert abs(counts.mean() - found.mean(size)) < 4 * error + 1e-9
        share = found.affected(size)
        assert abs((counts > 0).mean() - share) < 4 * (share * (1 - share) / len(counts)) ** 0.5


def test_few_pairs_at_once_change_nothing(monkeypatch):
    _, _, triplets, known = rows_drawn(7, 300)
    whole = found_conflicts(triplets, known)
    monkeypatch.setattr("secid.analyses.in_batch.MAX_QUERY_ROW_PAIRS", 50)
    part = found_conflicts(triplets, known)
    np.testing.assert_array_equal(part.n_rows, whole.n_rows)
    np.testing.assert_array_equal(part.n_passages, whole.n_passages)
    assert whole.n_rows.max() > 1


def test_the_largest_batch_is_the_last_below_the_share():
    _, _, triplets, known = rows_drawn(8, 200)
    found = found_conflicts(triplets, known)
    share = found.affected(50)
    assert found.largest_batch(share) == 49
    assert found.largest_batch(share + 1e-9) == 50
    assert found.largest_batch(0.0) is None
    assert found.largest_batch(1.1) == 200
    alone = Conflicts(np.zeros(5, np.int64), np.zeros(5, np.int64))
    assert (alone.affected(5), alone.mean(5), alone.largest_batch(0.01)) == (0.0, 0.0, 5)


def test_a_batch_that_leaves_out_fewer_rows_than_conflict_is_always_affected():
    """Four rows conflict with zero, one, two and three other rows."""
    found = Conflicts(np.arange(4), np.arange(4))
    assert found.affected(4) == pytest.approx(3 / 4, rel=1e-12)
    assert found.affected(3) == pytest.approx((0 + 2 / 3 + 1 + 1) / 4, rel=1e-12)
    assert found.affected(2) == pytest.approx((0 + 1 / 3 + 2 / 3 + 1) / 4, rel=1e-12)
    assert (found.largest_batch(0.6), found.largest_batch(0.7)) == (2, 3)


def test_a_million_rows_lose_no_digits():
    """One of a million rows conflicts: a batch of 32 contains it with a chance of 31 in 999,999."""
    n = 1_000_000
    found = Conflicts(np.ones(n, np.int64), np.ones(n, np.int64))
    assert found.affected(32) == pytest.approx(31 / (n - 1), rel=1e-12)
    both = replace(found, n_rows=np.full(n, 2))
    assert both.affected(32) == pytest.approx(1 - (n - 32) * (n - 33) / ((n - 1) * (n - 2)), rel=1e-9)


def batch_drawn(seed: int, b: int = 7) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    row = torch.arange(b).repeat_interleave(4)
    rows = torch.randn(4 * b, 6, generator=draw)
    return Batch(torch.randn(b, 6, generator=draw) + rows[::4], rows[::4], rows, row)


def test_the_flagged_share_is_that_of_a_loop():
    batches = [batch_drawn(seed, b) for seed, b in ((0, 7), (1, 7), (2, 4))]
    n_flagged = n_compared = 0
    for batch in batches:
        unit = [rows.numpy().astype(np.float64) for rows in (batch.queries, batch.positives, batch.passages)]
        queries, positives, passages = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in unit)
        for number, query in enumerate(queries):
            limit = (best := float(query @ positives[number])) - 0.05 * abs(best)
            others = [
                float(query @ row) for row, own in zip(passages, batch.row.tolist(), strict=True) if own != number
            ]
            n_compared += len(others)
            n_flagged += sum(cosine >= limit for cosine in others)
    assert 0 < n_flagged < n_compared
    assert [part.sum() for part in flagged_counts(batches)] == [n_flagged, n_compared]
    assert [part.tolist() for part in flagged_counts([batch_drawn(0, 1)])] == [[0.0], [0.0]]


def test_the_flagged_share_waits_for_the_device_after_the_last_batch():
    def batches():
        for _ in range(3):
            rows = torch.empty(32, 6, device="meta")
            yield Batch(rows[:8], rows[8:16], rows, torch.empty(32, dtype=torch.int64, device="meta"))

    mode = NoWait()
    with mode, pytest.raises((AssertionError, NotImplementedError, RuntimeError)):
        flagged_counts(batches())
    assert mode.counts["mm"] == 3
