"""Texts by id: a BEIR folder, or a corpus and a queries file. The texts stay on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from secid.errors import InputError
from secid.progress import Progress
from secid.read.containers import rows_of
from secid.read.grouping import temporary_database
from secid.read.passages import ID_KEYS, TEXT_KEYS, join_title
from secid.read.rows import Broken, Row, shorten
from secid.records import fault_text
from secid.settings import Settings, flag_of

Role = Literal["passages", "queries"]
QUERY_ID_KEYS = ("_id", "qid", "query_id", "query-id", "id", "question_id")
QUERY_TEXT_KEYS = ("text", "query", "query_text", "question")
MAX_BAD_ROWS = 100
"""Unreadable rows of a collection that are skipped before it counts as damaged; their ids are then missing."""


class Collection:
    """Passages and queries by id. Ids are compared as strings: 7 and "7" are the same.

    bad : file, line and fault of each row that cannot be read.
    """

    def __init__(self, corpus: str | None, queries: str | None, *, titles: bool) -> None:
        self._database = temporary_database()
        self.bad: dict[Role, list[str]] = {"passages": [], "queries": []}
        self._files: dict[Role, str | None] = {"passages": corpus, "queries": queries}
        for role, path in self._files.items():
            self._database.execute(f"CREATE TABLE {role} (id TEXT, text TEXT)")
            if path is not None:
                self._load(role, path, titles)

    def has(self, role: Role) -> bool:
        """Whether a file for the role was given."""
        return self._files[role] is not None

    def passage(self, key: str) -> str | None:
        """Text of a passage, its title joined; None where the id is unknown."""
        return self._text("passages", key)

    def query(self, key: str) -> str | None:
        """Text of a query; None where the id is unknown."""
        return self._text("queries", key)

    def passages(self) -> Iterator[str]:
        """The texts of all passages, titles joined, in the order of the file; the same order each time."""
        return (row[0] for row in self._database.execute("SELECT text FROM passages ORDER BY rowid"))

    def passage_ids(self, places: Iterable[int]) -> list[str]:
        """The ids of the passages at these places, from 0, in the order of the file."""
        rows = (self._database.execute("SELECT id FROM passages WHERE rowid = ?", (place + 1,)) for place in places)
        return [row.fetchone()[0] for row in rows]

    def _text(self, role: Role, key: str) -> str | None:
        row = self._database.execute(f"SELECT text FROM {role} WHERE id = ? LIMIT 1", (key,)).fetchone()  # noqa: S608
        return row[0] if row else None

    def _load(self, role: Role, path: str, titles: bool) -> None:
        database = self._database
        database.execute("BEGIN")
        rows = texts_with_ids(role, path, titles=titles, skipped=self.bad[role])
        database.executemany(f"INSERT INTO {role} VALUES (?, ?)", rows)  # noqa: S608
        database.execute("COMMIT")
        database.execute(f"CREATE INDEX {role}_by_id ON {role} (id)")
        repeated = database.execute(
            f"SELECT id FROM {role} GROUP BY id HAVING count(*) > 1 AND min(text) <> max(text) LIMIT 3"  # noqa: S608
        ).fetchall()
        if repeated:
            raise InputError(
                f"one id for several texts: {', '.join(row[0] for row in repeated)}",
                where=path,
                remedy="ids may restart in each shard: make them unique, or give only the shard of these records",
            )


def texts_with_ids(
    role: Role, path: str, *, titles: bool, skipped: list[str] | None = None
) -> Iterator[tuple[str, str]]:
    """(id, text) of each row of a corpus or queries file, or of a folder of such files, in file order.

    skipped : gets file, line and fault of each row that cannot be read.
    Raises InputError where it cannot be read, holds no row, or its rows are not ids and texts.
    """
    n_read = 0
    bad: list[tuple[int, str]] = []
    for file in _files(path):
        for line, row in rows_of(file):
            pair = _id_and_text(row, role, titles=titles)
            if isinstance(pair, str):
                bad.append((line, pair))
                if len(bad) > MAX_BAD_ROWS or not n_read:
                    _refuse(role, file, bad)
                if skipped is not None:
                    skipped.append(f"{file}:{line}: {pair}")
                continue
            n_read += 1
            yield pair
    if not n_read:
        raise InputError(f"holds no {role}", where=path)


def _refuse(role: Role, file: str, bad: list[tuple[int, str]]) -> None:
    line, problem = bad[0]
    raise InputError(
        f"not a file of {role} with ids: {problem}",
        where=f"{file}:{line}",
        remedy='rows look like {"_id": "7", "title": "T", "text": "..."}, or id, tab, text',
    )


def _id_and_text(row: Row | Broken, role: Role, *, titles: bool) -> tuple[str, str] | str:
    """(id, text) of a row, or what is wrong with it."""
    if isinstance(row, Broken):
        return fault_text(row.fact)
    title: Any = None
    if isinstance(row, list):
        if len(row) != 2:
            return f"{len(row)} columns without names; id and text are expected"
        key, text = row[0], "" if row[1] is None else row[1]
    else:
        id_keys, text_keys = (ID_KEYS, TEXT_KEYS) if role == "passages" else (QUERY_ID_KEYS, QUERY_TEXT_KEYS)
        key = next((row[name] for name in id_keys if name in row), None)
        text = next(("" if row[name] is None else row[name] for name in text_keys if name in row), None)
        title = row.get("title") if titles and role == "passages" else None
    if isinstance(key, bool) or not isinstance(key, str | int):
        return f"no id in {shorten(str(row), 80)}"
    if not isinstance(text, str):
        return f"no text in {shorten(str(row), 80)}"
    return str(key), join_title(title, text)


def _files(path: str) -> list[str]:
    from secid.read.sources import data_files

    return data_files(path) if Path(path).is_dir() else [path]


@lru_cache(maxsize=2)
def _opened(corpus: str | None, queries: str | None, titles: bool, stamps: tuple[Any, ...]) -> Collection:
    return Collection(corpus, queries, titles=titles)


def open_collection(settings: Settings) -> Collection:
    """The collection of the settings collection, corpus and queries, the latter two winning; loaded once a process.

    Raises InputError where a file is missing or is not a collection.
    """
    corpus, queries = settings.corpus, settings.queries
    if settings.collection is not None:
        folder = Path(settings.collection)
        corpus = corpus or beir_file(folder, "corpus", BEIR_FOLDER)
        queries = queries or beir_file(folder, "queries")
    stamps = tuple(_stamp(path) for path in (corpus, queries) if path)
    return _opened(corpus, queries, settings.titles, stamps)


def noted_collection(settings: Settings, progress: Progress) -> Collection:
    """The same, with a note of its rows that cannot be read."""
    collection = open_collection(settings)
    for role, bad in collection.bad.items():
        if bad:
            rows = "1 row cannot be read and is" if len(bad) == 1 else f"{len(bad)} rows cannot be read and are"
            progress.note(f"{role} of the collection: {rows} left out, the first: {bad[0]}")
    return collection


BEIR_FOLDER = (
    f"--collection takes a BEIR folder; {flag_of('corpus', 'FILE')} and {flag_of('queries', 'FILE')} take single files"
)


def _stamp(path: str) -> tuple[int, int]:
    try:
        status = Path(path).stat()
    except OSError as error:
        raise InputError(f"cannot be opened ({error.strerror})", where=path) from error
    return status.st_mtime_ns, status.st_size


def beir_file(folder: Path, stem: str, remedy: str = "") -> str | None:
    """The file of a BEIR folder with this stem; None, or InputError with the remedy given, where there is none."""
    if not folder.is_dir():
        raise InputError("no such directory", where=str(folder), remedy=remedy)
    files = sorted(path for path in folder.iterdir() if path.name.split(".")[0] == stem)
    if not files and remedy:
        raise InputError(f"holds no {stem}.jsonl", where=str(folder), remedy=remedy)
    return str(files[0]) if files else None
