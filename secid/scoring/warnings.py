"""What makes scores of a run less than they seem: a noisy encoder, too few queries, unequal samples, odd slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from secid.analyses.downstream import shown_names
from secid.arrays import distinct
from secid.encode.selftest import LARGEST_NOISE, NOISE_FACTOR
from secid.measure.interval import FEWEST_QUERIES
from secid.pool import Plan
from secid.results import Comparison
from secid.settings import Settings, flag_of
from secid.triplets.measured import Measured

NOT_LEVEL = f"the sources differ in size, and with {flag_of('positives', 'all')} they are not cut to equal numbers"
"""Why no budget curves are compared. Source: METHOD 7."""
FEW_SHARED = 0.05
"""Share of the smaller source's queries below which the pairing of two sources rests on nothing."""
SHOWN_SOURCES = 3
"""Of those whose values of --by no other source has."""


def noisy(distance: float) -> tuple[str, ...]:
    """A warning where the encoder's noise hides more than near-copies. distance: as of `smallest_distance`."""
    limit = NOISE_FACTOR * LARGEST_NOISE
    if distance <= limit:
        return ()
    where = f"positive and negative closer than {distance:.2g} count as the same (limit {limit:.2g})"
    return (f"the encoder is not batch-invariant: {where}, so scores and ranks mean little",)


def unpaired(comparisons: Sequence[Comparison], n_queries: Mapping[str, int]) -> tuple[str, ...]:
    """A warning where sources have hardly a query in common: what sets them apart may be their queries.

    n_queries: distinct queries of each source.
    """
    apart = [
        pair
        for pair in comparisons
        if pair.n_shared_queries < FEW_SHARED * min(n_queries[pair.first], n_queries[pair.second])
    ]
    if not apart:
        return ()
    names = f"{apart[0].first} and {apart[0].second}"
    which = (
        f"{names} share {apart[0].n_shared_queries or 'no'} {'query' if apart[0].n_shared_queries < 2 else 'queries'}"
        if len(apart) == 1
        else f"{len(apart)} of {len(comparisons)} pairs of sources share hardly a query ({names} for one)"
    )
    return (f"compare sources of the same queries: {which}, so their difference may be that of the queries",)


def few_queries(items: Sequence[Measured]) -> tuple[str, ...]:
    """One warning for each source with too few queries for intervals and comparisons."""
    return tuple(
        f"{item.name}: {_queries(len(item.influence.queries))} too few for an interval; its order is not established"
        for item in items
        if len(item.influence.queries) < FEWEST_QUERIES
    )


def _queries(n: int) -> str:
    return "1 query is" if n == 1 else f"{n} queries are"


def not_level(level: Sequence[Measured] | None, settings: Settings) -> tuple[str, ...]:
    """A warning where sources are ranked at a budget beyond 1 by samples of unequal size."""
    if level is not None or settings.budget <= 1.0:
        return ()
    why = f"{NOT_LEVEL}, so the order at B = {settings.budget:g} favours the larger ones"
    return (f"{why}; rank at B = 1, or with {flag_of('positives', 'first')}",)


def odd_slices(plan: Plan, settings: Settings) -> tuple[str, ...]:
    """Warnings on --by: sources without the column, and records whose rows do not agree on its value."""
    if settings.by is None:
        return ()
    absent = plan.slices.index("") if "" in plan.slices else -1
    warnings = []
    for planned in plan.sources:
        if (planned.slice == absent).all():
            warnings.append(f"{planned.name}: no row has a value of {settings.by!r}; all are in the slice without one")
        if planned.tally.n_mixed_slices:
            n = planned.tally.n_mixed_slices
            warnings.append(
                f"{planned.name}: rows of {n} {'record differ' if n == 1 else 'records differ'} in {settings.by!r}; "
                "each record counts under the value of its first row, so the order of rows matters"
            )
    return (*warnings, *_strangers(plan, settings.by))


def _strangers(plan: Plan, by: str) -> list[str]:
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
    examples = "; ".join(f"{name} has {shown_names(sorted(values[name]))}" for name in alone[:SHOWN_SOURCES])
    more = f"; {len(alone) - SHOWN_SOURCES} more" if len(alone) > SHOWN_SOURCES else ""
    return [f"write the values of {by!r} alike in all sources: no slice compares some of them ({examples}{more})"]
