"""Hardness: how close negatives are to their query, compared with random passages (0) and with the positive (1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from secid.arrays import Flags, Floats, Index, distinct, is_known
from secid.measure.blocks import Triplets, Vectors
from secid.measure.interval import Difference
from secid.measure.sweep import DOT_ROUNDING, sweep
from secid.pool import Plan, first_sampled, key_ranks, labels_of
from secid.results.catalogue import NEAR_HARDNESS
from secid.triplets.embedding import rows_of_ids
from secid.triplets.estimates import Estimate, Names, comparable_keys

# Ratios of sums. Sums by query can be restricted to some queries, added over shards, and compared by pairs of sources.
#
# Hardness, a share of negatives and tr M are such ratios. Source: METHOD 16.1.


@dataclass(frozen=True)
class QuerySums:
    """The ratio sum(top) / sum(bottom) over queries.

    queries : (Q,) distinct query ids, ascending.   top, bottom : (Q,) sums over each query's triplets.
    """

    queries: Index
    top: Floats
    bottom: Floats

    @staticmethod
    def of(query: Index, top: Floats | Flags, bottom: Floats | None, share: Floats | None) -> QuerySums:
        """Sum (T,) columns by query.

        query  : (T,) query ids.   share : (T,) share of each triplet; None if all are 1.
        bottom : (T,) column; None if all are 1, so that the ratio is the mean of `top` over negatives.
        """
        weight = np.ones(len(query)) if share is None else share
        queries = distinct(query)
        columns = weight * top, weight if bottom is None else weight * bottom
        return QuerySums(queries, *_added(np.searchsorted(queries, query), len(queries), *columns))

    def restrict(self, queries: Flags) -> QuerySums:
        """Return the sums over some queries. queries: flags by query id, for every id of this source."""
        keep = queries[self.queries]
        return self if keep.all() else QuerySums(self.queries[keep], self.top[keep], self.bottom[keep])

    @property
    def value(self) -> float | None:
        """The ratio; None if the sum of `bottom` is not positive."""
        bottom = float(self.bottom.sum())
        return float(self.top.sum()) / bottom if bottom > 0 else None

    def influence(self, top: float, bottom: float) -> Floats:
        """Return (Q,) first-order influence of each query on the ratio. top, bottom: sums, which may cover more shards.

        Source: METHOD 8 (delta method).
        """
        influence: Floats = (self.top - top / bottom * self.bottom) / bottom
        return influence


@dataclass
class RatioDifference:
    """Difference between two sources in a ratio over the same queries. The sums can be added shard by shard.

    sums : (4,) top and bottom of the first source, then of the second.   square : squared standard error.
    """

    sums: Floats
    square: float = 0.0

    def add(self, first: QuerySums, second: QuerySums) -> None:
        """Add a shard's sums, in a first pass over the shards."""
        self.sums = self.sums + [part.sum() for side in (first, second) for part in (side.top, side.bottom)]

    def add_square(self, first: QuerySums, second: QuerySums) -> None:
        """Add a shard's squared influences, in a second pass over the shards."""
        off = first.influence(*self.sums[:2]) - second.influence(*self.sums[2:])
        self.square += float((off**2).sum())

    def difference(self, n_queries: int) -> Difference:
        """Return the difference over all shards, paired by query."""
        top, bottom, other_top, other_bottom = self.sums
        value = float(top / bottom - other_top / other_bottom)
        return Difference(value, float(np.sqrt(self.square)), n_queries, n_queries)


def ratio_difference(first: QuerySums, second: QuerySums) -> Difference | None:
    """Return the first ratio minus the second, paired by query; None if one has no value."""
    if first.value is None or second.value is None:
        return None
    both = RatioDifference(np.zeros(4))
    both.add(first, second)
    both.add_square(first, second)
    return both.difference(len(first.queries))


def summed_queries(parts: list[QuerySums]) -> QuerySums:
    """Add the sums of one or more sources, so that the ratio is over all of their triplets."""
    queries = distinct(np.concatenate([part.queries for part in parts]))
    place = np.concatenate([np.searchsorted(queries, part.queries) for part in parts])
    top, bottom = (np.concatenate([getattr(part, name) for part in parts]) for name in ("top", "bottom"))
    return QuerySums(queries, *_added(place, len(queries), top, bottom))


def _added(place: Index, n: int, *columns: Floats) -> list[Floats]:
    return [np.bincount(place, column, n).astype(np.float64) for column in columns]


# Hardness on a scale from random passages (0) to the positive of the same query (1).
#
#     random_reference   cosines of sampled queries with 30 random passages each, computed once per run
#     hardness           mean hardness: 0 is as close to the query as random passages, 1 as close as the positive
#     random_like        flags negatives, or positives, that are no closer to their query than its random passages
#     passage_means      mean cosine of every query, not only sampled ones, with all passages of the run
#     near_positive      flags negatives that are nearly as close to their query as its positive
#
# Worked example: the mean cosine of a query is 0.1 with random passages, 0.5 with its negative and 0.9 with its
# positive. The negative's hardness is (0.5 - 0.1) / (0.9 - 0.1) = 0.5. Source: METHOD 10, 14.

MAX_REFERENCE_QUERIES = 1_000
"""Number of distinct queries sampled per source. The share of a finding then has a standard error of at most 0.016."""
PASSAGES_PER_QUERY = 30
"""Number of random passages per query. Source: METHOD 10."""
MIN_PASSAGES = 10
"""Minimum number of random passages per query; with fewer, the 90th percentile would be their maximum. Queries with
fewer passages are left out."""
PERCENTILE = 90
"""Percentile of the random passages' cosines, by linear interpolation (numpy's default; Hyndman and Fan's type 7). With
30 passages, another random passage is at or below it with a probability of 27.1 / 31 = 0.874. Source: METHOD 10."""
REFERENCE_RANDOM_STREAM = 3
"""Number of the random stream. Controls use streams 1 and 2."""
STORED_ARRAYS = ("n_passages", "mean", "percentile_90")
"""Arrays of a stored reference, in addition to the text keys."""


@dataclass(frozen=True)
class RandomReference:
    """Cosines s_qr of Q >= 1 sampled queries with their random passages.

    queries : (Q,) query ids, ascending.   names : (Q,) text keys of the queries.
    n_passages : (Q,) number of passages per query, 10 to 30.
    mean, percentile_90 : (Q,) mean and 90th percentile of s_qr over a query's passages, in [-1, 1].
    """

    queries: Index
    names: Names
    n_passages: Index
    mean: Floats
    percentile_90: Floats

    def stored(self) -> dict[str, npt.NDArray[Any]]:
        """Return the reference as arrays. The text keys (Q, 16) replace query ids, which are only valid in one plan."""
        keys = np.ascontiguousarray(self.names).view(np.uint8).reshape(len(self.names), -1)
        return {"keys": keys, **{name: getattr(self, name) for name in STORED_ARRAYS}}


def stored_reference(arrays: Mapping[str, npt.NDArray[Any]], plan: Plan) -> RandomReference | None:
    """Return the reference of an earlier run, for the queries of this plan; None if the plan has none of its queries.

    arrays : arrays of `RandomReference.stored`. Raises KeyError or ValueError for other arrays.
    """
    names, order = np.unique(comparable_keys(arrays["keys"]), return_index=True)
    keys = comparable_keys(plan.queries.keys)
    queries = np.flatnonzero(is_known(keys, names))
    if not len(queries):
        return None
    place = order[np.searchsorted(names, keys[queries])]
    return RandomReference(queries, keys[queries], *(arrays[name][place] for name in STORED_ARRAYS))


def random_reference(plan: Plan, triplets: Sequence[Triplets], vectors: Vectors, seed: int) -> RandomReference | None:
    """Draw random passages for a sample of queries, and return their cosines. Source: METHOD 10, 14.

    triplets : triplets of the sources, without controls. Passages are drawn from their documents.
    Passages are drawn without replacement, and exclude the query's labelled positives but not its negatives. The draw
    depends on the seed, the query and the set of passages, not on the order of files or rows. Return None if every
    query has fewer than MIN_PASSAGES passages.
    """
    if not any(map(len, triplets)):
        return None
    pool = passage_pool(plan, triplets)
    sample = _sampled_queries(plan, triplets, seed)
    passages = random_passages(plan, sample, pool, seed)
    enough = np.array([len(ids) >= MIN_PASSAGES for ids in passages])
    if not enough.any():
        return None
    queries, drawn = sample[enough], [ids for ids in passages if len(ids) >= MIN_PASSAGES]
    counts = [len(ids) for ids in drawn]
    cosines = _cosines(np.repeat(queries, counts), np.concatenate(drawn), vectors)
    parts = np.split(cosines, np.cumsum(counts)[:-1])
    return RandomReference(
        queries=queries,
        names=comparable_keys(plan.queries.keys[queries]),
        n_passages=np.array([len(part) for part in parts]),
        mean=np.array([part.mean() for part in parts]),
        percentile_90=np.array([np.percentile(part, PERCENTILE) for part in parts]),
    )


def passage_pool(plan: Plan, triplets: Sequence[Triplets]) -> Index:
    """Return the distinct documents of the sources, sorted by text key. Random passages are drawn from these."""
    pool = distinct(np.concatenate([ids for rows in triplets for ids in (rows.positive, rows.negative)]))
    return pool[np.argsort(key_ranks(plan.passages.keys[pool]))]


def _sampled_queries(plan: Plan, triplets: Sequence[Triplets], seed: int) -> Index:
    """Return (Q,) ascending ids of the first MAX_REFERENCE_QUERIES queries of each source in the run's nested sample.

    Sources with the same queries share one sample. A small source is sampled from its own queries, even if another
    source is much larger.
    """
    keys = plan.queries.keys
    return distinct(
        np.concatenate([first_sampled(distinct(rows.query), keys, seed, MAX_REFERENCE_QUERIES) for rows in triplets])
    )


def random_passages(plan: Plan, queries: Index, pool: Index, seed: int) -> list[Index]:
    """Return up to PASSAGES_PER_QUERY random passages for each query, in the order drawn. None is a labelled positive.

    For each of the query's positives in the pool, one extra passage is drawn, because positives are removed afterwards.
    Positives outside the pool do not affect the draw. So controls and objectives, which add positives to the plan, do
    not change it.
    """
    place, label = labels_of(plan, queries)
    passage = plan.known_positives[label] % len(plan.passages)
    inside = is_known(passage, np.sort(pool))
    ends = np.searchsorted(place[inside], np.arange(1, len(queries)))
    drawn = []
    for key, positives in zip(plan.queries.keys[queries], np.split(passage[inside], ends), strict=True):
        generator = np.random.default_rng(
            [seed, REFERENCE_RANDOM_STREAM, *np.ascontiguousarray(key).view("<u4").tolist()]
        )
        passages = pool[generator.choice(len(pool), min(len(pool), PASSAGES_PER_QUERY + len(positives)), replace=False)]
        drawn.append(passages[~is_known(passages, positives)][:PASSAGES_PER_QUERY])
    return drawn


def _cosines(query: Index, passage: Index, vectors: Vectors) -> Floats:
    """Return (K,) float64 cosine of each (query, passage) pair, by the same pass as for negatives. query: ascending."""
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    counts = np.diff(np.append(starts, len(query)))
    rows = Triplets(
        query=query,
        positive=np.repeat(passage[starts], counts),  # any passage will do, since only s_qn is read
        negative=passage,
        record_offsets=np.append(starts, len(query)),
        record=np.repeat(np.arange(len(starts)), counts),
        place=np.arange(len(query)),
    )
    dots = sweep(replace(vectors, tick=None), rows, {}, (), smallest_distance=0.0).dots
    return dots.query_negative.numpy()


def sampled(query: Index, reference: RandomReference) -> Flags:
    """Return (T,) flags of triplets whose query is in the reference. query: (T,) query ids."""
    return is_known(query, reference.queries)


def hardness_sums(
    query: Index, s_query_negative: Floats, s_query_positive: Floats, share: Floats | None, reference: RandomReference
) -> QuerySums:
    """Return the sums by query that `hardness` is computed from, for any queries. Arguments are as in `hardness`."""
    keep = sampled(query, reference)
    random = reference.mean[np.searchsorted(reference.queries, query[keep])]
    above, span = s_query_negative[keep] - random, s_query_positive[keep] - random
    return QuerySums.of(query[keep], above, span, None if share is None else share[keep])


def hardness(
    query: Index, s_query_negative: Floats, s_query_positive: Floats, share: Floats | None, reference: RandomReference
) -> Estimate | None:
    """Return the hardness (mean s_qn - mean s_qr) / (mean s_qp - mean s_qr) over triplets of sampled queries.

    query, s_query_negative, s_query_positive : (T,) columns.   share : (T,) share of each triplet; None if all are 1.
    s_qr of a triplet is the mean over its query's random passages, so all three means are over the same triplets.
    A hardness of 0 means as close as random passages, and 1 as close as the positives; it can be below 0 or above 1.
    The error is by the delta method, clustered by query. Two sources with the same reference can be compared by
    estimates.paired_difference. None if no query is sampled, or if positives are on average no closer than random
    passages. Source: METHOD 10.
    """
    sums = hardness_sums(query, s_query_negative, s_query_positive, share, reference)
    if sums.value is None:
        return None
    names = reference.names[np.searchsorted(reference.queries, sums.queries)]
    order = np.argsort(names)
    return Estimate(sums.value, names[order], sums.influence(sums.top.sum(), sums.bottom.sum())[order])


def random_like(query: Index, score: Floats, reference: RandomReference) -> Flags:
    """Return (T,) flags of scores at or below the 90th percentile of s_qr; False if the query is not sampled.

    score : (T,) s_qn, for the finding random_like, or s_qp, for weak_positive. A score within rounding of the
            percentile is flagged too, since a negative may be one of the random passages. Source: METHOD 10, 14.
    """
    keep = sampled(query, reference)
    flags = np.zeros(len(query), np.bool_)
    limit = reference.percentile_90[np.searchsorted(reference.queries, query[keep])]
    flags[keep] = score[keep] <= limit + DOT_ROUNDING
    return flags


REFERENCE_ROWS_AT_ONCE = 1_024
"""Number of rows to convert to float64 at once, so that the copies fit the CPU's cache. 370,000 rows of 384 numbers
took 0.8 s, against 1.0 s with 4,096 rows at once."""


@dataclass(frozen=True)
class PassageMeans:
    """Mean cosine of every query with the passages of the run. It is the expected cosine with a random passage.

    queries : (Q,) ids of the sources' queries, ascending.
    mean    : (Q,) mean over passages that are not labelled positives of the query, in [-1, 1]; NaN with fewer than
              MIN_PASSAGES passages.
    """

    queries: Index
    mean: Floats

    def of(self, query: Index) -> Floats:
        """Return (T,) means of these queries. query: (T,) ids, all of them in `queries`."""
        return self.mean[np.searchsorted(self.queries, query)]


def passage_means(plan: Plan, triplets: Sequence[Triplets], vectors: Vectors) -> PassageMeans:
    """Return the mean cosine of each query with the passages that `random_reference` draws from. Source: METHOD 14.

    triplets, vectors : as in `random_reference`.
    The sum of a query's cosines with all passages is its dot product with the sum of their unit vectors, minus its
    cosines with its positives. So this is exact for every query, without sampling.
    """
    pool = distinct(np.concatenate([ids for rows in triplets for ids in (rows.positive, rows.negative)]))
    queries = distinct(np.concatenate([rows.query for rows in triplets]))
    total = torch.zeros(vectors.dimension, dtype=torch.float64, device=vectors.computes_on)
    for rows in rows_of_ids(vectors, "passage", pool, REFERENCE_ROWS_AT_ONCE):
        wide = rows.double()
        total += torch.linalg.vector_norm(wide, dim=1).reciprocal() @ wide
    sums = []
    for rows in rows_of_ids(vectors, "query", queries, REFERENCE_ROWS_AT_ONCE):
        wide = rows.double()
        sums.append((wide @ total / torch.linalg.vector_norm(wide, dim=1)).cpu().numpy())
    place, label = labels_of(plan, queries)
    positive = plan.known_positives[label] % len(plan.passages)
    inside = is_known(positive, pool)
    place, positive = place[inside], positive[inside]
    positive_sums = np.bincount(place, _cosines(queries[place], positive, vectors), len(queries))
    n_passages = len(pool) - np.bincount(place, minlength=len(queries))
    mean = np.full(len(queries), np.nan)
    np.divide(np.concatenate(sums) - positive_sums, n_passages, out=mean, where=n_passages >= MIN_PASSAGES)
    return PassageMeans(queries, mean)


def near_positive(s_query_negative: Floats, s_query_positive: Floats, random: Floats | float) -> tuple[Flags, Floats]:
    """Return (T,) flags of negatives with a hardness h of at least NEAR_HARDNESS, and (T,) h. Source: METHOD 14.

    h = (s_qn - r) / (s_qp - r), where r is the mean score of random passages, of each triplet's query or of the whole
    run. A value within rounding of the limit is flagged.
    s_query_negative, s_query_positive : (T,) scores by any scorer.   random : (T,) r, or one r.
    If the positive is at or below r, or a score or r is NaN, h is NaN and the negative is not flagged.
    """
    span = s_query_positive - random
    usable = span > DOT_ROUNDING
    h = np.divide(s_query_negative - random, span, out=np.full(len(s_query_negative), np.nan), where=usable)
    return usable & (s_query_negative - random >= NEAR_HARDNESS * span - DOT_ROUNDING), h
