"""Compare each pair of sources on its shared queries, and choose the queries of the results table. Source: METHOD 16.1.

Sources with the same queries need no further measurement. Otherwise a score on the shared queries needs its own
matrix M, so at most MAX_RESTRICTED_SCORES such scores are computed. The remaining pairs compare tr M, which needs only
sums.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

import numpy as np

from secid.arrays import Flags, Floats, Index
from secid.measure.blocks import Triplets
from secid.measure.gates import INVERSION
from secid.measure.interval import Difference
from secid.measure.uncertainty import Influence, difference
from secid.pool import Plan
from secid.results.run import ComparedNumber
from secid.settings import Settings
from secid.triplets.measure_set import Measured, Measurer, equal_size_places
from secid.triplets.random_reference import QuerySums, RandomReference, ratio_difference

MIN_SHARED_QUERIES = 30
"""Minimum number of shared queries for a comparison of two sources with different queries."""
MIN_SHARE_OF_LARGER = 0.2
"""Minimum number of shared queries as a fraction of the larger source's queries, because the other queries may differ
from the shared ones. For the results table, it applies to the queries that all sources share and the largest source."""
MIN_SHARE_OF_SMALLEST = 0.5
"""Minimum number of common queries, as a fraction of the smallest source's queries, for a table of only these queries.
It applies in addition to MIN_SHARE_OF_LARGER."""
MAX_RESTRICTED_SCORES = 64
"""Maximum number of additional scores on shared queries. Each needs its own matrix."""
SourcePair = tuple[int, int]
SubsetScore = tuple[Influence, float]
"""Influence and ECI of a set of triplets at the run's budget."""


class SubsetKey(NamedTuple):
    """Identifies a source restricted to a set of queries.

    place : number of the source.   queries : digest of the set of queries.
    partner : number of the source to whose size it is cut; -1 if it is not cut.
    """

    place: int
    queries: bytes
    partner: int = -1


class Shared(NamedTuple):
    """Shared queries of two sources.

    n : number of shared queries.   n_larger : number of queries of the larger source.
    identity : digest of the set of shared queries.
    """

    n: int
    n_larger: int
    identity: bytes

    @property
    def same_queries(self) -> bool:
        return self.n == self.n_larger

    @property
    def compares(self) -> bool:
        """True if the sources share enough queries for a comparison."""
        return self.same_queries or (self.n >= MIN_SHARED_QUERIES and self.n >= MIN_SHARE_OF_LARGER * self.n_larger)


class SharedCounts:
    """Numbers of queries that sources share, counted in several parts.

    n_queries : number of queries that any source has.   n_common : number of queries that all sources have.
    """

    def __init__(self, n_sources: int) -> None:
        self.n_queries = self.n_common = 0
        self._pairs = list(combinations_with_replacement(range(n_sources), 2))
        self._n = dict.fromkeys(self._pairs, 0)
        self._hashes = {pair: blake2b(digest_size=16) for pair in self._pairs}
        self._common = blake2b(digest_size=16)

    def add(self, has: Flags) -> None:
        """Count a part of the queries. has: (S, n) flags of the queries that each source has."""
        packed = np.packbits(has, axis=1)
        for a, b in self._pairs:
            both = packed[a] & packed[b]
            self._n[a, b] += int(np.bitwise_count(both).sum())
            self._hashes[a, b].update(both)
        common = np.bitwise_and.reduce(packed, axis=0)
        self.n_common += int(np.bitwise_count(common).sum())
        self.n_queries += int(has.any(axis=0).sum())
        self._common.update(common)

    def of(self, a: int, b: int) -> Shared:
        """Return the shared queries of two sources. With itself, a source shares all of its queries."""
        a, b = min(a, b), max(a, b)
        n_larger = max(self._n[a, a], self._n[b, b])
        return Shared(self._n[a, b], n_larger, self._hashes[a, b].digest())

    @property
    def common(self) -> bytes:
        """Digest of the set of queries that all sources have."""
        return self._common.digest()

    @property
    def same_queries(self) -> bool:
        return self.n_common == self.n_queries

    @property
    def n_smallest(self) -> int:
        """Number of queries of the smallest source."""
        return min(n for (a, b), n in self._n.items() if a == b)

    @property
    def n_largest(self) -> int:
        return max(n for (a, b), n in self._n.items() if a == b)

    @property
    def one_set(self) -> bool:
        """True if all rows of the table use the same queries."""
        return self.same_queries or self.in_table

    @property
    def in_table(self) -> bool:
        """True if the table is restricted to the common queries, because sources have different queries."""
        least = max(MIN_SHARED_QUERIES, MIN_SHARE_OF_SMALLEST * self.n_smallest, MIN_SHARE_OF_LARGER * self.n_largest)
        return not self.same_queries and self.n_common >= least


def flags_of(queries: Sequence[Index]) -> Flags:
    """Return (S, n) flags of the query ids that each source has. queries: ids of each source, all below n."""
    has = np.zeros(
        (len(queries), 1 + max((int(numbers.max()) for numbers in queries if len(numbers)), default=-1)), np.bool_
    )
    for row, numbers in zip(has, queries, strict=True):
        row[numbers] = True
    return has


def counts_of(has: Flags) -> SharedCounts:
    """Count the queries that sources share, if one process has all of them. has: (S, n) as in `SharedCounts.add`."""
    counts = SharedCounts(len(has))
    counts.add(has)
    return counts


def same_queries(items: Sequence[Measured]) -> bool:
    first = items[0].influence.queries
    return all(np.array_equal(item.influence.queries, first) for item in items)


def table_sets(triplets: Sequence[Triplets]) -> list[Triplets] | None:
    """Restrict sources to the queries that all of them share. A source that loses no triplet is returned unchanged.

    Return None if all sources have the same queries, or if they share too few.
    """
    has = flags_of([rows.query for rows in triplets])
    if not counts_of(has).in_table:
        return None
    common: Flags = np.all(has, axis=0)
    keeps = [common[rows.query] for rows in triplets]
    return [rows if keep.all() else rows.take(np.flatnonzero(keep)) for rows, keep in zip(triplets, keeps, strict=True)]


def scored_pairs(
    sizes: Mapping[SourcePair, int], sets: Mapping[SourcePair, Sequence[SubsetKey]], known: Collection[SubsetKey]
) -> list[SourcePair]:
    """Choose the pairs that are compared by score. Pairs with more shared queries come first.

    sizes : number of shared queries of each pair.   sets : the two sets that each pair compares.
    known : sets that are already scored. The chosen pairs need at most MAX_RESTRICTED_SCORES additional scores.
    """
    pairs, reached = [], set(known)
    for pair in sorted(sizes, key=lambda pair: (-sizes[pair], pair)):
        with_pair = reached.union(sets[pair])
        if len(with_pair) <= len(known) + MAX_RESTRICTED_SCORES:
            reached = with_pair
            pairs.append(pair)
    return pairs


@dataclass(frozen=True)
class PairGap:
    """Differences between two sources on their shared queries. The first source is the higher one.

    number     : number that `difference` compares: the score or tr M.
    hardness   : difference in hardness; None if a source has no hardness.
    outscoring : difference in the share of negatives that outscore their positive; None if a source has no share.
    """

    first: str
    second: str
    difference: Difference
    number: ComparedNumber = "score"
    hardness: Difference | None = None
    outscoring: Difference | None = None

    def higher_first(self) -> PairGap:
        """Put the higher source first; equal sources go by name."""
        value = self.difference.value
        if value > 0 or (value == 0 and self.first < self.second):
            return self
        hardness, outscoring = (gap and gap.negated() for gap in (self.hardness, self.outscoring))
        return PairGap(self.second, self.first, self.difference.negated(), self.number, hardness, outscoring)


@dataclass(frozen=True)
class SourcePairs:
    """All pairs of sources.

    few_shared : (first, second, number of shared queries) of pairs that share too few queries.
    """

    gaps: tuple[PairGap, ...]
    few_shared: tuple[tuple[str, str, int], ...] = ()

    def order(self, scores: Mapping[str, float], *, same_queries: bool) -> list[str]:
        """Rank the sources by score, then by name.

        scores : scores in the table, by name.   same_queries : True if all scores use the same queries. If not, sources
        are ranked first by wins minus losses over the pairs, and sources without a pair come last.
        """
        if same_queries:
            return sorted(scores, key=lambda name: (-scores[name], name))
        wins = dict.fromkeys(scores, 0)
        for gap in self.gaps:
            wins[gap.first] += 1
            wins[gap.second] -= 1
        compared = {name for gap in self.gaps for name in (gap.first, gap.second)}
        return sorted(scores, key=lambda name: (name not in compared, -wins[name], -scores[name], name))

    def sorted_by(self, names: Sequence[str]) -> SourcePairs:
        """Sort the pairs by the places of their sources in `names`."""
        place = {name: number for number, name in enumerate(names)}

        def key(pair: PairGap) -> list[int]:
            return sorted((place[pair.first], place[pair.second]))

        return replace(self, gaps=tuple(sorted(self.gaps, key=key)))


class Columns(NamedTuple):
    """Sums by query of a source's tr M, outscoring negatives and hardness. hardness: None without random passages."""

    trace: QuerySums
    outscoring: QuerySums
    hardness: QuerySums | None

    @staticmethod
    def of(
        triplets: Triplets,
        squared: Floats,
        weight: Floats,
        outscores: Flags,
        distance: float,
        hardness: QuerySums | None = None,
    ) -> Columns:
        """Sum columns by query.

        squared : (T,) ||n - p||².   weight : (T,) w.   outscores : (T,) flags of negatives that outscore the positive.
        distance : a triplet's weight counts as 0 if ||n - p|| is at most this.
        """
        usable = np.where(squared > distance**2, weight, 0.0)
        trace, outscoring = (QuerySums.of(triplets.query, top, None, triplets.share) for top in (usable, outscores))
        return Columns(trace, outscoring, hardness)

    def restrict(self, queries: Flags) -> Columns:
        """Return the sums over some queries. queries: flags by query id."""
        return Columns._make(None if sums is None else sums.restrict(queries) for sums in self)


def compared_pairs(
    plan: Plan,
    items: Sequence[Measured],
    cut: Sequence[Measured],
    measurer: Measurer,
    settings: Settings,
    reference: RandomReference | None = None,
    table: Sequence[Measured] = (),
) -> SourcePairs:
    """Compare all pairs of sources at the run's budget, which must be the first budget of each source.

    items : sources with all of their queries.   cut : sets of triplets used for ranking.
    table : sources on the common queries, if the table is restricted to them.
    """
    items, cut, table = (sorted(sets, key=lambda item: item.name) for sets in (items, cut, table))
    columns = [_columns(item, measurer.smallest_distance, reference) for item in items]
    names, places = [item.name for item in items], range(len(items))
    if same_queries(items):
        sides = combinations(zip(names, columns, map(_score, cut), strict=True), 2)
        return SourcePairs(tuple(pair_gap(first[:2], second[:2], _gap(first[2], second[2])) for first, second in sides))
    has = flags_of([item.influence.queries for item in items])
    counts = counts_of(has)
    shared = {pair: counts.of(*pair) for pair in combinations(places, 2)}
    compared = {pair: overlap.n for pair, overlap in shared.items() if overlap.compares}
    scores = {} if settings.budget > 1.0 else _known_scores(counts, items, table)
    sets = {pair: _sets(pair, shared[pair], settings) for pair in compared}
    by_score = set(scored_pairs(compared, sets, scores))
    gaps = []
    for a, b in compared:
        both = has[a] & has[b]
        first, second = ((names[place], columns[place].restrict(both)) for place in (a, b))
        if (a, b) not in by_score:
            gaps.append(pair_gap(first, second))
            continue
        keeps = None
        for place, key in enumerate(sets[a, b]):
            if key not in scores:
                keeps = keeps or _compared_triplets(plan, [items[a], items[b]], both, settings)
                source, ranked = items[key.place], cut[key.place]
                # use the ranked set if it has the same triplets, so that the pair agrees with the table
                is_ranked = _same_triplets(source.triplets.take(keeps[place]), ranked.triplets)
                scores[key] = _score(ranked) if is_ranked else measurer.score_of(source, keeps[place], settings.budget)
        gaps.append(pair_gap(first, second, _gap(*(scores[key] for key in sets[a, b]))))
    few_shared = tuple((names[a], names[b], overlap.n) for (a, b), overlap in shared.items() if (a, b) not in compared)
    return SourcePairs(tuple(gaps), few_shared)


def _same_triplets(rows: Triplets, others: Triplets) -> bool:
    """Return True if two sets hold the same triplets in the same order."""
    columns = (rows.query, rows.negative, rows.record), (others.query, others.negative, others.record)
    return all(np.array_equal(one, other) for one, other in zip(*columns, strict=True))


def pair_gap(first: tuple[str, Columns], second: tuple[str, Columns], gap: Difference | None = None) -> PairGap:
    """Compare two sources on the same queries.

    first, second : name and columns of each source.   gap : difference of their scores; None to compare tr M.
    """
    (a, of_a), (b, of_b) = first, second
    hardness = ratio_difference(of_a.hardness, of_b.hardness) if of_a.hardness and of_b.hardness else None
    outscoring = ratio_difference(of_a.outscoring, of_b.outscoring)
    number: ComparedNumber = "score"
    if gap is None:
        gap, number = ratio_difference(of_a.trace, of_b.trace), "trace"
        if gap is None:
            raise ValueError("no negatives")
    return PairGap(a, b, gap, number, hardness, outscoring).higher_first()


def _columns(item: Measured, distance: float, reference: RandomReference | None) -> Columns:
    gates, squared = item.table.gates(), item.table.dots().squared_distance.numpy()
    outscores = gates.consistency.numpy() < INVERSION
    hardness = None if reference is None else item.table.hardness_sums(reference)
    return Columns.of(item.triplets, squared, gates.weight.numpy(), outscores, distance, hardness)


def _score(item: Measured) -> SubsetScore:
    return item.influence, item.nats(item.influence.budgets[0])


def _gap(first: SubsetScore, second: SubsetScore) -> Difference:
    (influence, nats), (other_influence, other_nats) = first, second
    return difference(influence, other_influence, nats - other_nats)


def _known_scores(
    counts: SharedCounts, items: Sequence[Measured], table: Sequence[Measured]
) -> dict[SubsetKey, SubsetScore]:
    """Return the known scores: those of whole sources, and on the common queries if the table is restricted to them."""
    whole = {SubsetKey(place, counts.of(place, place).identity): item for place, item in enumerate(items)}
    common = {SubsetKey(place, counts.common): item for place, item in enumerate(table)} if counts.in_table else {}
    return {key: _score(item) for key, item in {**common, **whole}.items()}


def _sets(pair: SourcePair, shared: Shared, settings: Settings) -> list[SubsetKey]:
    """Return the two sets that a pair compares. Beyond budget 1, both are cut to equal size for this pair only."""
    a, b = pair
    if settings.budget <= 1.0:
        return [SubsetKey(a, shared.identity), SubsetKey(b, shared.identity)]
    return [SubsetKey(a, shared.identity, b), SubsetKey(b, shared.identity, a)]


def _compared_triplets(plan: Plan, items: Sequence[Measured], queries: Flags, settings: Settings) -> list[Index]:
    """Return the ascending indices of the triplets that a pair compares, for each of its sources."""
    keeps = [np.flatnonzero(queries[item.triplets.query]) for item in items]
    if settings.budget <= 1.0:
        return keeps
    rows = [item.triplets.take(keep) for item, keep in zip(items, keeps, strict=True)]
    places_of = equal_size_places(plan, rows, settings.seed)
    return keeps if places_of is None else [keep[places] for keep, places in zip(keeps, places_of, strict=True)]
