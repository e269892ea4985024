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
    Request,
    Selected,
    Selection,
    note_widening,
    refuse_worse,
)
from secid.export.read_again import find_source, plan_again
from secid.export.writer import new_files
from secid.findings.summary import text_findings_of
from secid.findings.texts import text_rules
from secid.progress import Progress
from secid.results.catalogue import TEXT_FINDINGS
from secid.results.check import Check
from secid.scoring.stored import settings_of

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
        note_widening(rule.drop, result.findings, progress)
        written = selected.write(request, files, *container)
        copy = selected.copy(plan)
        found = text_findings_of(replace(plan, sources=(copy,)), settings)[result.name].status
        before = Answer(status=result.status, flagged_share=result.flagged_share, n_triplets=result.n_triplets)
        after = Answer(status=found.status, flagged_share=found.flagged.estimate.value, n_triplets=copy.n_triplets)
        if not request.force:
            refuse_worse(before, after)
    return Selection(**written, budget=1.0, before=before, after=after)
