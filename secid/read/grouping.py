"""Labelled pairs, one per row, grouped by query in bounded memory.

The pairs go into a temporary SQLite database: in memory while they are few, on disk beyond its cache, deleted by SQLite
itself when it is closed.
"""

from __future__ import annotations

import json
import sqlite3
import weakref
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any

from secid.read.binding import PASSAGE_ID, fits
from secid.read.clean import Item, Pair
from secid.records import Defect, Extras, Fact, Record

CACHE_KIB = 64 << 10
"""Memory of the database before it goes to disk (64 MiB); SQLite sorts in as much again."""

INSERT_ROWS = 1000
"""Pairs handed to SQLite at once: a call for each would cost more than the insertion."""

OF_SOURCE = (
    "SELECT split, query, passage, positive, path, line, n_late, columns FROM pairs "
    "WHERE key = ? AND (split IS ? OR split IS NULL) ORDER BY rowid"
)
POSITIVES = (
    "SELECT split, query, passage, positive, path, line, n_late, columns FROM pairs "
    "WHERE key = ? AND positive ORDER BY rowid"
)
NEGATIVES = "SELECT passage FROM pairs WHERE key = ? AND NOT positive AND split IS NOT NULL"
"""Pairs of a query: those of a source and of none, its positives, and the negatives, which all have a source."""


def temporary_database(owner: object) -> sqlite3.Connection:
    """An empty database, in memory up to CACHE_KIB, beyond that in an unnamed temporary file.

    It is closed when nothing refers to its owner any more: Python 3.13 warns about a database that is never closed, and
    a reader may stop in the middle.
    """
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    for pragma in (f"cache_size=-{CACHE_KIB}", "journal_mode=OFF", "synchronous=OFF", "temp_store=FILE"):
        database.execute(f"PRAGMA {pragma}")
    weakref.finalize(owner, database.close)
    return database


class PairGroups:
    """Collects pairs and gives one record, or defect, for each query and source.

    A positive belongs to the query: one without a source counts for each of the query's sources, and a source that
    labels none for it takes those of the query's other sources.
    """

    def __init__(self, *, without_negatives: bool = False) -> None:
        """without_negatives: whether queries with positives alone give a record."""
        self._database, self._least = temporary_database(self), 0 if without_negatives else 1
        self._database.execute("CREATE TABLE pairs (key, split, query, passage, positive, path, line, n_late, columns)")
        self._waiting: list[tuple[bytes, Pair]] = []

    def add(self, pair: Pair) -> None:
        """Take one pair."""
        # 16 bytes sort and compare faster than queries; two texts never share them in practice.
        self._waiting.append((blake2b(pair.query.encode(), digest_size=16).digest(), pair))
        if len(self._waiting) >= INSERT_ROWS:
            self._insert()

    def _insert(self) -> None:
        self._database.execute("BEGIN")
        rows = ((key, *pair) for key, pair in self._waiting)
        self._database.executemany("INSERT INTO pairs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._database.execute("COMMIT")
        self._waiting.clear()

    def items(self) -> Iterator[Item]:
        """One item a (source, query), in order of first appearance, passages in file order. Ends the collection."""
        self._insert()
        database = self._database
        database.execute("CREATE INDEX by_key ON pairs (key, split)")
        groups = database.execute(
            "SELECT key, split, min(rowid) AS first FROM pairs GROUP BY key, split ORDER BY first"
        )
        for key, split, _ in groups:
            if split is None and database.execute(NEGATIVES, (key,)).fetchone():
                continue  # positives of no source: rows of the sources that have negatives
            pairs = [Pair._make(row) for row in database.execute(OF_SOURCE, (key, split))]
            own = [pair for pair in pairs if pair.split == split]
            positives = [pair for pair in pairs if pair.positive]
            if not any(pair.positive for pair in own):
                positives = [Pair._make(row) for row in database.execute(POSITIVES, (key,))]
            elif all(pair.positive for pair in own):
                pairs = own
            yield _item(pairs, split, positives, self._least)
        database.close()


def _item(pairs: list[Pair], split: str | None, positives: list[Pair], least: int) -> Item:
    first = next(pair for pair in pairs if pair.split == split)
    negatives = [pair for pair in pairs if not pair.positive]
    n_late = sum(pair.n_late for pair in pairs)
    dropped = (("late_column", n_late),) if n_late else ()
    if positives and len(negatives) >= least:
        good, bad = (tuple(pair.passage for pair in side) for side in (positives, negatives))
        record = Record(first.query, good, bad, first.path, first.line, split or "", dropped, n_rows=len(pairs))
        return record._replace(extras=_extras(first.query, positives, negatives) if first.columns else None)
    reason = "no_negatives" if positives else "none_relevant"
    return Defect(reason, first.path, first.line, Fact("one_label", {"n": len(pairs)}), split, len(pairs))


def _extras(query: str, positives: Sequence[Pair], negatives: Sequence[Pair]) -> Extras:
    """The other columns of a query's pairs: the value that all of them share, else the list of their values.

    A column of passage ids is in the passages' cells.
    """
    rows = [json.loads(pair.columns) for pair in (*positives, *negatives)]
    columns = {name: [row.get(name) for row in rows] for name in dict.fromkeys(chain.from_iterable(rows))}
    named = next((name for name in columns if fits(name, PASSAGE_ID)), None)
    ids = columns.pop(named) if named is not None else []
    texts = (pair.passage for pair in (*positives, *negatives))
    cells: list[Any] = [{"docid": own} for own in ids] or list(texts)
    shared = {name: values[0] if len(set(map(repr, values))) == 1 else values for name, values in columns.items()}
    n = len(positives)
    return Extras(shared, query, list(enumerate(cells[:n])), list(enumerate(cells[n:])))
