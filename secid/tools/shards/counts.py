"""Count over the whole run what every shard needs: document frequencies, shared openings, hubs and shared documents.

The counts cover all files. They are made at once, or in N parts that add up. Each distinct passage and each query
belongs to exactly one part, whichever file it is in. Source: METHOD 2.3, 14.
"""

from __future__ import annotations

from array import array
from collections import Counter
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
    PassageFacts,
    PassageReader,
    RunOpenings,
    common_phrases,
    opening_keys,
    ordinary_lengths,
    phrase_keys,
    queries_by_opening,
    shared_openings,
    tally,
)
from secid.findings.status import ListedNegatives, formal_excess
from secid.findings.texts import HUB_SHARE, RunTexts, formal_masks, hub_forms, queries_by_form
from secid.pool import DocumentFrequencies, Keys, PlannedSource, collect_sources, token_stream
from secid.pool.collect import grouped
from secid.pool.coverage import LEXED_AT_ONCE, add_table, frequencies, merge_frequencies
from secid.pool.normal_form import FormKeys, text_forms
from secid.pool.plan import QuerySubset, Shard
from secid.pool.reading import add_labels, bytes_read_by, judgement_files, label_records, refuse_unused_collection
from secid.pool.texts import TextSpool, TextStore, batch_ranges
from secid.pool.tokens import distinct_tokens
from secid.progress import Progress
from secid.read import Reader
from secid.records import Block, Defect, Record
from secid.results.catalogue import DAMAGE_FINDINGS
from secid.settings import Settings
from secid.triplets.estimates import GapMoments

NO_TABLE = DocumentFrequencies(np.zeros(0, np.uint64), np.zeros(0, np.int64), 0)
MIN_FREQUENT_SHARES = {"negatives": SHARED_FRACTION, "hub_queries": HUB_SHARE}
"""Tables of a source, with the minimum share of documents at which a key is a shared opening or a hub."""
FIRST, POSITIVE, NEGATIVE = range(3)

Tables = Mapping[tuple[str, str], DocumentFrequencies]


@dataclass(frozen=True)
class Counts:
    """Counts of a run, or of one part of it. Parts add up.

    tables  : tables by kind and source; the source is "" for tables of the run.
              Of the run: `documents` counts scored positives and negatives by token, `positives` counts positives by
              opening. Of a source: `negatives` counts distinct negatives by opening, `queries` counts queries by the
              opening of a negative, `hub_queries` counts queries by the normal form of a negative, and `lengths` counts
              labelled positives by number of characters.
    formal  : for each source, moments of the formal defects of negatives and positives, in DAMAGE_FINDINGS order.
    phrases : sorted keys of generators' phrases that a positive begins with.
    shared  : number of distinct negatives that two sources share, by their sorted names. For a source with itself it is
              the number of its distinct negatives.
    n_texts : number of distinct queries and passages.
    """

    tables: Tables = field(default_factory=dict)
    formal: Mapping[str, tuple[GapMoments, ...]] = field(default_factory=dict)
    phrases: Keys = field(default_factory=NO_KEYS.copy)
    shared: Mapping[tuple[str, str], int] = field(default_factory=dict)
    n_texts: int = 0

    def __add__(self, other: Counts) -> Counts:
        both = self.tables, other.tables
        keys = sorted(both[0].keys() | both[1].keys())
        return Counts(
            {key: merge_frequencies([part[key] for part in both if key in part]) for key in keys},
            {name: _sums(self.formal.get(name), other.formal.get(name)) for name in {**self.formal, **other.formal}},
            distinct(np.concatenate([self.phrases, other.phrases])),
            dict(sorted((Counter(self.shared) + Counter(other.shared)).items())),
            self.n_texts + other.n_texts,
        )

    def only(self, keys: Mapping[tuple[str, str], Keys]) -> Counts:
        """Return the counts with only these keys in the named tables. Other tables are unchanged."""
        return replace(
            self, tables={key: table.only(keys[key]) if key in keys else table for key, table in self.tables.items()}
        )

    def table(self, kind: str, source: str = "") -> DocumentFrequencies:
        """Return a table; it is empty if nothing was counted."""
        return self.tables.get((kind, source), NO_TABLE)

    def texts(self) -> RunTexts:
        """Return the facts about the whole run that text rules need. All parts must have been added."""
        names = [name for kind, name in self.tables if kind == "negatives"]
        shared = {
            name: shared_openings(self.table("negatives", name), self.table("queries", name), self.table("positives"))
            for name in names
        }
        hubs = {name: hub_forms(self.table("hub_queries", name)) for name in names}
        lengths = {name: ordinary_lengths(self.table("lengths", name)) for name in names}
        excess = {
            name: formal_excess(dict(zip(DAMAGE_FINDINGS, values, strict=True))) for name, values in self.formal.items()
        }
        return RunTexts(RunOpenings(common_phrases(self.phrases), shared), hubs, lengths, excess)


def _sums(first: tuple[GapMoments, ...] | None, second: tuple[GapMoments, ...] | None) -> tuple[GapMoments, ...]:
    if not first or not second:
        return first or second or ()
    return tuple(a.plus(b) for a, b in zip(first, second, strict=True))


def summed_counts(parts: Callable[[], Iterable[Counts]]) -> Counts:
    """Add all parts, in any order. Drop openings and forms that are too rare to be shared openings or hubs.

    A key that is frequent in the whole run is frequent in at least one part, so a key is kept if it is in some part.

    parts : yields the parts one at a time, so that only one is in memory. It is called twice.
    """
    keys: dict[tuple[str, str], Keys] = {}
    for part in parts():
        for (kind, name), table in part.tables.items():
            if kind in MIN_FREQUENT_SHARES:  # half of the minimum share, so that rounding loses no key
                frequent = table.keys[table.counts >= MIN_FREQUENT_SHARES[kind] / 2 * table.n_documents]
                keys[kind, name] = distinct(np.append(keys.get((kind, name), NO_KEYS), frequent))
    openings = {name: counts for (kind, name), counts in keys.items() if kind == "negatives"}
    keys |= {("queries", name): counts for name, counts in openings.items()}
    keys["positives", ""] = distinct(np.concatenate([NO_KEYS, *openings.values()]))
    return reduce(Counts.__add__, (part.only(keys) for part in parts()), Counts())


def count_part(readers: Sequence[Reader], settings: Settings, shard: Shard, folder: Path, progress: Progress) -> Counts:
    """Count the texts of one shard: rows whose query is in the shard, and the shard's passages in all rows.

    readers : opened readers that have not been read.   folder : an empty folder for spool files.
    """
    tick = bytes_read_by(readers, progress)
    judgements = judgement_files(settings)
    shard_texts = _OwnTexts(shard, TextSpool("passage", folder / "own.txt"), judgements, settings)
    streams = ((reader.source, _watched(reader, shard, shard_texts)) for reader in readers)
    gathered = collect_sources(streams, folder, tick)
    if judgements:
        add_labels(gathered, judgements, settings)
    queries, query_ids = gathered.queries.store()
    passages, passage_ids = gathered.passages.store()
    try:
        sources = [grouped(rows, query_ids, passage_ids, queries.keys) for rows in gathered.rows()]
        of_queries = text_forms(queries)
        with PassageReader(settings.threads) as reader:
            facts = reader.facts(passages)
        tables = {("queries", item.name): queries_by_opening(item, facts.openings) for item in sources}
        tables |= {("hub_queries", item.name): queries_by_form(item, of_queries, facts.forms) for item in sources}
        tables |= {("lengths", item.name): facts.lengths(item) for item in sources}
        formal = {item.name: formal_moments(item, facts, queries) for item in sources if item.n_records}
        of_texts = shard_texts.counts(settings.tokenizer)
        if judgements and not shard_texts.labelled:
            refuse_unused_collection(readers, settings)
        return Counts(tables, formal, n_texts=len(queries)) + of_texts
    finally:
        queries.close()
        passages.close()


def formal_moments(planned: PlannedSource, facts: PassageFacts, queries: TextStore) -> tuple[GapMoments, ...]:
    """Return the gap moments of each formal defect of a source, in the order of DAMAGE_FINDINGS."""
    flagged = planned.with_findings(formal_masks(planned, facts.of_source(planned)))
    listed = ListedNegatives(flagged, queries.keys)
    return tuple(map(listed.compared, DAMAGE_FINDINGS))


def _watched(reader: Reader, shard: Shard, shard_texts: _OwnTexts) -> Iterator[Record | Defect | Block]:
    """Yield the rows of the part's queries. Also add the texts of all rows to `shard_texts`."""

    def watched() -> Iterator[Record | Defect | Block]:
        for item in reader.blocks():
            if not isinstance(item, Defect):
                shard_texts.take(reader.source.name, item)
            yield item

    return QuerySubset(shard.has, nameless=False).rows(watched())


class _OwnTexts:
    """The passages that a part counts, from all rows, with their roles.

    labelled : queries read so far that have judgements.
    """

    def __init__(self, shard: Shard, spool: TextSpool, judgements: Sequence[str], settings: Settings) -> None:
        self._shard, self._spool = shard, spool
        self._labels = list(label_records(judgements, settings)) if judgements else []
        self._asked = {record.query for record in self._labels}
        self.labelled: set[str] = set()
        self._number, self._role, self._source = array("q"), array("b"), array("i")
        self._names: dict[str, int] = {}

    def take(self, name: str, item: Record | Block) -> None:
        """Add the part's passages in some rows. name: name of the source."""
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
        is_ours = self._shard.owns(passages)
        numbers = self._spool.add(list(compress(passages, is_ours)))
        self._number.extend(numbers)
        self._role.extend(compress(roles, is_ours))
        self._source.extend([source] * len(numbers))

    def counts(self, tokenizer: str) -> Counts:
        """Return the counts of the passages added so far, and of the labelled positives of the queries read so far."""
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
            openings = Openings(*np.zeros((2, len(store)), np.uint64))
            for start, stop in batch_ranges(len(store), LEXED_AT_ONCE, store.lengths):
                texts = store.packed(start, stop)
                openings.phrase[start:stop] = phrase_keys(texts)
                openings.opening[start:stop] = opening_keys(FormKeys.of(texts))
            tables = {("negatives", name): tally(openings.opening[flags]) for name, flags in listed.items()}
            tables["documents", ""] = document_frequencies(store, counted, tokenizer)
            tables["positives", ""] = tally(openings.opening[positive])
            return Counts(tables, {}, distinct(openings.phrase[positive]), _shared(listed), len(store))
        finally:
            store.close()


def document_frequencies(store: TextStore, counted: Flags, tokenizer: str) -> DocumentFrequencies:
    """Count the flagged passages with each token. counted: (n,) flags of the passages to count."""
    ids = np.flatnonzero(counted)
    tables: list[DocumentFrequencies] = []
    for start, stop in batch_ranges(len(ids), LEXED_AT_ONCE, store.lengths[ids]):
        texts = store.packed_of(ids[start:stop])
        add_table(tables, frequencies(distinct_tokens(*token_stream(texts, tokenizer, "passage"))))
    return merge_frequencies(tables)


def _shared(listed: Mapping[str, Flags]) -> dict[tuple[str, str], int]:
    pairs = combinations_with_replacement(sorted(listed), 2)
    return {(a, b): int((listed[a] & listed[b]).sum()) for a, b in pairs}
