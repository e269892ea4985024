"""Ratios of sums by query, and how hard negatives are between random passages and the positive of the query."""

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
from secid.triplets.embedding import rows_of_ids
from secid.triplets.estimates import Estimate, Names, comparable_keys

# Ratios of sums by query, which can be restricted to any queries, added up over shards and compared in pairs.
#
# Hardness, a share of negatives and tr M all have this form. Source: METHOD 16.1.


@dataclass(frozen=True)
class QuerySums:
    """The ratio sum(top) / sum(bottom) over queries.

    queries : (Q,) distinct ids, rising.   top, bottom : (Q,) sums over each query's triplets.
    """

    queries: Index
    top: Floats
    bottom: Floats

    @staticmethod
    def of(query: Index, top: Floats | Flags, bottom: Floats | None, share: Floats | None) -> QuerySums:
        """Sum (T,) columns by query.

        query : (T,) query ids.   bottom : None for ones, so that the ratio is the mean of the top over negatives.
        share : what each triplet counts, None for one each.
        """
        weight = np.ones(len(query)) if share is None else share
        queries = distinct(query)
        columns = weight * top, weight if bottom is None else weight * bottom
        return QuerySums(queries, *_added(np.searchsorted(queries, query), len(queries), *columns))

    def among(self, queries: Flags) -> QuerySums:
        """Restrict the sums to some queries. queries : flags by query id, for every id of this source."""
        keep = queries[self.queries]
        return self if keep.all() else QuerySums(self.queries[keep], self.top[keep], self.bottom[keep])

    @property
    def value(self) -> float | None:
        """The ratio; None unless the sum of bottom is positive."""
        bottom = float(self.bottom.sum())
        return float(self.top.sum()) / bottom if bottom > 0 else None

    def influence(self, top: float, bottom: float) -> Floats:
        """Return (Q,) first-order influence of each query on top / bottom, the totals that these sums are part of.

        Source: METHOD 8 (delta method).
        """
        influence: Floats = (self.top - top / bottom * self.bottom) / bottom
        return influence


@dataclass
class RatioDifference:
    """The difference of two sources in a ratio, over the same queries, whose sums may come in shards.

    sums : (4,) top and bottom of the first, then of the second.   square : of the standard error.
    """

    sums: Floats
    square: float = 0.0

    def add(self, first: QuerySums, second: QuerySums) -> None:
        """Add a shard in the first pass."""
        self.sums = self.sums + [part.sum() for side in (first, second) for part in (side.top, side.bottom)]

    def add_square(self, first: QuerySums, second: QuerySums) -> None:
        """Add a shard in the pass after it."""
        off = first.influence(*self.sums[:2]) - second.influence(*self.sums[2:])
        self.square += float((off**2).sum())

    def difference(self, n_queries: int) -> Difference:
        """Return the difference over all shards, paired by query."""
        top, bottom, other_top, other_bottom = self.sums
        value = float(top / bottom - other_top / other_bottom)
        return Difference(value, float(np.sqrt(self.square)), n_queries, n_queries)


def ratio_difference(first: QuerySums, second: QuerySums) -> Difference | None:
    """Return first - second over the same queries, paired by query; None if a side has no value."""
    if first.value is None or second.value is None:
        return None
    both = RatioDifference(np.zeros(4))
    both.add(first, second)
    both.add_square(first, second)
    return both.difference(len(first.queries))


def summed_queries(parts: list[QuerySums]) -> QuerySums:
    """Add up the sums of one or more sources: the ratio is then over all of their triplets."""
    queries = distinct(np.concatenate([part.queries for part in parts]))
    place = np.concatenate([np.searchsorted(queries, part.queries) for part in parts])
    top, bottom = (np.concatenate([getattr(part, name) for part in parts]) for name in ("top", "bottom"))
    return QuerySums(queries, *_added(place, len(queries), top, bottom))


def _added(place: Index, n: int, *columns: Floats) -> list[Floats]:
    return [np.bincount(place, column, n).astype(np.float64) for column in columns]


# How hard negatives are, on a scale that runs from random passages to the positive of the same query.
#
#     random_reference   30 random passages for each sampled query, once per run
#     hardness           0: as far from the query as random passages; 1: as near to it as its positive
#     random_like        which negatives, or positives, are no nearer to their query than its random passages
#     passage_means      the same comparison for every query: its mean cosine with all passages that may be drawn
#     near_positive      which negatives are nearly as near to their query as its positive
#
# Worked example: cosines of one query are 0.1 for random passages on average, 0.5 for its negative and 0.9 for its
# positive; the negative's hardness is (0.5 - 0.1) / (0.9 - 0.1) = 0.5. Source: METHOD 10, 14.

QUERIES = 1_000
"""Distinct queries sampled of each source: the share of a finding then has a standard error of 0.016 at most."""
PASSAGES = 30
"""Random passages of a query. Source: METHOD 10."""
FEWEST_PASSAGES = 10
"""With fewer, the 90th percentile is the largest of them. A query without them is left out."""
PERCENTILE = 90
"""Source: METHOD 10. By linear interpolation between order statistics (numpy's default; Hyndman and Fan's type 7). A
further random passage of the query is at or below that of 30 with a chance of 27.1 / 31 = 0.874."""
STREAM = 3
"""Stream of the seed; controls draw from 1 and 2."""
STORED = ("n_passages", "mean", "percentile_90")
"""Arrays of a stored reference, in addition to the text keys."""


@dataclass(frozen=True)
class RandomReference:
    """Cosines of the sampled queries with their random passages, Q >= 1 queries.

    queries : (Q,) query ids, rising.   names : (Q,) their text keys.   n_passages : (Q,) drawn for each, 10 to 30.
    mean, percentile_90 : (Q,) of s_qr over a query's passages, in [-1, 1].
    """

    queries: Index
    names: Names
    n_passages: Index
    mean: Floats
    percentile_90: Floats

    def stored(self) -> dict[str, npt.NDArray[Any]]:
        """Return the reference as arrays without query ids, which belong to one plan. keys: (Q, 16) text keys."""
        keys = np.ascontiguousarray(self.names).view(np.uint8).reshape(len(self.names), -1)
        return {"keys": keys, **{name: getattr(self, name) for name in STORED}}


def stored_reference(arrays: Mapping[str, npt.NDArray[Any]], plan: Plan) -> RandomReference | None:
    """The reference of an earlier run over the queries of a plan; None where the plan has none of them.

    arrays : as `RandomReference.stored` gives them. Raises KeyError and ValueError where they are something else.
    """
    names, order = np.unique(comparable_keys(arrays["keys"]), return_index=True)
    own = comparable_keys(plan.queries.keys)
    queries = np.flatnonzero(is_known(own, names))
    if not len(queries):
        return None
    place = order[np.searchsorted(names, own[queries])]
    return RandomReference(queries, own[queries], *(arrays[name][place] for name in STORED))


def random_reference(plan: Plan, triplets: Sequence[Triplets], vectors: Vectors, seed: int) -> RandomReference | None:
    """Random passages for a sample of the queries: what the negatives of the sources are compared with.

    triplets : of the sources, controls left out; their documents are the passages that are drawn from.
    vectors  : rows of all texts of these triplets.

    A query's passages are drawn without replacement from all that are not labelled positives of it; its negatives
    may be among them. The draw depends on the seed, the query and the set of passages, by text key, and so on no order
    of files or rows. None where no query has FEWEST_PASSAGES to draw from. Source: METHOD 10, 14.
    """
    if not any(map(len, triplets)):
        return None
    pool = passage_pool(plan, triplets)
    sample = _sampled_queries(plan, triplets, seed)
    passages = random_passages(plan, sample, pool, seed)
    enough = np.array([len(ids) >= FEWEST_PASSAGES for ids in passages])
    if not enough.any():
        return None
    queries, drawn = sample[enough], [ids for ids in passages if len(ids) >= FEWEST_PASSAGES]
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
    """Distinct documents of the sources, by text key: what random passages are drawn from."""
    pool = distinct(np.concatenate([ids for rows in triplets for ids in (rows.positive, rows.negative)]))
    return pool[np.argsort(key_ranks(plan.passages.keys[pool]))]


def _sampled_queries(plan: Plan, triplets: Sequence[Triplets], seed: int) -> Index:
    """(Q,) rising ids: of each source the QUERIES that every sample of the run takes first.

    They are the same 1,000 for sources of the same queries, and a small source keeps its own next to a large one.
    """
    keys = plan.queries.keys
    return distinct(np.concatenate([first_sampled(distinct(rows.query), keys, seed, QUERIES) for rows in triplets]))


def random_passages(plan: Plan, queries: Index, pool: Index, seed: int) -> list[Index]:
    """Up to PASSAGES of the pool for each query, in the order drawn: as many more are taken as are positives of it.

    pool : as `passage_pool` gives it.

    Positives outside the pool change no draw, so that neither controls nor objectives, which plan more of them, do.
    """
    place, label = labels_of(plan, queries)
    passage = plan.known_positives[label] % len(plan.passages)
    inside = is_known(passage, np.sort(pool))
    ends = np.searchsorted(place[inside], np.arange(1, len(queries)))
    drawn = []
    for key, positives in zip(plan.queries.keys[queries], np.split(passage[inside], ends), strict=True):
        generator = np.random.default_rng([seed, STREAM, *np.ascontiguousarray(key).view("<u4").tolist()])
        passages = pool[generator.choice(len(pool), min(len(pool), PASSAGES + len(positives)), replace=False)]
        drawn.append(passages[~is_known(passages, positives)][:PASSAGES])
    return drawn


def _cosines(query: Index, passage: Index, vectors: Vectors) -> Floats:
    """(K,) cosine of each pair, in float64, by the pass that measures the negatives themselves. query : rising."""
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    counts = np.diff(np.append(starts, len(query)))
    rows = Triplets(
        query=query,
        positive=np.repeat(passage[starts], counts),  # any passage does: only s_qn is read
        negative=passage,
        record_offsets=np.append(starts, len(query)),
        record=np.repeat(np.arange(len(starts)), counts),
        place=np.arange(len(query)),
    )
    dots = sweep(replace(vectors, tick=None), rows, {}, (), smallest_distance=0.0).dots
    return dots.query_negative.numpy()


def sampled(query: Index, reference: RandomReference) -> Flags:
    """(T,) which triplets have random passages to be compared with. query: (T,) query id of each."""
    return is_known(query, reference.queries)


def hardness_sums(
    query: Index, s_query_negative: Floats, s_query_positive: Floats, share: Floats | None, reference: RandomReference
) -> QuerySums:
    """Return the sums by sampled query from which `hardness` on any queries follows. Arguments as there."""
    keep = sampled(query, reference)
    random = reference.mean[np.searchsorted(reference.queries, query[keep])]
    above, span = s_query_negative[keep] - random, s_query_positive[keep] - random
    return QuerySums.of(query[keep], above, span, None if share is None else share[keep])


def hardness(
    query: Index, s_query_negative: Floats, s_query_positive: Floats, share: Floats | None, reference: RandomReference
) -> Estimate | None:
    """h = (mean s_qn - mean s_qr) / (mean s_qp - mean s_qr), over the triplets of sampled queries.

    query, s_query_negative, s_query_positive : (T,).   share : (T,) what each triplet counts; None for one each.
    s_qr of a triplet is its query's mean, so that all three means are over the same negatives.
    0 where negatives are as far from their queries as random passages, 1 where they are as near as the positives; below
    0 and above 1 are possible. The error is by the delta method with queries as clusters, and so are comparisons of two
    sources with the same reference (estimates.paired_difference). None where no query is sampled, or where positives
    are on average no nearer than random passages. Source: METHOD 10.
    """
    sums = hardness_sums(query, s_query_negative, s_query_positive, share, reference)
    if sums.value is None:
        return None
    names = reference.names[np.searchsorted(reference.queries, sums.queries)]
    order = np.argsort(names)
    return Estimate(sums.value, names[order], sums.influence(sums.top.sum(), sums.bottom.sum())[order])


def random_like(query: Index, score: Floats, reference: RandomReference) -> Flags:
    """(T,) where s_qn, or s_qp, is at most the 90th percentile of s_qr; False where the query is not sampled.

    Equality to rounding counts: a negative may be one of the passages itself. Of a positive this is the finding
    weak_positive: one that half of the passages outscore lies below their percentile too. Source: METHOD 10, 14.
    """
    keep = sampled(query, reference)
    flags = np.zeros(len(query), np.bool_)
    limit = reference.percentile_90[np.searchsorted(reference.queries, query[keep])]
    flags[keep] = score[keep] <= limit + DOT_ROUNDING
    return flags


NEAR_HARDNESS = 0.9
"""Hardness of a single negative from which it is near the positive. Source: METHOD 15."""
ROWS_AT_ONCE = 1_024
"""Whose float64 copies stay in the cache: 0.8 s for 370,000 rows of 384 numbers, 1.0 s with 4,096 rows at once."""


@dataclass(frozen=True)
class PassageMeans:
    """Mean cosine of every query with the passages of the run: what its random passages reach on average.

    queries : (Q,) ids of the sources' queries, rising.
    mean    : (Q,) over the passages that are not labelled positives of the query, in [-1, 1]; NaN where there are
              fewer than FEWEST_PASSAGES.
    """

    queries: Index
    mean: Floats


def passage_means(plan: Plan, triplets: Sequence[Triplets], vectors: Vectors) -> PassageMeans:
    """Return the mean cosine of each query of the sources with the passages that `random_reference` draws from.

    triplets, vectors : as there.

    The sum of a query's cosines with all passages is its product with the sum of their unit rows; those of its
    positives are taken off. So nothing is drawn, and every query has a mean, not only a sample of queries.
    Source: METHOD 15.
    """
    pool = distinct(np.concatenate([ids for rows in triplets for ids in (rows.positive, rows.negative)]))
    queries = distinct(np.concatenate([rows.query for rows in triplets]))
    total = torch.zeros(vectors.dimension, dtype=torch.float64, device=vectors.computes_on)
    for rows in rows_of_ids(vectors, "passage", pool, ROWS_AT_ONCE):
        wide = rows.double()
        total += torch.linalg.vector_norm(wide, dim=1).reciprocal() @ wide
    sums = []
    for rows in rows_of_ids(vectors, "query", queries, ROWS_AT_ONCE):
        wide = rows.double()
        sums.append((wide @ total / torch.linalg.vector_norm(wide, dim=1)).cpu().numpy())
    place, label = labels_of(plan, queries)
    positive = plan.known_positives[label] % len(plan.passages)
    inside = is_known(positive, pool)
    place, positive = place[inside], positive[inside]
    own = np.bincount(place, _cosines(queries[place], positive, vectors), len(queries))
    n_passages = len(pool) - np.bincount(place, minlength=len(queries))
    mean = np.full(len(queries), np.nan)
    np.divide(np.concatenate(sums) - own, n_passages, out=mean, where=n_passages >= FEWEST_PASSAGES)
    return PassageMeans(queries, mean)


def near_positive(
    query: Index, s_query_negative: Floats, s_query_positive: Floats, means: PassageMeans
) -> tuple[Flags, Floats]:
    """(T,) where h = (s_qn - r) / (s_qp - r) is at least NEAR_HARDNESS, and (T,) h; r is the mean of the query.

    query, s_query_negative, s_query_positive : (T,); the means must have the queries.
    Equality to rounding counts. h is NaN, and nothing is flagged, where the positive is no nearer than r or r is NaN.
    Source: METHOD 15.
    """
    random = means.mean[np.searchsorted(means.queries, query)]
    span = s_query_positive - random
    usable = span > DOT_ROUNDING
    h = np.divide(s_query_negative - random, span, out=np.full(len(query), np.nan), where=usable)
    return usable & (s_query_negative - random >= NEAR_HARDNESS * span - DOT_ROUNDING), h
