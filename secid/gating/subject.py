"""What a check looks at and what it hands back: a source before the gate, and a draft with the rows behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secid.gating.baseline import Baseline, BaselineSource
from secid.gating.columns import Columns
from secid.gating.estimates import Estimate, Gap, paired_gap, unpaired_gap
from secid.gating.policy import Policy
from secid.gating.texts import Place, TextFindings
from secid.verdicts import Check, Outcome

UNDECIDED = "more records narrow the interval; or widen the limit in the policy if this difference does not matter"
EXAMPLES = 3


@dataclass(frozen=True)
class Reference:
    """A source of the baseline to compare with. columns: its numbers query by query, in a paired comparison."""

    name: str
    source: BaselineSource
    columns: Columns | None

    def gap(self, own: Estimate, value: float, error: float, get: Callable[[Columns], Estimate]) -> Gap:
        """own minus the reference: paired where the run's numbers are at hand and share queries."""
        if self.columns is not None:
            gap = paired_gap(own, get(self.columns))
            if gap.n_shared:
                return gap
        return unpaired_gap(own, value, error)


@dataclass(frozen=True)
class Subject:
    """One source before the gate, and all that its checks look at.

    reference, previous : what its score, and what it itself, is compared with; previous None for a new source.
    controls : columns of its controls by kind.   missing: why a control could not be made.
    place    : where the row of a triplet stands.   rank: effective rank at the policy's budget.
    """

    name: str
    n_records: int
    columns: Columns
    texts: TextFindings
    policy: Policy
    baseline: Baseline
    reference: Reference
    previous: Reference | None
    controls: Mapping[str, Columns]
    missing: Mapping[str, str]
    rank: Estimate
    place: Callable[[int], Place]


@dataclass(frozen=True)
class Draft:
    """A check, and the rows that show what it found, each with a note."""

    check: Check
    rows: tuple[tuple[Place, str], ...] = ()


def decided(
    name: str,
    outcome: Outcome,
    measured: float,
    bounds: tuple[float, float],
    unit: str,
    limit: float,
    side: str,
    message: str,
    advice: str,
) -> Check:
    """A check with a number. A number that is not finite decides nothing."""
    if not np.isfinite([measured, *bounds, limit]).all():
        return not_decided(name, f"{message}: not a finite number", "please report this run")
    word = {"pass": "is", "fail": "is not", "not_evaluated": "may or may not be"}[outcome]
    return Check(
        name=name,
        outcome=outcome,
        message=f"{message}; 95 % interval {bounds[0]:.4f} to {bounds[1]:.4f}, which {word} {side}",
        unit=unit,
        measured=float(measured),
        interval_95=(float(bounds[0]), float(bounds[1])),
        limit=float(limit),
        limit_text=side,
        what_to_do={"pass": "", "fail": advice, "not_evaluated": UNDECIDED}[outcome],
    )


def not_decided(name: str, why: str, advice: str) -> Check:
    return Check(name=name, outcome="not_evaluated", message=why, what_to_do=advice)


def worst(subject: Subject, severity: npt.NDArray[np.float64]) -> tuple[tuple[Place, str], ...]:
    """Rows of the triplets with the smallest severity, one a query. Equal ones by their place."""
    columns, found, seen = subject.columns, [], set()
    n = min(len(severity), 64 * EXAMPLES)
    order = np.argpartition(severity, n - 1)[:n]
    for triplet in order[np.lexsort((order, severity[order]))].tolist():
        query = int(columns.cluster[triplet])
        if query not in seen:
            seen.add(query)
            values = columns.values
            note = (
                f"s_qn {values['s_query_negative'][triplet]:.3f}, s_qp {values['s_query_positive'][triplet]:.3f}, "
                f"s_pn {values['s_positive_negative'][triplet]:.3f}, c {values['coverage'][triplet]:.2f}"
            )
            found.append((subject.place(triplet), note))
        if len(found) == EXAMPLES:
            break
    return tuple(found)


def spread(places: list[Place]) -> list[Place]:
    """The first rows of a list, one a line."""
    by_line = {(path, line): (path, line, ordinal) for path, line, ordinal in reversed(places)}
    return [by_line[key] for key in list(dict.fromkeys((path, line) for path, line, _ in places))[:EXAMPLES]]
