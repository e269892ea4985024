"""A whole run, and what was found between its sources: overlaps, differences, crossings and orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from secid.results.inputs import EncoderInfo, IdfInfo, Shown
from secid.results.sources import ControlResult, SourceReport

if TYPE_CHECKING:
    import pyarrow

# What was found between sources: overlaps, differences, crossings, and the order on parts of the data.

Number = Literal["score", "trace"]
"""Number that a pair is compared by: the score, or tr M if too many sets of shared queries would need a matrix."""


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """What two sources share: queries and documents over the smaller source's; mean Jaccard of a query's negatives."""

    first: str
    second: str
    shared_query_fraction: float
    negative_jaccard_mean: float | None
    shared_document_fraction: float


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """First source minus second on the queries that both have. interval_95 : None with too few queries."""

    value: float
    interval_95: tuple[float, float] | None

    def turned(self) -> PairedDifference:
        """Return second source minus first."""
        ends = self.interval_95
        return PairedDifference(value=-self.value, interval_95=ends and (-ends[1], -ends[0]))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two sources on the queries that both have, the higher-scored first. Source: METHOD 16.1.

    p values are two-sided; p_holm over all pairs of the run.   established: p_holm below 0.05.
    queries_needed_50, _80: distinct queries with which such a difference is found with 50 % and 80 % power; None where
    the difference is 0.
    number: if "trace", difference_nats and all that follows from it are differences of tr M.
    hardness: difference of the hardness over the sampled queries.   outscoring: difference of the share of negatives
    that outscore their positive. None if a side has no value, and in a report of an earlier version.
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
    number: Number = "score"
    hardness: PairedDifference | None = None
    outscoring: PairedDifference | None = None


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
    n_texts_encoded of n_texts: distinct texts that the looks needed, of those that scoring without them would; cached
    ones are in both, what max_records or first_k left out in neither.
    """

    confidence: float
    tie_nats: float | None
    planned_looks: tuple[int, ...] = ()
    looks: tuple[Look, ...]
    pairs: tuple[EarlyPair, ...]
    undecided: tuple[tuple[str, str], ...]
    n_texts_encoded: int
    n_texts: int


# How the order of sources fares under other settings and encoders.

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


# A whole run.

SCHEMA_VERSION = "1.0"


@dataclass(frozen=True, kw_only=True)
class RunWarning:
    """Something that changes how the scores are to be read. source: whose; None for the whole run.

    values : its numbers and names, by kind. noisy_encoder: distance, limit. inactive_lexical_gate: tokenizer, coverage
    of the positives, best (another tokenizer), best_positives, best_negatives, helps, for_all. misread_words:
    tokenizer, effect (cut, fused, decomposed), best, sources (shares of texts). few_queries: n_queries.
    few_shared_queries: first, second, n_shared_queries, n_apart, n_pairs. own_queries: n_common, n_smallest,
    n_largest. chosen_queries: n_queries of the run, sources (of each its queries, and the hardness of the other sources
    on these and on the rest). traces_compared: n_traces, n_pairs. unequal_sizes: budget. no_slice_value,
    mixed_slice_values: column, n_records. no_common_slice_value: column, sources (values of each).
    """

    kind: str
    source: str | None = None
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Merged:
    """How a run was put together from shards.

    n_texts         : distinct queries and passages of the whole.   n_texts_held: of all shards together, so that a text
                      in several shards counts in each: their ratio is what the shards encoded too often.
    sampled_queries : queries of each source that everything but `sources` and `comparisons` was measured on, and of
                      the sources hardness, languages and the findings of the random reference; None where it is all.
    """

    n_shards: int
    n_texts: int
    n_texts_held: int
    sampled_queries: int | None


@dataclass(frozen=True, kw_only=True, repr=False)
class Run(Shown):
    """One run: the settings, the encoder, the ranked sources, and what it took.

    budget: the B that the ranking was made at; 1 is the paper's score.
    one_positive: whether no query of the files and of a collection's qrels has a second labelled positive.
    analyses: result by name of the analysis (secid.analyses.registry), without those that were not asked for or have
    none. Each type is described where it is computed.
    merged: of a run of shards; None for a run of one process.
    folder: the run folder as it was named; None where none was written.
    probe: the command that probes the same sources, its --run left out; None where it cannot be typed again, or a
        source has too few queries.
    warnings: what changes how the scores are to be read.
    without_triplets: what was left out by reason of sources without a triplet, where their file holds others.
    not_evaluated: name of a part that could not be computed, and the kind of reason (pages.glossary.REASONS).
    Parts with a default are absent from older reports.
    """

    schema_version: str
    secid_version: str
    settings: Mapping[str, dict[str, Any]]
    encoder: EncoderInfo
    idf: IdfInfo
    budget: float
    sources: tuple[SourceReport, ...]
    controls: tuple[ControlResult, ...]
    comparisons: tuple[Comparison, ...]
    analyses: Mapping[str, Any]
    one_positive: bool = False
    early_stop: EarlyStop | None = None
    merged: Merged | None = None
    folder: str | None = None
    probe: str | None = None
    warnings: tuple[RunWarning, ...] = ()
    without_triplets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    not_evaluated: Mapping[str, str]
    timing: Mapping[str, Any]
    environment: Mapping[str, Any]

    @cached_property
    def overlaps_by_first(self) -> Mapping[str, Sequence[Overlap]]:
        """Overlaps by the name of the pair's first source."""
        grouped: dict[str, list[Overlap]] = {}
        for overlap in self.analyses.get("overlap", ()):
            grouped.setdefault(overlap.first, []).append(overlap)
        return grouped

    @property
    def has_rows_elsewhere(self) -> bool:
        """Whether the run folder holds sums alone: that of a merge, whose rows are in the run folders of its shards."""
        return self.merged is not None and self.merged.sampled_queries is not None

    @property
    def rows_folder(self) -> str | None:
        """The run folder that commands on rows name; None where it holds none."""
        return None if self.has_rows_elsewhere else self.folder

    def metrics(self) -> dict[str, float]:
        """The numbers of each source under "SOURCE/NAME", sorted, for experiment trackers.

        NAME is one of `SourceReport.flat`. What is None or not finite is left out.
        """
        named = {f"{source.name}/{name}": value for source in self.sources for name, value in source.flat().items()}
        numbers = ((name, value) for name, value in sorted(named.items()) if isinstance(value, int | float))
        return {name: value for name, value in numbers if isfinite(value)}

    def to_arrow(self) -> pyarrow.Table:
        """One row a source, with its texts and numbers; see secid.notebook.sources_table."""
        return import_module("secid.notebook").sources_table(self)

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame. Raises ModuleNotFoundError without pandas."""
        return self.to_arrow().to_pandas()
