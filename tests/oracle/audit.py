"""Reference for the audit: double loops over negatives, in float64, one query's weight at a time."""

from __future__ import annotations

import numpy as np


def auroc(score: np.ndarray, relevant: np.ndarray, weight: np.ndarray) -> float:
    """Return the AUROC of pairs of a relevant and another negative, pair by pair."""
    right = total = 0.0
    for s, w in zip(score[relevant], weight[relevant], strict=True):
        for other, v in zip(score[~relevant], weight[~relevant], strict=True):
            right += w * v * (1.0 if s > other else 0.5 if s == other else 0.0)
            total += w * v
    return right / total


def influence(score: np.ndarray, relevant: np.ndarray, weight: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    """Return (Q,) change of the AUROC if a query's negatives count slightly more, by a central difference."""
    step = 1e-4
    return np.array(
        [
            (
                auroc(score, relevant, weight * np.where(cluster == query, 1 + step, 1))
                - auroc(score, relevant, weight * np.where(cluster == query, 1 - step, 1))
            )
            / (2 * step)
            for query in range(cluster.max() + 1)
        ]
    )


def flags(s_qn: np.ndarray, s_qp: np.ndarray, temperature: float) -> dict[str, list[bool]]:
    """Return the negatives flagged by π < 0.5, an absolute margin of 0 and a relative margin of 5 %."""
    pairs = list(zip(s_qn.tolist(), s_qp.tolist(), strict=True))
    return {
        "consistency": [1 / (1 + np.exp(-(p - n) / temperature)) < 0.5 for n, p in pairs],
        "absolute": [n >= p for n, p in pairs],
        "relative": [n >= p - 0.05 * abs(p) for n, p in pairs],
    }


def shares(flagged: list[bool], relevant: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Return precision and recall."""
    both = of_flagged = of_relevant = 0.0
    for flag, label, w in zip(flagged, relevant, weight, strict=True):
        both += w * (flag and label)
        of_flagged += w * flag
        of_relevant += w * label
    return both / of_flagged, both / of_relevant
