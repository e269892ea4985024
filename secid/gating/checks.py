"""The checks, one small function each: what was measured, against which limit, decided on the whole interval."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any

from secid.gating.baseline import SHARE
from secid.gating.drift import drift_checks
from secid.gating.policy import Policy
from secid.gating.sample import Sample
from secid.gating.subject import (
    EXAMPLES,
    LEAST,
    MOST,
    SHOWN_NUMBERS,
    Limit,
    Subject,
    decided,
    not_decided,
    numbers_of,
    pairing,
    score_gap,
    with_worst,
)
from secid.measure.interval import FEWEST_QUERIES
from secid.pages.numbers import nats, plural
from secid.results import SourceFinding, TripletExample
from secid.results.catalogue import FINDINGS, Finding
from secid.results.gate import Check, CheckExample
from secid.triplets.estimates import UNBOUNDED, Estimate, combined, interval, paired_gap, ratio, share_interval

CUT = 300
"""Characters of a text in an example: enough to recognise it."""


def all_checks(subject: Subject) -> Iterator[Check]:
    """Every check that the policy does not switch off, in the order of CHECK_NAMES."""
    for checks in (_sizes, _score, _means, _findings, _controls, _diversity, drift_checks):
        for check in checks(subject):
            yield excused(check, subject.policy)


def excused(check: Check, policy: Policy) -> Check:
    """The check, marked if the policy allows it to stay undecided."""
    if check.outcome == "not_evaluated" and check.name in policy.allow_not_evaluated:
        return replace(check, excused=True)
    return check


def _sizes(subject: Subject) -> Iterator[Check]:
    policy = subject.policy
    counts = (
        ("minimum_records", subject.n_records, policy.minimum_records, ("record", "records")),
        ("minimum_queries", len(subject.sample.queries), policy.minimum_queries, _QUERIES),
        ("minimum_negatives", subject.sample.n_negatives, policy.minimum_negatives, ("negative", "negatives")),
    )
    for name, count, limit, words in counts:
        if limit is None:
            continue
        enough, bound = count >= limit, Limit(LEAST, limit, (1, inf))
        yield Check(
            name=name,
            outcome="pass" if enough else "fail",
            message=f"{plural(count, *words)} to score; the policy requires at least {limit:,}",
            unit="count",
            measured=float(count),
            limit=float(limit),
            limit_text=bound.text("count"),
            vacuous=bound.vacuous,
            what_to_do="" if enough else f"add {plural(limit - count, *words)}: the source is too small to judge",
            examples=() if enough else subject.left_out,
        )


_QUERIES = ("distinct query", "distinct queries")


def _score(subject: Subject) -> Iterator[Check]:
    tolerance, reference = subject.policy.score.tolerance_nats, subject.reference
    if not isinstance(tolerance, float | int):
        return
    known, own = reference.source, subject.sample.score
    gap = score_gap(subject, reference)
    check = decided(
        "score",
        gap.value,
        gap.interval,
        "nats",
        Limit(LEAST, -tolerance, (-known.score_nats, 1.0 - known.score_nats)),
        f"ECI_sem {nats(own.value)} nats, {nats(gap.value, signed=True)} against {reference.name} "
        f"({nats(known.score_nats)}){pairing(gap)}",
        f"compare its findings with those of {reference.name} (`secid score` with both), or set another reference in "
        "[gate.score]",
    )
    yield with_worst(check, subject, subject.sample.columns["consistency"])


def _means(subject: Subject) -> Iterator[Check]:
    limits, values = subject.policy.means, subject.sample.columns
    means = subject.sample.means()
    means_checks: tuple[tuple[str, Any, str, bool, str], ...] = (
        ("consistency", limits.consistency_minimum, "mean target consistency π", True,
         "many negatives outscore their positive: check them for false negatives"),
        ("locality", limits.locality_minimum, "mean semantic locality ρ", True,
         "negatives are closer to the query than to the positive: they match its words rather than its topic"),
        ("coverage", limits.coverage_maximum, "mean lexical coverage c", False,
         "negatives repeat the query's words: check that no query text leaks into them"),
    )  # fmt: skip
    for name, limit, title, least, advice in means_checks:
        if not isinstance(limit, float | int):
            continue
        mean = means[name]
        check = decided(
            f"means.{name}",
            mean.value,
            mean.interval,
            "fraction",
            Limit(LEAST if least else MOST, limit, SHARE),
            f"{title} {nats(mean.value)}",
            advice,
        )
        yield with_worst(check, subject, values[name] if least else -values[name])


def _findings(subject: Subject) -> Iterator[Check]:
    results = {result.name: result for result in subject.findings.findings}
    for name, entry in FINDINGS.items():
        limit = getattr(subject.policy.findings, name)
        if not isinstance(limit, float | int):
            continue
        if name not in results:
            yield not_decided(
                f"findings.{name}", f"not evaluated: {subject.missing.get(name, 'no reason is known')}", SKIP
            )
            continue
        check = _share_check(subject, entry, limit)
        yield check if check.outcome == "pass" else replace(check, examples=_examples(results[name]))


SKIP = 'set it to "off" in [gate.findings], or list the check in allow_not_evaluated'


def _share_check(subject: Subject, entry: Finding, limit: float) -> Check:
    """A defect is counted, not estimated: these rows are what training reads. Other shares are traits of the process
    behind the source, so the whole interval decides.
    """
    share = subject.findings.shares[entry.name]
    few = len(share.estimate.queries) < FEWEST_QUERIES and not entry.counted
    return decided(
        f"findings.{entry.name}",
        share.estimate.value,
        UNBOUNDED if few else share_interval(share.estimate),
        "share",
        Limit(MOST, limit, SHARE),
        f"{100 * share.estimate.value:.2f} % of {plural(share.n_all, 'negative')} {entry.says}",
        entry.do,
        counted=entry.counted,
    )


def _examples(finding: SourceFinding) -> tuple[CheckExample, ...]:
    return tuple(
        CheckExample(
            path=example.path,
            line=example.line,
            query=cut(example.query),
            negative=cut(example.negative),
            note=_numbers(example) or finding.name,
        )
        for example in finding.examples[:EXAMPLES]
    )


def _numbers(example: TripletExample) -> str:
    values = [getattr(example, name) for name in SHOWN_NUMBERS]
    return "" if None in values else numbers_of(*values)


def cut(text: str) -> str:
    """The text, cut to the length of an example."""
    return text if len(text) <= CUT else text[: CUT - 1] + "…"


def _controls(subject: Subject) -> Iterator[Check]:
    limits = subject.policy.controls
    for kind in limits.differ_from:
        name, limit = f"controls.{kind}", limits.relatedness_minimum
        if kind not in subject.controls:
            reason = subject.missing.get(kind, f"its sample has fewer than {FEWEST_QUERIES} of this source's queries")
            yield not_decided(name, f"no {kind} control: {reason}", "add queries to the source")
            continue
        related = relatedness(subject.sample, subject.controls[kind])
        if related is None:
            why = f"the positives are no closer to their queries than the {kind} control's passages"
            yield not_decided(name, why, "check the encoder's prefixes, and whether queries and positives match")
            continue
        gap = paired_gap(subject.sample.score, subject.controls[kind].score)
        low, high = gap.interval
        check = decided(
            name,
            related.value,
            interval(related.value, related.standard_error, gap.n_queries),
            "fraction",
            Limit(LEAST, limit),
            f"relatedness {nats(related.value)} on the scale from the {kind} control (0) to the positives (1), by "
            f"cosine with the query; ECI_sem differs from the control's by {nats(gap.value, signed=True)} "
            f"({nats(low, signed=True)} to {nats(high, signed=True)})",
            "the negatives are almost unrelated to their queries: check that rows were not shifted or assigned to "
            "other queries",
        )
        yield with_worst(check, subject, subject.sample.columns["s_query_negative"])


def relatedness(source: Sample, control: Sample) -> Estimate | None:
    """Position of the negatives between a control (0) and the positives (1), by mean cosine with the query.

    The scale does not depend on the encoder's range of cosines. None if the positives are not above the control.
    """
    own, theirs = source.means(), control.means()
    floor = theirs["query_similarity"]
    return ratio(combined(own["query_similarity"], floor), combined(own["positive_similarity"], floor))


def _diversity(subject: Subject) -> Iterator[Check]:
    limit, budget = subject.policy.diversity.effective_rank_minimum, subject.policy.diversity.budget
    if not isinstance(limit, float | int):
        return
    bounds = subject.rank.interval
    check = decided(
        "diversity",
        subject.rank.value,
        bounds,
        "directions",
        Limit(LEAST, limit, (0.0, inf)),
        f"effective rank {subject.rank.value:.1f} at a budget of {budget:g} negatives",
        "the negatives cover few directions: add sources or queries of other kinds",
    )
    check = _at_equal_numbers(check, subject, bounds)
    yield with_worst(check, subject, subject.rank.per_query[subject.sample.cluster])


def _at_equal_numbers(check: Check, subject: Subject, bounds: tuple[float, float]) -> Check:
    """The check of the rank; undecided if so few negatives of a source as diverse as the baseline's could rank as low.

    log det is concave: a share of a source's negatives has, on average, at least that share of its rank. The
    baseline source is the one with the smallest rank, from which a limit is derived.
    """
    budget = f"{subject.policy.diversity.budget:g}"
    known = min(subject.baseline.sources.values(), key=lambda source: source.effective_rank[budget])
    own = subject.sample.n_negatives
    least = (check.limit or 0.0) * min(1.0, own / known.n_negatives)
    if check.outcome != "fail" or Limit(LEAST, least).outcome(bounds) == "fail":
        return check
    return replace(
        check,
        outcome="not_evaluated",
        message=f"{check.message}; but fewer negatives cover fewer directions: if the baseline's "
        f"{known.n_negatives:,} just reach the limit, {own:,} may reach only {least:.1f}",
        what_to_do="add negatives to the source, or lower the limit in the policy for a source of this size",
    )
