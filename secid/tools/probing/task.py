"""What every source is trained and judged on: the same queries, positives, folds and candidates."""

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
    MIN_SHARED_FRACTION,
    PAIRS_AT_ONCE,
    SHARE_ROUNDING,
    RunSets,
    near_copies,
    ranges_of,
    run_sets,
)
from secid.pool import Plan, PlannedSource, key_ranks, sample_order
from secid.pool.normal_form import FormKeys, TextForms, text_forms
from secid.pool.reading import read_draft
from secid.pool.texts import TextSpool, TextStore, pieces
from secid.progress import Progress
from secid.read import Reader
from secid.read.collection import Collection, open_collection
from secid.records import Source
from secid.settings import Settings
from secid.triplets.embedding import Embedder
from secid.triplets.search import Bm25Index, nearest_passages

# Which queries may be trained on while others are held out: none that share a relevant passage with those.
#
# In public collections up to 65 % of the test queries share one with a training query, and a split by query then
# rewards memorising it. Source: METHOD 13.


def query_groups(query: Index, passage: Index, copies: tuple[Index, Index], n_queries: int) -> Index:
    """(n_queries,) group of each query, from 0: queries joined by labelled positives, directly or through others.

    query, passage : (L,) the labelled pairs.   copies : pairs of passages that nearly copy each other.
    A query without a pair is a group of its own. Source: METHOD 13.
    """
    n_passages = 1 + int(max([-1, *(part.max() for part in (passage, *copies) if len(part))]))
    size = n_queries + n_passages
    first = np.concatenate([query, copies[0] + n_queries])
    second = np.concatenate([passage, copies[1]]) + n_queries
    graph = sparse.coo_matrix((np.ones(len(first), np.bool_), (first, second)), shape=(size, size))
    of_all = sparse.csgraph.connected_components(graph, directed=False)[1][:n_queries]
    return np.unique(of_all, return_inverse=True)[1].astype(np.int64)


def folds(group: Index, queries: TextStore, ids: Index, n_folds: int, seed: int) -> Index:
    """(R,) fold of each row by a hash of its group, from 0; the same in whatever order the rows come.

    group : (R,) of each row.   ids : (R,) its query in `queries`.
    """
    numbers = sample_order(queries.keys[ids], seed)
    smallest = np.full(int(group.max(initial=-1)) + 1, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(smallest, group, numbers)  # one member stands for the group
    return (smallest[group] % np.uint64(n_folds)).astype(np.int64)


def copies_among(runs: RunSets) -> tuple[Index, Index]:
    """(n,) each, the pairs of passages of which one nearly copies the other, by the rule of `near_copy`.

    runs : of all passages. Whoever holds 80 % of a text's runs holds one of its rarest 20 % and one more, so only pairs
    that share one of these are compared: a phrase that all texts share costs nothing.
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
    for start in range(0, len(first), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        left, right = runs.take(first[part]), runs.take(second[part])
        near[part] = near_copies(left, right) | near_copies(right, left)
    return first[near], second[near]


def _table(row: Index, column: Index, n_rows: int, n_columns: int) -> Any:
    return sparse.csr_matrix((np.ones(len(row), np.float32), (row, column)), shape=(n_rows, max(1, n_columns)))


# What every source is trained and judged on: the same queries, positives, folds and candidates. Source: METHOD 13.

TEXTS_AT_ONCE = 4_096
LEAST_SECOND_POSITIVES = 0.1
"""Share of the rows that need a second positive for the control `known_positive` to say anything."""


@dataclass(frozen=True)
class RowLists:
    """A list of passages for each of R rows: row r's are ids[offsets[r]:offsets[r+1]]."""

    ids: Index
    offsets: Index

    @classmethod
    def of_counts(cls, ids: Index, counts: Iterable[int]) -> RowLists:
        """Make lists of the ids of all rows, one after the other, `counts` of each."""
        return cls(ids, np.cumsum([0, *counts]))

    @property
    def counts(self) -> Index:
        """(R,) passages of each row."""
        return np.diff(self.offsets)

    def of(self, row: int) -> Index:
        """The passages of a row."""
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    @property
    def rows(self) -> Index:
        """(L,) row of each passage."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def take(self, rows: Index) -> RowLists:
        """The lists of these rows."""
        return RowLists.of_counts(self.ids[ranges_of(self.offsets[rows], self.counts[rows])], self.counts[rows])

    def by_id(self) -> RowLists:
        """The same, of each row the passages by id."""
        return RowLists(self.ids[np.lexsort((self.ids, self.rows))], self.offsets)

    def first(self, counts: Index) -> RowLists:
        """Return the first of each row. counts : (R,) how many, at most what the row has."""
        return RowLists.of_counts(self.ids[ranges_of(self.offsets[:-1], counts)], counts)


class NegativeSource(NamedTuple):
    """What a training draws its negatives from: a source, or the control of that name, which is not the same."""

    name: str
    control: bool = False


@dataclass(frozen=True)
class Task:
    """R rows, one a query that all sources have negatives for, and what they are judged by.

    Texts of one normal form are one text here, so that no spelling makes a passage another one.

    queries, passages : the texts.   query : (R,) ids in `queries`.
    positives  : all labelled positives of each row's query.
    negatives  : by name of source; of each row the same number for all.   controls : the same by kind.
    group, fold : (R,) which rows must stay together, and where they are held out.
    candidates : rising ids of the passages that held-out queries rank.
    n_left_out : queries of some source that another one lacks, or that have no positive.
    missing    : controls that could not be made, with the kind of reason.
    folder     : of the spool files.
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
        """The negatives of all sources, then those of the controls, of each row by id: rows of a file have no order."""
        sources = {NegativeSource(name): own.by_id() for name, own in self.negatives.items()}
        return sources | {NegativeSource(name, control=True): own.by_id() for name, own in self.controls.items()}

    @cached_property
    def relevant(self) -> Index:
        """Sorted row * n_passages + passage of all labelled positives."""
        return distinct(pairs(self.positives.rows, self.positives.ids, len(self.passages)))

    def close(self) -> None:
        """Lets go of the spool files."""
        self.queries.close()
        self.passages.close()


def read_task(
    readers: Sequence[Source | Reader],
    settings: Settings,
    folder: Path,
    progress: Progress,
    n_folds: int,
) -> tuple[Task, list[Reader]]:
    """The task of these sources, and what was read. The parameters are those of `read_draft` and `make_task`."""
    own = replace(settings, controls="none", by=None, ablate=False)  # the task makes its own controls
    draft, opened = read_draft(readers, own, folder, progress)
    try:
        return make_task(draft.whole, open_collection(settings), folder, settings.seed, n_folds), opened
    finally:
        draft.close()


def make_task(plan: Plan, collection: Collection, folder: Path, seed: int, n_folds: int) -> Task:
    """The task of a plan's sources. plan : with all that was read.

    collection : its passages are candidates, too.   folder : for spool files.
    A row is a query that has at least one negative in every source: of each source as many as the one with fewest has.
    Raises InputError where there is none.
    """
    queries, passages, place = _texts(plan, collection, folder)
    n = len(passages)
    query_of = text_forms(plan.queries)
    first_query = _representatives(plan.queries, query_of)[query_of.number]
    known_query, known_passage = plan.known_positives // len(plan.passages), plan.known_positives % len(plan.passages)
    labelled = distinct(pairs(first_query[known_query], place[known_passage], n))
    of_sources = {planned.name: _negatives(planned, first_query, place, n) for planned in plan.sources}
    asked = {name: distinct(keys // n) for name, keys in of_sources.items()}
    shared = distinct(labelled // n)
    for own in asked.values():
        shared = shared[is_known(shared, own)]
    if not len(shared):
        counts = ", ".join(f"{name} has {len(own):,}" for name, own in asked.items())
        raise InputError(
            f"no query has a positive, and a negative in every source: {counts}",
            remedy="compare sources that were mined for the same queries",
        )
    shared = shared[np.argsort(key_ranks(plan.queries.keys)[shared])]
    lists = {name: _of_rows(keys, shared, n) for name, keys in of_sources.items()}
    fewest = np.minimum.reduce([own.counts for own in lists.values()])
    positives = _of_rows(labelled, shared, n)
    group = query_groups(positives.rows, positives.ids, _copies(passages, distinct(positives.ids)), len(shared))
    random = _random(positives, fewest, n, seed)
    controls: dict[str, RowLists | str] = {"random": random, "known_positive": _known_positive(positives, random)}
    return Task(
        queries=queries,
        passages=passages,
        query=shared,
        positives=positives,
        negatives={name: own.first(fewest) for name, own in lists.items()},
        controls={kind: own for kind, own in controls.items() if isinstance(own, RowLists)},
        group=group,
        fold=folds(group, queries, shared, n_folds, seed),
        candidates=np.arange(n),
        n_left_out=len(distinct(np.concatenate(list(asked.values())))) - len(shared),
        missing={kind: reason for kind, reason in controls.items() if isinstance(reason, str)},
        folder=folder,
    )


def _texts(plan: Plan, collection: Collection, folder: Path) -> tuple[TextStore, TextStore, Index]:
    """Queries and passages of their own spool, and of each passage of the plan the id of its form's text.

    Passages are numbered by their keys, so that neither draws nor ties of scores go by the order of files.
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
    """(n_forms,) of each normal form the text whose key comes first, whatever order the files have."""
    order = np.argsort(key_ranks(store.keys))
    return order[np.unique(forms.number[order], return_index=True)[1]]


def _negatives(planned: PlannedSource, first_query: Index, place: Index, n: int) -> Index:
    """query * n + passage of each negative, in the order of the file, each once."""
    keys = pairs(first_query[planned.query[planned.triplet_record()]], place[planned.negatives], n)
    return keys[np.sort(np.unique(keys, return_index=True)[1])]


def _of_rows(keys: Index, queries: Index, n: int) -> RowLists:
    """The passages of each of these queries, in the order of the keys."""
    order = np.argsort(queries, kind="stable")
    query = keys // n
    keep = is_known(query, queries[order])
    row = order[np.searchsorted(queries[order], query[keep])]
    by_row = np.argsort(row, kind="stable")
    return RowLists.of_counts((keys % n)[keep][by_row], np.bincount(row, minlength=len(queries)))


def _copies(passages: TextStore, ids: Index) -> tuple[Index, Index]:
    """Pairs of these passages that nearly copy each other."""
    first, second = copies_among(run_sets(FormKeys.of(passages.packed_of(ids))))
    return ids[first], ids[second]


def _random(positives: RowLists, counts: Index, n: int, seed: int) -> RowLists:
    """So many of n passages for each row, drawn at random; none a positive of its query.

    A row has none only where all passages are its positives; then all rows are one group, and nothing is trained.
    """
    generator, drawn = np.random.default_rng([seed, 3]), []
    for row, count in enumerate(counts.tolist()):
        own = positives.of(row)
        ids = generator.choice(n, min(n, count + len(own)), replace=False)
        drawn.append(ids[~np.isin(ids, own)][:count])
    return _joined(drawn)


def _known_positive(positives: RowLists, random: RowLists) -> RowLists | str:
    """The other labelled positives of each query; random passages for those that have one alone."""
    several = positives.counts > 1
    if several.mean() < LEAST_SECOND_POSITIVES:
        return "few_second_positives"
    own = [positives.of(row)[1:] if several[row] else random.of(row) for row in range(len(several))]
    return _joined(own)


def _joined(lists: list[Index]) -> RowLists:
    """These lists, one a row."""
    return RowLists.of_counts(np.concatenate(lists), map(len, lists))


# Which passages the held-out queries rank where there are too many to encode after every training.
#
# Source: METHOD 13.

MOST_CANDIDATES = 20_000
"""Most passages that are encoded after a training. Source: METHOD 13."""
DEEPEST_LIST = 50
"""Passages of each list for a held-out query. Source: METHOD 13."""


def candidates_of(
    task: Task, rows: Index, encoder: Encoder, settings: Settings, progress: Progress
) -> tuple[Index, int | None]:
    """Return rising ids of the passages that these held-out rows rank, and the depth of the lists that they come from.

    These are all passages of the task if there are at most MOST_CANDIDATES; the depth is then None. Otherwise they are
    the rows' positives, and the first of each list for each row: every source's negatives, the nearest by the frozen
    encoder, and the best by BM25. The depth is the largest up to DEEPEST_LIST at which they are at most
    MOST_CANDIDATES, and at least 1.
    """
    if len(task.passages) <= MOST_CANDIDATES:
        return np.arange(len(task.passages)), None
    lists = [own.take(rows) for own in task.negatives.values()]
    lists += [_dense(task, rows, encoder, settings, progress), _bm25(task, rows)]
    for depth in range(DEEPEST_LIST, 0, -1):
        parts = [own.first(np.minimum(own.counts, depth)).ids for own in lists]
        ids = distinct(np.concatenate([task.positives.take(rows).ids, *parts]))
        if len(ids) <= MOST_CANDIDATES:
            break
    return ids, depth


def _dense(task: Task, rows: Index, encoder: Encoder, settings: Settings, progress: Progress) -> RowLists:
    """The nearest passages to each row's query."""
    queries, every = task.query[rows], np.arange(len(task.passages))
    with closing(Embedder(task.queries, task.passages, encoder, settings, task.folder, progress)) as embedder:
        embedder.need(queries, every)
        places, _ = nearest_passages(embedder.vectors, queries, every, DEEPEST_LIST)
    return RowLists.of_counts(places.ravel(), np.full(len(rows), places.shape[1]))


def _bm25(task: Task, rows: Index) -> RowLists:
    """The passages of the highest scores that share a token with each row's query."""
    passages = task.passages
    documents = (passages.packed(start, stop) for start, stop in pieces(len(passages), TEXTS_AT_ONCE, passages.lengths))
    index = Bm25Index(task.queries.packed_of(task.query[rows]), documents, "multilingual")
    places, _ = index.best(np.arange(len(rows)), DEEPEST_LIST)
    return RowLists.of_counts(places[places >= 0], (places >= 0).sum(axis=1))
