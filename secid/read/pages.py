"""How many rows of a Parquet file can be decoded at once, from its metadata and the headers of its pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from struct import Struct
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from secid.errors import InputError

BATCH_ROWS = 1024
"""Rows decoded at once: rows of ten passages come to about 5 MB, and larger batches read no faster."""

BATCH_BYTES = 64 << 20
"""Bytes that these rows may have; a few rows where they are of megabytes."""

CLUSTER_ROWS = 64
"""Rows decoded at once where lists of many values may lie together, which no header of a page tells."""

VALUE_BYTES = 16
"""Of a decoded value beside its text: offset, levels, mark of null. Lists may be padded with a million nulls."""

PAGE_LIMIT = 128 << 20
"""Bytes of a page, the part of a column that is unpacked as a whole. Writers end one near 1 MiB, but look at its size
after 1024 values only."""

HEADER_BYTES = 8 << 10
"""Of a page, at most: some writers put its largest and smallest value there."""

DICTIONARIES = frozenset({"RLE_DICTIONARY", "PLAIN_DICTIONARY"})
"""Encodings of a Parquet column in which one text may stand for many."""

DICTIONARY_PAGE = 2
CODED = (2, 8)
"""Numbers of those encodings in the header of a page."""

LENGTH = Struct("<I")

INT32 = 1 << 31
"""All numbers in the header of a page are below it, none is negative. Source: parquet.thrift."""

TRUE, FALSE, BYTE, BINARY, STRUCTURE, NUMBERS = 1, 2, 3, 8, 12, (4, 5, 6)
"""Thrift's compact kinds of fields. Source: thrift-compact-protocol.md."""


def batch_rows(group: Any, names: Sequence[str], file: BinaryIO, path: str) -> int:
    """Rows of a row group that can be decoded at once: BATCH_ROWS, or as many as stay below BATCH_BYTES.

    Values count as large as those of the page with the largest, or as the longest one of their dictionary.

    group : the row group's metadata.   names : columns that are read.
    Raises InputError where a page is larger than PAGE_LIMIT.
    """
    n_rows, size = BATCH_ROWS, 1.0
    for chunk in map(group.column, range(group.num_columns)):
        if not f"{chunk.path_in_schema}.".startswith(tuple(f"{name}." for name in names)):
            continue
        value = chunk.total_uncompressed_size / max(1, chunk.num_values)
        if chunk.total_uncompressed_size > BATCH_BYTES:
            value = max(value, _largest_average(file, chunk, path))
        if chunk.physical_type == "BYTE_ARRAY" and DICTIONARIES.intersection(chunk.encodings):
            value += _repeated_bytes(file, chunk)
        total = chunk.num_values * (value + VALUE_BYTES)
        size += total / max(1, group.num_rows)
        if chunk.num_values > group.num_rows and total > BATCH_BYTES:
            n_rows = CLUSTER_ROWS
    return min(n_rows, max(1, int(BATCH_BYTES / size)))


def _largest_average(file: BinaryIO, chunk: Any, path: str) -> float:
    """Bytes of a value in the page that has the largest ones."""
    largest = 0.0
    for page in _pages(file, chunk):
        if page.n_bytes > PAGE_LIMIT:
            raise InputError(
                f"a page of {page.n_bytes >> 20} MiB in {chunk.path_in_schema}, which can only be unpacked as a whole",
                where=path,
                remedy="write it with fewer texts a page (in pyarrow `write_batch_size=16`), or as JSON lines",
            )
        if page.kind != DICTIONARY_PAGE:
            largest = max(largest, page.n_bytes / max(1, page.n_values))
    return largest


def _repeated_bytes(file: BinaryIO, chunk: Any) -> int:
    """Bytes of the longest word of a column's dictionary; 0 where each word stands for one value only."""
    pages = _pages(file, chunk)
    words = next(pages, None)
    if words is None or words.kind != DICTIONARY_PAGE:
        return int(chunk.total_uncompressed_size)
    # Once a dictionary is full, the values that follow are written as they are.
    n_coded = sum(page.n_values for page in takewhile(lambda page: page.encoding in CODED, pages))
    return 0 if n_coded == words.n_values else _longest_word(file, words, chunk.compression.lower())


def _longest_word(file: BinaryIO, page: Page, compression: str) -> int:
    """Bytes of the longest word of a dictionary; of all of it where it cannot be unpacked.

    Words follow each other, each behind four bytes of length. Source: Parquet encodings, PLAIN.
    """
    file.seek(page.start)
    words = file.read(page.n_packed)
    try:
        if compression != "uncompressed":
            words = pa.decompress(words, page.n_bytes, compression, asbytes=True)
    except (pa.ArrowException, OSError, ValueError):
        return page.n_bytes
    longest = at = 0
    while at + 4 <= len(words):
        (length,) = LENGTH.unpack_from(words, at)
        longest = max(longest, length)
        at += 4 + length
    return longest


class Page(NamedTuple):
    """A page of a column: kind, unpacked and packed bytes, values, their encoding, and its start behind the header."""

    kind: int
    n_bytes: int
    n_packed: int
    n_values: int
    encoding: int
    start: int


def _pages(file: BinaryIO, chunk: Any) -> Iterator[Page]:
    """The pages of a column in a row group, up to the first whose header is none.

    The header of a page is a structure of its kind (1), its unpacked (2) and packed bytes (3), and of one for data (5),
    a dictionary (7) or newer data (8) with values (1) and encoding (2, or 4). Source: parquet.thrift, PageHeader.
    """
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    end = start + chunk.total_compressed_size
    while start < end:
        file.seek(start)
        try:
            fields, length = _structure(file.read(HEADER_BYTES), 0)
            inner = fields.get(5) or fields.get(7) or fields[8]
            encoding = inner[4 if 8 in fields else 2]
            page = Page(fields[1], fields[2], fields[3], inner[1], encoding, start + length)
            if not 0 <= min(page[:4]) <= max(page[:4]) < INT32:
                return
        except (IndexError, KeyError, ValueError, TypeError, RecursionError):
            return
        yield page
        start = page.start + page.n_packed


def _structure(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """The numbers and structures of a Thrift structure that starts there, by their fields, and where it ends."""
    found: dict[int, Any] = {}
    field = 0
    while mark := data[at]:
        at += 1
        if mark >> 4:
            field += mark >> 4
        else:
            field, at = _number(data, at)
        kind = mark & 15
        if kind in NUMBERS:
            found[field], at = _number(data, at)
        elif kind == STRUCTURE:
            found[field], at = _structure(data, at)
        elif kind == BINARY:
            length, after = _number(data, at, signed=False)
            at = after + length
        elif kind == BYTE:
            at += 1
        elif kind not in (TRUE, FALSE):
            raise ValueError(f"a field of kind {kind}")
    return found, at + 1


def _number(data: bytes, at: int, *, signed: bool = True) -> tuple[int, int]:
    """The number that starts there, in 7 bits a byte, its sign in the lowest one; and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return ((value >> 1) ^ -(value & 1) if signed else value), at
