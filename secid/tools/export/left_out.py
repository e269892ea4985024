"""Choose the negatives that a copy of a source keeps, and log the others. No encoder is needed.

Source: METHOD 7, 14.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TextIO, get_args

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Floats, best_first
from secid.errors import NothingToScoreError, UsageError
from secid.findings.status import ListedNegatives
from secid.measure.false_negatives import RELATIVE_MARGIN, margin_flags
from secid.pages.statuses import STATUS
from secid.pages.text import percent
from secid.pool import Plan, PlannedSource, content_of, select_records
from secid.results import SourceFinding, Status, defects_to_drop
from secid.results.catalogue import DEFECT_LIMIT, DEFECTS, FINDINGS, known_finding
from secid.results.sources import BudgetPoint
from secid.tools.export.read_again import Original
from secid.write.rows import CopyRow
from secid.write.writer import Schema, WrittenFile, schema_of, suffix_of, write_rows, writing

By = Literal["similarity", "weight", "influence", "information"]
Strings = npt.NDArray[np.object_]

UNSCORED_REASON = "not scored: outside the sample or the first K"
DROP_NOTHING = "none"
"""Value of --drop that drops no finding."""
SHARE_TOLERANCE = 1e-5
"""Relative tolerance for shares, because a report stores them with six digits."""
RANKING_COLUMNS = ("s_query_positive", "s_query_negative", "weight", "influence", "information")
"""Columns of negatives.parquet that rankings use. They are also in the log of left-out negatives."""
BELOW_ALL_SIMILARITIES = -10.0
"""Offset of the similarity of negatives above the margin. They rank after all others, the most similar last."""


def defects_of_ranking(findings: Sequence[SourceFinding]) -> tuple[str, ...]:
    """Return the defects that a ranking drops by default, in the order of the catalogue.

    Negatives with a defect are often the hardest, so a ranking would keep them. A formal defect is dropped only if it
    counts and if dropping it brings the negatives closer to the positives. Otherwise the copy's negatives would be
    easier to tell from positives.
    """
    helped = defects_to_drop(findings)
    return tuple(name for name in DEFECTS if not FINDINGS[name].formal or name in helped)


def findings_to_drop(names_or_list: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the named findings in the order of the catalogue, without repeats.

    names_or_list : a name, several names separated by commas, or a sequence of these. None or "none" for no finding.
    Raises UsageError for an unknown name, or for "none" with other names.
    """
    if names_or_list is None:
        return ()
    parts = [names_or_list] if isinstance(names_or_list, str) else names_or_list
    names = {name.strip() for part in parts for name in part.split(",")} - {""}
    known = {name for name in sorted(names) if known_finding(name, "--drop", (DROP_NOTHING,))}
    if DROP_NOTHING in names and known:
        raise UsageError(
            "'none' cannot be combined with findings", where="--drop", remedy="give only none, or only findings"
        )
    return tuple(name for name in FINDINGS if name in known)


@dataclass(frozen=True)
class Rule:
    """The rule that decides which negatives stay.

    top    : maximum number of distinct negatives per record.   min_weight : minimum weight.
    max_negatives : maximum number of negatives in the whole source. Repeats within a record count once.
    by     : number that `top` and `max_negatives` rank by, largest first. "similarity" is the similarity to the query.
             It ranks negatives at least 5 % below their positive first, then the others, nearest to that margin first.
    drop   : findings whose negatives are dropped before the ranking.
    Raises UsageError if the rule does nothing or a number is out of range.
    """

    top: int | None = None
    min_weight: float | None = None
    max_negatives: int | None = None
    by: By = "similarity"
    drop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.by not in get_args(By):
            raise UsageError(
                f"unknown column {self.by!r}", where="--by", remedy=f"use one of {', '.join(get_args(By))}"
            )
        if not self.ranked and not self.drop:
            raise UsageError(
                "no rule: there is nothing to drop or to limit",
                remedy="name the findings to drop (--drop NAME), or what to keep (--top K, --min-weight W, --max N)",
            )
        for flag, number in (("--top", self.top), ("--max", self.max_negatives)):
            if number is not None and number < 1:
                raise UsageError(f"{number} is too small", where=flag, remedy="give at least 1")
        if self.min_weight is not None and not 0.0 <= self.min_weight <= 1.0:
            raise UsageError(
                f"{self.min_weight:g} is out of range", where="--min-weight", remedy="give a number from 0 to 1"
            )

    @property
    def ranked(self) -> bool:
        """True if the rule has a limit, so that it may also leave out negatives without a finding."""
        return any(number is not None for number in (self.top, self.min_weight, self.max_negatives))


@dataclass(frozen=True)
class Request:
    """A request for a copy of a source.

    source : name of the source; None is allowed if there is only one.   out : path of the copy, a new file.
    schema : schema of the copy; None for the source's own if there is one, else flagembedding.
    force  : write the copy even if its status is worse than the source's.
    """

    source: str | None
    rule: Rule
    out: Path
    schema: Schema | None = None
    force: bool = False

    @property
    def log(self) -> Path:
        """Return the path of the log next to the copy."""
        return self.out.with_name(f"{self.out.name}.left-out.jsonl")

    def schema_of(self, schemas: Set[str]) -> tuple[Schema, str]:
        """Return the schema and the suffix of the copy. schemas: schemas of the source's files.

        Raises UsageError for an unknown schema, OutputError for an unknown suffix.
        """
        return schema_of(self.schema, schemas), suffix_of(self.out)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The row of a source, or of its copy, in the answer table.

    n_triplets : number of distinct scored negatives; of all distinct negatives for a check, which scores nothing.
    score      : score at the run's budget; None for a check, and for a copy, which is not scored.
    hardness   : hardness against the run's random passages; None if the run has none.
    outscoring : share of the negatives that are more similar to the query than their positive.
    """

    status: Status
    flagged_share: float
    n_triplets: int
    score: BudgetPoint | None = None
    hardness: float | None = None
    outscoring: float | None = None


@dataclass(frozen=True, kw_only=True)
class Selection(WrittenFile):
    """The written copy, with the answer before and after.

    encoder      : the run's encoder, as the user typed it; None for a check.
    drop         : findings whose negatives were dropped.
    n_listed     : number of negatives in the source's rows, with repeats and blank negatives:
                   n_negatives + sum(left_out).
    n_unscored   : number of the copy's negatives that the run did not score. They were searched only for findings that
                   need texts. `before` and `after` cover only scored negatives.
    left_out     : number of listed negatives that are not in the copy, by reason. A negative with several findings
                   counts for the first in the catalogue. Blank negatives count as `empty`; no copy has them.
    n_records_kept : number of records that keep a negative. The copy omits the others.
    rows_skipped : number of rows without a record, by reason. They are not in the copy, and only their blank negatives
                   are counted above.
    widened      : formal findings in which the copy differs more from its positives than the source; see `widened`.
    """

    source: str
    encoder: str | None
    path: str
    left_out_path: str
    drop: tuple[str, ...]
    n_listed: int
    n_unscored: int
    left_out: dict[str, int]
    n_records: int
    n_records_kept: int
    rows_skipped: dict[str, int]
    before: Answer
    after: Answer
    widened: Mapping[str, tuple[float, float]]


def widened(findings: Sequence[SourceFinding], copy: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """Return formal findings above their limit whose difference from the positives is more than a point larger.

    The values are the differences in the source and in the copy. A difference is the share of the negatives with the
    finding minus that of the positives.
    """
    pairs = {
        item.name: (item.positives.difference, copy[item.name])
        for item in findings
        if item.positives is not None and item.name in copy
    }
    return {
        name: (before, after)
        for name, (before, after) in pairs.items()
        if abs(after) > max(abs(before) + DEFECT_LIMIT, FINDINGS[name].limit or 0.0)
    }


def refuse_worse(before: Answer, after: Answer) -> None:
    """Raise UsageError if the copy's status is worse than the source's, or equal with a larger share of defects.

    An equal status with more defects is refused only if both are “repair” or “unusable”. Otherwise the share may grow
    slightly, because the copy has fewer negatives.
    """
    statuses = get_args(Status)
    same = after.status == before.status and after.status in ("repair", "unusable")
    more = same and after.flagged_share > before.flagged_share * (1.0 + SHARE_TOLERANCE)
    if more or statuses.index(after.status) > statuses.index(before.status):
        raise UsageError(
            f"the copy would be worse than the source, so nothing was written. Its status would be "
            f"“{STATUS[after.status]}” with {percent(after.flagged_share)} defects; the source's is "
            f"“{STATUS[before.status]}” with {percent(before.flagged_share)}",
            remedy="drop the defects too (a ranking without --drop does), or write the copy anyway with --force",
        )


@dataclass(frozen=True)
class Facts:
    """Numbers and findings of a source's negatives, (T,) each, in the order of the plan's triplets.

    numbers  : columns of negatives.parquet, by name; NaN for unscored negatives.
    findings : flags by finding. Unscored negatives have False for a finding that needs the encoder.
    """

    scored: Flags
    numbers: Mapping[str, Floats]
    findings: dict[str, Flags]


def reasons_left_out(plan: Plan, planned: PlannedSource, facts: Facts, rule: Rule) -> Strings:
    """Return the reason why each negative is left out, (T,); "" for those that stay."""
    reasons = np.full(planned.n_triplets, "", dtype=object)
    for finding, flags in reversed(list(facts.findings.items())):  # the first in the catalogue counts
        reasons[flags] = finding
    if rule.ranked:
        reasons[(reasons == "") & ~facts.scored] = UNSCORED_REASON
    if rule.min_weight is not None:
        # A negative stays if its weight is at least the minimum; so one with NaN does not stay.
        reasons[(reasons == "") & ~(facts.numbers["weight"] >= rule.min_weight)] = "min_weight"
    record = planned.triplet_record()
    positive, passage_keys = planned.positives[planned.positive_offsets[record]], plan.passages.keys
    query = planned.query[record]
    content = content_of(passage_keys[planned.negatives], passage_keys[positive], plan.queries.keys[query])
    for reason, limit, group in (("top", rule.top, record), ("max", rule.max_negatives, np.zeros_like(record))):
        if limit is not None:
            value, staying = _rank(facts, rule.by), np.flatnonzero(reasons == "")
            order = staying[best_first(value[staying], content[staying], group[staying])]
            starts = np.searchsorted(group[order], group[order])
            reasons[order[np.arange(len(order)) - starts >= limit]] = reason
    return reasons


def _rank(facts: Facts, by: By) -> Floats:
    """Return the number that negatives are ranked by, (T,), largest first; NaN for unscored negatives."""
    if by != "similarity":
        return facts.numbers[by]
    negative, positive = facts.numbers["s_query_negative"], facts.numbers["s_query_positive"]
    return np.where(
        margin_flags(negative, positive, "relative", RELATIVE_MARGIN), BELOW_ALL_SIMILARITIES - negative, negative
    )


def listed_reasons(planned: PlannedSource, reasons: Strings, rule: Rule) -> Strings:
    """Return the reason why each listed negative is left out, (L,); "" for those that stay."""
    listed = reasons[planned.listed]
    if "repeat" in rule.drop:
        before = rule.drop[: rule.drop.index("repeat")]
        listed[planned.listed_again() & ~np.isin(listed, before)] = "repeat"
    return listed


@dataclass(frozen=True)
class Selected:
    """A source with the reason why each negative is left out; "" for those that stay.

    reasons : (T,) reason for each distinct negative.   listed : (L,) reason for each listed negative.
    """

    original: Original
    rule: Rule
    facts: Facts
    reasons: Strings
    listed: Strings

    @staticmethod
    def apply(rule: Rule, plan: Plan, original: Original, facts: Facts) -> Selected:
        """Apply a rule. Raises NothingToScoreError if no negative stays."""
        reasons = reasons_left_out(plan, original.planned, facts, rule)
        listed = listed_reasons(original.planned, reasons, rule)
        if (listed != "").all():
            counts = ", ".join(f"{reason} {count:,}" for reason, count in sorted(Counter(listed).items()))
            raise NothingToScoreError(
                f"no negative is left ({counts})",
                where=original.name,
                remedy="lower --min-weight, raise --top or --max, or drop fewer findings",
            )
        return Selected(original, rule, facts, reasons, listed)

    @property
    def stays(self) -> Flags:
        """Return flags of the negatives that stay, (T,)."""
        flags: Flags = self.reasons == ""
        return flags

    def part(self, planned: PlannedSource, stays: Flags) -> PlannedSource:
        """Return the source with only these negatives, only the records that have one of them, and no blanks."""
        planned = replace(
            planned,
            copies=np.ones_like(planned.copies) if "repeat" in self.rule.drop else planned.copies,
            blanks=planned.blanks.only(np.zeros(len(planned.blanks.count), np.bool_)),
        )
        return select_records(planned, np.isin(np.arange(planned.n_records), planned.triplet_record()[stays]), stays)

    def copy(self, plan: Plan) -> PlannedSource:
        """Return the source with the copy's content and the source's name."""
        part = self.part(replace(self.original.planned, name=self.original.name), self.stays)
        return replace(part, excess=ListedNegatives(part, plan.queries.keys).excess())

    def write(self, request: Request, files: Sequence[Path], schema: Schema, suffix: str) -> dict[str, Any]:
        """Write the copy and its log. Return the fields of a `Selection` except the answers."""
        copy, log = files
        with writing(request.log), log.open("w", encoding="utf-8", newline="\n") as lines:
            left_out, rows_skipped = self.write_left_out(lines)
        with writing(request.out):
            written = write_rows(self.rows, schema, copy, suffix)
        planned = self.original.planned
        return {
            **vars(written),
            "source": self.original.name,
            "path": str(request.out),
            "left_out_path": str(request.log),
            "drop": self.rule.drop,
            "n_listed": len(self.listed) + int(planned.blanks.count.sum()),
            "n_unscored": int((~self.facts.scored[planned.listed] & (self.listed == "")).sum()),
            "left_out": left_out,
            "n_records": planned.n_records,
            "n_records_kept": len(np.unique(planned.triplet_record()[self.stays])),
            "rows_skipped": rows_skipped,
        }

    def rows(self) -> Iterator[CopyRow]:
        for _, row, part in self.original.rows():
            reasons = zip(row.negatives if row else (), self.listed[part], strict=True)
            staying = [negative for negative, reason in reasons if not reason]
            if row and staying:
                yield row._replace(negatives=staying)

    def write_left_out(self, lines: TextIO) -> tuple[dict[str, int], dict[str, int]]:
        """Write a line for each listed negative and each row that is not in the copy. Return both counts by reason."""
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
        """Return a line of the log. ordinal: None for a whole row or a blank.   triplet: -1 for these."""
        scored = triplet >= 0 and bool(self.facts.scored[triplet])
        entry = {
            "path": path,
            "line": line,
            "ordinal": ordinal,
            **(texts or dict.fromkeys(("query", "positive", "negative"))),
            **{
                name: float(self.facts.numbers[name][triplet]) if scored else None
                for name in RANKING_COLUMNS
                if name in self.facts.numbers
            },
            "reason": reason,
            "findings": [
                name
                for name, flags in self.facts.findings.items()
                if name == reason or (triplet >= 0 and flags[triplet])
            ],
        }
        return json.dumps(entry, ensure_ascii=False) + "\n"
