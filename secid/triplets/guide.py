"""A guide: a second scorer of the same triplets, for evidence that the target encoder cannot give about itself.

    sample_of      choose the triplets to score: all, or a seeded sample stratified by the target's s_qn
    random_rows    draw random passages for the same queries: zero on the guide's scale, and a test of the guide
    guide_scores   score the triplets with a second bi-encoder, text by text, or a cross-encoder, pair by pair
    GuideScores    the scores as columns, with estimates from the sample

A negative is suspect if its hardness under the guide is at least 0.9. Random passages have a hardness of 0 and the
positive has 1, so the rule means the same for guides whose scores lie elsewhere. Worked example: random pairs score 0.7
on average, the positive 0.9 and the negative 0.88. Its hardness is (0.88 - 0.7) / (0.9 - 0.7) = 0.9. Source: METHOD 10.

Worked example: 100 negatives form two strata of 50, and the guide scores five of each. It flags 4 of the upper five and
1 of the lower five, so the estimated share is (50 * 4/5 + 50 * 1/5) / 100 = 0.5. Source: METHOD 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from secid.arrays import Flags, Floats, Index, best_first, distinct, pairs
from secid.encode import Encoder, smallest_distance
from secid.encode.reranker import Reranker, pair_keys
from secid.errors import EncoderError
from secid.measure.blocks import Triplets
from secid.measure.false_negatives import lowest_positive
from secid.measure.sweep import DOT_ROUNDING, sweep
from secid.pool import Plan, key_ranks, sample_order
from secid.pool.texts import TextStore
from secid.progress import Progress
from secid.settings import Settings, with_guide
from secid.triplets.embedding import Embedder
from secid.triplets.estimates import Estimate, Names, clustered_mean, comparable_keys, stratified_mean
from secid.triplets.random_reference import PASSAGES_PER_QUERY, near_positive, random_passages

Guide = Encoder | Reranker


class PairTexts(Protocol):
    """Texts for a guide: a plan, or the queries and candidates of a miner."""

    @property
    def queries(self) -> TextStore: ...

    @property
    def passages(self) -> TextStore: ...


GUIDE_STRATA = 10
"""Number of strata in a sample. They have equal sizes and are ordered by s_qn."""
RANDOM_PAIRS = 300
"""Number of random passages that a guide scores per source. A share of 10 % then has a standard error of 0.017."""

EQUAL_SCORE_SPREAD = 1e-6
"""Maximum range of scores that count as equal, because float32 rounding is that large."""


@dataclass(frozen=True)
class GuideScores:
    """Scores of a guide for the T triplets of a source.

    s_query_positive, s_query_negative : (T,) scores; NaN for triplets that are not in the sample.
    stratum : (T,) stratum of each triplet, 0 to GUIDE_STRATA - 1.
    place  : (T,) number of the triplet's negative. With several positives, a negative has several triplets.
    random_score : mean score of the run's random passages; NaN without any, so that no negative is suspect.
    random : share of the source's n_random random passages that are suspect; None without random passages.
    """

    s_query_positive: Floats
    s_query_negative: Floats
    stratum: Index
    place: Index
    random_score: float
    random: Estimate | None = None
    n_random: int = 0

    @property
    def scored(self) -> Flags:
        """(T,) flags of triplets that the guide scored."""
        return ~np.isnan(self.s_query_negative)

    @property
    def is_whole(self) -> bool:
        return bool(self.scored.all())

    def suspect(self) -> Flags:
        """Return (T,) flags of negatives that are nearly as hard as their lowest-scored positive. Source: METHOD 10.

        A negative is not flagged if it is not in the sample, or if its positive scores no higher than random passages.
        """
        return self._flags_and_hardness()[0]

    def hardness(self) -> Floats:
        """Return (T,) hardness under the guide; NaN if it was not evaluated."""
        return self._flags_and_hardness()[1]

    def _flags_and_hardness(self) -> tuple[Flags, Floats]:
        lowest = lowest_positive(self.s_query_positive, self.place)
        return near_positive(self.s_query_negative, lowest, self.random_score)

    def above_positive(self) -> Flags:
        """Return (T,) flags of negatives that score higher than a positive of theirs: the mask of GISTEmbed."""
        return above_positive(self.s_query_negative, lowest_positive(self.s_query_positive, self.place))

    def mean(self, values: Floats, cluster: Index, names: Names, share: Floats | None) -> Estimate:
        """Estimate the mean of a column over all triplets from the scored ones. values: (T,)."""
        return stratified_mean(values, self.scored, self.stratum, cluster, names, share)

    def rows(self, keep: Index) -> GuideScores:
        """Return the scores of some triplets. keep: ascending indices."""
        names = ("s_query_positive", "s_query_negative", "stratum", "place")
        return replace(self, **{name: getattr(self, name)[keep] for name in names})


def above_positive(s_qn: Floats, s_qp: Floats) -> Flags:
    """Return flags of negatives that a guide scores higher than the positive, in the shape of the scores.

    GIST masks them. A copy of the positive is not flagged. Source: GISTEmbed (arXiv 2402.16829).
    """
    return np.asarray(s_qn > s_qp + DOT_ROUNDING)


def sample_of(
    plan: PairTexts, rows: Triplets, s_query_negative: Floats, size: int | None, seed: int
) -> tuple[Index, Index]:
    """Return the ascending indices of the triplets to score, and (T,) stratum of every triplet. Source: METHOD 8, 10.

    s_query_negative : (T,) scores by the target.   size : maximum number of (query, negative) pairs; None for all.
    Distinct pairs are divided into GUIDE_STRATA strata of equal size by s_qn, and each stratum is sampled. If a pair is
    drawn, all its triplets are. The draw depends on text keys and the seed, not on the order of files or rows.
    If there are at most `size` pairs, all triplets are returned, in a single stratum.
    """
    codes = pairs(rows.query, rows.negative, len(plan.passages))
    _, head, pair = np.unique(codes, return_index=True, return_inverse=True)
    n = len(head)
    if size is None or size >= n:
        return np.arange(len(rows)), np.zeros(len(rows), np.int64)
    keys = plan.queries.keys[rows.query[head]] ^ plan.passages.keys[rows.negative[head]][:, ::-1]
    priority, tie = sample_order(keys, seed), sample_order(keys[:, 8:], seed)
    rank = np.empty(n, np.int64)
    # Ties are broken by other bytes of the keys, since the draw would not be random within strata otherwise.
    rank[best_first(-s_query_negative[head], tie)] = np.arange(n)
    stratum = rank * GUIDE_STRATA // n
    order = np.lexsort((priority, stratum))
    first = np.searchsorted(stratum[order], np.arange(GUIDE_STRATA))
    sizes = (np.arange(1, GUIDE_STRATA + 1) * size) // GUIDE_STRATA - (np.arange(GUIDE_STRATA) * size) // GUIDE_STRATA
    place = np.arange(n) - first[stratum[order]]
    is_drawn = np.zeros(n, np.bool_)
    is_drawn[order[place < sizes[stratum[order]]]] = True
    return np.flatnonzero(is_drawn[pair]), stratum[pair]


def random_rows(plan: Plan, rows: Triplets, pool: Index, seed: int) -> Triplets:
    """Return triplets with random passages instead of negatives, for the first queries of a source's nested sample.

    pool : passages to draw from, as returned by `passage_pool`.
    RANDOM_PAIRS passages are drawn, or up to PASSAGES_PER_QUERY per query if the source has few queries. A query gets
    none if the pool contains only its positives. Each passage is paired with all scored positives of one of the query's
    records: the first one by text key. Source: METHOD 10.
    """
    heads = rows.record_offsets[:-1]
    heads = heads[np.lexsort((key_ranks(plan.passages.keys[rows.positive[heads]]), rows.query[heads]))]
    queries, first = np.unique(rows.query[heads], return_index=True)
    sampled = np.argsort(sample_order(plan.queries.keys[queries], seed), kind="stable")[:RANDOM_PAIRS]
    n_each = min(PASSAGES_PER_QUERY, -(-RANDOM_PAIRS // max(len(sampled), 1)))
    passages = [ids[:n_each] for ids in random_passages(plan, queries[sampled], pool, seed)]
    counts = [len(ids) for ids in passages]
    query, negative = np.repeat(queries[sampled], counts), np.concatenate([np.zeros(0, np.int64), *passages])
    # like a negative, each passage is paired with all positives of the record
    owner = np.repeat(rows.record[heads[first[sampled]]], counts)
    by_record = heads[np.argsort(rows.record[heads], kind="stable")]
    low, high = (np.searchsorted(rows.record[by_record], owner, side) for side in ("left", "right"))
    place = np.repeat(np.arange(len(query)), high - low)
    nth = np.arange(len(place)) - np.repeat(np.cumsum(high - low) - (high - low), high - low)
    return Triplets(
        query=query[place],
        positive=rows.positive[by_record[low[place] + nth]],
        negative=negative[place],
        record_offsets=np.arange(len(place) + 1),
        record=np.arange(len(place)),
        place=place,
    )


def guide_scores(
    plan: PairTexts,
    sources: Sequence[tuple[Triplets, Floats]],
    guide: Guide,
    settings: Settings,
    folder: Path,
    progress: Progress,
    counts: dict[str, float],
    random: Sequence[Triplets],
) -> list[GuideScores]:
    """Return the guide's scores for each source. Source: METHOD 10.

    sources : triplets of each source, and (T,) their s_qn by the target.
    random  : random passages for each source's queries, such as those of `random_rows`; may end before the sources do.
    folder  : new folder for the guide's rows.   counts : dictionary that receives the guide's cost.
    Each text (each pair, for a reranker) is scored once for all sources.
    Raises EncoderError if all pairs have the same score.
    """
    samples = [sample_of(plan, rows, near, settings.guide_sample, settings.seed) for rows, near in sources]
    to_score = [rows.take(keep) for (rows, _), (keep, _) in zip(sources, samples, strict=True)]
    by = _by_pair if isinstance(guide, Reranker) else _by_rows
    drawn = [rows for rows in random if len(rows)]
    scores = by(plan, [*to_score, *drawn], guide, settings, folder, progress, counts)  # type: ignore[arg-type]
    _refuse_one_score(guide, plan, [*to_score, *drawn], scores)
    of_random = scores[len(to_score) :]
    random_score = _mean_score(plan, drawn, of_random)
    columns = []
    for (rows, _), (keep, stratum), values in zip(sources, samples, scores, strict=False):
        both = np.full((2, len(rows)), np.nan)
        both[:, keep] = values
        columns.append(GuideScores(both[0], both[1], stratum, rows.place, random_score))
    places = [place for place, rows in enumerate(random) if len(rows)]
    for place, rows, (best, near) in zip(places, drawn, of_random, strict=True):
        share = _suspect_share(plan, rows, GuideScores(best, near, rows.place, rows.place, random_score))
        columns[place] = replace(columns[place], random=share, n_random=len(np.unique(rows.place)))
    return columns


def _mean_score(plan: PairTexts, drawn: Sequence[Triplets], scores: Sequence[tuple[Floats, Floats]]) -> float:
    """Return the mean score of the distinct pairs of query and random passage of all sources; NaN without any."""
    if not drawn:
        return float("nan")
    codes = np.concatenate([pairs(rows.query, rows.negative, len(plan.passages)) for rows in drawn])
    _, first = np.unique(codes, return_index=True)
    return float(np.concatenate([near for _, near in scores])[first].mean())


def _suspect_share(plan: PairTexts, rows: Triplets, scores: GuideScores) -> Estimate:
    """Return the share of random passages that are suspect, clustered by query."""
    _, each = np.unique(rows.place, return_index=True)
    queries, cluster = np.unique(rows.query[each], return_inverse=True)
    flags = scores.suspect()[each].astype(np.float64)
    return clustered_mean(flags, cluster, comparable_keys(plan.queries.keys[queries]))


def _refuse_one_score(
    guide: Guide, plan: PairTexts, to_score: Sequence[Triplets], scores: Sequence[tuple[Floats, Floats]]
) -> None:
    """Raise EncoderError if two or more pairs all have the same score, because the guide cannot tell texts apart."""
    values = np.concatenate([part for both in scores for part in both])
    if np.ptp(values) > EQUAL_SCORE_SPREAD:
        return
    codes = [pairs(rows.query, ids, len(plan.passages)) for rows in to_score for ids in (rows.positive, rows.negative)]
    if (n := len(distinct(np.concatenate(codes)))) > 1:
        raise EncoderError(
            f"scores all {n:,} pairs of query and passage {values[0]:.6g}",
            where=guide.info.name,
            remedy="use another guide: this one cannot tell texts apart",
        )


def _by_rows(
    plan: PairTexts,
    to_score: Sequence[Triplets],
    guide: Encoder,
    settings: Settings,
    folder: Path,
    progress: Progress,
    counts: dict[str, float],
) -> list[tuple[Floats, Floats]]:
    """Return a bi-encoder's (s_qp, s_qn) for each set of triplets. Encode only the texts of these triplets."""
    queries = distinct(np.concatenate([rows.query for rows in to_score]))
    passages = distinct(np.concatenate([ids for rows in to_score for ids in (rows.positive, rows.negative)]))
    texts = plan.queries.only(queries), plan.passages.only(passages)
    folder.mkdir()
    embedder = Embedder(*texts, guide, with_guide(settings), folder, progress)
    try:
        embedder.everything()
        counts.update(embedder.counts)
        scores = []
        for rows in to_score:
            subset = rows.restrict(queries, passages)
            dots = sweep(embedder.vectors, subset, {}, (), smallest_distance(guide)).dots
            scores.append((dots.query_positive.numpy(), dots.query_negative.numpy()))
        return scores
    finally:
        embedder.close()
        for store in texts:
            store.close()


def _by_pair(
    plan: PairTexts,
    to_score: Sequence[Triplets],
    guide: Reranker,
    settings: Settings,
    folder: Path,
    progress: Progress,
    counts: dict[str, float],
) -> list[tuple[Floats, Floats]]:
    """Return a cross-encoder's (s_qp, s_qn) for each set of triplets. Score each pair of texts once."""
    n_passages = len(plan.passages)
    codes = [
        np.stack([pairs(rows.query, ids, n_passages) for ids in (rows.positive, rows.negative)]) for rows in to_score
    ]
    every = distinct(np.concatenate([part.ravel() for part in codes]))
    query, passage = every // n_passages, every % n_passages
    progress.start("guide", len(every), "pairs")

    def texts(places: Index) -> list[tuple[str, str]]:
        return list(zip(plan.queries.take(query[places]), plan.passages.take(passage[places]), strict=True))

    keys = pair_keys(plan.queries.keys[query], plan.passages.keys[passage])
    scores = guide.scores(keys, texts, progress.advance)
    counts.update(n_pairs=len(every), n_cached=guide.n_cached, n_scored=guide.n_scored)
    return [tuple(scores[np.searchsorted(every, part)]) for part in codes]
