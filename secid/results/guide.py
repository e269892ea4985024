"""Negatives near enough to their query to be relevant: by margins of the target's scores, and by a guide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from secid.results.inputs import EncoderInfo
from secid.results.sources import WithoutFlagged


@dataclass(frozen=True, kw_only=True)
class MarginCurve:
    """Share of a source's negatives that a margin flags, at each of its values. Source: METHOD 10.

    absolute : s_qn >= s_qp - value.   relative : s_qn >= s_qp - value * |s_qp|.   maximum : s_qn >= value.
    """

    kind: Literal["absolute", "relative", "maximum"]
    values: tuple[float, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class SourceMargins:
    """The curves of one source under the target, and under the guide; none without one."""

    name: str
    target: tuple[MarginCurve, ...]
    guide: tuple[MarginCurve, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GuideSource:
    """What the guide says of one source. Its suspects are the finding `suspect`.

    n_scored         : negatives that the guide scored.
    suspect_share    : of all negatives, estimated where the guide scored a sample; interval_95: queries as clusters.
    agreement        : share of negatives that both scorers put on the same side of the positive.
    rank_correlation : Spearman's, of s_qp - s_qn under both, over the negatives scored; None where either is constant.
    without_suspects : the source without them; None with a sample.
    """

    name: str
    n_scored: int
    suspect_share: float
    interval_95: tuple[float, float]
    agreement: float
    rank_correlation: float | None
    without_suspects: WithoutFlagged | None


@dataclass(frozen=True, kw_only=True)
class GuideResult:
    """A second scorer of the run. margin: the relative one from which a negative is suspect.

    encoder : its recipe; pooling is "cross-encoder" for a reranker.   sample : negatives asked for of each source;
    None for all.
    """

    encoder: EncoderInfo
    margin: float
    sample: int | None
    sources: tuple[GuideSource, ...]

    @property
    def is_sampled(self) -> bool:
        """Whether it scored only some negatives of some source."""
        return any(source.without_suspects is None for source in self.sources)
