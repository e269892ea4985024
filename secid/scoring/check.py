"""`secid check`: what is in the sources and what is wrong with them, without an encoder. `secid audit`: their negatives
against relevance judgements, under the target encoder and a guide."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secid.analyses.audit import AuditedNegatives, source_audit
from secid.analyses.overlap import Listed, overlaps
from secid.arrays import among, distinct, pairs
from secid.encode import Encoder, smallest_distance
from secid.errors import InputError, UsageError
from secid.findings.copies import has_one_positive
from secid.findings.judgements import OTHER_COLLECTION, Judgements, Leaks, corpus_forms, read_judgements
from secid.findings.lexical_gate import CoverageSample, inactive_gate, misread, queries_without_tokens
from secid.findings.summary import (
    TOKENS_BY,
    Case,
    Matcher,
    lengths_of,
    spread,
    text_findings,
    text_lengths,
    wordless_finding,
)
from secid.findings.texts import text_rules
from secid.measure.blocks import Triplets
from secid.measure.gates import Dots
from secid.measure.sweep import sweep
from secid.pool import SPLITTERS, Plan, PlannedSource, bad_reasons
from secid.pool.make import select_records
from secid.pool.normal_form import text_forms
from secid.pool.reading import read_plan
from secid.progress import Clock, Progress
from secid.read import Reader
from secid.read.collection import Collection, noted_collection
from secid.read.evaluation import EvaluationSet
from secid.read.sources import changed_files
from secid.records import Source
from secid.results import EncoderInfo, SourceReport
from secid.results.catalogue import CAUTIONS
from secid.results.check import (
    AUDIT_SCHEMA_VERSION,
    CHECK_SCHEMA_VERSION,
    Audit,
    AuditedSource,
    Check,
    Evaluation,
    Labels,
    SourceCaution,
    TextFacts,
    to_drop,
)
from secid.results.inputs import STANDARD_INPUT, hidden, repair_command, typed
from secid.scoring.encoders import fitting, load_guide
from secid.settings import READING, Resolved, Settings, flag_of
from secid.triplets.embedding import Embedder
from secid.triplets.estimates import comparable_keys
from secid.triplets.guide import GuideScores, guide_scores
from secid.triplets.table import triplets_of
from secid.version import VERSION

SAVED = "check.json"
"""File name in the printed command that saves a check."""


def check_sources(
    sources: Sequence[Source | Reader],
    resolved: Resolved,
    folder: Path,
    progress: Progress,
    evaluation: EvaluationSet | None = None,
) -> Check:
    """Counts, lengths and findings of each source. Too many malformed rows are an error, as in `secid score`.

    folder     : an empty folder for spool files; the caller removes it.
    evaluation : a set whose queries and relevant passages are searched for in the sources.
    Raises what opening raises (SecidError), and NothingToScoreError for a source without any triplet.
    Source: METHOD 1, 2.3, 4.
    """
    began, settings = time.perf_counter(), resolved.values
    if settings.tokenizer not in SPLITTERS:
        raise UsageError(
            f"the tokenizer {settings.tokenizer!r} needs an encoder", remedy=f"one of {', '.join(SPLITTERS)}"
        )
    reading = replace(settings, positives="all", on_bad="skip", first_k=None, max_records=None)
    one_positive: list[bool] = []
    plan, readers = read_plan(
        sources,
        reading,
        folder,
        progress,
        text_rules=text_rules,
        look=lambda whole: one_positive.append(has_one_positive(whole)),
    )
    try:
        settings = fitting(plan, resolved, progress).values
        checker = _Checker(plan, settings, folder, progress, evaluation)
        files = {reader.source.name: reader for reader in readers}
        checked = tuple(checker.source(planned, files[planned.source.name]) for planned in plan.sources)
        checker.close()
    finally:
        plan.close()
    listed = [Listed(item.name, item.query[item.triplet_record()], item.negatives) for item in plan.sources]
    return Check(
        schema_version=CHECK_SCHEMA_VERSION,
        secid_version=VERSION,
        tokenizer=settings.tokenizer,
        tokens_by=TOKENS_BY,
        evaluation=None if evaluation is None else _evaluation_of(evaluation),
        sources=tuple(source for source, _ in checked),
        texts={source.name: facts for source, facts in checked},
        overlaps=overlaps(listed),
        failed=(),
        one_positive=one_positive[0],
        n_of_qrels=plan.n_labelled[1],
        settings={name: entry for name, entry in resolved.document().items() if name in READING},
        seconds=round(time.perf_counter() - began, 3),
    )


def with_commands(check: Check, specs: Sequence[str], given: Mapping[str, object]) -> Check:
    """The check with the commands that write its sources without their defects; as it is where none needs them.

    specs, given : the sources, and the settings that are not left to files and environment.
    """
    unusable = STANDARD_INPUT in specs or any(map(hidden, specs))
    if unusable or not any(to_drop(source) for source in check.sources):
        return check
    flags = [word for name, value in given.items() if value is not None for word in typed(name, value)]
    sources = tuple(
        replace(source, repair=repair_command(SAVED, source.name, to_drop(source), source.files[0].path))
        if to_drop(source)
        else source
        for source in check.sources
    )
    return replace(check, sources=sources, save=shlex.join(["secid", "check", *specs, *flags, "-o", SAVED]))


def _evaluation_of(evaluation: EvaluationSet) -> Evaluation:
    return Evaluation(
        folder=evaluation.folder,
        qrels=evaluation.qrels,
        n_queries=len(evaluation.queries),
        n_relevant_passages=len(evaluation.passages),
    )


class _Checker:
    """What is looked up once for all sources."""

    def __init__(
        self, plan: Plan, settings: Settings, folder: Path, progress: Progress, evaluation: EvaluationSet | None
    ) -> None:
        self._plan, self._settings = plan, settings
        self._matcher = Matcher(plan)
        n_texts = len(plan.queries) + len(plan.passages)
        progress.start("look", n_texts, "texts")
        self._queries = text_lengths(plan.queries, progress.advance)
        self._passages = text_lengths(plan.passages, progress.advance)
        self._wordless = queries_without_tokens(plan.queries, settings.tokenizer)
        self._leaks: Leaks | None = None
        if evaluation is not None:
            progress.start("compare", n_texts, "texts")
            self._leaks = Leaks(plan, evaluation, progress.advance)
        self._gates = CoverageSample(plan, folder, settings.seed)

    def close(self) -> None:
        """Lets go of the spool files."""
        self._gates.close()

    def source(self, planned: PlannedSource, reader: Reader) -> tuple[SourceReport, TextFacts]:
        """Everything that is said of one source."""
        settings = self._settings
        gate, coverage = inactive_gate(planned, self._gates, settings.tokenizer)
        query = planned.query[planned.triplet_record()]
        listed = distinct(pairs(query, planned.negatives, len(self._plan.passages))) // len(self._plan.passages)
        texts = {
            "query": (self._queries, distinct(planned.query)),
            "positive": (self._passages, distinct(planned.positives)),
            "negative": (self._passages, distinct(planned.negatives)),
        }
        found = text_findings(self._plan, planned, self._matcher, settings)
        report = SourceReport(
            name=planned.name,
            files=reader.content(),
            split=planned.split,
            rows=planned.tally.row_counts(planned.n_records),
            n_queries=len(texts["query"][1]),
            n_triplets=planned.n_triplets,
            status=found.status.status,
            n_flagged=found.status.flagged.n,
            flagged_share=found.status.flagged.estimate.value,
            findings=(*found.findings, wordless_finding(self._plan, planned, self._wordless, settings)),
            finding_overlaps=found.overlaps,
            languages=found.languages,
        )
        facts = TextFacts(
            n_positives=len(texts["positive"][1]),
            n_negatives=len(texts["negative"][1]),
            negatives_per_query=spread(np.unique(listed, return_counts=True)[1]),
            lengths={role: lengths_of(lengths, ids) for role, (lengths, ids) in texts.items()},
            positive_coverage_mean=coverage,
            cautions=tuple(
                _caution(name, case, settings)
                for name, case in {
                    **_row_cautions(planned, settings.examples),
                    "tokenizer_misfit": self._misfit(planned),
                    "inactive_lexical_gate": gate,
                    "changed_since_mined": _changed(reader),
                    **({} if self._leaks is None else self._leaks.cases(planned, settings.examples)),
                }.items()
            ),
        )
        return report, facts

    def _misfit(self, planned: PlannedSource) -> Case:
        """Sampled texts of a source whose words the tokenizer misreads."""
        fit = misread(self._plan, planned, self._settings.tokenizer, self._settings.seed)
        values = {"n_texts": fit.n_texts, "tokenizer": self._settings.tokenizer}
        return Case(fit.n, fit.fraction, values if fit.effect is None else {**values, "effect": fit.effect})


def _caution(name: str, case: Case, settings: Settings) -> SourceCaution:
    entry = CAUTIONS[name]
    limit = settings.max_bad_fraction if entry.limit is None else entry.limit
    return SourceCaution(
        name=name,
        n=case.n,
        fraction=case.fraction,
        limit=limit,
        exceeded=not case.fraction <= limit,
        values=case.values,
        examples=case.examples,
    )


def _changed(reader: Reader) -> Case:
    """Files whose manifest has another hash; those without one are not changed."""
    paths = [file.path for file in reader.files]
    n = len(changed_files(paths))
    return Case(n, n / len(paths))


def _row_cautions(planned: PlannedSource, n_examples: int) -> dict[str, Case]:
    """What the reader left out: malformed rows, and rows without negatives. Negatives without text are a finding."""
    tally = planned.tally
    bad, bare = bad_reasons(tally), {"no_negatives": tally.skipped.get("no_negatives", 0)}

    def case(reasons: Mapping[str, int]) -> Case:
        n, examples = sum(reasons.values()), (example for example in tally.examples if example.reason in reasons)
        return Case(n, min(1.0, n / max(1, tally.n_read)), reasons, tuple(examples)[:n_examples])

    return {"malformed_rows": case(bad), "rows_without_negatives": case(bare)}


Keys = npt.NDArray[np.uint64]


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
    """Counts and measures the labelled relevant negatives of each source.

    files : of qrels, as `label_files` gives them.   load : gives the encoder and its recipe; called once the labels
    fit.   folder : an empty folder for spool files and vectors; the caller removes it.
    Raises InputError for qrels of other texts and what reading and encoding raise (SecidError). Source: METHOD 10.
    """
    with clock.stage("labels"):
        collection = noted_collection(settings, progress)
        judgements = read_judgements(files, collection, settings.max_bad_fraction)
    with clock.stage("read"):
        plan, _ = read_plan(readers, settings, folder, progress, with_labels=False)
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
                own = replace(settings, guide_sample=None)  # labelled relevant negatives are too few for a sample
                pairs = [(rows, dots.query_negative.numpy()) for rows, dots in measured]
                by_guide = guide_scores(plan, pairs, guide, own, folder / "guide", progress, counts)
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
    """The sources cut to the queries that the judgements know, with the forms of their texts."""

    def __init__(
        self,
        plan: Plan,
        judgements: Judgements,
        collection: Collection | None,
        settings: Settings,
        files: Sequence[str],
    ) -> None:
        """collection: where texts are looked for; None where all were taken from it.

        Raises InputError where no query is judged, or too many positives of a source are no text of the collection.
        """
        self._plan, self._judgements, self._settings = plan, judgements, settings
        self._queries, self._passages = text_forms(plan.queries).form, text_forms(plan.passages).form
        known = [among(self._queries[planned.query], judgements.queries) for planned in plan.sources]
        if not any(flags.any() for flags in known):
            n_queries = len(distinct(np.concatenate([planned.query for planned in plan.sources])))
            raise InputError(
                f"judges none of the {n_queries:,} queries of the sources (it judges {len(judgements.queries):,})",
                where=", ".join(files),
                remedy=OTHER_COLLECTION,
            )
        self._sources = [
            select_records(planned, flags, np.ones(planned.n_triplets, np.bool_))
            for planned, flags in zip(plan.sources, known, strict=True)
        ]
        self._outside = np.zeros(len(self._passages), np.bool_)
        if collection is not None:
            self._outside = ~among(self._passages, corpus_forms(collection))
            for planned in self._sources:
                self._refuse_other_texts(planned)

    def _refuse_other_texts(self, planned: PlannedSource) -> None:
        positives = distinct(planned.positives)
        n_outside = int(self._outside[positives].sum())
        if n_outside > self._settings.max_bad_fraction * len(positives):
            raise InputError(
                f"{n_outside:,} of {len(positives):,} positives of {planned.name} are no text of the collection (at "
                f"most {100 * self._settings.max_bad_fraction:g} % may be), so its labels cannot match them",
                where=planned.source.paths[0],
                remedy=f"where the source leaves out titles: {flag_of('titles', False)}; else {OTHER_COLLECTION}",
            )

    def texts(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Rising ids of the queries and the passages that are compared."""
        none = np.zeros(0, np.int64)
        queries = [none, *(planned.query for planned in self._sources)]
        passages = [none, *(ids for planned in self._sources for ids in (planned.positives, planned.negatives))]
        return distinct(np.concatenate(queries)), distinct(np.concatenate(passages))

    def measured(self, embedder: Embedder, smallest_distance: float) -> list[tuple[Triplets, Dots]]:
        """The triplets of each source, and their cosines under the target."""
        policy, passages = self._settings.positives, self._plan.passages
        triplets = [triplets_of(planned, policy, embedder.vectors, passages) for planned in self._sources]
        return [(rows, sweep(embedder.vectors, rows, {}, (), smallest_distance).dots) for rows in triplets]

    def audit(self, place: int, rows: Triplets, dots: Dots, guide: GuideScores | None) -> AuditedSource:
        """The audit of one source."""
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
            None if guide is None else (guide.s_query_negative, guide.s_query_positive),
        )
