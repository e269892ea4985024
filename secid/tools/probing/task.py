"""Build the task that all sources are trained and compared on: queries, positives, folds and candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from secid.arrays import Index, distinct, is_known, pairs
from secid.encode import Encoder
from secid.errors import InputError
from secid.findings.copies import (
    COMPARED_PAIRS_AT_ONCE,
    MIN_SHARED_FRACTION,
    SHARE_ROUNDING,
    RunSets,
    near_copies,
    ranges_of,
    run_sets,
)
from secid.pool import Plan, PlannedSource, key_ranks, sample_order
from secid.pool.normal_form import FormKeys, TextForms, text_forms
from secid.pool.reading import read_draft
from secid.pool.texts import TextSpool, TextStore, batch_ranges
from secid.progress import Progress
from secid.read import Reader
from secid.read.collection import Collection, open_collection
from secid.records import Source
from secid.settings import Settings
from secid.triplets.embedding import Embedder
from secid.triplets.search import Bm25Index, nearest_passages

# Folds: a query that shares a relevant passage with a held-out query is never trained on.
#
# In public collections up to 65 % of the test queries share a relevant passage with a training query. A split by query
# would reward memorising that passage. Source: METHOD 13.


def query_groups(query: Index, passage: Index, copies: tuple[Index, Index], n_queries: int) -> Index:
    """Return the group of each query, (n_queries,), from 0. Queries that share a labelled positive are in one group.

    Near copies count as the same positive, and sharing is transitive. A query without a positive is a separate group.

    query, passage : (L,) labelled pairs.   copies : pairs of passages that nearly copy each other. Source: METHOD 13.
    """
    n_passages = 1 + int(max([-1, *(part.max() for part in (passage, *copies) if len(part))]))
    size = n_queries + n_passages
    first = np.concatenate([query, copies[0] + n_queries])
    second = np.concatenate([passage, copies[1]]) + n_queries
    graph = sparse.coo_matrix((np.ones(len(first), np.bool_), (first, second)), shape=(size, size))
    of_all = sparse.csgraph.connected_components(graph, directed=False)[1][:n_queries]
    return np.unique(of_all, return_inverse=True)[1].astype(np.int64)


def folds(group: Index, queries: TextStore, ids: Index, n_folds: int, seed: int) -> Index:
    """Return the fold of each row, (R,), from 0, by a hash of its group. The order of rows does not change it.

    group : (R,) group of each row.   ids : (R,) id of each row's query in `queries`.
    """
    numbers = sample_order(queries.keys[ids], seed)
    smallest = np.full(int(group.max(initial=-1)) + 1, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(smallest, group, numbers)  # the member with the smallest hash represents its group
    return (smallest[group] % np.uint64(n_folds)).astype(np.int64)


def copies_among(runs: RunSets) -> tuple[Index, Index]:
    """Return pairs of passages in which one is a near copy of the other, as two arrays (n,) of places in `runs`.

    runs : word runs of all passages. A near copy holds 80 % of the other text's runs. So if we take that text's rarest
    20 % and one more, it holds at least one of them. Only pairs that share such a rare run are compared, so a phrase
    that all texts share adds no pairs.
    """
    n = len(runs.offsets) - 1
    owner = np.repeat(np.arange(n), runs.sizes)
    _, column, uses = np.unique(runs.keys, return_inverse=True, return_counts=True)
    order = np.lexsort((column, uses[column], owner))
    place = np.arange(len(owner)) - np.repeat(runs.offsets[:-1], runs.sizes)
    rare = place <= (1 - MIN_SHARED_FRACTION) * runs.sizes[owner] + SHARE_ROUNDING
    holds = _table(owner, column, n, len(uses))
    shared = (_table(owner[rare], column[order][rare], n, len(uses)) @ holds.T).tocoo()
    keys = distinct(pairs(np.minimum(shared.row, shared.col), np.maximum(shared.row, shared.col), n))
    first, second = keys // n, keys % n
    other = first != second
    first, second = first[other], second[other]
    near = np.zeros(len(first), np.bool_)
    for start in range(0, len(first), COMPARED_PAIRS_AT_ONCE):
        part = slice(start, start + COMPARED_PAIRS_AT_ONCE)
        left, right = runs.take(first[part]), runs.take(second[part])
        near[part] = near_copies(left, right) | near_copies(right, left)
    return first[near], second[near]


def _table(row: Index, column: Index, n_rows: int, n_columns: int) -> Any:
    return sparse.csr_matrix((np.ones(len(row), np.float32), (row, column)), shape=(n_rows, max(1, n_columns)))


# The task: queries, positives, folds and candidates, the same for all sources. Source: METHOD 13.

TEXTS_AT_ONCE = 4_096
MIN_SECOND_POSITIVE_SHARE = 0.1
"""Minimum share of rows with a second positive for the control `known_positive`. With fewer it would show nothing."""


@dataclass(frozen=True)
class RowLists:
    """A list of passages for each of R rows. Row r has ids[offsets[r]:offsets[r+1]]."""

    ids: Index
    offsets: Index

    @classmethod
    def of_counts(cls, ids: Index, counts: Iterable[int]) -> RowLists:
        """Return lists from concatenated ids. counts : number of ids of each row."""
        return cls(ids, np.cumsum([0, *counts]))

    @property
    def counts(self) -> Index:
        """Return the number of passages of each row, (R,)."""
        return np.diff(self.offsets)

    def of(self, row: int) -> Index:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    @property
    def rows(self) -> Index:
        """Return the row of each passage, (L,)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def take(self, rows: Index) -> RowLists:
        return RowLists.of_counts(self.ids[ranges_of(self.offsets[rows], self.counts[rows])], self.counts[rows])

    def by_id(self) -> RowLists:
        """Return the lists with the passages of each row sorted by id."""
        return RowLists(self.ids[np.lexsort((self.ids, self.rows))], self.offsets)

    def first(self, counts: Index) -> RowLists:
        """Return the first passages of each row. counts : (R,) number to take, at most the row's own."""
        return RowLists.of_counts(self.ids[ranges_of(self.offsets[:-1], counts)], counts)


class NegativeSource(NamedTuple):
    """The origin of a training's negatives: a source, or a control. The two may have the same name."""

    name: str
    control: bool = False


@dataclass(frozen=True)
class Task:
    """R rows, one for each query that has negatives in every source, and the passages that they are ranked against.

    Texts with the same normal form count as one text, so a spelling variant is not another passage.

    queries, passages : stores of the texts.   query : (R,) id of each row's query in `queries`.
    positives  : all labelled positives of each row's query.
    negatives  : negatives of each source, by name. All sources have the same number in a row.
    group, fold : (R,) group and fold of each row. Rows of a group are held out together.
    candidates : rising ids of the passages that held-out queries rank.
    n_left_out : number of queries that a source lacks or that have no positive.
    missing    : reason why a control could not be made, by kind.
    """

    queries: TextStore
    passages: TextStore
    query: Index
    positives: RowLists
    negatives: Mapping[str, RowLists]
    controls: Mapping[str, RowLists]
    group: Index
    fold: Index
    candidates: Index
    n_left_out: int
    missing: Mapping[str, str]
    folder: Path

    @cached_property
    def sources(self) -> dict[NegativeSource, RowLists]:
        """Return the negatives of all sources, then of the controls.

        They are sorted by id in each row, so that their order in a file has no effect.
        """
        sources = {NegativeSource(name): lists.by_id() for name, lists in self.negatives.items()}
        return sources | {NegativeSource(name, control=True): lists.by_id() for name, lists in self.controls.items()}

    @cached_property
    def relevant(self) -> Index:
        """Return row * n_passages + passage of all labelled positives, sorted."""
        return distinct(pairs(self.positives.rows, self.positives.ids, len(self.passages)))

    def close(self) -> None:
        self.queries.close()
        self.passages.close()


def read_task(
    readers: Sequence[Source | Reader], settings: Settings, folder: Path, progress: Progress, n_folds: int
) -> tuple[Task, list[Reader]]:
    """Read the sources. Return their task and the opened readers. For parameters see `read_draft` and `make_task`."""
    plain = replace(settings, controls="none", by=None, ablate=False)  # the task makes its own controls
    draft, opened = read_draft(readers, plain, folder, progress)
    try:
        return make_task(draft.full_plan, open_collection(settings), folder, settings.seed, n_folds), opened
    finally:
        draft.close()


def make_task(plan: Plan, collection: Collection, folder: Path, seed: int, n_folds: int) -> Task:
    """Return the task of a plan's sources.

    A row is a query with a positive, and with a negative in every source. Every source gives it as many negatives as
    the source with the fewest has.

    collection : its passages are also candidates.   folder : folder for spool files.
    Raises InputError if there is no such query.
    """
    queries, passages, place = _texts(plan, collection, folder)
    n = len(passages)
    query_of = text_forms(plan.queries)
    first_query = _representatives(plan.queries, query_of)[query_of.number]
    known_query, known_passage = plan.known_positives // len(plan.passages), plan.known_positives % len(plan.passages)
    labelled = distinct(pairs(first_query[known_query], place[known_passage], n))
    of_sources = {planned.name: _negatives(planned, first_query, place, n) for planned in plan.sources}
    queries_of = {name: distinct(keys // n) for name, keys in of_sources.items()}
    shared = distinct(labelled // n)
    for numbers in queries_of.values():
        shared = shared[is_known(shared, numbers)]
    if not len(shared):
        counts = ", ".join(f"{name} {len(numbers):,}" for name, numbers in queries_of.items())
        raise InputError(
            f"no query has both a positive and a negative in every source (queries with negatives: {counts})",
            remedy="compare sources that were mined for the same queries",
        )
    shared = shared[np.argsort(key_ranks(plan.queries.keys)[shared])]
    lists = {name: _of_rows(keys, shared, n) for name, keys in of_sources.items()}
    fewest = np.minimum.reduce([part.counts for part in lists.values()])
    positives = _of_rows(labelled, shared, n)
    group = query_groups(positives.rows, positives.ids, _copies(passages, distinct(positives.ids)), len(shared))
    random = _random(positives, fewest, n, seed)
    controls: dict[str, RowLists | str] = {"random": random, "known_positive": _known_positive(positives, random)}
    return Task(
        queries=queries,
        passages=passages,
        query=shared,
        positives=positives,
        negatives={name: part.first(fewest) for name, part in lists.items()},
        controls={kind: part for kind, part in controls.items() if isinstance(part, RowLists)},
        group=group,
        fold=folds(group, queries, shared, n_folds, seed),
        candidates=np.arange(n),
        n_left_out=len(distinct(np.concatenate(list(queries_of.values())))) - len(shared),
        missing={kind: reason for kind, reason in controls.items() if isinstance(reason, str)},
        folder=folder,
    )


def _texts(plan: Plan, collection: Collection, folder: Path) -> tuple[TextStore, TextStore, Index]:
    """Return the stores of queries and passages, and the new id of each passage of the plan.

    One passage of each normal form is kept. Ids follow the order of text keys, so that the order of files changes
    neither draws nor ties.
    """
    spools = TextSpool("query", folder / "probe-queries.txt"), TextSpool("passage", folder / "probe-passages.txt")
    for store, spool in ((plan.queries, spools[0]), (plan.passages, spools[1])):
        for start in range(0, len(store), TEXTS_AT_ONCE):
            spool.add(store.get(start, start + TEXTS_AT_ONCE))
    texts = (text for text in collection.passages() if text.strip())
    while part := list(islice(texts, TEXTS_AT_ONCE)):
        spools[1].add(part)
    queries, whole = (spool.store()[0] for spool in spools)
    forms = text_forms(whole)
    of_form = _representatives(whole, forms)
    by_key = np.argsort(key_ranks(whole.keys)[of_form])
    return queries, whole.only(of_form[by_key]), np.argsort(by_key)[forms.number][: len(plan.passages)]


def _representatives(store: TextStore, forms: TextForms) -> Index:
    """Return the text of each normal form that has the smallest key, (n_forms,). The order of files changes nothing."""
    order = np.argsort(key_ranks(store.keys))
    return order[np.unique(forms.number[order], return_index=True)[1]]


def _negatives(planned: PlannedSource, first_query: Index, place: Index, n: int) -> Index:
    """Return query * n + passage of each distinct negative, in the order of the file."""
    keys = pairs(first_query[planned.query[planned.triplet_record()]], place[planned.negatives], n)
    return keys[np.sort(np.unique(keys, return_index=True)[1])]


def _of_rows(keys: Index, queries: Index, n: int) -> RowLists:
    """Return the passages of each of these queries, in the order of the keys. keys : query * n + passage."""
    order = np.argsort(queries, kind="stable")
    query = keys // n
    keep = is_known(query, queries[order])
    row = order[np.searchsorted(queries[order], query[keep])]
    by_row = np.argsort(row, kind="stable")
    return RowLists.of_counts((keys % n)[keep][by_row], np.bincount(row, minlength=len(queries)))


def _copies(passages: TextStore, ids: Index) -> tuple[Index, Index]:
    """Return pairs of these passages that nearly copy each other."""
    first, second = copies_among(run_sets(FormKeys.of(passages.packed_of(ids))))
    return ids[first], ids[second]


def _random(positives: RowLists, counts: Index, n: int, seed: int) -> RowLists:
    """Draw random passages for each row that are not positives of its query. counts : (R,) number for each row.

    A row gets fewer if too few passages are not its positives. If it gets none, all rows are in one group and nothing
    is trained.
    """
    generator, drawn = np.random.default_rng([seed, 3]), []
    for row, count in enumerate(counts.tolist()):
        excluded = positives.of(row)
        ids = generator.choice(n, min(n, count + len(excluded)), replace=False)
        drawn.append(ids[~np.isin(ids, excluded)][:count])
    return _joined(drawn)


def _known_positive(positives: RowLists, random: RowLists) -> RowLists | str:
    """Return each row's positives except the first, else random passages; a reason if too few rows have a second."""
    several = positives.counts > 1
    if several.mean() < MIN_SECOND_POSITIVE_SHARE:
        return "few_second_positives"
    row_lists = [positives.of(row)[1:] if several[row] else random.of(row) for row in range(len(several))]
    return _joined(row_lists)


def _joined(lists: list[Index]) -> RowLists:
    """Return these lists, one for each row."""
    return RowLists.of_counts(np.concatenate(lists), map(len, lists))


# Choose the passages that held-out queries rank, if there are too many to encode all of them after every training.
#
# Source: METHOD 13.

MAX_CANDIDATES = 20_000
"""Maximum number of passages that are encoded after a training. Source: METHOD 13."""
MAX_LIST_DEPTH = 50
"""Maximum number of passages that each list gives for a held-out query. Source: METHOD 13."""


def candidates_of(
    task: Task, rows: Index, encoder: Encoder, settings: Settings, progress: Progress
) -> tuple[Index, int | None]:
    """Return the rising ids of the passages that these held-out rows rank, and the depth of their lists.

    If the task has at most MAX_CANDIDATES passages, all are candidates and the depth is None. Otherwise the candidates
    are the rows' positives and the first passages of several lists for each row: each source's negatives, the nearest
    by the frozen encoder, and the best by BM25. The depth is the largest up to MAX_LIST_DEPTH that gives at most
    MAX_CANDIDATES, but at least 1.
    """
    if len(task.passages) <= MAX_CANDIDATES:
        return np.arange(len(task.passages)), None
    lists = [part.take(rows) for part in task.negatives.values()]
    lists += [_dense(task, rows, encoder, settings, progress), _bm25(task, rows)]
    for depth in range(MAX_LIST_DEPTH, 0, -1):
        parts = [part.first(np.minimum(part.counts, depth)).ids for part in lists]
        ids = distinct(np.concatenate([task.positives.take(rows).ids, *parts]))
        if len(ids) <= MAX_CANDIDATES:
            break
    return ids, depth


def _dense(task: Task, rows: Index, encoder: Encoder, settings: Settings, progress: Progress) -> RowLists:
    queries, every = task.query[rows], np.arange(len(task.passages))
    with closing(Embedder(task.queries, task.passages, encoder, settings, task.folder, progress)) as embedder:
        embedder.need(queries, every)
        places, _ = nearest_passages(embedder.vectors, queries, every, MAX_LIST_DEPTH)
    return RowLists.of_counts(places.ravel(), np.full(len(rows), places.shape[1]))


def _bm25(task: Task, rows: Index) -> RowLists:
    """Return the passages with the highest BM25 scores for each row's query. Each shares a token with the query."""
    passages = task.passages
    documents = (
        passages.packed(start, stop) for start, stop in batch_ranges(len(passages), TEXTS_AT_ONCE, passages.lengths)
    )
    index = Bm25Index(task.queries.packed_of(task.query[rows]), documents, "multilingual")
    places, _ = index.best(np.arange(len(rows)), MAX_LIST_DEPTH)
    return RowLists.of_counts(places[places >= 0], (places >= 0).sum(axis=1))
