"""Choose the negatives of a query: rank the candidates, exclude some, and take those that pass within the window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Floats, Index, best_first, first_in_row
from secid.findings.copies import CopyFinder, forms_and_runs, positives_of_pairs
from secid.measure.blocks import Vectors
from secid.pool import sample_order
from secid.pool.normal_form import EMPTY_FORM, text_forms
from secid.pool.texts import Packed, TextStore, batch_ranges
from secid.progress import Progress
from secid.tools.mining.methods import MINING_WINDOW_END, Dense, Llm, Method, Miner, Random
from secid.tools.mining.questions import Questions
from secid.triplets.search import Bm25Index, nearest_passages

# Candidates that must never be a negative of a query are excluded by the catalogue's text rules:
#
#     false_negative     the normal form of a labelled positive of the query
#     near_copy          a near copy of a labelled positive
#     query_echo         the query's own normal form
#     empty              no letter or digit, or a placeholder
#     repeat             the normal form of an earlier candidate in the query's order
#
# Source: METHOD 14.

Codes = npt.NDArray[np.uint8]

EXCLUSION_REASONS = ("false_negative", "near_copy", "query_echo", "empty", "repeat")
"""Reasons in the order of their codes, from 1. The first that applies counts."""


class Exclusions:
    """Finds the excluded candidates of any query of a run."""

    def __init__(self, questions: Questions, progress: Progress) -> None:
        progress.start("texts", None, "")
        self._queries = text_forms(questions.queries)
        self._passages, runs = forms_and_runs(questions.passages)
        query, passage = questions.labels
        known = positives_of_pairs(self._queries.form[query], passage, self._passages.form, questions.passages)
        self._copies = CopyFinder(self._queries, self._passages, runs, questions.passages, (), known)

    @property
    def query_forms(self) -> Index:
        """Return numbers of queries, (Q,). Queries with the same normal form have the same number."""
        return self._queries.number

    def codes(self, queries: Index, ids: Index, first: int = 0) -> Codes:
        """Return codes of the candidates ids[:, first:]: 0 if one may be a negative, else the number of the reason.

        queries : (q,) ids.   ids : (q, m) candidates of each query, best first; -1 for no candidate, which gets 0.
        first   : at most m.
        """
        later = ids[:, first:]
        codes = np.zeros(later.shape, np.uint8)
        row, place = np.nonzero(later >= 0)
        passage, query = later[row, place], queries[row]
        copies = self._copies.flags_of_pairs(self._queries.form[query], passage)
        form = self._passages.form[passage]
        flags = {
            "false_negative": copies["false_negative"],
            "near_copy": copies["near_copy"],
            "query_echo": (form == self._queries.form[query]) & (form != EMPTY_FORM),
            "empty": self._passages.empty[passage],
            "repeat": ~first_in_row(np.where(ids >= 0, self.forms(ids), -1))[row, first + place],
        }
        for name in reversed(EXCLUSION_REASONS):
            codes[row[flags[name]], place[flags[name]]] = EXCLUSION_REASONS.index(name) + 1
        return codes

    def forms(self, ids: Index) -> Index:
        """Return numbers of candidates. Candidates with the same normal form have the same number."""
        return self._passages.number[ids]


# A method ranks the candidates of a query exactly, and independently of other sources.
#
# A ranking is computed up to a depth. Each query has its first candidates, best first, padded with -1 at the end. Equal
# scores are ordered by text key, as candidates are, so that the order of files or rows does not matter.

TEXTS_AT_ONCE = 4_096
MINING_RANDOM_STREAM = 4
"""Number of the random stream. Controls use streams 1 and 2, the random reference uses 3."""


class Order(NamedTuple):
    """First m candidates of each query. ids : (q, m), -1 after the last.   scores : (q, m), NaN after the last."""

    ids: Index
    scores: Floats


class Ranking(Protocol):
    """A method's ranking of the candidates of each query."""

    def first(self, queries: Index, depth: int) -> Order:
        """Return the first `depth` candidates of these queries. depth: >= 1."""
        ...


class DenseRanking:
    """Ranking by the dot product with the query's row. n: number of candidates; their ids are 0 to n - 1."""

    def __init__(self, vectors: Vectors, n: int) -> None:
        self._vectors, self._n = vectors, n

    def first(self, queries: Index, depth: int) -> Order:
        """Return the first candidates; see `Ranking`."""
        return Order(*nearest_passages(self._vectors, queries, np.arange(self._n), depth))


class Bm25Ranking:
    """Ranking by BM25 over the tokens of a tokenizer. Lists omit candidates that share no token with the query."""

    def __init__(
        self, queries: TextStore, candidates: TextStore, n: int, tokenizer: str, tick: Callable[[int], None]
    ) -> None:
        """Index the candidates with ids 0 to n - 1. tick: called with the number of candidates just read."""

        def documents() -> Iterator[Packed]:
            for start, stop in batch_ranges(n, TEXTS_AT_ONCE, candidates.lengths[:n]):
                yield candidates.packed(start, stop)
                tick(stop - start)

        self._n, self._index = n, Bm25Index(queries.packed(0, len(queries)), documents(), tokenizer)

    def first(self, queries: Index, depth: int) -> Order:
        """Return the first candidates; see `Ranking`."""
        return Order(*self._index.best(queries, min(depth, self._n)))


class RandomRanking:
    """Random ranking that depends only on the seed and the query's text key. n: number of candidates."""

    def __init__(self, queries: TextStore, n: int, seed: int) -> None:
        self._queries, self._n, self._seed = queries, n, seed

    def first(self, queries: Index, depth: int) -> Order:
        """Return the first candidates; see `Ranking`. Scores are NaN. A deeper ranking only appends candidates."""
        depth = min(depth, self._n)
        keys = np.ascontiguousarray(self._queries.keys[queries]).view("<u4").tolist()
        ids = np.array([self._drawn([self._seed, MINING_RANDOM_STREAM, *key], depth) for key in keys]).reshape(
            len(queries), depth
        )
        return Order(ids, np.full(ids.shape, np.nan))

    def _drawn(self, seed: Sequence[int], depth: int) -> Index:
        """Draw with replacement and keep the first draw of each candidate, so that more draws only append."""
        n_draws = 2 * depth
        while True:
            draws = np.random.default_rng(seed).integers(self._n, size=n_draws)
            first = np.sort(np.unique(draws, return_index=True)[1])
            if len(first) >= depth:
                return draws[first[:depth]]
            n_draws *= 2


# Candidates within the window of ranks that pass the method's tests become negatives. `pick` decides their order.
#
# A candidate's rank is its place among those that are not excluded, from 1. A row with fewer negatives than requested
# is short, and `short_reason` has the reason. Only `fill` adds random candidates to short rows.

SHORT_ROW_REASONS = ("margin", "maximum", "reused", "few_candidates", "no_common_token", "parts_ended", "few_written")
"""Reasons for short rows. `Picks.short_reason` numbers them in this order, from 1."""
EXTRA_CANDIDATES = 8
"""Extra candidates of a ranking beyond those needed. A query rarely has more excluded candidates."""
MAX_FILL_DRAWS = 1 << 14
"""Stop filling a short row after drawing this many candidates. If the positive scores lower than all candidates, none
passes a margin, and such a row would take seconds in a corpus of a million."""
FILL_NUMBER = -1
"""Value of `Picks.by` for a candidate that was drawn to fill a short row."""


@dataclass
class Picks:
    """Negatives of one source, for R rows and C passages.

    k      : number of negatives requested for each row.   cap : maximum number of rows with the same passage.
    ids, ranks : (R, min(K, C)) passage and rank of each negative; -1 after the last one of a row.
    scores : (R, min(K, C)) the method's scores; NaN without a score or a negative.
    by     : (R, min(K, C)) number of the source that found the negative, or FILL_NUMBER.
    short_reason : (R,) number of the reason in SHORT_ROW_REASONS if the row was short before filling, else 0.
    used   : (C,) number of rows that have each passage.
    excluded : number of excluded candidates, by reason. Those before a row's last negative count; if the window was
             searched to its end, all in the window.
    """

    k: int
    cap: int
    ids: npt.NDArray[np.int32]
    ranks: npt.NDArray[np.int32]
    scores: Floats
    by: npt.NDArray[np.int16]
    short_reason: npt.NDArray[np.uint8]
    used: npt.NDArray[np.int32]
    excluded: Index

    @staticmethod
    def empty(n_rows: int, k: int, n_passages: int, cap: int | None) -> Picks:
        """Return the picks of a source without negatives. cap: None for any number of rows."""
        shape = n_rows, min(k, n_passages)
        return Picks(
            k=k,
            cap=n_rows if cap is None else cap,
            ids=np.full(shape, -1, np.int32),
            ranks=np.full(shape, -1, np.int32),
            scores=np.full(shape, np.nan),
            by=np.full(shape, FILL_NUMBER, np.int16),
            short_reason=np.zeros(n_rows, np.uint8),
            used=np.zeros(n_passages, np.int32),
            excluded=np.zeros(len(EXCLUSION_REASONS) + 1, np.int64),
        )

    @property
    def counts(self) -> Index:
        """Return the number of negatives of each row, (R,)."""
        return np.asarray((self.ids >= 0).sum(axis=1))

    def take(self, row: int, order: Order, ranks: Index, by: int, most: int, exclusions: Exclusions) -> int:
        """Add up to `most` candidates to a row. Skip those that `cap` rows have, or whose normal form the row has.

        order, ranks : (m,) candidates with distinct normal forms and their ranks, best first.   by : see the field.
        Return the number of candidates skipped because of `cap`; 0 if `most` candidates were added.
        """
        n = int((self.ids[row] >= 0).sum())
        new = np.ones(len(order.ids), np.bool_)
        if n:
            new = ~np.isin(exclusions.forms(order.ids), exclusions.forms(self.ids[row, :n].astype(np.int64)))
        free = new & (self.used[order.ids] < self.cap)
        places = np.flatnonzero(free)[:most]
        ids, columns = order.ids[places], slice(n, n + len(places))
        self.ids[row, columns], self.ranks[row, columns], self.scores[row, columns] = (
            ids,
            ranks[places],
            order.scores[places],
        )
        self.by[row, columns] = by
        self.used[ids] += 1
        return int((new & ~free).sum()) if len(places) < most else 0


@dataclass(frozen=True)
class CandidateLists:
    """Candidates of q queries in one ranking.

    s_qp   : (q,) score of the positive.   codes : (q, m) codes of `Exclusions`.
    complete : (q,) True if the ranking has no more candidates.
    """

    ranking: Ranking
    queries: Index
    s_qp: Floats
    ids: Index
    scores: Floats
    codes: Codes
    complete: Flags

    @property
    def allowed(self) -> Flags:
        """Return flags of the candidates that may be negatives, (q, m)."""
        return np.asarray((self.ids >= 0) & (self.codes == 0))


@dataclass(frozen=True)
class Choice:
    """Chooses negatives, with the facts that all sources of a run share.

    keys : text keys of all queries, (Q, 16), and of the candidates.
    capped : reuse is limited. Then lists cover the whole window, because other rows may use up any candidate.
    """

    exclusions: Exclusions
    keys: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]
    seed: int
    k: int
    capped: bool

    def lists(self, ranking: Ranking, queries: Index, s_qp: Floats, miners: Sequence[Miner]) -> CandidateLists:
        """Return lists of candidates that are long enough for each miner. A list that is too short is doubled."""
        depth = EXTRA_CANDIDATES + max(
            self._last(m) if self.capped or m.pick != "top" else min(self._last(m), m.window[0] + self.k - 1)
            for m in miners
        )
        n_candidates, pending = len(self.keys[1]), np.arange(len(queries))
        ids, scores = np.full((len(queries), 0), -1), np.full((len(queries), 0), np.nan)
        codes, complete = np.zeros((len(queries), 0), np.uint8), np.zeros(len(queries), np.bool_)
        while len(pending):
            order = ranking.first(queries[pending], depth)
            n_coded, width = ids.shape[1], order.ids.shape[1]
            more = ((0, 0), (0, width - n_coded))
            ids, codes = np.pad(ids, more, constant_values=-1), np.pad(codes, more)
            scores = np.pad(scores, more, constant_values=np.nan)
            ids[pending], scores[pending] = order
            codes[pending, n_coded:] = self.exclusions.codes(queries[pending], order.ids, n_coded)
            complete[pending] = (depth >= n_candidates) | (order.ids < 0).any(axis=1)
            lists = CandidateLists(
                ranking, queries[pending], s_qp[pending], ids[pending], scores[pending], codes[pending],
                complete[pending],
            )  # fmt: skip
            enough = lists.complete | np.all([self._enough(m, lists) for m in miners], axis=0)
            pending, depth = pending[~enough], 2 * depth
        return CandidateLists(ranking, queries, s_qp, ids, scores, codes, complete)

    def _last(self, miner: Miner) -> int:
        """Return the last rank that a list needs. A random source draws more for the few rows that need them."""
        return max(MINING_WINDOW_END, self.k) if isinstance(miner.method, Random) else miner.window[1]

    def _enough(self, miner: Miner, lists: CandidateLists) -> Flags:
        filled = lists.allowed.sum(axis=1) >= self._last(miner)
        if not (self.capped or miner.pick != "top"):
            filled |= _tested(miner, lists)[0].sum(axis=1) >= self.k
        return np.asarray(filled)

    def choose(self, miner: Miner, number: int, picks: Picks, rows: Index, lists: CandidateLists) -> None:
        """Set the negatives of these rows. number: number of the miner.   lists: candidates of the rows' queries."""
        eligible, near, above = _tested(miner, lists)
        value = np.zeros(eligible.shape) if miner.pick == "top" else self._draws(miner, lists)
        in_order = np.broadcast_to(np.arange(eligible.shape[1]), eligible.shape)
        preferred = best_first(np.where(eligible, value, -np.inf), in_order)
        rank, reused = lists.allowed.cumsum(axis=1), np.zeros(len(rows), np.int64)
        for place, (row, n) in enumerate(zip(rows.tolist(), eligible.sum(axis=1).tolist(), strict=True)):
            columns = preferred[place, :n]
            order = Order(lists.ids[place, columns], lists.scores[place, columns])
            reused[place] = picks.take(row, order, rank[place, columns], number, picks.k, self.exclusions)
            if reused[place] and isinstance(miner.method, Random) and not lists.complete[place]:
                fill(picks, row, number, lists.queries[place : place + 1], None, lists.ranking, self.exclusions)
        short = (picks.ids[rows] >= 0).sum(axis=1) < picks.k
        failed = near.sum(axis=1), above.sum(axis=1), reused
        picks.short_reason[rows] = np.where(short, _why(miner, lists, picks.k, len(self.keys[1]), failed), 0)
        last = np.where(short | (miner.pick != "top"), miner.window[1], picks.ranks[rows].max(axis=1))
        searched = rank - lists.allowed < last[:, None]
        picks.excluded += np.bincount(lists.codes[searched], minlength=len(EXCLUSION_REASONS) + 1)

    def _draws(self, miner: Miner, lists: CandidateLists) -> Floats:
        """Return random values, (q, m). Taking the largest is a draw without replacement (Gumbel top-k).

        They depend only on the seed and the text keys of query and candidate. For pick=random all candidates have the
        same probability. For simans, p(n) is proportional to exp(-a (s_qn - s_qp - b)^2). Source: METHOD 10.
        """
        keys = self.keys[0][lists.queries], self.keys[1]
        query, passage = (np.ascontiguousarray(part[:, :8]).view(np.uint64).ravel() for part in keys)
        mixed = query[:, None] ^ passage[lists.ids]
        numbers = sample_order(mixed.view(np.uint8).reshape(-1, 8), self.seed).reshape(mixed.shape)
        uniform = ((numbers >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53
        value = -np.log(-np.log(uniform))
        method = miner.method
        if isinstance(method, Dense) and method.pick == "simans":
            value -= (method.a or 0.0) * (lists.scores - lists.s_qp[:, None] - (method.b or 0.0)) ** 2
        return np.asarray(value)


def _tested(miner: Miner, lists: CandidateLists) -> tuple[Flags, Flags, Flags]:
    """Return three flags of the candidates in the window, (q, m) each: pass, fail the margin, fail only the maximum."""
    rank = lists.allowed.cumsum(axis=1)
    window = lists.allowed & (rank >= miner.window[0]) & (rank <= miner.window[1])
    near, below = passing(miner.method, lists.scores, lists.s_qp[:, None])
    return window & near & below, window & ~near, window & near & ~below


def passing(method: Method, s_qn: Floats, s_qp: Floats) -> tuple[Flags, Flags]:
    """Return flags of the candidates that pass a method's margins, and of those that pass its maximum.

    They have the shape of the scores. If the method lacks a test, all candidates pass it.
    """
    near = below = np.ones(np.broadcast_shapes(s_qn.shape, s_qp.shape), np.bool_)
    if isinstance(method, Dense):  # NaN passes none of these tests
        if method.relative is not None:
            near = near & (s_qn < s_qp - method.relative * np.abs(s_qp))
        if method.absolute is not None:
            near = near & (s_qn < s_qp - method.absolute)
        if method.maximum is not None:
            below = s_qn < method.maximum
    return near, below


def _why(
    miner: Miner, lists: CandidateLists, k: int, n_candidates: int, failed: tuple[Index, Index, Index]
) -> npt.NDArray[np.uint8]:
    """Return the number of the reason in SHORT_ROW_REASONS for each query, (q,), if its row is short.

    If the window has fewer than k candidates, that is the reason. Otherwise it is the test that most candidates failed.
    failed : (q,) number of candidates that failed each of the first three tests in SHORT_ROW_REASONS.
    """
    n_allowed = lists.allowed.sum(axis=1)
    n_window = np.minimum(n_allowed, miner.window[1]) - miner.window[0] + 1
    all_listed = (lists.ids >= 0).sum(axis=1) == n_candidates
    end = np.where(all_listed, SHORT_ROW_REASONS.index("few_candidates"), SHORT_ROW_REASONS.index("no_common_token"))
    if isinstance(miner.method, Llm):
        end[:] = SHORT_ROW_REASONS.index("few_written")
    return np.where(n_window < k, end, np.stack(failed).argmax(axis=0)).astype(np.uint8) + np.uint8(1)


def combine(
    parts: Sequence[tuple[int, int]], picks: Sequence[Picks], number: int, rows: Index, exclusions: Exclusions
) -> None:
    """Set the negatives of a hybrid: the first n of each part that the row does not have yet.

    parts : (number of a source, n).   picks : picks of all sources.   number : number of the hybrid.
    """
    target, reused = picks[number], np.zeros(len(rows), np.bool_)
    for place, row in enumerate(rows.tolist()):
        for part, n in parts:
            source, present = picks[part], picks[part].ids[row] >= 0
            order = Order(source.ids[row, present], source.scores[row, present])
            reused[place] |= target.take(row, order, source.ranks[row, present], part, n, exclusions) > 0
    why = np.where(reused, SHORT_ROW_REASONS.index("reused"), SHORT_ROW_REASONS.index("parts_ended")) + 1
    target.short_reason[rows] = np.where((target.ids[rows] >= 0).sum(axis=1) < target.k, why, 0)


def fill(
    picks: Picks,
    row: int,
    by: int,
    query: Index,
    passes: Callable[[Index], Flags] | None,
    ranking: Ranking,
    exclusions: Exclusions,
) -> None:
    """Fill a short row with random candidates. Stop after drawing at least MAX_FILL_DRAWS or all candidates.

    by : as in `Picks`.   query : (1,) id of the row's query.
    passes : function that returns flags of the candidates that pass the source's tests; None if all pass.
    """
    depth = 4 * picks.ids.shape[1]
    while lacking := picks.k - int((picks.ids[row] >= 0).sum()):
        order = ranking.first(query, depth)
        ids = order.ids[0, exclusions.codes(query, order.ids)[0] == 0]
        ids = ids if passes is None else ids[passes(ids)]
        none = np.full(len(ids), -1)
        picks.take(row, Order(ids, none * np.nan), none, by, lacking, exclusions)
        if depth >= min(MAX_FILL_DRAWS, len(picks.used)):
            break
        depth *= 2
