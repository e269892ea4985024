"""Which passages the held-out queries rank where there are too many to encode after every training.

Source: METHOD 13.
"""

from __future__ import annotations

from contextlib import closing
from itertools import chain

import numpy as np

from secid.arrays import Index, distinct
from secid.encode import Encoder
from secid.pool.tokens import splitter
from secid.probing.task import TEXTS_AT_ONCE, Lists, Task
from secid.progress import Progress
from secid.settings import Settings
from secid.triplets.embedding import Embedder, rows_of_ids
from secid.triplets.search import bm25_index, nearest

MOST = 20_000
"""Passages that are encoded after every training. Source: METHOD 13."""
DEEPEST = 50
"""Passages of each list for a held-out query. Source: METHOD 13."""
QUERY_BLOCK, WINDOW = 1_024, 16_384


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
        anchors = list(rows_of_ids(embedder.vectors, "query", queries, QUERY_BLOCK))
        best = nearest(anchors, rows_of_ids(embedder.vectors, "passage", every, WINDOW), DEEPEST)[1].cpu().numpy()
    return Lists.of_counts(best.ravel(), np.full(len(rows), best.shape[1]))


def _bm25(task: Task, rows: Index) -> Lists:
    """The passages of the highest scores that share a token with each row's query."""
    split, split_document = splitter("multilingual", "query"), splitter("multilingual", "passage")
    queries = [split(text) for text in task.queries.take(task.query[rows])]
    asked = np.flatnonzero([bool(tokens) for tokens in queries])
    texts = (task.passages.get(start, start + TEXTS_AT_ONCE) for start in range(0, len(task.passages), TEXTS_AT_ONCE))
    index = bm25_index(queries, map(split_document, chain.from_iterable(texts))) if len(asked) else None
    table, keep = np.zeros((len(rows), DEEPEST), np.int64), np.zeros((len(rows), DEEPEST), np.bool_)
    if index is not None:
        table[asked], scores = index.retrieve([queries[row] for row in asked], k=DEEPEST, show_progress=False)
        keep[asked] = scores > 0
    return Lists.of_counts(table[keep], keep.sum(axis=1))
