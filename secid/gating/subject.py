"""What a check looks at, how it decides, and the rows that it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import numpy.typing as npt

from secid.arrays import Floats, best
from secid.findings.rows import SAMPLED
from secid.findings.summary import SourceFindings
from secid.gating.baseline import BaselineSource, Measurement
from secid.gating.limits import Bound, Limits
from secid.gating.policy import Policy
from secid.gating.sample import Sample
from secid.measure.interval import Difference, reach_95
from secid.results.gate import Check, CheckExample
from secid.results.guide import GuideSource
from secid.triplets.estimates import Estimate, paired_difference, unpaired_difference
from secid.triplets.random_reference import QUERIES as SAMPLED_QUERIES

EXAMPLES = 3
COSINES = ("s_query_positive", "s_query_negative")
"""Columns of the sample that an example holds."""
MOST_NEEDED = 100
"""Times the source's own queries: that more would decide says nothing of practice."""


@dataclass(frozen=True)
class Reference:
    """A source of the baseline to compare with. sample: its numbers query by query, in a paired comparison."""

    name: str
    source: BaselineSource
    sample: Sample | None


def gap_between(own: Estimate, known: Measurement, theirs: Estimate | None) -> Difference:
    """own minus the baseline's number: paired if its numbers query by query are available and share queries."""
    if theirs is not None:
        gap = paired_difference(own, theirs)
        if gap.n_shared:
            return gap
    return unpaired_difference(own, known.value, known.standard_error, known.n_queries)


@dataclass(frozen=True)
class Subject:
    """One source and everything that its checks look at.

    previous  : its predecessor; None for a new source.   limits: what it is held against.
    known_languages : of what it is compared with.
    hardness  : None where it cannot be computed, or not with an interval.
    missing   : why hardness or a finding could not be evaluated, by name.
    example   : the row and the texts of a triplet, without cosines.   content: (T,) hash of its texts.
    left_out  : rows that were not used.
    guide     : what its guide's flags are worth; None without one.
    """

    name: str
    sample: Sample
    findings: SourceFindings
    policy: Policy
    limits: Limits
    known_languages: set[str]
    previous: Reference | None
    hardness: Estimate | None
    missing: Mapping[str, str]
    example: Callable[[int], CheckExample]
    content: npt.NDArray[np.uint64]
    left_out: tuple[CheckExample, ...] = ()
    guide: GuideSource | None = None


def undecided(name: str, unit: str, bound: Bound, reason: str = "") -> Check:
    """A check against a limit without a number. reason: why it could not be evaluated."""
    return Check(
        name=name,
        outcome="undecided",
        unit=unit,
        side=bound.side,
        limit=bound.value,
        basis=bound.basis,
        reference=bound.reference,
        before=bound.before,
        reason=reason,
    )


def decided(
    name: str,
    measured: float,
    bounds: tuple[float, float],
    unit: str,
    bound: Bound,
    n_queries: int,
    n: int | None = None,
    n_shared: int = 0,
    fixed_error: float = 0.0,
) -> Check:
    """A check of a number: pass if its whole interval is allowed, fail if all of it is beyond one end, else undecided.

    Of a counted share, and for a notice, the number itself decides. A number that is not finite decides nothing, nor
    does an infinite interval, which fewer than five queries have.

    fixed_error : standard error that more queries of the source leave as it is: the baseline's, of a difference.
    """
    bottom, top = bound.allowed()
    low, high = (measured, measured) if bound.counted else bounds
    beyond = low > top or high < bottom
    inside = low >= bottom and high <= top
    finite = bool(np.isfinite([measured, *bounds]).all())
    check = replace(
        undecided(name, unit, bound),
        measured=float(measured) if np.isfinite(measured) else None,
        interval_95=(float(bounds[0]), float(bounds[1])) if finite and not bound.counted else None,
        detects=bound.detects,
        n=n,
        n_shared=n_shared,
    )
    if bound.notice and np.isfinite(measured):
        return replace(check, outcome="pass", notice=not bottom <= measured <= top)
    if not (np.isfinite(measured) and (finite or bound.counted)):
        return check
    if inside:
        return replace(check, outcome="pass")
    if beyond:
        return replace(check, outcome="fail")
    needed = _needed(measured, bounds, (bottom, top), n_queries, bool(check.finding), fixed_error)
    sampled = name == "hardness" or check.finding in SAMPLED
    return replace(check, n_queries_needed=None if sampled and (needed or 0) > SAMPLED_QUERIES else needed)


def _needed(
    measured: float,
    bounds: tuple[float, float],
    allowed: tuple[float, float],
    n_queries: int,
    share: bool,
    fixed_error: float,
) -> int | None:
    """Queries with which the interval would no longer reach the nearest end of what is allowed; None for too many.

    Wilson's interval of a share p ends at b where (p - b)^2 / (b (1 - b)) is z^2 / n.
    """
    end = min(allowed, key=lambda end: abs(measured - end))
    reached = bounds[1] if end > measured else bounds[0]
    fixed = (reach_95(n_queries) * fixed_error) ** 2
    room = (end - measured) ** 2 - fixed
    if not room > 0.0:
        return None
    times = ((reached - measured) ** 2 - fixed) / room
    if share:
        times *= end * (1.0 - end) / (reached * (1.0 - reached))
    return None if times > MOST_NEEDED else ceil(n_queries * max(1.0, times))


def with_worst(check: Check, subject: Subject, severity: Floats) -> Check:
    """The check with the triplets of smallest severity as examples, one per query; a pass needs none."""
    if check.outcome == "pass":
        return check
    sample, examples, queries = subject.sample, [], set()
    for triplet in best(-severity, subject.content, 64 * EXAMPLES).tolist():
        query = int(sample.cluster[triplet])
        if query not in queries:
            queries.add(query)
            positive, negative = (float(sample.columns[name][triplet]) for name in COSINES)
            example = subject.example(triplet)
            examples.append(replace(example, s_query_positive=positive, s_query_negative=negative))
        if len(examples) == EXAMPLES:
            break
    return replace(check, examples=tuple(examples))
