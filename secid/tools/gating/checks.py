"""Check a source: compare each number, with its whole interval, with a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import numpy.typing as npt

from secid.analyses.guide import GuideSource
from secid.arrays import Floats, best
from secid.findings.rows import AGAINST_PASSAGES, SAMPLED_FINDINGS
from secid.findings.summary import SourceFindings
from secid.measure.interval import MIN_QUERIES, UNBOUNDED, Difference, reach_95
from secid.results import AmongPositives, SourceFinding
from secid.results.catalogue import FINDINGS
from secid.results.gate import CheckExample, GateCheck, finding_of
from secid.tools.gating.baseline import BaselineSource, Measurement
from secid.tools.gating.collect import Sample
from secid.tools.gating.limits import AT_LEAST, Bound, GateLimits
from secid.tools.gating.policy import Policy
from secid.triplets.estimates import Estimate, paired_difference, unpaired_difference, wilson_interval
from secid.triplets.random_reference import MAX_REFERENCE_QUERIES as SAMPLED_QUERIES

# The input of a check, its decision, and its examples.

MAX_EXAMPLES = 3
"""Maximum number of examples of a check."""
EXAMPLE_COSINES = ("s_query_positive", "s_query_negative")
"""Columns of the sample that an example shows."""
MAX_NEEDED_FACTOR = 100
"""Maximum number of queries to ask for, as a multiple of the source's own. Nobody would collect more."""


@dataclass(frozen=True)
class Reference:
    """A source of the baseline to compare with. sample: its numbers by query; None if they are not available."""

    name: str
    source: BaselineSource
    sample: Sample | None


def gap_between(current: Estimate, known: Measurement, baseline: Estimate | None) -> Difference:
    """Return the source's number minus the baseline's. They are paired over shared queries if there are any.

    baseline : the baseline's numbers by query; None if they are not available.
    """
    if baseline is not None:
        gap = paired_difference(current, baseline)
        if gap.n_shared:
            return gap
    return unpaired_difference(current, known.value, known.standard_error, known.n_queries)


@dataclass(frozen=True)
class Subject:
    """A source and everything that its checks need.

    previous  : the source's predecessor; None for a new source.
    known_languages : languages of the predecessor, or of the whole baseline for a new source.
    hardness  : None if hardness or its interval cannot be computed.
    missing   : reason why hardness or a finding could not be evaluated, by name.
    example   : function that returns the row and the texts of a triplet, without cosines.
    content   : (T,) hash of the texts of each triplet.
    guide     : evidence that the guide's flags are reliable; None without a guide.
    """

    name: str
    sample: Sample
    findings: SourceFindings
    policy: Policy
    limits: GateLimits
    known_languages: set[str]
    previous: Reference | None
    hardness: Estimate | None
    missing: Mapping[str, str]
    example: Callable[[int], CheckExample]
    content: npt.NDArray[np.uint64]
    left_out: tuple[CheckExample, ...] = ()
    guide: GuideSource | None = None


def undecided_check(name: str, unit: str, bound: Bound, reason: str = "") -> GateCheck:
    """Return a check with a limit but without a number. reason: why the number could not be computed."""
    return GateCheck(
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
) -> GateCheck:
    """Check a number against a limit.

    It passes if its whole interval is allowed, and fails if the whole interval is beyond the limit. Otherwise it is
    undecided. For a counted share and for a notice, the number itself decides. The check is also undecided if the
    number is not finite, or if the interval is infinite because there are fewer than five queries.

    fixed_error : part of the standard error that more queries do not reduce; in a difference, the baseline's error.
    """
    bottom, top = bound.allowed()
    low, high = (measured, measured) if bound.counted else bounds
    beyond = low > top or high < bottom
    inside = low >= bottom and high <= top
    finite = bool(np.isfinite([measured, *bounds]).all())
    check = replace(
        undecided_check(name, unit, bound),
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
    sampled = name == "hardness" or check.finding in SAMPLED_FINDINGS
    return replace(check, n_queries_needed=None if sampled and (needed or 0) > SAMPLED_QUERIES else needed)


def _needed(
    measured: float,
    bounds: tuple[float, float],
    allowed: tuple[float, float],
    n_queries: int,
    share: bool,
    fixed_error: float,
) -> int | None:
    """Return the number of queries at which the interval would lie on one side of the limit.

    Return None if that number is too large, or if the interval comes from too few queries to tell. Wilson's interval of
    a share p ends at the b for which (p - b)^2 / (b (1 - b)) = z^2 / n.
    """
    if n_queries < MIN_QUERIES:
        return None
    end = min(allowed, key=lambda end: abs(measured - end))
    reached = bounds[1] if end > measured else bounds[0]
    fixed = (reach_95(n_queries) * fixed_error) ** 2
    room = (end - measured) ** 2 - fixed
    if not room > 0.0:
        return None
    times = ((reached - measured) ** 2 - fixed) / room
    if share:
        times *= end * (1.0 - end) / (reached * (1.0 - reached))
    return None if times > MAX_NEEDED_FACTOR else ceil(n_queries * max(1.0, times))


def with_worst(check: GateCheck, subject: Subject, severity: Floats) -> GateCheck:
    """Add the triplets with the lowest `severity` as examples, one per query, unless the check passed.

    severity : (T,) numbers; the lowest are the worst.
    """
    if check.outcome == "pass":
        return check
    sample, examples, queries = subject.sample, [], set()
    for triplet in best(-severity, subject.content, 64 * MAX_EXAMPLES).tolist():
        query = int(sample.cluster[triplet])
        if query not in queries:
            queries.add(query)
            positive, negative = (float(sample.columns[name][triplet]) for name in EXAMPLE_COSINES)
            example = subject.example(triplet)
            examples.append(replace(example, s_query_positive=positive, s_query_negative=negative))
        if len(examples) == MAX_EXAMPLES:
            break
    return replace(check, examples=tuple(examples))


# The checks of each kind.

WEAK_BASELINE = "weak_baseline"
NO_GUIDE_BEFORE = "no_guide_before"
GUIDE_FLAGS_RANDOM, GUIDE_REPEATS = "guide_flags_random", "guide_repeats_target"


def all_checks(subject: Subject) -> Iterator[GateCheck]:
    """Yield every check that the policy does not switch off, in the order of CHECK_NAMES."""
    for check in _checks(subject):
        excused = check.outcome == "undecided" and check.name in subject.policy.allow_undecided
        yield replace(check, excused=True) if excused else check


def _checks(subject: Subject) -> Iterator[GateCheck]:
    is_new = subject.previous is None
    yield _queries(subject)
    if is_new and "hardness" in subject.limits.left_out:  # nothing else would detect random passages
        yield GateCheck(name="hardness", outcome="undecided", unit="hardness", reason=WEAK_BASELINE)
    yield from _limits(subject)
    if subject.missing.get("suspect") == NO_GUIDE_BEFORE:  # the baseline has no guide, so there is no limit
        yield GateCheck(name="findings.suspect", outcome="undecided", unit="share", reason=NO_GUIDE_BEFORE)
    if is_new and subject.policy.new_source == "hold":
        yield GateCheck(name="new_source", outcome="undecided")


def _queries(subject: Subject) -> GateCheck:
    """Check the number of queries. A source with too few is undecided, because it may pass with more."""
    n, least = len(subject.sample.queries), subject.limits.minimum_queries
    enough = n >= least
    return GateCheck(
        name="queries",
        outcome="pass" if enough else "undecided",
        unit="count",
        measured=float(n),
        side=AT_LEAST,
        limit=float(least),
        n=n,
        n_queries_needed=None if enough else least,
        examples=() if enough else subject.left_out,
    )


def _limits(subject: Subject) -> Iterator[GateCheck]:
    for name, bound in subject.limits.bounds.items():
        if name == "hardness":
            yield _hardness(subject, bound)
        elif name == "languages":
            yield _languages(subject, bound)
        elif name.startswith("drift."):
            if subject.previous is not None:
                yield _drift(subject, subject.previous, name, bound)
        else:
            yield _finding(subject, name, bound)


def _hardness(subject: Subject, bound: Bound) -> GateCheck:
    hard = subject.hardness
    if hard is None:
        return undecided_check("hardness", "hardness", bound, subject.missing.get("hardness", ""))
    n = len(hard.queries)
    check = decided("hardness", hard.value, hard.interval, "hardness", bound, n, n=n)
    return with_worst(check, subject, subject.sample.columns["s_query_negative"])


def _languages(subject: Subject, bound: Bound) -> GateCheck:
    """Check the share of new languages, counted in a sample of the negatives. The positives are not considered."""
    texts = subject.findings.languages
    new = sum(share for code, share in texts.shares.items() if code and code not in subject.known_languages)
    return decided("languages", new, (new, new), "share", bound, len(subject.sample.queries), n=texts.n_texts)


def _finding(subject: Subject, name: str, bound: Bound) -> GateCheck:
    finding = finding_of(name)
    result = next((item for item in subject.findings.findings if item.name == finding), None)
    if result is None:
        return undecided_check(
            name, "share", bound, subject.missing.get("hardness" if finding in AGAINST_PASSAGES else finding, "")
        )
    share = subject.findings.shares[finding]
    n_queries = len(share.estimate.queries)
    if result.positives is not None:
        return _compared(name, result, result.positives, bound, share.n_all, n_queries)
    bounds = wilson_interval(share.estimate) if n_queries >= MIN_QUERIES or bound.counted else UNBOUNDED
    check = decided(name, share.estimate.value, bounds, "share", bound, n_queries, n=share.n_all)
    if bound.counted and check.outcome == "pass" and FINDINGS[finding].exceeded_by(share.estimate.value):
        check = replace(check, notice=True)  # the policy allows more than the catalogue
    shown = check.outcome != "pass" or check.notice
    if finding == "suspect" and (why := _doubt(subject.guide, shown)):
        return undecided_check(name, "share", bound, why)
    return replace(check, examples=_examples(result)) if shown else check


def _compared(
    name: str, result: SourceFinding, positives: AmongPositives, bound: Bound, n: int, n_queries: int
) -> GateCheck:
    """Check a formal finding by its difference from the positives.

    As for the status, a defect fails only if its whole interval is beyond the limit. If the positives may have the same
    share, it passes.
    """
    low, high = positives.interval_95
    bounds = (positives.excess, positives.excess) if FINDINGS[result.name].counted else (low, high)
    check = decided(name, positives.difference, bounds, "share", replace(bound, counted=False), n_queries, n=n)
    check = replace(check, interval_95=(low, high))
    return replace(check, examples=_examples(result)) if check.outcome != "pass" or check.notice else check


def _doubt(guide: GuideSource | None, shown: bool) -> str:
    """Return the reason why a guide's flags are not used; "" if they are used.

    A share within the limit may pass even if it is not significantly above that of random passages, since a sound
    source also has few suspects.
    shown : True if the page shows the check, because it did not pass or is a notice.
    """
    if guide is None or guide.is_evidence or not (shown or guide.is_blind or guide.repeats_target):
        return ""
    return GUIDE_REPEATS if guide.repeats_target else GUIDE_FLAGS_RANDOM


def _examples(finding: SourceFinding) -> tuple[CheckExample, ...]:
    return tuple(
        CheckExample(
            path=example.path,
            line=example.line,
            query=example.query,
            negative=example.negative,
            s_query_positive=example.s_query_positive,
            s_query_negative=example.s_query_negative,
        )
        for example in finding.examples[:MAX_EXAMPLES]
    )


def _drift(subject: Subject, previous: Reference, name: str, bound: Bound) -> GateCheck:
    known, baseline_sample, sample = previous.source, previous.sample, subject.sample
    if name == "drift.unrelated":
        tail = known.unrelated
        current, before, severity = sample.unrelated(tail.bound), tail.share, sample.relation()
        paired = None if baseline_sample is None else baseline_sample.unrelated(tail.bound)
    else:
        current, before, severity = sample.score, known.score(), sample.columns["consistency"]
        paired = None if baseline_sample is None else baseline_sample.score
    gap = gap_between(current, before, paired)
    if name == "drift.score_nats" and gap.value > 0.0:
        severity = -severity
    unit = "share" if name == "drift.unrelated" else "nats"
    n = len(current.queries)
    fixed = 0.0 if gap.n_shared else before.standard_error
    check = decided(
        name, gap.value, gap.interval, unit, bound, n, n=gap.n_queries, n_shared=gap.n_shared, fixed_error=fixed
    )
    return with_worst(replace(check, before=before.value), subject, severity)
