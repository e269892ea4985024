"""How well the scores of one encoder separate positives from negatives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Separated:
    """Positives of some queries against negatives of them, at the run's temperature. Source: METHOD 10.

    auc         : P(s+ > s-) + P(s+ = s-) / 2 over all pairs of all queries; within_auc : over the pairs of one query.
    gap         : within_auc - auc, an offset between queries that losses within a query cannot see.
    *_interval_95 : queries being the sampling unit; of an AUC within [0, 1], which it is for fewer than five queries;
                    of the gap then None.
    aoc         : P(s+ <= s-), ties counted as errors; at most mw_loss / log 2.
    mw_loss     : mean of log(1 + exp(-(s+ - s-) / tau)) over the pairs of auc, exact to mw_bound.
    """

    n_queries: int
    n_positives: int
    n_negatives: int
    auc: float
    auc_interval_95: tuple[float, float]
    within_auc: float
    within_auc_interval_95: tuple[float, float]
    gap: float
    gap_interval_95: tuple[float, float] | None
    aoc: float
    mw_loss: float
    mw_bound: float


@dataclass(frozen=True, kw_only=True)
class SourceSeparation(Separated):
    """A source's positives against its negatives.

    contrastive_loss : mean over records of -log softmax of the positive among it and its negatives, at tau.
    low, high        : of all scores of the run.
    positive_histogram, negative_histogram : how many in equal bins from low to high; they give the ROC curve as well.
    """

    source: str
    contrastive_loss: float
    low: float
    high: float
    positive_histogram: tuple[int, ...]
    negative_histogram: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class CorpusSeparation(Separated):
    """All labelled positives of a sample of queries against the best of the corpus that are none.

    n_passages : distinct passages of the corpus that were searched.   n_per_query : best non-positives of each query.
    """

    n_passages: int
    n_per_query: int
