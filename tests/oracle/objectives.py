"""Reference for METHOD 9 and 10: objectives on frozen scores, separation, margins.

Gradients come from the losses alone, by complex-step differences: loss(s + i h) with h = 1e-30 has
the derivative times h as its imaginary part, exact to rounding because nothing is subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tests.oracle.scoring import mean, softplus

Loss = Callable[[np.ndarray, np.ndarray], complex]

STEP = 1e-30


def _log_sum_exp(values: np.ndarray) -> complex:
    """log(sum(exp(values))) of complex values, safe for any real part."""
    top = values.real.max()
    return complex(top + np.log(np.sum(np.exp(values - top))))


def _with_zero(values: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, dtype=values.dtype), values.ravel()])


def joint_lh(positives: np.ndarray, negatives: np.ndarray) -> complex:
    """-(1/|D+|) sum log P(d+), P over all positives and negatives. Source: METHOD 9."""
    return complex(_log_sum_exp(np.concatenate([positives, negatives])) - np.mean(positives))


def single_lh(positives: np.ndarray, negatives: np.ndarray) -> complex:
    """InfoNCE of the first positive against the negatives; the other positives play no part. Source: METHOD 9."""
    return joint_lh(positives[:1], negatives)


def rand1_lh(positives: np.ndarray, negatives: np.ndarray) -> complex:
    """Expected InfoNCE of one positive drawn uniformly. Source: METHOD 9."""
    return complex(np.mean([joint_lh(positives[index : index + 1], negatives) for index in range(len(positives))]))


def sum_marg_lh(positives: np.ndarray, negatives: np.ndarray) -> complex:
    """-log of the summed probability of the positives. Source: METHOD 9."""
    return _log_sum_exp(np.concatenate([positives, negatives])) - _log_sum_exp(positives)


def lse_pair(positives: np.ndarray, negatives: np.ndarray) -> complex:
    """log(1 + sum over all pairs of exp(s_k - s_j)). Source: METHOD 9."""
    return _log_sum_exp(_with_zero(negatives[None, :] - positives[:, None]))


def _highest(scores: np.ndarray) -> np.ndarray:
    return scores[[int(np.argmax(scores.real))]]


def _lowest(scores: np.ndarray) -> np.ndarray:
    return scores[[int(np.argmin(scores.real))]]


OBJECTIVES: Mapping[str, Loss] = {
    "SingleLH": single_lh,
    "Rand1LH": rand1_lh,
    "JointLH": joint_lh,
    "SumMargLH": sum_marg_lh,
    "LSEPair": lse_pair,
    "LSEPair maxP": lambda positives, negatives: lse_pair(_highest(positives), negatives),
    "LSEPair maxN": lambda positives, negatives: lse_pair(positives, _highest(negatives)),
    "LSEPair minP": lambda positives, negatives: lse_pair(_lowest(positives), negatives),
    "LSEPair minP·maxN": lambda positives, negatives: lse_pair(_lowest(positives), _highest(negatives)),
}
"""Losses of one record: scores of its positives and negatives, already divided by tau. Source: METHOD 9."""


def masked(loss: Loss, kept: Sequence[bool]) -> Loss:
    """`loss` after dropping the negatives that are not `kept` (GIST). Source: METHOD 9, 10."""
    chosen = np.flatnonzero(np.asarray(kept, dtype=bool))
    return lambda positives, negatives: loss(positives, negatives[chosen])


def loss_value(loss: Loss, positives: Sequence[float], negatives: Sequence[float]) -> float:
    """The loss as a real number."""
    return loss(np.asarray(positives, dtype=complex), np.asarray(negatives, dtype=complex)).real


def gradients(loss: Loss, positives: Sequence[float], negatives: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Derivative of the loss by each positive's and each negative's score, float64.

    Where two scores tie for best or worst, the derivative is that of the first.
    """
    scores = np.concatenate([np.asarray(positives, dtype=complex), np.asarray(negatives, dtype=complex)])
    n_positives = len(positives)
    slopes = []
    for index in range(len(scores)):
        moved = scores.copy()
        moved[index] += 1j * STEP
        slopes.append(loss(moved[:n_positives], moved[n_positives:]).imag / STEP)
    return np.array(slopes[:n_positives]), np.array(slopes[n_positives:])


def mw_loss(positives: Sequence[float], negatives: Sequence[float]) -> float:
    """Mean over every positive and every negative of all queries of log(1 + exp(-(s+ - s-))).

    Scores divided by tau; all pairs, across queries too, as the pooled AUC has them. Source: METHOD 9, 10.
    """
    below = np.asarray(negatives, dtype=np.float64)
    return mean(mean(softplus(below - positive)) for positive in positives)


def mw_gradients(positives: Sequence[float], negatives: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Pull of MW on each positive (mean over negatives) and each negative (mean over positives), float64.

    These are the derivatives of `mw_loss` times the number of positives or of negatives, as METHOD 9
    states them.
    """

    def total(above: np.ndarray, below: np.ndarray) -> complex:
        return complex(np.sum([[_log_sum_exp(_with_zero(np.array([k - j]))) for k in below] for j in above]))

    by_positive, by_negative = gradients(total, positives, negatives)
    return by_positive / len(negatives), by_negative / len(positives)


def wins_and_ties(positives: Sequence[float], negatives: Sequence[float]) -> tuple[int, int]:
    """Number of pairs with s+ > s-, and with s+ = s-."""
    ordered = np.sort(np.asarray(negatives, dtype=np.float64))
    above = np.asarray(positives, dtype=np.float64)
    wins, upper = np.searchsorted(ordered, above, "left"), np.searchsorted(ordered, above, "right")
    return int(wins.sum()), int((upper - wins).sum())


def auc(positives: Sequence[float], negatives: Sequence[float]) -> float:
    """P(s+ > s-) + P(s+ = s-) / 2, in [0, 1]. Source: METHOD 10."""
    wins, ties = wins_and_ties(positives, negatives)
    return (wins + ties / 2) / (len(positives) * len(negatives))


def separation(
    positives: Mapping[str, Sequence[float]], negatives: Mapping[str, Sequence[float]], temperature: float
) -> dict[str, float]:
    """Pooled and within-query separation of a source.

    positives, negatives : dot products by query, not divided by the temperature.
    within_query_auc weighs each query that has both the same, within_pair_auc each of its pairs.
    aoc_with_ties counts ties as errors, the form that mw_loss / log 2 bounds. Source: METHOD 10.
    """
    above = [score for scores in positives.values() for score in scores]
    below = [score for scores in negatives.values() for score in scores]
    shared = [query for query in positives if positives[query] and negatives.get(query)]
    n_pairs = {query: len(positives[query]) * len(negatives[query]) for query in shared}
    within = {query: auc(positives[query], negatives[query]) for query in shared}
    pooled = auc(above, below)
    return {
        "auc": pooled,
        "aoc": 1.0 - pooled,
        "aoc_with_ties": 1.0 - wins_and_ties(above, below)[0] / (len(above) * len(below)),
        "within_query_auc": mean(within.values()),
        "within_pair_auc": math.fsum(within[query] * n_pairs[query] for query in shared) / sum(n_pairs.values()),
        "mw_loss": mw_loss([score / temperature for score in above], [score / temperature for score in below]),
    }


def margin_flags(
    s_qp: np.ndarray,
    s_qn: np.ndarray,
    *,
    absolute: float | None = None,
    relative: float | None = None,
    maximum: float | None = None,
) -> np.ndarray:
    """Negatives that any given margin calls likely false, (N,) bool; none without a margin. Source: METHOD 10."""
    flagged = np.zeros(np.shape(s_qn), dtype=bool)
    if absolute is not None:
        flagged |= s_qn >= s_qp - absolute
    if relative is not None:
        flagged |= s_qn >= s_qp - relative * np.abs(s_qp)
    if maximum is not None:
        flagged |= s_qn >= maximum
    return flagged
