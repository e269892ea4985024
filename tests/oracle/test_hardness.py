"""Hardness and random_like against an independent reference, on the same embeddings (METHOD 10)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from secid.measure.blocks import Triplets, Vectors
from secid.measure.sweep import sweep
from secid.triplets.random_reference import hardness, random_like, random_reference
from tests.oracle import hardness as oracle
from tests.oracle.closeness import assert_close

D, QUERIES = 10, 24


class Texts:
    def __init__(self, n: int, seed: int) -> None:
        self.keys = np.random.default_rng(seed).integers(0, 256, (n, 16), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.keys)


def source(seed: int, *, n_passages: int = 34, n_positives: int = 4) -> tuple[dict, dict]:
    """Our numbers, and those of the reference, for a run whose queries have at most 30 passages to be compared with.

    Each query has four labelled positives, so 30 of 34 passages are left: no draw, all of them. Records have 1 to 5
    negatives with shares; a negative may be another query's positive or one of the query's own.
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
    }


@pytest.mark.parametrize("seed", range(8))
def test_hardness_is_that_of_the_reference(seed):
    ours, theirs = source(seed)
    theirs.pop("rows")
    assert_close(ours, theirs, rel=1e-9, abs=1e-12)
    assert len(set(theirs["random_like"])) == 2  # both answers occur


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


def test_the_reference_notices_triplets_taken_for_clusters():
    ours, theirs = source(0)
    apart = [replace(row, query=f"{row.query} {place}") for place, row in enumerate(theirs["rows"])]
    with pytest.raises(AssertionError):
        assert_close(ours["standard_error"], oracle.standard_error(apart), rel=1e-3)


def test_the_standard_error_is_that_of_queries_drawn_again():
    """300 queries of 6 negatives that share what is hard about their query."""
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
