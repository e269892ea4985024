"""Look up texts by id in a collection that stays on disk, and decide whether a file holds ids or texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from secid.errors import InputError
from secid.files import temporary_database
from secid.progress import Progress
from secid.read.binding import (
    NEGATIVE_IDS,
    PASSAGE_ID_NAMES,
    POSITIVE_IDS,
    QUERY_ID_NAMES,
    Binding,
    Head,
    extract_rows,
    fits,
    look_like_ids,
    look_like_names,
    look_like_words,
)
from secid.read.containers import read_rows
from secid.read.sources import data_files, is_address, is_data
from secid.read.stream import (
    ID_KEYS,
    OPEN_REMEDY,
    TEXT_KEYS,
    Broken,
    Row,
    join_title,
    leaves,
    on_disk,
    passage_id,
    passage_text,
    shorten,
)
from secid.records import fault_text
from secid.settings import Settings, flag_of

# Texts by id, from a BEIR folder, a data set on the hub, or a corpus and a queries file. The texts stay on disk.

FileKind = Literal["passages", "queries"]
QUERY_ID_KEYS = ("_id", "qid", "query_id", "query-id", "id", "question_id")
QUERY_TEXT_KEYS = ("text", "query", "query_text", "question")
ROWS_REMEDY = 'rows look like {"_id": "7", "title": "T", "text": "..."}, or id, tab, text'
HUB_QRELS = "BeIR/NAME has its qrels in BeIR/NAME-qrels; data sets under mteb/ have corpus, queries and qrels"
TASK = "mteb:"
"""Prefix of an mteb task, whose collection is on the hub."""
MAX_BAD_ROWS = 100
"""Maximum number of unreadable rows to skip in a collection. With more, it counts as damaged; their ids are missing."""


class CollectionFiles(NamedTuple):
    """Paths of a collection's files by role; () for a role without files.

    where : the folder, or the address with its commit.   note : as in `HubFiles`.
    """

    where: str
    corpus: tuple[str, ...]
    queries: tuple[str, ...]
    qrels: tuple[str, ...]
    note: str = ""

    def required(self, role: Literal["corpus", "queries", "qrels"], remedy: str) -> tuple[str, ...]:
        """Return the files of a role. Raises InputError if there are none."""
        files: tuple[str, ...] = getattr(self, role)
        if not files:
            named = "qrels: no qrels/*.tsv, no qrels*.tsv" if role == "qrels" else f"{role}.jsonl"
            more = HUB_QRELS if role == "qrels" and is_address(self.where) else ""
            raise InputError(f"holds no {named}", where=self.where, remedy="; ".join(filter(None, (remedy, more))))
        return files


class Collection:
    """Passages and queries by id. Ids are compared as strings: 7 and "7" are the same.

    bad : "FILE:LINE: FAULT" of each unreadable row, by role.
    """

    def __init__(self, corpus: Sequence[str], queries: Sequence[str], *, titles: bool) -> None:
        self._database = temporary_database(self)
        self.bad: dict[FileKind, list[str]] = {"passages": [], "queries": []}
        self._files: dict[FileKind, Sequence[str]] = {"passages": corpus, "queries": queries}
        for role, files in self._files.items():
            self._database.execute(f"CREATE TABLE {role} (id TEXT, text TEXT)")
            if files:
                self._load(role, files, titles)

    def has(self, role: FileKind) -> bool:
        return bool(self._files[role])

    def passage(self, key: str) -> str | None:
        """Return the text of a passage with its title joined; None if the id is unknown."""
        return self._text("passages", key)

    def query(self, key: str) -> str | None:
        """Return the text of a query; None if the id is unknown."""
        return self._text("queries", key)

    def passages(self) -> Iterator[str]:
        """Yield the texts of all passages with titles joined, in file order."""
        for row in self._database.execute("SELECT text FROM passages ORDER BY rowid"):
            yield row[0]

    def passage_ids(self, places: Iterable[int]) -> list[str]:
        """Return the ids of the passages at these places. A place counts passages in file order, from 0."""
        rows = (self._database.execute("SELECT id FROM passages WHERE rowid = ?", (place + 1,)) for place in places)
        return [row.fetchone()[0] for row in rows]

    def _text(self, role: FileKind, key: str) -> str | None:
        row = self._database.execute(f"SELECT text FROM {role} WHERE id = ? LIMIT 1", (key,)).fetchone()  # noqa: S608
        return row[0] if row else None

    def _load(self, role: FileKind, files: Sequence[str], titles: bool) -> None:
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
    role: FileKind, files: Sequence[str], *, titles: bool, skipped: list[str] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of each row of corpus or query files, in file order.

    files : at least one path.   skipped : list to which "FILE:LINE: FAULT" of each unreadable row is added.
    Raises InputError if a file cannot be read, the first row is unreadable, there are no rows, or more than
    MAX_BAD_ROWS rows of a file are unreadable.
    """
    n_read = 0
    bad: list[tuple[int, str]] = []
    for file in files:
        for line, row in read_rows(file):
            pair = _id_and_text(row, role, titles=titles)
            if isinstance(pair, str):
                bad.append((line, pair))
                if len(bad) > MAX_BAD_ROWS or not n_read:
                    where, what = f"{file}:{bad[0][0]}", f"not a file of {role} with ids: {bad[0][1]}"
                    raise InputError(what, where=where, remedy=ROWS_REMEDY)
                if skipped is not None:
                    skipped.append(f"{file}:{line}: {pair}")
                continue
            n_read += 1
            yield pair
    if not n_read:
        raise InputError(f"holds no {role}", where=files[0], remedy=ROWS_REMEDY)


def _id_and_text(row: Row | Broken, role: FileKind, *, titles: bool) -> tuple[str, str] | str:
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
    """Return the collection that the settings name, and load it once per process.

    The settings `corpus` and `queries` override `collection`. Raises InputError if a file is missing or is not a
    collection.
    """
    corpus, queries = (tuple(data_files(path)) if path else () for path in (settings.corpus, settings.queries))
    if settings.collection is not None:
        files = collection_files(settings.collection, BEIR_FOLDER)
        corpus, queries = corpus or files.required("corpus", BEIR_FOLDER), queries or files.queries
    return _opened(corpus, queries, settings.titles, tuple(map(stamp, (*corpus, *queries))))


def open_noting_bad_rows(settings: Settings, progress: Progress) -> Collection:
    """Open the collection, and note whether it is a Parquet conversion and which rows are unreadable."""
    collection = open_collection(settings)
    note = collection_files(settings.collection, BEIR_FOLDER).note if settings.collection else ""
    if note:
        progress.note(note)
    for role, bad in collection.bad.items():
        if bad:
            if len(bad) == 1:
                progress.note(f"1 unreadable row among the collection's {role} is left out: {bad[0]}")
            else:
                progress.note(f"{len(bad)} unreadable rows among the collection's {role} are left out; first: {bad[0]}")
    return collection


def with_commits(settings: Settings) -> Settings:
    """Return the settings with every hub address pinned to the commit that was read."""
    name = settings.collection
    return replace(
        settings,
        collection=collection_files(name, BEIR_FOLDER).where if name and _on_hub(name) else name,
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
    """Return (modification time in ns, size in bytes) of a file. Raises InputError if it cannot be opened."""
    try:
        status = Path(on_disk(path)).stat()
    except OSError as error:
        raise InputError(f"cannot be opened ({error.strerror})", where=path, remedy=OPEN_REMEDY) from error
    return status.st_mtime_ns, status.st_size


def collection_files(collection: str, remedy: str) -> CollectionFiles:
    """Return the files of a collection.

    collection : a BEIR folder (corpus.*, queries.*, qrels/*.tsv or qrels*.tsv), the address of a data set on the hub,
                 or an mteb task (`mteb:SciFact`).
    remedy     : advice in the InputError raised if no such folder exists.
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


# Ids or texts? The collection decides. Without one, column names and the form of the values decide.

MIN_RESOLVED_FRACTION = 0.1
"""Minimum share of a column's values found in the collection if they are ids. A small corpus lacks many ids, but a text
is never an id."""

MAX_LOOKUPS = 2000
"""Maximum number of values to look up: enough to estimate a share, within milliseconds."""

MAX_ID_CHARS = 512
"""Maximum length of a value to look up as an id."""

ID_COLUMN = (r"(.*[_-])?ids?|[qp]ids?|doc_?ids?", *PASSAGE_ID_NAMES, *QUERY_ID_NAMES, POSITIVE_IDS, NEGATIVE_IDS)
"""Names of columns that never hold texts."""

AS_TEXTS = {"ids": "triplet", "id-rows": "rows", "columns": "triplet"}
ONLY_IDS = frozenset({"id-columns", "text-and-ids", "tevatron-ids", "colbert"})
"""AS_TEXTS: id schema -> the schema that reads the same columns as texts. ONLY_IDS: schemas that hold only ids."""


def with_ids(binding: Binding, head: Head, settings: Settings, path: str, *, texts: bool) -> Binding:
    """Return the binding with `query_ids` and `passage_ids` set.

    A column named as ids holds ids. With a collection, a column also holds ids if the collection contains at least
    MIN_RESOLVED_FRACTION of its values, or if its passages are single words. Without one, it holds ids if its values
    are whole numbers or words with a digit, `_` or `:`, or if they are words in a row whose query is an id.
    texts : whether the user's `--format` says that words are texts.
    Raises InputError if the collection holds none of the ids.
    """
    if binding.pairs:
        return binding
    if binding.positive_texts:
        positives = [value for cells in extract_rows(binding, head) for value in leaves(cells[1])]
        if _are_ids([value for value in positives if isinstance(value, str | int)], settings):
            binding = replace(binding, positive_texts=False)
    queries, passages = _cells(binding, head)
    columns = (*(binding.columns or ())[1:], binding.inner)
    columns = columns[:1] if binding.labelled else columns
    passages_named = any(fits(name, ID_COLUMN) for name in columns) or _are_references(passages)
    values = [value for value in leaves(passages) if isinstance(value, str | int)][:MAX_LOOKUPS]
    has_collection = bool(settings.collection or settings.corpus or settings.queries)
    queries_named = fits(binding.query, ID_COLUMN)
    whole_numbers = bool(queries) and all(type(query) is int or str(query).isdecimal() for query in queries)
    collection = open_collection(settings) if has_collection and (values or queries) else None
    if collection is not None and collection.has("passages"):
        n = _n_resolved(values, collection.passage)
        like_ids = look_like_ids(values) or look_like_words(values)
        passage_ids = passages_named or n >= MIN_RESOLVED_FRACTION * max(1, len(values)) or (like_ids and not texts)
        if passage_ids and values and not n:
            raise _unresolved("passage", values, binding, path, certain=passages_named)
    else:
        like_ids = look_like_ids(values) or look_like_names(values)
        like_ids = like_ids or ((queries_named or whole_numbers) and look_like_words(values))
        passage_ids = passages_named or (like_ids and not texts)
    query_ids = queries_named or (whole_numbers and not texts)
    if collection is not None and collection.has("queries"):
        n = _n_resolved(queries, collection.query)
        query_ids = query_ids or n >= MIN_RESOLVED_FRACTION * max(1, len(queries))
        if query_ids and queries and not n:
            raise _unresolved("query", queries, binding, path, certain=queries_named)
    elif passage_ids and not texts:
        query_ids = query_ids or look_like_ids(queries)
    numbers = [*(values if passage_ids else ()), *(queries if query_ids else ())]
    return replace(
        binding, passage_ids=passage_ids, query_ids=query_ids, numbers=any(type(value) is int for value in numbers)
    )


def _are_ids(values: list[str | int], settings: Settings) -> bool:
    """Tell whether values are ids: the collection holds some of them, or they look like ids."""
    values = values[:MAX_LOOKUPS]
    has_passages = bool(settings.collection or settings.corpus)
    n = _n_resolved(values, open_collection(settings).passage) if has_passages else 0
    return n >= MIN_RESOLVED_FRACTION * max(1, len(values)) or look_like_ids(values) or look_like_names(values)


def _cells(binding: Binding, head: Head) -> tuple[list[Any], list[Any]]:
    queries: list[Any] = []
    passages: list[Any] = []
    for query, *cells in extract_rows(binding, head):
        queries.append(query)
        passages.extend(cells[:1] if binding.labelled else cells[1:] if binding.positive_texts else cells)
    return [query for query in queries if isinstance(query, str | int)], passages


def _are_references(passages: Sequence[Any]) -> bool:
    """Tell whether most of the passages given as objects have an id but no text."""
    lists = (cell for cell in passages if isinstance(cell, list | tuple))
    objects = [item for items in (passages, *lists) for item in items if isinstance(item, dict)]
    references = [item for item in objects if passage_text(item) is None and passage_id(item) is not None]
    return bool(objects) and 2 * len(references) > len(objects)


def _n_resolved(values: Sequence[Any], lookup: Callable[[str], str | None]) -> int:
    known: dict[str, bool] = {}
    for text in map(str, values):
        if text not in known:
            known[text] = len(text) <= MAX_ID_CHARS and lookup(text) is not None
    return sum(known[text] for text in map(str, values))


def _unresolved(what: str, values: Sequence[Any], binding: Binding, path: str, *, certain: bool) -> InputError:
    file = flag_of("corpus" if what == "passage" else "queries", "FILE")
    only_ids = certain or binding.schema in ONLY_IDS
    texts = "" if only_ids else f"if they are texts, {remedy_of_texts(binding)}; "
    return InputError(
        f"the collection has no {what} for any id of the first rows, such as {str(values[0])[:60]!r}",
        where=path,
        remedy=f"{texts}if another file holds them, use {file}",
    )


def remedy_of_texts(binding: Binding) -> str:
    """Return the remedy for a file whose texts look like ids."""
    if binding.numbers:
        return "write them as texts, in quotation marks"
    return f"use --format {AS_TEXTS.get(binding.schema, binding.schema)}"
