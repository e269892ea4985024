"""Reference for METHOD 10's separation and in-batch false negatives: definitions, in plain loops over float64."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

Passage = tuple[str, float, float]
"""Query, score, and weight in counts."""


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def of_pairs(positives: Sequence[Passage], negatives: Sequence[Passage], tau: float) -> dict[str, float]:
    """Return auc, within_auc, aoc and mw_loss by a double loop."""
    sums = dict.fromkeys(("right", "all", "right_within", "all_within", "wrong", "loss"), 0.0)
    for query, high, many in positives:
        for other, low, more in negatives:
            weight, right = many * more, 1.0 if high > low else 0.5 if high == low else 0.0
            sums["all"] += weight
            sums["right"] += weight * right
            sums["wrong"] += weight * (high <= low)
            sums["loss"] += weight * softplus((low - high) / tau)
            if query == other:
                sums["all_within"] += weight
                sums["right_within"] += weight * right
    return {
        "auc": sums["right"] / sums["all"],
        "within_auc": sums["right_within"] / sums["all_within"],
        "aoc": sums["wrong"] / sums["all"],
        "mw_loss": sums["loss"] / sums["all"],
    }


def counts(passages: Sequence[Passage], low: float, high: float, n_bins: int) -> list[float]:
    """Return the summed weights of scores in n_bins equal bins from low to high; the last bin includes `high`."""
    found = [0.0] * n_bins
    for _, score, many in passages:
        edges = [low + (high - low) * n / n_bins for n in range(1, n_bins)]
        found[sum(score >= edge for edge in edges)] += many
    return found


Row = tuple[str, frozenset[str]]
"""Query of a row, and its texts."""


def bought_in(rows: Sequence[Row], positives: Mapping[str, set[str]], row: int, others: Iterable[int]) -> int:
    """Return the labelled positives of a row's query in other rows of its batch, once for each row that has it."""
    own = positives[rows[row][0]]
    return sum(text in own for other in others if other != row for text in rows[other][1])


def of_batches(rows: Sequence[Row], positives: Mapping[str, set[str]], size: int) -> dict[str, float]:
    """Return the mean number and the share of affected rows, over all possible batches of this size."""
    numbers = [
        bought_in(rows, positives, row, batch) for batch in combinations(range(len(rows)), size) for row in batch
    ]
    return {"mean": sum(numbers) / len(numbers), "affected": sum(map(bool, numbers)) / len(numbers)}
