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

from secid.data.cells import Layout, cells_of, foreign_cell, layout_of, parallels, usable
from secid.data.clean import Cleaner, Item
from secid.data.collection import open_collection
from secid.data.containers import Container, open_parts, open_rows, sniff
from secid.data.reader import first_rows
from secid.data.rows import Broken, Row
from secid.data.schemas.detect import detect
from secid.data.stream import ByteStream, once_only
from secid.data.writers import Chosen, n_filled, writer_for
from secid.errors import InputError, OutputError, SchemaError
from secid.records import Record
from secid.settings import Settings

Decide = Callable[[Item], Sequence[int | str]]
"""What becomes of a row: for each negative of the copy the place of an own one among the record's, or
the text of another. Empty: the row is left out. Called once for every row of the source, in the
order of reading, defects included (their answer counts for nothing)."""


@dataclass(frozen=True, slots=True)
class _Understood:
    path: str
    container: Container
    layout: Layout
    cleaner: Cleaner


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy holds. n_repeated: cells that repeat a negative of their row, since trainers take no empty one."""

    n_rows: int
    n_repeated: int


def rewrite(
    paths: Sequence[str], settings: Settings, split: str, decide: Decide, out: Path, width: int | None = None
) -> Copied:
    """Writes the copy of all files of a source, one after another, into one file.

    split : value of the source column that the source is, "" where the file holds one source.
    width : columns of negatives that the copy keeps, where each negative has its own column; rows
            with fewer repeat theirs from the first. None: all of them.
    Raises SchemaError or InputError where the files cannot be rewritten, OutputError where `out` exists
    or cannot be written.
    """
    files = [_understand(path, settings) for path in paths]
    if len({(file.container.kind, file.container.dialect, file.layout) for file in files}) > 1:
        raise SchemaError("the files of this source have several schemas, and the copy is one file", where=paths[0])
    if out.exists():
        raise OutputError("already exists", where=str(out), remedy="name another file; nothing is replaced")
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        with _packed(partial, out) as file:
            writer = writer_for(files[0].container, files[0].layout, paths, out, file, width)
            n_rows = n_repeated = 0
            for understood in files:
                for row, raw, chosen in _decided(understood, split, decide):
                    writer.add(
                        row, raw, chosen, parallels(row, understood.layout, len(cells_of(row, understood.layout)))
                    )
                    n_rows += 1
                    n_repeated += n_filled(row, understood.layout, len(chosen), width)
            writer.end()
        partial.replace(out)
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", where=str(out)) from error
    finally:
        partial.unlink(missing_ok=True)
    return Copied(n_rows, n_repeated)


def check_output(paths: Sequence[str], settings: Settings, out: Path) -> None:
    """Raises what `rewrite` would raise before it writes the first row."""
    files = [_understand(path, settings) for path in paths]
    writer_for(files[0].container, files[0].layout, paths, out, None, None)
    if out.exists():
        raise OutputError("already exists", where=str(out), remedy="name another file; nothing is replaced")


def _decided(file: _Understood, split: str, decide: Decide) -> Iterator[tuple[Row, bytes | None, list[Chosen]]]:
    """The rows that stay, as parsed and as they stand in the file, with their new negatives."""
    for line, row, raw in _raw_rows(file):
        for item in file.cleaner.items(line, row):
            if item.split not in (split, None):
                continue
            answer = decide(item)
            if not isinstance(item, Record) or not answer or isinstance(row, Broken):
                continue
            yield row, raw, _chosen(file, row, line, item, answer)


def _chosen(file: _Understood, row: Row, line: int, record: Record, answer: Sequence[int | str]) -> list[Chosen]:
    cells = cells_of(row, file.layout)
    places = usable(row, line, record, file.layout, file.cleaner)
    where = f"{file.path}:{line}"
    chosen = []
    for part in answer:
        if isinstance(part, str):
            chosen.append(Chosen(None, foreign_cell(part, cells[places[0]], file.layout, where)))
        else:
            chosen.append(Chosen(places[part], cells[places[part]]))
    return chosen


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


def _understand(path: str, settings: Settings) -> _Understood:
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
    layout = layout_of(binding, path)
    if not (binding.query_ids or binding.passage_ids):
        return _Understood(path, container, layout, Cleaner(binding, path, settings))
    collection = open_collection(settings)
    return _Understood(path, container, layout, Cleaner(binding, path, settings, collection.query, collection.passage))


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
