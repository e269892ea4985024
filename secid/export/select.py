"""A filtered copy of a source: the negatives that a run's numbers speak for. Source: METHOD 7, 8."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from secid.encode import Encoder
from secid.errors import EncoderError, InputError, NothingToScoreError, UsageError
from secid.export.rewrite import check_output, rewrite
from secid.export.source_files import PLACEHOLDER, find_source, plan_again, settings_of, split_of
from secid.files import written_lines
from secid.pool import PlannedSource
from secid.progress import Progress
from secid.read.clean import Item
from secid.records import Record, Source
from secid.results import BudgetPoint, Run, SourceResult
from secid.run_folder.read import read_frequencies, read_negatives
from secid.scoring.run import score_sources
from secid.settings import FIELDS, Resolved

By = Literal["weight", "influence", "information"]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

COLUMNS = ("source", "record", "negative", "weight", "influence", "information")
FLAGS = {"labelled_positive": "in_equals_positive", "near_copy": "in_near_copy"}
"""What no selection keeps, whatever the rule, by reason: the column that flags it."""
RULES = ("top", "min_weight", "max")
"""Why a rule of the user's leaves a negative out."""
REPEAT = "repeat"
"""Why the second and further copies of a negative in a record are left out: they are scored once, together."""
UNSCORED = "not scored: outside the sample or the first K"

CIRCULAR = "Selecting and scoring with the same encoder is circular{}. {}"
BY_THE_SCORE = ": the score rises because it is what was selected by"
ONLY_TRAINING = "Whether training on the selection is better, only training can say."


@dataclass(frozen=True)
class Rule:
    """Which negatives stay. by: the column that top and max_negatives go by, larger first.

    top : at most so many of each record.   min_weight : none of a smaller weight.
    max_negatives : at most so many of the whole source.
    Raises UsageError where nothing is asked for or a number is out of range.
    """

    top: int | None = None
    min_weight: float | None = None
    max_negatives: int | None = None
    by: By = "weight"

    def __post_init__(self) -> None:
        if self.by not in get_args(By):
            raise UsageError(f"unknown column {self.by!r}", where="--by", remedy=f"one of {', '.join(get_args(By))}")
        if self.top is None and self.min_weight is None and self.max_negatives is None:
            raise UsageError("no rule given", remedy="--top K, --min-weight W or --max N says which negatives stay")
        for flag, number in (("--top", self.top), ("--max", self.max_negatives)):
            if number is not None and number < 1:
                raise UsageError(f"at least 1, got {number}", where=flag)
        if self.min_weight is not None and not 0.0 <= self.min_weight <= 1.0:
            raise UsageError(f"between 0 and 1, got {self.min_weight:g}", where="--min-weight")


@dataclass(frozen=True)
class Numbers:
    """The columns of negatives.parquet of one source, (T,) each, in the order of the plan's triplets.

    labelled_positive : labelled a positive of its query by any source of the run.   near_copy : of a scored positive.
    """

    weight: Floats
    influence: Floats
    information: Floats
    labelled_positive: Flags
    near_copy: Flags


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What was written.

    n_listed     : usable negatives as the source's rows list them, repeats included: n_after + sum(left_out).
    n_before, n_after : distinct negatives of the source's records, as scored and as kept.
    n_rows       : rows of the copy, those of the file's other sources too.
    n_repeated   : cells that repeat a negative of their row, where each has a column of its own.
    left_out     : listed negatives that are not in the copy, by reason.
    rows_skipped : rows that give no record and are not in the copy, by reason. What they list is not counted.
    """

    source: str
    path: str
    left_out_path: str
    n_listed: int
    n_before: int
    n_after: int
    n_rows: int
    n_repeated: int
    left_out: dict[str, int]
    rows_skipped: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Selected(Selection):
    """The copy and its score beside the original's, in the same pool (IDF table) and at the same budget.

    before_nats, after_nats : ECI at the run's budget.   before_interval_95, after_interval_95 : of each.
    remark : how the two may be compared.
    """

    budget: float
    before_nats: float
    before_interval_95: tuple[float, float]
    after_nats: float
    after_interval_95: tuple[float, float]
    remark: str


def only_source(run: Run, name: str | None) -> str:
    """The source asked for, or the only one. Raises UsageError where there are several."""
    if name is not None:
        return find_source(run, name).name
    if len(run.sources) > 1:
        names = ", ".join(source.name for source in run.sources)
        raise UsageError("this run has several sources", remedy=f"--source NAME, one of {names}")
    return run.sources[0].name


def select(run: Run, folder: Path, name: str, rule: Rule, out: Path, work: Path) -> Selection:
    """Writes the filtered copy of a source, and beside it OUT.left-out.jsonl.

    folder : the run folder.   work : an empty folder for temporary files.
    Whatever the rule, labelled positives, near copies of the positive and repeats within a record are left out.
    Raises InputError where the original has changed, SchemaError where it cannot be rewritten in place.
    """
    if run.early_stop is not None:
        raise UsageError(
            "this run stopped early, so most negatives have no numbers to select by",
            remedy="score without --until-ranked",
        )
    settings = settings_of(run)
    plan, originals = plan_again(run, [name], settings, work)
    plan.close()
    original = originals[name]
    planned = original.planned
    check_output(original.paths, settings, original.split, out)
    numbers = read_numbers(folder, name, planned)
    reasons = reasons_left_out(planned, numbers, rule)
    if all(reasons):
        counts = ", ".join(f"{reason} {count:,}" for reason, count in sorted(Counter(reasons).items()))
        raise NothingToScoreError(f"no negative is left ({counts})", where=name, remedy="ask for less")
    keep = np.array([not reason for reason in reasons], np.bool_)
    left_out_path = out.with_name(f"{out.name}.left-out.jsonl")
    with written_lines(left_out_path) as lines:
        log = _Log(planned, numbers, reasons, lines)
        copied = rewrite(original.paths, settings, original.split, log.decide, out, _width(planned, keep))
    return Selection(
        source=name,
        path=str(out),
        left_out_path=str(left_out_path),
        n_listed=len(planned.listed),
        n_before=planned.n_triplets,
        n_after=int(keep.sum()),
        n_rows=copied.n_rows,
        n_repeated=copied.n_repeated,
        left_out=dict(sorted(log.left_out.items())),
        rows_skipped=dict(sorted(log.rows_skipped.items())),
    )


def rescore(run: Run, folder: Path, written: Selection, encoder: Encoder, work: Path, progress: Progress) -> Selected:
    """Scores the copy as the run scored the original: same settings, same pool, no controls, ablations or slices.

    Raises EncoderError where the encoder is not the run's.
    """
    if encoder.info.fingerprint != run.encoder.fingerprint:
        raise EncoderError(
            f"is not the encoder of the run, {run.encoder.name}: their fingerprints differ",
            where=encoder.info.name,
            remedy="select with the run's encoder",
        )
    settings = settings_of(run, controls="none", ablate=False, block=(), by=None)
    resolved = Resolved(settings, dict.fromkeys(FIELDS, "run"))
    source = Source(PLACEHOLDER, (written.path,))
    scored = score_sources([source], encoder, resolved, work, progress, read_frequencies(folder, run))
    splits = {found.name.removeprefix(source.name).removeprefix(":"): found for found in scored.run.sources}
    before = _point(find_source(run, written.source), run.budget)
    after = _point(splits[split_of(written.source, splits, written.path)], run.budget)
    return Selected(
        **vars(written),
        budget=run.budget,
        before_nats=before.nats,
        before_interval_95=before.interval_95,
        after_nats=after.nats,
        after_interval_95=after.interval_95,
        remark=" ".join((*_unequal(written, run.budget), _circular(written, rises=after.nats > before.nats))),
    )


def _circular(written: Selection, *, rises: bool) -> str:
    by_rule = any(reason in RULES for reason in written.left_out)
    return CIRCULAR.format(BY_THE_SCORE if rises and by_rule else "", ONLY_TRAINING)


def _unequal(written: Selection, budget: float) -> list[str]:
    """A sentence where the two scores may not be compared. Source: METHOD 7."""
    if budget <= 1.0 or written.n_after == written.n_before:
        return []
    why = "beyond B = 1 only equal numbers compare, because a smaller sample scores too low"
    numbers = f"Before and after are of {written.n_before:,} and {written.n_after:,} negatives"
    return [f"{numbers}: {why}, so the difference is not of the selection alone."]


def _point(source: SourceResult, budget: float) -> BudgetPoint:
    return next(point for point in source.budget_curve if point.budget == budget)


def read_numbers(folder: Path, name: str, planned: PlannedSource) -> Numbers:
    """A source's columns of negatives.parquet; several positives of a negative give the mean weight.

    Raises InputError where the table is damaged, or is not that of these files.
    """
    table = read_negatives(folder, [*COLUMNS, *FLAGS.values()], name)
    record, negative = table["record"].to_numpy(), table["negative"].to_numpy()
    fits = len(record) > 0 and int(record.max()) < planned.n_records
    place = planned.negative_offsets[record] + negative if fits else record
    if not fits or not np.array_equal(np.unique(place), np.arange(planned.n_triplets)):
        raise InputError(
            f"holds other negatives than the files of {name} now give",
            where=str(folder / "negatives.parquet"),
            remedy="score the source again",
        )

    def summed(column: str) -> Floats:
        return np.bincount(place, table[column].to_numpy(), planned.n_triplets).astype(np.float64)

    n_positives = np.bincount(place, minlength=planned.n_triplets)
    return Numbers(
        summed("weight") / n_positives,
        summed("influence"),
        summed("information"),
        **{reason: summed(column) > 0 for reason, column in FLAGS.items()},
    )


def reasons_left_out(planned: PlannedSource, numbers: Numbers, rule: Rule) -> list[str]:
    """(T,) why each negative is left out; "" for those that stay. Of equals the one listed first stays."""
    reasons = np.full(planned.n_triplets, "", dtype=object)
    for reason in reversed(FLAGS):  # of several, the first is told
        reasons[getattr(numbers, reason)] = reason
    if rule.min_weight is not None:
        # Written as "stays if", so that NaN goes
        reasons[(reasons == "") & ~(numbers.weight >= rule.min_weight)] = "min_weight"
    value: Floats = getattr(numbers, rule.by)
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
    return [str(reason) for reason in reasons]


def _width(planned: PlannedSource, keep: Flags) -> int:
    """The most negatives that any row keeps."""
    rows = np.stack([planned.negative_file[keep], planned.negative_line[keep]], axis=1)
    return int(np.unique(rows, axis=0, return_counts=True)[1].max())


class _Log:
    """Decides row by row, and writes down what is left out."""

    def __init__(self, planned: PlannedSource, numbers: Numbers, reasons: Sequence[str], lines: Any) -> None:
        self._planned, self._numbers, self._reasons, self._lines = planned, numbers, reasons, lines
        self._done = 0
        self._met = np.zeros(planned.n_triplets, np.bool_)
        self.left_out: Counter[str] = Counter()
        self.rows_skipped: Counter[str] = Counter()

    def decide(self, item: Item) -> list[int]:
        if not isinstance(item, Record):
            self.rows_skipped[item.reason] += 1
            self._tell(item.path, item.line, None, -1, f"not scored: {item.reason}")
            return []
        triplets = self._planned.listed[self._done : self._done + len(item.negatives)]
        self._done += len(item.negatives)
        stays = []
        for ordinal, triplet in enumerate(triplets.tolist()):
            reason = self._reason(triplet)
            if reason:
                self.left_out[reason] += 1
                self._tell(item.path, item.line, ordinal, triplet, reason)
            else:
                stays.append(ordinal)
        return stays

    def _reason(self, triplet: int) -> str:
        if triplet < 0:
            return UNSCORED
        if self._met[triplet]:
            return REPEAT
        self._met[triplet] = True
        return self._reasons[triplet]

    def _tell(self, path: str, line: int, ordinal: int | None, triplet: int, reason: str) -> None:
        """One line of the file. ordinal: None for a whole row.   triplet: -1 where there is none."""
        numbers = self._numbers
        told = {
            "path": path,
            "line": line,
            "ordinal": ordinal,
            "weight": None if triplet < 0 else float(numbers.weight[triplet]),
            "influence": None if triplet < 0 else float(numbers.influence[triplet]),
            "information": None if triplet < 0 else float(numbers.information[triplet]),
            "reason": reason,
        }
        self._lines.write(json.dumps(told, ensure_ascii=False) + "\n")
