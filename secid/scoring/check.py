"""`secid check`: what is in the sources and what is wrong with them, without an encoder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from secid.analyses.overlap import Listed, overlaps
from secid.arrays import distinct
from secid.errors import UsageError
from secid.findings.coverage import GateSample, lexical
from secid.findings.facts import ScriptTable, gather
from secid.findings.flags import Flagged, Lines, echoes, structure, style
from secid.findings.leaks import Leaks, find_leaks
from secid.findings.profile import lengths_of, scripts_of, spread
from secid.pool import SPLITTERS, Plan, PlannedSource, malformed
from secid.pool.reading import read_plan
from secid.pool.tokenizer_fit import misread
from secid.progress import Progress
from secid.read import Reader
from secid.read.evaluation import EvaluationSet
from secid.read.rows import shorten
from secid.records import Source
from secid.results import Example
from secid.results.check import CHECK_SCHEMA_VERSION, KINDS, Check, CheckedSource, Evaluation, FileRead, Finding
from secid.settings import Settings
from secid.version import VERSION

DEFAULT_MAX_LENGTH = 512
"""Maximum length in tokens of most encoders, where --max-length names none."""
SPECIAL_TOKENS = 2
"""Tokens that encoders put around a text."""
SHOWN_CHARACTERS = 120
TOKENS_BY = "estimate: 4.5 ASCII characters a token, 2 of other letters, 1 of scripts without spaces"


def check_sources(
    sources: Sequence[Source],
    settings: Settings,
    folder: Path,
    progress: Progress,
    evaluation: EvaluationSet | None = None,
) -> Check:
    """Counts, lengths and findings of each source. Malformed rows are counted and reported, never an error here.

    folder     : an empty folder for spool files; the caller removes it.
    evaluation : a set whose queries and relevant passages are looked for in the sources.
    Raises what opening raises (SecidError), and NothingToScoreError for a source without any triplet.
    Source: METHOD 1, 2.3, 4.
    """
    began = time.perf_counter()
    if settings.tokenizer not in SPLITTERS:
        raise UsageError(
            f"the tokenizer {settings.tokenizer!r} needs an encoder", remedy=f"one of {', '.join(SPLITTERS)}"
        )
    # Everything is looked at, and bad rows are this command's subject, whatever their number.
    reading = replace(
        settings, positives="all", on_bad="skip", max_bad_fraction=float("inf"), first_k=None, max_records=None
    )
    plan, readers = read_plan(sources, reading, folder, progress)
    try:
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
        max_length=settings.max_length or DEFAULT_MAX_LENGTH,
        tokens_by=TOKENS_BY,
        evaluation=None if evaluation is None else _told(evaluation),
        sources=checked,
        overlaps=overlaps(listed),
        failed=(),
        seconds=round(time.perf_counter() - began, 3),
    )


def _told(evaluation: EvaluationSet) -> Evaluation:
    return Evaluation(
        folder=evaluation.folder,
        qrels=evaluation.qrels,
        n_queries=len(evaluation.queries),
        n_relevant_passages=len(evaluation.passages),
    )


class _Checker:
    """Facts of a run's texts, gathered once for all sources."""

    def __init__(
        self, plan: Plan, settings: Settings, folder: Path, progress: Progress, evaluation: EvaluationSet | None
    ) -> None:
        self._plan, self._settings = plan, settings
        n_texts = len(plan.queries) + len(plan.passages)
        progress.start("look", n_texts, "texts")
        table = ScriptTable()
        queries, passages = (
            gather(store.packed, len(store), table, progress.advance, store.lengths)
            for store in (plan.queries, plan.passages)
        )
        self._lines = Lines(plan, queries, passages)
        self._leaks: Leaks | None = None
        if evaluation is not None:
            progress.start("compare", n_texts, "texts")
            self._leaks = find_leaks(plan, queries, passages, evaluation, progress.advance)
        self._gates = GateSample(plan, folder, settings.seed)

    def close(self) -> None:
        """Lets go of the spool files."""
        self._gates.close()

    def source(self, planned: PlannedSource, reader: Reader) -> CheckedSource:
        """Everything that is said of one source."""
        lines, tally = self._lines, planned.tally
        gate, coverage = lexical(planned, self._gates, self._settings.tokenizer)
        flagged, examples = self._flagged(planned)
        flagged |= gate
        query = lines.query[planned.query[planned.triplet_record()]]
        per_query = np.bincount(distinct(lines.pairs(planned)) // max(1, lines.n_passages))
        texts = {
            "query": (lines.queries, distinct(planned.query)),
            "positive": (lines.passages, distinct(planned.positives)),
            "negative": (lines.passages, distinct(planned.negatives)),
        }
        return CheckedSource(
            name=planned.name,
            files=tuple(
                FileRead(path=file.path, container=file.container, schema=file.schema, mapping=file.mapping)
                for file in reader.files
            ),
            n_read=tally.n_read,
            n_used=tally.n_used,
            n_records=planned.n_records,
            n_queries=len(texts["query"][1]),
            n_positives=len(texts["positive"][1]),
            n_negatives=len(texts["negative"][1]),
            n_triplets=planned.n_triplets,
            skipped=tally.skipped,
            dropped_negatives=tally.dropped,
            negatives_per_query=spread(per_query[distinct(query)]),
            lengths={role: lengths_of(facts, ids) for role, (facts, ids) in texts.items()},
            scripts={role: scripts_of(facts, ids) for role, (facts, ids) in texts.items()},
            positive_coverage_mean=coverage,
            findings=tuple(
                self._finding(planned, name, flagged[name], examples.get(name)) for name in KINDS if name in flagged
            ),
        )

    def _flagged(self, planned: PlannedSource) -> tuple[dict[str, Flagged], dict[str, tuple[Example, ...]]]:
        """Findings of a source, and examples of those that are not about triplets."""
        lines, plan = self._lines, self._plan
        rows, examples = _row_findings(planned, self._settings.examples)
        flagged = {
            **rows,
            **structure(planned, lines),
            **style(planned, plan, lines, planned.tally.dropped.get("empty_negative", 0)),
            "query_echoed": echoes(planned, plan, lines),
            "too_long": self._too_long(planned),
            "words_misread": self._misread(planned),
        }
        if self._leaks is not None:
            flagged |= self._leaks.flagged(planned)
            examples |= self._leaks.examples(planned, self._settings.examples)
        return flagged, examples

    def _too_long(self, planned: PlannedSource) -> Flagged:
        """Distinct texts of a source beyond the maximum length; negatives as examples."""
        limit = (self._settings.max_length or DEFAULT_MAX_LENGTH) - SPECIAL_TOKENS
        passages = self._lines.passages
        parts = {
            "queries": self._lines.queries.tokens[distinct(planned.query)] > limit,
            "positives": passages.tokens[distinct(planned.positives)] > limit,
            "negatives": passages.tokens[distinct(planned.negatives)] > limit,
        }
        told = ", ".join(f"{role} {flags.mean():.1%}" for role, flags in parts.items() if flags.any())
        return Flagged(
            sum(int(flags.sum()) for flags in parts.values()),
            sum(map(len, parts.values())),
            passages.tokens[planned.negatives] > limit,
            f"of {told}" if told else "",
        )

    def _misread(self, planned: PlannedSource) -> Flagged:
        """Sampled texts of a source whose words the tokenizer misreads."""
        found = misread(self._plan, planned, self._settings.tokenizer, self._settings.seed)
        told = f"in a sample of {found.n_texts}: {self._settings.tokenizer} {found.told()}" if found.n else ""
        return Flagged(found.n, found.n_texts, np.zeros(planned.n_triplets, np.bool_), told)

    def _finding(
        self, planned: PlannedSource, name: str, flagged: Flagged, examples: tuple[Example, ...] | None
    ) -> Finding:
        kind = KINDS[name]
        limit = self._settings.max_bad_fraction if kind.limit is None else kind.limit
        shown = self._triplet_examples(planned, name, flagged) if examples is None else examples
        return Finding(
            name=name,
            of=kind.of,
            n=flagged.n,
            fraction=flagged.fraction,
            limit=limit,
            exceeded=not flagged.fraction <= limit,
            text=kind.text,
            detail=flagged.detail,
            advice=kind.advice,
            examples=shown,
        )

    def _triplet_examples(self, planned: PlannedSource, name: str, flagged: Flagged) -> tuple[Example, ...]:
        places = np.flatnonzero(flagged.triplets)[: self._settings.examples]
        texts = self._plan.passages.take(planned.negatives[places])
        queries = self._plan.queries.take(planned.query[planned.triplet_record()[places]])
        paths = planned.source.paths
        notes = [""] * len(places)
        if name == "negative_is_other_positive":
            notes = [f", labelled positive at {where}" for where in self._lines.labelled_at(planned, places)]
        return tuple(
            Example(
                name,
                paths[int(planned.negative_file[place])],
                int(planned.negative_line[place]),
                f"query {shorten(query, SHOWN_CHARACTERS)!r}, negative {shorten(text, SHOWN_CHARACTERS)!r}{note}",
            )
            for place, query, text, note in zip(places.tolist(), queries, texts, notes, strict=True)
        )


def _row_findings(planned: PlannedSource, n_examples: int) -> tuple[dict[str, Flagged], dict[str, tuple[Example, ...]]]:
    """What the reader left out: malformed rows, and rows without negatives."""
    tally = planned.tally
    none = np.zeros(planned.n_triplets, np.bool_)
    bare = tally.skipped.get("no_negatives", 0)
    reasons: Mapping[str, int] = {**tally.skipped, **tally.dropped}
    bad = {
        reason: count
        for reason, count in reasons.items()
        if reason not in ("no_negatives", "duplicate_negative") and count
    }
    told = f"{malformed(tally)}: " + ", ".join(f"{reason} {count}" for reason, count in bad.items()) if bad else ""
    examples = {
        "malformed_rows": tuple(e for e in tally.examples if e.reason in bad)[:n_examples],
        "rows_without_negatives": tuple(e for e in tally.examples if e.reason == "no_negatives")[:n_examples],
    }
    return {
        "malformed_rows": Flagged(
            tally.n_malformed, tally.n_read, none, told, min(1.0, tally.n_malformed / max(1, tally.n_read))
        ),
        "rows_without_negatives": Flagged(bare, tally.n_read, none),
    }, examples
