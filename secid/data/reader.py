"""A source, opened: its files' schemas, and its stream of records and defects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from secid.data.clean import Cleaner, Item, Pair
from secid.data.collection import Collection, open_collection
from secid.data.containers import COLUMNAR, Container, open_rows, sniff
from secid.data.grouping import PairGroups
from secid.data.rows import Broken, Row, Rows
from secid.data.schemas.binding import Binding
from secid.data.schemas.detect import detect
from secid.data.stream import STDIN, ByteStream
from secid.errors import InputError
from secid.records import Source
from secid.settings import Settings

HEAD_ROWS = 64
"""Good rows that detection looks at: enough to outvote a few odd ones, few enough to cost nothing."""

HEAD_TRIES = 1000
"""Rows that detection tries for a good one before it calls the file unreadable."""


@dataclass(frozen=True, slots=True)
class FileShape:
    """What was understood of one file.

    container : "jsonl, gz", "tsv without header", "parquet", ...
    schema    : name of the shape, as `--format` takes it; "empty" where the file has no row.
    mapping   : "query=anchor, positive=positive, negatives=negative_1…negative_10".
    """

    path: str
    container: str
    schema: str
    mapping: str


@dataclass(frozen=True, slots=True)
class FileContent:
    """What was read of one file: the SHA-256 (hex) and number of its bytes as they lie on disk."""

    path: str
    sha256: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    container: Container
    binding: Binding | None
    cleaner: Cleaner | None
    pending: tuple[ByteStream, Rows] | None


class Reader:
    """A source's rows as records and defects. Iterable once.

    files   : what was understood of each file, known before the first row is asked for.
    n_bytes : bytes of all files as they lie on disk; None for standard input.
    """

    def __init__(self, source: Source, settings: Settings) -> None:
        self.source = source
        self._settings = settings
        self._files = [self._inspect(path) for path in source.paths]
        self.files = tuple(_shape(file) for file in self._files)
        if all(file.binding is None for file in self._files):
            raise InputError("holds no row", where=", ".join(source.paths[:3]))
        self.n_bytes = None if STDIN in source.paths else sum(Path(path).stat().st_size for path in source.paths)
        self._stream: ByteStream | None = None
        self._bytes_done = 0
        self._content: list[FileContent | Future[FileContent]] | None = None

    def bytes_read(self) -> int:
        """Bytes taken from the disk so far; for Parquet and Arrow it moves file by file."""
        return self._bytes_done + (self._stream.n_bytes_read if self._stream else 0)

    def content(self) -> tuple[FileContent, ...]:
        """Hash and size of each file. Raises RuntimeError before the iteration has ended."""
        if self._content is None or len(self._content) < len(self._files):
            raise RuntimeError("content() is known after the last row")
        return tuple(item.result() if isinstance(item, Future) else item for item in self._content)

    def __iter__(self) -> Iterator[Item]:
        """Every row as one item for each source in it; labelled pairs as one item a query, after all other rows."""
        if self._content is not None:
            raise RuntimeError("a reader can be iterated once")
        self._content = []
        groups: PairGroups | None = None
        with ThreadPoolExecutor(max_workers=1) as hashing:
            for file in self._files:
                if file.binding is not None and file.binding.labelled == "pair":
                    groups = groups or PairGroups()
                yield from self._read(file, groups, hashing)
        if groups is not None:
            yield from groups.items()

    def _read(self, file: _File, groups: PairGroups | None, hashing: ThreadPoolExecutor) -> Iterator[Item]:
        contents = self._content if self._content is not None else []
        columnar = file.container.kind in COLUMNAR and file.path != STDIN and not file.container.compression
        # Parquet is read at random places, so its hash is taken beside the reading.
        beside = hashing.submit(_hash_file, file.path) if columnar else None
        stream, rows = file.pending or self._open(file)
        self._stream = stream
        try:
            if file.cleaner is not None:
                yield from _items(rows, file, groups)
            if beside is None:
                stream.drain()
        finally:
            stream.close()
            self._stream = None
        content = beside or FileContent(file.path, stream.sha256, stream.n_bytes_read)
        contents.append(content)
        self._bytes_done += Path(file.path).stat().st_size if columnar else stream.n_bytes_read

    def _open(self, file: _File) -> tuple[ByteStream, Rows]:
        stream = ByteStream(file.path)
        columns = file.binding.columns if file.binding else None
        if columns is not None:
            columns = (*columns, *filter(None, (self._settings.source_column, self._settings.by)))
        return stream, open_rows(stream, file.container, columns)

    def _inspect(self, path: str) -> _File:
        """Container, schema and cleaner of a file, from its first rows."""
        stream = ByteStream(path)
        keep = False
        try:
            container = sniff(stream)
            rows = open_rows(stream, container)
            tried = list(_until_enough(rows))
            good: list[Row] = [row for _, row in tried if not isinstance(row, Broken)]
            if tried and not good:
                line, problem = tried[0]
                detail = problem.detail if isinstance(problem, Broken) else ""
                raise InputError(
                    f"none of the first {len(tried)} rows can be read; the first: {detail}",
                    where=f"{path}:{line}",
                    remedy="is it JSON lines, CSV, TSV, Parquet or Arrow, in UTF-8?",
                )
            keep = path == STDIN
            pending = (stream, chain(tried, rows)) if keep else None
            if not good:
                return _File(path, container, None, None, pending)
            binding = detect(good, self._settings, path)
            return _File(path, container, binding, self._cleaner(binding, path), pending)
        finally:
            if not keep:
                stream.close()

    def _cleaner(self, binding: Binding, path: str) -> Cleaner:
        if not (binding.query_ids or binding.passage_ids):
            return Cleaner(binding, path, self._settings)
        collection = _collection_for(binding, path, self._settings)
        return Cleaner(binding, path, self._settings, collection.query, collection.passage)


def open_source(source: Source, settings: Settings) -> Reader:
    """Open a source: containers and schemas are found from the files' first rows.

    Raises InputError where a file cannot be read, SchemaError where it cannot be understood.
    """
    return Reader(source, settings)


def _items(rows: Rows, file: _File, groups: PairGroups | None) -> Iterator[Item]:
    cleaner = file.cleaner
    if cleaner is None:
        return
    if groups is not None and file.binding is not None and file.binding.labelled == "pair":
        for line, row in rows:
            found = cleaner.pair(line, row)
            if isinstance(found, Pair):
                groups.add(found)
            else:
                yield found
    elif cleaner.one_item_per_row:
        item = cleaner.item
        for line, row in rows:
            yield item(line, row)
    else:
        for line, row in rows:
            yield from cleaner.items(line, row)


def _until_enough(rows: Rows) -> Iterator[tuple[int, Row | Broken]]:
    """Rows up to HEAD_ROWS good ones, HEAD_TRIES at most."""
    n_good = 0
    for numbered in islice(rows, HEAD_TRIES):
        yield numbered
        n_good += not isinstance(numbered[1], Broken)
        if n_good == HEAD_ROWS:
            return


def _shape(file: _File) -> FileShape:
    if file.binding is None:
        return FileShape(file.path, str(file.container), "empty", "")
    return FileShape(file.path, str(file.container), file.binding.schema, file.binding.mapping)


def _collection_for(binding: Binding, path: str, settings: Settings) -> Collection:
    if settings.collection is None and settings.corpus is None:
        what = "ids of queries and passages" if binding.query_ids else "ids of passages"
        raise InputError(
            f"holds {what}, not texts ({binding.mapping}), and no collection was given",
            where=path,
            remedy="--collection DIR (a BEIR folder), or --corpus FILE and --queries FILE, resolve the ids; "
            "if they are texts, --format names the schema",
        )
    collection = open_collection(settings)
    if binding.query_ids and not collection.has("queries"):
        raise InputError("holds ids of queries, and no file of queries was given", where=path, remedy="--queries FILE")
    return collection


def _hash_file(path: str) -> FileContent:
    try:
        with Path(path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
            return FileContent(path, digest.hexdigest(), file.tell())
    except OSError as error:
        raise InputError(f"cannot be read ({error})", where=path) from error
