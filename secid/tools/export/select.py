"""A filtered copy of a source that was scored or checked: without the negatives that have a finding."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from secid.analyses.guide import GUIDE
from secid.arrays import Floats
from secid.encode import Encoder, is_encoder_object, load
from secid.errors import EncoderError, InputError, NothingToScoreError, UsageError
from secid.findings.rows import SAMPLED
from secid.findings.summary import text_findings_of
from secid.findings.texts import text_rules
from secid.pages.glossary import why_not
from secid.pages.sections.guide import suspects_sentences
from secid.pages.text import short
from secid.pool import Plan, PlannedSource, plan_with, restricted
from secid.progress import Clock, Progress
from secid.results import Run, SourceReport
from secid.results.catalogue import FINDINGS, TEXT_FINDINGS
from secid.results.check import Check
from secid.results.document import loading_settings, settings_of
from secid.run_folder.tables import read_frequencies, read_negatives, read_reference
from secid.scoring.run import finished
from secid.scoring.stages import Background, ReadSources, measure
from secid.settings import FIELDS, Resolved, Settings, flag_of
from secid.tools.export.left_out import Answer, Facts, Request, Selected, Selection, refuse_worse, widened
from secid.tools.export.read_again import Original, find_source, plan_again, text_rules_of
from secid.write.writer import new_files

if TYPE_CHECKING:
    from secid.encode import EncoderLike

# A filtered copy of a source: without the negatives that have a finding, and only the best ranked of the others.
#
# The rules of the texts are applied to every row of the files, with the labelled positives that the run kept, whether
# the run scored all rows or a sample; findings that need the encoder are columns of its negatives.parquet. Of the
# copies of a text in a record the first is kept and the others are repeats. Source: METHOD 7, 14.

NUMBERS = ("s_query_positive", "s_query_negative", "weight", "influence", "information")
"""Columns that the log of what is left out has, and that a ranking takes."""
PLACE = ("source", "record", "negative")
SUMMED = ("influence", "information")
"""Columns of negatives.parquet that add up over the positives that a negative is scored against."""


def select(
    run: Run,
    folder: Path,
    request: Request,
    encoder: EncoderLike | None,
    own: Resolved,
    work: Path,
    progress: Progress,
) -> Selection:
    """Write the copy, and OUT.left-out.jsonl with what it leaves out, and score the copy.

    folder : the run folder.   encoder : the run's encoder as an object, None to load it.
    own : settings of this command; they must name an encoder that the run folder may not name.
    work : an empty folder for temporary files.
    Raises EncoderError if the encoder cannot be loaded or is not the run's, UsageError for a finding that was not
    evaluated or a worse copy, InputError if the original has changed, NothingToScoreError if no negative is left,
    OutputError for a file that exists or cannot be written.
    """
    if run.early_stop is not None:
        raise UsageError(
            "this run stopped early, so most negatives have no numbers to select by",
            remedy="score without --until-ranked",
        )
    result, rule = find_source(run, request.source), request.rule
    if "suspect" in rule.drop:
        _refuse_no_evidence(run, result.name)
    container = request.schema_of({file.schema for file in result.files})
    settings = settings_of(run, controls="none", ablate=False, block=(), by=None)
    # Before any work, so that an encoder which must be named is asked for at once
    loading = settings if is_encoder_object(encoder) else loading_settings(run, folder, own)
    rules = text_rules_of(folder, run)
    with (
        new_files(request.out, request.log) as files,
        plan_again(run, [result.name], replace(settings, max_records=None, first_k=None), work, progress, rules) as (
            plan,
            originals,
        ),
    ):
        original = originals[result.name]
        sample = restricted(original.planned, plan.queries, settings)
        facts = read_facts(run, folder, original, sample, NUMBERS, rule.drop, rule.drop, "--drop")
        selected = Selected.by(rule, plan, original, facts)
        written = selected.write(request, files, *container)
        encoder = load(loading, progress, encoder)
        scored = _scored_again(run, folder, plan, selected, settings, encoder, work, progress)
        before, after = _answer(result, run.budget), _answer(scored, run.budget)
        if not request.force:
            refuse_worse(before, after)
        gaps = {item.name: item.positives.difference for item in scored.findings if item.positives is not None}
        wider = widened(result.findings, gaps)
    return Selection(**written, budget=run.budget, before=before, after=after, widened=wider)


def read_facts(
    run: Run,
    folder: Path,
    original: Original,
    sample: PlannedSource,
    numbers: Sequence[str],
    findings: Sequence[str],
    needed: Collection[str],
    flag: str = "--finding",
    *,
    partly: bool = False,
) -> Facts:
    """Findings of the texts, and a source's columns of negatives.parquet: the mean of a number and any finding of a
    negative that is scored against several positives; influence and information are sums.

    sample : the part of the source that the run scored.   needed : findings that must have been evaluated, else
    UsageError; of the others none is known. flag : names them. partly : whether a finding may be evaluated for some of
    the negatives alone. Raises InputError where the table is damaged, or is not
    that of these files.
    """
    planned, name = original.planned, original.name
    columns = {finding: FINDINGS[finding].column for finding in findings if finding not in TEXT_FINDINGS}
    table = read_negatives(folder, [*PLACE, *numbers, *columns.values()], name)
    record, negative = table["record"].to_numpy(), table["negative"].to_numpy()
    fits = len(record) > 0 and int(record.max()) < sample.n_records
    place = sample.negative_offsets[record] + negative if fits else record
    if not fits or not np.array_equal(np.unique(place), np.arange(sample.n_triplets)):
        raise InputError(
            f"does not list the negatives that the files of {name} give now",
            where=str(folder / "negatives.parquet"),
            remedy="score the source again",
        )
    missing = [
        finding for finding, column in columns.items() if table[column].null_count > (len(table) - 1 if partly else 0)
    ]
    refuse_not_evaluated(run, name, flag, [finding for finding in missing if finding in needed])
    triplet = np.full(planned.n_triplets, -1)
    triplet[planned.listed] = sample.listed
    scored = triplet >= 0

    def summed(column: str) -> Floats:
        values = table[column].cast("float64").fill_null(0.0).to_numpy()
        sums: Floats = np.bincount(place, values, sample.n_triplets).astype(np.float64)[triplet]
        return sums

    n_positives = np.bincount(place, minlength=sample.n_triplets)[triplet]
    return Facts(
        scored,
        {
            column: np.where(scored, summed(column) / (1 if column in SUMMED else n_positives), np.nan)
            for column in numbers
        },
        {
            finding: scored & (summed(columns[finding]) > 0)
            if finding in columns
            else planned.again()
            if finding == "repeat"
            else planned.has(finding)
            for finding in findings
        },
    )


def refuse_not_evaluated(run: Run, source: str, flag: str, findings: Collection[str]) -> None:
    """Raises UsageError for findings that the run did not evaluate: nothing follows from their absence."""
    for finding in findings:
        part = "hardness" if finding in SAMPLED else finding
        why = run.not_evaluated.get(part) or run.not_evaluated.get(f"score without {part}s")
        raise UsageError(
            f"the run did not evaluate {finding} for {source}{f': {why_not(why)}' if why else ''}",
            where=flag,
            remedy=f"leave {finding} out of {flag}, or score again so that it is evaluated",
        )


def _refuse_no_evidence(run: Run, source: str) -> None:
    """Raises UsageError where a guide's flags say nothing of the source: a copy without them would lose sound rows."""
    guide = GUIDE.of(run)
    own = None if guide is None else guide.of(source)
    if guide is None or own is None or own.is_evidence:
        return
    why = suspects_sentences(replace(guide, sources=(own,)))[0].rstrip(".")
    raise UsageError(
        f"suspects of {short(source)} are no evidence. {why}; random passages scored: {own.n_random:,}",
        where="--drop",
        remedy="leave suspect out of --drop, or score again with another guide",
    )


def _scored_again(
    run: Run,
    folder: Path,
    plan: Plan,
    selected: Selected,
    settings: Settings,
    encoder: Encoder,
    work: Path,
    progress: Progress,
) -> SourceReport:
    """The result of the copy's scored negatives, from the texts of the plan: the run's settings and pool, no controls.

    Raises EncoderError where the encoder is not the run's.
    """
    if encoder.info.fingerprint != run.encoder.fingerprint:
        raise EncoderError(
            f"is not the encoder of the run, {run.encoder.name}: their fingerprints differ",
            where=encoder.info.name,
            remedy=f"name the run's encoder by {flag_of('encoder')}",
        )
    name, scored = selected.original.name, selected.stays & selected.facts.scored
    if not scored.any():  # only negatives outside the sample are left
        raise NothingToScoreError("none of the negatives that the run scored is left", where=name)
    copy = selected.copy(plan)
    planned = replace(selected.original.planned, name=name, excess=copy.excess)
    read = ReadSources(
        plan=plan_with(plan, (selected.part(planned, scored),)),
        resolved=Resolved(settings, dict.fromkeys(FIELDS, "run")),
        files={file.path: file for file in find_source(run, name).files},
        texts=text_findings_of(replace(plan, sources=(copy,)), settings),
    )
    background, clock = Background(read_frequencies(folder, run), read_reference(folder, run)), Clock()
    measured = measure(read, encoder, None, background, work, clock, progress)
    return finished(measured, read, encoder, background, clock, None).run.sources[0]


def _answer(source: SourceReport, budget: float) -> Answer:
    point = next(point for point in source.scored.budget_curve if point.budget == budget)
    return Answer(
        status=source.status,
        flagged_share=source.flagged_share,
        n_triplets=source.n_triplets,
        numbers=source.numbers(point),
    )


# Writes a copy of a checked source without the negatives that have a finding of the texts; needs no encoder.
#
# All sources of the check are read again, since the labelled positives of each count for all. Source: METHOD 14.

SCORE = "score the sources (secid score … --run RUN), and select from the run folder"


def select_checked(check: Check, request: Request, work: Path, progress: Progress) -> Selection:
    """Write the copy, and OUT.left-out.jsonl with what it leaves out.

    work : an empty folder.   Raises UsageError for a rule that needs an encoder, else what `select` does.
    """
    rule = request.rule
    if rule.ranked:
        raise UsageError("a check has no numbers to rank by", where="--top, --min-weight, --max", remedy=SCORE)
    for finding in rule.drop:
        if finding not in TEXT_FINDINGS:
            raise UsageError(f"{finding} needs an encoder", where="--drop", remedy=SCORE)
    result = find_source(check, request.source)
    container = request.schema_of({file.schema for file in result.files})
    settings = settings_of(check, positives="all", on_bad="skip")
    names = [source.name for source in check.sources]
    with (
        new_files(request.out, request.log) as files,
        plan_again(check, names, settings, work, progress, text_rules, with_labels=True) as (plan, originals),
    ):
        original = originals[result.name]
        planned = original.planned
        findings = {key: planned.again() if key == "repeat" else planned.has(key) for key in rule.drop}
        selected = Selected.by(rule, plan, original, Facts(np.ones(planned.n_triplets, np.bool_), {}, findings))
        written = selected.write(request, files, *container)
        copy = selected.copy(plan)
        texts = text_findings_of(replace(plan, sources=(copy,)), settings)[result.name]
        found = texts.status
        before = Answer(status=result.status, flagged_share=result.flagged_share, n_triplets=result.n_triplets)
        after = Answer(status=found.status, flagged_share=found.flagged.estimate.value, n_triplets=copy.n_triplets)
        if not request.force:
            refuse_worse(before, after)
        wider = widened(result.findings, {name: gap.value for name, gap in texts.compared.items()})
    return Selection(**written, budget=1.0, before=before, after=after, widened=wider)
