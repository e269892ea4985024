"""Frozen results: what every page shows, with no torch, no encoder and no data behind it.

`secid.report.document` turns these into JSON and back; a field is described once, here.
Fractions lie in [0, 1]; `_nats` are natural-log units; None always comes with a reason beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = "1.0"


@dataclass(frozen=True)
class EncoderInfo:
    """The resolved recipe of the target encoder: enough to load exactly it again.

    rules: for each recipe field, which rule set it ("flag", "1_Pooling/config.json",
    "registry: e5", "default", ...).
    """

    name: str
    revision: str | None
    weights_sha256: str | None
    pooling: str
    query_prefix: str
    passage_prefix: str
    max_length: int | None
    normalize: bool
    dtype: str
    device: str
    dim: int
    fingerprint: str
    rules: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class IdfInfo:
    """The table of inverse document frequencies behind the coverage gate."""

    corpus: str
    tokenizer: str
    n_texts: int
    n_tokens: int
    sha256: str


@dataclass(frozen=True)
class InputFile:
    """One file a source was read from."""

    path: str
    sha256: str
    n_bytes: int
    schema: str
    mapping: str


@dataclass(frozen=True)
class Example:
    """One skipped row or odd negative, shown so that it can be found again."""

    reason: str
    path: str
    line: int
    detail: str


@dataclass(frozen=True, kw_only=True)
class TripletExample:
    """One triplet shown on a page, texts cut by the page. path, line: the row that first lists the negative.

    matched_terms: query terms in the negative, with IDF.
    """

    path: str
    line: int
    query: str
    positive: str
    negative: str
    s_query_positive: float
    s_query_negative: float
    s_positive_negative: float
    consistency: float
    locality: float
    coverage: float
    residual: float
    weight: float
    matched_terms: tuple[tuple[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Triplets of a source that share a trait worth looking at; buckets overlap. Source: METHOD 4.

    kind: "gate" or "structural".   rule: the condition with its thresholds, as text.
    n_triplets: a negative's pairs with several positives share it; rounded, at least 1 where any pair is in it.
    weight_fraction: share of the source's total weight.   score_nats: its part of the score, by the
    first-order split w u^T A^-1 u / N scaled so that all triplets add up to ECI; 0.0 where ECI is 0.
    """

    name: str
    kind: str
    rule: str
    n_triplets: int
    fraction: float
    weight_fraction: float
    score_nats: float
    examples: tuple[TripletExample, ...]


@dataclass(frozen=True, kw_only=True)
class Proxies:
    """Numbers that others rank by, in pair form and in record form (softmax over a record). Source: METHOD 3."""

    gradient_energy_pair: float
    gradient_energy_record: float
    mnrl_loss_pair: float
    mnrl_loss_record: float
    ambiguity_pair: float
    ambiguity_record: float


@dataclass(frozen=True, kw_only=True)
class AblationRow:
    """All sources under one setting, at the run's budget, where the base row is the run's own ranking.

    scores: ECI_B in nats by source, None where the setting leaves it no triplet (a small sample).
    order: names, highest first.   swapped: pairs ordered otherwise than at the base.
    stability: share of source pairs ordered as under the base, 1 = all; None where there is no pair.
    block_stability: the same within each block of sources that the user named.
    Of the rows of a sample: n_queries by source; intervals_95 of the score of all queries, as told by that many
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

    conclusion: which settings change the order, in words.   note: what must be read with it; "" where nothing must.
    """

    name: str
    base: str
    rows: tuple[AblationRow, ...]
    range_nats: Mapping[str, float]
    conclusion: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """What two sources share: queries and documents over the smaller source's; mean Jaccard of a query's negatives."""

    first: str
    second: str
    shared_query_fraction: float
    negative_jaccard_mean: float | None
    shared_document_fraction: float


@dataclass(frozen=True, kw_only=True)
class BudgetPoint:
    """ECI_B at one budget: log det(I + B M) in nats. Source: METHOD 7.

    bias_nats: how much a sample of this size falls short on average; at large budgets scores of
    unequal samples must not be compared (see Run.crossings for the equalised ones).
    """

    budget: float
    nats: float
    interval_95: tuple[float, float]
    bias_nats: float


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What is measured of any set of triplets, a source's or a control's. Means are over triplets.

    interval_95           : of the score, for the process that made the source, queries being the
                            sampling unit.   bias_nats : estimate of its finite-sample shortfall.
    effective_rank        : exp of the entropy of M's spectrum, 1 to d.
    diversity_fraction    : 1 - ECI / tr M: what the log-det takes off the trace, in [0, 1).
    top_eigenvalue_shares : shares of tr M on the largest eigenvalues, descending; empty where tr M = 0.
    """

    n_queries: int
    n_triplets: int
    eci_nats: float
    eci_per_dimension: float
    standard_error_nats: float
    interval_95: tuple[float, float]
    bias_nats: float
    trace: float
    frobenius: float
    effective_rank: float
    diversity_fraction: float
    top_eigenvalue_shares: tuple[float, ...]
    budget_curve: tuple[BudgetPoint, ...]
    consistency_mean: float
    locality_mean: float
    coverage_mean: float
    positive_coverage_mean: float
    residual_mean: float
    weight_mean: float
    pair_loss_mean: float
    inversion_fraction: float
    low_locality_fraction: float
    high_coverage_fraction: float


@dataclass(frozen=True, kw_only=True)
class SourceIdentity:
    """Where a source came from, and what became of its rows.

    n_read = n_used + sum(skipped). Used rows of the same query and positive form one of n_records records;
    n_not_sampled records more were left out by a sample (--max-records, --until-ranked).
    rank_group        : sources whose order is not established share one.
    probability_first : chance of the highest score under the joint normal of the scores.
    """

    name: str
    rank: int
    rank_group: int
    probability_first: float
    paths: tuple[InputFile, ...]
    schema: str
    n_read: int
    n_used: int
    n_records: int
    skipped: Mapping[str, int]
    n_not_sampled: int = 0
    dropped_negatives: Mapping[str, int]
    examples: tuple[Example, ...]


@dataclass(frozen=True, kw_only=True)
class SourceResult(Measurement, SourceIdentity):
    """One ranked source.

    gate_histograms : by gate (consistency, locality, coverage, weight) the triplets in 20 equal bins of [0, 1].
    bucket_overlaps : triplets in two buckets at once, by the names of both.
    ranked_point    : what it is ranked by where that is its score on equal numbers; None where it is that of the
                      budget curve.
    """

    proxies: Proxies
    gate_histograms: Mapping[str, tuple[int, ...]]
    buckets: tuple[Bucket, ...]
    bucket_overlaps: Mapping[str, Mapping[str, int]]
    ranked_point: BudgetPoint | None = None


@dataclass(frozen=True, kw_only=True)
class ControlIdentity:
    """kind: random, known_positive, shuffled, query_echo, bm25_pool, dense_pool. of: the source that a
    shuffled control was dealt from, else None. n_new_texts: texts encoded for it alone.
    """

    kind: str
    of: str | None
    n_new_texts: int


@dataclass(frozen=True, kw_only=True)
class Against:
    """One source minus one control, paired over the queries they share."""

    source: str
    difference_nats: float
    interval_95: tuple[float, float]
    z: float | None

    @property
    def placed(self) -> Literal["above", "level", "below"]:
        """Where the source stands; level where the interval holds 0 or nothing follows from it (no z)."""
        low, high = self.interval_95
        if self.z is None or low <= 0 <= high:
            return "level"
        return "above" if low > 0 else "below"


@dataclass(frozen=True, kw_only=True)
class ControlResult(Measurement, ControlIdentity):
    """One control, scored like a source and never ranked among them. Source: METHOD 6."""

    against: tuple[Against, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two sources, the higher-scored first. p values are two-sided; p_holm over all pairs of the run.

    established: p_holm below 0.05.   queries_needed_50, _80: distinct queries with which such a
    difference is found with 50 % and 80 % power; None where the difference is 0.
    """

    first: str
    second: str
    difference_nats: float
    standard_error_nats: float
    interval_95: tuple[float, float]
    n_shared_queries: int
    z: float | None
    p: float
    p_holm: float
    established: bool
    queries_needed_50: int | None
    queries_needed_80: int | None


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """The budget from which `second` scores higher than `first`, on equal numbers of queries and negatives."""

    first: str
    second: str
    budget: float


@dataclass(frozen=True, kw_only=True)
class SliceSource:
    """One source within one slice. bucket_fractions: by bucket, of the slice's triplets.

    score_nats, interval_95: of ECI_B at the run's budget, sources cut to equal size within the slice beyond budget 1;
    the other numbers are of all its triplets.
    """

    name: str
    rank: int
    rank_group: int
    n_queries: int
    n_triplets: int
    score_nats: float
    interval_95: tuple[float, float]
    trace: float
    consistency_mean: float
    locality_mean: float
    coverage_mean: float
    bucket_fractions: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Slice:
    """The records whose column `field` holds `value` ("" where it is absent), scored by themselves.

    sources: in rank order within the slice; sources without a record in it are missing.
    stability: share of source pairs ordered as in the whole run; None where there is no pair.
    """

    field: str
    value: str
    sources: tuple[SliceSource, ...]
    stability: float | None


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How one number of a run agrees with one downstream metric, over the sources that have both.

    Correlations lie in [-1, 1], None where one side is constant. n_pairs_alike of n_pairs are ordered the
    same way.   first: the source that the number puts first; best: the metric's; None where several share the highest
    value.   top_1_regret: what is lost of the metric by taking `first`, >= 0; None without one.
    Intervals cover the true value with a chance of 95 % or more, and are None where no standard error is known.
    errors_of: whose errors are in those of the correlations, "scores", "outcomes"; the regret's hold
    the outcomes' alone.
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


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look of an early stop. alpha: largest chance of a wrong order by then. n_decided: pairs decided so far."""

    n_queries: int
    n_texts_encoded: int
    alpha: float
    n_decided: int


@dataclass(frozen=True, kw_only=True)
class EarlyPair:
    """A decided pair. outcome: "ordered" (first scores higher) or "tied" (they differ by less than the tie)."""

    first: str
    second: str
    outcome: str
    n_queries: int
    difference_nats: float


@dataclass(frozen=True, kw_only=True)
class EarlyStop:
    """How a run with --until-ranked went. confidence: that every order declared is the full files'; ties
    are declared pair by pair, each at the look's share of the error.

    planned_looks: queries of every look that was planned, made or not.
    n_texts_encoded of n_texts: what the looks needed of the distinct texts read, cached ones in both.
    """

    confidence: float
    tie_nats: float | None
    planned_looks: tuple[int, ...] = ()
    looks: tuple[Look, ...]
    pairs: tuple[EarlyPair, ...]
    undecided: tuple[tuple[str, str], ...]
    n_texts_encoded: int
    n_texts: int


@dataclass(frozen=True, kw_only=True)
class EqualNumbers:
    """Distinct queries and negatives of each source, as many as every source has. Source: METHOD 7."""

    n_queries: int
    n_triplets: int


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run: the settings, the encoder, the ranked sources, and what it took.

    budget: the B that the ranking was made at; 1 is the paper's score.
    equal_numbers: to which sources are cut where they are compared at budgets beyond 1; None where they have the
    same numbers, or cannot be cut.
    warnings: findings about the run as a whole that change how the scores are to be read.
    not_evaluated: name of a part that could not be computed, and why.
    Parts with a default are absent from older reports.
    """

    schema_version: str
    secid_version: str
    settings: Mapping[str, Any]
    encoder: EncoderInfo
    idf: IdfInfo
    budget: float
    sources: tuple[SourceResult, ...]
    controls: tuple[ControlResult, ...]
    comparisons: tuple[Comparison, ...]
    crossings: tuple[Crossing, ...]
    overlaps: tuple[Overlap, ...]
    ablations: tuple[Ablation, ...]
    equal_numbers: EqualNumbers | None = None
    slices: tuple[Slice, ...] = ()
    early_stop: EarlyStop | None = None
    warnings: tuple[str, ...] = ()
    not_evaluated: Mapping[str, str]
    timing: Mapping[str, Any]
    environment: Mapping[str, Any]
