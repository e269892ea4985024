"""Open a source: infer the schemas of its files, and stream its records and defects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Any

from secid.errors import InputError
from secid.files import temporary_database
from secid.read.binding import PASSAGE_ID_NAMES, Binding, fits
from secid.read.clean import Cleaner, LabelledPair, Lookup, RecordOrDefect
from secid.read.collection import ONLY_IDS, Collection, FileKind, open_collection, remedy_of_texts
from secid.read.containers import COLUMNAR_KINDS, DOCUMENT_KINDS, Container, open_parts, sniff
from secid.read.detect import detect
from secid.read.evaluation import run_of
from secid.read.stream import Broken, ByteStream, Part, PartIterator, Row, is_read_once, on_disk
from secid.read.textrows import JSON_REMEDIES, READABLE_FORMATS
from secid.records import Block, Defect, Extras, Fact, Record, Source, fault_text
from secid.results import InputFile
from secid.settings import Settings, flag_of

HEAD_ROWS = 64
"""Number of parsed rows from which the schema is inferred: enough to outvote a few odd rows, at little cost."""

MAX_HEAD_TRIES = 1000
"""Maximum number of rows to try before a file without a parsed row counts as unreadable."""

MAX_HEAD_PARTS = 16
"""Maximum number of parts to read to infer the schema, so that dozens of megabyte-sized rows do not fill memory."""

MAX_OPEN_FILES = 8
"""Maximum number of a source's files that stay open from detection to reading. Some systems allow 256 in a process."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file with its schema. stream, parts: the open stream and its rows; None if reading must open the file again."""

    path: str
    container: Container
    binding: Binding | None = None
    cleaner: Cleaner | None = None
    stream: ByteStream | None = None
    parts: PartIterator | None = None

    def shape(self) -> InputFile:
        schema, mapping = (self.binding.schema, self.binding.mapping) if self.binding else ("empty", "")
        return InputFile(path=self.path, container=str(self.container), schema=schema, mapping=mapping)


class Reader:
    """Iterator over the records and defects of a source. It can be iterated once.

    files   : container and schema of each file, known before iteration.
    n_bytes : size of all files on disk in bytes; None for standard input, pipes and objects.
    """

    def __init__(
        self, source: Source, settings: Settings, *, keep: bool = False, without_negatives: bool = False
    ) -> None:
        self.source = source
        self._settings = settings
        self._keep, self._without_negatives = keep, without_negatives
        self._stream: ByteStream | None = None
        self._bytes_done = self._bytes_within = 0
        self._content: list[InputFile] | None = None
        self._files: list[_File] = []
        try:
            for path in source.paths:
                self._files.append(self._inspect(path))
            if all(file.binding is None for file in self._files):
                where = ", ".join(source.paths[:3])
                what, remedy = "holds no row: it is empty, or has only a header", "leave this source out, or add rows"
                raise InputError(what, where=where, remedy=remedy)
        except BaseException:
            self.close()
            raise
        self.files = tuple(file.shape() for file in self._files)
        once = any(map(is_read_once, source.paths))
        self.n_bytes = None if once else sum(Path(on_disk(path)).stat().st_size for path in source.paths)

    def close(self) -> None:
        """Close the files that are still open. Needed only if the reader is not iterated to its end."""
        for file in self._files:
            if file.stream is not None:
                file.stream.close()

    @property
    def uses_collection(self) -> bool:
        """Tell whether any file holds ids, whose texts come from the collection."""
        return any(
            file.binding is not None and (file.binding.query_ids or file.binding.passage_ids) for file in self._files
        )

    def unused_flags(self) -> set[str]:
        """Return the flags that have no effect on any of these files, as the user types them."""
        bindings = [(file.container.kind, file.binding) for file in self._files if file.binding is not None]
        labelled = any(binding.labelled for _, binding in bindings)
        nameless = any(kind == "table" or binding.columns is None for kind, binding in bindings)
        score, header = self._settings.positive_score, self._settings.header
        unused = set() if labelled or score is None else {flag_of("positive_score")}
        if self._settings.ranks is not None and not any(file.container.run for file in self._files):
            unused.add(flag_of("ranks"))
        return unused if nameless or header is None else unused | {flag_of("header", header)}

    def count_judged(self) -> Counter[str]:
        """Count the judged and the unjudged negatives of the runs read so far."""
        runs = (file.container.run for file in self._files)
        return sum((run.counts for run in runs if run is not None), Counter[str]())

    def bytes_read(self) -> int:
        """Return the bytes read from disk so far. For Parquet and Arrow, estimate them from the share of rows read."""
        return self._bytes_done + max(self._bytes_within, self._stream.n_bytes_read if self._stream else 0)

    def content(self) -> tuple[InputFile, ...]:
        """Return the files with their hashes and sizes. Raises RuntimeError before the iteration has ended."""
        if self._content is None or len(self._content) < len(self._files):
            raise RuntimeError("content() is known after the last row")
        return tuple(self._content)

    def __iter__(self) -> Iterator[RecordOrDefect]:
        """Yield one item per row and source in it. Labelled pairs come last, as one item per query and source."""
        for item in self.blocks():
            if isinstance(item, Block):
                yield from item.records()
            else:
                yield item

    def blocks(self) -> Iterator[RecordOrDefect | Block]:
        """Yield the same items as the iteration, with good rows in blocks."""
        if self._content is not None:
            raise RuntimeError("a reader can be iterated once")
        self._content = []
        paired = any(file.binding is not None and file.binding.labelled == "pair" for file in self._files)
        groups = PairGroups(without_negatives=self._without_negatives) if paired else None
        try:
            for place, file in enumerate(self._files):
                self._files[place] = replace(file, stream=None, parts=None)
                yield from self._read(file, self._content, groups)
        finally:
            self.close()
        if groups is not None:
            yield from groups.items()

    def _read(
        self, file: _File, contents: list[InputFile], groups: PairGroups | None
    ) -> Iterator[RecordOrDefect | Block]:
        stream = file.stream or ByteStream(file.path)
        columnar = file.container.kind in COLUMNAR_KINDS
        n_bytes = Path(on_disk(file.path)).stat().st_size if columnar and not is_read_once(file.path) else 0
        self._stream = stream
        try:
            if file.cleaner is not None:
                parts = file.parts or open_parts(stream, file.container, self._columns(file))
                for part in parts:
                    self._bytes_within = int(part.fraction_read * n_bytes)
                    yield from _items(part, file, file.cleaner, groups)
            stream.drain()
        finally:
            stream.close()
            self._stream = None
            self._bytes_within = 0
        contents.append(replace(file.shape(), sha256=stream.sha256, n_bytes=stream.n_bytes_read))
        self._bytes_done += stream.n_bytes_read

    def _columns(self, file: _File) -> tuple[str, ...] | None:
        """Return the names of the columns to read; None for all."""
        binding = file.binding
        if binding is None or binding.columns is None or self._keep:
            return None
        extra = filter(None, (self._settings.source_column, self._settings.by))
        return (*binding.text_columns, *extra)

    def _inspect(self, path: str) -> _File:
        """Infer the container and schema of a file from its first rows."""
        data = self.source.data
        stream, keep = ByteStream(path, None if data is None else data.open()), False
        try:
            settings = self._settings
            flags = settings.query_column, settings.positive_column, settings.negative_column, settings.label_column
            if data is not None:
                container = Container(data.kind)
            else:
                container = run_of(stream, settings) or sniff(stream, settings.header, [*filter(None, flags)])
            run, parts = container.run, open_parts(stream, container)
            head, tried = first_rows(parts)
            good: list[Row] = [row for _, row in tried if not isinstance(row, Broken)]
            if tried and not good and run is None:
                _refuse_unreadable(tried, path)
            # A document is parsed again, because otherwise several whole sources would be in memory.
            keep = is_read_once(path) or (len(self._files) < MAX_OPEN_FILES and container.kind not in DOCUMENT_KINDS)
            rows = None if container.kind in COLUMNAR_KINDS or not keep else chain(head, parts)
            file = _File(path, container, stream=stream if keep else None, parts=rows)
            if run is not None or good:
                without = self._without_negatives
                binding = run.binding if run else detect(good, settings, path, without_negatives=without)
                file = replace(file, binding=binding, cleaner=self._cleaner(binding, path))
        except BaseException:
            keep = False
            raise
        finally:
            if not keep:
                stream.close()
        return file

    def _cleaner(self, binding: Binding, path: str) -> Cleaner:
        lookups: list[Lookup] = []
        if binding.query_ids or binding.passage_ids:
            collection = _collection_for(binding, path, self._settings)
            lookups = [collection.query, collection.passage]
        keep, without = self._keep, self._without_negatives
        return Cleaner(binding, path, self._settings, *lookups, keep=keep, without_negatives=without)


def open_source(source: Source, settings: Settings, *, keep: bool = False, without_negatives: bool = False) -> Reader:
    """Open a source, and infer containers and schemas from the first rows of its files.

    keep              : whether records include the rest of their rows (Record.extras), as copies need it.
    without_negatives : whether rows with only a query and positives are records too; only with `keep`.
    Raises InputError if a file cannot be read. Raises SchemaError if its schema cannot be inferred.
    """
    return Reader(source, settings, keep=keep, without_negatives=without_negatives)


@contextmanager
def open_sources(sources: Iterable[Source], settings: Settings) -> Iterator[list[Reader]]:
    """Open all sources before reading the first, and close them at the end."""
    with ExitStack() as stack:
        yield [stack.enter_context(closing(open_source(source, settings))) for source in sources]


def _items(part: Part, file: _File, cleaner: Cleaner, groups: PairGroups | None) -> Iterator[RecordOrDefect | Block]:
    if groups is None or file.binding is None or file.binding.labelled != "pair":
        yield from cleaner.blocks(part.numbers, part.rows)
        return
    for line, row in zip(part.numbers, part.rows, strict=True):
        item = cleaner.pair(line, row)
        if isinstance(item, LabelledPair):
            groups.add(item)
        else:
            yield item


def first_rows(parts: PartIterator) -> tuple[list[Part], list[tuple[int, Row | Broken]]]:
    """Return the first parts of a file, and their (number, row) pairs, from which the schema is inferred.

    Reading stops after HEAD_ROWS good rows, MAX_HEAD_PARTS parts or MAX_HEAD_TRIES rows.
    """
    head: list[Part] = []
    tried: list[tuple[int, Row | Broken]] = []
    n_good = 0
    for part in islice(parts, MAX_HEAD_PARTS):
        head.append(part)
        for line, row in zip(part.numbers, part.rows, strict=True):
            tried.append((line, row))
            n_good += not isinstance(row, Broken)
            if n_good == HEAD_ROWS or len(tried) == MAX_HEAD_TRIES:
                return head, tried
    return head, tried


def _refuse_unreadable(tried: list[tuple[int, Row | Broken]], path: str) -> None:
    line, problem = tried[0]
    if isinstance(problem, Broken):
        what = f"none of the first {len(tried)} rows can be read; the first: {fault_text(problem.fact)}"
        remedy = JSON_REMEDIES.get(problem.fact.kind, READABLE_FORMATS)
        raise InputError(what, where=f"{path}:{line}", remedy=remedy)


def _collection_for(binding: Binding, path: str, settings: Settings) -> Collection:
    if settings.collection is None and (settings.corpus if binding.passage_ids else settings.queries) is None:
        what = " and ".join(["queries"] * binding.query_ids + ["passages"] * binding.passage_ids)
        files = f"{flag_of('corpus', 'FILE')} and {flag_of('queries', 'FILE')}"
        remedy = f"name their texts with --collection DIR (a BEIR folder), or {files}"
        if binding.schema not in ONLY_IDS:
            remedy = f"{remedy}; if they are texts, {remedy_of_texts(binding)}"
        raise InputError(
            f"holds ids of {what}, not texts ({binding.mapping}), but no collection is given", where=path, remedy=remedy
        )
    collection = open_collection(settings)
    roles: tuple[tuple[FileKind, str, bool], ...] = (
        ("queries", "queries", binding.query_ids),
        ("passages", "corpus", binding.passage_ids),
    )
    for role, flag, needed in roles:
        if needed and not collection.has(role):
            missing = f"{settings.collection} has none" if settings.collection else f"no file of {role} is given"
            remedy = f"name their texts with {flag_of(flag, 'FILE')}"
            raise InputError(f"holds ids of {role}, but {missing}", where=path, remedy=remedy)
    return collection


INSERT_ROWS = 1000
"""Pairs per SQLite call. One call per pair would cost more than the insertion."""

SELECT_OF_SOURCE = (
    "SELECT split, query, passage, positive, path, line, n_late, columns FROM pairs "
    "WHERE key = ? AND (split IS ? OR split IS NULL) ORDER BY rowid"
)
SELECT_POSITIVES = (
    "SELECT split, query, passage, positive, path, line, n_late, columns FROM pairs "
    "WHERE key = ? AND positive ORDER BY rowid"
)
SELECT_NEGATIVES = "SELECT passage FROM pairs WHERE key = ? AND NOT positive AND split IS NOT NULL"
"""Queries for the pairs of one query. SELECT_OF_SOURCE: pairs of one source and pairs without a source.
SELECT_NEGATIVES: negatives, which all have a source."""


class PairGroups:
    """Group labelled pairs into one record or defect per query and source.

    A positive without a source counts for every source of its query. A source that has no positive for a query takes
    the positives of the query's other sources.
    """

    def __init__(self, *, without_negatives: bool = False) -> None:
        """Start without pairs. without_negatives: whether queries with only positives become records."""
        self._database, self._least = temporary_database(self), 0 if without_negatives else 1
        self._database.execute("CREATE TABLE pairs (key, split, query, passage, positive, path, line, n_late, columns)")
        self._waiting: list[tuple[bytes, LabelledPair]] = []

    def add(self, pair: LabelledPair) -> None:
        # A 16-byte hash sorts and compares faster than a query. In practice, two texts never share a hash.
        self._waiting.append((blake2b(pair.query.encode(), digest_size=16).digest(), pair))
        if len(self._waiting) >= INSERT_ROWS:
            self._insert()

    def _insert(self) -> None:
        self._database.execute("BEGIN")
        rows = ((key, *pair) for key, pair in self._waiting)
        self._database.executemany("INSERT INTO pairs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._database.execute("COMMIT")
        self._waiting.clear()

    def items(self) -> Iterator[RecordOrDefect]:
        """Yield one item per (source, query) in order of first appearance, then delete the pairs.

        Passages are in file order.
        """
        self._insert()
        database = self._database
        database.execute("CREATE INDEX by_key ON pairs (key, split)")
        groups = database.execute(
            "SELECT key, split, min(rowid) AS first FROM pairs GROUP BY key, split ORDER BY first"
        )
        for key, split, _ in groups:
            if split is None and database.execute(SELECT_NEGATIVES, (key,)).fetchone():
                continue  # positives without a source belong to the sources that have negatives
            pairs = [LabelledPair._make(row) for row in database.execute(SELECT_OF_SOURCE, (key, split))]
            split_pairs = [pair for pair in pairs if pair.split == split]
            positives = [pair for pair in pairs if pair.positive]
            if not any(pair.positive for pair in split_pairs):
                positives = [LabelledPair._make(row) for row in database.execute(SELECT_POSITIVES, (key,))]
            elif all(pair.positive for pair in split_pairs):
                pairs = split_pairs
            yield _item(pairs, split, positives, self._least)
        database.close()


def _item(pairs: list[LabelledPair], split: str | None, positives: list[LabelledPair], least: int) -> RecordOrDefect:
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


def _extras(query: str, positives: Sequence[LabelledPair], negatives: Sequence[LabelledPair]) -> Extras:
    """Return the other columns of a query's pairs: the shared value of each column, or the list of its values.

    A column of passage ids becomes the cells of the passages.
    """
    rows = [json.loads(pair.columns) for pair in (*positives, *negatives)]
    columns = {name: [row.get(name) for row in rows] for name in dict.fromkeys(chain.from_iterable(rows))}
    named = next((name for name in columns if fits(name, PASSAGE_ID_NAMES)), None)
    ids = columns.pop(named) if named is not None else []
    texts = (pair.passage for pair in (*positives, *negatives))
    cells: list[Any] = [{"docid": docid} for docid in ids] or list(texts)
    shared = {name: values[0] if len(set(map(repr, values))) == 1 else values for name, values in columns.items()}
    n = len(positives)
    return Extras(shared, query, list(enumerate(cells[:n])), list(enumerate(cells[n:])))
