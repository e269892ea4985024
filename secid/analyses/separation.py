"""Measure how well the encoder separates positives from negatives, in each source and in the whole corpus."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from secid.analyses.analysis import Analysis, AnalysisResult, Context
from secid.arrays import Floats, Index, distinct, is_known, pairs
from secid.errors import BUG_REMEDY, NumericalError
from secid.measure.interval import finite_interval
from secid.triplets.estimates import Estimate, Names, comparable_keys, estimated_gap, wilson_interval

if TYPE_CHECKING:
    import torch

    from secid.measure.separation import PassageScores
    from secid.pool import Plan
    from secid.read.collection import Collection
    from secid.triplets.table import TripletTable

BINS = 60
"""Number of bins in a histogram. The ROC curve has a point at each edge of a bin."""
BEST_PER_QUERY = 500
"""Number of the best-scored passages per query from the whole corpus, without its positives. Source: METHOD 10."""
CORPUS_QUERIES, CORPUS_SCORES = 500, 200_000_000
"""Maximum number of queries that search the corpus, and maximum number of scores. Beyond 400,000 passages, fewer
queries are used. With SciFact's 5,183 passages and ten sources, the analysis took 0.6 s on a busy two-core machine."""
SUM_ROUNDING = 1e-9
"""Relative rounding error of sums over pairs, when AoC is checked against the MW loss."""
NOT_ENCODED = "corpus_not_encoded"


@dataclass(frozen=True, kw_only=True)
class Separated:
    """Separation of positives from negatives, at the run's temperature. Source: METHOD 10.

    auc         : P(s+ > s-) + P(s+ = s-) / 2 over all pairs of a positive and a negative, also of different queries.
    within_auc  : the same probability over pairs of the same query.
    gap         : within_auc - auc. It measures offsets between queries, which losses within a query cannot see.
    *_interval_95 : 95 % intervals with queries as the sampling unit. With fewer than five queries, the interval of an
                    AUC is [0, 1], and the interval of the gap is None.
    aoc         : P(s+ <= s-), so ties count as errors; at most mw_loss / log 2.
    mw_loss     : mean of log(1 + exp(-(s+ - s-) / tau)) over the same pairs as auc.   mw_bound : its maximum error.
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
    """Separation of a source's positives from its negatives.

    contrastive_loss : mean over records of -log softmax of the positive against its negatives, at tau.
    low, high        : lowest and highest score in the run.
    positive_histogram, negative_histogram : counts in equal bins from low to high, which also give the ROC curve.
    """

    source: str
    contrastive_loss: float
    low: float
    high: float
    positive_histogram: tuple[int, ...]
    negative_histogram: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class CorpusSeparation(Separated):
    """Separation of labelled positives from each query's best other passages in the corpus, for a sample of queries.

    n_passages : number of distinct passages searched.   n_per_query : number of other passages per query.
    """

    n_passages: int
    n_per_query: int


@dataclass(frozen=True, kw_only=True)
class Separation:
    """Separation in all sources. corpus: separation in the corpus; None without --collection or if not evaluated."""

    sources: tuple[SourceSeparation, ...]
    corpus: CorpusSeparation | None


@dataclass(frozen=True)
class LabelledScores:
    """Scores of positives and negatives of the same Q queries. names: (Q,) names of the queries."""

    positive: PassageScores
    negative: PassageScores
    names: Names


def compute(context: Context) -> AnalysisResult[Separation]:
    """Compare each source's positives with its negatives, and labelled positives with the corpus's best passages.

    A positive counts once per record; a negative counts as in the score. Source: METHOD 10.
    """
    sources = separations(context)
    if context.collection is None:
        return AnalysisResult(Separation(sources=sources, corpus=None))
    corpus = corpus_separation(context, context.collection)
    if isinstance(corpus, str):
        return AnalysisResult(Separation(sources=sources, corpus=None), {"separation from the corpus": corpus})
    return AnalysisResult(Separation(sources=sources, corpus=corpus))


def separations(context: Context) -> tuple[SourceSeparation, ...]:
    """Compare each source's positives with its negatives."""
    import torch

    from secid.measure.gates import contrastive_loss
    from secid.measure.separation import histogram

    plan, device = context.plan, context.measurer.vectors.computes_on
    tables = [(item.name, item.table) for item in context.items]
    scores_of = {name: labelled_scores(table, plan, device) for name, table in tables}
    ends = [
        end for each in scores_of.values() for part in (each.positive, each.negative) for end in part.values.aminmax()
    ]
    low, high = float(torch.stack(ends).min()), float(torch.stack(ends).max())
    high = max(high, low + 1e-6)
    return tuple(
        SourceSeparation(
            source=name,
            contrastive_loss=contrastive_loss(table.triplets, table.dots(), table.temperature),
            low=low,
            high=high,
            positive_histogram=_rounded_counts(histogram(scores_of[name].positive, low, high, BINS)),
            negative_histogram=_rounded_counts(histogram(scores_of[name].negative, low, high, BINS)),
            **separated(scores_of[name], table.temperature, name),
        )
        for name, table in tables
    )


def labelled_scores(table: TripletTable, plan: Plan, device: torch.device) -> LabelledScores:
    """Return the scores of a source's positives and negatives."""
    rows = table.triplets
    queries, query = np.unique(rows.query, return_inverse=True)
    heads = rows.record_offsets[:-1]
    return LabelledScores(
        positive=_scores(table.s_query_positive, query[heads], None, device),
        negative=_scores(table.s_query_negative, query, rows.share, device),
        names=comparable_keys(plan.queries.keys[queries]),
    )


def _scores(values: Floats, query: Index, weight: Floats | None, device: torch.device) -> PassageScores:
    import torch

    from secid.measure.separation import PassageScores

    arrays = (values, query.astype(np.int64), np.ones(len(values)) if weight is None else weight)
    return PassageScores(*(torch.from_numpy(array).to(device) for array in arrays))


def separated(scores: LabelledScores, temperature: float, where: str) -> dict[str, Any]:
    """Return the fields of `Separated`. Raises NumericalError if AoC exceeds its bound, so one of them is wrong."""
    from secid.measure.separation import ERROR_BOUND, mw_loss, separation

    parts = separation(scores.positive, scores.negative, len(scores.names))
    loss = mw_loss(scores.positive, scores.negative, temperature)
    if not parts.aoc <= (loss / log(2)) * (1 + SUM_ROUNDING) + SUM_ROUNDING:
        raise NumericalError(
            f"internal error: AoC {parts.aoc} is above MW loss / log 2 = {loss / log(2)}",
            where=where,
            remedy=BUG_REMEDY,
        )
    order = np.argsort(scores.names)
    auc, within = (
        Estimate(value, scores.names[order], influence.cpu().numpy()[order])
        for value, influence in ((parts.auc, parts.auc_influence), (parts.within_auc, parts.within_influence))
    )
    gap = estimated_gap(within, auc)
    return {
        "n_queries": len(scores.names),
        "n_positives": len(scores.positive.values),
        "n_negatives": round(float(scores.negative.weight.sum())),
        "auc": auc.value,
        "auc_interval_95": wilson_interval(auc),
        "within_auc": within.value,
        "within_auc_interval_95": wilson_interval(within),
        "gap": gap.value,
        "gap_interval_95": finite_interval(gap.interval),
        "aoc": parts.aoc,
        "mw_loss": loss,
        "mw_bound": ERROR_BOUND,
    }


def _rounded_counts(counts: torch.Tensor) -> tuple[int, ...]:
    """Round cumulative counts, so that the rounded counts add up to the rounded total."""
    return tuple(np.diff(np.rint(np.cumsum(counts.cpu().numpy())).astype(np.int64), prepend=0).tolist())


def corpus_separation(context: Context, collection: Collection) -> CorpusSeparation | str:
    """Compare the labelled positives of a sample of queries with each query's best other passages in the corpus.

    All pairs are pooled. Return the separation, or the kind of reason why it was not evaluated. Source: METHOD 10.
    """
    import torch

    from secid.measure.blocks import unit
    from secid.pool import first_sampled, labels_of
    from secid.triplets.embedding import Corpus, rows_of_ids
    from secid.triplets.search import nearest

    plan, embedder, settings = context.plan, context.embedder, context.settings
    corpus, vectors = Corpus(collection, plan, embedder, settings.encode_corpus), embedder.vectors
    n_queries = min(CORPUS_QUERIES, max(1, CORPUS_SCORES // corpus.n_passages))
    queries = distinct(np.concatenate([item.triplets.query for item in context.items]))
    queries = first_sampled(queries, plan.queries.keys, settings.seed, n_queries)
    place, label = labels_of(plan, queries)
    passage = plan.known_positives[label] % len(plan.passages)
    embedder.need(queries, passage)
    most = BEST_PER_QUERY + int(np.bincount(place).max())
    anchors = unit(torch.cat(list(rows_of_ids(vectors, "query", queries, len(queries)))))
    scores, best = nearest([anchors], corpus.windows(), most)
    if not corpus.complete:
        return NOT_ENCODED
    ids = np.concatenate(corpus.ids)[best.cpu().numpy()]
    known = distinct(pairs(queries[place], passage, len(plan.passages)))
    keep = (ids < 0) | ~is_known(pairs(queries[:, None], ids, len(plan.passages)), known)
    keep &= np.cumsum(keep, axis=1) <= BEST_PER_QUERY
    rows = unit(torch.cat(list(rows_of_ids(vectors, "passage", passage, len(passage)))))
    positive = (anchors[torch.from_numpy(place).to(rows.device)] * rows).sum(1).cpu().numpy()
    device, query_number = vectors.computes_on, np.repeat(np.arange(len(queries)), keep.sum(axis=1))
    labelled = LabelledScores(
        positive=_scores(positive, place, None, device),
        negative=_scores(scores.cpu().numpy()[keep], query_number, None, device),
        names=comparable_keys(plan.queries.keys[queries]),
    )
    return CorpusSeparation(
        n_passages=corpus.n_passages,
        n_per_query=BEST_PER_QUERY,
        **separated(labelled, settings.temperature, "the corpus"),
    )


SEPARATION = Analysis("separation", Separation, compute)
