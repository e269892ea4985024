"""Frozen results of the gate: what every page of a verdict shows, with no torch and no data behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from secid.records import Fact
from secid.results.inputs import Shown
from secid.results.sources import SourceReport

VERDICT_SCHEMA_VERSION = "2.0"

Outcome = Literal["pass", "fail", "undecided"]
"""Of a check or a source."""
Basis = Literal["policy", "source", "extreme"]
"""Where a limit comes from: the policy, one source of the baseline (the predecessor, or the only one), or the source
with the most permissive number."""
GROSS = 0.7
"""Share of damaged negatives that a check must detect to be worth its place."""
PASSED, FAILED, UNDECIDED = 0, 1, 3
"""Exit codes of a verdict. 2 is wrong use or bad input, which gives no verdict."""


def finding_of(check: str) -> str:
    """The finding that the check of this name is about; "" for another check."""
    return check.removeprefix("findings.") if check.startswith("findings.") else ""


@dataclass(frozen=True, kw_only=True)
class CheckExample:
    """One row that shows what a check found. query, negative: "" where the text is not at hand.

    s_query_positive, s_query_negative: cosines of a scored negative, and of the positive of its record.
    reason, fact : of a row that was left out, as in Example.
    """

    path: str
    line: int
    query: str
    negative: str
    reason: str = ""
    fact: Fact | None = None
    s_query_positive: float | None = None
    s_query_negative: float | None = None


@dataclass(frozen=True, kw_only=True)
class GateCheck:
    """One question put to a source.

    name         : "queries", "hardness", "languages", "findings.NAME", "drift.NAME" or "new_source".
    measured, interval_95, limit, before : in the unit of `unit` ("nats", "hardness", "share", "count"; a share is a
                   fraction of the negatives that pages show in percent); None where there is none.
                   before: the reference's number; of drift, `measured` is the difference from it.
    side         : on which side of the limit the number has to be: "at least", "at most", "within ±".
    basis, reference : where the limit comes from, and the source of the baseline, if it is one.
    detects      : least share of damaged negatives that fails in half of the samples as large as the reference.
    n, n_shared  : what the number is over, negatives or queries; queries that a paired comparison shares.
    notice       : beyond the limit without failing the source: for a person to look at.
    n_queries_needed : of an undecided check, distinct queries with which its interval would be narrow enough, should
                   the number stay; None where that is unknown.
    reason       : why it could not be evaluated, a kind of the report's not_evaluated; else "".
    excused      : undecided, and the policy lets it stay so.
    """

    name: str
    outcome: Outcome
    unit: str = ""
    measured: float | None = None
    interval_95: tuple[float, float] | None = None
    side: str = ""
    limit: float | None = None
    basis: Basis = "policy"
    reference: str = ""
    before: float | None = None
    detects: float | None = None
    n: int | None = None
    n_shared: int = 0
    notice: bool = False
    n_queries_needed: int | None = None
    reason: str = ""
    excused: bool = False
    examples: tuple[CheckExample, ...] = ()

    @property
    def holds_up(self) -> bool:
        """True where this check keeps the source from passing."""
        return self.outcome == "fail" or (self.outcome == "undecided" and not self.excused)

    @property
    def finding(self) -> str:
        """The finding that it is about; "" for another check."""
        return finding_of(self.name)


@dataclass(frozen=True, kw_only=True)
class SourceVerdict:
    """What the gate says of one source. previous: its predecessor in the baseline; None for a new source.

    report   : of the source alone, scored in the baseline's pool.
    left_out : checks that with this baseline would not even see gross damage.
    """

    report: SourceReport
    outcome: Outcome
    previous: str | None
    checks: tuple[GateCheck, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class GateVerdict(Shown):
    """The verdict on all sources of one call. policy: every limit as it was applied; paired: the run compared with.

    policy_from: the file of the policy; "" where it is derived from the baseline.
    guide: the guide whose suspects were checked, by name; None for none.
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
    timing: Mapping[str, Mapping[str, float]]
    guide: str | None = None
    exit_zero: bool = False

    @property
    def exit_code(self) -> int:
        """0 all passed, 1 some check failed, 3 none failed but some could not be decided."""
        return PASSED if self.exit_zero else {"pass": PASSED, "fail": FAILED, "undecided": UNDECIDED}[self.outcome]


def overall(outcomes: list[Outcome]) -> Outcome:
    """fail where any failed, else undecided where any is not, else pass; nothing at all is not a pass."""
    if "fail" in outcomes:
        return "fail"
    return "pass" if outcomes and all(outcome == "pass" for outcome in outcomes) else "undecided"
