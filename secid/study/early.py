"""Early stop: score growing nested samples until every pair of sources is separated, and encode no more.

The error is spent over the looks: look k may use alpha_k = f(t_k) - f(t_(k-1)) with the spending function
f(t) = alpha * log(1 + (e - 1) t) of the share t of queries seen. Within a look Holm's procedure holds
the chance of any wrong order below alpha_k, and the looks add up, so all orders ever declared are right
with the asked confidence. Students' t with n - 1 degrees takes the place of the normal: looks are small.
Source: METHOD 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import e, log1p

import numpy as np
from scipy.stats import t as student

from secid.errors import UsageError
from secid.measure.sweep import Triplets
from secid.measure.uncertainty import FEWEST_QUERIES, ROUNDING_NATS, difference, holm
from secid.plan import Plan, select
from secid.progress import Progress
from secid.results import EarlyPair, EarlyStop, Look
from secid.settings import Settings
from secid.study.bench import Bench, sample_positions
from secid.study.embedding import Embedder
from secid.study.finish import Measured
from secid.study.triplets import triplets_of

FIRST_LOOK = 30
"""Queries of the first look: fewer leave the standard errors themselves too uncertain."""
GROWTH = 1.5


def look_sizes(n_queries: int) -> tuple[int, ...]:
    """Numbers of queries at which the order is looked at, rising, the last one all of them."""
    sizes = []
    size = float(FIRST_LOOK)
    while size < n_queries:
        sizes.append(int(size))
        size *= GROWTH
    return (*sizes, n_queries)


def spent(alpha: float, share: float) -> float:
    """Error that may have been spent once this share of the queries has been seen, in [0, alpha]."""
    return alpha * log1p((e - 1.0) * min(1.0, share))


def rank_early(
    plan: Plan, embedder: Embedder, bench: Bench, settings: Settings, progress: Progress
) -> tuple[Plan, list[Triplets], EarlyStop]:
    """Grows the sample until all pairs are decided or tied, or the queries end.

    Returns the plan of the last look's queries, their triplets, and what was decided when.
    The document frequencies stay those of all texts that were read.
    Raises UsageError for a positive policy that needs vectors of every text, or a budget beyond 1.
    """
    if settings.positives not in ("first", "random") or settings.budget != 1.0:
        raise UsageError(
            "needs one positive known before encoding and the score at budget 1",
            where="--until-ranked",
            remedy="use --positives first or random, and leave --budget out",
        )
    alpha = 1.0 - (settings.until_ranked or 0.0)
    names = [planned.name for planned in plan.sources]
    pairs: dict[tuple[str, str], EarlyPair] = {}
    looks: list[Look] = []
    n_total, n_read = len(plan.queries), plan.n_queries_read
    position = sample_positions(plan, settings.seed)
    previous = 0.0
    part, triplets = plan, [triplets_of(planned, settings.positives) for planned in plan.sources]
    for size in look_sizes(n_total):
        part = _first_queries(plan, position < (size - 0.5) / n_total)
        if any(not planned.n_triplets for planned in part.sources):
            continue
        triplets = [triplets_of(planned, settings.positives) for planned in part.sources]
        for rows in triplets:
            embedder.need(rows.query, np.concatenate([rows.positive, rows.negative]))
        items = [
            bench.measure(planned.name, planned, rows, budgets=(1.0,))
            for planned, rows in zip(part.sources, triplets, strict=True)
        ]
        now = spent(alpha, size / n_total)
        pairs |= _decided(items, now - previous, size / n_read, settings.tie, size, pairs)
        previous = now
        looks.append(Look(n_queries=size, n_texts_encoded=_embedded(embedder), alpha=now, n_decided=len(pairs)))
        progress.note(f"{size} queries: {len(pairs)} of {len(names) * (len(names) - 1) // 2} pairs decided")
        if len(pairs) == len(names) * (len(names) - 1) // 2:
            break
    undecided = tuple(pair for pair in combinations(sorted(names), 2) if pair not in pairs)
    stop = EarlyStop(
        confidence=1.0 - alpha,
        tie_nats=settings.tie,
        looks=tuple(looks),
        pairs=tuple(pairs.values()),
        undecided=undecided,
        n_texts_encoded=_embedded(embedder),
        n_texts=len(plan.queries) + len(plan.passages),
    )
    return part, triplets, stop


def _embedded(embedder: Embedder) -> int:
    return int(embedder.counts["n_texts"])


def _first_queries(plan: Plan, seen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Plan:
    """The plan with only the records of these queries; texts keep their ids."""
    sources = tuple(
        select(planned, seen[planned.query], np.ones(planned.n_triplets, np.bool_)) for planned in plan.sources
    )
    return replace(plan, sources=sources)


def _decided(
    items: Sequence[Measured],
    alpha: float,
    share: float,
    tie: float | None,
    size: int,
    known: dict[tuple[str, str], EarlyPair],
) -> dict[tuple[str, str], EarlyPair]:
    """Pairs that this look decides, by names in alphabetical order.

    The finite-population factor sqrt(1 - share) aims the intervals at the full file's score; with all
    queries seen nothing is left to chance, and every difference stands as it is.
    """
    ordered = sorted(items, key=lambda item: item.name)
    pairs = list(combinations(ordered, 2))
    gaps = [difference(a.influence, b.influence, a.nats(1.0) - b.nats(1.0)) for a, b in pairs]
    factor = np.sqrt(max(0.0, 1.0 - share))
    errors = np.array([gap.standard_error * factor for gap in gaps])
    nats = np.array([gap.nats for gap in gaps])
    freedom = max(1, min(len(item.influence.queries) for item in ordered) - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        p_values = 2.0 * student.sf(np.abs(nats) / errors, freedom)
    p_values = np.where(np.abs(nats) <= ROUNDING_NATS, 1.0, p_values)
    if min(len(item.influence.queries) for item in ordered) < FEWEST_QUERIES:
        p_values = np.ones(len(pairs))
    adjusted = holm(p_values)
    found = {}
    for (first, second), gap, error, p in zip(pairs, nats, errors, adjusted, strict=True):
        key = (first.name, second.name)
        if key in known:
            continue
        half = float(student.isf(alpha, freedom)) * error
        tied = tie is not None and bool(abs(gap) + half <= tie)
        if p <= alpha or tied:
            ahead, behind = key if gap > 0 else key[::-1]
            outcome = "tied" if tied and p > alpha else "ordered"
            found[key] = EarlyPair(
                first=ahead, second=behind, outcome=outcome, n_queries=size, difference_nats=abs(float(gap))
            )
    return found
