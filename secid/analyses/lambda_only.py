"""The mean lexical residual of each source: a baseline of the score that needs no encoder."""

from __future__ import annotations

from dataclasses import dataclass

from secid.analyses.analysis import Analysis, AnalysisResult, Context
from secid.triplets.estimates import comparable_keys, wilson_interval


@dataclass(frozen=True, kw_only=True)
class MeanResidual:
    """Mean of λ over the negatives of a source, on the table's queries, in [0, 1]. Source: METHOD 2.4, 5.

    interval_95 : queries being the sampling unit; all of [0, 1] with fewer than five queries.
    """

    source: str
    residual_mean: float
    interval_95: tuple[float, float]


def compute(context: Context) -> AnalysisResult[tuple[MeanResidual, ...]]:
    """λ of every source that has a score; never without a result."""
    results = []
    for item in context.table:
        mean = item.table.mean(1.0 - item.table.coverage, comparable_keys(item.query_keys))
        results.append(
            MeanResidual(source=item.name, residual_mean=mean.value, interval_95=wilson_interval(mean)),
        )
    return AnalysisResult(tuple(results))


LAMBDA_ONLY = Analysis("lambda_only", tuple[MeanResidual, ...], compute)
