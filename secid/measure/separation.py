"""Measures of how well scores separate positives from negatives: means over all pairs, without forming the pairs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

# Means over all pairs of two large sets of scores: softplus and its derivative, without the pairs.
#
# f(x - y) is smooth in both scores. Within a cell of either score, f is interpolated by the polynomial of degree 5 that
# matches the values and the first two derivatives at both edges, so f is needed only at pairs of edges. Each score of y
# becomes weights on its two edges, which are summed over all y; each score of x reads the sums at its own edges. Pairs
# further apart than FAR need no f: it is x - y, or 0. Worked example: y = {0}, x = 0 gives log 2 and 1/2.
# Source: METHOD 9, 10 (MW).

CELL = 1.0 / 8.0
"""Width of a cell, in scores over the temperature. A polynomial's error is at most width^6 / 46080 times the sixth
derivative, which is below 1/2 for both functions: 4e-11 for x, and as much for y."""
BOUND = 1e-10
"""Largest error of a mean of softplus."""
FAR = 40.0
"""Argument from which softplus equals its argument to 4e-18, and its derivative is 1."""
PRODUCTS, FEWEST_EDGES = 1 << 18, 16
"""Pairs of edges in memory at once (2 MB, which a CPU's cache holds), and the fewest edges of x at once, for any number
of edges of y."""


@dataclass(frozen=True)
class PairMeans:
    """Means over y at the edges of x's cells.

    edges : (E,) numbers of the cells' edges, rising.   table : (4, E) means of softplus and three derivatives.
    """

    edges: Tensor
    table: Tensor

    @classmethod
    def of(cls, x: Tensor, y: Tensor, weight: Tensor | None = None) -> PairMeans:
        """Compute means over y, (n,), at the edges of the cells of x, (m,); both float64 on one device.

        weight : (n,) weights of y; None for equal ones.
        """
        edges, edges_of_y = _edges(x), _edges(y)
        left, low, high = _weights(edges_of_y, y)
        share = torch.full_like(y, 1.0 / len(y)) if weight is None else weight / weight.sum()
        weights = low.new_zeros(3, len(edges_of_y)).index_add(1, left, low * share)
        weights = weights.index_add(1, left + 1, high * share)
        weights[1] *= -1.0  # d/dy f(x - y) = -f'
        ends, points = edges.double() * CELL, edges_of_y.double() * CELL
        below = torch.nn.functional.pad(torch.stack([weights[0], weights[1] - weights[0] * points]).cumsum(1), (1, 0))
        parts = torch.split(ends, max(FEWEST_EDGES, PRODUCTS // len(points)))
        firsts, lasts = (torch.stack([part[end] for part in parts]) for end in (0, -1))
        spans = torch.stack([torch.searchsorted(points, firsts - FAR), torch.searchsorted(points, lasts + FAR)], dim=1)
        tables = []
        for part, (start, stop) in zip(parts, spans.tolist(), strict=True):
            table = _table(part.unsqueeze(1) - points[start:stop], weights[:, start:stop])
            table[0] += part * below[0, start] + below[1, start]
            table[1] += below[0, start]
            tables.append(table)
        return cls(edges, torch.cat(tables, dim=1))

    def at(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return means of softplus(x - y) and of sigmoid(x - y), (m,) each, for x within the cells."""
        left, low, high = _weights(self.edges, x)
        below, above = self.table[:, left], self.table[:, left + 1]
        mean, slope = (torch.sum(low * below[j : j + 3] + high * above[j : j + 3], dim=0) for j in (0, 1))
        return mean, slope.clamp(0.0, 1.0)


def _edges(scores: Tensor) -> Tensor:
    """Return (E,) numbers of the edges of all cells that hold a score, rising."""
    cells = torch.floor(scores / CELL).long()
    edges: Tensor = torch.unique(torch.cat([cells, cells + 1]))
    return edges


def _weights(edges: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the place of the edge below each score, and (3, m) weights of f, f', f'' at the edges below and above."""
    cells = torch.floor(scores / CELL)
    t = scores / CELL - cells
    return torch.searchsorted(edges, cells.long()), _basis(t, 1.0), _basis(1.0 - t, -1.0)


def _basis(t: Tensor, sign: float) -> Tensor:
    """Return (3, m) weights of f, f' and f'' at an edge.

    t : distance from the edge, in cells.   sign : -1 if the edge lies above the score, else 1.
    """
    rest = (1.0 - t) ** 3
    return torch.stack(
        [rest * (1.0 + 3.0 * t + 6.0 * t**2), sign * CELL * rest * (t + 3.0 * t**2), 0.5 * CELL**2 * rest * t**2]
    )


def _table(gap: Tensor, weights: Tensor) -> Tensor:
    """Return columns (4, e) of the table for some edges of x.

    gap : (e, E) these edges minus the edges of y.   weights : (3, E).
    """
    p = torch.sigmoid(gap)
    slope, twice = p * torch.sigmoid(-gap), 1.0 - 2.0 * p
    orders = (softplus(gap), p, slope, slope * twice, slope * (1.0 - 6.0 * slope), slope * twice * (1.0 - 12.0 * slope))
    return torch.stack([torch.stack([orders[j + m] @ weights[m] for m in range(3)]).sum(0) for j in range(4)])


# AUC over all pairs and within queries, and the MW loss.
#
#     pooled_auc   AUC over all pairs, AoC and each query's influence; in an audit, of two kinds of negatives
#     separation   these, and the AUC within queries
#     mw_loss      mean of log(1 + exp(-(s+ - s-) / tau)) over all pairs of all queries, without visiting them
#
# Worked example: query 1 has a positive of 0.5 and a negative of 0.4, query 2 a positive of 0.9 and a negative of 0.8.
# Within queries every positive is above its negative: an AUC of 1. Pooled, 0.5 < 0.8 is one error in four pairs: 0.75.
# The gap of 0.25 is an offset between queries, which a loss within queries cannot see. Source: METHOD 10.


@dataclass(frozen=True)
class PassageScores:
    """Scores of n passages for their queries, on one device.

    values : (n,) float64.   query : (n,) int64, 0 to Q - 1.   weight : (n,) float64 > 0, the count of each passage.
    """

    values: Tensor
    query: Tensor
    weight: Tensor


@dataclass(frozen=True)
class SeparationEstimate:
    """AUCs with their influences. auc, within_auc, aoc in [0, 1]; aoc is P(s+ <= s-): ties count as errors.

    auc_influence, within_influence : (Q,) influence of each query; their sum of squares is the variance.
    """

    auc: float
    within_auc: float
    aoc: float
    auc_influence: Tensor
    within_influence: Tensor


def pooled_auc(positive: PassageScores, negative: PassageScores, n_queries: int) -> tuple[float, float, Tensor]:
    """Return P(s+ > s-) + P(s+ = s-) / 2 over all pairs; P(s+ <= s-); and (Q,) each query's influence on the first.

    Exact, by ranks, with ties. Each side has at least one score. The influences are first-order (DeLong's
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


def separation(positive: PassageScores, negative: PassageScores, n_queries: int) -> SeparationEstimate:
    """Return the AUC over all pairs and within queries. At least one query must have both sides.

    Source: METHOD 8, 10.
    """
    auc, aoc, influence = pooled_auc(positive, negative, n_queries)
    right, all_pairs = _within(positive, negative, n_queries)
    within = right.sum() / all_pairs.sum()
    within_influence = (right - within * all_pairs) / all_pairs.sum()
    return SeparationEstimate(auc, float(within), aoc, influence, within_influence)


def _ranks(positive: PassageScores, negative: PassageScores) -> tuple[Tensor, Tensor, int]:
    """Return the ranks of both sides among all scores, with one rank for equal scores, and the number of ranks."""
    levels, rank = torch.unique(torch.cat([positive.values, negative.values]), return_inverse=True)
    return rank[: len(positive.values)], rank[len(positive.values) :], len(levels)


def _within(positive: PassageScores, negative: PassageScores, n_queries: int) -> tuple[Tensor, Tensor]:
    """Return (Q,) the correctly ordered pairs of each query, with ties as half, and (Q,) all its pairs."""
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


def mw_loss(positive: PassageScores, negative: PassageScores, temperature: float) -> float:
    """Return the mean of log(1 + exp(-(s+ - s-) / temperature)) over all pairs, to BOUND. Source: METHOD 9, 10."""
    x, y = negative.values / temperature, positive.values / temperature
    mean, _ = PairMeans.of(x, y, positive.weight).at(x)
    return float((negative.weight * mean).sum() / negative.weight.sum())


def histogram(scores: PassageScores, low: float, high: float, n_bins: int) -> Tensor:
    """Return (n_bins,) weights of the scores in equal bins from low to high; scores outside count in the end bins."""
    place = ((scores.values - low) / (high - low) * n_bins).long().clamp(0, n_bins - 1)
    return torch.bincount(place, scores.weight, n_bins)
