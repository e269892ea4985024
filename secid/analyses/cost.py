"""Cost of scoring as a share of an epoch of training, estimated from the run's tokens and encoding rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from secid.analyses.analysis import Analysis, AnalysisResult, Context
from secid.pool import Plan

FORWARD_PASSES = 3.0
"""Cost of a training step in forward passes: the forward pass itself, and a backward pass of about twice the arithmetic
(arXiv 2001.08361, section 2.1)."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Cost of scoring compared with training, estimated from the run's tokens and encoding rate.

    scoring_seconds   : seconds of all stages.   tokens_per_second : rate measured while texts were encoded.
    epoch_tokens      : number of tokens in all records (queries, positives and negatives), by source. It is estimated
                        from the number of bytes, with the tokens per byte of the encoded texts.
    epoch_seconds     : seconds for one epoch on each source, one after another, on this machine. A token takes
                        FORWARD_PASSES times as long in training as in encoding.
    epoch_share       : scoring_seconds / epoch_seconds.
    """

    scoring_seconds: float
    tokens_per_second: float
    epoch_tokens: Mapping[str, int]
    epoch_seconds: float
    epoch_share: float


COST_OF_SAMPLE, COST_OF_CACHED, NO_RATE = "cost_of_sample", "cost_of_cached", "no_rate"


def compute(context: Context) -> AnalysisResult[Cost]:
    """Compare the cost of scoring with training on this machine."""
    cost = cost_of(context.plan, context.stages)
    return AnalysisResult(None, {"cost": cost}) if isinstance(cost, str) else AnalysisResult(cost)


def cost_of(plan: Plan, timing: Mapping[str, Mapping[str, float]]) -> Cost | str:
    """Return the cost of scoring compared with training, or the kind of reason why it is unknown.

    timing : seconds and counts of each stage so far.
    The cost is unknown if a sample left out records, if embeddings came from the cache, or if the encoder does not
    report the number of tokens.
    """
    if any(planned.n_records < planned.tally.n_records for planned in plan.sources):
        return COST_OF_SAMPLE
    encode = timing.get("encode", {})
    if encode.get("n_cached"):
        return COST_OF_CACHED
    if not encode.get("n_tokens") or not encode["seconds"]:
        return NO_RATE
    rate, tokens_per_byte = encode["n_tokens"] / encode["seconds"], encode["n_tokens"] / encode["n_bytes"]
    queries, passages = (store.lengths.astype(np.int64) for store in (plan.queries, plan.passages))
    tokens = {}
    for item in plan.sources:
        n_bytes = queries[item.query].sum() + passages[item.positives].sum() + passages[item.negatives].sum()
        tokens[item.name] = round(tokens_per_byte * int(n_bytes))
    scoring = sum(stage["seconds"] for stage in timing.values())
    epoch = FORWARD_PASSES * sum(tokens.values()) / rate
    return Cost(
        scoring_seconds=scoring,
        tokens_per_second=rate,
        epoch_tokens=tokens,
        epoch_seconds=epoch,
        epoch_share=scoring / epoch,
    )


COST = Analysis("cost", Cost, compute)
