"""Reference for a guide's numbers, by loops over Python floats. Source: METHOD 10."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import numpy as np

Pair = tuple[float, float]
"""Scores of the positive and of the negative."""
FLAGS: dict[str, Callable[[float, float, float], bool]] = {
    "absolute": lambda positive, negative, value: negative >= positive - value,
    "relative": lambda positive, negative, value: negative >= positive - value * abs(positive),
    "maximum": lambda positive, negative, value: negative >= value,
}
SPANS = {"absolute": (0.0, 0.2), "relative": (0.0, 0.2), "maximum": (0.0, 1.0)}
"""Smallest and largest value on a curve, if scores are cosines."""


def pairs_of(rows: Sequence[dict[str, Any]], queries: dict[str, Any], passages: dict[str, Any]) -> list[Pair]:
    """Return the cosines of every triplet in the order of the rows. queries, passages : unit float64 rows by text."""
    return [
        (float(queries[row["query"]] @ passages[row["pos"][0]]), float(queries[row["query"]] @ passages[negative]))
        for row in rows
        for negative in row["neg"]
    ]


def flagged_share(pairs: Sequence[Pair], kind: str, value: float) -> float:
    return sum(FLAGS[kind](positive, negative, value) for positive, negative in pairs) / len(pairs)


def is_suspect(positive: float, negative: float, level: float) -> bool:
    """Return True for a negative at 0.9 or more of the way from random passages (level) to its positive."""
    return positive > level and negative >= level + 0.9 * (positive - level)


def suspect_share(pairs: Sequence[Pair], level: float) -> float:
    """Return the share of suspects."""
    return sum(is_suspect(positive, negative, level) for positive, negative in pairs) / len(pairs)


def same_order(target: Sequence[Pair], guide: Sequence[Pair]) -> float:
    """Return the share of triplets whose positive and negative both encoders put in the same order."""
    same = sum((a > b) == (c > d) and (a < b) == (c < d) for (a, b), (c, d) in zip(target, guide, strict=True))
    return same / len(target)


def spearman(target: Sequence[Pair], guide: Sequence[Pair]) -> float:
    """Return Spearman's correlation of positive minus negative; ranks by counting, ties at their mean."""

    def ranks(pairs: Sequence[Pair]) -> list[float]:
        gaps = [positive - negative for positive, negative in pairs]
        return [sum(b < a for b in gaps) + (sum(b == a for b in gaps) + 1) / 2 for a in gaps]

    first, second = ranks(target), ranks(guide)
    middle = (len(first) + 1) / 2
    top = sum((a - middle) * (b - middle) for a, b in zip(first, second, strict=True))
    return top / sqrt(sum((a - middle) ** 2 for a in first) * sum((b - middle) ** 2 for b in second))


def stratified(values: Sequence[float], known: Sequence[bool], stratum: Sequence[int], query: Sequence[int]) -> Pair:
    """Estimate the mean of all values from the known ones, and its variance, by loops over strata and queries."""
    n, strata = len(values), sorted(set(stratum))
    members = {h: [i for i in range(n) if stratum[i] == h] for h in strata}
    sample = {h: [i for i in members[h] if known[i]] for h in strata}
    mean = {h: sum(values[i] for i in sample[h]) / len(sample[h]) for h in strata}
    value = sum(len(members[h]) * mean[h] for h in strata) / n
    variance = 0.0
    for q in set(query):
        off = 0.0
        for h in strata:
            m = len(sample[h])
            off += sum(mean[h] - value for i in members[h] if query[i] == q)
            factor = len(members[h]) / m * sqrt(m / (m - 1))
            off += sum(factor * (values[i] - mean[h]) for i in sample[h] if query[i] == q)
        variance += (off / n) ** 2
    return value, variance


def score_nats(weights: np.ndarray, differences: np.ndarray, n: int) -> float:
    """log det(I + M) by singular values. differences: (T, d) n - p."""
    lengths = np.linalg.norm(differences, axis=1, keepdims=True)
    rows = np.sqrt(weights / n)[:, None] * np.divide(differences, lengths, where=lengths > 1e-3, out=0 * differences)
    return float(np.log1p(np.linalg.svd(rows, compute_uv=False) ** 2).sum())
