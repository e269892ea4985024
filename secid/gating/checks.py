"""The checks, one small function each: what was measured, against which limit, decided on the whole interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Any

from secid.gating.columns import Columns
from secid.gating.drift import drift_checks
from secid.gating.policy import DEFECT_BUCKETS, Policy
from secid.gating.subject import (
    LEAST,
    MOST,
    Draft,
    Limit,
    Subject,
    decided,
    not_decided,
    pairing,
    score_gap,
    spread,
    worst,
)
from secid.gating.texts import TEXT_BUCKETS
from secid.measure.interval import FEWEST_QUERIES
from secid.pages.numbers import nats, plural
from secid.results.gate import Check
from secid.triplets.estimates import Estimate, combined, interval, paired_gap, ratio, share_interval


def all_checks(subject: Subject) -> Iterator[Draft]:
    """Every check that the policy does not switch off, in the order of CHECK_NAMES."""
    yield from _sizes(subject)
    for draft in _measured(subject):
        yield _enough(draft, len(subject.columns.queries))


def _measured(subject: Subject) -> Iterator[Draft]:
    yield from _score(subject)
    yield from _means(subject)
    yield from _buckets(subject)
    yield from _controls(subject)
    yield from _diversity(subject)
    yield from drift_checks(subject)


COUNTED = frozenset(f"buckets.{name}" for name in DEFECT_BUCKETS)


def _enough(draft: Draft, n_queries: int) -> Draft:
    """The draft; undecided where it rests on an error that so few queries cannot give. Defects are counted."""
    if n_queries >= FEWEST_QUERIES or draft.check.measured is None or draft.check.name in COUNTED:
        return draft
    why = f"no 95 % interval from fewer than {FEWEST_QUERIES} distinct queries; the source has {n_queries}"
    return replace(draft, check=not_decided(draft.check.name, why, "give the source more queries"))


def excused(draft: Draft, policy: Policy) -> Draft:
    """The draft, marked where the policy says that this check may stay undecided."""
    if draft.check.outcome == "not_evaluated" and draft.check.name in policy.allow_not_evaluated:
        return replace(draft, check=replace(draft.check, excused=True))
    return draft


def _sizes(subject: Subject) -> Iterator[Draft]:
    policy = subject.policy
    counts = (
        ("minimum_records", subject.n_records, policy.minimum_records, ("record", "records")),
        ("minimum_queries", len(subject.columns.queries), policy.minimum_queries, _QUERIES),
        ("minimum_negatives", subject.columns.n_negatives, policy.minimum_negatives, ("negative", "negatives")),
    )
    for name, count, limit, words in counts:
        if limit is None:
            continue
        enough, bound = count >= limit, Limit(LEAST, limit, (1, inf))
        yield Draft(
            Check(
                name=name,
                outcome="pass" if enough else "fail",
                message=f"{plural(count, *words)} to score; the policy asks for at least {limit:,}",
                unit="count",
                measured=float(count),
                limit=float(limit),
                limit_text=bound.text("count"),
                vacuous=bound.vacuous,
                what_to_do="" if enough else f"add {plural(limit - count, *words)}: so few decide little",
            ),
            subject.left_out,
        )


_QUERIES = ("distinct query", "distinct queries")


def _score(subject: Subject) -> Iterator[Draft]:
    tolerance, reference = subject.policy.score.tolerance_nats, subject.reference
    if not isinstance(tolerance, float | int):
        return
    known, own = reference.source, subject.columns.score
    gap = score_gap(subject, reference)
    yield Draft(
        decided(
            "score",
            gap.value,
            gap.interval,
            "nats",
            Limit(LEAST, -tolerance, (-known.score_nats, 1.0 - known.score_nats)),
            f"ECI_sem {nats(own.value)} nats, {nats(gap.value, signed=True)} against {reference.name} "
            f"({nats(known.score_nats)}){pairing(gap)}",
            f"compare with {reference.name}: see its failure buckets with `secid score`, or name another reference in "
            "[gate.score]",
        ),
        worst(subject, subject.columns.values["consistency"]),
    )


def _means(subject: Subject) -> Iterator[Draft]:
    limits, values = subject.policy.means, subject.columns.values
    means = subject.columns.means()
    asked: tuple[tuple[str, Any, str, bool, str], ...] = (
        ("consistency", limits.consistency_minimum, "mean target consistency π", True,
         "many negatives outscore their positive: look for unlabelled positives among them"),
        ("locality", limits.locality_minimum, "mean semantic locality ρ", True,
         "negatives lie nearer to the query than to the positive: they answer the words, not the subject"),
        ("coverage", limits.coverage_maximum, "mean lexical coverage c", False,
         "negatives repeat the query's words: check that no query text leaks into them"),
    )  # fmt: skip
    for name, limit, title, least, advice in asked:
        if not isinstance(limit, float | int):
            continue
        mean = means[name]
        check = decided(
            f"means.{name}",
            mean.value,
            mean.interval,
            "fraction",
            Limit(LEAST if least else MOST, limit, SHARES),
            f"{title} {nats(mean.value)}",
            advice,
        )
        yield Draft(check, worst(subject, values[name] if least else -values[name]))


SHARES = (0.0, 1.0)
"""What a share, a coverage or the value of a gate can be."""
BUCKETS: Mapping[str, tuple[str, str]] = {
    "known_positive": (
        "are a labelled positive of their query, whole, altered or cut",
        "drop them: training on them teaches the encoder to push right answers away",
    ),
    "near_copy": (
        "have the vector of the scored positive",
        "drop them: they teach nothing and punish the positive",
    ),
    "duplicate": ("repeat another negative of the same record", "list each negative once"),
    "overused": ("stand under very many queries with the same text", "look for a default answer of the generator"),
    "preamble": ("open with a generator's words, not a passage", "strip preambles and refusals from the generator"),
    "empty": ("are empty, a single letter or a placeholder", "drop them, and see why the miner returned nothing"),
    "inversion": ("outscore the positive", "look for unlabelled positives among them before training"),
    "high_coverage": ("repeat most of the query's words", "check that the query's text does not leak into them"),
}


def _buckets(subject: Subject) -> Iterator[Draft]:
    settings, columns = subject.baseline.settings, subject.columns
    shares = columns.buckets(settings["high_coverage"], settings["near_copy"]) | dict(subject.texts.shares)
    severity = {
        "inversion": columns.values["consistency"],
        "high_coverage": -columns.values["coverage"],
        "near_copy": -columns.values["s_positive_negative"],
    }
    for name, (what, advice) in BUCKETS.items():
        limit = getattr(subject.policy.buckets, name)
        if not isinstance(limit, float | int):
            continue
        share = shares[name]
        n = subject.texts.n_negatives if name in TEXT_BUCKETS else columns.n_negatives
        # A defect is counted, not estimated: these rows are what training would read. Other shares are a trait of
        # the process that made the source, so the whole interval decides.
        check = decided(
            f"buckets.{name}",
            share.value,
            share_interval(share),
            "share",
            Limit(MOST, limit, SHARES),
            f"{100 * share.value:.2f} % of {plural(n, 'negative')} {what}",
            advice,
            counted=name in DEFECT_BUCKETS,
        )
        if name in TEXT_BUCKETS:
            yield Draft(check, tuple((place, name) for place in spread(subject.texts.places[name])))
        else:
            yield Draft(check, worst(subject, severity[name]) if share.value > 0 else ())


def _controls(subject: Subject) -> Iterator[Draft]:
    limits = subject.policy.controls
    for kind in limits.differ_from:
        name, limit = f"controls.{kind}", limits.relatedness_minimum
        if kind not in subject.controls:
            reason = subject.missing.get(kind, f"its sample holds fewer than {FEWEST_QUERIES} of this source's queries")
            yield Draft(not_decided(name, f"no {kind} control: {reason}", "give the source more queries"))
            continue
        related = relatedness(subject.columns, subject.controls[kind])
        if related is None:
            why = f"the positives are no nearer to their queries than the {kind} control's passages"
            yield Draft(
                not_decided(name, why, "check the encoder's prefixes, and that queries and positives belong together")
            )
            continue
        gap = paired_gap(subject.columns.score, subject.controls[kind].score)
        low, high = gap.interval
        check = decided(
            name,
            related.value,
            interval(related.value, related.standard_error, gap.n_queries),
            "fraction",
            Limit(LEAST, limit),
            f"negatives stand {nats(related.value)} of the way from the {kind} control (0) to the positives (1) by "
            f"their cosine with the query; ECI_sem differs from it by {nats(gap.value, signed=True)} "
            f"({nats(low, signed=True)} to {nats(high, signed=True)})",
            "the negatives have as good as nothing to do with their queries: check that rows were not shifted or dealt "
            "out to other queries",
        )
        yield Draft(check, worst(subject, subject.columns.values["s_query_negative"]))


def relatedness(source: Columns, control: Columns) -> Estimate | None:
    """Where negatives stand between a control (0) and the positives (1) by their mean cosine with the query.

    A scale without an encoder's own range of cosines. None where the positives do not lie above the control.
    """
    own, theirs = source.means(), control.means()
    floor = theirs["query_similarity"]
    return ratio(combined(own["query_similarity"], floor), combined(own["positive_similarity"], floor))


def _diversity(subject: Subject) -> Iterator[Draft]:
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
        "the negatives repeat a few directions: add sources or queries of other kinds",
    )
    yield Draft(
        _at_equal_numbers(check, subject, bounds), worst(subject, subject.rank.per_query[subject.columns.cluster])
    )


def _at_equal_numbers(check: Check, subject: Subject, bounds: tuple[float, float]) -> Check:
    """The check of the rank; undecided where so few negatives of a source as diverse as the baseline's could be as low.

    log det is concave: a share of a source's negatives has, on average, at least that share of its rank. The
    baseline's source is the one of the smallest rank, from which a limit is derived.
    """
    budget = f"{subject.policy.diversity.budget:g}"
    known = min(subject.baseline.sources.values(), key=lambda source: source.effective_rank[budget])
    own = subject.columns.n_negatives
    least = (check.limit or 0.0) * min(1.0, own / known.n_negatives)
    if check.outcome != "fail" or Limit(LEAST, least).outcome(bounds) == "fail":
        return check
    return replace(
        check,
        outcome="not_evaluated",
        message=f"{check.message}; but fewer negatives fill fewer directions: where {known.n_negatives:,}, as in the "
        f"baseline, reach the limit, {own:,} may reach no more than {least:.1f}",
        what_to_do="give the source more negatives, or lower the limit in the policy to what so few can reach",
    )
