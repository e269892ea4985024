"""A filtered copy of a source: without the negatives that have a finding, and only the best ranked of the others.

Findings are the columns of the run's negatives.parquet, so that `select` drops what `score` reports. Of the copies of a
text in a record the first is kept and the others are repeats. Source: METHOD 7, 14.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from secid.errors import InputError, NothingToScoreError, UsageError
from secid.export.rewrite import check_output, rewrite
from secid.export.source_files import Original, find_source, plan_again, settings_of
from secid.files import written_lines
from secid.findings.normal_form import text_forms
from secid.findings.rows import SAMPLED
from secid.findings.texts import listed_before, mask_of
from secid.pool import PlannedSource
from secid.pool.plan import Mask
from secid.pool.texts import TextStore
from secid.read import open_source
from secid.read.clean import Item
from secid.records import Record
from secid.results import Run
from secid.results.catalogue import FINDINGS, known_finding
from secid.run_folder.read import read_negatives
from secid.settings import Settings

By = Literal["weight", "influence", "information"]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Strings = npt.NDArray[np.object_]

PLACE = ("source", "record", "negative")
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
    """Which negatives stay. by: the column that top and max_negatives go by, larger first.

    top : at most so many distinct ones of each record.   min_weight : none of a smaller weight.
    max_negatives : at most so many distinct ones (of each record) in the whole source.
    drop : none that has one of these findings, which goes before the ranking.
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
                "no rule given",
                remedy="--drop NAME says which negatives go; --top K, --min-weight W or --max N which ones stay",
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
class Selection:
    """What was written.

    drop         : the findings whose negatives were dropped.
    n_listed     : negatives as the source's rows list them, repeats and blank ones included:
                   n_after + sum(left_out).
    n_after      : those of them that the copy lists.
    n_rows       : rows of the copy, those of the file's other sources too.
    n_repeated   : cells that repeat a negative of their row, where each has a column of its own.
    n_unchecked  : negatives in the copy that the run did not score, so that no finding of theirs is known.
    left_out     : listed negatives that are not in the copy, by reason: of several findings the catalogue's first.
                   Blank negatives are `empty` and in no copy.
    rows_skipped : rows that give no record and are not in the copy, by reason. Of what they list only blank negatives
                   are counted.
    """

    source: str
    path: str
    left_out_path: str
    drop: tuple[str, ...]
    n_listed: int
    n_after: int
    n_rows: int
    n_repeated: int
    n_unchecked: int
    left_out: dict[str, int]
    rows_skipped: dict[str, int]


def only_source(run: Run, name: str | None) -> str:
    """The source asked for, or the only one. Raises UsageError where there are several."""
    if name is not None:
        return find_source(run, name).name
    if len(run.sources) > 1:
        names = ", ".join(source.name for source in run.sources)
        raise UsageError("this run has several sources", remedy=f"--source NAME, one of {names}")
    return run.sources[0].name


def select(run: Run, folder: Path, name: str, rule: Rule, out: Path, work: Path) -> Selection:
    """Writes the filtered copy of a source, and OUT.left-out.jsonl with what it leaves out.

    folder : the run folder.   work : an empty folder for temporary files.
    Raises UsageError for a finding that the run did not look for, InputError where the original has changed,
    SchemaError where it cannot be rewritten in place, NothingToScoreError where no negative is left.
    """
    if run.early_stop is not None:
        raise UsageError(
            "this run stopped early, so most negatives have no numbers to select by",
            remedy="score without --until-ranked",
        )
    settings = settings_of(run)
    rules = _repeats if "repeat" in rule.drop else None
    plan, originals = plan_again(run, [name], settings, work, rules)
    plan.close()
    original = originals[name]
    planned = original.planned
    check_output(original.paths, settings, original.split, out)
    facts = _read_facts(run, folder, name, planned, rule)
    reasons = _listed_reasons(planned, reasons_left_out(planned, facts, rule), rule)
    if reasons.all():
        counts = ", ".join(f"{reason} {count:,}" for reason, count in sorted(Counter(reasons).items()))
        raise NothingToScoreError(f"no negative is left ({counts})", where=name, remedy="ask for less")
    left_out_path = out.with_name(f"{out.name}.left-out.jsonl")
    with written_lines(left_out_path) as lines:
        log = _Log(planned, facts, reasons, lines)
        width = _width(original, settings, reasons)
        copied = rewrite(original.paths, settings, original.split, log.decide, out, width)
        log.blanks()
    n_left_out = log.left_out.total()
    n_listed = len(planned.listed) + int(planned.blanks.count.sum())
    return Selection(
        source=name,
        path=str(out),
        left_out_path=str(left_out_path),
        drop=rule.drop,
        n_listed=n_listed,
        n_after=n_listed - n_left_out,
        n_rows=copied.n_rows,
        n_repeated=copied.n_repeated,
        n_unchecked=int(((planned.listed < 0) & (reasons == "")).sum()),
        left_out=dict(sorted(log.left_out.items())),
        rows_skipped=dict(sorted(log.rows_skipped.items())),
    )


def _repeats(queries: TextStore, passages: TextStore, sources: Sequence[PlannedSource]) -> list[Mask]:
    """Of the text rules the one whose column does not say how many copies of a negative go."""
    facts = text_forms(passages)
    return [mask_of({"repeat": listed_before(planned, facts)}, planned.n_triplets) for planned in sources]


@dataclass(frozen=True)
class _Facts:
    """What the run says of a source's negatives, (T,) each, in the order of the plan's triplets.

    numbers : weight, influence and information.   findings : of the rule's names, in its order.
    """

    numbers: Mapping[str, Floats]
    findings: Mapping[str, Flags]


def _read_facts(run: Run, folder: Path, name: str, planned: PlannedSource, rule: Rule) -> _Facts:
    """A source's columns of negatives.parquet. Several positives of a negative give the mean weight and any finding.

    Raises UsageError for a finding that the run did not look for, InputError where the table is damaged, or is not that
    of these files.
    """
    columns = {finding: FINDINGS[finding].column for finding in rule.drop}
    table = read_negatives(folder, [*PLACE, *get_args(By), *columns.values()], name)
    record, negative = table["record"].to_numpy(), table["negative"].to_numpy()
    fits = len(record) > 0 and int(record.max()) < planned.n_records
    place = planned.negative_offsets[record] + negative if fits else record
    if not fits or not np.array_equal(np.unique(place), np.arange(planned.n_triplets)):
        raise InputError(
            f"holds other negatives than the files of {name} now give",
            where=str(folder / "negatives.parquet"),
            remedy="score the source again",
        )
    _refuse_not_evaluated(run, name, [finding for finding in columns if table[columns[finding]].null_count])

    def summed(column: str) -> Floats:
        return np.bincount(place, table[column].to_numpy(), planned.n_triplets).astype(np.float64)

    numbers = {column: summed(column) for column in get_args(By)}
    numbers["weight"] /= np.bincount(place, minlength=planned.n_triplets)
    findings = {finding: summed(column) > 0 for finding, column in columns.items()}
    if "repeat" in findings:
        findings["repeat"] = planned.again()
    return _Facts(numbers, findings)


def _refuse_not_evaluated(run: Run, source: str, findings: Collection[str]) -> None:
    """Raises UsageError where the run did not look for a finding."""
    for finding in findings:
        why = run.not_evaluated.get("hardness" if finding in SAMPLED else finding)
        raise UsageError(
            f"the run did not look for {finding} in {source}{f': {why}' if why else ''}",
            where="--drop",
            remedy=f"leave {finding} out of --drop, or score again so that it is evaluated",
        )


def reasons_left_out(planned: PlannedSource, facts: _Facts, rule: Rule) -> Strings:
    """(T,) why each negative is left out; "" for those that stay. Of equals the one listed first stays."""
    reasons = np.full(planned.n_triplets, "", dtype=object)
    for finding, flags in reversed(list(facts.findings.items())):  # the catalogue's first one counts
        reasons[flags] = finding
    if rule.min_weight is not None:
        # Written as "stays if", so that NaN goes
        reasons[(reasons == "") & ~(facts.numbers["weight"] >= rule.min_weight)] = "min_weight"
    value = facts.numbers[rule.by]
    if rule.top is not None:
        staying = np.flatnonzero(reasons == "")
        record = planned.triplet_record()[staying]
        order = staying[np.lexsort((staying, -value[staying], record))]
        record = planned.triplet_record()[order]
        starts = np.searchsorted(record, record)
        reasons[order[np.arange(len(order)) - starts >= rule.top]] = "top"
    if rule.max_negatives is not None:
        staying = np.flatnonzero(reasons == "")
        order = staying[np.lexsort((staying, -value[staying]))]
        reasons[order[rule.max_negatives :]] = "max"
    return reasons


def _listed_reasons(planned: PlannedSource, reasons: Strings, rule: Rule) -> Strings:
    """(L,) why each listed negative is left out; "" for those that stay. What was not scored cannot be ranked."""
    listed = np.where(planned.listed >= 0, reasons[planned.listed], UNSCORED if rule.ranked else "")
    if "repeat" in rule.drop:
        before = rule.drop[: rule.drop.index("repeat")]
        again = _met_before(planned.listed) & (planned.listed >= 0)
        listed[again & ~np.isin(listed, before)] = "repeat"
    return listed


def _met_before(ids: npt.NDArray[np.int64]) -> Flags:
    """(n,) which ids occur at an earlier place."""
    again = np.ones(len(ids), np.bool_)
    again[np.unique(ids, return_index=True)[1]] = False
    return again


def _width(original: Original, settings: Settings, reasons: Strings) -> int:
    """The most negatives that any row keeps. reasons: (L,) as `_listed_reasons` gives them."""
    planned, staying = original.planned, reasons == ""
    if not (staying & (_met_before(planned.listed) | (planned.listed < 0))).any():
        keep = planned.listed[staying]  # each in the row that lists it first
        rows = np.stack([planned.negative_file[keep], planned.negative_line[keep]], axis=1)
        return int(np.unique(rows, axis=0, return_counts=True)[1].max())
    most = done = 0
    for item in open_source(planned.source, settings):
        if isinstance(item, Record) and item.split == original.split:
            most = max(most, int(staying[done : done + len(item.negatives)].sum()))
            done += len(item.negatives)
    return most


class _Log:
    """Decides row by row, and writes down what is left out. reasons: (L,) of the listed negatives."""

    def __init__(self, planned: PlannedSource, facts: _Facts, reasons: Strings, lines: Any) -> None:
        self._planned, self._facts, self._reasons, self._lines = planned, facts, reasons, lines
        self._done = 0
        self.left_out: Counter[str] = Counter()
        self.rows_skipped: Counter[str] = Counter()

    def decide(self, item: Item) -> list[int]:
        """Places of the row's negatives that stay."""
        if not isinstance(item, Record):
            self.rows_skipped[item.reason] += 1
            self._write(item.path, item.line, None, -1, f"not scored: {item.reason}")
            return []
        part = slice(self._done, self._done + len(item.negatives))
        self._done = part.stop
        stays = []
        for ordinal, (triplet, reason) in enumerate(
            zip(self._planned.listed[part].tolist(), self._reasons[part], strict=True)
        ):
            if reason:
                self.left_out[reason] += 1
                self._write(item.path, item.line, ordinal, triplet, reason)
            else:
                stays.append(ordinal)
        return stays

    def blanks(self) -> None:
        """Counts the negatives without text, which the reader leaves out of every row."""
        blanks, paths = self._planned.blanks, self._planned.source.paths
        for file, line, count in zip(blanks.file.tolist(), blanks.line.tolist(), blanks.count.tolist(), strict=True):
            self.left_out["empty"] += count
            for _ in range(count):
                self._write(paths[file], line, None, -1, "empty")

    def _write(self, path: str, line: int, ordinal: int | None, triplet: int, reason: str) -> None:
        """One line of the file. ordinal: None for a whole row or a blank.   triplet: -1 where there is none."""
        numbers, findings = self._facts.numbers, self._facts.findings
        entry = {
            "path": path,
            "line": line,
            "ordinal": ordinal,
            **{name: None if triplet < 0 else float(values[triplet]) for name, values in numbers.items()},
            "reason": reason,
            "findings": [n for n, flags in findings.items() if n == reason or (triplet >= 0 and flags[triplet])],
        }
        self._lines.write(json.dumps(entry, ensure_ascii=False) + "\n")
