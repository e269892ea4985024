"""The queries of a run, and the negatives of each of its sources: what `secid mine` writes and `--sweep` counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from secid.arrays import Flags, Floats, Index, best_first, distinct
from secid.arrays import pairs as pair_codes
from secid.encode import Encoder
from secid.findings.copies import spread
from secid.mining.choose import FILL, Choice, Lists, Picks, combine, fill, passing
from secid.mining.exclusions import Exclusions
from secid.mining.methods import Bm25, Dense, Hybrid, Method, MiningPlan, Random
from secid.mining.orders import Bm25Ranking, DenseRanking, RandomRanking, Ranking
from secid.mining.questions import Questions
from secid.pool import sample_order
from secid.progress import Progress
from secid.settings import Settings
from secid.triplets.embedding import Embedder
from secid.triplets.search import dots

ROWS_AT_ONCE = 4_096
"""Rows whose lists are in memory together, at most: at the default window 15 MB of each order."""
PARTS = 20
"""Parts of the rows, at least: progress is told after each, and each reads the vectors of all candidates once."""


@dataclass(frozen=True)
class Found:
    """The negatives of each source of a plan, in its order, and the scores beside them; NaN without an encoder.

    positive, s_qp : (R,) the labelled positive of each row's query that scores lowest, and its score.
    s_first : (R,) score of the row's first positive.   s_qn : of each source, (R, K), NaN where there is no negative.
    """

    positive: Index
    s_qp: Floats
    s_first: Floats
    picks: list[Picks]
    s_qn: list[Floats]


def find(
    plan: MiningPlan, questions: Questions, written: Mapping[int, Index], encoder: Encoder | None, settings: Settings,
    work: Path, progress: Progress,
) -> Found:  # fmt: skip
    """One search for all sources.

    written : (R, m) ids of the texts that a language model wrote for each row, -1 behind the last; by source.
    encoder : None to mine without one; then no source is dense.   work : an empty folder for temporary files.
    """
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    exclusions = Exclusions(questions, progress)
    with ExitStack() as stack:
        embedder = None
        if encoder is not None:
            embedder = Embedder(questions.queries, questions.passages, encoder, settings, work, progress)
            stack.callback(embedder.close)
        positive, s_qp = lowest_positives(plan, questions, exclusions, embedder)
        picks = search(plan, questions, exclusions, embedder, s_qp, written, settings, progress)
        query = questions.query[:, None]
        s_first = _scores(embedder, query, questions.first[:, None])[:, 0]
        return Found(positive, s_qp, s_first, picks, [_scores(embedder, query, own.ids) for own in picks])


def lowest_positives(
    plan: MiningPlan, questions: Questions, exclusions: Exclusions, embedder: Embedder | None
) -> tuple[Index, Floats]:
    """(R,) the labelled positive of each row's query that scores lowest, and (R,) its score; NaN without an encoder.

    So a margin holds for every one, in whatever order they are labelled; a label of a query counts for all of its
    normal form, as it does in the exclusions. Encodes what dense sources search too.
    """
    if embedder is None:
        return questions.first, np.full(len(questions.query), np.nan)
    own, forms, n = distinct(questions.query), exclusions.query_forms, len(questions.passages)
    form, passage = np.divmod(distinct(pair_codes(forms[questions.labels[0]], questions.labels[1], n)), n)
    start, stop = (np.searchsorted(form, forms[own], side) for side in ("left", "right"))
    query, passage = np.repeat(own, stop - start), passage[spread(start, stop - start)]
    dense = any(isinstance(miner.method, Dense) for miner in plan.miners)
    candidates = np.arange(questions.n_candidates if dense else 0)
    embedder.need(own, distinct(np.concatenate([candidates, passage])))
    scores = dots(embedder.vectors, query, passage)
    lowest = best_first(-scores, passage, query)[np.searchsorted(query, own)]
    place = lowest[np.searchsorted(own, questions.query)]
    return passage[place], scores[place]


def search(
    plan: MiningPlan, questions: Questions, exclusions: Exclusions, embedder: Embedder | None, s_qp: Floats,
    written: Mapping[int, Index], settings: Settings, progress: Progress,
) -> list[Picks]:  # fmt: skip
    """The negatives of each source, in the order of the plan. written : as in `find`."""
    n_rows, n = len(questions.query), questions.n_candidates
    picks = [Picks.empty(n_rows, plan.k, len(questions.passages), plan.max_reuse) for _ in plan.miners]
    number_of = {miner.name: number for number, miner in enumerate(plan.miners)}
    keys = questions.queries.keys, questions.passages.keys[:n]
    choice = Choice(exclusions, keys, plan.seed, plan.k, plan.max_reuse is not None)
    # Rows in the order of a hash of their texts: which ones a cap leaves out depends on no order of files.
    order = np.lexsort((questions.sorting, sample_order(keys[0], plan.seed)[questions.query]))
    at_random = RandomRanking(questions.queries, n, plan.seed)
    groups = _rankings(plan, questions, embedder, at_random, settings, progress)
    progress.start("mine", n_rows, "queries")
    n_at_once = min(ROWS_AT_ONCE, ceil(n_rows / PARTS))
    for start in range(0, n_rows, n_at_once):
        rows = order[start : start + n_at_once]
        query, limit = questions.query[rows], s_qp[rows]
        for ranking, numbers in groups:
            lists = choice.lists(ranking, query, limit, [plan.miners[number] for number in numbers])
            for number in numbers:
                choice.choose(plan.miners[number], number, picks[number], rows, lists)
        for number, ids in written.items():
            texts = ids[rows]
            lists = Lists(
                at_random, query, limit, texts, np.full(texts.shape, np.nan), exclusions.codes(query, texts),
                np.ones(len(rows), np.bool_),
            )  # fmt: skip
            choice.choose(plan.miners[number], number, picks[number], rows, lists)
        for number, miner in enumerate(plan.miners):
            if isinstance(miner.method, Hybrid):
                parts = [(number_of[name], count) for name, count in miner.method.parts]
                combine(parts, picks, number, rows, exclusions)
                picks[number].excluded = sum((picks[part].excluded for part, _ in parts), 0 * picks[number].excluded)
        progress.advance(len(rows))
    if plan.on_short == "random":
        short = [order[own.why[order] > 0] for own in picks]
        progress.start("fill", sum(map(len, short)), "queries")
        for miner, filled, rows in zip(plan.miners, picks, short, strict=True):
            for row in rows.tolist():
                asked = questions.query[row : row + 1]
                passes = partial(_passes, miner.method, embedder, asked, s_qp[row])
                fill(filled, row, FILL, asked, passes, at_random, exclusions)
                progress.advance(1)
    return picks


def _passes(method: Method, embedder: Embedder | None, query: Index, s_qp: float, ids: Index) -> Flags:
    """(n,) which candidates pass a method's margins and maximum. query : (1,).   ids : (n,)."""
    scores = np.full(len(ids), np.nan)
    if embedder is not None and isinstance(method, Dense):
        scores = dots(embedder.vectors, np.repeat(query, len(ids)), ids)
    return np.logical_and(*passing(method, scores, np.asarray(s_qp)))


def _rankings(
    plan: MiningPlan, questions: Questions, embedder: Embedder | None, at_random: Ranking, settings: Settings,
    progress: Progress,
) -> list[tuple[Ranking, list[int]]]:  # fmt: skip
    """Each order that is needed, with the numbers of the sources that take from it."""
    n = questions.n_candidates

    def bm25() -> Ranking:
        progress.start("index", n, "texts")
        return Bm25Ranking(questions.queries, questions.passages, n, settings.tokenizer, progress.advance)

    makers: dict[type, Callable[[], Ranking]] = {Random: lambda: at_random, Bm25: bm25}
    if embedder is not None:
        vectors = embedder.vectors
        makers[Dense] = lambda: DenseRanking(vectors, n)
    numbers = {
        kind: [number for number, miner in enumerate(plan.miners) if isinstance(miner.method, kind)] for kind in makers
    }
    return [(maker(), numbers[kind]) for kind, maker in makers.items() if numbers[kind]]


def _scores(embedder: Embedder | None, queries: Index, ids: Index | npt.NDArray[np.int32]) -> Floats:
    """(R, m) dot products of the queries (R, 1) and passages (R, m), NaN where the id is -1 or there is no encoder."""
    scores = np.full(ids.shape, np.nan)
    taken = ids >= 0
    if embedder is not None and taken.any():
        own = ids[taken].astype(np.int64)
        embedder.need(np.zeros(0, np.int64), distinct(own))
        scores[taken] = dots(embedder.vectors, np.broadcast_to(queries, ids.shape)[taken], own)
    return scores
