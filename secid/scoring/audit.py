"""`secid audit`: compare the negatives of sources with relevance judgements, under the target encoder and a guide.

`audit_sources` measures the judged negatives. `rules` and `guide_rules` score them, `source_audit` compares the scores
with the labels.

Worked example: labelled relevant negatives score 0.9 and 0.4, the others 0.5 and 0.4. Of the four pairs, two are
ordered correctly and one is a tie, so the AUROC is (2 + ½ + 0) / 4 = 0.625. Source: METHOD 10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from secid import __version__
from secid.arrays import Flags, Floats, Index, distinct, is_known
from secid.encode import Encoder, smallest_distance
from secid.errors import InputError
from secid.findings.judgements import OTHER_COLLECTION, Judgements, forms_of, read_judgements
from secid.measure.blocks import Triplets
from secid.measure.false_negatives import RELATIVE_MARGIN, margin_flags
from secid.measure.gates import Dots
from secid.measure.separation import PassageScores, pooled_auc
from secid.measure.sweep import sweep
from secid.pool import Plan, PlannedSource
from secid.pool.make import select_records
from secid.pool.normal_form import text_forms
from secid.pool.reading import read_draft
from secid.progress import Clock, Progress
from secid.read import Reader
from secid.read.collection import Collection, open_noting_bad_rows
from secid.results import EncoderInfo
from secid.results.catalogue import NEAR_HARDNESS
from secid.results.check import AUDIT_SCHEMA_VERSION, Audit, AuditedRule, AuditedSource, Labels
from secid.scoring.encoders import load_guide
from secid.settings import Settings, flag_of
from secid.triplets.embedding import Embedder
from secid.triplets.estimates import Estimate, Names, clustered_mean, comparable_keys, wilson_interval
from secid.triplets.guide import GuideScores, guide_scores, random_rows
from secid.triplets.random_reference import passage_pool
from secid.triplets.table import triplets_of

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


def audit_sources(
    readers: Sequence[Reader],
    files: Sequence[str],
    split: str | None,
    load: Callable[[], tuple[Encoder, EncoderInfo]],
    settings: Settings,
    folder: Path,
    clock: Clock,
    progress: Progress,
) -> Audit:
    """Count the labelled relevant negatives of each source, and measure how well rules find them. Source: METHOD 10.

    files  : qrels files, as returned by `label_files`.   split : requested split, for the report.
    load   : function that returns the encoder and its recipe. It is called after the labels were checked.
    folder : empty folder for temporary files and vectors. The caller removes it.
    Raises InputError if the qrels do not fit the sources, and other SecidErrors of reading and encoding.
    """
    with clock.stage("labels"):
        collection = open_noting_bad_rows(settings, progress)
        judgements = read_judgements(files, collection, settings.max_bad_fraction)
    with clock.stage("read"):
        plan = read_draft(readers, settings, folder, progress, with_labels=False)[0].plan
    try:
        with clock.stage("match"):
            every = all(reader.uses_collection for reader in readers)
            auditor = _Auditor(plan, judgements, None if every else collection, settings, files)
        encoder, info = load()
        guide = load_guide(settings, encoder, progress)
        embedder = Embedder(plan.queries, plan.passages, encoder, settings, folder, progress)
        with clock.stage("encode") as counts:
            queries, passages = auditor.texts()
            embedder.need(queries, passages)
            counts.update(embedder.counts)
        with clock.stage("measure"):
            measured = auditor.measured(embedder, smallest_distance(encoder))
        embedder.close()
        by_guide: Sequence[GuideScores | None] = [None] * len(measured)
        if guide is not None:
            with clock.stage("guide") as counts:
                unsampled = replace(settings, guide_sample=None)  # a sample would hold too few relevant negatives
                pairs = [(rows, dots.query_negative.numpy()) for rows, dots in measured]
                pool = passage_pool(plan, [rows for rows, _ in measured])
                random = [random_rows(plan, rows, pool, settings.seed) for rows, _ in measured]
                by_guide = guide_scores(plan, pairs, guide, unsampled, folder / "guide", progress, counts, random)
        with clock.stage("audit"):
            results = tuple(
                auditor.audit(place, *of_target, of_guide)
                for place, (of_target, of_guide) in enumerate(zip(measured, by_guide, strict=True))
            )
    finally:
        plan.close()
    return Audit(
        schema_version=AUDIT_SCHEMA_VERSION,
        secid_version=__version__,
        encoder=info,
        guide=None if guide is None else guide.info,
        positives=settings.positives,
        labels=Labels(
            files=tuple(map(str, files)),
            split=split,
            n_judgements=judgements.n_distinct,
            n_relevant=judgements.n_relevant,
            n_queries=len(judgements.queries),
            unknown=judgements.unknown,
        ),
        sources=results,
        timing=clock.stages,
    )


class _Auditor:
    """Sources restricted to judged queries, and the normal forms of their texts."""

    def __init__(
        self,
        plan: Plan,
        judgements: Judgements,
        collection: Collection | None,
        settings: Settings,
        files: Sequence[str],
    ) -> None:
        """Restrict the sources to judged queries.

        collection : collection to look up the sources' texts in; None if all texts come from it.
        Raises InputError if no query is judged, or if too many positives of a source are not in the collection.
        """
        self._plan, self._judgements, self._settings = plan, judgements, settings
        self._queries, self._passages = text_forms(plan.queries).form, text_forms(plan.passages).form
        known = [is_known(self._queries[planned.query], judgements.queries) for planned in plan.sources]
        if not any(flags.any() for flags in known):
            n_queries = len(distinct(np.concatenate([planned.query for planned in plan.sources])))
            raise InputError(
                f"judges none of the sources' {n_queries:,} queries (queries judged: {len(judgements.queries):,})",
                where=", ".join(files),
                remedy=OTHER_COLLECTION,
            )
        self._sources = [
            select_records(planned, flags, np.ones(planned.n_triplets, np.bool_))
            for planned, flags in zip(plan.sources, known, strict=True)
        ]
        self._outside = np.zeros(len(self._passages), np.bool_)
        if collection is not None:
            self._outside = ~is_known(self._passages, distinct(forms_of(collection.passages())))
            for planned in self._sources:
                self._refuse_other_texts(planned)

    def _refuse_other_texts(self, planned: PlannedSource) -> None:
        positives = distinct(planned.positives)
        n_outside = int(self._outside[positives].sum())
        if n_outside > self._settings.max_bad_fraction * len(positives):
            raise InputError(
                f"{n_outside:,} of {len(positives):,} positives of {planned.name} are not in the collection (at most "
                f"{100 * self._settings.max_bad_fraction:g} % may be missing), so its labels do not fit them",
                where=planned.source.paths[0],
                remedy=f"if the source has no titles, add {flag_of('titles', False)}; otherwise {OTHER_COLLECTION}",
            )

    def texts(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the ascending ids of the queries and passages to encode."""
        none = np.zeros(0, np.int64)
        queries = [none, *(planned.query for planned in self._sources)]
        passages = [none, *(ids for planned in self._sources for ids in (planned.positives, planned.negatives))]
        return distinct(np.concatenate(queries)), distinct(np.concatenate(passages))

    def measured(self, embedder: Embedder, smallest_distance: float) -> list[tuple[Triplets, Dots]]:
        """Return the triplets of each source, and their cosines under the target encoder."""
        policy, passages = self._settings.positives, self._plan.passages
        triplets = [triplets_of(planned, policy, embedder.vectors, passages) for planned in self._sources]
        return [(rows, sweep(embedder.vectors, rows, {}, (), smallest_distance).dots) for rows in triplets]

    def audit(self, place: int, rows: Triplets, dots: Dots, guide: GuideScores | None) -> AuditedSource:
        """Audit one source. place: number of the source.   rows, dots, guide: its triplets and their scores."""
        planned, whole, plan = self._sources[place], self._plan.sources[place], self._plan
        queries, cluster = np.unique(rows.query, return_inverse=True)
        negatives = AuditedNegatives(
            grade=self._judgements.grades(self._queries[rows.query], self._passages[rows.negative]),
            cluster=cluster,
            names=comparable_keys(plan.queries.keys[queries]),
            share=np.ones(len(rows)) if rows.share is None else rows.share,
        )
        return source_audit(
            planned.name,
            negatives,
            dots.query_negative.numpy(),
            dots.query_positive.numpy(),
            self._outside[rows.negative],
            len(distinct(whole.query)) - len(queries),
            whole.n_triplets - planned.n_triplets,
            guide,
        )


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
        """Return the total weight of the flagged negatives, rounded to an integer."""
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
