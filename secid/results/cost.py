"""What scoring took, against what training would take: an estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Scoring as a share of training, estimated from the tokens of the run and the rate at which it encoded them.

    scoring_seconds   : of all stages.   tokens_per_second : measured while texts were encoded.
    epoch_tokens      : by source, queries, positives and negatives of every record; from the bytes of its texts and the
                        tokens per byte of the texts encoded.
    epoch_seconds     : of an epoch on each source, one after the other: three forward passes over its tokens, for
                        forward and backward, on this machine.
    epoch_share       : scoring_seconds / epoch_seconds.
    """

    scoring_seconds: float
    tokens_per_second: float
    epoch_tokens: Mapping[str, int]
    epoch_seconds: float
    epoch_share: float
