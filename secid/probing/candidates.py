"""Which passages the held-out queries rank where there are too many to encode after every training.

Source: METHOD 13.
"""

from __future__ import annotations

from contextlib import closing

import numpy as np

from secid.arrays import Index, distinct
from secid.encode import Encoder
from secid.pool.texts import pieces
from secid.probing.task import TEXTS_AT_ONCE, Lists, Task
from secid.progress import Progress
from secid.settings import Settings
from secid.triplets.bm25 import Bm25
from secid.triplets.embedding import Embedder
from secid.triplets.search import nearest_passages

MOST = 20_000
"""Passages that are encoded after every training. Source: METHOD 13."""
DEEPEST = 50
"""Passages of each list for a held-out query. Source: METHOD 13."""


def candidates_of(
    task: Task, rows: Index, encoder: Encoder, settings: Settings, progress: Progress
) -> tuple[Index, int | None]:
    """Rising ids of the passages that these held-out rows rank, and the depth of the lists that they come from.

    All of the task where there are at most MOST, with depth None. Else the rows' positives, and the first of each list
    for each row: every source's negatives, the nearest by the frozen encoder, and the best by BM25; to the largest
    depth up to DEEPEST at which all are at most MOST, or to 1.
    """
    if len(task.passages) <= MOST:
        return np.arange(len(task.passages)), None
    lists = [own.take(rows) for own in task.negatives.values()]
    lists += [_dense(task, rows, encoder, settings, progress), _bm25(task, rows)]
    for depth in range(DEEPEST, 0, -1):
        parts = [own.first(np.minimum(own.counts, depth)).ids for own in lists]
        ids = distinct(np.concatenate([task.positives.take(rows).ids, *parts]))
        if len(ids) <= MOST:
            break
    return ids, depth


def _dense(task: Task, rows: Index, encoder: Encoder, settings: Settings, progress: Progress) -> Lists:
    """The nearest passages to each row's query."""
    queries, every = task.query[rows], np.arange(len(task.passages))
    with closing(Embedder(task.queries, task.passages, encoder, settings, task.folder, progress)) as embedder:
        embedder.need(queries, every)
        places, _ = nearest_passages(embedder.vectors, queries, every, DEEPEST)
    return Lists.of_counts(places.ravel(), np.full(len(rows), places.shape[1]))


def _bm25(task: Task, rows: Index) -> Lists:
    """The passages of the highest scores that share a token with each row's query."""
    passages = task.passages
    documents = (passages.packed(start, stop) for start, stop in pieces(len(passages), TEXTS_AT_ONCE, passages.lengths))
    index = Bm25(task.queries.packed_of(task.query[rows]), documents, "multilingual")
    places, _ = index.best(np.arange(len(rows)), DEEPEST)
    return Lists.of_counts(places[places >= 0], (places >= 0).sum(axis=1))
