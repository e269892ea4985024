"""Sources compared on the queries that both have, and which queries the table is of. Source: METHOD 16.1.

Sources of the same queries are compared by what is measured of them anyway. A score restricted to shared queries needs
a matrix of its own, so there are at most MOST_SETS of them; other pairs compare tr M, which needs sums alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

import numpy as np

from secid.arrays import Flags, Index, among, distinct
from secid.measure.blocks import Triplets
from secid.measure.summary import INVERSION
from secid.measure.uncertainty import Difference, Influence, difference
from secid.pool import Plan
from secid.results import RunWarning
from secid.results.between import Number
from secid.settings import Settings
from secid.triplets.estimates import Gap
from secid.triplets.measure_set import Bench, level_places
from secid.triplets.measured import Measured
from secid.triplets.query_sums import QuerySums, ratio_gap, total
from secid.triplets.random_reference import RandomReference

FEWEST_SHARED = 30
"""Shared queries below which sources of different queries are not compared."""
OF_LARGER = 0.2
"""Share of the larger source's queries below which two sources are not compared: the rest may be unlike them."""
OF_SMALLEST = 0.5
"""Share of the smallest source's queries from which the columns of the table are of the queries that all share."""
MOST_SETS = 64
"""Sources restricted to shared queries that are scored, a matrix each."""
Pair = tuple[int, int]
Score = tuple[Influence, float]
"""Of a set, at the run's budget."""


class Key(NamedTuple):
    """A source restricted to a set of queries, and cut to the size of another source where that is beyond -1."""

    place: int
    queries: bytes
    partner: int = -1


class Shared(NamedTuple):
    """Queries that two sources share. identity : equal for equal sets.   n_larger : queries of the larger source."""

    n: int
    n_larger: int
    identity: bytes

    @property
    def is_same(self) -> bool:
        """Whether both sources have the same queries."""
        return self.n == self.n_larger  # of the larger, and so of both

    @property
    def compares(self) -> bool:
        """Whether they are enough for a comparison."""
        return self.is_same or (self.n >= FEWEST_SHARED and self.n >= OF_LARGER * self.n_larger)


class SharedCounts:
    """Which queries sources share, added up over parts of the queries.

    n_queries : distinct ones of all sources.   n_common : those of every source.
    """

    def __init__(self, n_sources: int) -> None:
        self.n_queries = self.n_common = 0
        self._pairs = list(combinations_with_replacement(range(n_sources), 2))
        self._n = dict.fromkeys(self._pairs, 0)
        self._hashes = {pair: blake2b(digest_size=16) for pair in self._pairs}
        self._common = blake2b(digest_size=16)

    def add(self, has: Flags) -> None:
        """has : (S, n) which sources have which queries of a part."""
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
        """Of two sources, or of one with itself."""
        a, b = min(a, b), max(a, b)
        n_larger = max(self._n[a, a], self._n[b, b])
        return Shared(self._n[a, b], n_larger, self._hashes[a, b].digest())

    @property
    def common(self) -> bytes:
        """The identity of the queries that all sources have."""
        return self._common.digest()

    @property
    def is_same(self) -> bool:
        """Whether all sources have the same queries."""
        return self.n_common == self.n_queries

    @property
    def n_smallest(self) -> int:
        """Queries of the source that has fewest."""
        return min(n for (a, b), n in self._n.items() if a == b)

    @property
    def in_table(self) -> bool:
        """Whether the columns of the table are of the queries that all sources share, which are not all of them."""
        return not self.is_same and self.n_common >= max(FEWEST_SHARED, OF_SMALLEST * self.n_smallest)


def flags_of(queries: Sequence[Index]) -> Flags:
    """(S, n) which sources have which query ids. queries : (Q,) ids of each source; n is above every one."""
    has = np.zeros((len(queries), 1 + max((int(own.max()) for own in queries if len(own)), default=-1)), np.bool_)
    for row, own in zip(has, queries, strict=True):
        row[own] = True
    return has


def counts_of(has: Flags) -> SharedCounts:
    """Of one process."""
    counts = SharedCounts(len(has))
    counts.add(has)
    return counts


def same_queries(items: Sequence[Measured]) -> bool:
    """Whether all sources have the same queries."""
    first = items[0].influence.queries
    return all(np.array_equal(item.influence.queries, first) for item in items)


def table_sets(triplets: Sequence[Triplets]) -> list[Triplets] | None:
    """The sources on the queries that all of them share, where the table's columns are of these; a set itself where
    nothing is cut of it. None where sources have the same queries, or share too few.
    """
    has = flags_of([rows.query for rows in triplets])
    if not counts_of(has).in_table:
        return None
    common: Flags = np.all(has, axis=0)
    keeps = [common[rows.query] for rows in triplets]
    return [rows if keep.all() else rows.take(np.flatnonzero(keep)) for rows, keep in zip(triplets, keeps, strict=True)]


def scored_pairs(sizes: Mapping[Pair, int], sets: Mapping[Pair, Sequence[Key]], known: Collection[Key]) -> list[Pair]:
    """The pairs that are compared by their scores, those of most shared queries first.

    sizes : shared queries.   sets : what each pair compares.   known : sets that are scored already.
    Of a pair both sets are scored or none, at most MOST_SETS in all beyond the known.
    """
    pairs, chosen = [], set(known)
    for pair in sorted(sizes, key=lambda pair: (-sizes[pair], pair)):
        with_pair = chosen.union(sets[pair])
        if len(with_pair) <= len(known) + MOST_SETS:
            chosen = with_pair
            pairs.append(pair)
    return pairs


@dataclass(frozen=True)
class PairGap:
    """How far two sources lie apart on the queries that both have, the first above the second.

    number : what is compared.   hardness, outscoring : differences, None where a side has no value.
    """

    first: str
    second: str
    difference: Difference
    number: Number = "score"
    hardness: Gap | None = None
    outscoring: Gap | None = None

    def turned(self) -> PairGap:
        """With the higher one first; of equals the first by name."""
        nats = self.difference.nats
        if nats > 0 or (nats == 0 and self.first < self.second):
            return self
        return PairGap(
            self.second,
            self.first,
            replace(self.difference, nats=-nats),
            self.number,
            *(gap and replace(gap, value=-gap.value) for gap in (self.hardness, self.outscoring)),
        )


@dataclass(frozen=True)
class Pairs:
    """All pairs of sources. apart : those that share too few queries to be compared, and how many they share."""

    gaps: tuple[PairGap, ...]
    apart: tuple[tuple[str, str, int], ...] = ()

    def order(self, scores: Mapping[str, float], *, same: bool) -> list[str]:
        """Sources by score, of equal ones by name; where these are of different queries by the pairs that a source wins
        less those that it loses, then by score, those in no pair last.

        scores : of the table, by name.   same : whether they are of the same queries.
        """
        if same:
            return sorted(scores, key=lambda name: (-scores[name], name))
        wins = dict.fromkeys(scores, 0)
        for gap in self.gaps:
            wins[gap.first] += 1
            wins[gap.second] -= 1
        compared = {name for gap in self.gaps for name in (gap.first, gap.second)}
        return sorted(scores, key=lambda name: (name not in compared, -wins[name], -scores[name], name))

    def in_order(self, names: Sequence[str]) -> Pairs:
        """Pairs in the order of the sources."""
        place = {name: number for number, name in enumerate(names)}

        def key(pair: PairGap) -> list[int]:
            return sorted((place[pair.first], place[pair.second]))

        return replace(self, gaps=tuple(sorted(self.gaps, key=key)))


class Columns(NamedTuple):
    """What needs sums by query alone. hardness : None without a random reference."""

    trace: QuerySums
    outscoring: QuerySums
    hardness: QuerySums | None

    @staticmethod
    def of(item: Measured, smallest_distance: float, reference: RandomReference | None) -> Columns:
        """Those of a measured source."""
        gates, squared = item.table.gates(), item.table.dots().squared_distance.numpy()
        return Columns(
            QuerySums.of(item.triplets, np.where(squared > smallest_distance**2, gates.weight.numpy(), 0.0)),
            QuerySums.of(item.triplets, gates.consistency.numpy() < INVERSION),
            None if reference is None else item.table.hardness_sums(reference),
        )

    def among(self, queries: Flags) -> Columns:
        """Of some queries, flagged by id."""
        return Columns._make(None if sums is None else sums.among(queries) for sums in self)


def compared_pairs(
    plan: Plan,
    items: Sequence[Measured],
    cut: Sequence[Measured],
    bench: Bench,
    settings: Settings,
    reference: RandomReference | None = None,
    table: Sequence[Measured] = (),
) -> Pairs:
    """All pairs of the sources of one process.

    items : the sources, with all of their queries.   cut : what they are ranked by.
    table : the sources on the queries that all share, where the table is of these.
    The first budget of each is the run's.
    """
    items, cut, table = (sorted(sets, key=lambda item: item.name) for sets in (items, cut, table))
    columns = [Columns.of(item, bench.smallest_distance, reference) for item in items]
    names, places = [item.name for item in items], range(len(items))
    if same_queries(items):
        scored = [(item.influence, _nats(item)) for item in cut]
        every = [difference(one, other, nats - less) for (one, nats), (other, less) in combinations(scored, 2)]
        pairs = combinations(zip(names, columns, strict=True), 2)
        return Pairs(tuple(pair_gap(a, b, gap) for (a, b), gap in zip(pairs, every, strict=True)))
    has = flags_of([item.influence.queries for item in items])
    counts = counts_of(has)
    shared = {pair: counts.of(*pair) for pair in combinations(places, 2)}
    compared = {pair: own.n for pair, own in shared.items() if own.compares}
    scores = {} if settings.budget > 1.0 else _known(counts, items, table)
    sets = {pair: _sets(pair, shared[pair], settings) for pair in compared}
    by_score = set(scored_pairs(compared, sets, scores))
    gaps = []
    for a, b in compared:
        both = has[a] & has[b]
        first, second = ((names[place], columns[place].among(both)) for place in (a, b))
        if (a, b) not in by_score:
            gaps.append(pair_gap(first, second))
            continue
        keeps = None
        for place, key in enumerate(sets[a, b]):
            if key not in scores:
                keeps = keeps or _keeps(plan, [items[a], items[b]], both, settings)
                scores[key] = bench.score_of(items[key.place], keeps[place], settings.budget)
        (one, nats), (other, nats_of_other) = (scores[key] for key in sets[a, b])
        gaps.append(pair_gap(first, second, difference(one, other, nats - nats_of_other)))
    apart = tuple((names[a], names[b], own.n) for (a, b), own in shared.items() if (a, b) not in compared)
    return Pairs(tuple(gaps), apart)


def control_gaps(
    control: Measured, of: str | None, table: Sequence[Measured], bench: Bench, *, alike: bool
) -> dict[str, Difference]:
    """What sources score above a control at budget 1, by name. of: the only source that it is compared with.

    alike : whether all sources have the same queries. Else the control is compared on those of the source, where
    these are FEWEST_SHARED or all that it has.
    """
    gaps, parts = {}, {b"": (control.influence, control.nats(1.0))}
    for source in table:
        if of not in (None, source.name):
            continue
        keep = among(control.triplets.query, source.influence.queries)
        key = b"" if alike or keep.all() else np.packbits(keep).tobytes()
        if key and len(distinct(control.triplets.query[keep])) < FEWEST_SHARED:
            continue
        if key not in parts:
            parts[key] = bench.score_of(control, np.flatnonzero(keep), 1.0)
        effect, nats = parts[key]
        gaps[source.name] = difference(source.influence, effect, source.nats(1.0) - nats, 1.0)
    return gaps


def pair_gap(first: tuple[str, Columns], second: tuple[str, Columns], gap: Difference | None = None) -> PairGap:
    """The difference of two sources, by name, on the same queries; of tr M where their scores are not known."""
    (a, own), (b, other) = first, second
    hardness = ratio_gap(own.hardness, other.hardness) if own.hardness and other.hardness else None
    outscoring = ratio_gap(own.outscoring, other.outscoring)
    number: Number = "score" if gap else "trace"
    return PairGap(a, b, gap or trace_gap(own.trace, other.trace), number, hardness, outscoring).turned()


def trace_gap(first: QuerySums, second: QuerySums) -> Difference:
    """The difference of tr M of two sources on the same queries."""
    gap = ratio_gap(first, second)
    if gap is None:
        raise ValueError("no negatives")
    return Difference(gap.value, gap.standard_error, gap.n_shared, gap.n_queries)


def _nats(item: Measured) -> float:
    return item.nats(item.influence.budgets[0])


def _known(counts: SharedCounts, items: Sequence[Measured], table: Sequence[Measured]) -> dict[Key, Score]:
    """What is measured anyway: sources whole, and on the queries that all share."""
    whole = {Key(place, counts.of(place, place).identity): item for place, item in enumerate(items)}
    common = {Key(place, counts.common): item for place, item in enumerate(table)}
    return {key: (item.influence, _nats(item)) for key, item in {**common, **whole}.items()}


def _sets(pair: Pair, shared: Shared, settings: Settings) -> list[Key]:
    """What a pair compares. Beyond budget 1 both are cut to equal size, so that no other pair has the same."""
    a, b = pair
    if settings.budget <= 1.0:
        return [Key(a, shared.identity), Key(b, shared.identity)]
    return [Key(a, shared.identity, b), Key(b, shared.identity, a)]


def _keeps(plan: Plan, items: Sequence[Measured], queries: Flags, settings: Settings) -> list[Index]:
    """(T,) rising places of the triplets of two sources that are compared."""
    keeps = [np.flatnonzero(queries[item.triplets.query]) for item in items]
    if settings.budget <= 1.0:
        return keeps
    rows = [item.triplets.take(keep) for item, keep in zip(items, keeps, strict=True)]
    level = level_places(plan, rows, settings.seed)
    return keeps if level is None else [keep[places] for keep, places in zip(keeps, level, strict=True)]


def chosen_queries(
    names: Sequence[str], has: Flags, hardness: Sequence[QuerySums], n_queries: int
) -> tuple[RunWarning, ...]:
    """A warning on sources that have only some of the run's queries, with what these are like: the hardness of the
    other sources on them and on the rest, where both are FEWEST_SHARED queries or more.

    has : (S, n) which sources have which queries.   hardness : of each source.   n_queries : of the run.
    """
    sources = {}
    for place, (name, own) in enumerate(zip(names, has, strict=True)):
        others = [sums for number, sums in enumerate(hardness) if number != place]
        if own.sum() == n_queries or not others:
            continue
        every = total(others)
        parts = [every.among(queries) for queries in (own, ~own)]
        values = [part.value for part in parts]
        if None not in values and min(len(part.queries) for part in parts) >= FEWEST_SHARED:
            sources[name] = [int(own.sum()), *values]
    if not sources:
        return ()
    return (RunWarning(kind="chosen_queries", values={"n_queries": n_queries, "sources": sources}),)
