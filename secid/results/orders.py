"""How the order of sources fares under other settings and encoders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PROBE_METRIC = "gain in ndcg@10"
"""The outcome of a probe, where its result is what numbers are compared with."""


@dataclass(frozen=True, kw_only=True)
class AblationRow:
    """All sources under one setting, at the run's budget, where the base row is the run's own ranking.

    scores: ECI_B in nats by source, None where the setting leaves it no triplet (a small sample).
    order: names, highest first.   swapped: pairs ordered otherwise than at the base.
    stability: share of source pairs ordered as under the base, 1 = all; None where there is no pair.
    block_stability: the same within each block of sources that the user named.
    Of the rows of a sample: n_queries by source; intervals_95 of the score of all queries, as estimated from that many
    (of no width at 100 %); open_swaps: those of `swapped` whose difference has 0 within its 95 % interval, which may
    be noise.
    """

    setting: str
    scores: Mapping[str, float | None]
    order: tuple[str, ...]
    stability: float | None
    block_stability: Mapping[str, float | None]
    swapped: tuple[tuple[str, str], ...]
    n_queries: Mapping[str, int] = field(default_factory=dict)
    intervals_95: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    open_swaps: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """One aspect varied, all else at the base setting. range_nats: largest minus smallest score by source.

    kendall_tau_b: of each other encoder's scores with the base's, where encoders vary; None where a side is constant.
    """

    name: str
    base: str
    rows: tuple[AblationRow, ...]
    range_nats: Mapping[str, float]
    kendall_tau_b: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How one number of a run agrees with one downstream metric, over the sources that have both.

    Correlations lie in [-1, 1], None where one side is constant. n_pairs_alike of n_pairs are ordered the
    same way.   first: the source that the number puts first; best: the metric's; None where several share the highest
    value, best also where a probe ties it with another.   top_1_regret: what is lost of the metric by taking `first`,
    >= 0; None without one.
    Intervals cover the true value with a chance of 95 % or more, and are None where no standard error is known.
    errors_of: whose errors are in those of the correlations, "scores", "outcomes"; the regret's hold
    the outcomes' alone.
    abstained: why the probe that the metric is from ranks nothing, so that it has no best source; None where it does.
    """

    number: str
    metric: str
    n_sources: int
    kendall_tau_b: float | None
    kendall_interval_95: tuple[float, float] | None
    spearman_rho: float | None
    spearman_interval_95: tuple[float, float] | None
    n_pairs: int
    n_pairs_alike: int
    first: str | None
    best: str | None
    top_1_regret: float | None
    regret_interval_95: tuple[float, float] | None
    errors_of: tuple[str, ...] = ()
    abstained: str | None = None
