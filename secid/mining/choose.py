"""Which candidates of a query become negatives: of an order, those in the window that pass, as the method picks them.

A rank is a candidate's place in its order among those that are not excluded, from 1. Nothing is filled up here: a query
with fewer negatives than asked for is short, and `why` says what ended it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Floats, Index
from secid.mining.exclusions import EXCLUDED, Codes, Exclusions
from secid.mining.methods import Dense, Miner
from secid.mining.orders import Ranking
from secid.pool import sample_order

OnShort = Literal["keep", "drop", "random"]
WHY = ("margin", "maximum", "reused", "window_ended", "few_candidates", "no_common_token", "parts_ended", "few_written")
"""Why a query is short, by the numbers in `Picks.why`, 1 and up."""
SPARE = 8
"""Candidates of an order beyond those needed: a query rarely has more that are excluded."""
FILL = -1
"""In `Picks.by`: a candidate drawn at random for a query that was short."""


@dataclass
class Picks:
    """The negatives of one source, R rows of up to K, -1 and NaN behind the last one of each.

    ids, ranks : (R, K) candidate and its rank.   scores : (R, K) the method's own; NaN where it has none.
    by : (R, K) which source found it, by number, or FILL.   why : (R,) 0 or a number of WHY, before any filling.
    excluded : candidates passed over, by reason: of each query those before its last negative, all of the window where
    the window was searched to its end.   used : (C,) how many rows each candidate serves.
    n_written : (R,) texts that a language model wrote.   n_filled : drawn by FILL.
    """

    ids: npt.NDArray[np.int32]
    ranks: npt.NDArray[np.int32]
    scores: Floats
    by: npt.NDArray[np.int16]
    why: npt.NDArray[np.uint8]
    used: npt.NDArray[np.int32]
    n_written: Index
    excluded: Index = field(default_factory=lambda: np.zeros(len(EXCLUDED) + 1, np.int64))
    n_filled: int = 0

    @staticmethod
    def empty(n_rows: int, k: int, n_candidates: int) -> Picks:
        """Those of a source that has no negative yet."""
        shape = n_rows, k
        return Picks(
            ids=np.full(shape, -1, np.int32),
            ranks=np.full(shape, -1, np.int32),
            scores=np.full(shape, np.nan),
            by=np.full(shape, FILL, np.int16),
            why=np.zeros(n_rows, np.uint8),
            used=np.zeros(n_candidates, np.int32),
            n_written=np.zeros(n_rows, np.int64),
        )

    @property
    def counts(self) -> Index:
        """(R,) negatives of each row."""
        return np.asarray((self.ids >= 0).sum(axis=1)) + self.n_written


@dataclass(frozen=True)
class Lists:
    """Candidates of q queries in one order.   codes : (q, m) of Exclusions.   complete : (q,) no more candidates."""

    ids: Index
    scores: Floats
    codes: Codes
    complete: Flags

    @property
    def allowed(self) -> Flags:
        """(q, m) which may be negatives."""
        return np.asarray((self.ids >= 0) & (self.codes == 0))


def deep_enough(
    ranking: Ranking,
    exclusions: Exclusions,
    queries: Index,
    s_qp: Floats,
    miners: Sequence[Miner],
    k: int,
    whole: bool,
    n_candidates: int,
) -> Lists:
    """Lists of these queries that hold all that each of the miners needs; doubled for those that do not.

    whole : the whole window is needed, since other rows decide which of it can be taken.
    """
    needed = max(m.window[1] if whole or m.pick != "top" else min(m.window[1], m.window[0] + k - 1) for m in miners)
    depth, pending = needed + SPARE, np.arange(len(queries))
    ids, scores = np.full((len(queries), k), -1), np.full((len(queries), k), np.nan)
    codes, complete = np.zeros((len(queries), k), np.uint8), np.zeros(len(queries), np.bool_)
    while len(pending):
        order = ranking.first(queries[pending], depth)
        more = ((0, 0), (0, max(0, order.ids.shape[1] - ids.shape[1])))
        ids, codes = np.pad(ids, more, constant_values=-1), np.pad(codes, more)
        scores = np.pad(scores, more, constant_values=np.nan)
        ids[pending, : order.ids.shape[1]], scores[pending, : order.ids.shape[1]] = order
        codes[pending, : order.ids.shape[1]] = exclusions.codes(queries[pending], order.ids)
        complete[pending] = (depth >= n_candidates) | (order.ids < 0).any(axis=1)
        lists = Lists(ids[pending], scores[pending], codes[pending], complete[pending])
        enough = lists.complete.copy()
        enough |= np.all([_enough(m, lists, s_qp[pending], k, whole) for m in miners], axis=0)
        pending, depth = pending[~enough], 2 * depth
    return Lists(ids, scores, codes, complete)


def _enough(miner: Miner, lists: Lists, s_qp: Floats, k: int, whole: bool) -> Flags:
    filled = lists.allowed.sum(axis=1) >= miner.window[1]
    if not (whole or miner.pick != "top"):
        filled |= _tested(miner, lists, s_qp)[0].sum(axis=1) >= k
    return np.asarray(filled)


def _tested(miner: Miner, lists: Lists, s_qp: Floats) -> tuple[Flags, Flags, Flags]:
    """(q, m) which candidates of the window pass, which fail the margin, and which others the maximum."""
    rank = lists.allowed.cumsum(axis=1)
    window = lists.allowed & (rank >= miner.window[0]) & (rank <= miner.window[1])
    method, limit = miner.method, s_qp[:, None]
    if not isinstance(method, Dense):
        return window, np.zeros_like(window), np.zeros_like(window)
    near = np.ones_like(window)  # written as "passes if", so that NaN does not
    if method.relative is not None:
        near &= lists.scores < limit - method.relative * np.abs(limit)
    if method.absolute is not None:
        near &= lists.scores < limit - method.absolute
    below = np.ones_like(window) if method.maximum is None else lists.scores < method.maximum
    return window & near & below, window & ~near, window & near & ~below


def choose(
    miner: Miner,
    number: int,
    picks: Picks,
    rows: Index,
    lists: Lists,
    s_qp: Floats,
    keys: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]],
    seed: int,
    reuse: int | None,
) -> None:
    """Sets the negatives of these rows, from the first one on. number : of the miner.

    lists : of the rows' queries, as `deep_enough` gives them.   s_qp : (q,) score of the positive.
    keys : text keys of the queries (q, 16) and of all candidates.   reuse : rows that a candidate may serve.
    """
    k, (eligible, near, above) = picks.ids.shape[1], _tested(miner, lists, s_qp)
    value = np.zeros(eligible.shape) if miner.pick == "top" else _draws(miner, lists, s_qp, keys, seed)
    preferred = np.argsort(np.where(eligible, -value, np.inf), axis=1, kind="stable")
    n_eligible, reused = eligible.sum(axis=1), np.zeros(len(rows), np.int64)
    if reuse is None:
        taken = np.where(np.arange(k) < n_eligible[:, None], preferred[:, :k], -1)
    else:
        taken = np.full((len(rows), k), -1)
        for row, n in enumerate(n_eligible.tolist()):
            free = picks.used[lists.ids[row, preferred[row, :n]]] < reuse
            own = np.flatnonzero(free)[:k]
            taken[row, : len(own)] = preferred[row, own]
            reused[row] = (~free).sum() if len(own) < k else 0
            picks.used[lists.ids[row, preferred[row, own]]] += 1
    rank = lists.allowed.cumsum(axis=1)
    place = np.maximum(taken, 0)
    for target, values, empty in (
        (picks.ids, lists.ids, -1), (picks.ranks, rank, -1), (picks.scores, lists.scores, np.nan)
    ):  # fmt: skip
        target[rows] = np.where(taken >= 0, np.take_along_axis(values, place, axis=1), empty)
    picks.by[rows] = np.where(taken >= 0, number, FILL)
    if reuse is None:
        np.add.at(picks.used, picks.ids[rows][taken >= 0], 1)
    short = (taken >= 0).sum(axis=1) < k
    failed = near.sum(axis=1), above.sum(axis=1), reused
    picks.why[rows] = np.where(short, _why(miner, lists, k, len(picks.used), failed), 0)
    searched = rank - lists.allowed < miner.window[1]
    if miner.pick == "top":
        searched &= short[:, None] | (np.arange(rank.shape[1]) <= taken.max(axis=1, keepdims=True))
    picks.excluded += np.bincount(lists.codes[searched], minlength=len(EXCLUDED) + 1)


def _why(
    miner: Miner, lists: Lists, k: int, n_candidates: int, failed: tuple[Index, Index, Index]
) -> npt.NDArray[np.uint8]:
    """(q,) number of WHY for a short row: its window has fewer than k, or the test that most of the window failed.

    failed : (q,) each, how many candidates failed each of the first tests of WHY.
    """
    n_allowed = lists.allowed.sum(axis=1)
    n_window = np.minimum(n_allowed, miner.window[1]) - miner.window[0] + 1
    all_listed = (lists.ids >= 0).sum(axis=1) == n_candidates
    end = np.where(all_listed, WHY.index("few_candidates"), WHY.index("no_common_token"))
    end = np.where(n_allowed >= miner.window[1], WHY.index("window_ended"), end)
    return np.where(n_window < k, end, np.stack(failed).argmax(axis=0)).astype(np.uint8) + np.uint8(1)


def _draws(
    miner: Miner,
    lists: Lists,
    s_qp: Floats,
    keys: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]],
    seed: int,
) -> Floats:
    """(q, m) the largest are a draw without replacement (Gumbel top-k), by seed and both text keys.

    Equal chances for pick=random; p(n) proportional to exp(-a (s_qn - s_qp - b)^2) for simans. Source: METHOD 10.
    """
    query, passage = (np.ascontiguousarray(part[:, :8]).view(np.uint64).ravel() for part in keys)
    mixed = query[:, None] ^ passage[lists.ids]
    numbers = sample_order(mixed.view(np.uint8).reshape(-1, 8), seed).reshape(mixed.shape)
    uniform = ((numbers >> np.uint64(11)).astype(np.float64) + 0.5) / 2**53
    value = -np.log(-np.log(uniform))
    method = miner.method
    if isinstance(method, Dense) and method.pick == "simans":
        value -= (method.a or 0.0) * (lists.scores - s_qp[:, None] - (method.b or 0.0)) ** 2
    return np.asarray(value)


def combine(
    parts: Sequence[tuple[int, int]], picks: Sequence[Picks], number: int, rows: Index, exclusions: Exclusions,
    reuse: int | None,
) -> None:  # fmt: skip
    """Sets the negatives of a hybrid: of each part its first n, and the next ones for those that are there already.

    parts : number of a source, and n.   picks : of all sources; `number` is the hybrid's own.
    """
    own = picks[number]
    for row in rows.tolist():
        forms: set[int] = set()
        n_before, n_reused = 0, 0
        for part, n in parts:
            ids = picks[part].ids[row]
            ids = ids[ids >= 0]
            for place, (candidate, form) in enumerate(zip(ids.tolist(), exclusions.forms(ids).tolist(), strict=True)):
                if len(forms) == n_before + n:
                    break
                if form in forms:
                    continue
                if reuse is not None and own.used[candidate] >= reuse:
                    n_reused += 1
                    continue
                _set(
                    own, row, len(forms), candidate, part, picks[part].ranks[row, place], picks[part].scores[row, place]
                )
                forms.add(form)
            n_before = len(forms)
        if n_before < own.ids.shape[1]:
            own.why[row] = WHY.index("reused" if n_reused else "parts_ended") + 1


def fill(
    picks: Picks, rows: Index, queries: Index, ranking: Ranking, exclusions: Exclusions, reuse: int | None
) -> None:
    """Fills up these short rows with candidates drawn at random, as far as there are any."""
    n = len(picks.used)
    for row, query in zip(rows.tolist(), queries.tolist(), strict=True):
        before = picks.ids[row][picks.ids[row] >= 0]
        k = picks.ids.shape[1] - int(picks.n_written[row])
        forms, depth = set(exclusions.forms(before).tolist()), 4 * picks.ids.shape[1]
        start = len(before)
        while True:
            ids = ranking.first(np.array([query]), depth).ids
            allowed = ids[0, exclusions.codes(np.array([query]), ids)[0] == 0]
            new = [form not in forms for form in exclusions.forms(allowed).tolist()]
            free = allowed[np.array(new, np.bool_) & (reuse is None or picks.used[allowed] < (reuse or 0))]
            if len(free) >= k - start or depth >= n:
                break
            depth *= 2
        for place, candidate in enumerate(free[: k - start].tolist(), start):
            _set(picks, row, place, candidate, FILL, -1, np.nan)
            picks.n_filled += 1


def _set(picks: Picks, row: int, place: int, candidate: int, by: int, rank: int, score: float) -> None:
    picks.ids[row, place], picks.by[row, place] = candidate, by
    picks.ranks[row, place], picks.scores[row, place] = rank, score
    picks.used[candidate] += 1
