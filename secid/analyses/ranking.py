"""Rank sources by paired comparisons, score them without defects, and stop early once the order is established."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations
from math import ceil
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtr, stdtrit

from secid.analyses.shared_queries import PairGap, SourcePairs, compared_pairs
from secid.arrays import Floats, Index, distinct
from secid.errors import UsageError
from secid.findings.status import sound_negatives
from secid.measure.blocks import Triplets
from secid.measure.interval import (
    MIN_QUERIES,
    ROUNDING_NATS,
    Difference,
    error_spent,
    finite_interval,
    information_times,
    interval,
    levels_of_looks,
    max_equal_pairs,
)
from secid.measure.uncertainty import holm, probability_first
from secid.pool import Plan, select_records
from secid.progress import Progress
from secid.results import Comparison, EarlyPair, EarlyStop, Look, WithoutFlagged
from secid.results.run import PairedDifference
from secid.settings import Settings, flag_of
from secid.triplets.embedding import Embedder
from secid.triplets.measure_set import Measured, Measurer, sample_positions
from secid.triplets.random_reference import RandomReference
from secid.triplets.table import triplets_of

# Ranking: intervals, paired comparisons with Holm, tie letters, probability of being first.

ESTABLISHED_P = 0.05
POWER_80 = 0.8416212335729143
"""80 % quantile of the normal distribution."""


def score_interval(nats: float, error: float, n_queries: int, budget: float) -> tuple[float, float]:
    """Return the 95 % interval of ECI_B. With too few queries it is the whole range of the score, 0 to the budget."""
    return interval(nats, error, n_queries, (0.0, budget))


def comparisons(pairs: SourcePairs, budget: float, stop: EarlyStop | None = None) -> tuple[Comparison, ...]:
    """Return all pairs at the run's budget, the higher-scored source first, with Holm-adjusted p values.

    stop : the early stop, or None. After an early stop, orders are established at the level of the last look, since
           that look's result ended the sample. Source: METHOD 8, 16.1.
    """
    gaps = [pair.difference for pair in pairs.gaps]
    p_values = np.array([gap.p() for gap in gaps])
    steps, established = _holm_steps(p_values, stop)
    return tuple(
        Comparison(
            first=pair.first,
            second=pair.second,
            difference_nats=gap.value,
            standard_error_nats=gap.standard_error,
            interval_95=gap.interval_within(budget),
            n_shared_queries=gap.n_shared,
            z=gap.z,
            p=float(p),
            p_holm=float(adjusted),
            established=bool(known),
            queries_needed_50=_queries_needed(gap, step, 0.0),
            queries_needed_80=_queries_needed(gap, step, POWER_80),
            number=pair.number,
            hardness=_paired_difference(pair.hardness),
            outscoring=_paired_difference(pair.outscoring),
        )
        for pair, gap, p, adjusted, known, step in zip(
            pairs.gaps, gaps, p_values, holm(p_values), established, steps, strict=True
        )
    )


def _paired_difference(gap: Difference | None) -> PairedDifference | None:
    return None if gap is None else PairedDifference(value=gap.value, interval_95=finite_interval(gap.interval))


def _holm_steps(p_values: Floats, stop: EarlyStop | None) -> tuple[list[int], list[bool]]:
    """Return each pair's step in Holm's procedure, and whether its order is established.

    The step is the number of pairs that share the error. All open pairs have the step of the first open pair.
    """
    steps, established = [0] * len(p_values), [False] * len(p_values)
    step, all_established = len(p_values), True
    for place in np.argsort(p_values, kind="stable").tolist():
        steps[place] = step
        all_established = all_established and bool(p_values[place] < _level_at_stop(ESTABLISHED_P / step, stop))
        established[place] = all_established
        step -= all_established
    return steps, established


def _level_at_stop(alpha: float, stop: EarlyStop | None) -> float:
    """Return the nominal level of the look that ended the sample; alpha without an early stop."""
    if stop is None:
        return alpha
    return float(levels_of_looks(np.asarray(stop.planned_looks, np.float64), alpha)[len(stop.looks) - 1])


def _queries_needed(gap: Difference, step: int, power: float) -> int | None:
    """Return the number of distinct queries needed to establish this difference; None if its z is None or 0.

    The number is n ((z* + power) / z)^2, where z* is the critical value at the pair's step.
    """
    return None if not gap.z else ceil(gap.n_queries * ((float(-ndtri(ESTABLISHED_P / 2 / step)) + power) / gap.z) ** 2)


class Ordered(Protocol):
    """A pair of sources. established: True if their order is established."""

    @property
    def first(self) -> str: ...
    @property
    def second(self) -> str: ...
    @property
    def established(self) -> bool: ...


def tie_letters(names: Sequence[str], comparisons: Iterable[Ordered]) -> dict[str, str | None]:
    """Return the letters of each source: two sources share a letter if and only if their order is not established.

    names : names in rank order. Letters are assigned in this order, so the first source has an A.
    Every two sources with letters must form a pair. As long as a pair is missing, the source with the most missing
    pairs (the last one if several tie) gets None. If fewer than two sources are left, all have None. No source has a
    redundant letter.
    """
    established = {frozenset((pair.first, pair.second)): pair.established for pair in comparisons}
    lettered = list(names)
    while missing := [pair for pair in map(frozenset, combinations(lettered, 2)) if pair not in established]:
        n_missing = Counter(name for pair in missing for name in pair)
        lettered.remove(max(reversed(lettered), key=n_missing.__getitem__))
    pairs = [
        (i, j) for (i, one), (j, other) in combinations(enumerate(lettered), 2) if established[frozenset((one, other))]
    ]
    letters = dict.fromkeys(names, "")
    for number, column in enumerate(_columns(len(lettered), pairs) if len(lettered) > 1 else []):
        for place in column:
            letters[lettered[place]] += letter(number)
    return {name: group or None for name, group in letters.items()}


def _columns(n: int, pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the places of the sources of each letter. pairs: established pairs of places below n.

    Insert and absorb: each established pair splits the columns that hold both sources. A column is absorbed as soon as
    the other columns hold all of its pairs, so there are never more columns than pairs. A column is a set of bits.
    Source: Piepho 2004, An algorithm for a letter-based representation of all-pairwise comparisons.
    """
    columns = [(1 << n) - 1]
    for i, j in pairs:
        pair = 1 << i | 1 << j
        parts = [column & ~(1 << place) for column in columns if column & pair == pair for place in (i, j)]
        columns = [column for column in columns if column & pair != pair] + parts
        for part in sorted(parts, key=int.bit_count):
            if all(_is_redundant(place, part, columns) for place in _places(part)):
                columns.remove(part)
    for number in range(len(columns)):
        for place in reversed(range(n)):
            if columns[number] >> place & 1 and _is_redundant(place, columns[number], columns):
                columns[number] &= ~(1 << place)
    return sorted(_places(column) for column in columns if column)


def _places(column: int) -> list[int]:
    return [place for place in range(column.bit_length()) if column >> place & 1]


def _is_redundant(place: int, column: int, columns: Sequence[int]) -> bool:
    """Return whether other columns hold the source, and every pair of it with another source in this column."""
    holding = [other for other in columns if other >> place & 1]
    holding.remove(column)
    union = 0
    for other in holding:
        union |= other
    return not column & ~union


def letter(place: int) -> str:
    """Return A for 0 to Z for 25, then A1 to Z1, so that a string of letters has only one reading."""
    return f"{chr(ord('A') + place % 26)}{place // 26 or ''}"


def probabilities_first(scores: Sequence[float], covariances: Floats, n_queries: Iterable[int], seed: int) -> Floats:
    """Return (S,) probability that each source has the highest score; all are equal if a source has too few queries.

    covariances : (S, S) covariance of the scores.   n_queries : number of queries of each source. Source: METHOD 8.
    """
    if min(n_queries) < MIN_QUERIES:
        return np.full(len(scores), 1.0 / len(scores))
    return probability_first(np.array(scores), covariances, seed)


# Score a source without its counted defects, or without a guide's suspects.


def without_flagged(item: Measured, measurer: Measurer, reference: RandomReference | None) -> WithoutFlagged:
    """Score a source without its counted defects."""
    sound = sound_negatives(item.table.source)
    return score_subset(item, sound[item.triplets.place], int(sound.sum()), measurer, reference)


def score_subset(
    item: Measured, keep: npt.NDArray[np.bool_], n_triplets: int, measurer: Measurer, reference: RandomReference | None
) -> WithoutFlagged:
    """Score a source with only some of its negatives.

    keep : (T,) flags of the triplets to keep.   n_triplets : number of negatives in the kept triplets, for the report.
    """
    if not n_triplets:
        return WithoutFlagged(n_triplets=0, eci_nats=None, interval_95=None, hardness=None)
    places = np.flatnonzero(keep)
    effect, nats = (item.influence, item.nats(1.0)) if keep.all() else measurer.score_of(item, places, 1.0)
    error = float(effect.standard_errors()[effect.column(1.0)])
    hardness = None if reference is None else item.table.rows(places).hardness(reference)
    return WithoutFlagged(
        n_triplets=n_triplets,
        eci_nats=nats,
        interval_95=score_interval(nats, error, effect.n_queries, 1.0),
        hardness=None if hardness is None else hardness.value,
    )


# Early stop: score growing nested samples until every pair of sources is decided. A look is a test of one sample size.
#
# The first look spends most of the allowed error, and all later looks share one nominal level. Together they err with
# the allowed probability, exactly so for samples that grow without replacement. Across pairs, Shaffer's form of Holm's
# procedure controls the probability of any wrong order: if at most m open pairs can be equal at the same time, each may
# use 1/m of the error. With `tie`, a pair may also be wrongly called a tie, so m is the number of open pairs. A decided
# pair stays decided. Since looks are small, Student's t with n - 1 degrees of freedom replaces the normal distribution.
# A look at all queries of the files has no sampling error. Source: METHOD 8.

FIRST_LOOK = 100
"""Number of queries of the first look. With this many, intervals hold (docs/experiments/subsamples.md). With 30, a
source whose score depends on one query in twenty lost to a worse source in 22 % of the runs, since 30 queries often
contain none of these queries."""
GROWTH = 1.5
"""Ratio of the sizes of consecutive looks."""
LAST_STEP = 1.1
"""Minimum ratio of the last look's size to the size of the look before it. Below it, the look before the last is
skipped, because it would spend error for no gain."""
MIN_GAIN, MAX_GAIN = 1.05, 1e6
"""Limits of the ratio of information between consecutive looks. Below the first limit, two looks are practically one,
and a larger assumed gain is only stricter. Above the second limit, looks are practically independent."""
Levels = Callable[[int], Floats]
"""Function from the number of pairs that share the error to the (L,) two-sided nominal levels of the looks."""


def look_sizes(n_queries: int, first: int = FIRST_LOOK) -> tuple[int, ...]:
    """Return the number of queries at each look, ascending from `first` to all n_queries."""
    sizes = []
    size = float(first)
    while LAST_STEP * size < n_queries:
        sizes.append(int(size))
        size *= GROWTH
    return (*sizes, n_queries)


@dataclass(frozen=True)
class Looks:
    """The planned looks. A look may have more queries of one source than of another, because sources may differ.

    sizes : (L,) number of distinct queries of all sources together.
    read_share : (L, S) share of the queries in a source's files that the look covers.
    ready : (L, S) flags: the look has FIRST_LOOK queries of the source, or all of its queries. Pairs with a source that
            is not ready are not decided.
    times : information times of the looks with a sampling error, in arbitrary units.
    """

    sizes: tuple[int, ...]
    read_share: Floats
    ready: npt.NDArray[np.bool_]
    times: Floats


def looks_of(queries: Sequence[Index], position: Floats, n_read: Sequence[int], n_read_together: int) -> Looks:
    """Plan the looks. The first look is the smallest at which two sources are ready.

    position : (Q,) position of each query in the nested sample, in [0, 1).
    n_read   : number of distinct queries in each source's files.
    n_read_together : number of distinct queries in the files of all sources together.
    """
    n = len(position)
    places = [np.sort(np.rint(position[rows] * n).astype(np.int64)) for rows in queries]
    needed = [min(FIRST_LOOK, len(part)) for part in places]
    first = sorted(int(part[least - 1]) + 1 for part, least in zip(places, needed, strict=True))[1]
    sizes = look_sizes(n, first)
    counts = np.stack([np.searchsorted(part, sizes) for part in places], axis=1)
    population, ready = np.array(n_read), counts >= np.array(needed)
    n_chance = sum(size < n_read_together for size in sizes)
    return Looks(sizes, counts / population, ready, _times(counts[:n_chance], population, ready[:n_chance]))


def _times(counts: Index, population: Index, ready: npt.NDArray[np.bool_]) -> Floats:
    """Return (L,) information times. At each step, the time grows by the largest gain of any source.

    No pair gains information faster. This is conservative, because a faster gain makes more errors at the same level. A
    source gains nothing before it is ready, or after all its queries are read. When its last query is read, its gain is
    infinite, because its variance becomes 0. Gains are limited to MIN_GAIN and MAX_GAIN.
    """
    with np.errstate(divide="ignore"):
        information = information_times(counts, population)
    before, after = information[:-1], information[1:]
    known = ready[:-1] & np.isfinite(before)
    gains = np.divide(after, before, out=np.ones_like(before), where=known).max(axis=1)
    return np.cumprod([*np.ones(len(counts) and 1), *gains.clip(MIN_GAIN, MAX_GAIN)])


def rank_early(
    plan: Plan, embedder: Embedder, measurer: Measurer, settings: Settings, progress: Progress
) -> tuple[Plan, list[Triplets], EarlyStop]:
    """Grow the sample until all pairs are ordered or tied, or all queries are used.

    Return the plan with the queries of the last look, its triplets, and the decisions of each look. Document
    frequencies are not resampled: they come from all texts that were read.
    Raises UsageError for a single source, a positive policy that needs vectors of every text, or a budget other than 1.
    """
    _refuse_early_stop(plan, settings)
    alpha = 1.0 - (settings.until_ranked or 0.0)
    names = [planned.name for planned in plan.sources]
    open_pairs = list(combinations(sorted(names), 2))
    pairs: list[EarlyPair] = []
    looks_made: list[Look] = []
    position = sample_positions(plan, settings.seed)
    looks = looks_of(
        [distinct(p.query) for p in plan.sources],
        position,
        [p.n_queries_read for p in plan.sources],
        plan.n_queries_read,
    )
    times = looks.times
    levels = cache(lambda n_sharing: levels_of_looks(times, alpha / n_sharing) if len(times) else np.array([alpha]))
    part, triplets = plan, list[Triplets]()
    for number, size in enumerate(looks.sizes):
        part = _first_queries(plan, position < (size - 0.5) / len(position))
        triplets = [triplets_of(planned, settings.positives) for planned in part.sources]
        for rows in triplets:
            embedder.need(rows.query, np.concatenate([rows.positive, rows.negative]))
        items = [
            measurer.measure(planned.name, planned, rows, budgets=(1.0,))
            for planned, rows, ready in zip(part.sources, triplets, looks.ready[number], strict=True)
            if ready
        ]
        place = min(number, len(times) - 1)  # a look at all queries has no sampling error
        used = _spent_error(times, levels, _n_sharing(open_pairs, settings.tie), place) if len(times) else 0.0
        read_share = dict(zip(names, looks.read_share[number].tolist(), strict=True))
        gaps = compared_pairs(plan, items, items, measurer, settings).gaps
        decisions = _decide_pairs(gaps, open_pairs, partial(_look_level, levels, place), size, read_share, settings.tie)
        pairs += decisions
        decided = {tuple(sorted((pair.first, pair.second))) for pair in decisions}
        open_pairs = [pair for pair in open_pairs if pair not in decided]
        looks_made.append(Look(n_queries=size, n_texts_encoded=_embedded(embedder), alpha=used, n_decided=len(pairs)))
        progress.note(f"{size} queries: {len(pairs)} of {len(pairs) + len(open_pairs)} pairs decided for these files")
        if not open_pairs:
            break
    stop = EarlyStop(
        confidence=1.0 - alpha,
        tie_nats=settings.tie,
        planned_looks=looks.sizes,
        looks=tuple(looks_made),
        pairs=tuple(pairs),
        undecided=tuple(open_pairs),
        n_texts_encoded=_embedded(embedder),
        n_texts=len(plan.queries) + len(plan.source_passages()),
    )
    return part, triplets, stop


def _refuse_early_stop(plan: Plan, settings: Settings) -> None:
    if len(plan.sources) < 2:
        raise UsageError(
            "needs at least two sources, got one", where="--until-ranked", remedy="add a source, or omit the flag"
        )
    if settings.positives not in ("first", "random") or settings.budget != 1.0:
        raise UsageError(
            "needs budget 1, and a positive that is chosen before encoding",
            where="--until-ranked",
            remedy=f"use {flag_of('positives', 'first')} or {flag_of('positives', 'random')}, and omit "
            f"{flag_of('budget')}",
        )


def _embedded(embedder: Embedder) -> int:
    return int(embedder.counts["n_texts"])


def _first_queries(plan: Plan, sample: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Plan:
    """Return the plan with only the records of the sampled queries. Texts keep their ids."""
    sources = tuple(
        select_records(planned, sample[planned.query], np.ones(planned.n_triplets, np.bool_))
        for planned in plan.sources
    )
    return replace(plan, sources=sources)


def _n_sharing(open_pairs: Sequence[tuple[str, str]], tie: float | None) -> int:
    """Return how many pairs share the error: all open pairs with `tie`, else as many as can be equal at once."""
    return max_equal_pairs(open_pairs) if tie is None else len(open_pairs)


def _look_level(levels: Levels, look: int, n_sharing: int) -> float:
    """Return the two-sided nominal level of a look if n_sharing pairs share the error."""
    return float(levels(n_sharing)[look])


def _spent_error(times: Floats, levels: Levels, n_sharing: int, look: int) -> float:
    """Return an upper bound of the probability of a wrong order up to a look: that of one pair times `n_sharing`."""
    return float(n_sharing * error_spent(times, levels(n_sharing))[look])


def _decide_pairs(
    gaps: Sequence[PairGap],
    open_pairs: Sequence[tuple[str, str]],
    level: Callable[[int], float],
    size: int,
    read_share: Mapping[str, float],
    tie: float | None,
) -> list[EarlyPair]:
    """Return the open pairs that this look decides, the smallest p value first.

    After each decision, fewer pairs share the error.
    gaps  : differences between the ready sources. A difference in tr M decides nothing.
    level : function from the number of pairs that share the error to the two-sided nominal level.
    read_share : share of the queries in each source's files that this look covers. The look estimates the score of the
            full files, so the standard error is multiplied by sqrt(1 - share), the finite-population factor for the
            smaller share of the two sources. It is 0 when all queries are read.
    """
    evidence = []
    for pair in gaps:
        first, second = sorted((pair.first, pair.second))
        gap = pair.difference
        if pair.number == "score" and gap.n_queries >= MIN_QUERIES and (first, second) in open_pairs:
            nats = gap.value if first == pair.first else -gap.value
            share = min(read_share[first], read_share[second])
            error = gap.standard_error * float(np.sqrt(max(0.0, 1.0 - share)))
            freedom = gap.n_queries - 1
            evidence.append((_p_value(nats, error, freedom, share), nats, error, freedom, first, second))
    decisions: list[EarlyPair] = []
    remaining = list(open_pairs)
    for p, gap_nats, error, freedom, first, second in sorted(evidence):
        allowed = level(_n_sharing(remaining, tie))
        half = -float(stdtrit(freedom, allowed / 2.0)) * error
        if p <= allowed:
            outcome = "ordered"
        elif tie is not None and abs(gap_nats) + half <= tie:
            outcome = "tied"
        else:
            continue
        remaining.remove((first, second))
        ahead, behind = (first, second) if gap_nats > 0 else (second, first)
        decisions.append(
            EarlyPair(first=ahead, second=behind, outcome=outcome, n_queries=size, difference_nats=abs(gap_nats))
        )
    return decisions


def _p_value(gap_nats: float, error: float, freedom: int, share: float) -> float:
    """Return the two-sided p value of a difference.

    It is 1 if the difference is within rounding, or if a sample shows no variation. Otherwise it is 0 if all queries
    were read.
    """
    if abs(gap_nats) <= ROUNDING_NATS or (error == 0.0 and share < 1.0):
        return 1.0
    return 0.0 if error == 0.0 else float(2.0 * stdtr(freedom, -abs(gap_nats) / error))
