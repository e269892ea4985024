"""Results of `secid gate`."""

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
"""Origin of a limit. policy: the policy file or its defaults. source: one source of the baseline, either the
predecessor or the only source. extreme: the baseline source whose number gives the most permissive limit."""
GROSS_DAMAGE = 0.7
"""Share of damaged negatives that a check must be able to detect. A check that detects only more damage is skipped."""
PASSED, FAILED, UNDECIDED = 0, 1, 3
"""Exit codes of a verdict. Code 2 means wrong use or bad input, without a verdict."""


def finding_of(check: str) -> str:
    """Return the finding that a check tests; "" if it tests something else. check: name of the check."""
    return check.removeprefix("findings.") if check.startswith("findings.") else ""


@dataclass(frozen=True, kw_only=True)
class CheckExample:
    """An example row of a check. query, negative: their texts; "" if not available.

    s_query_positive, s_query_negative : cosines of the query with the record's positive and with the negative; None if
                                         the negative was not scored.
    reason, fact : reason why the row was skipped, as in Example.
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
    unit         : unit of the next four numbers: "nats", "hardness", "share" (a fraction, which pages show in percent)
                   or "count". A number that does not exist is None.
    measured, interval_95 : number of the source, and its interval. For drift, the difference from the reference.
    limit, before : limit, and the number of the reference.
    side         : required side of the limit: "at least", "at most", "within ±".
    basis        : origin of the limit.   reference : source of the baseline that the limit comes from, or "".
    detects      : smallest share of damaged negatives that the check detects with a probability of 50 %, in a source as
                   large as the reference.
    n            : number of negatives or queries behind the measured number.
    n_shared     : number of shared queries in a paired comparison.
    notice       : True if the number is beyond the limit, but the check only asks a person to look at it.
    n_queries_needed : number of distinct queries that would decide an undecided check if the measured number stayed
                   the same; None if unknown.
    reason       : kind of reason why the check could not be evaluated, as in the report's not_evaluated; else "".
    excused      : True if the check is undecided and the policy accepts that.
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
        """True if the source cannot pass because of this check."""
        return self.outcome == "fail" or (self.outcome == "undecided" and not self.excused)

    @property
    def finding(self) -> str:
        """Name of the finding that the check tests; "" for other checks."""
        return finding_of(self.name)


@dataclass(frozen=True, kw_only=True)
class SourceVerdict:
    """The gate's verdict on one source.

    report   : report of this source, scored in the baseline's pool.
    previous : name of its predecessor in the baseline; None for a new source.
    left_out : names of checks that were skipped because, with this baseline, they cannot detect even gross damage.
    """

    report: SourceReport
    outcome: Outcome
    previous: str | None
    checks: tuple[GateCheck, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class GateVerdict(Displayable):
    """The verdict on all sources of one call.

    policy_from : file of the policy; "" if the policy is derived from the baseline.   policy : all limits as applied.
    paired      : run folder that the sources are compared with query by query, or None.
    guide       : name of the guide whose suspects were checked, or None.
    exit_zero   : True in a trial period: the exit code is always 0.
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
        """Exit code: 1 if a check failed, else 3 if a source is undecided, else 0. Always 0 with `exit_zero`."""
        return PASSED if self.exit_zero else {"pass": PASSED, "fail": FAILED, "undecided": UNDECIDED}[self.outcome]
