"""Frozen results of `secid probe`, which trains. They never affect the ranking of `score`. Source: METHOD 13."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from secid.results.inputs import Displayable, EncoderInfo, InputFile

PROBE_SCHEMA_VERSION = "1.0"
FEWEST_HELD_OUT, FEWEST_GROUPS = 100, 30
"""Fewest held-out queries and groups: with fewer nothing is evaluated. 30 groups bring Student's t near the normal.
Source: METHOD 13."""

Interval = tuple[float, float]


def sign(interval: Interval | None) -> int:
    """Return 1 if a 95 % interval lies above 0, -1 if below, and 0 if it contains 0 or there is none."""
    return 0 if interval is None else int(interval[0] > 0) - int(interval[1] < 0)


@dataclass(frozen=True, kw_only=True)
class Means:
    """Ranking metrics, each a mean over the held-out queries, in [0, 1]."""

    ndcg_10: float
    mrr_10: float
    recall_100: float


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A mean difference of nDCG@10 over the held-out queries, paired by query.

    standard_error : combines error_queries, the effect of other queries (groups of queries are the units), and
                     error_runs, the effect of other runs of the same trainings. error_runs is None with one seed.
    interval_95, p : Student's t with Satterthwaite's degrees; None with one seed.
    """

    value: float
    standard_error: float
    error_queries: float
    error_runs: float | None
    interval_95: Interval | None
    p: float | None


@dataclass(frozen=True, kw_only=True)
class ProbedSource:
    """A source or control after training.

    n_negatives : negatives that training could draw, over all rows; equal for every source.
    n_seeds     : finished seeds; fewer than the probe's if the source was stopped because its interval lay below the
                  leader's.
    trained     : means after training, over the seeds that every source finished.   gain_ndcg10 : their nDCG@10 minus
                  the frozen encoder's; the next five fields are those of its `Gap`.
    vs_random   : nDCG@10 minus that of the control `random`, over the seeds that both have; None for that control.
    tie         : group, 1 first; sources of a group are tied, directly or through others. None if nothing is ranked.
    """

    name: str
    n_negatives: int
    n_seeds: int
    trained: Means
    gain_ndcg10: float
    interval_95: Interval | None
    standard_error: float
    error_queries: float
    error_runs: float | None
    p: float | None
    vs_random: Gap | None
    tie: int | None


@dataclass(frozen=True, kw_only=True)
class ProbedPair:
    """Two sources, the one with the higher mean first. established : the Holm-adjusted p is below 0.05."""

    first: str
    second: str
    gap: Gap
    p_holm: float | None
    established: bool


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A learning rate that was tried with the first seed.

    gain : mean over sources and controls; None if the loss was not finite and the rate was dropped.
    used : whether the other seeds use it.
    """

    rate: float
    gain: float | None
    used: bool


@dataclass(frozen=True, kw_only=True, repr=False)
class Probe(Displayable):
    """One probe. sources : by gain, the highest first.

    n_queries    : queries that all sources have negatives for.   n_held_out : those of them that were ranked.
    n_left_out   : queries of some source that another source lacks, or that have no positive.
    n_groups     : groups of queries that share relevant passages; each is in one fold.   effective_groups : number of
                   groups of equal size with as much evidence, for the held-out queries.
    n_candidates : passages ranked for each query; 0 if nothing was trained.   candidate_depth : depth of the lists that
                   they come from if there were too many (METHOD 13); None if all passages are candidates.
    frozen       : means before training.   precision : number format of the training. None if nothing was trained.
    identical    : names of sources with the same negatives for all these queries, which were trained once.
    controls     : random, and known_positive if enough queries have two.
    not_evaluated: `sources` says why nothing is ranked: few_queries, few_groups, few_to_train_on (nothing was
                   trained), one_seed (no interval), no_gain (no source beats the frozen encoder: the pairs and ties
                   between them hold, but none is worth training on). The other keys are controls that are missing.
    """

    schema_version: str
    secid_version: str
    encoder: EncoderInfo
    files: Mapping[str, InputFile]
    collection: str | None
    trainable: str
    steps: int
    batch: int
    n_seeds: int
    n_folds: int
    seed: int
    temperature: float
    precision: str | None
    rates: tuple[Rate, ...]
    n_queries: int
    n_held_out: int
    n_left_out: int
    n_groups: int
    effective_groups: float
    n_candidates: int
    candidate_depth: int | None
    frozen: Means | None
    sources: tuple[ProbedSource, ...]
    controls: tuple[ProbedSource, ...]
    pairs: tuple[ProbedPair, ...]
    identical: tuple[tuple[str, ...], ...] = ()
    not_evaluated: Mapping[str, str]
    timing: Mapping[str, Mapping[str, float]]

    @property
    def abstained(self) -> str | None:
        """The reason that nothing is ranked, a kind of `not_evaluated`; None if the sources are ranked."""
        return self.not_evaluated.get("sources")

    @property
    def doubts(self) -> tuple[str, ...]:
        """Doubts that the controls raise about choosing a source by it: known_positive_first, not_above_random."""
        controls, doubts = {control.name: control for control in self.controls}, []
        known = controls.get("known_positive")
        if known and self.sources and known.gain_ndcg10 > self.sources[0].gain_ndcg10:
            doubts.append("known_positive_first")
        gaps = [source.vs_random for source in self.sources if source.vs_random is not None]
        if gaps and self.abstained is None and not any(sign(gap.interval_95) > 0 for gap in gaps):
            doubts.append("not_above_random")
        return tuple(doubts)

    @property
    def tied_with_first(self) -> tuple[str, ...]:
        """Names of the sources that are not significantly below the first one; () if nothing was trained."""
        below = {pair.second for pair in self.pairs if pair.established and pair.first == self.sources[0].name}
        return tuple(source.name for source in self.sources[1:] if source.name not in below)
