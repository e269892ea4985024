"""What `secid audit` reports: frozen results.

Fractions lie in [0, 1]. None always comes with a reason in `not_evaluated`. Source: METHOD 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from secid.results.inputs import EncoderInfo
from secid.results.shown import Shown

AUDIT_SCHEMA_VERSION = "1.1"

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The judgements. files: of qrels.   split: the one that was asked for; None for all.

    n_judgements : distinct pairs of the files, each with its highest grade.
    n_relevant : those of a grade above 0.   n_queries : distinct queries judged.
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
    """How well one rule finds the negatives that are labelled relevant.

    name : consistency (π, of the target alone), absolute, relative, maximum (the margins of METHOD 10).
    threshold : of the rule; None where it has no default, and then nothing is flagged.
    auroc : of its score, labelled relevant against all other audited negatives.
    precision : share of the flagged negatives that are labelled relevant.   recall : share of those that are flagged.
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
    """One source. n_negatives = n_labelled_relevant + n_labelled_non_relevant + n_unjudged + n_of_unjudged_queries.

    n_queries   : distinct queries that the qrels judge, and n_unjudged_queries those that they do not: the negatives of
                  the latter say nothing and are left out of every other number.
    labelled_relevant_share : of the negatives of judged queries.
    n_outside   : negatives of judged queries whose text the corpus lacks, so that nothing can label them.
    auroc_consistency : that of rules["consistency"].
    guide_rules       : the margins by the guide's scores; none without a guide. Its relative one flags the suspects.
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
        """The rule of this name. Raises KeyError where the source has no judged query."""
        return {rule.name: rule for rule in self.rules}[name]


@dataclass(frozen=True, kw_only=True, repr=False)
class Audit(Shown):
    """One audit. positives: the policy that chose the positive that each negative is compared with.

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
