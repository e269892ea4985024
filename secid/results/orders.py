"""How the order of sources fares under other settings and encoders."""

from __future__ import annotations

from dataclasses import dataclass

PROBE_METRIC = "gain in ndcg@10"
"""The outcome of a probe, where its result is what numbers are compared with."""


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
