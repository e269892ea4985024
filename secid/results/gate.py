"""Frozen results of the gate, which pages show without torch or the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from secid.records import Fact
from secid.results.inputs import Displayable
from secid.results.sources import SourceReport

VERDICT_SCHEMA_VERSION = "2.0"

Outcome = Literal["pass", "fail", "undecided"]
"""Outcome of a check or a source."""
Basis = Literal["policy", "source", "extreme"]
"""Origin of a limit: the policy, one source of the baseline (the predecessor, or the only one), or the source with the
most permissive number."""
GROSS_DAMAGE = 0.7
"""A check is used only if it detects a source with this share of its negatives damaged."""
PASSED, FAILED, UNDECIDED = 0, 1, 3
"""Exit codes of a verdict. Code 2 means wrong use or bad input, and then there is no verdict."""


def finding_of(check: str) -> str:
    """Return the finding that the check of this name is about; "" for other checks."""
    return check.removeprefix("findings.") if check.startswith("findings.") else ""


@dataclass(frozen=True, kw_only=True)
class CheckExample:
    """One row that shows what a check found. query, negative: "" if the text is not available.

    s_query_positive, s_query_negative: cosines of a scored negative, and of the positive of its record.
    reason, fact : why the row was left out, as in Example.
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
    """One check of a source against a limit.

    name         : "queries", "hardness", "languages", "findings.NAME", "drift.NAME" or "new_source".
    measured, interval_95, limit, before : numbers in the unit of `unit` ("nats", "hardness", "share", "count"; a share
                   is a fraction of the negatives that pages show in percent); None if there is none.
                   before: the reference's number. For drift, `measured` is the difference from it.
    side         : required side of the limit: "at least", "at most", "within ±".
    basis, reference : origin of the limit, and the source of the baseline if the limit comes from one.
    detects      : smallest share of damaged negatives that fails in half of the samples as large as the reference.
    n, n_shared  : negatives or queries that the number is over; queries that a paired comparison shares.
    notice       : the number is beyond the limit but does not fail the source; a person should look at it.
    n_queries_needed : for an undecided check, distinct queries with which its interval would be narrow enough if
                   the number stayed the same; None if that is unknown.
    reason       : reason why it could not be evaluated, a kind of the report's not_evaluated; else "".
    excused      : the check is undecided, and the policy accepts that.
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
    def blocks_pass(self) -> bool:
        """True if this check keeps the source from passing."""
        return self.outcome == "fail" or (self.outcome == "undecided" and not self.excused)

    @property
    def finding(self) -> str:
        """The finding that the check is about; "" for other checks."""
        return finding_of(self.name)


@dataclass(frozen=True, kw_only=True)
class SourceVerdict:
    """The gate's verdict on one source. previous: its predecessor in the baseline; None for a new source.

    report   : report of this source, scored in the baseline's pool.
    left_out : checks that could not detect even gross damage with this baseline.
    """

    report: SourceReport
    outcome: Outcome
    previous: str | None
    checks: tuple[GateCheck, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class GateVerdict(Displayable):
    """The verdict on all sources of one call. policy: every limit as applied; paired: the run compared with.

    policy_from: the file of the policy; "" if the policy is derived from the baseline.
    guide: name of the guide whose suspects were checked, or None.
    exit_zero: a trial period, in which the exit code is always 0.
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
        """0 if all passed, 1 if a check failed, 3 if none failed but some are undecided; always 0 with `exit_zero`."""
        return PASSED if self.exit_zero else {"pass": PASSED, "fail": FAILED, "undecided": UNDECIDED}[self.outcome]


def overall_outcome(outcomes: list[Outcome]) -> Outcome:
    """Return "fail" if any failed, else "pass" if all passed, else "undecided"; no outcome at all is undecided."""
    if "fail" in outcomes:
        return "fail"
    return "pass" if outcomes and all(outcome == "pass" for outcome in outcomes) else "undecided"
