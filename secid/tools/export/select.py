"""List the negatives of a source that have a finding (`secid flagged`), or leave them out of a copy (`secid select`).

The files are read again, and findings that need only texts cover every row, even if the run scored a sample. Findings
that need the encoder come from negatives.parquet. For `repeat`, `secid flagged` lists the rows that
`secid select --drop repeat` leaves out."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from secid.analyses.guide import GUIDE
from secid.arrays import Flags, Floats
from secid.errors import InputError, NothingToScoreError, UsageError
from secid.findings.rows import AGAINST_PASSAGES
from secid.findings.status import readable
from secid.findings.summary import Matcher, text_findings_of
from secid.findings.texts import text_rules
from secid.pages.glossary import reason_text
from secid.pages.sections.guide import suspects_sentences
from secid.pages.text import json_shown, short
from secid.pool import Plan, PlannedSource, restricted
from secid.progress import Progress, Silent
from secid.results import Run, SourceReport
from secid.results.catalogue import FINDINGS, TEXT_FINDINGS, known_finding
from secid.results.check import Check
from secid.results.document import settings_of
from secid.run_folder.tables import read_negatives, read_reference
from secid.tools.export.left_out import (
    RANKING_COLUMNS,
    Answer,
    Facts,
    Request,
    Rule,
    Selected,
    Selection,
    refuse_worse,
    widened,
)
from secid.tools.export.read_again import Original, TextRules, find_source, plan_again, text_rules_of
from secid.triplets.random_reference import hardness, stored_reference
from secid.write.writer import new_files, writing

# A filtered copy of a source omits the negatives that have a finding, and keeps only the best ranked of the others.
#
# The text rules use the labelled positives that the run kept. If a record has a text several times, the first copy is
# kept and the others are repeats. Nothing is scored. The row "before" comes from the report, and the row "after" from
# the texts and negatives.parquet. After a check all sources are read again, since a labelled positive of one source
# counts for all. Source: METHOD 7, 14.

INVERSION_COLUMN, UNKNOWN_SCRIPT_COLUMN = (FINDINGS[name].column for name in ("inversion", "unknown_script"))
PLACE_COLUMNS = ("source", "record", "negative")
SUMMED_COLUMNS = ("influence", "information")
"""Columns of negatives.parquet that are summed over the positives of a negative; the others are averaged."""
SCORE_FIRST = "score the sources (secid score … --run RUN) and select from the run folder"


def select(report: Run | Check, folder: Path, request: Request, work: Path, progress: Progress) -> Selection:
    """Write the copy, and OUT.left-out.jsonl with the negatives that it leaves out.

    folder : the run folder; not used for a check, which has only findings that need texts.
    work   : an empty folder for temporary files.
    Raises UsageError for a finding that was not evaluated, a rule that needs an encoder, or a copy that is worse than
    the source. Raises InputError if the original has changed, NothingToScoreError if no negative is left, OutputError
    if a file exists or cannot be written.
    """
    result, rule = find_source(report, request.source), request.rule
    run = None if isinstance(report, Check) else report
    rules: TextRules = text_rules
    if run is None:
        _refuse_without_encoder(rule)
        names = [source.name for source in report.sources]
        settings = settings_of(report, positives="all", on_bad="skip")
    else:
        _refuse_no_evidence(run, result.name, rule)
        names, rules, settings = [result.name], text_rules_of(folder, run), settings_of(run, by=None)
    container = request.schema_of({file.schema for file in result.files})
    every_row = replace(settings, max_records=None, first_k=None)
    with (
        new_files(request.out, request.log) as files,
        plan_again(report, names, every_row, work, progress, rules, with_labels=run is None) as (plan, originals),
    ):
        original = originals[result.name]
        if run is None:
            facts = _text_facts(original.planned, rule)
        else:
            sample = restricted(original.planned, plan.queries, settings)
            columns = (*RANKING_COLUMNS, INVERSION_COLUMN, UNKNOWN_SCRIPT_COLUMN)
            facts = read_facts(run, folder, original, sample, columns, rule.drop, rule.drop, "--drop")
        selected = Selected.apply(rule, plan, original, facts)
        written = selected.write(request, files, *container)
        copy = selected.copy(plan)
        texts = text_findings_of(replace(plan, sources=(copy,)), settings)[result.name]
        before = _reported_answer(result, run)
        after = Answer(
            status=texts.status.status,
            flagged_share=texts.status.flagged.estimate.value,
            n_triplets=int((selected.stays & facts.scored).sum()),
        )
        if run is not None:
            after = _with_encoder(after, run, folder, plan, selected)
        if not request.force:
            refuse_worse(before, after)
        wider = widened(result.findings, {name: gap.value for name, gap in texts.compared.items()})
    encoder = None if run is None else str(run.settings["encoder"]["value"] or run.encoder.name)
    return Selection(**written, encoder=encoder, before=before, after=after, widened=wider)


def _refuse_without_encoder(rule: Rule) -> None:
    if rule.ranked:
        raise UsageError("a check has no numbers to rank by", where="--top, --min-weight, --max", remedy=SCORE_FIRST)
    for finding in rule.drop:
        if finding not in TEXT_FINDINGS:
            raise UsageError(f"{finding} needs an encoder", where="--drop", remedy=SCORE_FIRST)


def _text_facts(planned: PlannedSource, rule: Rule) -> Facts:
    """Return the facts of a check. Every negative counts as scored and has only findings that need texts."""
    findings = {name: planned.respelled() if name == "repeat" else planned.has(name) for name in rule.drop}
    return Facts(np.ones(planned.n_triplets, np.bool_), {}, findings)


def _reported_answer(source: SourceReport, run: Run | None) -> Answer:
    """Return the report's row of the source. run: None for a check, which has no scores."""
    answer = Answer(status=source.status, flagged_share=source.flagged_share, n_triplets=source.n_triplets)
    if run is None:
        return answer
    return replace(
        answer,
        score=next(point for point in source.scored.budget_curve if point.budget == run.budget),
        hardness=None if source.hardness is None else source.hardness.value,
        outscoring=source.scored.inversion_fraction,
    )


def _with_encoder(answer: Answer, run: Run, folder: Path, plan: Plan, selected: Selected) -> Answer:
    """Add the numbers of negatives.parquet to the copy's row. Raises NothingToScoreError without a scored negative."""
    planned, facts = selected.original.planned, selected.facts
    scored = selected.stays & facts.scored
    if not scored.any():  # only negatives outside the sample are left
        raise NothingToScoreError(
            "every scored negative would be left out", where=selected.original.name, remedy="drop fewer findings"
        )
    numbers = {name: values[scored] for name, values in facts.numbers.items()}
    arrays = read_reference(folder, run)
    reference = None if arrays is None else stored_reference(arrays, plan)
    nearness = None
    if reference is not None:
        query = planned.query[planned.triplet_record()[scored]]
        nearness = hardness(query, numbers["s_query_negative"], numbers["s_query_positive"], None, reference)
    return replace(
        answer,
        status=readable(answer.status, float(numbers[UNKNOWN_SCRIPT_COLUMN].mean())),
        hardness=None if nearness is None else nearness.value,
        outscoring=float(numbers[INVERSION_COLUMN].mean()),
    )


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
    """Return a source's findings and its columns of negatives.parquet.

    If a negative is scored against several positives, its numbers are averaged; influence and information are summed.
    It has a finding if it has the finding against any positive.

    sample : the part of the source that the run scored.   numbers, findings : what to return.
    needed : findings that must have been evaluated. Any other finding that was not evaluated is False.
    flag   : command-line flag that names the findings, for messages.
    partly : a finding counts as evaluated if it was evaluated for at least one negative.
    Raises UsageError if a needed finding was not evaluated, InputError if the table is damaged or belongs to other
    files.
    """
    planned, name = original.planned, original.name
    columns = {finding: FINDINGS[finding].column for finding in findings if finding not in TEXT_FINDINGS}
    table = read_negatives(folder, list(dict.fromkeys([*PLACE_COLUMNS, *numbers, *columns.values()])), name)
    record, negative = table["record"].to_numpy(), table["negative"].to_numpy()
    fits = len(record) > 0 and int(record.max()) < sample.n_records
    place = sample.negative_offsets[record] + negative if fits else record
    if not fits or not np.array_equal(np.unique(place), np.arange(sample.n_triplets)):
        raise InputError(
            f"does not match the negatives in the files of {name}",
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
            column: np.where(scored, summed(column) / (1 if column in SUMMED_COLUMNS else n_positives), np.nan)
            for column in numbers
        },
        {
            finding: scored & (summed(columns[finding]) > 0)
            if finding in columns
            else planned.respelled()
            if finding == "repeat"
            else planned.has(finding)
            for finding in findings
        },
    )


def refuse_not_evaluated(run: Run, source: str, flag: str, findings: Collection[str]) -> None:
    for finding in findings:
        part = "hardness" if finding in AGAINST_PASSAGES else finding
        why = run.not_evaluated.get(part) or run.not_evaluated.get(f"score without {part}s")
        raise UsageError(
            f"the run did not evaluate {finding} for {source}{f' ({reason_text(why)})' if why else ''}",
            where=flag,
            remedy=f"remove {finding} from {flag}, or score again so that it is evaluated",
        )


def _refuse_no_evidence(run: Run, source: str, rule: Rule) -> None:
    """Raise UsageError if the run stopped early, or to drop `suspect` by a guide that is unreliable for the source."""
    if run.early_stop is not None:
        raise UsageError(
            "this run stopped early, so most negatives were not scored", remedy="score again without --until-ranked"
        )
    guide = GUIDE.of(run)
    of_source = None if guide is None else guide.of(source)
    if "suspect" not in rule.drop or guide is None or of_source is None or of_source.is_evidence:
        return
    why = suspects_sentences(replace(guide, sources=(of_source,)))[0].rstrip(".")
    raise UsageError(
        f"the guide is unreliable for {short(source)}. {why} (random passages scored: {of_source.n_random:,})",
        where="--drop",
        remedy="remove suspect from --drop, or score again with another guide",
    )


LISTED_NUMBERS = ("s_query_positive", "s_query_negative", "consistency", "locality", "coverage", "weight")
"""Columns for s_qp, s_qn, π, ρ, c and w of METHOD 2."""
ROWS_SUFFIX = ".jsonl"


@dataclass(frozen=True, kw_only=True)
class Flagged:
    """The written file of flagged negatives. n_rows: number of rows of each requested source."""

    finding: str
    path: str
    n_rows: dict[str, int]


def write_flagged(run: Run, folder: Path, finding: str, source: str | None, out: Path | TextIO, work: Path) -> Flagged:
    """Write a JSON line for each negative with the finding, in the order of the files. Blank negatives come last.

    source : a source of the run; None for all.   out : path of a new file, or an open file.   work : an empty folder.
    Raises UsageError for an unknown finding or one that was not evaluated, InputError if a source file has changed,
    OutputError if `out` exists or cannot be written.
    """
    known_finding(finding, "--finding")
    names = [find_source(run, source).name] if source is not None else [item.name for item in run.sources]
    if isinstance(out, Path):
        if not out.name.endswith(ROWS_SUFFIX):
            raise UsageError(
                "rows are written only as JSON lines", where=str(out), remedy=f"use a name with {ROWS_SUFFIX}"
            )
        with (
            new_files(out) as (part,),
            _sources(run, folder, finding, names, work) as sources,
            writing(out),
            part.open("w", encoding="utf-8", newline="\n") as file,
        ):
            return Flagged(finding=finding, path=str(out), n_rows=_write(sources, file))
    with _sources(run, folder, finding, names, work) as sources:
        return Flagged(finding=finding, path="-", n_rows=_write(sources, out))


def _write(sources: Mapping[str, _Rows], file: TextIO) -> dict[str, int]:
    counts = dict.fromkeys(sources, 0)
    for name, rows in sources.items():
        for row in rows:
            file.write(json_shown(json.dumps(row, ensure_ascii=False)) + "\n")
            counts[name] += 1
    return counts


@contextmanager
def _sources(run: Run, folder: Path, finding: str, names: Sequence[str], work: Path) -> Iterator[dict[str, _Rows]]:
    """Yield the rows of each source by name. They can be read until the context ends."""
    settings = settings_of(run, by=None)
    rules = text_rules_of(folder, run)
    everything = replace(settings, max_records=None, first_k=None, positives="all")
    with plan_again(run, names, everything, work, Silent(), rules) as (plan, originals):
        sources = {}
        for name, original in originals.items():
            sample = restricted(original.planned, plan.queries, settings)
            facts = read_facts(run, folder, original, sample, LISTED_NUMBERS, tuple(FINDINGS), (finding,), partly=True)
            facts.findings["repeat"] = original.planned.has("repeat")  # the first copy is flagged too
            sources[name] = _Rows(plan, original, facts, finding, first_only=settings.positives == "first")
        yield sources


@dataclass(frozen=True)
class _Rows:
    """Rows of one source. first_only: the run scored each negative only against the first positive."""

    plan: Plan
    original: Original
    facts: Facts
    finding: str
    first_only: bool

    def __iter__(self) -> Iterator[dict[str, Any]]:
        listed, match_of = self._listed(), self._matches()
        planned = self.original.planned
        for place, row, part in self.original.rows():
            if row is None:
                continue
            for ordinal in np.flatnonzero(listed[part]).tolist():
                triplet = int(planned.listed[part][ordinal])
                positives = [passage.text for passage in row.positives]
                # With several positives, negatives.parquet does not name the one that was scored.
                positive = positives[0] if self.first_only else None
                more = {"positives": positives} if len(positives) > 1 else {}
                match = asdict(repeated) if (repeated := match_of(triplet)) else {}
                match.pop("text", None)  # equals the negative except for case, spaces and punctuation
                yield {
                    **self._start(place.path, place.line, ordinal),
                    "query": row.query,
                    "positive": positive,
                    **more,
                    "negative": row.negatives[ordinal].text,
                    "findings": [name for name, flags in self.facts.findings.items() if flags[triplet]],
                    **self._numbers(triplet),
                    **({"match": match} if match else {}),
                }
        yield from self._blanks()

    def _start(self, path: str, line: int, ordinal: int | None) -> dict[str, Any]:
        return {"source": self.original.name, "path": path, "line": line, "ordinal": ordinal}

    def _numbers(self, triplet: int) -> Mapping[str, float | None]:
        """Return the numbers of a negative; each is None if it was not scored."""
        scored = self.facts.scored[triplet]
        return {name: float(of[triplet]) if scored else None for name, of in self.facts.numbers.items()}

    def _listed(self) -> Flags:
        """Return flags of the listed negatives that have a row, (L,).

        If a negative is listed several times, each listing has a row for a finding that needs only texts. For any other
        finding only the first listing has one.
        """
        planned = self.original.planned
        again = planned.listed_again()
        if self.finding == "repeat":
            return np.asarray(again | planned.respelled()[planned.listed])
        flags = self.facts.findings[self.finding][planned.listed]
        return np.asarray(flags if self.finding in TEXT_FINDINGS else flags & ~again)

    def _matches(self) -> Any:
        """Return a function that finds the text that a triplet's negative repeats; it returns None if there is none."""
        matcher, planned = Matcher(self.plan), self.original.planned
        if self.finding == "repeat":
            return partial(matcher.earlier, planned)
        if self.finding != "hub":
            return lambda triplet: matcher.of(self.finding, planned, triplet)
        first = {text: place for place, text in reversed(list(enumerate(planned.negatives.tolist())))}
        hub_match = cache(lambda place: matcher.of("hub", planned, place))
        return lambda triplet: hub_match(first[int(planned.negatives[triplet])])

    def _blanks(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each negative without text."""
        planned, none = self.original.planned, dict.fromkeys(LISTED_NUMBERS)
        blanks = planned.blanks if self.finding == "empty" else planned.blanks.only(planned.blanks.count < 0)
        for file, line, count in blanks:
            texts = {"query": None, "positive": None, "negative": ""}
            for _ in range(count):
                yield {**self._start(planned.source.paths[file], line, None), **texts, "findings": ["empty"], **none}
