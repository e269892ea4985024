"""Texts by id: a BEIR folder or data set of the hub, or a corpus and a queries file. The texts stay on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from secid.errors import InputError
from secid.progress import Progress
from secid.read.containers import rows_of
from secid.read.grouping import temporary_database
from secid.read.passages import ID_KEYS, TEXT_KEYS, join_title
from secid.read.rows import Broken, Row, shorten
from secid.read.sources import data_files, is_address, is_data
from secid.read.stream import on_disk
from secid.records import fault_text
from secid.settings import Settings, flag_of

Role = Literal["passages", "queries"]
QUERY_ID_KEYS = ("_id", "qid", "query_id", "query-id", "id", "question_id")
QUERY_TEXT_KEYS = ("text", "query", "query_text", "question")
HUB_QRELS = "BeIR/NAME has its qrels in BeIR/NAME-qrels; data sets under mteb/ have corpus, queries and qrels"
TASK = "mteb:"
"""How the name of a task of mteb starts, for which the hub has a collection."""
MAX_BAD_ROWS = 100
"""Unreadable rows of a collection that are skipped before it counts as damaged; their ids are then missing."""


class CollectionFiles(NamedTuple):
    """Paths of a collection's files by role; () without any. where: the folder, or the address and its commit."""

    where: str
    corpus: tuple[str, ...]
    queries: tuple[str, ...]
    qrels: tuple[str, ...]
    note: str = ""

    def required(self, role: Literal["corpus", "queries", "qrels"], remedy: str) -> tuple[str, ...]:
        """The files of a role. Raises InputError where there are none."""
        files: tuple[str, ...] = getattr(self, role)
        if not files:
            named = "qrels: no qrels/*.tsv, no qrels*.tsv" if role == "qrels" else f"{role}.jsonl"
            more = HUB_QRELS if role == "qrels" and is_address(self.where) else ""
            raise InputError(f"holds no {named}", where=self.where, remedy="; ".join(filter(None, (remedy, more))))
        return files


class Collection:
    """Passages and queries by id. Ids are compared as strings: 7 and "7" are the same.

    bad : file, line and fault of each row that cannot be read.
    """

    def __init__(self, corpus: Sequence[str], queries: Sequence[str], *, titles: bool) -> None:
        self._database = temporary_database(self)
        self.bad: dict[Role, list[str]] = {"passages": [], "queries": []}
        self._files: dict[Role, Sequence[str]] = {"passages": corpus, "queries": queries}
        for role, files in self._files.items():
            self._database.execute(f"CREATE TABLE {role} (id TEXT, text TEXT)")
            if files:
                self._load(role, files, titles)

    def has(self, role: Role) -> bool:
        """Whether a file for the role was given."""
        return bool(self._files[role])

    def passage(self, key: str) -> str | None:
        """Text of a passage, its title joined; None where the id is unknown."""
        return self._text("passages", key)

    def query(self, key: str) -> str | None:
        """Text of a query; None where the id is unknown."""
        return self._text("queries", key)

    def passages(self) -> Iterator[str]:
        """The texts of all passages, titles joined, in the order of the file; the same order each time."""
        for row in self._database.execute("SELECT text FROM passages ORDER BY rowid"):
            yield row[0]

    def passage_ids(self, places: Iterable[int]) -> list[str]:
        """The ids of the passages at these places, from 0, in the order of the file."""
        rows = (self._database.execute("SELECT id FROM passages WHERE rowid = ?", (place + 1,)) for place in places)
        return [row.fetchone()[0] for row in rows]

    def _text(self, role: Role, key: str) -> str | None:
        row = self._database.execute(f"SELECT text FROM {role} WHERE id = ? LIMIT 1", (key,)).fetchone()  # noqa: S608
        return row[0] if row else None

    def _load(self, role: Role, files: Sequence[str], titles: bool) -> None:
        database = self._database
        database.execute("BEGIN")
        rows = texts_with_ids(role, files, titles=titles, skipped=self.bad[role])
        database.executemany(f"INSERT INTO {role} VALUES (?, ?)", rows)  # noqa: S608
        database.execute("COMMIT")
        database.execute(f"CREATE INDEX {role}_by_id ON {role} (id)")
        repeated = database.execute(
            f"SELECT id FROM {role} GROUP BY id HAVING count(*) > 1 AND min(text) <> max(text) LIMIT 3"  # noqa: S608
        ).fetchall()
        if repeated:
            raise InputError(
                f"one id for several texts: {', '.join(row[0] for row in repeated)}",
                where=files[0],
                remedy="ids may restart in each shard: make them unique, or give only the shard of these records",
            )


def texts_with_ids(
    role: Role, files: Sequence[str], *, titles: bool, skipped: list[str] | None = None
) -> Iterator[tuple[str, str]]:
    """(id, text) of each row of the files of a corpus or of queries, one at least, in file order.

    skipped : gets file, line and fault of each row that cannot be read.
    Raises InputError where it cannot be read, holds no row, or its rows are not ids and texts.
    """
    n_read = 0
    bad: list[tuple[int, str]] = []
    for file in files:
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
        raise InputError(f"holds no {role}", where=files[0])


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


@lru_cache(maxsize=2)
def _opened(
    corpus: tuple[str, ...], queries: tuple[str, ...], titles: bool, stamps: tuple[tuple[int, int], ...]
) -> Collection:
    return Collection(corpus, queries, titles=titles)


def open_collection(settings: Settings) -> Collection:
    """The collection of the settings collection, corpus and queries, the latter two winning; loaded once a process.

    Raises InputError where a file is missing or is not a collection.
    """
    corpus, queries = (tuple(data_files(path)) if path else () for path in (settings.corpus, settings.queries))
    if settings.collection is not None:
        found = collection_files(settings.collection, BEIR_FOLDER)
        corpus, queries = corpus or found.required("corpus", BEIR_FOLDER), queries or found.queries
    return _opened(corpus, queries, settings.titles, tuple(map(stamp, (*corpus, *queries))))


def noted_collection(settings: Settings, progress: Progress) -> Collection:
    """The same, with a note of its rows that cannot be read."""
    collection = open_collection(settings)
    note = collection_files(settings.collection, BEIR_FOLDER).note if settings.collection else ""
    if note:
        progress.note(note)
    for role, bad in collection.bad.items():
        if bad:
            rows = "1 row cannot be read and is" if len(bad) == 1 else f"{len(bad)} rows cannot be read and are"
            progress.note(f"{role} of the collection: {rows} left out, the first: {bad[0]}")
    return collection


def as_read(settings: Settings) -> Settings:
    """The settings with the commit in each address of the hub, so that they name what was read."""
    given = settings.collection
    return replace(
        settings,
        collection=collection_files(given, BEIR_FOLDER).where if given and _on_hub(given) else given,
        corpus=_pinned(settings.corpus),
        queries=_pinned(settings.queries),
    )


def _pinned(path: str | None) -> str | None:
    if path is None or not is_address(path):
        return path
    from secid.read.hub import pinned

    return pinned(path, data_files(path))


def _on_hub(collection: str) -> bool:
    return is_address(collection) or collection.startswith(TASK)


BEIR_FOLDER = (
    "--collection takes a BEIR folder or hf://datasets/OWNER/NAME; "
    f"{flag_of('corpus', 'FILE')} and {flag_of('queries', 'FILE')} take single files"
)


def stamp(path: str) -> tuple[int, int]:
    """What changes with the contents of a file."""
    try:
        status = Path(on_disk(path)).stat()
    except OSError as error:
        raise InputError(f"cannot be opened ({error.strerror})", where=path) from error
    return status.st_mtime_ns, status.st_size


def collection_files(collection: str, remedy: str) -> CollectionFiles:
    """The files of a BEIR folder (corpus.*, queries.*, qrels/*.tsv or qrels*.tsv), of a data set of the hub, or of a
    task of mteb (`mteb:SciFact`).

    Raises InputError, with the remedy, where there is no such folder.
    """
    if _on_hub(collection):
        from secid.read import hub

        address = hub.task(collection.removeprefix(TASK)) if collection.startswith(TASK) else collection
        files, note = hub.collection(address)
        where = hub.pinned(address, [file for paths in files.values() for file in paths])
        return CollectionFiles(where, **files, note=note)
    folder = Path(collection)
    if not folder.is_dir():
        raise InputError("no such directory", where=collection, remedy=remedy)
    named = {path.name.split(".")[0]: str(path) for path in sorted(folder.iterdir(), reverse=True)}
    corpus, queries = (tuple(data_files(named[stem])) if stem in named else () for stem in ("corpus", "queries"))
    qrels = sorted([*(folder / "qrels").glob("*"), *folder.glob("qrels*")])
    judgements = (str(path) for path in qrels if path.is_file() and is_data(path.name))
    return CollectionFiles(collection, corpus, queries, tuple(judgements))
