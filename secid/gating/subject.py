"""What a check looks at, how it decides, and the rows that it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from secid.findings.summary import SourceFindings
from secid.gating.baseline import Baseline, BaselineSource
from secid.gating.policy import Policy
from secid.gating.sample import Sample
from secid.measure.interval import FEWEST_QUERIES
from secid.pages.numbers import plural
from secid.pages.verdict_words import number
from secid.results.gate import Check, CheckExample, Outcome
from secid.triplets.estimates import Estimate, Floats, Gap, paired_gap, unpaired_gap

UNDECIDED = "more records narrow the interval; or widen the limit in the policy if this difference does not matter"
EXAMPLES = 3


@dataclass(frozen=True)
class Reference:
    """A source of the baseline to compare with. sample: its numbers query by query, in a paired comparison."""

    name: str
    source: BaselineSource
    sample: Sample | None


def gap_between(own: Estimate, value: float, error: float, n_queries: int, theirs: Estimate | None) -> Gap:
    """own minus the reference's value over n_queries queries: paired if its numbers query by query are available and
    share queries.
    """
    if theirs is not None:
        gap = paired_gap(own, theirs)
        if gap.n_shared:
            return gap
    return unpaired_gap(own, value, error, n_queries)


LEAST, MOST, WITHIN = "at least", "at most", "within ±"


@dataclass(frozen=True)
class Limit:
    """Bound on a measured number. reach: the smallest and the largest value that it can have."""

    side: str
    value: float
    reach: tuple[float, float] = (-inf, inf)

    def outcome(self, bounds: tuple[float, float]) -> Outcome:
        """Pass if the whole interval is allowed, fail if it is wholly beyond one end of what is allowed."""
        bottom, top = {LEAST: (self.value, inf), MOST: (-inf, self.value), WITHIN: (-self.value, self.value)}[self.side]
        low, high = bounds
        if low >= bottom and high <= top:
            return "pass"
        return "fail" if low > top or high < bottom else "not_evaluated"

    @property
    def vacuous(self) -> bool:
        """True if no value that can be measured fails it."""
        return self.outcome(self.reach) == "pass"

    def text(self, unit: str) -> str:
        value = f"{100 * self.value:g} %" if unit == "share" else f"{self.value:{',' if unit == 'count' else 'g'}}"
        value = value.replace("-", "−")
        return f"{self.side}{'' if self.side == WITHIN else ' '}{value}{' (any)' if self.vacuous else ''}"


@dataclass(frozen=True)
class Subject:
    """One source and everything that its checks look at.

    reference: what its score is compared with.   previous: its earlier version; None for a new source.
    controls : its controls by kind.   missing: why a control could not be drawn or a finding evaluated, by name.
    rank     : effective rank at the policy's budget.   example: the row and the texts of a triplet, without a note.
    left_out : rows that were not used.
    """

    name: str
    n_records: int
    sample: Sample
    findings: SourceFindings
    policy: Policy
    baseline: Baseline
    reference: Reference
    previous: Reference | None
    controls: Mapping[str, Sample]
    missing: Mapping[str, str]
    rank: Estimate
    example: Callable[[int], CheckExample]
    left_out: tuple[CheckExample, ...] = ()


def score_gap(subject: Subject, reference: Reference) -> Gap:
    known, theirs = reference.source, reference.sample
    return gap_between(
        subject.sample.score,
        known.score_nats,
        known.standard_error_nats,
        known.n_queries,
        None if theirs is None else theirs.score,
    )


def pairing(gap: Gap) -> str:
    return f", paired over {plural(gap.n_shared, 'shared query', 'shared queries')}" if gap.n_shared else ""


def decided(
    name: str,
    measured: float,
    bounds: tuple[float, float],
    unit: str,
    limit: Limit,
    message: str,
    advice: str,
    *,
    counted: bool = False,
) -> Check:
    """A check with a number. A number that is not finite decides nothing, nor does an infinite interval.

    counted : the number itself decides, not its interval.
    """
    if not np.isfinite([measured, limit.value]).all() or np.isnan(bounds).any():
        return not_decided(name, f"{message}: not a finite number", "please report this run")
    if not np.isfinite(bounds).all():
        why = f"{message}; a 95 % CI needs at least {FEWEST_QUERIES} distinct queries"
        return not_decided(name, why, "add queries to the source, or to the one that it is compared with")
    outcome = "pass" if limit.vacuous else limit.outcome((measured, measured) if counted else bounds)
    within = "" if counted else f" (95 % CI {' to '.join(number(bound, unit) for bound in bounds)})"
    return Check(
        name=name,
        outcome=outcome,
        message=f"{message}{within}; limit: {limit.text(unit)}",
        unit=unit,
        measured=float(measured),
        interval_95=(float(bounds[0]), float(bounds[1])),
        limit=float(limit.value),
        limit_text=limit.text(unit),
        vacuous=limit.vacuous,
        what_to_do={"pass": "", "fail": advice, "not_evaluated": UNDECIDED}[outcome],
    )


def not_decided(name: str, why: str, advice: str) -> Check:
    return Check(name=name, outcome="not_evaluated", message=why, what_to_do=advice)


def with_worst(check: Check, subject: Subject, severity: Floats) -> Check:
    """The check with the triplets of smallest severity as examples, one per query, ties in order; a pass needs none."""
    if check.outcome == "pass":
        return check
    sample, examples, queries = subject.sample, [], set()
    n = min(len(severity), 64 * EXAMPLES)
    order = np.argpartition(severity, n - 1)[:n]
    for triplet in order[np.lexsort((order, severity[order]))].tolist():
        query = int(sample.cluster[triplet])
        if query not in queries:
            queries.add(query)
            note = numbers_of(*(float(sample.columns[name][triplet]) for name in SHOWN_NUMBERS))
            examples.append(replace(subject.example(triplet), note=note))
        if len(examples) == EXAMPLES:
            break
    return replace(check, examples=tuple(examples))


SHOWN_NUMBERS = ("s_query_negative", "s_query_positive", "s_positive_negative", "coverage")


def numbers_of(query_negative: float, query_positive: float, positive_negative: float, coverage: float) -> str:
    """The numbers of a triplet in an example."""
    dots = f"s_qn {query_negative:.3f}, s_qp {query_positive:.3f}, s_pn {positive_negative:.3f}"
    return f"{dots}, c {coverage:.2f}"
