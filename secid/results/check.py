"""Results of `secid check` and `secid audit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from secid.errors import UsageError
from secid.results import Example, Overlap, SourceReport, defects_to_drop
from secid.results.catalogue import CAUTIONS, FINDINGS, TEXT_FINDINGS, known_finding
from secid.results.inputs import Displayable, EncoderInfo

# Results of `secid check`. Fractions lie in [0, 1].

CHECK_SCHEMA_VERSION = "1.0"


CHECKED_FINDINGS = (*TEXT_FINDINGS, "query_without_tokens")
"""Findings that `secid check` evaluates. They need no encoder."""
ANY_FINDING = "any"
"""Value of --fail-on that selects all findings and cautions."""


@dataclass(frozen=True, kw_only=True)
class SourceCaution:
    """One caution of the catalogue for one source.

    n, fraction : number and share of the items that the caution flags.   exceeded : True if fraction > limit.
    values      : numbers and names in the caution's sentence:
        malformed_rows, rows_without_negatives : number of rows by reason.
        tokenizer_misfit : n_texts (size of the sample), tokenizer, effect if n > 0 (cut, fused, decomposed).
        inactive_lexical_gate : coverage; also best and best_coverage if another tokenizer was tried.
        eval_query, eval_passage : n_exact, n_evaluation (matched texts of the evaluation set), n_evaluation_all;
            eval_passage also n_positives, n_negatives.
    """

    name: str
    n: int
    fraction: float
    limit: float
    exceeded: bool
    values: Mapping[str, int | float | str]
    examples: tuple[Example, ...]


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Minimum, median, 95th percentile and maximum of a count."""

    minimum: float
    median: float
    p95: float
    maximum: float


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Number and lengths of the distinct texts in one role (query, positive or negative)."""

    n_texts: int
    characters: Spread
    tokens: Spread


@dataclass(frozen=True, kw_only=True)
class TextFacts:
    """Facts about a source that only a check computes.

    n_listed                 : number of listed negatives. Shares of negatives are shares of this number.
    n_positives, n_negatives : number of distinct positives and negatives.
    negatives_per_query      : number of distinct negatives per distinct query.
    lengths                  : lengths of the distinct texts, by role (query, positive, negative).
    positive_coverage_mean   : mean lexical coverage of the labelled positives, METHOD 2.3.
    cautions                 : evaluated cautions, in the order of the catalogue.
    """

    n_listed: int
    n_positives: int
    n_negatives: int
    negatives_per_query: Spread
    lengths: Mapping[str, Lengths]
    positive_coverage_mean: float
    cautions: tuple[SourceCaution, ...]

    def caution(self, name: str) -> SourceCaution:
        """Return the caution with this name. Raises KeyError if it was not evaluated."""
        return {caution.name: caution for caution in self.cautions}[name]


def repair_defects(source: SourceReport) -> tuple[str, ...]:
    """Return the names of the defects to drop from a source; () unless its status is "repair"."""
    return defects_to_drop(source.findings) if source.status == "repair" else ()


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The evaluation set whose texts were searched in the sources.

    qrels : files that list the evaluation queries; () if all queries of the folder are used.
    """

    folder: str
    qrels: tuple[str, ...]
    n_queries: int
    n_relevant_passages: int


@dataclass(frozen=True, kw_only=True, repr=False)
class Check(Displayable):
    """Result of one check.

    tokens_by : unit that stands for tokens in the lengths (bytes).
    sources  : reports without score and hardness. A source's `repair` command reads the file that `save` writes; it is
               None for standard input.
    texts    : facts that only a check computes, by source.
    failed   : "source: finding" for each finding whose share is above its limit in --fail-on.
    one_positive : True if no query has a second labelled positive.
    n_of_qrels : number of labelled positives that only the qrels of a collection list.
    settings : settings of the files, each with its value and origin.
    save     : command that writes this check to a file; None unless a source has a repair.
    """

    schema_version: str
    secid_version: str
    tokenizer: str
    tokens_by: str
    evaluation: Evaluation | None
    sources: tuple[SourceReport, ...]
    texts: Mapping[str, TextFacts]
    overlaps: tuple[Overlap, ...]
    failed: tuple[str, ...]
    one_positive: bool
    n_of_qrels: int
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    save: str | None = None
    seconds: float


def parse_limits(specs: Sequence[str]) -> dict[str, float | None]:
    """Parse NAME or NAME=LIMIT to {name: limit}. A limit of None means the default limit.

    LIMIT is a fraction such as 0.01, or a percentage such as 1%.
    Raises UsageError for an unknown name (and suggests the nearest one), or a limit outside [0, 1].
    """
    limits: dict[str, float | None] = {}
    for spec in specs:
        name, separator, text = spec.partition("=")
        name = name.strip()
        known_finding(name, "--fail-on", (ANY_FINDING, *CAUTIONS))
        limits[name] = _limit(text, spec) if separator else None
    return limits


def _limit(text: str, spec: str) -> float:
    number = text.strip().removesuffix("%")
    try:
        limit = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        limit = float("nan")
    if not 0 <= limit <= 1:
        raise UsageError(
            f"{spec!r} needs a limit between 0 and 1", where="--fail-on", remedy="write a share, such as 0.01 or 1%"
        )
    return limit


def failures(check: Check, limits: Mapping[str, float | None]) -> tuple[str, ...]:
    """Return "source: finding" for each finding whose share is above its limit. A named limit overrides that of `any`.

    Raises UsageError for a finding that was not evaluated in any source, such as eval_query without --against-eval.
    """
    shares = [
        (source.name, name, share, default)
        for source in check.sources
        for name, share, default in (
            *((item.name, item.counted_share, FINDINGS[item.name].limit) for item in source.findings),
            *((item.name, item.fraction, item.limit) for item in check.texts[source.name].cautions),
        )
    ]
    names = {name for _, name, _, _ in shares}
    for name in limits:
        if name != ANY_FINDING and name not in names:
            remedy = "add --against-eval DIR" if name in CAUTIONS else "use `secid score`: it needs an encoder"
            raise UsageError(f"{name} was not evaluated", where="--fail-on", remedy=remedy)
    failed = []
    for source, name, share, default in shares:
        if name not in limits and (ANY_FINDING not in limits or default is None):
            continue
        given_limit = limits.get(name, limits.get(ANY_FINDING))
        limit = default if given_limit is None else given_limit
        # A finding passes if its share is at most the limit, so NaN does not pass.
        if limit is not None and not share <= limit:
            failed.append(f"{source}: {name}")
    return tuple(failed)


# Results of `secid audit`. Fractions lie in [0, 1]. If a value is None, `not_evaluated` has the reason.
# Source: METHOD 10.

AUDIT_SCHEMA_VERSION = "1.1"

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Relevance judgements. files: qrels files.   split: requested split; None for all.

    n_judgements : number of distinct (query, passage) pairs; a repeated pair has its highest grade.
    n_relevant   : number of pairs with a grade above 0.   n_queries : number of distinct judged queries.
    unknown      : number of unusable rows by reason: unknown_query, unknown_passage.
    """

    files: tuple[str, ...]
    split: str | None
    n_judgements: int
    n_relevant: int
    n_queries: int
    unknown: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class AuditedRule:
    """Accuracy of one rule in finding the negatives that are labelled relevant.

    name      : consistency (π, only for the target encoder), or a margin of METHOD 10: absolute, relative, maximum.
    threshold : default threshold of the rule; None if it has none, so that nothing is flagged.
    auroc     : AUROC of the rule's score, for negatives that are labelled relevant against all other audited negatives.
    precision : share of flagged negatives that are labelled relevant.
    recall    : share of labelled relevant negatives that are flagged.
    """

    name: str
    threshold: float | None
    n_flagged: int | None
    n_flagged_relevant: int | None
    n_flagged_non_relevant: int | None
    precision: float | None
    precision_interval_95: Interval | None
    recall: float | None
    recall_interval_95: Interval | None
    auroc: float | None
    auroc_interval_95: Interval | None


@dataclass(frozen=True, kw_only=True)
class AuditedSource:
    """Result for one audited source.

    n_negatives : n_labelled_relevant + n_labelled_non_relevant + n_unjudged + n_of_unjudged_queries.
    n_queries   : number of distinct queries with judgements.
    n_unjudged_queries, n_of_unjudged_queries : number of queries without judgements, and of their negatives. No other
                  number except n_negatives includes them.
    labelled_relevant_share : share of negatives that are labelled relevant, among judged queries.
    n_outside   : number of negatives of judged queries that cannot have a label, because their text is not in the
                  corpus.
    auroc_consistency : AUROC of the rule "consistency".
    guide_rules       : rules by the guide's scores; () without a guide. The rule hardness flags suspects.
    not_evaluated     : kind of reason (pages.glossary.REASON_TEXTS) for each missing number, by name.
    """

    name: str
    n_queries: int
    n_unjudged_queries: int
    n_negatives: int
    n_labelled_relevant: int
    n_labelled_non_relevant: int
    n_unjudged: int
    n_of_unjudged_queries: int
    n_outside: int
    labelled_relevant_share: float | None
    labelled_relevant_interval_95: Interval | None
    auroc_consistency: float | None
    auroc_consistency_interval_95: Interval | None
    rules: tuple[AuditedRule, ...]
    guide_rules: tuple[AuditedRule, ...]
    not_evaluated: Mapping[str, str]

    def rule(self, name: str) -> AuditedRule:
        """Return the rule with this name. Raises KeyError if the source has no judged query."""
        return {rule.name: rule for rule in self.rules}[name]


@dataclass(frozen=True, kw_only=True, repr=False)
class Audit(Displayable):
    """Result of one audit.

    positives : policy that chose the positive that each negative is compared with.
    guide     : recipe of the guide that scored the same negatives; None without a guide.
    """

    schema_version: str
    secid_version: str
    encoder: EncoderInfo
    guide: EncoderInfo | None
    positives: str
    labels: Labels
    sources: tuple[AuditedSource, ...]
    timing: Mapping[str, Any]
