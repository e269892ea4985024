"""Small synthetic sources for several tests of the reference."""

from __future__ import annotations

import math

import numpy as np

from tests.oracle import reference


def sigma(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))


def unit(*values: float) -> np.ndarray:
    vector = np.array(values, dtype=np.float64)
    return vector / np.linalg.norm(vector)


def random_source(
    seed: int, n_queries: int, n_negatives: int, dimension: int, *, ragged: bool = False
) -> reference.Measured:
    """Return a source of random unit vectors around each query, with some shared words.

    ragged : queries have 1, 2, … n_negatives negatives in rotation, instead of n_negatives each.
    """
    generator = np.random.default_rng(seed)
    rows, q_vec, p_vec = [], {}, {}
    for number in range(n_queries):
        query, positive = f"topic{number} word{number % 7}", f"topic{number} answer"
        centre = generator.normal(size=dimension)
        q_vec[query] = unit(*(centre + 0.5 * generator.normal(size=dimension)))
        p_vec[positive] = unit(*(centre + 0.5 * generator.normal(size=dimension)))
        n_own = 1 + number % n_negatives if ragged else n_negatives
        negatives = [f"passage {number} {rank} word{rank % 7}" for rank in range(n_own)]
        for negative in negatives:
            p_vec[negative] = unit(*(centre + 1.5 * generator.normal(size=dimension)))
        rows.append((query, [positive], negatives))
    records = reference.merge_rows(rows)
    return reference.measure_source(records, q_vec, p_vec, reference.idf_for({"s": records}, "s"), temperature=0.5)


def information_matrix(measured: reference.Measured) -> np.ndarray:
    """Return M summed triplet by triplet, the textbook form, to compare with the reference's singular values."""
    matrix = np.zeros((measured.direction.shape[1],) * 2)
    for weight, direction in zip(measured.weight, measured.direction, strict=True):
        matrix += weight * np.outer(direction, direction)
    return matrix / len(measured.weight)


def hand_made(**options: float) -> tuple[dict[str, float], reference.Measured]:
    """Return two triplets in the plane: q = (1, 0), p = (0.8, 0.6), n = (0.6, 0.8) and n = (0, 1)."""
    q_vec, p_vec = {"red fox": unit(1, 0)}, {"fox": unit(4, 3), "red bird": unit(3, 4), "stone": unit(0, 1)}
    records = reference.merge_rows([("red fox", ["fox"], ["red bird", "stone"])])
    return (
        reference.score_source(records, q_vec, p_vec, reference.uniform_idf, **options),
        reference.measure_source(records, q_vec, p_vec, reference.uniform_idf, **options),
    )
