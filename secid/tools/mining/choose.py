"""Which candidates of a query become negatives: the order of a method, exclusions, and the window that passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Floats, Index, best_first, first_in_row
from secid.findings.copies import CopyFinder, positives_of_pairs
from secid.measure.blocks import Vectors
from secid.pool import sample_order
from secid.pool.normal_form import EMPTY_FORM, text_forms
from secid.pool.texts import Packed, TextStore, pieces
from secid.progress import Progress
from secid.tools.mining.methods import DEPTH, Dense, Llm, Method, Miner, Random
from secid.tools.mining.questions import Questions
from secid.triplets.search import Bm25Index, nearest_passages

# Candidates that must never be a negative of a query, and why: the catalogue's rules of the texts.
#
#     false_negative     the normal form of a labelled positive of the query
#     near_copy          nearly one of them
#     query_echo         the query's own normal form
#     empty              no letter or digit, or a placeholder
#     repeat             the normal form of a candidate before it in the query's order
#
# Source: METHOD 14.

Codes = npt.NDArray[np.uint8]

EXCLUDED = ("false_negative", "near_copy", "query_echo", "empty", "repeat")
"""The reasons by their codes, 1 and up: of several, the first."""


class Exclusions:
    """The rules for all queries of a run."""

    def __init__(self, questions: Questions, progress: Progress) -> None:
        progress.start("texts", None, "")
        self._queries, self._passages = text_forms(questions.queries), text_forms(questions.passages)
        query, passage = questions.labels
        known = positives_of_pairs(self._queries.form[query], passage, self._passages.form, questions.passages)
        self._copies = CopyFinder(self._queries, self._passages, questions.passages, (), known)

    @property
    def query_forms(self) -> Index:
        """(Q,) a number that queries of one normal form share."""
        return self._queries.number

    def codes(self, queries: Index, ids: Index) -> Codes:
        """(q, m) 0 where a candidate may be a negative, else the number of the reason.

        queries : (q,).   ids : (q, m) of candidates in their order, -1 for none, which gets 0.
        """
        codes = np.zeros(ids.shape, np.uint8)
        row, place = np.nonzero(ids >= 0)
        passage, query = ids[row, place], queries[row]
        copies = self._copies.flags_of_pairs(self._queries.form[query], passage)
        form = self._passages.form[passage]
        flags = {
            "false_negative": copies["false_negative"],
            "near_copy": copies["near_copy"],
            "query_echo": (form == self._queries.form[query]) & (form != EMPTY_FORM),
            "empty": self._passages.empty[passage],
            "repeat": ~first_in_row(np.where(ids >= 0, self.forms(ids), -1))[row, place],
        }
        for name in reversed(EXCLUDED):
            codes[row[flags[name]], place[flags[name]]] = EXCLUDED.index(name) + 1
        return codes

    def forms(self, ids: Index) -> Index:
        """Numbers that candidates of one normal form share."""
        return self._passages.number[ids]


# The order in which a method takes up the candidates of a query: exact, and the same whatever else is mined.
#
# An order is asked for up to a depth: the first ones of each query, best first, padded with -1 where it has no more.
# Equal scores go by text key, as candidates do, so that no order of files or rows counts.

TEXTS_AT_ONCE = 4_096
STREAM = 4
"""Of the seed: controls draw from 1 and 2, the random reference from 3."""


class Order(NamedTuple):
    """(q, m) ids of the first m candidates of each query, -1 behind its last one, and their scores, NaN there."""

    ids: Index
    scores: Floats


class Ranking(Protocol):
    """An order for each query."""

    def first(self, queries: Index, depth: int) -> Order:
        """The first `depth` candidates of these queries. depth: >= 1."""
        ...


class DenseRanking:
    """By the dot product with the query's row. n: candidates, ids below it, in the order of their text keys."""

    def __init__(self, vectors: Vectors, n: int) -> None:
        self._vectors, self._n = vectors, n

    def first(self, queries: Index, depth: int) -> Order:
        """As in `Ranking`."""
        return Order(*nearest_passages(self._vectors, queries, np.arange(self._n), depth))


class Bm25Ranking:
    """By BM25 over the tokens of a tokenizer; candidates that share none with the query are in no list."""

    def __init__(
        self, queries: TextStore, candidates: TextStore, n: int, tokenizer: str, tick: Callable[[int], None]
    ) -> None:
        """n : candidates, ids below it, in the order of their text keys.   tick : called with how many were read."""

        def documents() -> Iterator[Packed]:
            for start, stop in pieces(n, TEXTS_AT_ONCE, candidates.lengths[:n]):
                yield candidates.packed(start, stop)
                tick(stop - start)

        self._n, self._index = n, Bm25Index(queries.packed(0, len(queries)), documents(), tokenizer)

    def first(self, queries: Index, depth: int) -> Order:
        """As in `Ranking`."""
        return Order(*self._index.best(queries, min(depth, self._n)))


class RandomRanking:
    """Candidates in an order drawn for each query by the seed and the query's text key. n: candidates, ids below it."""

    def __init__(self, queries: TextStore, n: int, seed: int) -> None:
        self._queries, self._n, self._seed = queries, n, seed

    def first(self, queries: Index, depth: int) -> Order:
        """As in `Ranking`. Scores are NaN. An order is the beginning of every deeper one."""
        depth = min(depth, self._n)
        keys = np.ascontiguousarray(self._queries.keys[queries]).view("<u4").tolist()
        ids = np.array([self._drawn([self._seed, STREAM, *key], depth) for key in keys]).reshape(len(queries), depth)
        return Order(ids, np.full(ids.shape, np.nan))

    def _drawn(self, seed: Sequence[int], depth: int) -> Index:
        """Draws with replacement, each candidate where it comes first: so more draws change none before them."""
        n_draws = 2 * depth
        while True:
            draws = np.random.default_rng(seed).integers(self._n, size=n_draws)
            first = np.sort(np.unique(draws, return_index=True)[1])
            if len(first) >= depth:
                return draws[first[:depth]]
            n_draws *= 2


# Which candidates of a query become negatives: of an order, those in the window that pass, as the method picks them.
#
# A rank is a candidate's place in its order among those that are not excluded, from 1. A query with fewer negatives
# than asked for is short, and `why` says what ended it; only `fill` adds others to it.

WHY = ("margin", "maximum", "reused", "few_candidates", "no_common_token", "parts_ended", "few_written")
"""Why a query is short, by the numbers in `Picks.why`, 1 and up."""
OFTEN_EXCLUDED = 8
"""Candidates of an order beyond those needed: a query rarely has more that are excluded."""
DRAWN = 1 << 14
"""Candidates drawn for a short row: of rows whose positive scores lowest of all no candidate passes a margin, and each
would take seconds where a corpus has a million."""
FILL = -1
"""In `Picks.by`: a candidate drawn at random for a query that was short."""


@dataclass
class Picks:
    """The negatives of one source, R rows of up to K or all C passages, -1 and NaN behind the last one of each.

    k : negatives wanted of each row.   cap : rows that a passage may serve.
    ids, ranks : (R, min(K, C)) passage and its rank.   scores : the method's own; NaN where it has none.
    by : (R, min(K, C)) which source found it, by number, or FILL.   why : (R,) 0 or a number of WHY, before filling.
    excluded : candidates passed over, by reason: of each query those before its last negative, all of the window where
    the window was searched to its end.   used : (C,) how many rows each passage serves.
    """

    k: int
    cap: int
    ids: npt.NDArray[np.int32]
    ranks: npt.NDArray[np.int32]
    scores: Floats
    by: npt.NDArray[np.int16]
    why: npt.NDArray[np.uint8]
    used: npt.NDArray[np.int32]
    excluded: Index

    @staticmethod
    def empty(n_rows: int, k: int, n_passages: int, cap: int | None) -> Picks:
        """Those of a source that has no negative yet. cap: None for any number."""
        shape = n_rows, min(k, n_passages)
        return Picks(
            k=k,
            cap=n_rows if cap is None else cap,
            ids=np.full(shape, -1, np.int32),
            ranks=np.full(shape, -1, np.int32),
            scores=np.full(shape, np.nan),
            by=np.full(shape, FILL, np.int16),
            why=np.zeros(n_rows, np.uint8),
            used=np.zeros(n_passages, np.int32),
            excluded=np.zeros(len(EXCLUDED) + 1, np.int64),
        )

    @property
    def counts(self) -> Index:
        """(R,) negatives of each row."""
        return np.asarray((self.ids >= 0).sum(axis=1))

    def take(self, row: int, order: Order, ranks: Index, by: int, most: int, exclusions: Exclusions) -> int:
        """Adds to a row the first `most` candidates whose normal form it does not have and that may serve one more row.

        order, ranks : (m,) of distinct normal forms, in the order of preference.   by : as the field.
        Returns how many it passed over since they serve enough rows, 0 where it added as many as it could.
        """
        n = int((self.ids[row] >= 0).sum())
        new = np.ones(len(order.ids), np.bool_)
        if n:
            new = ~np.isin(exclusions.forms(order.ids), exclusions.forms(self.ids[row, :n].astype(np.int64)))
        free = new & (self.used[order.ids] < self.cap)
        places = np.flatnonzero(free)[:most]
        ids, own = order.ids[places], slice(n, n + len(places))
        self.ids[row, own], self.ranks[row, own], self.scores[row, own] = ids, ranks[places], order.scores[places]
        self.by[row, own] = by
        self.used[ids] += 1
        return int((new & ~free).sum()) if len(places) < most else 0


@dataclass(frozen=True)
class CandidateLists:
    """Candidates of q queries in one order.   codes : (q, m) of Exclusions.   complete : (q,) no more candidates.

    s_qp : (q,) score of the positive.
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
        """(q, m) which may be negatives."""
        return np.asarray((self.ids >= 0) & (self.codes == 0))


@dataclass(frozen=True)
class Choice:
    """What all sources of a run have in common. keys : text keys of all queries, (Q, 16), and of the candidates.

    capped : all of a window is needed, since other rows decide which of it can be taken.
    """

    exclusions: Exclusions
    keys: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]
    seed: int
    k: int
    capped: bool

    def lists(self, ranking: Ranking, queries: Index, s_qp: Floats, miners: Sequence[Miner]) -> CandidateLists:
        """Lists of these queries that hold all that each of the miners needs; doubled for those that do not."""
        depth = OFTEN_EXCLUDED + max(
            self._last(m) if self.capped or m.pick != "top" else min(self._last(m), m.window[0] + self.k - 1)
            for m in miners
        )
        n_candidates, pending = len(self.keys[1]), np.arange(len(queries))
        ids, scores = np.full((len(queries), 0), -1), np.full((len(queries), 0), np.nan)
        codes, complete = np.zeros((len(queries), 0), np.uint8), np.zeros(len(queries), np.bool_)
        while len(pending):
            order = ranking.first(queries[pending], depth)
            more = ((0, 0), (0, max(0, order.ids.shape[1] - ids.shape[1])))
            ids, codes = np.pad(ids, more, constant_values=-1), np.pad(codes, more)
            scores = np.pad(scores, more, constant_values=np.nan)
            ids[pending, : order.ids.shape[1]], scores[pending, : order.ids.shape[1]] = order
            codes[pending, : order.ids.shape[1]] = self.exclusions.codes(queries[pending], order.ids)
            complete[pending] = (depth >= n_candidates) | (order.ids < 0).any(axis=1)
            lists = CandidateLists(
                ranking, queries[pending], s_qp[pending], ids[pending], scores[pending], codes[pending],
                complete[pending],
            )  # fmt: skip
            enough = lists.complete | np.all([self._enough(m, lists) for m in miners], axis=0)
            pending, depth = pending[~enough], 2 * depth
        return CandidateLists(ranking, queries, s_qp, ids, scores, codes, complete)

    def _last(self, miner: Miner) -> int:
        """Last rank that lists go to; a random source under a cap reads on row by row, which few rows need."""
        return max(DEPTH, self.k) if isinstance(miner.method, Random) else miner.window[1]

    def _enough(self, miner: Miner, lists: CandidateLists) -> Flags:
        filled = lists.allowed.sum(axis=1) >= self._last(miner)
        if not (self.capped or miner.pick != "top"):
            filled |= _tested(miner, lists)[0].sum(axis=1) >= self.k
        return np.asarray(filled)

    def choose(self, miner: Miner, number: int, picks: Picks, rows: Index, lists: CandidateLists) -> None:
        """Sets the negatives of these rows, from the first one on. number : of the miner.   lists : of the queries."""
        eligible, near, above = _tested(miner, lists)
        value = np.zeros(eligible.shape) if miner.pick == "top" else self._draws(miner, lists)
        in_order = np.broadcast_to(np.arange(eligible.shape[1]), eligible.shape)
        preferred = best_first(np.where(eligible, value, -np.inf), in_order)
        rank, reused = lists.allowed.cumsum(axis=1), np.zeros(len(rows), np.int64)
        for place, (row, n) in enumerate(zip(rows.tolist(), eligible.sum(axis=1).tolist(), strict=True)):
            own = preferred[place, :n]
            order = Order(lists.ids[place, own], lists.scores[place, own])
            reused[place] = picks.take(row, order, rank[place, own], number, picks.k, self.exclusions)
            if reused[place] and isinstance(miner.method, Random) and not lists.complete[place]:
                fill(picks, row, number, lists.queries[place : place + 1], None, lists.ranking, self.exclusions)
        short = (picks.ids[rows] >= 0).sum(axis=1) < picks.k
        failed = near.sum(axis=1), above.sum(axis=1), reused
        picks.why[rows] = np.where(short, _why(miner, lists, picks.k, len(self.keys[1]), failed), 0)
        last = np.where(short | (miner.pick != "top"), miner.window[1], picks.ranks[rows].max(axis=1))
        searched = rank - lists.allowed < last[:, None]
        picks.excluded += np.bincount(lists.codes[searched], minlength=len(EXCLUDED) + 1)

    def _draws(self, miner: Miner, lists: CandidateLists) -> Floats:
        """(q, m) the largest are a draw without replacement (Gumbel top-k), by seed and both text keys.

        Equal chances for pick=random; p(n) proportional to exp(-a (s_qn - s_qp - b)^2) for simans. Source: METHOD 10.
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
    """(q, m) which candidates of the window pass, which fail the margin, and which others the maximum."""
    rank = lists.allowed.cumsum(axis=1)
    window = lists.allowed & (rank >= miner.window[0]) & (rank <= miner.window[1])
    near, below = passing(miner.method, lists.scores, lists.s_qp[:, None])
    return window & near & below, window & ~near, window & near & ~below


def passing(method: Method, s_qn: Floats, s_qp: Floats) -> tuple[Flags, Flags]:
    """(…) which candidates pass the margins of a method, and which its maximum; all where it has none."""
    near = below = np.ones(np.broadcast_shapes(s_qn.shape, s_qp.shape), np.bool_)
    if isinstance(method, Dense):  # written as "passes if", so that NaN does not
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
    """(q,) number of WHY for a short row: its window has fewer than k, or the test that most of the window failed.

    failed : (q,) each, how many candidates failed each of the first tests of WHY.
    """
    n_allowed = lists.allowed.sum(axis=1)
    n_window = np.minimum(n_allowed, miner.window[1]) - miner.window[0] + 1
    all_listed = (lists.ids >= 0).sum(axis=1) == n_candidates
    end = np.where(all_listed, WHY.index("few_candidates"), WHY.index("no_common_token"))
    if isinstance(miner.method, Llm):
        end[:] = WHY.index("few_written")
    return np.where(n_window < k, end, np.stack(failed).argmax(axis=0)).astype(np.uint8) + np.uint8(1)


def combine(
    parts: Sequence[tuple[int, int]], picks: Sequence[Picks], number: int, rows: Index, exclusions: Exclusions
) -> None:
    """Sets the negatives of a hybrid: of each part its first n, and the next ones for those that are there already.

    parts : number of a source, and n.   picks : of all sources; `number` is the hybrid's own.
    """
    own, reused = picks[number], np.zeros(len(rows), np.bool_)
    for place, row in enumerate(rows.tolist()):
        for part, n in parts:
            of, taken = picks[part], picks[part].ids[row] >= 0
            order = Order(of.ids[row, taken], of.scores[row, taken])
            reused[place] |= own.take(row, order, of.ranks[row, taken], part, n, exclusions) > 0
    why = np.where(reused, WHY.index("reused"), WHY.index("parts_ended")) + 1
    own.why[rows] = np.where((own.ids[rows] >= 0).sum(axis=1) < own.k, why, 0)


def fill(
    picks: Picks,
    row: int,
    by: int,
    query: Index,
    passes: Callable[[Index], Flags] | None,
    ranking: Ranking,
    exclusions: Exclusions,
) -> None:
    """Fills up a short row with candidates drawn at random, as far as any of DRAWN or 4 K pass.

    by : as in `Picks`.   query : (1,).   passes : which of some candidates pass the source's margins and maximum for
    this row; None where all do.
    """
    depth = 4 * picks.ids.shape[1]
    while lacking := picks.k - int((picks.ids[row] >= 0).sum()):
        order = ranking.first(query, depth)
        ids = order.ids[0, exclusions.codes(query, order.ids)[0] == 0]
        ids = ids if passes is None else ids[passes(ids)]
        none = np.full(len(ids), -1)
        picks.take(row, Order(ids, none * np.nan), none, by, lacking, exclusions)
        if depth >= min(DRAWN, len(picks.used)):
            break
        depth *= 2
