"""Cost of scoring as a share of an epoch of training, estimated from the run's own tokens and rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from secid.analyses.analysis import Analysis, AnalysisResult, Context
from secid.pool import Plan

FORWARD_PASSES = 3.0
"""Forward passes that a training step costs: one, and a backward pass of about twice the arithmetic (arXiv 2001.08361,
section 2.1)."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Scoring as a share of training, estimated from the tokens of the run and the rate at which it encoded them.

    scoring_seconds   : seconds of all stages.   tokens_per_second : measured while texts were encoded.
    epoch_tokens      : tokens of the queries, positives and negatives of every record, by source; from the bytes of its
                        texts and the tokens per byte of the encoded texts.
    epoch_seconds     : seconds of an epoch on each source, one after the other, on this machine: three forward passes
                        over its tokens, for forward and backward.
    epoch_share       : scoring_seconds / epoch_seconds.
    """

    scoring_seconds: float
    tokens_per_second: float
    epoch_tokens: Mapping[str, int]
    epoch_seconds: float
    epoch_share: float


SAMPLED, CACHED, NO_RATE = "cost_of_sample", "cost_of_cached", "no_rate"


def compute(context: Context) -> AnalysisResult[Cost]:
    """Compare scoring with training on this machine; without a result, give the kind of reason."""
    cost = cost_of(context.plan, context.stages)
    return AnalysisResult(None, {"cost": cost}) if isinstance(cost, str) else AnalysisResult(cost)


def cost_of(plan: Plan, timing: Mapping[str, Mapping[str, float]]) -> Cost | str:
    """Compare scoring with training on this machine. Return the cost, or the kind of reason why it is unknown.

    timing : seconds and counts by stage so far. The rate counts only if every text of the files was encoded, none was
             cached or left out by a sample, and the encoder reports the number of tokens.
    """
    if any(planned.n_records < planned.tally.n_records for planned in plan.sources):
        return SAMPLED
    encode = timing.get("encode", {})
    if encode.get("n_cached"):
        return CACHED
    if not encode.get("n_tokens") or not encode["seconds"]:
        return NO_RATE
    rate, tokens_per_byte = encode["n_tokens"] / encode["seconds"], encode["n_tokens"] / encode["n_bytes"]
    tokens = {
        planned.name: round(tokens_per_byte * n) for planned, n in zip(plan.sources, epoch_bytes(plan), strict=True)
    }
    scoring = sum(stage["seconds"] for stage in timing.values())
    epoch = FORWARD_PASSES * sum(tokens.values()) / rate
    return Cost(
        scoring_seconds=scoring,
        tokens_per_second=rate,
        epoch_tokens=tokens,
        epoch_seconds=epoch,
        epoch_share=scoring / epoch,
    )


def epoch_bytes(plan: Plan) -> Sequence[int]:
    """Count the bytes of the queries, positives and negatives of every record, for each source."""
    queries, passages = (store.lengths.astype(np.int64) for store in (plan.queries, plan.passages))
    return [
        int(queries[item.query].sum() + passages[item.positives].sum() + passages[item.negatives].sum())
        for item in plan.sources
    ]


COST = Analysis("cost", Cost, compute)
