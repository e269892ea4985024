"""A copy of a source's file with other negatives, in the file's own schema and container.

Whatever is not a negative is kept: byte for byte in JSON lines, field by field in tables, value by
value in Parquet. The original is never touched; the copy is written under a temporary name.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from secid.errors import InputError, OutputError, SchemaError
from secid.export.cells import Chosen, Edit, Layout, cells_of, edit_of, foreign_cell, layout_of
from secid.export.writers import writer_for
from secid.read.clean import Cleaner, Item, Pair
from secid.read.collection import open_collection
from secid.read.containers import Container, open_parts, open_rows, sniff
from secid.read.grouping import PairGroups
from secid.read.reader import first_rows
from secid.read.rows import Broken, Row
from secid.read.schemas.binding import Binding
from secid.read.schemas.detect import detect
from secid.read.stream import ByteStream, once_only
from secid.records import Record
from secid.settings import Settings

Decide = Callable[[Item], Sequence[int | str]]
"""What becomes of a record of the source: for each negative of the copy the place of an own one among the record's, or
the text of another. Empty: all are left out. Called once for every record, in the order of reading, and for every
defect that is not in the copy (the answer counts for nothing). A labelled pair is a record of its own here."""


@dataclass(frozen=True, slots=True)
class _Understood:
    path: str
    container: Container
    layout: Layout
    cleaner: Cleaner


@dataclass(frozen=True, slots=True)
class _Task:
    """One copy. split, decide, width, mixed: as in `rewrite`."""

    split: str
    decide: Decide
    width: int | None
    mixed: bool


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy holds. n_repeated: cells that repeat a negative of their row, since trainers take no empty one."""

    n_rows: int
    n_repeated: int


def rewrite(
    paths: Sequence[str],
    settings: Settings,
    split: str,
    decide: Decide,
    out: Path,
    width: int | None = None,
    *,
    mixed: bool = False,
) -> Copied:
    """Writes the copy of all files of a source, one after another, into one file.

    split : as in Record: which source of the files it is, "" where they hold one.
    width : columns of negatives that the copy keeps, where each negative has its own column; rows
            with fewer repeat theirs from the first. None: all of them.
    mixed : whether `decide` gives texts of other sources. Then rows of the files' other sources are not in the
            copy; else they are as they were, and so are other sources' negatives within a row.
    Raises SchemaError or InputError where the files cannot be rewritten, OutputError where `out` exists
    or cannot be written.
    """
    files = _files(paths, settings, split, out, mixed)
    task = _Task(split, decide, width if mixed or not split else None, mixed)
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        with _packed(partial, out) as file:
            writer = writer_for(files[0].container, files[0].layout, paths, out, file, task.width)
            n_rows = n_repeated = 0
            for row, raw, edit in _passages(files, task) if files[0].layout.whole else _edited(files, task):
                writer.add(row, raw, edit)
                n_rows += 1
                n_repeated += edit.n_repeated
            writer.end()
        partial.replace(out)
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", where=str(out)) from error
    finally:
        partial.unlink(missing_ok=True)
    return Copied(n_rows, n_repeated)


def check_output(paths: Sequence[str], settings: Settings, split: str, out: Path, *, mixed: bool = False) -> None:
    """Raises what `rewrite` would raise before it writes the first row."""
    files = _files(paths, settings, split, out, mixed)
    writer_for(files[0].container, files[0].layout, paths, out, None, None)


def _files(paths: Sequence[str], settings: Settings, split: str, out: Path, mixed: bool) -> list[_Understood]:
    files = [_understand(path, settings, split, mixed) for path in paths]
    if len({(file.container.kind, file.container.dialect, file.layout) for file in files}) > 1:
        raise SchemaError(
            "the files of this source have several schemas, and the copy is one file",
            where=paths[0],
            remedy="score them as a source each",
        )
    if out.exists():
        raise OutputError("already exists", where=str(out), remedy="name another file; nothing is replaced")
    return files


def _edited(files: Sequence[_Understood], task: _Task) -> Iterator[tuple[Row, bytes | None, Edit]]:
    """The rows of the copy, as parsed and as they stand in the file, with their edits."""
    for file in files:
        for line, row, raw in _raw_rows(file):
            items = list(file.cleaner.items(line, row))
            own = next((item for item in items if item.split in (task.split, None)), None)
            others = [] if task.mixed else [item for item in items if item is not own]
            stays = any(isinstance(item, Record) for item in others) or (own is None and bool(others))
            answer = task.decide(own) if own is not None and (isinstance(own, Record) or not stays) else ()
            if isinstance(row, Broken):
                continue
            if isinstance(own, Record) and (answer or stays):
                yield row, raw, edit_of(row, file.layout, _chosen(file, row, own, answer), task.width)
            elif stays:
                yield row, raw, Edit()


def _chosen(file: _Understood, row: Row, record: Record, answer: Sequence[int | str]) -> list[Chosen]:
    """The cells of the row's copy: labelled positives where they stand, then what the answer names."""
    cells = cells_of(row, file.layout)
    where = f"{file.path}:{record.line}"
    places, positives = file.cleaner.places(row, record)
    if len(places) != len(record.negatives):
        raise SchemaError(f"{len(places)} negatives found again of {len(record.negatives)} read", where=where)
    if positives:
        return [Chosen(place, None) for place in sorted([*positives, *(places[int(part)] for part in answer)])]
    return [
        Chosen(None, foreign_cell(part, cells[places[0]], file.layout, where))
        if isinstance(part, str)
        else Chosen(places[part], None)
        for part in answer
    ]


def _passages(files: Sequence[_Understood], task: _Task) -> Iterator[tuple[Row, bytes | None, Edit]]:
    """The rows of labelled pairs that stay: all but the negatives left out and what cannot be used."""
    staying = _pairs_staying(files, task)
    for file in files:
        for line, row, raw in _raw_rows(file):
            if staying[file.path][line] and not isinstance(row, Broken):
                yield row, raw, Edit()


def _pairs_staying(files: Sequence[_Understood], task: _Task) -> dict[str, bytearray]:
    """For each file, by line, whether the row stays. A query's rows may be anywhere, so that all are read first."""
    groups, staying = PairGroups(), {file.path: bytearray() for file in files}
    for file in files:
        stays = staying[file.path]
        for line, row, _ in _raw_rows(file):
            found = file.cleaner.pair(line, row)
            stays.extend(bytes(line + 1 - len(stays)))
            stays[line] = isinstance(found, Pair) or found.split not in (task.split, None)
            if isinstance(found, Pair):
                groups.add(found)
            elif not stays[line]:
                task.decide(found)
    for item, pairs in groups.groups():
        for pair in pairs if item.split == task.split else ():
            if not pair.positive:
                alone = item._replace(path=pair.path, line=pair.line)
                if isinstance(alone, Record):
                    alone = alone._replace(negatives=(pair.passage,))
                staying[pair.path][pair.line] = len(task.decide(alone)) > 0 and isinstance(alone, Record)
    return staying


def _raw_rows(file: _Understood) -> Iterator[tuple[int, Row | Broken, bytes | None]]:
    """Numbered rows, with the line each stands on where the container has lines of JSON."""
    stream = ByteStream(file.path)
    try:
        if file.container.kind != "jsonl":
            for line, row in open_rows(stream, file.container):
                yield line, row, None
            return
        kept = _KeptLines(stream)
        for line, row in open_rows(cast("ByteStream", kept), file.container):
            yield line, row, kept.last
    finally:
        stream.close()


class _KeptLines:
    """A stream that remembers the line it gave last, so that the reader's own parser can be used."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.path = stream.path
        self.last = b""

    def line_blocks(self, limit: int) -> Iterator[bytes | None]:
        """One line at a time, so that the last one is that of the row just parsed."""
        for line in self._stream.lines(limit):
            self.last = line or b""
            yield line


def _understand(path: str, settings: Settings, split: str, mixed: bool) -> _Understood:
    """Container, layout and cleaner of a file, as the reader finds them from its first rows."""
    if once_only(path):
        raise InputError("cannot be read a second time", where=path, remedy="save it to a file and score that")
    stream = ByteStream(path)
    try:
        container = sniff(stream, settings.header)
        head = [row for _, row in first_rows(open_parts(stream, container))[1] if not isinstance(row, Broken)]
    finally:
        stream.close()
    if not head:
        raise InputError("holds no row that can be read", where=path)
    binding = detect(head, settings, path)
    if mixed:
        _refuse_foreign(binding, path)
    layout = layout_of(binding, head, split, settings.source_column)
    if not (binding.query_ids or binding.passage_ids):
        return _Understood(path, container, layout, Cleaner(binding, path, settings))
    collection = open_collection(settings)
    return _Understood(path, container, layout, Cleaner(binding, path, settings, collection.query, collection.passage))


def _refuse_foreign(binding: Binding, path: str) -> None:
    """Raises SchemaError where a negative of another source would be told as what it is not."""
    what = "the name of a miner that did not find it" if binding.splits else "a label that nobody gave"
    if binding.splits or binding.labelled:
        raise SchemaError(
            f"in the schema {binding.schema} a negative of another source would need {what}",
            where=path,
            remedy="--base NAME writes in the schema of another source, one whose rows list negatives",
        )


def _packed(partial: Path, out: Path) -> BinaryIO:
    """The temporary file, packed as the suffix of the final name says. The same rows give the same bytes."""
    if out.suffix == ".gz":
        return cast("BinaryIO", _Gzip(partial))
    if out.suffix == ".zst":
        return cast("BinaryIO", zstandard.open(partial, "wb"))
    return partial.open("wb")


class _Gzip(gzip.GzipFile):
    """A gzip file without name and time inside it."""

    def __init__(self, path: Path) -> None:
        self._raw = path.open("wb")
        super().__init__(filename="", mode="wb", fileobj=self._raw, mtime=0)

    def close(self) -> None:
        super().close()
        self._raw.close()
