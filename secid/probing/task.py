"""What every source is trained and judged on: the same queries, positives, folds and candidates. Source: METHOD 13."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from secid.arrays import Index, among, distinct, pairs
from secid.errors import InputError
from secid.findings.copies import run_sets, spread
from secid.pool import Plan, PlannedSource, key_ranks
from secid.pool.normal_form import FormKeys, TextForms, text_forms
from secid.pool.reading import read_plan
from secid.pool.texts import TextSpool, TextStore
from secid.probing.folds import copies_among, folds, groups
from secid.progress import Progress
from secid.read import Reader
from secid.read.collection import Collection, open_collection
from secid.records import Source
from secid.settings import Settings

TEXTS_AT_ONCE = 4_096
LEAST_SECOND_POSITIVES = 0.1
"""Share of the rows that need a second positive for the control `known_positive` to say anything."""


@dataclass(frozen=True)
class Lists:
    """A list of passages for each of R rows: row r's are ids[offsets[r]:offsets[r+1]]."""

    ids: Index
    offsets: Index

    @classmethod
    def of_counts(cls, ids: Index, counts: Iterable[int]) -> Lists:
        """The ids of all rows, one after the other, so many of each."""
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

    def take(self, rows: Index) -> Lists:
        """The lists of these rows."""
        return Lists.of_counts(self.ids[spread(self.offsets[rows], self.counts[rows])], self.counts[rows])

    def by_id(self) -> Lists:
        """The same, of each row the passages by id."""
        return Lists(self.ids[np.lexsort((self.ids, self.rows))], self.offsets)

    def first(self, counts: Index) -> Lists:
        """The first so many of each row. counts : (R,) none above its own."""
        return Lists.of_counts(self.ids[spread(self.offsets[:-1], counts)], counts)


class Arm(NamedTuple):
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
    positives: Lists
    negatives: Mapping[str, Lists]
    controls: Mapping[str, Lists]
    group: Index
    fold: Index
    candidates: Index
    n_left_out: int
    missing: Mapping[str, str]
    folder: Path

    @cached_property
    def arms(self) -> dict[Arm, Lists]:
        """The negatives of all sources, then those of the controls, of each row by id: rows of a file have no order."""
        sources = {Arm(name): own.by_id() for name, own in self.negatives.items()}
        return sources | {Arm(name, control=True): own.by_id() for name, own in self.controls.items()}

    @property
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
    """The task of these sources, and what was read. The parameters are those of `read_plan` and `make_task`."""
    tasks: list[Task] = []

    def look(plan: Plan) -> None:
        tasks.append(make_task(plan, open_collection(settings), folder, settings.seed, n_folds))

    own = replace(settings, controls="none", by=None, ablate=False)  # the task makes its own controls
    plan, opened = read_plan(readers, own, folder, progress, look=look)
    plan.close()
    return tasks[0], opened


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
        shared = shared[among(shared, own)]
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
    group = groups(positives.rows, positives.ids, _copies(passages, distinct(positives.ids)), len(shared))
    random = _random(positives, fewest, n, seed)
    controls: dict[str, Lists | str] = {"random": random, "known_positive": _known_positive(positives, random)}
    return Task(
        queries=queries,
        passages=passages,
        query=shared,
        positives=positives,
        negatives={name: own.first(fewest) for name, own in lists.items()},
        controls={kind: own for kind, own in controls.items() if isinstance(own, Lists)},
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


def _of_rows(keys: Index, queries: Index, n: int) -> Lists:
    """The passages of each of these queries, in the order of the keys."""
    order = np.argsort(queries, kind="stable")
    query = keys // n
    keep = among(query, queries[order])
    row = order[np.searchsorted(queries[order], query[keep])]
    by_row = np.argsort(row, kind="stable")
    return Lists.of_counts((keys % n)[keep][by_row], np.bincount(row, minlength=len(queries)))


def _copies(passages: TextStore, ids: Index) -> tuple[Index, Index]:
    """Pairs of these passages that nearly copy each other."""
    first, second = copies_among(run_sets(FormKeys.of(passages.packed_of(ids))))
    return ids[first], ids[second]


def _random(positives: Lists, counts: Index, n: int, seed: int) -> Lists:
    """So many of n passages for each row, drawn at random; none a positive of its query.

    A row has none only where all passages are its positives; then all rows are one group, and nothing is trained.
    """
    generator, drawn = np.random.default_rng([seed, 3]), []
    for row, count in enumerate(counts.tolist()):
        own = positives.of(row)
        ids = generator.choice(n, min(n, count + len(own)), replace=False)
        drawn.append(ids[~np.isin(ids, own)][:count])
    return _joined(drawn)


def _known_positive(positives: Lists, random: Lists) -> Lists | str:
    """The other labelled positives of each query; random passages for those that have one alone."""
    several = positives.counts > 1
    if several.mean() < LEAST_SECOND_POSITIVES:
        return "few_second_positives"
    own = [positives.of(row)[1:] if several[row] else random.of(row) for row in range(len(several))]
    return _joined(own)


def _joined(lists: list[Index]) -> Lists:
    """These lists, one a row."""
    return Lists.of_counts(np.concatenate(lists), map(len, lists))
