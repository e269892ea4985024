"""Count how often intervals cover the truth of synthetic sources."""

from __future__ import annotations

import numpy as np
import torch

from secid.measure.blocks import Triplets, Vectors
from secid.measure.gates import gates
from secid.measure.information import Eigen, spectral_nats
from secid.measure.interval import reach_95
from secid.measure.sweep import Variant, sweep
from secid.measure.uncertainty import influence

D, NEGATIVES = 12, 4
BASE = Variant(0.05, "base", "full")


def population(n: int, seed: int) -> tuple[Vectors, np.ndarray]:
    """Return unit rows of n queries and their passages. Query i's positive is row i; negatives follow all positives."""
    generator = np.random.default_rng(seed)
    queries = generator.standard_normal((n, D))
    positives = queries + 0.8 * generator.standard_normal((n, D))
    # queries differ in how hard their negatives are, so that triplets of one query depend on each other
    hardness = generator.uniform(0.4, 2.5, n).repeat(NEGATIVES)[:, None]
    negatives = queries.repeat(NEGATIVES, axis=0) + hardness * generator.standard_normal((n * NEGATIVES, D))
    rows = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in (queries, positives, negatives)]
    passages = np.concatenate(rows[1:]).astype(np.float32)
    coverage = generator.uniform(0, 1, n * NEGATIVES)
    return Vectors(torch.from_numpy(rows[0].astype(np.float32)), torch.from_numpy(passages)), coverage


def score(vectors: Vectors, coverage: np.ndarray, records: np.ndarray) -> tuple[float, float]:
    """Return the score of some queries' triplets, and its standard error."""
    n_all = len(vectors.queries)
    record = records.repeat(NEGATIVES)
    place = (records[:, None] * NEGATIVES + np.arange(NEGATIVES)).ravel()
    offsets = np.arange(len(records) + 1) * NEGATIVES
    rows = Triplets(record, record, n_all + place, offsets, record, place)
    swept = sweep(vectors, rows, {"base": coverage[place]}, [BASE])
    weight = gates(swept.dots, torch.from_numpy(coverage[place]), BASE.temperature).weight.numpy()
    eigen = Eigen.of(swept.state(BASE), len(rows))
    effect = influence(vectors, rows, swept.dots.squared_distance.numpy(), weight, eigen, 1e-3)
    return spectral_nats(eigen.values), float(effect.standard_errors()[0])


def covered(n_queries: int, n_samples: int, *factors: float) -> list[float]:
    """Return the share of samples whose 95 % interval, scaled by each factor, covers the population's score."""
    vectors, coverage = population(20_000, seed=n_queries)
    truth, _ = score(vectors, coverage, np.arange(20_000))
    generator = np.random.default_rng(1)
    inside = np.zeros(len(factors))
    for _ in range(n_samples):
        nats, error = score(vectors, coverage, np.sort(generator.choice(20_000, n_queries, replace=False)))
        inside += abs(nats - truth) <= np.array(factors) * reach_95(n_queries) * error
    return (inside / n_samples).tolist()


def test_intervals_hold_the_truth_as_often_as_they_say():
    # 400 samples have a Monte Carlo error of 1.1 points
    whole, narrow = covered(100, 400, 1.0, 0.7)
    assert 0.92 <= whole <= 0.98
    assert narrow < 0.9
    assert 0.91 <= covered(12, 400, 1.0)[0] <= 0.985
