"""The checks, one small function each: what was measured, against which limit, decided on the whole interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from secid.gating.columns import Columns
from secid.gating.estimates import (
    Estimate,
    Gap,
    at_least,
    at_most,
    combined,
    interval,
    paired_gap,
    ratio,
    share_interval,
    within,
)
from secid.gating.policy import DEFECT_BUCKETS, Policy
from secid.gating.subject import Draft, Subject, decided, not_decided, spread, worst
from secid.gating.texts import TEXT_BUCKETS
from secid.measure.uncertainty import FEWEST_QUERIES
from secid.verdicts import Check, Outcome


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
    yield from _drift(subject)


COUNTED = frozenset(f"buckets.{name}" for name in DEFECT_BUCKETS)


def _enough(draft: Draft, n_queries: int) -> Draft:
    """The draft; undecided where it rests on an error that so few queries cannot tell. Defects are counted."""
    if n_queries >= FEWEST_QUERIES or draft.check.measured is None or draft.check.name in COUNTED:
        return draft
    why = f"{n_queries} distinct queries tell no error; {FEWEST_QUERIES} are the fewest that do"
    return replace(draft, check=not_decided(draft.check.name, why, "give the source more queries"))


def excused(draft: Draft, policy: Policy) -> Draft:
    """The draft, marked where the policy says that this check may stay undecided."""
    if draft.check.outcome == "not_evaluated" and draft.check.name in policy.allow_not_evaluated:
        return replace(draft, check=replace(draft.check, excused=True))
    return draft


def _sizes(subject: Subject) -> Iterator[Draft]:
    policy = subject.policy
    counts = (
        ("minimum_records", subject.n_records, policy.minimum_records, "records"),
        ("minimum_queries", len(subject.columns.queries), policy.minimum_queries, "distinct queries"),
        ("minimum_negatives", len(subject.columns.cluster), policy.minimum_negatives, "negatives"),
    )
    for name, count, limit, noun in counts:
        if limit is None:
            continue
        enough = count >= limit
        yield Draft(
            Check(
                name=name,
                outcome="pass" if enough else "fail",
                message=f"{count} {noun} to score; the policy asks for at least {limit}",
                unit="count",
                measured=float(count),
                limit=float(limit),
                limit_text=f"at least {limit}",
                what_to_do="" if enough else f"add {limit - count} {noun}: so few decide little",
            )
        )


def _score(subject: Subject) -> Iterator[Draft]:
    tolerance, reference = subject.policy.score.tolerance_nats, subject.reference
    if not isinstance(tolerance, float | int):
        return
    known = reference.source
    gap = reference.gap(subject.columns.score, known.score_nats, known.standard_error_nats, lambda found: found.score)
    yield Draft(
        decided(
            "score",
            at_least(gap.interval, -tolerance),
            gap.value,
            gap.interval,
            "nats",
            -float(tolerance),
            f"at least −{tolerance:g}",
            f"ECI_sem {subject.columns.score.value:.4f} nats, {gap.value:+.4f} against {reference.name} "
            f"({known.score_nats:.4f}){_pairing(gap)}",
            f"compare with {reference.name}: see its failure buckets with `secid score`, or name another reference in "
            "[gate.score]",
        ),
        worst(subject, subject.columns.values["consistency"]),
    )


def _pairing(gap: Gap) -> str:
    return f", paired over {gap.n_shared} shared queries" if gap.n_shared else ""


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
        bounds = interval(mean.value, mean.standard_error)
        outcome = at_least(bounds, limit) if least else at_most(bounds, limit)
        side = f"at {'least' if least else 'most'} {limit:g}"
        check = decided(
            f"means.{name}", outcome, mean.value, bounds, "fraction", limit, side, f"{title} {mean.value:.4f}", advice
        )
        yield Draft(check, worst(subject, values[name] if least else -values[name]))


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
    "empty": ("are empty or hold no words to speak of", "drop them, and see why the miner returned nothing"),
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
        bounds = share_interval(share)
        n = subject.texts.n_negatives if name in TEXT_BUCKETS else len(columns.cluster)
        # A defect is counted, not estimated: these rows are what training would read. Other shares are a trait of
        # the process that made the source, so the whole interval decides.
        outcome: Outcome = at_most((share.value, share.value) if name in DEFECT_BUCKETS else bounds, limit)
        check = decided(
            f"buckets.{name}",
            outcome,
            share.value,
            bounds,
            "fraction",
            limit,
            f"at most {100 * limit:g} %",
            f"{share.value:.2%} of {n} negatives {what}",
            advice,
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
        bounds = interval(related.value, related.standard_error)
        gap = paired_gap(subject.columns.score, subject.controls[kind].score)
        low, high = gap.interval
        check = decided(
            name,
            at_least(bounds, limit),
            related.value,
            bounds,
            "fraction",
            limit,
            f"at least {limit:g}",
            f"negatives stand {related.value:.3f} of the way from the {kind} control (0) to the positives (1) by their "
            f"cosine with the query; ECI_sem differs from it by {gap.value:+.4f} ({low:+.4f} to {high:+.4f})",
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
    bounds = interval(subject.rank.value, subject.rank.standard_error)
    yield Draft(
        decided(
            "diversity",
            at_least(bounds, limit),
            subject.rank.value,
            bounds,
            "directions",
            limit,
            f"at least {limit:g}",
            f"effective rank {subject.rank.value:.1f} at a budget of {budget:g} negatives",
            "the negatives repeat a few directions: add sources or queries of other kinds",
        )
    )


def _drift(subject: Subject) -> Iterator[Draft]:
    limits, previous = subject.policy.drift, subject.previous
    if previous is None:
        allowed = limits.new_source == "allow"
        advice = "" if allowed else "review the source, then take it into the baseline"
        check = not_decided("drift", "the baseline knows no earlier version of this source", advice)
        yield Draft(replace(check, excused=allowed))
        return
    known = previous.source
    gap = previous.gap(subject.columns.score, known.score_nats, known.standard_error_nats, lambda found: found.score)
    if isinstance(limits.score_nats, float | int):
        yield _moved(subject, "score_nats", gap, limits.score_nats, known.score_nats)
    low, high = known.tails["low"], known.tails["high"]

    def estimates(columns: Columns) -> dict[str, Estimate]:
        return {**columns.means(), **columns.tail(low, high)}

    own = estimates(subject.columns)
    for name in ("consistency", "locality", "coverage", "query_similarity", "unrelated", "close"):
        tolerance = getattr(limits, name)
        if not isinstance(tolerance, float | int):
            continue
        before = known.means[name]
        error = before.standard_error or 0.0
        gap = previous.gap(own[name], before.value, error, lambda columns: estimates(columns)[name])  # noqa: B023
        yield _moved(subject, name, gap, tolerance, before.value)


DRIFT_TITLES: Mapping[str, str] = {
    "score_nats": "ECI_sem",
    "consistency": "mean target consistency π",
    "locality": "mean semantic locality ρ",
    "coverage": "mean lexical coverage c",
    "query_similarity": "mean cosine of query and negative",
    "unrelated": "share of negatives less related to their query than 98 % of the last version's",
    "close": "share of negatives more related to their query than 98 % of the last version's",
}


def _moved(subject: Subject, name: str, gap: Gap, tolerance: float, before: float) -> Draft:
    previous = subject.previous.name if subject.previous else ""
    check = decided(
        f"drift.{name}",
        within(gap.interval, tolerance),
        gap.value,
        gap.interval,
        "nats" if name == "score_nats" else "fraction",
        tolerance,
        f"within ±{tolerance:g}",
        f"{DRIFT_TITLES[name]} moved by {gap.value:+.4f} from {before:.4f}, that of {previous} in the baseline"
        f"{_pairing(gap)}",
        "find what changed in how the source is made; if it is meant, score it and `secid baseline update RUN`",
    )
    # The rows that moved it: the lowest where the number fell, else the highest; of the lower tail the reverse.
    lowest = (gap.value < 0) is not (name == "unrelated")
    columns = subject.columns
    shown = columns.relation() if name in ("unrelated", "close") else columns.values[SHOWN.get(name, name)]
    return Draft(check, worst(subject, shown if lowest else -shown))


SHOWN: Mapping[str, str] = {"score_nats": "consistency", "query_similarity": "s_query_negative"}
"""Columns whose rows show a drift of another name."""
