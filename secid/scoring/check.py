"""`secid check`: describe sources and their defects, without an encoder."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from secid import __version__
from secid.analyses.overlap import SourceNegatives, overlaps
from secid.arrays import distinct, pairs
from secid.errors import UsageError
from secid.findings.copies import has_one_positive
from secid.findings.judgements import Leaks
from secid.findings.lexical_gate import CoverageSample, inactive_gate, misread, queries_without_tokens
from secid.findings.openings import PassageReader
from secid.findings.summary import (
    TOKENS_BY,
    CautionEvidence,
    Matcher,
    lengths_of,
    spread,
    text_findings,
    text_lengths,
    wordless_finding,
)
from secid.findings.texts import text_rules
from secid.pool import SPLITTERS, Plan, PlannedSource, bad_reasons
from secid.pool.reading import read_draft
from secid.progress import Progress
from secid.read import Reader
from secid.read.evaluation import EvaluationSet
from secid.read.sources import changed_files
from secid.records import STANDARD_INPUT, Source, has_hidden_characters
from secid.results import SourceReport
from secid.results.catalogue import CAUTIONS
from secid.results.check import CHECK_SCHEMA_VERSION, Check, Evaluation, SourceCaution, TextFacts, repair_defects
from secid.results.commands import flag_words, repair_command
from secid.scoring.encoders import choose_tokenizer
from secid.settings import READING_SETTINGS, Resolved, Settings

SAVED_CHECK_NAME = "check.json"
"""Name of the file in the suggested command that saves a check."""


def check_sources(
    sources: Sequence[Source | Reader],
    resolved: Resolved,
    folder: Path,
    progress: Progress,
    evaluation: EvaluationSet | None = None,
) -> Check:
    """Return counts, lengths and findings of each source. Source: METHOD 1, 2.3, 4.

    folder     : empty folder for temporary files. The caller removes it.
    evaluation : evaluation set whose queries and relevant passages are searched in the sources; None for no search.
    Raises SecidError if a source cannot be read or has too many malformed rows, and NothingToScoreError for a source
    without triplets.
    """
    began, settings = time.perf_counter(), resolved.values
    if settings.tokenizer not in SPLITTERS:
        raise UsageError(
            f"the tokenizer {settings.tokenizer!r} needs an encoder", remedy=f"use one of {', '.join(SPLITTERS)}"
        )
    reading = replace(settings, positives="all", on_bad="skip", first_k=None, max_records=None)
    with ExitStack() as stack:
        with PassageReader(settings.threads) as reader:
            draft, readers = read_draft(sources, reading, folder, progress, written=reader.written)
            stack.callback(draft.close)
            progress.start("text rules", None, "")
            plan = draft.with_text_findings(text_rules(*draft.texts, reader=reader)).plan
        one_positive = has_one_positive(draft.full_plan)
        settings = choose_tokenizer(plan, resolved, progress).values
        checker = _Checker(plan, settings, folder, progress, evaluation)
        files = {opened.source.name: opened for opened in readers}
        checked = tuple(checker.source(planned, files[planned.source.name]) for planned in plan.sources)
        checker.close()
    listed = [SourceNegatives(item.name, item.query[item.triplet_record()], item.negatives) for item in plan.sources]
    return Check(
        schema_version=CHECK_SCHEMA_VERSION,
        secid_version=__version__,
        tokenizer=settings.tokenizer,
        tokens_by=TOKENS_BY,
        evaluation=None
        if evaluation is None
        else Evaluation(
            folder=evaluation.folder,
            qrels=evaluation.qrels,
            n_queries=len(evaluation.queries),
            n_relevant_passages=len(evaluation.passages),
        ),
        sources=tuple(source for source, _ in checked),
        texts={source.name: facts for source, facts in checked},
        overlaps=overlaps(listed),
        failed=(),
        one_positive=one_positive,
        n_of_qrels=plan.n_labelled[1],
        settings={name: entry for name, entry in resolved.document().items() if name in READING_SETTINGS},
        seconds=round(time.perf_counter() - began, 3),
    )


def with_commands(check: Check, specs: Sequence[str], settings: Mapping[str, object]) -> Check:
    """Add the commands that write copies of the sources without defects. If no source needs one, change nothing."""
    unusable = STANDARD_INPUT in specs or any(map(has_hidden_characters, specs))
    if unusable or not any(repair_defects(source) for source in check.sources):
        return check
    flags = [word for name, value in settings.items() if value is not None for word in flag_words(name, value)]
    sources = tuple(
        replace(
            source, repair=repair_command(SAVED_CHECK_NAME, source.name, repair_defects(source), source.files[0].path)
        )
        if repair_defects(source)
        else source
        for source in check.sources
    )
    return replace(check, sources=sources, save=shlex.join(["secid", "check", *specs, *flags, "-o", SAVED_CHECK_NAME]))


class _Checker:
    """Checks sources one by one, with facts about texts that are computed once for all sources."""

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
        self._gates.close()

    def source(self, planned: PlannedSource, reader: Reader) -> tuple[SourceReport, TextFacts]:
        """Return the report of one source, and the facts that only a check computes."""
        settings = self._settings
        gate, coverage = inactive_gate(planned, self._gates, settings.tokenizer)
        query = planned.query[planned.triplet_record()]
        listed = distinct(pairs(query, planned.negatives, len(self._plan.passages))) // len(self._plan.passages)
        texts = {
            "query": (self._queries, distinct(planned.query)),
            "positive": (self._passages, distinct(planned.positives)),
            "negative": (self._passages, distinct(planned.negatives)),
        }
        summary = text_findings(self._plan, planned, self._matcher, settings)
        n_changed = len(changed_files([file.path for file in reader.files]))
        report = SourceReport(
            name=planned.name,
            files=reader.content(),
            split=planned.split,
            rows=planned.tally.row_counts(planned.n_records),
            n_queries=len(texts["query"][1]),
            n_triplets=planned.n_triplets,
            status=summary.status.status,
            n_flagged=summary.status.flagged.n,
            flagged_share=summary.status.flagged.estimate.value,
            findings=(*summary.findings, wordless_finding(self._plan, planned, self._wordless, settings)),
            finding_overlaps=summary.overlaps,
            languages=summary.languages,
        )
        facts = TextFacts(
            n_listed=summary.status.flagged.n_all,
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
                    "changed_since_mined": CautionEvidence(n_changed, n_changed / len(reader.files)),
                    **({} if self._leaks is None else self._leaks.cases(planned, settings.examples)),
                }.items()
            ),
        )
        return report, facts

    def _misfit(self, planned: PlannedSource) -> CautionEvidence:
        """Return how many sampled texts of a source have words that the tokenizer misreads."""
        fit = misread(self._plan, planned, self._settings.tokenizer, self._settings.seed)
        values = {"n_texts": fit.n_texts, "tokenizer": self._settings.tokenizer}
        return CautionEvidence(fit.n, fit.fraction, values if fit.effect is None else {**values, "effect": fit.effect})


def _caution(name: str, case: CautionEvidence, settings: Settings) -> SourceCaution:
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


def _row_cautions(planned: PlannedSource, n_examples: int) -> dict[str, CautionEvidence]:
    """Return cautions on rows skipped as malformed, or for no negatives. Blank negatives are a finding instead."""
    tally = planned.tally
    bad, bare = bad_reasons(tally), {"no_negatives": tally.skipped.get("no_negatives", 0)}

    def case(reasons: Mapping[str, int]) -> CautionEvidence:
        n, examples = sum(reasons.values()), (example for example in tally.examples if example.reason in reasons)
        return CautionEvidence(n, min(1.0, n / max(1, tally.n_read)), reasons, tuple(examples)[:n_examples])

    return {"malformed_rows": case(bad), "rows_without_negatives": case(bare)}
