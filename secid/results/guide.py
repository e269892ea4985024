"""Negatives near enough to their query to be relevant: by margins of the target's scores, and by a guide."""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose
from typing import Literal

from secid.results.catalogue import FINDINGS
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
    n_random         : random passages for the source's queries that the guide scored.
    random_share     : of these, those that its margin flags; random_interval_95: queries as clusters.
    excess_interval_95 : of suspect_share - random_share, paired by query. The three are None where n_random is 0, as in
                       the first reports.
    without_suspects : the source without them; None with a sample.
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
        """Whether the guide flags so many random passages that these alone would be above the limit of suspects."""
        return self.random_share is not None and self.random_share > (FINDINGS["suspect"].limit or 0.0)

    @property
    def repeats_target(self) -> bool:
        """Whether the guide orders all negatives as the target does."""
        return self.agreement == 1.0 and isclose(self.rank_correlation or 0.0, 1.0)

    @property
    def is_evidence(self) -> bool:
        """Whether its suspects say anything: the guide is not blind, no copy of the target, and flags significantly
        more of the negatives than of random passages. Source: METHOD 10.
        """
        above = self.excess_interval_95 is not None and self.excess_interval_95[0] > 0
        return above and not self.is_blind and not self.repeats_target


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

    def of(self, source: str) -> GuideSource | None:
        """What it says of a source; None for one that it did not score."""
        return next((own for own in self.sources if own.name == source), None)

    @property
    def is_sampled(self) -> bool:
        """Whether it scored only some negatives of some source."""
        return any(source.without_suspects is None for source in self.sources)
