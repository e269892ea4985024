"""The result of a run, and the relations between its sources: overlaps, comparisons, and agreement with outcomes."""

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

# Relations between sources: overlaps and comparisons.

ComparedNumber = Literal["score", "trace"]
"""Number that a pair is compared by: the score, or tr M if too many sets of shared queries would need a matrix."""


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Overlap of two sources.

    shared_query_fraction, shared_document_fraction : shared queries and documents, as a fraction of the smaller source.
    negative_jaccard_mean : mean Jaccard similarity of the negatives of a shared query; None without shared queries.
    """

    first: str
    second: str
    shared_query_fraction: float
    negative_jaccard_mean: float | None
    shared_document_fraction: float


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """Difference between the first and the second source on shared queries. interval_95: None with too few queries."""

    value: float
    interval_95: tuple[float, float] | None

    def negated(self) -> PairedDifference:
        """Return the difference between the second and the first source."""
        ends = self.interval_95
        return PairedDifference(value=-self.value, interval_95=ends and (-ends[1], -ends[0]))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Comparison of two sources on their shared queries, the higher-scored source first. Source: METHOD 16.1.

    p, p_holm : two-sided p value, without and with adjustment for all pairs of the run.
    established : True if p_holm is below 0.05. After an early stop, the level of the last look replaces 0.05.
    queries_needed_50, queries_needed_80 : number of distinct queries that would detect this difference with 50 % and
            80 % power; None if the difference supports no conclusion.
    number : if "trace", difference_nats and all numbers derived from it are differences in tr M.
    hardness : difference in hardness over the sampled queries.
    outscoring : difference in the share of negatives that outscore their positive. This and `hardness` are None if a
            source has no value, and in reports of earlier versions.
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
    number: ComparedNumber = "score"
    hardness: PairedDifference | None = None
    outscoring: PairedDifference | None = None


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look of an early stop.

    n_queries, n_texts_encoded : number of queries of this look, and of texts encoded so far.
    alpha : upper bound of the probability of a wrong order up to this look.
    n_decided : number of pairs decided up to this look.
    """

    n_queries: int
    n_texts_encoded: int
    alpha: float
    n_decided: int


@dataclass(frozen=True, kw_only=True)
class EarlyPair:
    """A decided pair. outcome: "ordered" (the first source scores higher) or "tied" (the gap is below `tie`)."""

    first: str
    second: str
    outcome: str
    n_queries: int
    difference_nats: float


@dataclass(frozen=True, kw_only=True)
class EarlyStop:
    """History of a run with --until-ranked.

    confidence : probability that all established orders match the orders in the full files. Ties are decided pair by
            pair, each with its part of the look's error.
    planned_looks : number of queries of every planned look, including looks that were not needed.
    undecided : pairs that are neither ordered nor tied.
    n_texts_encoded : number of distinct texts that the looks needed.   n_texts : number that scoring all queries would
            need. Both include cached texts, but not texts that max_records or first_k left out.
    """

    confidence: float
    tie_nats: float | None
    planned_looks: tuple[int, ...] = ()
    looks: tuple[Look, ...]
    pairs: tuple[EarlyPair, ...]
    undecided: tuple[tuple[str, str], ...]
    n_texts_encoded: int
    n_texts: int


# Agreement of a run's numbers with downstream results.

PROBE_METRIC = "gain in ndcg@10"
"""Name of the downstream metric of a probe."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Agreement between one number of a run and one downstream metric, over the sources that have both.

    kendall_tau_b, spearman_rho : correlations in [-1, 1]; None if one side is constant.
    n_pairs : number of pairs of sources.   n_pairs_alike : number of pairs that both sides order alike.
    first : source with the highest number; None if several share it.
    best  : source with the highest metric; None if several share it, or if the probe ties it with another or ranks
            nothing.
    top_1_regret : metric of the best source minus that of `first`, >= 0; None without `first`.
    *_interval_95 : intervals that cover the true value with a probability of at least 95 %; None if no standard error
            is known.
    errors_of : standard errors that the intervals of the correlations account for: "scores", "outcomes". The interval
            of the regret accounts only for "outcomes".
    abstained : reason why the metric's probe ranks nothing; None if it ranks the sources.
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


# The result of a run.

SCHEMA_VERSION = "1.0"


@dataclass(frozen=True, kw_only=True)
class RunWarning:
    """A fact that affects how to read the scores. source: the source that it concerns; None for the whole run.

    values : numbers and names in the warning's sentence, by kind:
        noisy_encoder : distance, limit.
        inactive_lexical_gate : tokenizer, coverage (of the positives), best (another tokenizer), best_positives,
            best_negatives, helps, for_all.
        misread_words : tokenizer, effect (cut, fused, decomposed), best, sources (shares of texts).
        few_queries : n_queries.
        few_shared_queries : first, second, n_shared_queries, n_apart, n_pairs.
        own_queries : n_common, n_smallest, n_largest.
        chosen_queries : n_queries (of the run), sources (for each, its number of queries, and the hardness of the other
            sources on these queries and on the rest).
        traces_compared : n_traces, n_pairs.
        unequal_sizes : budget.
        no_slice_value, mixed_slice_values : column, n_records.
        no_common_slice_value : column, sources (values in each source).
    """

    kind: str
    source: str | None = None
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Merged:
    """Facts about a run that was merged from shards.

    n_texts      : number of distinct queries and passages in the whole run.
    n_texts_held : the same, summed over shards, so a text in several shards counts once in each. The ratio
                   n_texts_held / n_texts shows how much encoding was repeated.
    sampled_queries : number of sampled queries per source; None if all were used. Everything except `sources` and
                   `comparisons` is computed from this sample. In `sources`, it gives hardness, languages and the
                   findings that compare with random passages.
    """

    n_shards: int
    n_texts: int
    n_texts_held: int
    sampled_queries: int | None


@dataclass(frozen=True, kw_only=True, repr=False)
class Run(Displayable):
    """The result of a run: settings, encoder, ranked sources and duration.

    budget : B of the ranking; 1 is the paper's score.
    analyses : results by name of the analysis (secid.analyses.registry). Analyses without a result are missing. The
        module of an analysis describes its type.
    one_positive : True if no query has a second labelled positive, in the files or in a collection's qrels.
    early_stop : history of a run with --until-ranked, or None.
    merged : facts about the shards of a merged run; None for a run in one process.
    folder : run folder as typed; None if none was written.
    probe : command that probes the same sources, without --run; None if it cannot be typed, or if a source has too few
        queries.
    warnings : facts that affect how to read the scores.
    without_triplets : number of skipped rows by reason, for each source without triplets in a file with other sources.
    not_evaluated : by name of each part that could not be computed, the kind of reason (pages.glossary.REASON_TEXTS).
    Older reports may lack fields that have a default.
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
        """Overlaps by the name of the first source."""
        grouped: dict[str, list[Overlap]] = {}
        for overlap in self.analyses.get("overlap", ()):
            grouped.setdefault(overlap.first, []).append(overlap)
        return grouped

    @property
    def has_rows_elsewhere(self) -> bool:
        """True if the run was merged, so its rows are in the shards' folders, not in the run folder."""
        return self.merged is not None and self.merged.sampled_queries is not None

    @property
    def rows_folder(self) -> str | None:
        """Run folder for commands that read rows; None if it has no rows or was not written."""
        return None if self.has_rows_elsewhere else self.folder

    def metrics(self) -> dict[str, float]:
        """Return {"SOURCE/NAME": number} for experiment trackers, sorted by key.

        NAME is a key of `SourceReport.flat`. Values that are None or not finite are left out.
        """
        by_name = {f"{source.name}/{name}": value for source in self.sources for name, value in source.flat().items()}
        numbers = ((name, value) for name, value in sorted(by_name.items()) if isinstance(value, int | float))
        return {name: value for name, value in numbers if isfinite(value)}

    def to_arrow(self) -> pyarrow.Table:
        """Return a table with one row per source, as secid.notebook.sources_table does."""
        return import_module("secid.notebook").sources_table(self)

    def to_pandas(self) -> Any:
        """Return the table of `to_arrow` as a pandas DataFrame. Raises ModuleNotFoundError without pandas."""
        return self.to_arrow().to_pandas()
