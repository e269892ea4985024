"""What sets pairs of sources apart, added up over shards: on the queries that both have, as in one process.

Three passes: which queries sources share, and what needs sums by query alone; the matrices of sources restricted to
shared queries; their influence. Source: METHOD 8, 16.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch

from secid.analyses.shared_queries import (
    Columns,
    Key,
    Pair,
    PairGap,
    Pairs,
    Shared,
    SharedCounts,
    flags_of,
    scored_pairs,
)
from secid.arrays import Flags, Floats
from secid.measure.blocks import Vectors
from secid.measure.information import InformationState
from secid.measure.uncertainty import Difference, Influence, covariance, difference, information
from secid.results.between import Number
from secid.results.catalogue import BITS
from secid.shards.scores import Scores
from secid.shards.state import Arrays, ShardNumbers, StoredSet
from secid.triplets.estimates import Gap
from secid.triplets.query_sums import QuerySums

NOTHING = Influence((1.0,), np.zeros(0), np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 1)), np.zeros(0))
"""Of a source without a triplet in a shard."""
NO_SUM = InformationState(torch.zeros(()), 0.0)


@dataclass(frozen=True)
class ShardPart:
    """The sources of one shard by their place among all.   has : (S, n) which have which of its queries."""

    sets: Mapping[int, StoredSet]
    columns: Mapping[int, Columns]
    has: Flags
    distance: float

    @staticmethod
    def of(numbers: ShardNumbers, arrays: Arrays, names: tuple[str, ...]) -> ShardPart:
        """That of a state. names: of all sources."""
        places = [names.index(part.result.name) for part in numbers.sources]
        sets = {place: StoredSet.of(arrays, number) for number, place in enumerate(places)}
        nothing = np.zeros(0, np.int64)
        has = flags_of([sets[place].triplets.query if place in sets else nothing for place in range(len(names))])
        columns = {}
        for place, own in sets.items():
            usable = np.where(own.squared > numbers.smallest_distance**2, own.weight, 0.0)
            inverted = own.findings >> np.uint32(BITS["inversion"]) & np.uint32(1) != 0
            columns[place] = Columns(QuerySums.of(own.triplets, usable), QuerySums.of(own.triplets, inverted), None)
        return ShardPart(sets, columns, has, numbers.smallest_distance)

    def queries(self, sources: tuple[int, ...]) -> Flags:
        """(n,) those that all of these sources have."""
        shared: Flags = np.all(self.has[list(sources)], axis=0)
        return shared

    def rows(self, place: int, queries: Flags) -> StoredSet | None:
        """The triplets of a source on some queries; None where it has none."""
        own = self.sets.get(place)
        if own is None or not (keep := queries[own.triplets.query]).any():
            return None
        return own if keep.all() else own.rows(np.flatnonzero(keep))


@dataclass
class RatioSums:
    """The difference of two sources in a ratio of sums by query. sums : (4,) top and bottom of both."""

    sums: Floats
    square: float = 0.0

    def add(self, first: QuerySums, second: QuerySums) -> None:
        """First pass."""
        self.sums = self.sums + [part.sum() for side in (first, second) for part in (side.top, side.bottom)]

    def add_square(self, first: QuerySums, second: QuerySums) -> None:
        """Second pass."""
        top, bottom, other_top, other_bottom = self.sums
        off = (first.top - top / bottom * first.bottom) / bottom
        off = off - (second.top - other_top / other_bottom * second.bottom) / other_bottom
        self.square += float((off**2).sum())

    def gap(self, n_queries: int) -> Gap:
        """What it comes to."""
        top, bottom, other_top, other_bottom = self.sums
        return Gap(float(top / bottom - other_top / other_bottom), float(np.sqrt(self.square)), n_queries, n_queries)


class Between:
    """Pairs of sources, by place in `names`.

    counts  : which queries they share.   jaccard : (S, S) sum over shared queries of the overlap of their negatives.
    shared  : of the pairs that are compared.   scored : those that are compared by their scores.
    members : of each set that is scored beside whole sources, the sources whose shared queries it is of.
    sets    : their scores.   squares : of the standard error of the difference of a scored pair.
    covariance : (S, S) of the scores of the table.   n_inverted : of each set of the table.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.counts = SharedCounts(len(names))
        self.jaccard, self.covariance = np.zeros((2, len(names), len(names)))
        pairs = list(combinations(range(len(names)), 2))
        self._ratios = {pair: [RatioSums(np.zeros(4)) for _ in range(2)] for pair in pairs}
        self.shared: dict[Pair, Shared] = {}
        self.scored: set[Pair] = set()
        self.squares = dict.fromkeys(pairs, 0.0)
        self.members: dict[Key, tuple[int, ...]] = {}
        self.sets: dict[Key, Scores] = {}
        self._states: dict[Key, InformationState] = {}
        self.n_inverted: dict[Key, int] = {}

    def count(self, part: ShardPart, numbers: ShardNumbers) -> None:
        """First pass over a shard."""
        self.counts.add(part.has)
        for pair, both in self._pairs(part):
            for ratio, sides in zip(self._ratios[pair], self._sides(part, pair, both), strict=True):
                ratio.add(*sides)
        for first, second, overlap in numbers.jaccard:
            a, b = self.places(first, second)
            self.jaccard[a, b] += overlap
            self.jaccard[b, a] += overlap

    def settle(self) -> None:
        """After the first pass: which sets are scored."""
        every = range(len(self.names))
        shared = {pair: self.counts.of(*pair) for pair in self._ratios}
        self.shared = {pair: own for pair, own in shared.items() if own.compares}
        whole = {self.whole(place) for place in every}
        common = [Key(place, self.counts.common) for place in every] if self.counts.in_table else []
        sizes = {pair: own.n for pair, own in self.shared.items()}
        sets = {pair: self._keys(pair) for pair in self.shared}
        self.scored = set(scored_pairs(sizes, sets, whole.union(common)))
        members: dict[Key, tuple[int, ...]] = {key: pair for pair in sorted(self.scored) for key in sets[pair]}
        members |= dict.fromkeys(common, tuple(every))
        self.members = {key: sources for key, sources in members.items() if key not in whole}
        self._states = dict.fromkeys(self.members, NO_SUM)

    def sum(self, part: ShardPart, vectors: Vectors, dtype: torch.dtype) -> None:
        """Second pass, where there is any set to score."""
        for key, sources in self.members.items():
            rows = part.rows(key.place, part.queries(sources))
            if rows is not None:
                given = vectors, rows.triplets, rows.squared, rows.weight, part.distance, dtype
                self._states[key] += information(*given)

    def score(self, device: torch.device | None) -> None:
        """After the second pass."""
        self.sets = {key: Scores.of(state, (1.0,), device) for key, state in self._states.items()}

    def add(self, part: ShardPart, whole: Mapping[str, Influence], vectors: Vectors, dtype: torch.dtype) -> None:
        """Third pass. whole : the influence of all triplets of each source in the shard."""
        effects = {self.whole(place): whole.get(name, NOTHING) for place, name in enumerate(self.names)}
        for key, sources in self.members.items():
            rows = part.rows(key.place, part.queries(sources))
            effects[key] = NOTHING if rows is None else self.sets[key].add(vectors, rows, part.distance, dtype)
        for pair, both in self._pairs(part):
            for ratio, sides in zip(self._ratios[pair], self._sides(part, pair, both), strict=True):
                ratio.add_square(*sides)
        for pair in self.scored:
            a, b = (effects[key] for key in self._keys(pair))
            self.squares[pair] += difference(a, b, 0.0).standard_error ** 2
        if self.counts.is_same or self.counts.in_table:
            self.covariance += covariance([effects[self.in_table(place)] for place in range(len(self.names))])
        if self.counts.in_table:
            common = part.queries(tuple(range(len(self.names))))
            for place, columns in part.columns.items():
                key = self.in_table(place)
                self.n_inverted[key] = self.n_inverted.get(key, 0) + round(columns.outscoring.among(common).top.sum())

    def whole(self, place: int) -> Key:
        """A source with all of its queries."""
        return Key(place, self.counts.of(place, place).identity)

    def in_table(self, place: int) -> Key:
        """What the table shows of a source."""
        return Key(place, self.counts.common) if self.counts.in_table else self.whole(place)

    def places(self, *names: str) -> tuple[int, ...]:
        """Places of sources in the matrices."""
        return tuple(map(self.names.index, names))

    def pairs(self, nats: Callable[[Key], float]) -> Pairs:
        """All pairs, without their hardness. nats : the score of a set."""
        gaps = []
        for pair, own in self.shared.items():
            trace, outscoring = (ratio.gap(own.n) for ratio in self._ratios[pair])
            gap = Difference(trace.value, trace.standard_error, own.n, own.n)
            if pair in self.scored:
                first, second = map(nats, self._keys(pair))
                gap = Difference(first - second, float(np.sqrt(self.squares[pair])), own.n, own.n)
            a, b = (self.names[place] for place in pair)
            number: Number = "score" if pair in self.scored else "trace"
            gaps.append(PairGap(a, b, gap, number, None, outscoring).turned())
        apart = [pair for pair in self._ratios if pair not in self.shared]
        return Pairs(tuple(gaps), tuple((self.names[a], self.names[b], self.counts.of(a, b).n) for a, b in apart))

    def _keys(self, pair: Pair) -> list[Key]:
        return [Key(place, self.counts.of(*pair).identity) for place in pair]

    def _pairs(self, part: ShardPart) -> list[tuple[Pair, Flags]]:
        """The pairs that share a query of a shard, and which."""
        both = [(pair, part.queries(pair)) for pair in combinations(sorted(part.sets), 2)]
        return [(pair, queries) for pair, queries in both if queries.any()]

    @staticmethod
    def _sides(part: ShardPart, pair: Pair, queries: Flags) -> list[tuple[QuerySums, QuerySums]]:
        """Trace and outscoring of both."""
        first, second = (part.columns[place].among(queries) for place in pair)
        return [(first.trace, second.trace), (first.outscoring, second.outscoring)]
