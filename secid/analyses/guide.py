"""Results of the guide, a second scorer, and the share of negatives that each margin flags under target and guide.

Source: METHOD 10; NV-Retriever (arXiv 2407.15831) for the relative margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose, isnan, nan
from typing import TYPE_CHECKING, Literal

import numpy as np

from secid.analyses.analysis import Analysis, AnalysisResult, Context
from secid.arrays import Floats
from secid.measure.false_negatives import Margin, lowest_positive, margin_flags
from secid.results import WithoutFlagged
from secid.results.catalogue import FINDINGS, NEAR_HARDNESS
from secid.results.inputs import EncoderInfo
from secid.triplets.estimates import comparable_keys, paired_difference, wilson_interval

if TYPE_CHECKING:
    from secid.triplets.guide import GuideScores
    from secid.triplets.measure_set import Measured
    from secid.triplets.table import TripletTable

NO_GUIDE, GUIDE_SAMPLE = "no_guide", "guide_sample"
CURVE_STEPS = 20
MAX_MARGIN = 0.2
"""Largest relative margin of a curve. The largest absolute margin is this share of the range of scores."""
COSINE_RANGE = (0.0, 1.0)
"""Range of scores in the curves, for cosines and probabilities. For other scores, such as a cross-encoder's logits, the
curves cover the range of the scores."""


@dataclass(frozen=True, kw_only=True)
class MarginCurve:
    """Share of a source's negatives that a margin flags, at each value of the margin. Source: METHOD 10.

    kind : absolute flags s_qn >= s_qp - value, relative flags s_qn >= s_qp - value * |s_qp|, and maximum flags
           s_qn >= value.
    """

    kind: Literal["absolute", "relative", "maximum"]
    values: tuple[float, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class SourceMargins:
    """Margin curves of a source under the target and under the guide. guide: empty without a guide."""

    name: str
    target: tuple[MarginCurve, ...]
    guide: tuple[MarginCurve, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GuideSource:
    """The guide's results for a source. Suspects are the negatives with the finding `suspect`.

    n_scored         : number of negatives that the guide scored.
    suspect_share    : share of suspects among all negatives, estimated if the guide scored only a sample.
    interval_95      : interval of suspect_share, clustered by query.
    agreement        : share of negatives that both scorers put on the same side of the positive.
    rank_correlation : Spearman's correlation of s_qp - s_qn between target and guide, over the scored negatives; None
                       if either is constant.
    n_random         : number of random passages that the guide scored for the source's queries.
    random_share, random_interval_95 : share of random passages that the guide suspects, and its interval,
                       clustered by query; None if n_random is 0.
    excess_interval_95 : interval of suspect_share - random_share, paired by query; None if n_random is 0.
    without_suspects : score of the source without its suspects; None if the guide scored only a sample.
    """

    name: str
    n_scored: int
    suspect_share: float
    interval_95: tuple[float, float]
    agreement: float
    rank_correlation: float | None
    n_random: int = 0
    random_share: float | None = None
    random_interval_95: tuple[float, float] | None = None
    excess_interval_95: tuple[float, float] | None = None
    without_suspects: WithoutFlagged | None

    @property
    def is_blind(self) -> bool:
        """True if the guide flags more random passages than the limit of the finding `suspect` allows."""
        return self.random_share is not None and FINDINGS["suspect"].exceeded_by(self.random_share)

    @property
    def repeats_target(self) -> bool:
        """True if the guide orders all negatives as the target does."""
        return self.agreement == 1.0 and isclose(self.rank_correlation or 0.0, 1.0)

    @property
    def is_evidence(self) -> bool:
        """True if the suspects are evidence of false negatives. Source: METHOD 10.

        The guide must flag a significantly larger share of negatives than of random passages, must not be blind, and
        must not repeat the target.
        """
        above = self.excess_interval_95 is not None and self.excess_interval_95[0] > 0
        return above and not self.is_blind and not self.repeats_target


@dataclass(frozen=True, kw_only=True)
class GuideResult:
    """Result of the run's guide.

    encoder : recipe of the guide; for a reranker, pooling is "cross-encoder".
    min_hardness : minimum hardness of a suspect under the guide, where random passages are 0 and the positive is 1.
    random_score : mean score of random passages; None without any.
    sample  : number of negatives to score per source, as set; None for all.
    """

    encoder: EncoderInfo
    min_hardness: float
    random_score: float | None
    sample: int | None
    sources: tuple[GuideSource, ...]

    def of(self, source: str) -> GuideSource | None:
        """Return the guide's numbers for a source; None if it did not score the source."""
        return next((item for item in self.sources if item.name == source), None)

    @property
    def is_sampled(self) -> bool:
        """True if the guide scored only a sample of the negatives, in at least one source."""
        return any(source.without_suspects is None for source in self.sources)


def compute(context: Context) -> AnalysisResult[GuideResult]:
    """Compute the guide's results for each source, with the score without suspects if all negatives were scored."""
    from secid.analyses.ranking import score_subset

    if context.guide is None:
        return AnalysisResult(None, {"suspect": NO_GUIDE})
    sources = []
    for item in context.items:
        if item.table.guide is not None:
            without = None
            if item.table.guide.is_whole:
                keep = ~item.table.has("suspect")
                n_triplets = len(np.unique(item.triplets.place[keep]))
                without = score_subset(item, keep, n_triplets, context.measurer, context.reference)
            sources.append(_source(item, item.table.guide, without))
    level = next((item.table.guide.random_score for item in context.items if item.table.guide is not None), nan)
    result = GuideResult(
        encoder=context.guide,
        min_hardness=NEAR_HARDNESS,
        random_score=None if isnan(level) else level,
        sample=context.settings.guide_sample,
        sources=tuple(sources),
    )
    return AnalysisResult(result, {"score without suspects": GUIDE_SAMPLE} if result.is_sampled else {})


def compute_margins(context: Context) -> AnalysisResult[tuple[SourceMargins, ...]]:
    return AnalysisResult(margins(context.items))


def margins(items: Sequence[Measured]) -> tuple[SourceMargins, ...]:
    """Compute the margin curves of all sources at the same values. The guide's curves cover the range of its scores."""
    from secid.measure.sweep import DOT_ROUNDING

    guides = [item.table.guide.s_query_negative for item in items if item.table.guide is not None]
    low = min((float(np.nanmin(scores)) for scores in guides), default=0.0)
    high = max((float(np.nanmax(scores)) for scores in guides), default=1.0)
    span = COSINE_RANGE if max(-low, high) <= 1.0 + DOT_ROUNDING else (low, high)
    return tuple(
        SourceMargins(
            name=item.name,
            target=_target_curves(item.table),
            guide=() if item.table.guide is None else _guide_curves(item.table, item.table.guide, span),
        )
        for item in items
    )


def _target_curves(table: TripletTable) -> tuple[MarginCurve, ...]:
    weight = np.ones(len(table)) if table.share is None else table.share
    lowest = lowest_positive(table.repeated(table.s_query_positive), table.triplets.place)
    return curves(table.s_query_negative, lowest, weight, COSINE_RANGE)


def _guide_curves(table: TripletTable, guide: GuideScores, span: tuple[float, float]) -> tuple[MarginCurve, ...]:
    """Compute the guide's margin curves. A scored negative also stands for the negatives that were not sampled."""
    share = np.ones(len(table)) if table.share is None else table.share
    scored, n = guide.scored, int(guide.stratum.max()) + 1
    factor = np.bincount(guide.stratum, share, n) / np.bincount(guide.stratum[scored], share[scored], n)
    weight = (share * factor[guide.stratum])[scored]
    lowest = lowest_positive(guide.s_query_positive, guide.place)
    return curves(guide.s_query_negative[scored], lowest[scored], weight, span)


def curves(negative: Floats, positive: Floats, weight: Floats, span: tuple[float, float]) -> tuple[MarginCurve, ...]:
    """Compute the curve of each margin.

    negative, positive : (n,) scores of each negative and of its positive.   weight : (n,) weight of each negative.
    span : minimum and maximum score that the curves cover.
    """
    low, high = span
    steps = np.linspace(0.0, 1.0, CURVE_STEPS + 1)
    grids: dict[Margin, Floats] = {
        "absolute": MAX_MARGIN * (high - low) * steps,
        "relative": MAX_MARGIN * steps,
        "maximum": low + (high - low) * steps,
    }
    total = float(weight.sum())

    def share(kind: Margin, value: float) -> float:
        return float(weight[margin_flags(negative, positive, kind, value)].sum()) / total

    return tuple(
        MarginCurve(kind=kind, values=tuple(grid.tolist()), shares=tuple(share(kind, x) for x in grid.tolist()))
        for kind, grid in grids.items()
    )


def _source(item: Measured, guide: GuideScores, without: WithoutFlagged | None) -> GuideSource:
    table, scored = item.table, guide.scored
    target = table.repeated(table.s_query_positive) - table.s_query_negative
    margin = guide.s_query_positive - guide.s_query_negative
    cluster, names = table.cluster(), comparable_keys(item.query_keys)
    suspects = guide.mean(guide.suspect().astype(np.float64), cluster, names, table.share)
    same = (np.sign(target) == np.sign(margin)).astype(np.float64)
    random = guide.random
    excess = None if random is None else paired_difference(suspects, random)
    return GuideSource(
        name=item.name,
        n_scored=len(np.unique(item.triplets.place[scored])),
        suspect_share=suspects.value,
        interval_95=wilson_interval(suspects),
        agreement=guide.mean(same, cluster, names, table.share).value,
        rank_correlation=rank_correlation(target[scored], margin[scored]),
        n_random=guide.n_random,
        random_share=None if random is None else random.value,
        random_interval_95=None if random is None else wilson_interval(random),
        excess_interval_95=None if excess is None else excess.interval_within(1.0),
        without_suspects=without,
    )


def rank_correlation(first: Floats, second: Floats) -> float | None:
    """Return Spearman's correlation of two (n,) arrays, with mean ranks for ties; None if either is constant."""
    from scipy.stats import rankdata

    a, b = (rankdata(values) - (len(values) + 1) / 2 for values in (first, second))
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 0 else None


GUIDE = Analysis("guide", GuideResult, compute)
MARGINS = Analysis("margins", tuple[SourceMargins, ...], compute_margins)
