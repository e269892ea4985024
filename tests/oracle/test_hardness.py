"""Compare hardness, random_like and near_positive with a reference on the same embeddings (METHOD 10, 15)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from secid.measure.blocks import Triplets, Vectors
from secid.measure.sweep import sweep
from secid.triplets.random_reference import (
    hardness,
    near_positive,
    passage_means,
    random_like,
    random_reference,
)
from tests.oracle import hardness as oracle
from tests.oracle.closeness import assert_close

D, QUERIES = 10, 24


class Texts:
    def __init__(self, n: int, seed: int) -> None:
        self.keys = np.random.default_rng(seed).integers(0, 256, (n, 16), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.keys)


def source(seed: int, *, n_passages: int = 34, n_positives: int = 4) -> tuple[dict, dict]:
    """Return secid's and the reference's numbers for a run whose queries have at most 30 passages for comparison.

    Each query has four labelled positives, so 30 of 34 passages are left and all are used. Records have 1 to 5
    negatives with shares; a negative may be another query's positive, or the query's.
    """
    draw = np.random.default_rng(seed)
    passages = draw.standard_normal((n_passages, D))
    own = np.stack([draw.permutation(n_passages)[:n_positives] for _ in range(QUERIES)])
    queries = passages[own[:, 0]] + draw.standard_normal((QUERIES, D))
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, passages)]
    q_rows, p_rows = (rows.astype(np.float32) for rows in unit)
    counts = 1 + np.arange(QUERIES) % 5
    query = np.repeat(np.arange(QUERIES), counts)
    negative = np.concatenate([draw.permutation(n_passages)[:count] for count in counts])
    share = draw.uniform(0.2, 1.0, len(query))
    rows = Triplets(
        query=query,
        positive=own[query, 0],
        negative=negative,
        record_offsets=np.concatenate([[0], np.cumsum(counts)]),
        record=query,
        place=np.arange(len(query)),
        share=share,
    )
    rest = np.arange(n_passages)  # a second source holds every passage, so that the run's are these
    whole = Triplets(rest * 0, rest, rest, np.arange(n_passages + 1), rest, rest)
    known = np.sort((np.arange(QUERIES)[:, None] * n_passages + own).ravel())
    plan = SimpleNamespace(queries=Texts(QUERIES, 1), passages=Texts(n_passages, 2), known_positives=known)
    vectors = Vectors(torch.from_numpy(q_rows), torch.from_numpy(p_rows))
    reference = random_reference(plan, [rows, whole], vectors, seed=seed)
    assert reference is not None
    dots = sweep(vectors, rows, {}, ()).dots
    near, best = dots.query_negative.numpy(), dots.query_positive.numpy()
    estimate = hardness(query, near, best, share, reference)
    assert estimate is not None
    ours = {
        "hardness": estimate.value,
        "standard_error": estimate.standard_error,
        "random_like": random_like(query, near, reference).tolist(),
        "weak_positive": random_like(query, best, reference).tolist(),
    }
    flags, h = near_positive(near, best, passage_means(plan, [rows, whole], vectors).of(query))
    ours |= {"near_positive": flags.tolist(), "own_hardness": [None if np.isnan(value) else value for value in h]}
    texts = [(f"q{q}", f"p{p}", f"p{n}", s) for q, p, n, s in zip(query, rows.positive, negative, share, strict=True)]
    cosines, limits = oracle.rows_of(
        texts,
        {f"q{q}": {f"p{p}" for p in own[q]} for q in range(QUERIES)},
        [f"p{p}" for p in range(n_passages)],
        {f"q{q}": q_rows[q].astype(np.float64) for q in range(QUERIES)},
        {f"p{p}": p_rows[p].astype(np.float64) for p in range(n_passages)},
    )
    return ours, {"rows": cosines, **expected(cosines, limits)}


def expected(rows: list[oracle.Row], limits: dict[str, float]) -> dict:
    return {
        "hardness": oracle.hardness(rows),
        "standard_error": oracle.standard_error(rows),
        "random_like": [row.near <= limits[row.query] for row in rows],
        "weak_positive": [row.best <= limits[row.query] for row in rows],
        "near_positive": oracle.near_positive(rows),
        "own_hardness": oracle.own_hardness(rows),
    }


@pytest.mark.parametrize("seed", range(8))
def test_hardness_is_that_of_the_reference(seed):
    ours, theirs = source(seed)
    theirs.pop("rows")
    assert_close(ours, theirs, rel=1e-9, abs=1e-12)
    for name in ("random_like", "near_positive"):
        assert len(set(theirs[name])) == 2  # both answers occur


def test_runs_of_fewer_passages_than_are_drawn_agree_too():
    ours, theirs = source(3, n_passages=21)
    theirs.pop("rows")
    assert_close(ours, theirs, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    "damage",
    [
        lambda row: replace(row, near=row.near + 1e-6),
        lambda row: replace(row, best=row.best - 1e-6),
        lambda row: replace(row, random=row.random + 1e-6),
        lambda row: replace(row, share=row.share * 1.0001),
    ],
    ids=["near", "best", "random", "share"],
)
def test_the_reference_notices_a_damaged_row(damage: Callable[[oracle.Row], oracle.Row]):
    ours, theirs = source(0)
    rows = list(theirs["rows"])
    rows[7] = damage(rows[7])
    with pytest.raises(AssertionError):
        assert_close(ours["hardness"], oracle.hardness(rows), rel=1e-9, abs=1e-12)
    with pytest.raises(AssertionError):
        assert_close(ours["standard_error"], oracle.standard_error(rows), rel=1e-9, abs=1e-12)


def near_the_limit(seed: int) -> tuple[list[bool], list[oracle.Row]]:
    """Return secid's flags of negatives with a hardness around 0.9, and the rows of the reference."""
    draw = np.random.default_rng(seed)
    n_mixed, own = 4 * QUERIES, np.arange(QUERIES)
    query, negative = np.repeat(own, 4), QUERIES + np.arange(n_mixed)
    queries, positives, random = (draw.standard_normal((n, D)) for n in (QUERIES, QUERIES, 30))
    positives += queries
    part = draw.uniform(0.7, 1.1, (n_mixed, 1))
    mixed = part * positives[query] / np.linalg.norm(positives[query], axis=1, keepdims=True)
    mixed += 0.5 * draw.standard_normal((n_mixed, D)) / np.sqrt(D)
    passages = np.concatenate([positives, mixed, random])
    q_rows, p_rows = (
        (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32) for rows in (queries, passages)
    )
    rows = Triplets(query, query, negative, np.arange(0, n_mixed + 1, 4), query, np.arange(n_mixed))
    rest = np.arange(len(passages))
    whole = Triplets(rest * 0, rest, rest, np.arange(len(rest) + 1), rest, rest)
    plan = SimpleNamespace(
        queries=Texts(QUERIES, 1), passages=Texts(len(passages), 2), known_positives=own * len(passages) + own
    )
    vectors = Vectors(torch.from_numpy(q_rows), torch.from_numpy(p_rows))
    dots = sweep(vectors, rows, {}, ()).dots
    means = passage_means(plan, [rows, whole], vectors)
    flags, _ = near_positive(dots.query_negative.numpy(), dots.query_positive.numpy(), means.of(query))
    theirs, _ = oracle.rows_of(
        [(f"q{q}", f"p{q}", f"p{n}", 1.0) for q, n in zip(query, negative, strict=True)],
        {f"q{q}": {f"p{q}"} for q in own},
        [f"p{p}" for p in rest],
        {f"q{q}": q_rows[q].astype(np.float64) for q in own},
        {f"p{p}": p_rows[p].astype(np.float64) for p in rest},
    )
    return flags.tolist(), theirs


@pytest.mark.parametrize("seed", range(4))
def test_near_positives_are_those_of_the_reference(seed):
    ours, rows = near_the_limit(seed)
    assert ours == oracle.near_positive(rows)
    assert 0.2 < np.mean(ours) < 0.8


@pytest.mark.parametrize("seed", range(4))
def test_the_reference_notices_the_mean_of_another_query(seed):
    ours, rows = near_the_limit(seed)
    means = {row.query: row.random for row in rows}
    other = dict(zip(means, np.roll(list(means.values()), 1), strict=True))
    assert ours != oracle.near_positive([replace(row, random=other[row.query]) for row in rows])


@pytest.mark.parametrize("seed", range(4))
def test_the_reference_notices_a_positive_left_among_the_passages(seed):
    ours, theirs = source(seed)
    rows = theirs["rows"]
    left = [replace(row, random=(30 * row.random + row.best) / 31) for row in rows]
    with pytest.raises(AssertionError):
        assert_close(ours["own_hardness"], oracle.own_hardness(left), rel=1e-9, abs=1e-12)


def test_the_reference_notices_an_open_limit():
    """A negative at 0.9 of the way is flagged; these numbers put it exactly there."""
    row = oracle.Row("q", near=0.5625, best=0.625, random=0.0)
    flags, _ = near_positive(np.array([row.near]), np.array([row.best]), row.random)
    assert flags.tolist() == oracle.near_positive([row]) == [True]
    assert oracle.own_hardness([row]) == [0.9]


def test_the_reference_notices_triplets_taken_for_clusters():
    ours, theirs = source(0)
    apart = [replace(row, query=f"{row.query} {place}") for place, row in enumerate(theirs["rows"])]
    with pytest.raises(AssertionError):
        assert_close(ours["standard_error"], oracle.standard_error(apart), rel=1e-3)


def test_the_standard_error_is_that_of_queries_drawn_again():
    """300 queries with 6 negatives each, whose hardness depends on their query."""
    draw = np.random.default_rng(11)
    rows = []
    for number in range(300):
        random, best, hard = 0.1 + 0.05 * draw.standard_normal(), 0.7 + 0.1 * draw.standard_normal(), draw.uniform()
        for _ in range(1 + number % 6):
            near = random + hard * (best - random) + 0.05 * draw.standard_normal()
            rows.append(oracle.Row(f"q{number}", near, best, random))
    spread = oracle.bootstrap(rows, 4_000, np.random.default_rng(12)).std()
    assert oracle.standard_error(rows) == pytest.approx(spread, rel=0.06)
    apart = [replace(row, query=f"{row.query} {place}") for place, row in enumerate(rows)]
    assert oracle.standard_error(apart) < 0.8 * spread
