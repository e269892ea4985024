"""`secid audit`: compare the negatives of sources with relevance judgements, under the target encoder and a guide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secid.analyses.audit import AuditedNegatives, source_audit
from secid.arrays import distinct, is_known
from secid.encode import Encoder, smallest_distance
from secid.errors import InputError
from secid.findings.judgements import OTHER_COLLECTION, Judgements, forms_of, read_judgements
from secid.measure.blocks import Triplets
from secid.measure.gates import Dots
from secid.measure.sweep import sweep
from secid.pool import Plan, PlannedSource
from secid.pool.make import select_records
from secid.pool.normal_form import text_forms
from secid.pool.reading import read_draft
from secid.progress import Clock, Progress
from secid.read import Reader
from secid.read.collection import Collection, open_noting_bad_rows
from secid.results import EncoderInfo
from secid.results.check import AUDIT_SCHEMA_VERSION, Audit, AuditedSource, Labels
from secid.scoring.encoders import load_guide
from secid.settings import Settings, flag_of
from secid.triplets.embedding import Embedder
from secid.triplets.estimates import comparable_keys
from secid.triplets.guide import GuideScores, guide_scores, random_rows
from secid.triplets.random_reference import passage_pool
from secid.triplets.table import triplets_of
from secid.version import VERSION


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
        secid_version=VERSION,
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
