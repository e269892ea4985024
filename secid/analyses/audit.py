"""Audit of scores against labels: how well π and the margins find negatives that are labelled relevant.

    rules         for each rule, a score that rises with suspicion, and flags at the default threshold
    guide_rules   the same for the rules by a guide's scores
    auroc         probability that a labelled relevant negative has a higher score than another negative
    source_audit  all numbers of one source

Worked example: labelled relevant negatives score 0.9 and 0.4, the others 0.5 and 0.4. Of the four pairs, two are
ordered correctly and one is a tie, so the AUROC is (2 + ½ + 0) / 4 = 0.625. Source: METHOD 10.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from secid.arrays import Flags, Floats, Index
from secid.measure.margins import RELATIVE_MARGIN, margin_flags
from secid.measure.separation import PassageScores, pooled_auc
from secid.results.catalogue import NEAR_HARDNESS
from secid.results.check import AuditedRule, AuditedSource
from secid.triplets.estimates import Estimate, Names, clustered_mean, wilson_interval
from secid.triplets.guide import GuideScores

ABSOLUTE_MARGIN = 0.0
"""Absolute margin. The GIST losses of sentence-transformers mask negatives that score higher than the positive; the
margin also flags ties. Source: METHOD 10."""
SCORE_DECIMALS = 12
"""Number of decimals that scores are rounded to before they are compared. Another order of additions changes a float64
dot product by about 1e-16, which would break ties."""
NONE_RELEVANT = "none_relevant"
ALL_RELEVANT = "all_relevant"
NONE_FLAGGED = "none_flagged"
NO_THRESHOLD = "no_threshold"
NO_JUDGED_QUERY = "no_judged_query"


@dataclass(frozen=True)
class AuditRule:
    """A rule applied to T negatives.

    score : (T,) score that rises with suspicion.   threshold : default threshold, or None.
    flags : (T,) flags of negatives that the rule flags at its threshold; None without a threshold.
    """

    score: Floats
    threshold: float | None
    flags: Flags | None


def rules(s_qn: Floats, s_qp: Floats) -> dict[str, AuditRule]:
    """Return π and the margins, by name. s_qn, s_qp: (T,) scores of each negative and of its positive, by any scorer.

    The score for π is s_qn - s_qp. It orders negatives as falling π does at any temperature, but without the ties that
    rounding causes near π = 1. The score for the relative margin is -r, where r = (s_qp - s_qn) / |s_qp|. The margin
    flags negatives whose r is at most its value.
    """
    gap: Floats = np.round(s_qn - s_qp, SCORE_DECIMALS)
    size = np.abs(s_qp)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative: Floats = np.where(size > 0, (s_qn - s_qp) / size, np.where(s_qn >= s_qp, np.inf, -np.inf))
    return {
        "consistency": AuditRule(gap, 0.5, gap > 0),
        "absolute": AuditRule(gap, ABSOLUTE_MARGIN, margin_flags(s_qn, s_qp, "absolute", ABSOLUTE_MARGIN)),
        "relative": AuditRule(
            np.round(relative, SCORE_DECIMALS), RELATIVE_MARGIN, margin_flags(s_qn, s_qp, "relative", RELATIVE_MARGIN)
        ),
        "maximum": AuditRule(np.round(s_qn, SCORE_DECIMALS), None, None),
    }


def guide_rules(guide: GuideScores) -> dict[str, AuditRule]:
    """Return the rules by a guide's scores, by name. Hardness is the rule that flags suspects.

    A negative without a hardness, because its positive scores no higher than random passages, comes last.
    """
    base = rules(guide.s_query_negative, guide.s_query_positive)
    hardness = np.nan_to_num(np.round(guide.hardness(), SCORE_DECIMALS), nan=-np.inf)
    return {
        "absolute": base["absolute"],
        "hardness": AuditRule(hardness, NEAR_HARDNESS, guide.suspect()),
        "maximum": base["maximum"],
    }


@dataclass(frozen=True)
class AuditedNegatives:
    """The T audited negatives of a source. Their queries have judgements in the qrels.

    grade   : (T,) grade of each negative. Grades above 0 are relevant; NaN is unjudged.
    cluster : (T,) number of each negative's query in `names`.   names : (Q,) names of the queries.
    share   : (T,) weight of each negative.
    """

    grade: Floats
    cluster: Index
    names: Names
    share: Floats

    @property
    def relevant(self) -> Flags:
        """(T,) flags of negatives that are labelled relevant."""
        return np.asarray(self.grade > 0)

    def n(self, flags: Flags) -> int:
        """Return the number of flagged negatives, each with its weight, rounded to an integer."""
        return round(float(self.share[flags].sum()))

    def share_of(self, flags: Flags, subset: Flags) -> Estimate:
        """Return the share of flagged negatives within `subset`. `subset` must flag at least one negative."""
        present, cluster = np.unique(self.cluster[subset], return_inverse=True)
        return clustered_mean(flags[subset].astype(np.float64), cluster, self.names[present], self.share[subset])

    def n_queries(self, subset: Flags) -> int:
        """Count the distinct queries of the negatives that `subset` flags."""
        return len(np.unique(self.cluster[subset]))


def auroc(score: Floats, negatives: AuditedNegatives) -> Estimate | None:
    """Return P(score of a relevant negative > score of another) + ½ P(equal), over all such pairs.

    None if no negative, or every negative, is relevant. A pair's weight is the product of its two shares.
    Source: METHOD 10.
    """
    relevant = negatives.relevant
    if relevant.all() or not relevant.any():
        return None
    columns = score, negatives.cluster, negatives.share
    one, other = (
        PassageScores(*(torch.from_numpy(column[flags]) for column in columns)) for flags in (relevant, ~relevant)
    )
    value, _, influence = pooled_auc(one, other, len(negatives.names))
    return Estimate(value, negatives.names, influence.numpy())


def auroc_interval(estimate: Estimate, negatives: AuditedNegatives) -> tuple[float, float]:
    """Return the 95 % interval of an AUROC by Wilson's formula, which stays in [0, 1] and is not empty at 0 or 1.

    n is the number of queries on the side with fewer, because other queries say nothing about that side's scores.
    """
    relevant = negatives.relevant
    return wilson_interval(estimate, min(negatives.n_queries(relevant), negatives.n_queries(~relevant)))


def source_audit(
    name: str,
    negatives: AuditedNegatives,
    s_qn: Floats,
    s_qp: Floats,
    outside: Flags,
    n_unjudged_queries: int,
    n_of_unjudged_queries: int,
    guide: GuideScores | None = None,
) -> AuditedSource:
    """Audit one source.

    s_qn, s_qp : (T,) scores of each negative and of its positive.
    outside    : (T,) flags of negatives whose text is not in the corpus.
    n_unjudged_queries    : number of queries without judgements.
    n_of_unjudged_queries : number of negatives of these queries.
    guide      : scores of every negative by a guide, or None. Its rules are separate. Its π would equal its absolute
                 margin.
    """
    relevant, has_grade = negatives.relevant, ~np.isnan(negatives.grade)
    everything = np.ones(len(relevant), np.bool_)
    missing: dict[str, str] = {}
    numbers: tuple[AuditedRule, ...] = ()
    by_guide: tuple[AuditedRule, ...] = ()
    share = None
    if not len(relevant):
        missing["audit"] = NO_JUDGED_QUERY
    else:
        share = negatives.share_of(relevant, everything)
        numbers = tuple(_audit_rule(key, rule, negatives, missing) for key, rule in rules(s_qn, s_qp).items())
        if guide is not None:
            rules_of_guide = guide_rules(guide)
            by_guide = tuple(
                _audit_rule(key, rule, negatives, missing, "guide's ") for key, rule in rules_of_guide.items()
            )
    consistency = next(iter(numbers), None)
    n_negatives = negatives.n(everything)
    return AuditedSource(
        name=name,
        n_queries=len(negatives.names),
        n_unjudged_queries=n_unjudged_queries,
        n_negatives=n_negatives + n_of_unjudged_queries,
        n_labelled_relevant=negatives.n(relevant),
        n_labelled_non_relevant=negatives.n(has_grade & ~relevant),
        n_unjudged=n_negatives - negatives.n(relevant) - negatives.n(has_grade & ~relevant),
        n_of_unjudged_queries=n_of_unjudged_queries,
        n_outside=negatives.n(outside),
        labelled_relevant_share=None if share is None else share.value,
        labelled_relevant_interval_95=None if share is None else wilson_interval(share),
        auroc_consistency=None if consistency is None else consistency.auroc,
        auroc_consistency_interval_95=None if consistency is None else consistency.auroc_interval_95,
        rules=numbers,
        guide_rules=by_guide,
        not_evaluated=missing,
    )


def _audit_rule(
    name: str, rule: AuditRule, negatives: AuditedNegatives, missing: dict[str, str], whose: str = ""
) -> AuditedRule:
    """Compute the numbers of a rule. Reasons for missing ones go to `missing`, with the prefix `whose`."""
    relevant = negatives.relevant
    curve, flags = auroc(rule.score, negatives), rule.flags
    one_class = NONE_RELEVANT if not relevant.any() else ALL_RELEVANT
    if curve is None:
        missing["auroc"] = one_class
    precision = recall = None
    if flags is None:
        missing[f"precision and recall of {whose}{name}"] = NO_THRESHOLD
    else:
        precision = negatives.share_of(relevant, flags) if flags.any() else None
        recall = negatives.share_of(flags, relevant) if relevant.any() else None
        if precision is None:
            missing[f"precision of {whose}{name}"] = NONE_FLAGGED
        if recall is None:
            missing["recall"] = one_class
    return AuditedRule(
        name=name,
        threshold=rule.threshold,
        n_flagged=None if flags is None else negatives.n(flags),
        n_flagged_relevant=None if flags is None else negatives.n(flags & relevant),
        n_flagged_non_relevant=None if flags is None else negatives.n(flags & (negatives.grade <= 0)),
        auroc=None if curve is None else curve.value,
        auroc_interval_95=None if curve is None else auroc_interval(curve, negatives),
        precision=None if precision is None else precision.value,
        precision_interval_95=None if precision is None else wilson_interval(precision),
        recall=None if recall is None else recall.value,
        recall_interval_95=None if recall is None else wilson_interval(recall),
    )
