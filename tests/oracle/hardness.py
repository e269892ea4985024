"""Reference for METHOD 10's hardness: every number from its definition, in plain loops over float64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Row:
    """Similarities with which one negative is compared.

    near, best : s_qn and s_qp.   random : mean s_qr of the query.   share : weight of the negative in counts.
    """

    query: str
    near: float
    best: float
    random: float
    share: float = 1.0


def cosine(first: np.ndarray, second: np.ndarray) -> float:
    dot, of_first, of_second = (
        math.fsum(np.multiply(a, b, dtype=np.float64).tolist())
        for a, b in ((first, second), (first, first), (second, second))
    )
    return dot / math.sqrt(of_first * of_second)


def percentile_90(values: Sequence[float]) -> float:
    """Return the 90th percentile, by linear interpolation between order statistics: place 0.9 (n - 1), from 0."""
    ordered, place = sorted(values), 0.9 * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def rows_of(
    triplets: Sequence[tuple[str, str, str, float]],
    positives: Mapping[str, set[str]],
    passages: Sequence[str],
    q_vec: Mapping[str, np.ndarray],
    p_vec: Mapping[str, np.ndarray],
) -> tuple[list[Row], dict[str, float]]:
    """Return each (query, positive, negative, share) with its cosines, and the 90th percentile of each query.

    A query's random passages are all passages but its labelled positives, for runs too small for a draw.
    """
    random = {
        query: [cosine(q_vec[query], p_vec[text]) for text in passages if text not in positives[query]]
        for query in {row[0] for row in triplets}
    }
    rows = [
        Row(
            query,
            cosine(q_vec[query], p_vec[negative]),
            cosine(q_vec[query], p_vec[positive]),
            math.fsum(random[query]) / len(random[query]),
            share,
        )
        for query, positive, negative, share in triplets
    ]
    return rows, {query: percentile_90(values) for query, values in random.items()}


def hardness(rows: Sequence[Row]) -> float:
    """(mean s_qn - mean s_qr) / (mean s_qp - mean s_qr), all over the same negatives. Source: METHOD 10."""
    n = math.fsum(row.share for row in rows)
    near, best, random = (
        math.fsum(row.share * getattr(row, name) for row in rows) / n for name in ("near", "best", "random")
    )
    return (near - random) / (best - random)


def own_hardness(rows: Sequence[Row]) -> list[float | None]:
    """Return (s_qn - r) / (s_qp - r) of each negative; None if s_qp is not above r. Source: METHOD 15."""
    return [
        (row.near - row.random) / (row.best - row.random) if row.best - row.random > 1e-12 else None for row in rows
    ]


def near_positive(rows: Sequence[Row]) -> list[bool]:
    """Return whether each negative's hardness is at least 0.9, up to 1e-12, since sums have a different order."""
    return [value is not None and value >= 0.9 - 1e-12 for value in own_hardness(rows)]


def standard_error(rows: Sequence[Row]) -> float:
    """Return the error by the delta method: the gradient of h in the three means, with their clustered covariance.

    h = f(x, y, z) = (x - z) / (y - z), so f_x = 1 / (y - z), f_y = -h / (y - z), f_z = (h - 1) / (y - z). The
    covariance of means is the sum over queries of the outer product of their summed deviations, divided by n^2.
    """
    n = math.fsum(row.share for row in rows)
    table = np.array([[row.near, row.best, row.random] for row in rows])
    share = np.array([row.share for row in rows])
    means = (share[:, None] * table).sum(axis=0) / n
    covariance = np.zeros((3, 3))
    for query in {row.query for row in rows}:
        own = np.array([row.query == query for row in rows])
        deviation = (share[own, None] * (table[own] - means)).sum(axis=0) / n
        covariance += np.outer(deviation, deviation)
    value, span = hardness(rows), means[1] - means[2]
    gradient = np.array([1.0, -value, value - 1.0]) / span
    return math.sqrt(gradient @ covariance @ gradient)


def bootstrap(rows: Sequence[Row], n_resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Return (n_resamples,) hardness of queries resampled with replacement, each with all of its negatives."""
    names = sorted({row.query for row in rows})
    of = {query: [row for row in rows if row.query == query] for query in names}
    sums = np.array(
        [
            [math.fsum(row.share * (row.near - row.random) for row in of[query]) for query in names],
            [math.fsum(row.share * (row.best - row.random) for row in of[query]) for query in names],
        ]
    )
    drawn = generator.integers(len(names), size=(n_resamples, len(names)))
    above, span = sums[0][drawn].sum(axis=1), sums[1][drawn].sum(axis=1)
    return above / span
