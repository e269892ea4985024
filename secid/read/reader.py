"""A source, opened: its files' schemas, and its stream of records and defects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from secid.errors import InputError, plainly
from secid.read.clean import Cleaner, Item, Pair
from secid.read.collection import Collection, Role, open_collection
from secid.read.containers import COLUMNAR, Container, open_parts, sniff
from secid.read.grouping import PairGroups
from secid.read.rows import ENCODING, Broken, Part, Parts, Row, numbered
from secid.read.schemas.binding import Binding
from secid.read.schemas.detect import detect
from secid.read.stream import ByteStream, once_only
from secid.records import Block, Source
from secid.settings import Settings, flag_of

HEAD_ROWS = 64
"""Good rows that detection looks at: enough to outvote a few odd ones, few enough to cost nothing."""

HEAD_TRIES = 1000
"""Rows that detection tries for a good one before it calls the file unreadable."""

HEAD_CHARACTERS = 32 << 20
"""Characters of good rows that are enough, however few the rows: those of megabytes are not held by the dozen."""


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
    pending: tuple[ByteStream, Parts] | None


class Reader:
    """A source's rows as records and defects. Iterable once.

    files   : what was understood of each file, known before the first row is asked for.
    n_bytes : bytes of all files as they lie on disk; None for standard input and pipes.
    """

    def __init__(self, source: Source, settings: Settings, *, keep: bool = False) -> None:
        self.source = source
        self._settings = settings
        self._keep = keep
        self._files = [self._inspect(path) for path in source.paths]
        self.files = tuple(_shape(file) for file in self._files)
        if all(file.binding is None for file in self._files):
            raise InputError(
                "holds no row",
                where=", ".join(source.paths[:3]),
                remedy="it is empty, or holds the names of columns alone",
            )
        once = any(file.pending for file in self._files)
        self.n_bytes = None if once else sum(Path(path).stat().st_size for path in source.paths)
        self._stream: ByteStream | None = None
        self._bytes_done = self._bytes_within = 0
        self._content: list[FileContent | Future[FileContent]] | None = None

    def idle_flags(self) -> set[str]:
        """Flags, as typed, that have no effect on any of these files."""
        bindings = [(file.container.kind, file.binding) for file in self._files if file.binding is not None]
        labelled = any(binding.labelled for _, binding in bindings)
        nameless = any(kind == "table" or binding.columns is None for kind, binding in bindings)
        score, header = self._settings.positive_score, self._settings.header
        idle = set() if labelled or score is None else {flag_of("positive_score")}
        return idle if nameless or header is None else idle | {flag_of("header", header)}

    def bytes_read(self) -> int:
        """Bytes taken from the disk so far; for Parquet and Arrow by the share of the rows."""
        return self._bytes_done + max(self._bytes_within, self._stream.n_bytes_read if self._stream else 0)

    def content(self) -> tuple[FileContent, ...]:
        """Hash and size of each file. Raises RuntimeError before the iteration has ended."""
        if self._content is None or len(self._content) < len(self._files):
            raise RuntimeError("content() is known after the last row")
        return tuple(item.result() if isinstance(item, Future) else item for item in self._content)

    def __iter__(self) -> Iterator[Item]:
        """Every row as one item for each source in it; labelled pairs as one item a query, after all other rows."""
        for item in self.blocks():
            if isinstance(item, Block):
                yield from item.records()
            else:
                yield item

    def blocks(self) -> Iterator[Item | Block]:
        """The same, sound rows in blocks."""
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

    def _read(self, file: _File, groups: PairGroups | None, hashing: ThreadPoolExecutor) -> Iterator[Item | Block]:
        contents = self._content if self._content is not None else []
        columnar = file.container.kind in COLUMNAR and not file.pending and not file.container.compression
        # Parquet is read at random places, so its hash is taken beside the reading.
        beside = hashing.submit(_hash_file, file.path) if columnar else None
        n_bytes = Path(file.path).stat().st_size if columnar else 0
        stream, parts = file.pending or self._open(file)
        self._stream = stream
        try:
            for part in parts if file.cleaner is not None else ():
                self._bytes_within = int(part.done * n_bytes)
                yield from _items(part, file, groups)
            if beside is None:
                stream.drain()
        finally:
            stream.close()
            self._stream = None
            self._bytes_within = 0
        content = beside or FileContent(file.path, stream.sha256, stream.n_bytes_read)
        contents.append(content)
        self._bytes_done += n_bytes if columnar else stream.n_bytes_read

    def _open(self, file: _File) -> tuple[ByteStream, Parts]:
        stream = ByteStream(file.path)
        columns = None
        if file.binding and file.binding.columns is not None and not self._keep:
            asides = filter(None, (self._settings.source_column, self._settings.by))
            titles = (title for _, title in file.binding.titles)
            columns = (*file.binding.columns, *titles, *file.binding.beside, *asides)
        return stream, open_parts(stream, file.container, columns)

    def _inspect(self, path: str) -> _File:
        """Container, schema and cleaner of a file, from its first rows."""
        stream = ByteStream(path)
        keep = False
        try:
            container = sniff(stream, self._settings.header)
            parts = open_parts(stream, container)
            head, tried = first_rows(parts)
            good: list[Row] = [row for _, row in tried if not isinstance(row, Broken)]
            if tried and not good:
                line, problem = tried[0]
                detail = problem.detail if isinstance(problem, Broken) else ""
                raise InputError(
                    f"none of the first {len(tried)} rows can be read; the first: {detail}",
                    where=f"{path}:{line}",
                    remedy=ENCODING if "UTF-8" in detail else "is it JSON lines, CSV, TSV, Parquet or Arrow, in UTF-8?",
                )
            keep = once_only(path)
            pending = (stream, chain(head, parts)) if keep else None
            if not good:
                return _File(path, container, None, None, pending)
            binding = detect(good, self._settings, path)
            return _File(path, container, binding, self._cleaner(binding, path), pending)
        finally:
            if not keep:
                stream.close()

    def _cleaner(self, binding: Binding, path: str) -> Cleaner:
        if not (binding.query_ids or binding.passage_ids):
            return Cleaner(binding, path, self._settings, keep=self._keep)
        collection = _collection_for(binding, path, self._settings)
        return Cleaner(binding, path, self._settings, collection.query, collection.passage, keep=self._keep)


def open_source(source: Source, settings: Settings, *, keep: bool = False) -> Reader:
    """Open a source: containers and schemas are found from the files' first rows.

    keep : whether records come with what else their rows hold (Record.extras), for copies of them.
    Raises InputError where a file cannot be read, SchemaError where it cannot be understood.
    """
    return Reader(source, settings, keep=keep)


def _items(part: Part, file: _File, groups: PairGroups | None) -> Iterator[Item | Block]:
    cleaner = file.cleaner
    if cleaner is None:
        return
    if groups is None or file.binding is None or file.binding.labelled != "pair":
        yield from cleaner.blocks(part.numbers, part.rows)
        return
    for line, row in zip(part.numbers, part.rows, strict=True):
        found = cleaner.pair(line, row)
        if isinstance(found, Pair):
            groups.add(found)
        else:
            yield found


def first_rows(parts: Parts) -> tuple[list[Part], list[tuple[int, Row | Broken]]]:
    """The parts that hold a file's head, and its numbered rows: those that its schema is found from."""
    head = list(_until_enough(parts))
    return head, list(_tried(head))


def _until_enough(parts: Parts) -> Iterator[Part]:
    """Parts that hold HEAD_ROWS good rows, HEAD_CHARACTERS of them, or HEAD_TRIES rows."""
    n_good = n_tried = n_characters = 0
    for part in parts:
        yield part
        n_tried += len(part.rows)
        n_good += sum(not isinstance(row, Broken) for row in part.rows)
        if n_good >= HEAD_ROWS or n_tried >= HEAD_TRIES:
            return
        n_characters += sum(map(_characters, part.rows))
        if n_characters >= HEAD_CHARACTERS:
            return


def _characters(row: Any) -> int:
    """Characters of all texts in a row."""
    waiting, total = [row], 0
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            total += len(value)
        elif isinstance(value, list | dict):
            waiting.extend(value.values() if isinstance(value, dict) else value)
    return total


def _tried(head: Sequence[Part]) -> Iterator[tuple[int, Row | Broken]]:
    """Rows up to HEAD_ROWS good ones, HEAD_TRIES at most."""
    n_good = 0
    for line, row in islice(numbered(iter(head)), HEAD_TRIES):
        yield line, row
        n_good += not isinstance(row, Broken)
        if n_good == HEAD_ROWS:
            return


def _shape(file: _File) -> FileShape:
    if file.binding is None:
        return FileShape(file.path, str(file.container), "empty", "")
    return FileShape(file.path, str(file.container), file.binding.schema, file.binding.mapping)


def _collection_for(binding: Binding, path: str, settings: Settings) -> Collection:
    given = [settings.collection, settings.corpus if binding.passage_ids else settings.queries]
    if given == [None, None]:
        what = " and ".join(["queries"] * binding.query_ids + ["passages"] * binding.passage_ids)
        raise InputError(
            f"holds ids of {what}, not texts ({binding.mapping}), and no collection was given",
            where=path,
            remedy=f"--collection DIR (a BEIR folder), or {flag_of('corpus', 'FILE')} and "
            f"{flag_of('queries', 'FILE')}, resolve the ids; if they are texts, --format names the schema",
        )
    collection = open_collection(settings)
    roles: tuple[tuple[Role, str, bool], ...] = (
        ("queries", "queries", binding.query_ids),
        ("passages", "corpus", binding.passage_ids),
    )
    for role, flag, needed in roles:
        if needed and not collection.has(role):
            there = f"{settings.collection} holds none" if settings.collection else f"no file of {role} was given"
            raise InputError(
                f"holds ids of {role}, and {there}", where=path, remedy=f"{flag_of(flag, 'FILE')} names their texts"
            )
    return collection


def _hash_file(path: str) -> FileContent:
    try:
        with Path(path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
            return FileContent(path, digest.hexdigest(), file.tell())
    except OSError as error:
        raise InputError(f"cannot be read ({plainly(error)})", where=path) from error
