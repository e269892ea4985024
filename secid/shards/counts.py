"""What a shard must know of the whole run: document frequencies of the pool, shared openings, hubs, shared documents.

Counted over all files once, alone or in N parts that add up: each distinct passage is counted by one part, and so is
each query, whatever file it comes from. Source: METHOD 2.3, 14.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import combinations_with_replacement, compress
from pathlib import Path

import numpy as np

from secid.arrays import Flags, distinct
from secid.findings.openings import (
    NO_KEYS,
    SHARED_FRACTION,
    Openings,
    RunOpenings,
    house_style,
    queries_by_opening,
    shared_openings,
    tally,
)
from secid.findings.texts import HUB_SHARE, RunTexts, hub_forms, served
from secid.pool import DocumentFrequencies, Keys, gather, token_stream
from secid.pool.coverage import CHUNK_TEXTS
from secid.pool.frequencies import frequencies, merge_frequencies
from secid.pool.group import grouped
from secid.pool.labels import add_labels, judgement_files, label_records
from secid.pool.normal_form import text_forms
from secid.pool.part import Shard, rows_of
from secid.pool.reading import bytes_read_by, refuse_unused_collection
from secid.pool.texts import TextSpool, TextStore, pieces
from secid.pool.tokens import distinct_tokens
from secid.progress import Progress
from secid.read import Reader
from secid.records import Block, Defect, Record
from secid.settings import Settings

NO_TABLE = DocumentFrequencies(np.zeros(0, np.uint64), np.zeros(0, np.int64), 0)
TABLES, OF_SOURCES = ("documents", "positives"), ("negatives", "queries", "served")
"""Tables of a run, and those of each source."""
FIRST, POSITIVE, NEGATIVE = range(3)


@dataclass(frozen=True)
class Counts:
    """Of a run, or of the texts and queries of one part of it; parts add up.

    documents : of the pool: scored positives and negatives by token.   positives : all positives by opening.
    phrases   : sorted keys of the generators' phrases that open a positive.
    negatives, queries, served : by source: its distinct negatives by opening; its queries by the opening of a
                negative, and by its normal form.
    shared    : distinct negatives that two sources have in common, by their names in order; all of a source's own.
    n_texts   : distinct queries and passages.
    """

    documents: DocumentFrequencies = NO_TABLE
    positives: DocumentFrequencies = NO_TABLE
    phrases: Keys = field(default_factory=NO_KEYS.copy)
    negatives: Mapping[str, DocumentFrequencies] = field(default_factory=dict)
    queries: Mapping[str, DocumentFrequencies] = field(default_factory=dict)
    served: Mapping[str, DocumentFrequencies] = field(default_factory=dict)
    shared: Mapping[tuple[str, str], int] = field(default_factory=dict)
    n_texts: tuple[int, int] = (0, 0)

    def __add__(self, other: Counts) -> Counts:
        tables = {
            kind: {
                name: merge_frequencies([part[name] for part in (a, b) if name in part]) for name in sorted({*a, *b})
            }
            for kind in OF_SOURCES
            for a, b in [(getattr(self, kind), getattr(other, kind))]
        }
        pairs = sorted({*self.shared, *other.shared})
        return Counts(
            merge_frequencies([self.documents, other.documents]),
            merge_frequencies([self.positives, other.positives]),
            distinct(np.concatenate([self.phrases, other.phrases])),
            **tables,
            shared={pair: self.shared.get(pair, 0) + other.shared.get(pair, 0) for pair in pairs},
            n_texts=(self.n_texts[0] + other.n_texts[0], self.n_texts[1] + other.n_texts[1]),
        )

    def only(self, openings: Mapping[str, Keys], forms: Mapping[str, Keys], of_positives: Keys) -> Counts:
        """With these openings and forms of each source alone, and these openings of positives."""
        return replace(
            self,
            positives=self.positives.only(of_positives),
            negatives={name: table.only(openings[name]) for name, table in self.negatives.items()},
            queries={name: table.only(openings.get(name, NO_KEYS)) for name, table in self.queries.items()},
            served={name: table.only(forms[name]) for name, table in self.served.items()},
        )

    def texts(self) -> RunTexts:
        """What the rules of the texts need to know of the whole run, once all parts are added."""
        shared = {
            name: shared_openings(table, self.queries.get(name, NO_TABLE), self.positives)
            for name, table in self.negatives.items()
        }
        hubs = {name: hub_forms(table) for name, table in self.served.items()}
        return RunTexts(RunOpenings(house_style(self.phrases), shared), hubs)


def total(parts: Callable[[], Iterable[Counts]]) -> Counts:
    """All parts together, in any order, without the openings and forms that cannot be shared or hubs: what is frequent
    in the whole is as frequent in some part.

    parts : gives them one at a time, twice, so that their tables need not be in memory together.
    """
    openings: dict[str, Keys] = {}
    forms: dict[str, Keys] = {}
    for part in parts():
        _add_frequent(openings, part.negatives, SHARED_FRACTION)
        _add_frequent(forms, part.served, HUB_SHARE)
    every = distinct(np.concatenate([NO_KEYS, *openings.values()]))
    return reduce(Counts.__add__, (part.only(openings, forms, every) for part in parts()), Counts())


def _add_frequent(found: dict[str, Keys], tables: Mapping[str, DocumentFrequencies], share: float) -> None:
    """Adds the keys of half of the share: no rounding of the rules' own shares leaves one out."""
    for name, table in tables.items():
        frequent = table.keys[table.counts >= share / 2 * table.n_documents]
        found[name] = distinct(np.append(found.get(name, NO_KEYS), frequent))


def count(readers: Sequence[Reader], settings: Settings, shard: Shard, folder: Path, progress: Progress) -> Counts:
    """What one part counts: its queries' rows, and its passages of all rows.

    readers : opened, not yet read.   folder : an empty one for spool files.
    """
    tick = bytes_read_by(readers, progress)
    judgements = judgement_files(settings)
    own = _OwnTexts(shard, TextSpool("passage", folder / "own.txt"), judgements, settings)
    streams = ((reader.source, _watched(reader, shard, own)) for reader in readers)
    gathered = gather(streams, folder, tick)
    if judgements:
        add_labels(gathered, judgements, settings)
    queries, query_ids = gathered.queries.store()
    passages, passage_ids = gathered.passages.store()
    try:
        sources = [grouped(rows, query_ids, passage_ids, queries.keys) for rows in gathered.rows()]
        openings = Openings.of(passages, distinct(np.concatenate([_NONE, *(item.negatives for item in sources)])))
        forms = text_forms(queries), text_forms(passages)
        of_texts = own.counts(settings.tokenizer)
        if judgements and not own.labelled:
            refuse_unused_collection(readers, settings)
        return (
            Counts(
                queries={item.name: queries_by_opening(item, openings) for item in sources},
                served={item.name: served(item, *forms) for item in sources},
                n_texts=(len(queries), 0),
            )
            + of_texts
        )
    finally:
        queries.close()
        passages.close()


_NONE = np.zeros(0, np.int64)


def _watched(reader: Reader, shard: Shard, own: _OwnTexts) -> Iterator[Record | Defect | Block]:
    """The rows of the part's queries; the texts of all rows are taken on the way."""

    def seen() -> Iterator[Record | Defect | Block]:
        for item in reader.blocks():
            if not isinstance(item, Defect):
                own.take(reader.source.name, item)
            yield item

    return rows_of(seen(), shard.has, nameless=False)


class _OwnTexts:
    """The passages of all rows that a part counts, and in which roles they occur.

    labelled : queries seen so far that judgements label.
    """

    def __init__(self, shard: Shard, spool: TextSpool, judgements: Sequence[str], settings: Settings) -> None:
        self._shard, self._spool = shard, spool
        self._labels = list(label_records(judgements, settings)) if judgements else []
        self._asked = {record.query for record in self._labels}
        self.labelled: set[str] = set()
        self._number, self._role, self._source = array("q"), array("b"), array("i")
        self._names: dict[str, int] = {}

    def take(self, name: str, item: Record | Block) -> None:
        """The passages of some rows."""
        block = Block.of(item) if isinstance(item, Record) else item
        split = item.split if isinstance(item, Record) else ""
        source = self._names.setdefault(f"{name}:{split}" if split else name, len(self._names))
        if self._asked:
            self.labelled |= self._asked.intersection(block.queries)
        roles = bytearray()
        for n_positives, n_negatives in zip(block.n_positives, block.n_negatives, strict=True):
            roles += bytes([FIRST]) + bytes([POSITIVE]) * (n_positives - 1) + bytes([NEGATIVE]) * n_negatives
        self._add(block.passages, roles, source)

    def _add(self, passages: Sequence[str], roles: Iterable[int], source: int) -> None:
        own = self._shard.owns(passages)
        numbers = self._spool.add(list(compress(passages, own)))
        self._number.extend(numbers)
        self._role.extend(compress(roles, own))
        self._source.extend([source] * len(numbers))

    def counts(self, tokenizer: str) -> Counts:
        """Tables of the texts taken so far and of the labels of their queries."""
        for record in self._labels:
            if record.query in self.labelled:
                self._add(record.positives, bytes([POSITIVE]) * len(record.positives), -1)
        store, ids = self._spool.store()
        try:
            ids = ids[np.array(self._number, np.int64)]
            role, source = np.array(self._role, np.int8), np.array(self._source, np.int32)
            counted, positive = np.zeros((2, len(store)), np.bool_)
            counted[ids[role != POSITIVE]] = True
            positive[ids[role != NEGATIVE]] = True
            listed = {name: np.zeros(len(store), np.bool_) for name in self._names}
            for name, number in self._names.items():
                listed[name][ids[(role == NEGATIVE) & (source == number)]] = True
            openings = Openings.of(store, np.arange(len(store)))
            return Counts(
                documents=document_frequencies(store, counted, tokenizer),
                positives=tally(openings.opening[positive]),
                phrases=distinct(openings.phrase[positive]),
                negatives={name: tally(openings.opening[flags]) for name, flags in listed.items()},
                shared=_shared(listed),
                n_texts=(0, len(store)),
            )
        finally:
            store.close()


def document_frequencies(store: TextStore, counted: Flags, tokenizer: str) -> DocumentFrequencies:
    """In how many of the counted passages each token occurs. counted: (n,)."""
    ids = np.flatnonzero(counted)
    tables = []
    for start, stop in pieces(len(ids), CHUNK_TEXTS, store.lengths[ids]):
        texts = store.packed_of(ids[start:stop])
        tables.append(frequencies(distinct_tokens(*token_stream(texts, tokenizer, "passage"))))
        while len(tables) > 1 and len(tables[-2].keys) < 2 * len(tables[-1].keys):
            tables[-2:] = [merge_frequencies(tables[-2:])]
    return merge_frequencies(tables)


def _shared(listed: Mapping[str, Flags]) -> dict[tuple[str, str], int]:
    pairs = combinations_with_replacement(sorted(listed), 2)
    return {(a, b): int((listed[a] & listed[b]).sum()) for a, b in pairs}
