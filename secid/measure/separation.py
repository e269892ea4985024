"""How well scores tell positives from negatives: AUC over all pairs and within queries, and the MW loss.

    pooled_auc   AUC over all pairs, AoC, each query's influence: also of two kinds of negatives, in an audit
    separation   the same with the AUC within queries
    mw_loss      mean of log(1 + exp(-(s+ - s-) / tau)) over all pairs of all queries, without visiting them

Worked example: query 1 has a positive of 0.5 and a negative of 0.4, query 2 a positive of 0.9 and a negative of 0.8.
Within queries every positive is above its negative, an AUC of 1; pooled, 0.5 < 0.8 is one error in four pairs, 0.75.
The gap of 0.25 is an offset between queries, which a loss within queries cannot see. Source: METHOD 10.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from secid.measure.pair_means import PairMeans


@dataclass(frozen=True)
class Scores:
    """Scores of n passages for their queries, on one device.

    values : (n,) float64.   query : (n,) int64, 0 to Q - 1.   weight : (n,) float64 > 0, what each passage counts.
    """

    values: Tensor
    query: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Separation:
    """auc, within_auc, aoc in [0, 1]; aoc is P(s+ <= s-), ties counted as errors.

    auc_influence, within_influence : (Q,) of each query, so that the sum of squares is the variance.
    """

    auc: float
    within_auc: float
    aoc: float
    auc_influence: Tensor
    within_influence: Tensor


def pooled_auc(positive: Scores, negative: Scores, n_queries: int) -> tuple[float, float, Tensor]:
    """P(s+ > s-) + P(s+ = s-) / 2 over all pairs; P(s+ <= s-); and (Q,) the influence of each query on the first.

    Exact, by ranks, ties included. At least one score on either side. The influences are first-order (DeLong's
    placements), summed by query (Obuchowski 1997, Biometrics 53). Source: METHOD 8, 10.
    """
    high, low, n_levels = _ranks(positive, negative)
    of_positives, of_negatives = (
        torch.bincount(*pair, n_levels) for pair in ((high, positive.weight), (low, negative.weight))
    )
    all_positives, all_negatives = of_positives.sum(), of_negatives.sum()
    below = (of_negatives.cumsum(0) - of_negatives)[high]
    above = (of_positives.sum() - of_positives.cumsum(0))[low]
    place = (below + of_negatives[high] / 2) / all_negatives
    auc = (positive.weight * place).sum() / all_positives
    aoc = 1 - (positive.weight * below).sum() / (all_positives * all_negatives)
    other_place = (above + of_positives[low] / 2) / all_positives
    influence = torch.bincount(positive.query, positive.weight * (place - auc), n_queries) / all_positives
    influence += torch.bincount(negative.query, negative.weight * (other_place - auc), n_queries) / all_negatives
    return float(auc), float(aoc), influence


def separation(positive: Scores, negative: Scores, n_queries: int) -> Separation:
    """The AUC over all pairs and over the pairs of one query. One query at least has both. Source: METHOD 8, 10."""
    auc, aoc, influence = pooled_auc(positive, negative, n_queries)
    right, all_pairs = _within(positive, negative, n_queries)
    within = right.sum() / all_pairs.sum()
    within_influence = (right - within * all_pairs) / all_pairs.sum()
    return Separation(auc, float(within), aoc, influence, within_influence)


def _ranks(positive: Scores, negative: Scores) -> tuple[Tensor, Tensor, int]:
    """Ranks of both sides among all scores, equal ones alike, and how many there are."""
    levels, rank = torch.unique(torch.cat([positive.values, negative.values]), return_inverse=True)
    return rank[: len(positive.values)], rank[len(positive.values) :], len(levels)


def _within(positive: Scores, negative: Scores, n_queries: int) -> tuple[Tensor, Tensor]:
    """(Q,) pairs of each query that are ordered rightly, ties by half, and (Q,) all its pairs."""
    high, low, n_levels = _ranks(positive, negative)
    keys, order = (negative.query * n_levels + low).sort()
    sums = torch.nn.functional.pad(negative.weight[order].cumsum(0), (1, 0))
    own = positive.query * n_levels
    start, stop = torch.searchsorted(keys, own), torch.searchsorted(keys, own + n_levels)
    left, right = torch.searchsorted(keys, own + high), torch.searchsorted(keys, own + high, right=True)
    ordered = (sums[left] + sums[right]) / 2 - sums[start]
    pairs = sums[stop] - sums[start]
    right_pairs, all_pairs = (
        torch.bincount(positive.query, positive.weight * values, n_queries) for values in (ordered, pairs)
    )
    return right_pairs, all_pairs


def mw_loss(positive: Scores, negative: Scores, temperature: float) -> float:
    """Mean of log(1 + exp(-(s+ - s-) / temperature)) over all pairs, to pair_means.BOUND. Source: METHOD 9, 10."""
    x, y = negative.values / temperature, positive.values / temperature
    mean, _ = PairMeans.of(x, y, positive.weight).at(x)
    return float((negative.weight * mean).sum() / negative.weight.sum())


def histogram(scores: Scores, low: float, high: float, n_bins: int) -> Tensor:
    """(n_bins,) weight of the scores in equal bins from low to high; scores outside go to the ends."""
    place = ((scores.values - low) / (high - low) * n_bins).long().clamp(0, n_bins - 1)
    return torch.bincount(place, scores.weight, n_bins)
