"""Writes a copy of a checked source without the negatives that have a finding of the texts; needs no encoder.

All sources of the check are read again, since the labelled positives of each count for all. Source: METHOD 14.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from secid.errors import UsageError
from secid.export.left_out import (
    Answer,
    Facts,
    Rule,
    Selected,
    Selection,
    copy_of,
    left_out_path,
    note_widening,
    refuse_worse,
)
from secid.export.read_again import find_source, plan_again
from secid.export.writer import new_files, schema_of, suffix_of
from secid.findings.shares import ListedNegatives
from secid.findings.summary import text_findings_of
from secid.findings.texts import text_rules
from secid.progress import Progress
from secid.results.catalogue import TEXT_FINDINGS
from secid.results.check import Check
from secid.scoring.stored import settings_of

SCORE = "score the sources (secid score … --run RUN), and select from the run folder"


def select_checked(
    check: Check,
    name: str | None,
    rule: Rule,
    out: Path,
    asked: str | None,
    work: Path,
    progress: Progress,
    force: bool = False,
) -> Selection:
    """Write the copy, and OUT.left-out.jsonl with what it leaves out.

    asked, work, force : as for `select`.   Raises UsageError for a rule that needs an encoder, else what `select` does.
    """
    if rule.ranked:
        raise UsageError("a check has no numbers to rank by", where="--top, --min-weight, --max", remedy=SCORE)
    for finding in rule.drop:
        if finding not in TEXT_FINDINGS:
            raise UsageError(f"{finding} needs an encoder", where="--drop", remedy=SCORE)
    result = find_source(check, name)
    schema, suffix = schema_of(asked, {file.schema for file in result.files}), suffix_of(out)
    settings = settings_of(check, positives="all", on_bad="skip")
    names = [source.name for source in check.sources]
    with (
        new_files(out, left_out_path(out)) as files,
        plan_again(check, names, settings, work, progress, text_rules, with_labels=True) as (plan, originals),
    ):
        original = originals[result.name]
        planned = replace(original.planned, name=result.name)
        findings = {key: planned.again() if key == "repeat" else planned.has(key) for key in rule.drop}
        selected = Selected.by(rule, plan, original, Facts(np.ones(planned.n_triplets, np.bool_), {}, findings))
        note_widening(rule.drop, result.findings, progress)
        written = selected.write(rule, out, files, schema, suffix)
        copy = copy_of(planned, selected.reasons == "", without_repeats="repeat" in rule.drop)
        copy = replace(copy, excess=ListedNegatives(copy, plan.queries.keys).excess())
        found = text_findings_of(replace(plan, sources=(copy,)), settings)[result.name].status
        before = Answer(status=result.status, flagged_share=result.flagged_share, n_triplets=result.n_triplets)
        after = Answer(status=found.status, flagged_share=found.flagged.estimate.value, n_triplets=copy.n_triplets)
        if not force:
            refuse_worse(before, after)
    return Selection(**written, budget=1.0, before=before, after=after)
