"""A whole run, and the relations between its sources: overlaps, differences, crossings and orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from secid.results.inputs import Displayable, EncoderInfo, IdfInfo
from secid.results.sources import ControlResult, SourceReport

if TYPE_CHECKING:
    import pyarrow

# Relations between sources: overlaps, differences, crossings, and the order on parts of the data.

Number = Literal["score", "trace"]
"""Number that a pair is compared by: the score, or tr M if too many sets of shared queries would need matrices."""


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Overlap of two sources: shared queries and documents over the smaller source's; mean Jaccard of a query's
    negatives."""

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

    def negated(self) -> PairedDifference:
        """Return second source minus first."""
        ends = self.interval_95
        return PairedDifference(value=-self.value, interval_95=ends and (-ends[1], -ends[0]))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two sources on the queries that both have, the higher-scored first. Source: METHOD 16.1.

    p values are two-sided; p_holm over all pairs of the run.   established: p_holm below 0.05.
    queries_needed_50, _80: distinct queries that detect such a difference with 50 % and 80 % power; None if the
    difference is 0.
    number: if "trace", difference_nats and everything derived from it are differences of tr M.
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
    """One look of an early stop.

    alpha: largest probability of a wrong order up to this look.   n_decided: pairs decided up to this look.
    """

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
    """Course of a run with --until-ranked. confidence: probability that every declared order is that of the full files.
    Ties are declared pair by pair, each at the look's share of the error.

    planned_looks: queries of every planned look, whether it took place or not.
    n_texts_encoded: distinct texts that the looks needed.   n_texts: distinct texts that scoring without looks would
    need. Both include cached texts, and neither includes texts that max_records or first_k left out.
    """

    confidence: float
    tie_nats: float | None
    planned_looks: tuple[int, ...] = ()
    looks: tuple[Look, ...]
    pairs: tuple[EarlyPair, ...]
    undecided: tuple[tuple[str, str], ...]
    n_texts_encoded: int
    n_texts: int


# The order of sources under other settings and encoders.

PROBE_METRIC = "gain in ndcg@10"
"""Name of the downstream metric if numbers are compared with the result of a probe."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Agreement of one number of a run with one downstream metric, over the sources that have both.

    Correlations lie in [-1, 1]; None if one side is constant. n_pairs_alike of n_pairs are ordered the
    same way.   first: the source with the highest number; best: the source with the highest metric. Both are None if
    several share the highest value, and best also if a probe ties it with another.   top_1_regret: loss of the metric
    from taking `first`, >= 0; None without `first`.
    Intervals cover the true value with a probability of at least 95 %; None if no standard error is known.
    errors_of: errors that the intervals of the correlations include, "scores", "outcomes". The regret's interval
    includes only those of the outcomes.
    abstained: reason why the metric's probe ranks nothing, so that it has no best source; None if it does rank.
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
    """A fact that affects how to read the scores. source: the source concerned; None for the whole run.

    values : its numbers and names, by kind. noisy_encoder: distance, limit. inactive_lexical_gate: tokenizer, coverage
    of the positives, best (another tokenizer), best_positives, best_negatives, helps, for_all. misread_words:
    tokenizer, effect (cut, fused, decomposed), best, sources (shares of texts). few_queries: n_queries.
    few_shared_queries: first, second, n_shared_queries, n_apart, n_pairs. own_queries: n_common, n_smallest,
    n_largest. chosen_queries: n_queries of the run, sources (for each its queries, and the hardness of the other
    sources on these and on the rest). traces_compared: n_traces, n_pairs. unequal_sizes: budget. no_slice_value,
    mixed_slice_values: column, n_records. no_common_slice_value: column, sources (values of each).
    """

    kind: str
    source: str | None = None
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Merged:
    """The merge of a run from shards.

    n_texts         : distinct queries and passages of the whole run.   n_texts_held: sum over shards, so that a text
                      in several shards counts in each. Their ratio is the repeated encoding.
    sampled_queries : queries of each source that were sampled for everything except `sources` and `comparisons`, and
                      for the sources' hardness, languages and findings of the random reference; None if all were used.
    """

    n_shards: int
    n_texts: int
    n_texts_held: int
    sampled_queries: int | None


@dataclass(frozen=True, kw_only=True, repr=False)
class Run(Displayable):
    """One run: the settings, the encoder, the ranked sources, and the time it took.

    budget: the B of the ranking; 1 is the paper's score.
    one_positive: True if no query of the files and of a collection's qrels has a second labelled positive.
    analyses: results by name of the analysis (secid.analyses.registry), without analyses that were not requested or
        have no result. Each type is described where it is computed.
    merged: the merge of a run from shards; None for a run of one process.
    folder: the run folder as named; None if none was written.
    probe: the command that probes the same sources, without --run; None if it cannot be typed again, or a
        source has too few queries.
    warnings: facts that affect how to read the scores.
    without_triplets: sources without a triplet in files with other sources, each with the left-out rows by reason.
    not_evaluated: name of a part that could not be computed, and the kind of reason (pages.glossary.REASONS).
    Older reports lack parts that have a default.
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
        """True if the run folder holds only sums, as for a merge, whose rows are in the run folders of its shards."""
        return self.merged is not None and self.merged.sampled_queries is not None

    @property
    def rows_folder(self) -> str | None:
        """The run folder for commands on rows; None if it holds no rows or was not written."""
        return None if self.has_rows_elsewhere else self.folder

    def metrics(self) -> dict[str, float]:
        """Return the numbers of each source under "SOURCE/NAME", sorted, for experiment trackers.

        NAME is a key of `SourceReport.flat`. Values that are None or not finite are left out.
        """
        by_name = {f"{source.name}/{name}": value for source in self.sources for name, value in source.flat().items()}
        numbers = ((name, value) for name, value in sorted(by_name.items()) if isinstance(value, int | float))
        return {name: value for name, value in numbers if isfinite(value)}

    def to_arrow(self) -> pyarrow.Table:
        """Return a table with a row per source, with its texts and numbers; see secid.notebook.sources_table."""
        return import_module("secid.notebook").sources_table(self)

    def to_pandas(self) -> Any:
        """Return the table of `to_arrow` as a pandas DataFrame. Raises ModuleNotFoundError without pandas."""
        return self.to_arrow().to_pandas()
