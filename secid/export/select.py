"""A filtered copy of a source: without the negatives that have a finding, and only the best ranked of the others.

The rules of the texts are applied to every row of the files, with the labelled positives that the run kept, whether the
run scored all rows or a sample; findings that need the encoder are columns of its negatives.parquet. Of the copies of a
text in a record the first is kept and the others are repeats. Source: METHOD 7, 14.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO, get_args

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Floats, best_first
from secid.encode import Encoder, is_object, load
from secid.errors import EncoderError, InputError, NothingToScoreError, UsageError
from secid.export.read_again import Original, find_source, plan_again, text_rules_of
from secid.export.rows import Row
from secid.export.writer import Written, new_files, schema_of, suffix_of, write_rows, writing
from secid.findings.rows import SAMPLED
from secid.findings.shares import ListedNegatives
from secid.findings.summary import text_findings_of
from secid.pages.glossary import why_not
from secid.pages.sanitize import named
from secid.pages.sections.guide import suspects_sentences
from secid.pool import Plan, PlannedSource, content_of, plan_with, restricted
from secid.pool import select as part_of
from secid.progress import Progress
from secid.results import Run, SourceResult, Status
from secid.results.catalogue import FINDINGS, TEXT_FINDINGS, known_finding
from secid.run_folder.read import read_frequencies, read_negatives, read_reference
from secid.scoring.clock import Clock
from secid.scoring.run import finished
from secid.scoring.stages import measure
from secid.scoring.stored import loading_settings, settings_of
from secid.settings import FIELDS, Resolved, Settings, flag_of

if TYPE_CHECKING:
    from secid.encode import EncoderLike

By = Literal["weight", "influence", "information"]
Strings = npt.NDArray[np.object_]

PLACE = ("source", "record", "negative")
SUMMED = ("influence", "information")
"""Columns of negatives.parquet that add up over the positives that a negative is scored against."""
RULES = ("top", "min_weight", "max")
"""Why a ranking rule leaves a negative out."""
UNSCORED = "not scored: outside the sample or the first K"
NONE = "none"
"""What --drop says to keep all findings."""
RANKED_DROP = ("false_negative", "near_copy", "repeat")
"""What a ranking rule drops by default. A copy of the positive may rank high, and a repeat is no further negative."""


def findings_to_drop(given: str | Sequence[str] | None, *, ranked: bool) -> tuple[str, ...]:
    """Names of findings in the order of the catalogue, each once.

    given : names, or several separated by commas; "none" for none; None for the default.
    ranked : whether there is a ranking rule. Raises UsageError for an unknown name, or "none" among others.
    """
    if given is None:
        return RANKED_DROP if ranked else ()
    parts = [given] if isinstance(given, str) else given
    names = {name.strip() for part in parts for name in part.split(",")} - {""}
    known = {name for name in sorted(names) if known_finding(name, "--drop", (NONE,))}
    if NONE in names and known:
        raise UsageError("none cannot be combined with findings", where="--drop")
    return tuple(name for name in FINDINGS if name in known)


@dataclass(frozen=True)
class Rule:
    """Which negatives stay. by: the column that top and max_negatives rank by, larger first.

    top : at most so many distinct ones of each record.   min_weight : none of a smaller weight.
    max_negatives : at most so many distinct ones (of each record) in the whole source.
    drop : none that has one of these findings; they are dropped before the ranking.
    Raises UsageError where nothing is asked for or a number is out of range.
    """

    top: int | None = None
    min_weight: float | None = None
    max_negatives: int | None = None
    by: By = "weight"
    drop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.by not in get_args(By):
            raise UsageError(f"unknown column {self.by!r}", where="--by", remedy=f"one of {', '.join(get_args(By))}")
        if not self.ranked and not self.drop:
            raise UsageError(
                "nothing to drop and nothing to limit",
                remedy="name the findings to drop (--drop NAME), or what to keep (--top K, --min-weight W, --max N)",
            )
        for flag, number in (("--top", self.top), ("--max", self.max_negatives)):
            if number is not None and number < 1:
                raise UsageError(f"at least 1, got {number}", where=flag)
        if self.min_weight is not None and not 0.0 <= self.min_weight <= 1.0:
            raise UsageError(f"between 0 and 1, got {self.min_weight:g}", where="--min-weight")

    @property
    def ranked(self) -> bool:
        """Whether negatives without a finding may be left out."""
        return any(number is not None for number in (self.top, self.min_weight, self.max_negatives))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer row of a source, or of its copy in the same pool.

    eci_nats, interval_95 : at the run's budget.   outscoring : share of negatives that outscore their positive.
    n_triplets : distinct negatives of the records, which the numbers are of.
    """

    status: Status
    eci_nats: float
    interval_95: tuple[float, float]
    hardness: float | None
    outscoring: float
    flagged_share: float
    n_triplets: int


@dataclass(frozen=True, kw_only=True)
class Selection(Written):
    """What was written, and the answer before and after.

    drop         : the findings whose negatives were dropped.
    n_listed     : negatives as the source's rows list them, repeats and blank ones included:
                   n_negatives + sum(left_out).
    n_unscored   : negatives in the copy that the run did not score: the rules of the texts dropped the others of them,
                   findings that need the encoder none. `before` and `after` are of the scored ones.
    left_out     : listed negatives that are not in the copy, by reason: of several findings the catalogue's first.
                   Blank negatives are `empty` and in no copy.
    n_records    : of the source; n_records_kept: those that keep a negative, the others are not in the copy.
    rows_skipped : rows that give no record and are not in the copy, by reason. Of what they list only blank negatives
                   are counted.
    budget       : B, the run's. Beyond B = 1 scores of unequal numbers do not compare. With a ranking rule the
                   comparison is circular: the encoder that selected scores.
    """

    source: str
    path: str
    left_out_path: str
    drop: tuple[str, ...]
    n_listed: int
    n_unscored: int
    left_out: dict[str, int]
    n_records: int
    n_records_kept: int
    rows_skipped: dict[str, int]
    budget: float
    before: Answer
    after: Answer


def select(
    run: Run,
    folder: Path,
    name: str | None,
    rule: Rule,
    out: Path,
    asked: str | None,
    encoder: EncoderLike | None,
    own: Resolved,
    work: Path,
    progress: Progress,
) -> Selection:
    """Writes the filtered copy of a source, and OUT.left-out.jsonl with what it leaves out; scores the copy.

    folder : the run folder.   asked : the schema of the copy, None for the source's own or flagembedding.
    encoder : the run's, as an object; otherwise loaded.   own : the settings of this command, which name the encoder
    where the run folder may not.   work : an empty folder for temporary files.
    Raises EncoderError for an encoder that cannot be loaded or is not the run's, UsageError for a finding that was not
    evaluated, InputError where the original has changed, NothingToScoreError where no negative is left, OutputError for
    a file that exists or cannot be written.
    """
    if run.early_stop is not None:
        raise UsageError(
            "this run stopped early, so most negatives have no numbers to select by",
            remedy="score without --until-ranked",
        )
    result = find_source(run, name)
    if "suspect" in rule.drop:
        _refuse_no_evidence(run, result.name)
    schema, suffix = schema_of(asked, {file.schema for file in result.paths}), suffix_of(out)
    settings = settings_of(run, controls="none", ablate=False, block=(), by=None)
    # Before any work, so that an encoder which must be named is asked for at once
    loading = settings if is_object(encoder) else loading_settings(run, folder, own)
    left_out_path = out.with_name(f"{out.name}.left-out.jsonl")
    rules = text_rules_of(folder, run)
    with (
        new_files(out, left_out_path) as (copy, log),
        plan_again(run, [result.name], replace(settings, max_records=None, first_k=None), work, progress, rules) as (
            plan,
            originals,
        ),
    ):
        original = originals[result.name]
        sample = restricted(original.planned, plan.queries, settings)
        facts = read_facts(run, folder, original, sample, get_args(By), rule.drop, rule.drop, "--drop")
        reasons = reasons_left_out(plan, original.planned, facts, rule)
        selected = _Selected(original, facts, reasons, _listed_reasons(original.planned, reasons, rule))
        selected.refuse_nothing()
        with writing(left_out_path), log.open("w", encoding="utf-8", newline="\n") as lines:
            left_out, rows_skipped = selected.write_left_out(lines)
        with writing(out):
            written = write_rows(selected.rows, schema, copy, suffix)
        encoder = load(loading, progress, encoder)
        scored = _scored_again(run, folder, plan, selected, settings, "repeat" in rule.drop, encoder, work, progress)
    return Selection(
        **vars(written),
        source=result.name,
        path=str(out),
        left_out_path=str(left_out_path),
        drop=rule.drop,
        n_listed=len(selected.listed) + int(original.planned.blanks.count.sum()),
        n_unscored=int((~facts.scored[original.planned.listed] & (selected.listed == "")).sum()),
        left_out=left_out,
        n_records=original.planned.n_records,
        n_records_kept=len(np.unique(original.planned.triplet_record()[reasons == ""])),
        rows_skipped=rows_skipped,
        budget=run.budget,
        before=_answer(result, run.budget),
        after=_answer(scored, run.budget),
    )


@dataclass(frozen=True)
class Facts:
    """What is known of a source's negatives, (T,) each, in the order of the plan's triplets.

    scored   : those that the run scored.   numbers : columns of negatives.parquet; NaN for the others.
    findings : by name, in the order given. One that needs the encoder is False for the others.
    """

    scored: Flags
    numbers: Mapping[str, Floats]
    findings: dict[str, Flags]


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
    own = None if run.guide is None else run.guide.of(source)
    if run.guide is None or own is None or own.is_evidence:
        return
    why = suspects_sentences(replace(run.guide, sources=(own,)))[0].rstrip(".")
    raise UsageError(
        f"suspects of {named(source)} are no evidence. {why}; random passages scored: {own.n_random:,}",
        where="--drop",
        remedy="leave suspect out of --drop, or score again with another guide",
    )


def reasons_left_out(plan: Plan, planned: PlannedSource, facts: Facts, rule: Rule) -> Strings:
    """(T,) why each negative is left out; "" for those that stay."""
    reasons = np.full(planned.n_triplets, "", dtype=object)
    for finding, flags in reversed(list(facts.findings.items())):  # the catalogue's first one counts
        reasons[flags] = finding
    if rule.ranked:
        reasons[(reasons == "") & ~facts.scored] = UNSCORED
    if rule.min_weight is not None:
        # Written as "stays if", so that NaN goes
        reasons[(reasons == "") & ~(facts.numbers["weight"] >= rule.min_weight)] = "min_weight"
    value, record = facts.numbers[rule.by], planned.triplet_record()
    positive, passage_keys = planned.positives[planned.positive_offsets[record]], plan.passages.keys
    query = planned.query[record]
    content = content_of(passage_keys[planned.negatives], passage_keys[positive], plan.queries.keys[query])
    for reason, limit, group in (("top", rule.top, record), ("max", rule.max_negatives, np.zeros_like(record))):
        if limit is not None:
            staying = np.flatnonzero(reasons == "")
            order = staying[best_first(value[staying], content[staying], group[staying])]
            starts = np.searchsorted(group[order], group[order])
            reasons[order[np.arange(len(order)) - starts >= limit]] = reason
    return reasons


def _listed_reasons(planned: PlannedSource, reasons: Strings, rule: Rule) -> Strings:
    """(L,) why each listed negative is left out; "" for those that stay."""
    listed = reasons[planned.listed]
    if "repeat" in rule.drop:
        before = rule.drop[: rule.drop.index("repeat")]
        listed[planned.listed_again() & ~np.isin(listed, before)] = "repeat"
    return listed


@dataclass(frozen=True)
class _Selected:
    """What stays of a source.   reasons : (T,) as `reasons_left_out` gives them.   listed : (L,) of what rows list."""

    original: Original
    facts: Facts
    reasons: Strings
    listed: Strings

    def refuse_nothing(self) -> None:
        if (self.listed != "").all():
            counts = ", ".join(f"{reason} {count:,}" for reason, count in sorted(Counter(self.listed).items()))
            raise NothingToScoreError(f"no negative is left ({counts})", where=self.original.name)

    def rows(self) -> Iterator[Row]:
        """The rows of the copy."""
        for _, row, part in self.original.rows():
            reasons = zip(row.negatives if row else (), self.listed[part], strict=True)
            staying = [negative for negative, reason in reasons if not reason]
            if row and staying:
                yield row._replace(negatives=staying)

    def write_left_out(self, lines: TextIO) -> tuple[dict[str, int], dict[str, int]]:
        """A line for each listed negative, and each row, that is not in the copy; how many, by reason."""
        left_out, skipped, planned = Counter[str](), Counter[str](), self.original.planned
        for place, row, part in self.original.rows():
            if row is None:
                skipped[place.reason] += 1
                lines.write(self._line(place.path, place.line, f"not scored: {place.reason}"))
                continue
            facts = zip(row.negatives, self.listed[part], planned.listed[part].tolist(), strict=True)
            for ordinal, (negative, reason, triplet) in enumerate(facts):
                if reason:
                    left_out[reason] += 1
                    texts = {"query": row.query, "positive": row.positives[0].text, "negative": negative.text}
                    lines.write(self._line(place.path, place.line, reason, ordinal, triplet, texts))
        for file, line, count in planned.blanks:
            left_out["empty"] += count
            lines.writelines([self._line(planned.source.paths[file], line, "empty")] * count)
        return dict(sorted(left_out.items())), dict(sorted(skipped.items()))

    def _line(
        self,
        path: str,
        line: int,
        reason: str,
        ordinal: int | None = None,
        triplet: int = -1,
        texts: Mapping[str, Any] | None = None,
    ) -> str:
        """ordinal: None for a whole row or a blank.   triplet: -1 where there is none."""
        scored = triplet >= 0 and bool(self.facts.scored[triplet])
        entry = {
            "path": path,
            "line": line,
            "ordinal": ordinal,
            **(texts or dict.fromkeys(("query", "positive", "negative"))),
            **{name: float(of[triplet]) if scored else None for name, of in self.facts.numbers.items()},
            "reason": reason,
            "findings": [
                name
                for name, flags in self.facts.findings.items()
                if name == reason or (triplet >= 0 and flags[triplet])
            ],
        }
        return json.dumps(entry, ensure_ascii=False) + "\n"


def _scored_again(
    run: Run,
    folder: Path,
    plan: Plan,
    selected: _Selected,
    settings: Settings,
    without_repeats: bool,
    encoder: Encoder,
    work: Path,
    progress: Progress,
) -> SourceResult:
    """The result of the copy's scored negatives, from the texts of the plan: the run's settings and pool, no controls.

    Raises EncoderError where the encoder is not the run's.
    """
    if encoder.info.fingerprint != run.encoder.fingerprint:
        raise EncoderError(
            f"is not the encoder of the run, {run.encoder.name}: their fingerprints differ",
            where=encoder.info.name,
            remedy=f"name the run's encoder by {flag_of('encoder')}",
        )
    planned, name = selected.original.planned, selected.original.name
    planned = replace(
        planned,
        name=name,
        copies=np.ones_like(planned.copies) if without_repeats else planned.copies,
        blanks=planned.blanks.only(np.zeros(len(planned.blanks.count), np.bool_)),
    )
    stays = (selected.reasons == "") & selected.facts.scored
    if not stays.any():  # only negatives outside the sample are left
        raise NothingToScoreError("none of the negatives that the run scored is left", where=name)
    part = _part(planned, selected.reasons == "")
    planned = replace(planned, excess=ListedNegatives(part, plan.queries.keys).excess())
    texts = text_findings_of(replace(plan, sources=(replace(part, excess=planned.excess),)), settings)
    plan = plan_with(plan, (_part(planned, stays),))
    pool, reference = read_frequencies(folder, run), read_reference(folder, run)
    measured = measure(plan, encoder, settings, work, Clock(), progress, pool, reference, texts=texts)
    files = {file.path: file for file in find_source(run, name).paths}
    scored = finished(measured, files, encoder, Resolved(settings, dict.fromkeys(FIELDS, "run")), Clock(), None)
    return scored.run.sources[0]


def _part(planned: PlannedSource, stays: Flags) -> PlannedSource:
    """The source with some of its negatives, and the records that have one of them. stays: (T,)."""
    return part_of(planned, np.isin(np.arange(planned.n_records), planned.triplet_record()[stays]), stays)


def _answer(source: SourceResult, budget: float) -> Answer:
    point = next(point for point in source.budget_curve if point.budget == budget)
    return Answer(
        status=source.status,
        eci_nats=point.nats,
        interval_95=point.interval_95,
        hardness=source.hardness,
        outscoring=source.inversion_fraction,
        flagged_share=source.flagged_share,
        n_triplets=source.n_triplets,
    )
