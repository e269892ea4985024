"""One training of the probe: a source, a fold held out, a seed and a rate, to the measures of each held-out query.

All draws go by seed and fold alone, so that every source meets the same batches. Source: METHOD 13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from secid.arrays import Flags, Floats, Index, among, pairs
from secid.encode.batching import Tokens
from secid.errors import NonFiniteEmbeddingError
from secid.measure.blocks import Vectors
from secid.pool.texts import TextStore
from secid.probing.learner import DivergedError, Learner, Step
from secid.probing.options import Options
from secid.probing.task import Arm, Lists, Task
from secid.triplets.search import nearest_passages

DEEPEST = 100
"""Rank of the last passage that counts."""


class Work(NamedTuple):
    """One training and its ranking. arm : what it trains on; None ranks by the frozen encoder."""

    arm: Arm | None
    fold: int
    seed: int
    rate: float


@dataclass(frozen=True)
class HeldOut:
    """The rows that a fold holds out, and what they are ranked against, as tokens.

    rows : (n,) rows of the task.   row, place : (L,) number in `rows` and in the candidates of each relevant pair.
    """

    rows: Index
    queries: Tokens
    candidates: Tokens
    row: Index
    place: Index


def steps_of(task: Task, negatives: Lists, work: Work, batch: int) -> Iterator[Step]:
    """Batches without end: rows of the other folds in a new order each epoch, of each row a positive and a negative.

    batch : rows of a step, or all of the other folds where they are fewer; rows left over end an epoch.
    """
    rows = np.flatnonzero(task.fold != work.fold)
    order = np.random.default_rng([work.seed, work.fold, 0])
    draws = np.random.default_rng([work.seed, work.fold, 1])
    n, relevant = min(batch, len(rows)), task.relevant
    while True:
        epoch = rows[order.permutation(len(rows))]
        for start in range(0, len(epoch) - n + 1, n):
            own = epoch[start : start + n]
            positive = _drawn(task.positives, own, draws)
            passages = np.concatenate([positive, _drawn(negatives, own, draws)])
            yield Step(
                task.queries.take(task.query[own]),
                task.passages.take(passages),
                _masked(own, passages, relevant, len(task.passages)),
            )


def _drawn(lists: Lists, rows: Index, draws: np.random.Generator) -> Index:
    """One passage of each row: the same place of equally long lists whatever they hold."""
    place: Index = lists.offsets[rows] + (draws.random(len(rows)) * lists.counts[rows]).astype(np.int64)
    return np.asarray(lists.ids[place])


def _masked(rows: Index, passages: Index, relevant: Index, n_passages: int) -> Flags:
    """(b, 2b) labelled positives of a query in other rows; a row's own positive and negative stay."""
    masked: Flags = among(pairs(rows[:, None], passages[None, :], n_passages), relevant)
    own = np.arange(len(rows))
    masked[own, own] = masked[own, own + len(rows)] = False
    return masked


def held_out(task: Task, fold: int, chosen: Index, candidates: Tokens, learner: Learner) -> HeldOut:
    """The chosen rows of a fold. chosen : rows of the task that are ranked at all.   candidates : of the task."""
    rows = chosen[task.fold[chosen] == fold]
    lists = task.positives.take(rows)
    return HeldOut(
        rows=rows,
        queries=learner.tokens(task.queries.take(task.query[rows]), "query"),
        candidates=candidates,
        row=lists.rows,
        place=np.searchsorted(task.candidates, lists.ids),
    )


def train_and_rank(
    learner: Learner, task: Task, held: HeldOut, work: Work, options: Options, tick: Callable[[], None]
) -> Floats:
    """(n, 3) nDCG@10, MRR@10 and recall@100 of the held-out rows after training.

    They are of the frozen encoder where the work has no arm.

    Raises what `Learner.fit` raises, and for a vector that is not finite DivergedError, or NonFiniteEmbeddingError of
    the frozen encoder.
    """
    learner.restore()
    if work.arm is not None:
        steps = steps_of(task, task.arms[work.arm], work, options.batch)
        learner.fit(steps, options.steps, work.rate, tick)
    queries, candidates = learner.rows(held.queries, "query"), learner.rows(held.candidates, "passage")
    _check_finite(queries, task.queries, task.query[held.rows], work)
    _check_finite(candidates, task.passages, task.candidates, work)
    return measures(queries, candidates, held.row, held.place)


def _check_finite(rows: Tensor, store: TextStore, ids: Index, work: Work) -> None:
    """A score that is no number would sort before all others. rows : (n, d) of the texts with these ids."""
    wrong = (~rows.isfinite().all(dim=1)).nonzero().flatten().tolist()
    if wrong and work.arm is not None:
        raise DivergedError("the vector of a text is not finite after training")
    if wrong:
        raise NonFiniteEmbeddingError(
            f"before training the encoder returned NaN or infinity for {store.take(ids[wrong[:1]])[0][:80]!r}",
            remedy="remove the text, or use another encoder",
        )


def measures(queries: Tensor, candidates: Tensor, row: Index, place: Index) -> Floats:
    """(n, 3) nDCG@10, MRR@10 and recall@100 of each query, in [0, 1]. A passage is relevant or not. Source: METHOD 13.

    queries, candidates : (n, d) and (C, d) unit rows.   row, place : (L,) query and candidate of each relevant pair;
    each query has one at least. Candidates are in the order of their text keys.
    """
    vectors, numbers = Vectors(queries, candidates), np.arange(len(queries))
    first, _ = nearest_passages(vectors, numbers, np.arange(len(candidates)), DEEPEST)
    hit = among(pairs(numbers[:, None], first, len(candidates)), np.sort(pairs(row, place, len(candidates))))
    n_relevant = np.bincount(row, minlength=len(queries))
    discount = 1.0 / np.log2(np.arange(2, 12))
    ideal = np.concatenate([[0.0], np.cumsum(discount)])[np.minimum(n_relevant, 10)]
    at_10 = np.zeros((len(queries), 10), np.bool_)
    at_10[:, : hit.shape[1]] = hit[:, :10]
    first_hit = np.where(at_10.any(axis=1), 1.0 / (1 + at_10.argmax(axis=1)), 0.0)
    return np.stack([at_10 @ discount / ideal, first_hit, hit.sum(axis=1) / n_relevant], axis=1)
