"""What makes scores of a run less than they seem: a noisy encoder, too few queries, unequal samples, odd slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from secid.analyses.shared_queries import FEWEST_SHARED, Pairs, SharedCounts
from secid.arrays import Flags, distinct
from secid.encode.selftest import LARGEST_NOISE, NOISE_FACTOR
from secid.measure.interval import FEWEST_QUERIES
from secid.pool import Plan
from secid.results import RunWarning
from secid.settings import Settings
from secid.triplets.measured import Measured
from secid.triplets.query_sums import QuerySums, total

NOT_LEVEL, OTHER_QUERIES = "not_level", "other_queries"
"""Reasons why budget curves are not compared. Source: METHOD 7, 16.1."""
MOST_SOURCES, MOST_VALUES = 10, 5
"""Sources whose values of --by no other source has, and values of each."""


def noisy(distance: float) -> tuple[RunWarning, ...]:
    """A warning where the encoder's noise hides more than near-copies. distance: as of `smallest_distance`."""
    limit = NOISE_FACTOR * LARGEST_NOISE
    if distance <= limit:
        return ()
    return (RunWarning(kind="noisy_encoder", values={"distance": distance, "limit": limit}),)


def unlike(pairs: Pairs, counts: SharedCounts) -> tuple[RunWarning, ...]:
    """Warn of pairs that are not compared, of pairs compared by tr M, and of table rows with different queries.

    Source: METHOD 16.1.
    """
    warnings, n_pairs = [], len(pairs.gaps) + len(pairs.apart)
    if pairs.apart:
        first, second, n_shared = pairs.apart[0]
        values = {"first": first, "second": second, "n_shared_queries": n_shared}
        values |= {"n_apart": len(pairs.apart), "n_pairs": n_pairs}
        warnings.append(RunWarning(kind="few_shared_queries", values=values))
    if not counts.one_set:
        values = {"n_common": counts.n_common, "n_smallest": counts.n_smallest, "n_largest": counts.n_largest}
        warnings.append(RunWarning(kind="own_queries", values=values))
    if n_traces := sum(pair.number == "trace" for pair in pairs.gaps):
        warnings.append(RunWarning(kind="traces_compared", values={"n_traces": n_traces, "n_pairs": n_pairs}))
    return tuple(warnings)


def chosen_queries(
    names: Sequence[str], has: Flags, hardness: Sequence[QuerySums], n_queries: int
) -> tuple[RunWarning, ...]:
    """Warn of sources that have only some of the run's queries.

    The warning compares the hardness of the other sources on these queries and on the rest, over the same sources on
    both sides: those with FEWEST_SHARED sampled queries or more on each. Without any the source is left out.
    has : (S, n) which sources have which queries.   hardness : of each source.   n_queries : of the run.
    """
    sources = {}
    for place, (name, own) in enumerate(zip(names, has, strict=True)):
        sides = [
            [sums.among(queries) for queries in (own, ~own)] for sums in (*hardness[:place], *hardness[place + 1 :])
        ]
        both = [pair for pair in sides if min(len(part.queries) for part in pair) >= FEWEST_SHARED]
        if own.sum() == n_queries or not both:
            continue
        values = [total(list(parts)).value for parts in zip(*both, strict=True)]
        if None not in values:
            sources[name] = [int(own.sum()), *values]
    if not sources:
        return ()
    return (RunWarning(kind="chosen_queries", values={"n_queries": n_queries, "sources": sources}),)


def few_queries(n_queries: Mapping[str, int]) -> tuple[RunWarning, ...]:
    """One warning for each source with too few queries for intervals and comparisons.

    n_queries: distinct queries of each source.
    """
    return tuple(
        RunWarning(kind="few_queries", source=name, values={"n_queries": n})
        for name, n in n_queries.items()
        if n < FEWEST_QUERIES
    )


def not_level(level: Sequence[Measured] | None, settings: Settings) -> tuple[RunWarning, ...]:
    """A warning where sources are ranked at a budget beyond 1 by samples of unequal size."""
    if level is not None or settings.budget <= 1.0:
        return ()
    return (RunWarning(kind="unequal_sizes", values={"budget": settings.budget}),)


def odd_slices(plan: Plan, settings: Settings) -> tuple[RunWarning, ...]:
    """Warnings on --by: sources without the column, and records whose rows do not agree on its value."""
    if settings.by is None:
        return ()
    absent = plan.slices.index("") if "" in plan.slices else -1
    warnings = []
    for planned in plan.sources:
        mixed = planned.tally.n_mixed_slices
        if (planned.slice == absent).all():
            values = {"column": settings.by, "n_records": planned.n_records}
            warnings.append(RunWarning(kind="no_slice_value", source=planned.name, values=values))
        if mixed:
            values = {"column": settings.by, "n_records": mixed}
            warnings.append(RunWarning(kind="mixed_slice_values", source=planned.name, values=values))
    return (*warnings, *_strangers(plan, settings.by))


def _strangers(plan: Plan, by: str) -> list[RunWarning]:
    """One warning on the sources whose values no other source has: nothing compares them in any slice."""
    values = {
        planned.name: {value for number in distinct(planned.slice) if (value := plan.slices[number])}
        for planned in plan.sources
    }
    alone = [
        name
        for name, own in values.items()
        if own
        and any(values[other] for other in values if other != name)
        and not any(own & values[other] for other in values if other != name)
    ]
    if not alone:
        return []
    sources = {name: sorted(values[name])[:MOST_VALUES] for name in alone[:MOST_SOURCES]}
    return [RunWarning(kind="no_common_slice_value", values={"column": by, "sources": sources})]
