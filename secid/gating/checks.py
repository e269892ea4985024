"""The checks: what was measured, against which limit, decided on the whole interval."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from secid.findings.rows import SAMPLED
from secid.gating.limits import LEAST, Bound
from secid.gating.subject import (
    EXAMPLES,
    Reference,
    Subject,
    decided,
    gap_between,
    undecided,
    with_worst,
)
from secid.measure.interval import FEWEST_QUERIES, UNBOUNDED
from secid.results import AmongPositives, SourceFinding
from secid.results.catalogue import FINDINGS
from secid.results.gate import Check, CheckExample, finding_of
from secid.results.guide import GuideSource
from secid.triplets.estimates import share_interval

WEAK_BASELINE = "weak_baseline"
NO_GUIDE_BEFORE = "no_guide_before"
GUIDE_FLAGS_RANDOM, GUIDE_REPEATS = "guide_flags_random", "guide_repeats_target"


def all_checks(subject: Subject) -> Iterator[Check]:
    """Every check that the policy does not switch off, in the order of CHECK_NAMES."""
    for check in (
        _queries(subject),
        *_unchecked(subject),
        *_limits(subject),
        *_suspect(subject),
        *_new_source(subject),
    ):
        excused = check.outcome == "undecided" and check.name in subject.policy.allow_undecided
        yield replace(check, excused=True) if excused else check


def _queries(subject: Subject) -> Check:
    """Too little evidence is undecided: more of it may pass."""
    n, least = len(subject.sample.queries), subject.limits.minimum_queries
    enough = n >= least
    return Check(
        name="queries",
        outcome="pass" if enough else "undecided",
        unit="count",
        measured=float(n),
        side=LEAST,
        limit=float(least),
        n=n,
        n_queries_needed=None if enough else least,
        examples=() if enough else subject.left_out,
    )


def _unchecked(subject: Subject) -> Iterator[Check]:
    """Leave a new source undecided if this baseline cannot judge its hardness: nothing else notices random passages."""
    if subject.previous is None and "hardness" in subject.limits.left_out:
        yield Check(name="hardness", outcome="undecided", unit="hardness", reason=WEAK_BASELINE)


def _new_source(subject: Subject) -> Iterator[Check]:
    """A source that the baseline does not know, where the policy holds such sources for review."""
    if subject.previous is None and subject.policy.new_source == "hold":
        yield Check(name="new_source", outcome="undecided")


def _suspect(subject: Subject) -> Iterator[Check]:
    """Suspects of a guide that the baseline has none of: asked for, and without a limit."""
    if subject.missing.get("suspect") == NO_GUIDE_BEFORE:
        yield Check(name="findings.suspect", outcome="undecided", unit="share", reason=NO_GUIDE_BEFORE)


def _limits(subject: Subject) -> Iterator[Check]:
    """A check for each limit."""
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


def _hardness(subject: Subject, bound: Bound) -> Check:
    hard = subject.hardness
    if hard is None:
        return undecided("hardness", "hardness", bound, subject.missing.get("hardness", ""))
    n = len(hard.queries)
    check = decided("hardness", hard.value, hard.interval, "hardness", bound, n, n=n)
    return with_worst(check, subject, subject.sample.columns["s_query_negative"])


def _languages(subject: Subject, bound: Bound) -> Check:
    """Counted in a sample of the negatives, whatever the positives are."""
    texts = subject.findings.languages
    new = sum(share for code, share in texts.shares.items() if code and code not in subject.known_languages)
    return decided("languages", new, (new, new), "share", bound, len(subject.sample.queries), n=texts.n_texts)


def _finding(subject: Subject, name: str, bound: Bound) -> Check:
    finding = finding_of(name)
    result = next((item for item in subject.findings.findings if item.name == finding), None)
    if result is None:
        return undecided(name, "share", bound, subject.missing.get("hardness" if finding in SAMPLED else finding, ""))
    share = subject.findings.shares[finding]
    n_queries = len(share.estimate.queries)
    if result.positives is not None:
        return _compared(name, result, result.positives, bound, share.n_all, n_queries)
    bounds = share_interval(share.estimate) if n_queries >= FEWEST_QUERIES or bound.counted else UNBOUNDED
    check = decided(name, share.estimate.value, bounds, "share", bound, n_queries, n=share.n_all)
    if bound.counted and check.outcome == "pass" and share.estimate.value > (FINDINGS[finding].limit or 1.0):
        check = replace(check, notice=True)  # as bad as the baseline already is
    shown = check.outcome != "pass" or check.notice
    if finding == "suspect" and (why := _doubt(subject.guide, shown)):
        return undecided(name, "share", bound, why)
    return replace(check, examples=_examples(result)) if shown else check


def _compared(
    name: str, result: SourceFinding, positives: AmongPositives, bound: Bound, n: int, n_queries: int
) -> Check:
    """A formal finding: the difference from the positives. A defect fails where its whole interval is beyond the limit,
    as it decides the status; a share that positives may well have, too, holds nothing up.
    """
    low, high = positives.interval_95
    bounds = (positives.excess, positives.excess) if FINDINGS[result.name].counted else (low, high)
    check = decided(name, positives.difference, bounds, "share", replace(bound, counted=False), n_queries, n=n)
    check = replace(check, interval_95=(low, high))
    return replace(check, examples=_examples(result)) if check.outcome != "pass" or check.notice else check


def _doubt(guide: GuideSource | None, shown: bool) -> str:
    """Why a guide's flags decide nothing. Few of them may pass where they are not significantly more than of random
    passages, which a sound source has no more of.
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
        for example in finding.examples[:EXAMPLES]
    )


def _drift(subject: Subject, previous: Reference, name: str, bound: Bound) -> Check:
    """How far the source lies from its predecessor."""
    known, theirs, sample = previous.source, previous.sample, subject.sample
    if name == "drift.unrelated":
        tail = known.unrelated
        own, before, severity = sample.unrelated(tail.bound), tail.share, sample.relation()
        paired = None if theirs is None else theirs.unrelated(tail.bound)
    else:
        own, before, severity = sample.score, known.score(), sample.columns["consistency"]
        paired = None if theirs is None else theirs.score
    gap = gap_between(own, before, paired)
    if name == "drift.score_nats" and gap.value > 0.0:
        severity = -severity
    unit = "share" if name == "drift.unrelated" else "nats"
    n = len(own.queries)
    fixed = 0.0 if gap.n_shared else before.standard_error
    check = decided(
        name, gap.value, gap.interval, unit, bound, n, n=gap.n_queries, n_shared=gap.n_shared, fixed_error=fixed
    )
    return with_worst(replace(check, before=before.value), subject, severity)
