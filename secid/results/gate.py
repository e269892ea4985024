"""Frozen results of the gate: what every page of a verdict shows, with no torch and no data behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from secid.results.sources import SourceFinding

VERDICT_SCHEMA_VERSION = "1.0"

Outcome = Literal["pass", "fail", "not_evaluated"]
PASSED, FAILED, UNDECIDED = 0, 1, 3
"""Exit codes of a verdict. 2 is wrong use or bad input, which gives no verdict."""


@dataclass(frozen=True, kw_only=True)
class CheckExample:
    """One row that shows what a check found. query, negative: cut; "" where the text is not at hand."""

    path: str
    line: int
    query: str
    negative: str
    note: str


@dataclass(frozen=True, kw_only=True)
class Check:
    """One question put to a source.

    measured, interval_95, limit : in the unit of `unit` ("nats", "fraction", "share", "count", "directions"; a share
                   is a fraction of the negatives that pages show in percent); None where there is none.
                   limit_text says on which side of the limit the source has to be.
    vacuous      : nothing that can be measured would fail this limit, so that passing it says nothing.
    message      : what was measured, against what, and why the outcome follows.
    what_to_do   : the next step, for an outcome other than pass; else "".
    excused      : not evaluated, and the policy names it as one that may stay so.
    """

    name: str
    outcome: Outcome
    message: str
    unit: str = ""
    measured: float | None = None
    interval_95: tuple[float, float] | None = None
    limit: float | None = None
    limit_text: str = ""
    vacuous: bool = False
    what_to_do: str = ""
    excused: bool = False
    examples: tuple[CheckExample, ...] = ()

    @property
    def holds_up(self) -> bool:
        """True where this check keeps the source from passing."""
        return self.outcome == "fail" or (self.outcome == "not_evaluated" and not self.excused)


@dataclass(frozen=True, kw_only=True)
class SourceVerdict:
    """What the gate says of one source. previous: the baseline's source of the same name, if any.

    n_read = n_used + sum(skipped), in rows.   dropped_negatives: single negatives of used rows left out, by reason.
    n_not_sampled: records left out by a sample.   findings: as a report has them, in the baseline's pool.
    """

    name: str
    paths: tuple[str, ...]
    outcome: Outcome
    n_read: int
    n_used: int
    skipped: Mapping[str, int]
    dropped_negatives: Mapping[str, int]
    n_not_sampled: int
    n_records: int
    n_queries: int
    n_negatives: int
    eci_nats: float
    interval_95: tuple[float, float]
    previous: str | None
    findings: tuple[SourceFinding, ...]
    checks: tuple[Check, ...]


@dataclass(frozen=True, kw_only=True)
class GateVerdict:
    """The verdict on all sources of one call. policy: every limit as it was applied; paired: the run compared with.

    exit_zero: a trial period, in which the exit code is 0 whatever the outcome.
    """

    schema_version: str
    secid_version: str
    outcome: Outcome
    baseline: str
    policy_from: str
    policy: Mapping[str, object]
    paired: str | None
    encoder: str
    sources: tuple[SourceVerdict, ...]
    notes: tuple[str, ...]
    timing: Mapping[str, Mapping[str, float]]
    exit_zero: bool = False

    @property
    def exit_code(self) -> int:
        """0 all passed, 1 some check failed, 3 none failed but some could not be decided."""
        return PASSED if self.exit_zero else {"pass": PASSED, "fail": FAILED, "not_evaluated": UNDECIDED}[self.outcome]


def overall(outcomes: list[Outcome]) -> Outcome:
    """fail where any failed, else not_evaluated where any is not, else pass; nothing at all is not a pass."""
    if "fail" in outcomes:
        return "fail"
    return "pass" if outcomes and all(outcome == "pass" for outcome in outcomes) else "not_evaluated"
