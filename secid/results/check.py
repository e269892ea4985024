"""Frozen results of `secid check` and `secid audit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from secid.errors import UsageError
from secid.results import Example, Overlap, SourceReport, defects_to_drop
from secid.results.catalogue import CAUTIONS, FINDINGS, TEXT_FINDINGS, known_finding
from secid.results.inputs import Displayable, EncoderInfo

# Results of `secid check`. Fractions lie in [0, 1]. None always comes with a reason.

CHECK_SCHEMA_VERSION = "1.0"


CHECKED = (*TEXT_FINDINGS, "query_without_tokens")
"""Findings that `secid check` evaluates; they need no encoder."""
ANY = "any"
"""Name for all findings and cautions in --fail-on."""


@dataclass(frozen=True, kw_only=True)
class SourceCaution:
    """One caution of the catalogue for one source.

    n, fraction : number and share of the things that the caution concerns.   exceeded : fraction > limit.
    values      : numbers and names by key. malformed_rows, rows_without_negatives: rows by reason.
    tokenizer_misfit: n_texts (of the sample), tokenizer, effect if n > 0 (cut, fused, decomposed).
    inactive_lexical_gate: coverage; best, best_coverage if another tokenizer was tried. eval_query, eval_passage:
    n_exact, n_evaluation (matched texts of the evaluation set), n_evaluation_all; eval_passage also n_positives,
    n_negatives.
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
    """Minimum, median, 95th percentile and maximum of some counts."""

    minimum: float
    median: float
    p95: float
    maximum: float


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Number and lengths of the distinct texts of one role."""

    n_texts: int
    characters: Spread
    tokens: Spread


@dataclass(frozen=True, kw_only=True)
class TextFacts:
    """Facts of one source that only a check computes.

    n_positives, n_negatives : distinct texts.
    negatives_per_query      : distinct negatives of a distinct query.
    lengths                  : lengths of the distinct texts, by role (query, positive, negative).
    positive_coverage_mean   : mean lexical coverage of the labelled positives, METHOD 2.3.
    cautions                 : all that were evaluated, in the order of the catalogue.
    """

    n_positives: int
    n_negatives: int
    negatives_per_query: Spread
    lengths: Mapping[str, Lengths]
    positive_coverage_mean: float
    cautions: tuple[SourceCaution, ...]

    def caution(self, name: str) -> SourceCaution:
        """Return the caution of this name. Raises KeyError if it was not evaluated."""
        return {caution.name: caution for caution in self.cautions}[name]


def repair_defects(source: SourceReport) -> tuple[str, ...]:
    """Return the defects that a repaired copy of the source drops; () unless its status is "repair"."""
    return defects_to_drop(source.findings) if source.status == "repair" else ()


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The evaluation set that sources were searched for. qrels: files that name its queries; () if all count."""

    folder: str
    qrels: tuple[str, ...]
    n_queries: int
    n_relevant_passages: int


@dataclass(frozen=True, kw_only=True, repr=False)
class Check(Displayable):
    """One check. tokens_by: how tokens were counted (bytes). failed: "source: finding" above a limit of --fail-on.

    sources : reports without score and hardness. Run `repair` after the command in `save`; it is None for standard
              input.
    texts   : facts of each source that only a check computes, by the source's name.
    one_positive : True if no query has a second labelled positive.   n_of_qrels : labelled positives that only
    the qrels of a collection name.
    settings : settings of the files, by name with their origin.
    save : the command that writes this check to a file, for `repair` to read; None unless a source has a repair.
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
    """Parse NAME or NAME=LIMIT to {name: limit}; None keeps the default limit. LIMIT is a fraction, or ends in %.

    Raises UsageError for an unknown name (with the nearest known one) or a limit outside [0, 1].
    """
    limits: dict[str, float | None] = {}
    for spec in specs:
        name, separator, text = spec.partition("=")
        name = name.strip()
        known_finding(name, "--fail-on", (ANY, *CAUTIONS))
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
            f"{spec!r} needs a limit between 0 and 1", where="--fail-on", remedy="write 0.01 or 1%, as a share"
        )
    return limit


def failures(check: Check, limits: Mapping[str, float | None]) -> tuple[str, ...]:
    """Return "source: finding" for every finding above its limit. The limit of a name overrides that of `any`.

    Raises UsageError for a finding that was not evaluated in any source (an eval_ one without --against-eval).
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
        if name != ANY and name not in names:
            needs = "--against-eval DIR" if name in CAUTIONS else "an encoder: secid score"
            raise UsageError(f"{name} was not evaluated", where="--fail-on", remedy=f"it needs {needs}")
    failed = []
    for source, name, share, default in shares:
        if name not in limits and (ANY not in limits or default is None):
            continue
        given_limit = limits.get(name, limits.get(ANY))
        limit = default if given_limit is None else given_limit
        # A finding passes if its share is at most the limit, so NaN does not pass.
        if limit is not None and not share <= limit:
            failed.append(f"{source}: {name}")
    return tuple(failed)


# Results of `secid audit`. Fractions lie in [0, 1]. None always comes with a reason in `not_evaluated`.
# Source: METHOD 10.

AUDIT_SCHEMA_VERSION = "1.1"

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The relevance judgements. files: qrels files.   split: the requested split; None for all.

    n_judgements : distinct pairs of the files, each with its highest grade.
    n_relevant   : pairs with a grade above 0.   n_queries : distinct queries judged.
    unknown      : rows that label nothing, by reason: unknown_query, unknown_passage.
    """

    files: tuple[str, ...]
    split: str | None
    n_judgements: int
    n_relevant: int
    n_queries: int
    unknown: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class AuditedRule:
    """Accuracy of one rule at finding the negatives that are labelled relevant.

    name      : consistency (π, only for the target), absolute, relative, maximum (the margins of METHOD 10).
    threshold : threshold of the rule; None if it has no default, and then nothing is flagged.
    auroc     : AUROC of the rule's score, labelled relevant against all other audited negatives.
    precision : share of the flagged negatives that are labelled relevant.
    recall    : share of the negatives labelled relevant that are flagged.
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
    """One audited source.

    n_negatives : n_labelled_relevant + n_labelled_non_relevant + n_unjudged + n_of_unjudged_queries.
    n_queries   : distinct queries that the qrels judge.   n_unjudged_queries : queries that they do not judge; their
                  negatives give no evidence and are left out of every other number.
    labelled_relevant_share : share of the negatives of judged queries.
    n_outside   : negatives of judged queries whose text is not in the corpus, so that nothing can label them.
    auroc_consistency : AUROC of the rule "consistency".
    guide_rules       : the margins with the guide's scores; () without a guide. The relative one flags suspects.
    not_evaluated     : name of a number, and the kind of reason (pages.glossary.REASONS).
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
        """Return the rule of this name. Raises KeyError if the source has no judged query."""
        return {rule.name: rule for rule in self.rules}[name]


@dataclass(frozen=True, kw_only=True, repr=False)
class Audit(Displayable):
    """One audit. positives: the policy that chose the positive to compare each negative with.

    guide : the second scorer of the same negatives; None without one.
    """

    schema_version: str
    secid_version: str
    encoder: EncoderInfo
    guide: EncoderInfo | None
    positives: str
    labels: Labels
    sources: tuple[AuditedSource, ...]
    timing: Mapping[str, Any]
