"""Measure how well scores separate positives from negatives: AUC and MW loss over all pairs, without forming them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

# Means of f(x - y) over all pairs of two large sets of scores x and y, for f = softplus and its derivative.
#
# The score axis is divided into cells. Within a cell, f is interpolated by the polynomial of degree 5 that matches its
# value and first two derivatives at both edges, so f is computed only for pairs of edges. Each y becomes weights on the
# two edges of its cell, which are summed over all y. Each x then reads the sums at the edges of its own cell. For pairs
# further apart than FAR_ARGUMENT, softplus is x - y or 0. Worked example: y = {0} and x = 0 give log 2 and 1/2.
# Source: METHOD 9, 10 (MW).

CELL_WIDTH = 1.0 / 8.0
"""Width of a cell, in units of score / temperature. The polynomial's error is at most width^6 / 46080 times the sixth
derivative, which is below 1/2 for both functions. That gives 4e-11 for x, and the same for y."""
ERROR_BOUND = 1e-10
"""Maximum error of a mean of softplus."""
FAR_ARGUMENT = 40.0
"""Argument above which softplus equals its argument to 4e-18, and its derivative is 1."""
MAX_EDGE_PAIRS, MIN_EDGES = 1 << 18, 16
"""Maximum number of pairs of edges in memory at once (2 MB, which fits a CPU's cache), and minimum number of edges of x
in a batch. The minimum takes precedence if y has many edges."""


@dataclass(frozen=True)
class PairMeans:
    """Means over y at the edges of the cells of x.

    edges : (E,) numbers of the edges, ascending.   table : (4, E) means of softplus and its first three derivatives.
    """

    edges: Tensor
    table: Tensor

    @classmethod
    def of(cls, x: Tensor, y: Tensor, weight: Tensor | None = None) -> PairMeans:
        """Compute means over y at the edges of the cells of x.

        x : (m,) and y : (n,), float64 on the same device.   weight : (n,) weights of y; None if all are equal.
        """
        edges, edges_of_y = _edges(x), _edges(y)
        left, low, high = _weights(edges_of_y, y)
        share = torch.full_like(y, 1.0 / len(y)) if weight is None else weight / weight.sum()
        weights = low.new_zeros(3, len(edges_of_y)).index_add(1, left, low * share)
        weights = weights.index_add(1, left + 1, high * share)
        weights[1] *= -1.0  # d/dy f(x - y) = -f'
        ends, points = edges.double() * CELL_WIDTH, edges_of_y.double() * CELL_WIDTH
        below = torch.nn.functional.pad(torch.stack([weights[0], weights[1] - weights[0] * points]).cumsum(1), (1, 0))
        parts = torch.split(ends, max(MIN_EDGES, MAX_EDGE_PAIRS // len(points)))
        firsts, lasts = (torch.stack([part[end] for part in parts]) for end in (0, -1))
        spans = torch.stack(
            [torch.searchsorted(points, firsts - FAR_ARGUMENT), torch.searchsorted(points, lasts + FAR_ARGUMENT)], dim=1
        )
        tables = []
        for part, (start, stop) in zip(parts, spans.tolist(), strict=True):
            table = _table(part.unsqueeze(1) - points[start:stop], weights[:, start:stop])
            table[0] += part * below[0, start] + below[1, start]
            table[1] += below[0, start]
            tables.append(table)
        return cls(edges, torch.cat(tables, dim=1))

    def at(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (m,) means of softplus(x - y), and (m,) of sigmoid(x - y). Every x must lie in one of the cells."""
        left, low, high = _weights(self.edges, x)
        below, above = self.table[:, left], self.table[:, left + 1]
        mean, slope = (torch.sum(low * below[j : j + 3] + high * above[j : j + 3], dim=0) for j in (0, 1))
        return mean, slope.clamp(0.0, 1.0)


def _edges(scores: Tensor) -> Tensor:
    """Return (E,) numbers of the edges of all cells that contain a score, ascending."""
    cells = torch.floor(scores / CELL_WIDTH).long()
    edges: Tensor = torch.unique(torch.cat([cells, cells + 1]))
    return edges


def _weights(edges: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (m,) position of the edge below each score, and (3, m) weights of f, f', f'' at each of its two edges."""
    cells = torch.floor(scores / CELL_WIDTH)
    t = scores / CELL_WIDTH - cells
    return torch.searchsorted(edges, cells.long()), _basis(t, 1.0), _basis(1.0 - t, -1.0)


def _basis(t: Tensor, sign: float) -> Tensor:
    """Return (3, m) weights of f, f' and f'' at an edge.

    t : (m,) distance from the edge, in cells.   sign : -1 if the edge lies above the score, else 1.
    """
    rest = (1.0 - t) ** 3
    return torch.stack(
        [
            rest * (1.0 + 3.0 * t + 6.0 * t**2),
            sign * CELL_WIDTH * rest * (t + 3.0 * t**2),
            0.5 * CELL_WIDTH**2 * rest * t**2,
        ]
    )


def _table(gap: Tensor, weights: Tensor) -> Tensor:
    """Return (4, e) columns for edges of x. gap: (e, E), these minus edges of y. weights: (3, E) sums at edges of y."""
    p = torch.sigmoid(gap)
    slope, twice = p * torch.sigmoid(-gap), 1.0 - 2.0 * p
    orders = (softplus(gap), p, slope, slope * twice, slope * (1.0 - 6.0 * slope), slope * twice * (1.0 - 12.0 * slope))
    return torch.stack([torch.stack([orders[j + m] @ weights[m] for m in range(3)]).sum(0) for j in range(4)])


# AUC over all pairs and within queries, and the MW loss.
#
#     pooled_auc   AUC over all pairs, AoC, and each query's influence; an audit compares two kinds of negatives with it
#     separation   the same, and the AUC within queries
#     mw_loss      mean of log(1 + exp(-(s+ - s-) / tau)) over all pairs of all queries
#
# Worked example: query 1 has a positive at 0.5 and a negative at 0.4; query 2 has a positive at 0.9 and a negative at
# 0.8. Within queries every positive scores above its negative, so the AUC is 1. Over all four pairs there is one error,
# 0.5 < 0.8, so the pooled AUC is 0.75. The gap of 0.25 is an offset between queries, which a loss within queries cannot
# see. Source: METHOD 10.


@dataclass(frozen=True)
class PassageScores:
    """Scores of n passages for their queries, on one device.

    values : (n,) float64 scores.   query : (n,) int64 number of the query, 0 to Q - 1.
    weight : (n,) float64 weight of each passage, > 0.
    """

    values: Tensor
    query: Tensor
    weight: Tensor


@dataclass(frozen=True)
class SeparationEstimate:
    """AUCs with the influence of each query. auc, within_auc and aoc lie in [0, 1].

    aoc : P(s+ <= s-), so ties count as errors.
    auc_influence, within_influence : (Q,) influence of each query. The sum of squares is the variance.
    """

    auc: float
    within_auc: float
    aoc: float
    auc_influence: Tensor
    within_influence: Tensor


def pooled_auc(positive: PassageScores, negative: PassageScores, n_queries: int) -> tuple[float, float, Tensor]:
    """Return the AUC over all pairs, the AoC, and (Q,) influence of each query on the AUC.

    AUC : P(s+ > s-) + P(s+ = s-) / 2.   AoC : P(s+ <= s-). Both are exact, by ranks. Each side has at least one score.
    The influences are first-order (DeLong's placements), summed by query (Obuchowski 1997, Biometrics 53).
    Source: METHOD 8, 10.
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
    """Return the AUC over all pairs and within queries. At least one query must have a positive and a negative.

    Source: METHOD 8, 10.
    """
    auc, aoc, influence = pooled_auc(positive, negative, n_queries)
    right, all_pairs = _pairs_by_query(positive, negative, n_queries)
    within = right.sum() / all_pairs.sum()
    within_influence = (right - within * all_pairs) / all_pairs.sum()
    return SeparationEstimate(auc, float(within), aoc, influence, within_influence)


def _ranks(positive: PassageScores, negative: PassageScores) -> tuple[Tensor, Tensor, int]:
    """Return the rank of each positive and negative among all scores, and the number of ranks. Ties share a rank."""
    levels, rank = torch.unique(torch.cat([positive.values, negative.values]), return_inverse=True)
    return rank[: len(positive.values)], rank[len(positive.values) :], len(levels)


def _pairs_by_query(positive: PassageScores, negative: PassageScores, n_queries: int) -> tuple[Tensor, Tensor]:
    """Return (Q,) number of correctly ordered pairs per query, and (Q,) number of all its pairs. A tie counts half."""
    high, low, n_levels = _ranks(positive, negative)
    keys, order = (negative.query * n_levels + low).sort()
    sums = torch.nn.functional.pad(negative.weight[order].cumsum(0), (1, 0))
    first_key = positive.query * n_levels
    start, stop = torch.searchsorted(keys, first_key), torch.searchsorted(keys, first_key + n_levels)
    left, right = torch.searchsorted(keys, first_key + high), torch.searchsorted(keys, first_key + high, right=True)
    ordered = (sums[left] + sums[right]) / 2 - sums[start]
    pairs = sums[stop] - sums[start]
    right_pairs, all_pairs = (
        torch.bincount(positive.query, positive.weight * values, n_queries) for values in (ordered, pairs)
    )
    return right_pairs, all_pairs


def mw_loss(positive: PassageScores, negative: PassageScores, temperature: float) -> float:
    """Return the mean of log(1 + exp(-(s+ - s-) / temperature)) over all pairs. The error is at most ERROR_BOUND.

    Source: METHOD 9, 10.
    """
    x, y = negative.values / temperature, positive.values / temperature
    mean, _ = PairMeans.of(x, y, positive.weight).at(x)
    return float((negative.weight * mean).sum() / negative.weight.sum())


def histogram(scores: PassageScores, low: float, high: float, n_bins: int) -> Tensor:
    """Return (n_bins,) sums of weights in equal bins from low to high. Scores outside count in the end bins."""
    place = ((scores.values - low) / (high - low) * n_bins).long().clamp(0, n_bins - 1)
    return torch.bincount(place, scores.weight, n_bins)
