"""Score sets of triplets that are spread over shards, and compare pairs of sources on their shared queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch

from secid.analyses.shared_queries import (
    Columns,
    PairGap,
    Shared,
    SharedCounts,
    SourcePair,
    SourcePairs,
    SubsetKey,
    flags_of,
    scored_pairs,
)
from secid.arrays import Flags, Floats
from secid.measure.blocks import Vectors
from secid.measure.information import Eigen, InformationState, spectral_nats
from secid.measure.interval import Difference
from secid.measure.uncertainty import Influence, covariance, difference, influence, information
from secid.results.catalogue import BITS
from secid.results.run import ComparedNumber
from secid.tools.shards.state import Arrays, ShardNumbers, StoredSet
from secid.triplets.random_reference import QuerySums, RatioDifference

# Score a set of triplets that is spread over shards.


@dataclass
class MergedScore:
    """The ECI of a set of triplets and its error, which is summed over shards.

    state : sum over all shards.   eigen : eigenvalues of its M.
    squares : (budgets,) sum of squared influences of the queries.   bias_nats : (budgets,) bias.
    """

    state: InformationState
    eigen: Eigen
    budgets: tuple[float, ...]
    squares: Floats
    bias_nats: Floats
    n_queries: int = 0

    @staticmethod
    def of(state: InformationState, budgets: tuple[float, ...], device: torch.device | None) -> MergedScore:
        """Return the score of a set. Its error is added later."""
        total = state.total if device is None else state.total.to(device)
        eigen = Eigen.of(InformationState(total, state.n_negatives), int(state.n_negatives))
        return MergedScore(state, eigen, budgets, *np.zeros((2, len(budgets))))

    @property
    def nats(self) -> float:
        """Return ECI at the first budget."""
        return spectral_nats(self.eigen.values, self.budgets[0])

    def standard_errors(self) -> Floats:
        """Return the standard errors in nats, (budgets,)."""
        errors: Floats = np.sqrt(self.squares)
        return errors

    def add(self, vectors: Vectors, stored: StoredSet, distance: float, dtype: torch.dtype) -> Influence:
        """Add the influence of a shard's triplets, and return it. The shard has at least one triplet."""
        effect = influence(
            vectors, stored.triplets, stored.squared, stored.weight, self.eigen, distance, self.budgets, dtype
        )
        self.squares += (effect.per_query**2).sum(axis=0)
        self.bias_nats += effect.bias_nats
        self.n_queries += effect.n_queries
        return effect


# Compare pairs of sources on the queries that both have. The result equals that of a single process.
#
# There are three passes over the shards. The first counts shared queries and adds up sums by query. The second adds up
# the matrices of sources, restricted to shared queries. The third adds up their influence. Source: METHOD 8, 16.1.

NO_INFLUENCE = Influence((1.0,), np.zeros(0), np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 1)), np.zeros(0))
"""Influence of a source that has no triplet in a shard."""
EMPTY_STATE = InformationState(torch.zeros(()), 0.0)


@dataclass(frozen=True)
class ShardPart:
    """The sources of one shard, by their place among all sources of the run.

    sets, columns : triplets of each source, and their sums by query.
    has : (S, n) True if source s has query n of the shard.
    distance : ||n - p|| at or below which a residual direction counts as noise.
    """

    sets: Mapping[int, StoredSet]
    columns: Mapping[int, Columns]
    has: Flags
    distance: float

    @staticmethod
    def of(numbers: ShardNumbers, arrays: Arrays, names: tuple[str, ...]) -> ShardPart:
        """Read the sources from a state. names: all sources of the run."""
        places = [names.index(part.result.name) for part in numbers.sources]
        sets = {place: StoredSet.of(arrays, number) for number, place in enumerate(places)}
        nothing = np.zeros(0, np.int64)
        has = flags_of([sets[place].triplets.query if place in sets else nothing for place in range(len(names))])
        columns = {}
        for place, stored in sets.items():
            outscores = stored.findings >> np.uint32(BITS["inversion"]) & np.uint32(1) != 0
            columns[place] = Columns.of(
                stored.triplets, stored.squared, stored.weight, outscores, numbers.smallest_distance
            )
        return ShardPart(sets, columns, has, numbers.smallest_distance)

    def queries(self, sources: tuple[int, ...]) -> Flags:
        """Return flags of the queries that all of these sources have, (n,)."""
        shared: Flags = np.all(self.has[list(sources)], axis=0)
        return shared

    def rows(self, place: int, queries: Flags) -> StoredSet | None:
        """Return the triplets of a source on some queries; None if there are none."""
        stored = self.sets.get(place)
        if stored is None or not (keep := queries[stored.triplets.query]).any():
            return None
        return stored if keep.all() else stored.rows(np.flatnonzero(keep))


class MergedPairs:
    """Comparisons of all pairs of sources. A source is named by its place in `names`.

    A restricted set has the triplets of one source on the queries that several sources share.

    counts     : number of queries that sources share.
    jaccard    : (S, S) overlap of the negatives of two sources, summed over shared queries.
    shared     : for each compared pair, the queries that it shares.   scored : pairs that are compared by score.
    members    : for each restricted set that is scored, the sources that share its queries.
    squares    : for each scored pair, the squared standard error of the difference.
    covariance : (S, S) covariance of the scores in the table.
    n_inverted : for each restricted set in the table, the number of negatives that score above their positive.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.counts = SharedCounts(len(names))
        self.jaccard, self.covariance = np.zeros((2, len(names), len(names)))
        pairs = list(combinations(range(len(names)), 2))
        self._ratios = {pair: [RatioDifference(np.zeros(4)) for _ in range(2)] for pair in pairs}
        self.shared: dict[SourcePair, Shared] = {}
        self.scored: set[SourcePair] = set()
        self.squares = dict.fromkeys(pairs, 0.0)
        self.members: dict[SubsetKey, tuple[int, ...]] = {}
        self.sets: dict[SubsetKey, MergedScore] = {}
        self._states: dict[SubsetKey, InformationState] = {}
        self.n_inverted: dict[SubsetKey, int] = {}

    def count(self, part: ShardPart, numbers: ShardNumbers) -> None:
        """Add a shard in the first pass: count shared queries, and add up sums by query."""
        self.counts.add(part.has)
        for pair, both in self._pairs(part):
            for ratio, sides in zip(self._ratios[pair], self._sides(part, pair, both), strict=True):
                ratio.add(*sides)
        for first, second, overlap in numbers.jaccard:
            a, b = self.places(first, second)
            self.jaccard[a, b] += overlap
            self.jaccard[b, a] += overlap

    def settle(self) -> None:
        """After the first pass, choose the restricted sets to score."""
        every = range(len(self.names))
        shared = {pair: self.counts.of(*pair) for pair in self._ratios}
        self.shared = {pair: overlap for pair, overlap in shared.items() if overlap.compares}
        whole = {self.key_of_all(place) for place in every}
        common = [SubsetKey(place, self.counts.common) for place in every] if self.counts.in_table else []
        sizes = {pair: overlap.n for pair, overlap in self.shared.items()}
        sets = {pair: self._keys(pair) for pair in self.shared}
        self.scored = set(scored_pairs(sizes, sets, whole.union(common)))
        members: dict[SubsetKey, tuple[int, ...]] = {key: pair for pair in sorted(self.scored) for key in sets[pair]}
        members |= dict.fromkeys(common, tuple(every))
        self.members = {key: sources for key, sources in members.items() if key not in whole}
        self._states = dict.fromkeys(self.members, EMPTY_STATE)

    def sum(self, part: ShardPart, vectors: Vectors, dtype: torch.dtype) -> None:
        """Add a shard in the second pass: add up matrices. It is not needed if `members` is empty."""
        for key, sources in self.members.items():
            rows = part.rows(key.place, part.queries(sources))
            if rows is not None:
                inputs = vectors, rows.triplets, rows.squared, rows.weight, part.distance, dtype
                self._states[key] += information(*inputs)

    def score(self, device: torch.device | None) -> None:
        """After the second pass, score the restricted sets."""
        self.sets = {key: MergedScore.of(state, (1.0,), device) for key, state in self._states.items()}

    def add(self, part: ShardPart, whole: Mapping[str, Influence], vectors: Vectors, dtype: torch.dtype) -> None:
        """Add a shard in the third pass: add up influence.

        whole : influence of all triplets of each source in the shard, by name.
        """
        effects = {self.key_of_all(place): whole.get(name, NO_INFLUENCE) for place, name in enumerate(self.names)}
        for key, sources in self.members.items():
            rows = part.rows(key.place, part.queries(sources))
            effects[key] = NO_INFLUENCE if rows is None else self.sets[key].add(vectors, rows, part.distance, dtype)
        for pair, both in self._pairs(part):
            for ratio, sides in zip(self._ratios[pair], self._sides(part, pair, both), strict=True):
                ratio.add_square(*sides)
        for pair in self.scored:
            a, b = (effects[key] for key in self._keys(pair))
            self.squares[pair] += difference(a, b, 0.0).standard_error ** 2
        if self.counts.one_set:
            self.covariance += covariance([effects[self.table_key(place)] for place in range(len(self.names))])
        if self.counts.in_table:
            common = part.queries(tuple(range(len(self.names))))
            for place, columns in part.columns.items():
                key = self.table_key(place)
                self.n_inverted[key] = self.n_inverted.get(key, 0) + round(
                    columns.outscoring.restrict(common).top.sum()
                )

    def key_of_all(self, place: int) -> SubsetKey:
        """Return the key of the set with all triplets of a source."""
        return SubsetKey(place, self.counts.of(place, place).identity)

    def table_key(self, place: int) -> SubsetKey:
        """Return the key of the set that a source has in the table."""
        return SubsetKey(place, self.counts.common) if self.counts.in_table else self.key_of_all(place)

    def places(self, *names: str) -> tuple[int, ...]:
        return tuple(map(self.names.index, names))

    def pairs(self, nats: Callable[[SubsetKey], float]) -> SourcePairs:
        """Return the comparisons of all pairs, without hardness. nats: function that returns the score of a set."""
        gaps = []
        for pair, overlap in self.shared.items():
            trace, outscoring = (ratio.difference(overlap.n) for ratio in self._ratios[pair])
            gap = trace
            if pair in self.scored:
                first, second = map(nats, self._keys(pair))
                gap = Difference(first - second, float(np.sqrt(self.squares[pair])), overlap.n, overlap.n)
            a, b = (self.names[place] for place in pair)
            number: ComparedNumber = "score" if pair in self.scored else "trace"
            gaps.append(PairGap(a, b, gap, number, None, outscoring).higher_first())
        apart = [pair for pair in self._ratios if pair not in self.shared]
        return SourcePairs(tuple(gaps), tuple((self.names[a], self.names[b], self.counts.of(a, b).n) for a, b in apart))

    def _keys(self, pair: SourcePair) -> list[SubsetKey]:
        return [SubsetKey(place, self.counts.of(*pair).identity) for place in pair]

    def _pairs(self, part: ShardPart) -> list[tuple[SourcePair, Flags]]:
        """Return the pairs that share a query of the shard, with flags of the shared queries."""
        both = [(pair, part.queries(pair)) for pair in combinations(sorted(part.sets), 2)]
        return [(pair, queries) for pair, queries in both if queries.any()]

    @staticmethod
    def _sides(part: ShardPart, pair: SourcePair, queries: Flags) -> list[tuple[QuerySums, QuerySums]]:
        """Return the trace sums of both sources, then their outscoring sums."""
        first, second = (part.columns[place].restrict(queries) for place in pair)
        return [(first.trace, second.trace), (first.outscoring, second.outscoring)]
