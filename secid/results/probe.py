"""Results of `secid probe`, which trains. They never affect the ranking of `secid score`. Source: METHOD 13."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from secid.results.inputs import Displayable, EncoderInfo, InputFile

PROBE_SCHEMA_VERSION = "1.0"
MIN_HELD_OUT, MIN_GROUPS = 100, 30
"""Minimum number of held-out queries, and of groups of queries; with fewer, nothing is evaluated. With 30 groups,
Student's t is close to the normal distribution. Source: METHOD 13."""

Interval = tuple[float, float]


def sign(interval: Interval | None) -> int:
    """Return 1 if a 95 % interval lies above 0, -1 if it lies below 0, and 0 if it contains 0 or is None."""
    return 0 if interval is None else int(interval[0] > 0) - int(interval[1] < 0)


@dataclass(frozen=True, kw_only=True)
class Means:
    """Means of the ranking metrics over the held-out queries, in [0, 1]."""

    ndcg_10: float
    mrr_10: float
    recall_100: float


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Mean difference in nDCG@10 over the held-out queries, paired by query.

    error_queries  : standard error from sampling queries; groups of queries are the sampling unit.
    error_runs     : standard error from repeating the training runs; None with one seed.
    standard_error : combination of both.
    interval_95, p : by Student's t with Satterthwaite's degrees of freedom; None with one seed.
    """

    value: float
    standard_error: float
    error_queries: float
    error_runs: float | None
    interval_95: Interval | None
    p: float | None


@dataclass(frozen=True, kw_only=True)
class PerQuery:
    """Ranking metrics of each held-out query, to four decimals, (n_held_out,) in the order of `Probe.queries`."""

    ndcg_10: tuple[float, ...]
    mrr_10: tuple[float, ...]
    recall_100: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class HeldOutQueries:
    """The held-out queries, (n_held_out,). group, fold: numbers from 0.

    Queries that share a relevant passage, directly or through other queries, form a group.
    """

    text: tuple[str, ...]
    group: tuple[int, ...]
    fold: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ProbedSource:
    """Results of training on a source or control at one dose.

    n_negatives : number of negatives that training could draw, over all rows; equal for every source.
    n_seeds     : number of finished seeds. A source has fewer than the probe if it was stopped because its interval lay
                  below the leader's interval.
    trained     : means after training, over the seeds that every source finished at this dose.
    per_query   : metrics of each query, as means over the same seeds.
    gain_ndcg10 : mean nDCG@10 minus that of the frozen encoder. The next five fields are those of its `Gap`.
    vs_random   : mean nDCG@10 minus that of the control `random`, over the seeds that both have; None for `random`.
    tie         : letters; two sources share one if and only if their difference is not significant. None if nothing is
                  ranked.
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
    tie: str | None
    per_query: PerQuery


@dataclass(frozen=True, kw_only=True)
class ProbedPair:
    """Difference between two sources, the higher mean first. established: True if p_holm is below 0.05."""

    first: str
    second: str
    gap: Gap
    p_holm: float | None
    established: bool


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """A training run that diverged: its loss, gradient or vectors were no longer finite. fold, seed: numbers from 1.

    step : step from 1 at which it diverged; None if a vector was not finite after the last step.
    """

    source: str
    is_control: bool
    fold: int
    seed: int
    step: int | None


@dataclass(frozen=True, kw_only=True)
class Dose:
    """Results of training at one learning rate. Sources and controls are sorted by gain, the highest first.

    controls      : random, and known_positive if enough queries have two positives.
    not_evaluated : reason why the sources are not ranked: one_seed, no_gain (no source beats the frozen encoder, though
                    pairs and ties are valid) or diverged. None if they are ranked.
    divergence    : training run that diverged, or None. If one diverged, sources, controls and pairs are empty.
    """

    rate: float
    not_evaluated: str | None
    divergence: Divergence | None
    sources: tuple[ProbedSource, ...]
    controls: tuple[ProbedSource, ...]
    pairs: tuple[ProbedPair, ...]

    @property
    def doubts(self) -> tuple[str, ...]:
        """Doubts that controls cast on choosing a source by this dose: known_positive_first, not_above_random."""
        controls, doubts = {control.name: control for control in self.controls}, []
        known = controls.get("known_positive")
        if known and self.sources and known.gain_ndcg10 > self.sources[0].gain_ndcg10:
            doubts.append("known_positive_first")
        gaps = [source.vs_random for source in self.sources if source.vs_random is not None]
        if gaps and self.not_evaluated is None and not any(sign(gap.interval_95) > 0 for gap in gaps):
            doubts.append("not_above_random")
        return tuple(doubts)

    @property
    def tied_with_first(self) -> tuple[str, ...]:
        """Names of the other sources that are not significantly worse than the first; () if the dose diverged."""
        below = {pair.second for pair in self.pairs if pair.established and pair.first == self.sources[0].name}
        return tuple(source.name for source in self.sources[1:] if source.name not in below)


@dataclass(frozen=True, kw_only=True)
class ReversedPair:
    """Two sources whose order differs between doses, and is significant at each after Holm's correction.

    first_better, second_better : learning rates at which the first or second source is significantly better.
    """

    first: str
    second: str
    first_better: tuple[float, ...]
    second_better: tuple[float, ...]


def established_at(doses: Iterable[Dose]) -> dict[tuple[str, str], list[tuple[float, str]]]:
    """Return (learning rate, better source) for each dose at which a pair differs significantly, by sorted pair."""
    by_pair: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for dose in doses:
        for pair in dose.pairs:
            low, high = sorted((pair.first, pair.second))
            rates = by_pair.setdefault((low, high), [])
            if pair.established:
                rates.append((dose.rate, pair.first))
    return by_pair


def reversals_of(doses: Iterable[Dose]) -> tuple[ReversedPair, ...]:
    """Return the pairs of sources with a significant order at some dose and the opposite one at another."""
    reversals = []
    for (first, second), rates in established_at(doses).items():
        by_first = tuple(rate for rate, better in rates if better == first)
        by_second = tuple(rate for rate, better in rates if better == second)
        if by_first and by_second:
            reversals.append(ReversedPair(first=first, second=second, first_better=by_first, second_better=by_second))
    return tuple(reversals)


@dataclass(frozen=True, kw_only=True, repr=False)
class Probe(Displayable):
    """Result of one probe.

    n_queries    : number of queries with negatives in every source.   n_held_out : number of held-out queries.
    n_left_out   : number of queries that at least one source lacks, or that have no positive.
    n_groups     : number of groups of queries that share relevant passages. A group is never split between folds.
    effective_groups : number of equal-sized groups that would give as much evidence as those of the held-out queries.
    n_candidates : number of passages ranked per query; 0 if nothing was trained.
    candidate_depth : depth of the ranked lists that candidates were taken from, because there were too many passages
                   (METHOD 13); None if all passages are candidates.
    loss         : infonce, mw, lsepair, sum_marginal, joint or gist.   passages : own or batch.
    guide        : recipe of the guide for gist, else None.
    precision    : number format of the training.   queries : held-out queries, in the order of every `PerQuery`.
    frozen, frozen_per_query : metrics before training. If nothing was trained, these two, `precision` and `queries` are
                   None.
    doses        : results by learning rate, in the order of the rates; () if nothing was trained.
    reversals    : pairs of sources whose order differs between doses.
    identical    : groups of sources that were trained once, because they have the same negatives for all these queries.
    not_evaluated : reason for each part that was not evaluated. The key "sources" has the reason why nothing is ranked.
                   If nothing was trained, it is few_queries, few_groups, few_to_train_on, or estimate (only the time
                   was requested). Otherwise it is one_seed (no interval) or no_gain (no source beats the frozen encoder
                   at any dose; pairs and ties are valid, but no source is worth training on). The other keys are
                   missing controls.
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
    loss: str
    passages: str
    guide: EncoderInfo | None
    precision: str | None
    n_queries: int
    n_held_out: int
    n_left_out: int
    n_groups: int
    effective_groups: float
    n_candidates: int
    candidate_depth: int | None
    queries: HeldOutQueries | None
    frozen: Means | None
    frozen_per_query: PerQuery | None
    doses: tuple[Dose, ...]
    reversals: tuple[ReversedPair, ...]
    identical: tuple[tuple[str, ...], ...] = ()
    not_evaluated: Mapping[str, str]
    timing: Mapping[str, Mapping[str, float]]

    @property
    def abstained(self) -> str | None:
        """Reason why nothing is ranked, as in `not_evaluated`; None if the sources are ranked at some dose."""
        return self.not_evaluated.get("sources")

    @property
    def trained(self) -> tuple[Dose, ...]:
        """Doses that did not diverge."""
        return tuple(dose for dose in self.doses if dose.divergence is None)

    @property
    def ranked(self) -> tuple[Dose, ...]:
        """Doses at which the sources are ranked."""
        return tuple(dose for dose in self.doses if dose.not_evaluated is None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the sources by gain, at the first dose that ranks them, or else the first that did not diverge."""
        return tuple(source.name for dose in (*self.ranked, *self.trained)[:1] for source in dose.sources)

    @property
    def best(self) -> tuple[str, ...]:
        """Sources that are not significantly worse than the first at any ranked dose, in the order of `names`."""
        leading = [{dose.sources[0].name, *dose.tied_with_first} for dose in self.ranked]
        return tuple(name for name in self.names if leading and all(name in group for group in leading))

    @property
    def doubts(self) -> tuple[str, ...]:
        """Doubts of all doses, without repeats."""
        return tuple(dict.fromkeys(doubt for dose in self.trained for doubt in dose.doubts))
