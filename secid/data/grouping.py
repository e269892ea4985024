"""Labelled pairs, one a row, grouped by query in bounded memory.

The pairs go into a temporary SQLite database: in memory while they are few, on disk beyond its
cache, deleted by SQLite itself when it is closed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from secid.data.clean import Item, Pair
from secid.records import Defect, Record

CACHE_KIB = 256 << 10
"""Memory of the database before it goes to disk (256 MiB)."""

INSERT_ROWS = 1000
"""Pairs handed to SQLite at once: a call for each would cost more than the insertion."""


def temporary_database() -> sqlite3.Connection:
    """An empty database that lives in memory up to CACHE_KIB, then in a file that has no name."""
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    for pragma in (f"cache_size=-{CACHE_KIB}", "journal_mode=OFF", "synchronous=OFF", "temp_store=FILE"):
        database.execute(f"PRAGMA {pragma}")
    return database


class PairGroups:
    """Collects pairs and gives one record, or defect, for each query and source."""

    def __init__(self) -> None:
        self._database = temporary_database()
        self._database.execute("CREATE TABLE pairs (split, query, passage, positive, path, line)")
        self._waiting: list[Pair] = []

    def add(self, pair: Pair) -> None:
        """Take one pair."""
        self._waiting.append(pair)
        if len(self._waiting) >= INSERT_ROWS:
            self._insert()

    def _insert(self) -> None:
        self._database.execute("BEGIN")
        self._database.executemany("INSERT INTO pairs VALUES (?, ?, ?, ?, ?, ?)", self._waiting)
        self._database.execute("COMMIT")
        self._waiting.clear()

    def items(self) -> Iterator[Item]:
        """One item a (source, query), in order of first appearance, passages in file order. Ends the collection."""
        self._insert()
        rows = self._database.execute(
            "SELECT min(rowid) OVER (PARTITION BY split, query) AS first, split, query, passage, positive, path, line"
            " FROM pairs ORDER BY first, pairs.rowid"
        )
        for _, group in groupby(rows, key=itemgetter(0)):
            yield _item([Pair._make(row[1:]) for row in group])
        self._database.close()


def _item(pairs: list[Pair]) -> Item:
    first = pairs[0]
    positives = tuple(pair.passage for pair in pairs if pair.positive)
    negatives = tuple(pair.passage for pair in pairs if not pair.positive)
    if positives and negatives:
        return Record(first.query, positives, negatives, first.path, first.line, first.split)
    reason = "no_negatives" if positives else "no_positive"
    return Defect(reason, first.path, first.line, f"{len(pairs)} rows of one label", first.split)
