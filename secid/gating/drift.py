"""Drift: how far a source has moved from its own last version, in either direction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from secid.gating.baseline import MEAN_NAMES, TAILS
from secid.gating.sample import Sample
from secid.gating.subject import (
    WITHIN,
    Limit,
    Subject,
    decided,
    gap_between,
    not_decided,
    pairing,
    score_gap,
    with_worst,
)
from secid.pages.numbers import nats
from secid.results.gate import Check
from secid.triplets.estimates import Estimate, Gap


def drift_checks(subject: Subject) -> Iterator[Check]:
    """One check per number that the policy bounds; a single undecided one if there is no earlier version."""
    limits, previous = subject.policy.drift, subject.previous
    if previous is None:
        allow = limits.new_source == "allow"
        advice = "" if allow else "review the source, then add it to the baseline"
        check = not_decided("drift", "the baseline has no earlier version of this source", advice)
        yield replace(check, excused=allow)
        return
    known = previous.source
    if isinstance(limits.score_nats, float | int):
        yield _moved(subject, "score_nats", score_gap(subject, previous), limits.score_nats, known.score_nats)
    low, high = known.tails["low"], known.tails["high"]

    def estimates(sample: Sample) -> dict[str, Estimate]:
        return {**sample.means(), **sample.tails(low, high)}

    own = estimates(subject.sample)
    theirs = {} if previous.sample is None else estimates(previous.sample)
    for name in MEAN_NAMES:
        tolerance = getattr(limits, name)
        if not isinstance(tolerance, float | int):
            continue
        before = known.means[name]
        gap = gap_between(own[name], before.value, before.standard_error or 0.0, known.n_queries, theirs.get(name))
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


def _moved(subject: Subject, name: str, gap: Gap, tolerance: float, before: float) -> Check:
    previous = subject.previous.name if subject.previous else ""
    least = -1.0 if name == "query_similarity" else 0.0
    check = decided(
        f"drift.{name}",
        gap.value,
        gap.interval,
        "nats" if name == "score_nats" else "fraction",
        Limit(WITHIN, tolerance, (least - before, 1.0 - before)),
        f"{DRIFT_TITLES[name]} changed by {nats(gap.value, signed=True)} from {nats(before)} of {previous} in the "
        f"baseline{pairing(gap)}",
        "find out what changed in the making of the source; if intended, score it and run `secid baseline update RUN`",
    )
    # The rows behind the drift: the lowest if the number fell, else the highest; for the lower tail the reverse.
    lowest = (gap.value < 0) is not (name == "unrelated")
    sample = subject.sample
    severity = sample.relation() if name in TAILS else sample.columns[COLUMNS.get(name, name)]
    return with_worst(check, subject, severity if lowest else -severity)


COLUMNS: Mapping[str, str] = {"score_nats": "consistency", "query_similarity": "s_query_negative"}
"""Columns that the examples of a drift are chosen by, if their names differ."""
