"""Turn the readers' rows into numbers, and rows with the same query and first positive into records."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import repeat
from math import isnan
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secid.arrays import Index, distinct, narrow
from secid.pool.plan import BlankNegatives, PlannedSource, Tally
from secid.pool.texts import TextSpool, unread
from secid.records import Block, Defect, Fact, Record, Scalar, Source
from secid.results import Example

# Rows from the readers, as numbers. Texts go to the spool, and a row stores the occurrence numbers of its texts.

EXAMPLES_PER_REASON = 3
TICK_ROWS = 4096
"""Number of rows between two calls of the progress callback."""


@dataclass
class SourceRows:
    """Rows of one source while its files are read, as occurrence numbers of texts. The pairs of a query form one row.

    split  : name of the source within its files; "" if they hold only one.
    n_used : number of file rows that these rows stand for.
    """

    split: str
    source: Source
    query: array[int] = field(default_factory=lambda: array("q"))
    slice: array[int] = field(default_factory=lambda: array("q"))
    line: array[int] = field(default_factory=lambda: array("q"))
    file: array[int] = field(default_factory=lambda: array("q"))
    positives: array[int] = field(default_factory=lambda: array("q"))
    n_positives: array[int] = field(default_factory=lambda: array("i"))
    negatives: array[int] = field(default_factory=lambda: array("q"))
    n_negatives: array[int] = field(default_factory=lambda: array("i"))
    skipped: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Example]] = field(default_factory=dict)
    n_used: int = 0
    blank_query: array[int] = field(default_factory=lambda: array("q"))
    blank_count: array[int] = field(default_factory=lambda: array("q"))
    blank_line: array[int] = field(default_factory=lambda: array("q"))
    blank_file: array[int] = field(default_factory=lambda: array("q"))

    def take(self, block: Block, file: int, value: int, queries: TextSpool, passages: TextSpool) -> None:
        """Add usable rows. file: index of their file in the source's paths. value: number of their slice."""
        n_rows = len(block.lines)
        self.query.extend(queries.add(block.queries))
        self.slice.extend(repeat(value, n_rows))
        self.n_positives.extend(block.n_positives)
        self.n_negatives.extend(block.n_negatives)
        # Texts are numbered row by row, so that ids follow the order of the file and do not depend on its blocks.
        numbers = np.array(passages.add(block.passages), np.int64)
        counts = np.column_stack([block.n_positives, block.n_negatives]).ravel()
        positive = np.repeat(np.arange(2 * n_rows) % 2 == 0, counts)
        self.positives.frombytes(numbers[positive].tobytes())
        self.negatives.frombytes(numbers[~positive].tobytes())
        self.line.extend(block.lines)
        self.file.extend(repeat(file, n_rows))
        self.n_used += n_rows

    def drop(self, record: Record, file: int, queries: TextSpool) -> None:
        """Count file rows that were merged into this record, and passages that the reader left out of it."""
        self.add_blank(record, file, queries)
        self.n_used += record.n_rows - 1
        for reason, count in record.dropped:
            self.dropped[reason] += count
            role = "positives" if reason == "unusable_positive" else "negatives"
            self.add_example(Example(reason, record.path, record.line, Fact("left_out", {"n": count, "of": role})))

    def add_blank(self, item: Record | Defect, file: int, queries: TextSpool) -> None:
        """If a row lists negatives without text, store its query and place, and the number of these negatives."""
        if count := dict(item.dropped).get("empty_negative", 0):
            self.blank_query.extend(queries.add([item.query]))
            self.blank_count.append(count)
            self.blank_line.append(item.line)
            self.blank_file.append(file)

    def skip(self, defect: Defect) -> None:
        self.skipped[defect.reason] += defect.n_rows
        self.add_example(Example(defect.reason, defect.path, defect.line, defect.fact))

    def count(self, part: SourceRows) -> None:
        """Add the skipped rows and dropped passages of other `SourceRows`: their counts and examples."""
        self.skipped.update(part.skipped)
        self.dropped.update(part.dropped)
        for reason, examples in part.examples.items():
            both = sorted([*self.examples.get(reason, ()), *examples], key=place_of)
            self.examples[reason] = both[:EXAMPLES_PER_REASON]

    def add_example(self, example: Example) -> None:
        examples = self.examples.setdefault(example.reason, [])
        if len(examples) < EXAMPLES_PER_REASON:
            examples.append(example)


def place_of(example: Example) -> tuple[str, int, str]:
    """Return the sort key of an example: path, line and reason."""
    return example.path, example.line, example.reason


class Collected:
    """Rows of one source by split, in order of appearance. unassigned: rows too broken to state their split."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._by_split: dict[str, SourceRows] = {}
        self._files = {path: number for number, path in enumerate(source.paths)}
        self.unassigned = SourceRows("", source)

    def add(
        self, item: Record | Defect | Block, queries: TextSpool, passages: TextSpool, slices: dict[str, int]
    ) -> None:
        """Add an item from a reader. slices: value -> number; new values are added."""
        if isinstance(item, Defect):
            rows = self.unassigned if item.split is None else self._rows_of(item.split)
            rows.skip(item)
            rows.add_blank(item, self._files.get(item.path, 0), queries)
        elif isinstance(item, Block):
            value = slices.setdefault("", len(slices))
            self._rows_of("").take(item, self._files.get(item.path, 0), value, queries, passages)
        else:
            field = next(iter(item.fields.values()), None)
            value = slices.setdefault(slice_value(field), len(slices))
            rows = self._rows_of(item.split)
            rows.take(Block.of(item), self._files.get(item.path, 0), value, queries, passages)
            rows.drop(item, self._files.get(item.path, 0), queries)

    def rows(self) -> list[SourceRows]:
        """Return the rows of each split. If there is no split yet, add one with the name ""."""
        if not self._by_split:
            self._rows_of("")
        return list(self._by_split.values())

    def assign(self) -> None:
        """Count the unassigned rows in every split. Call it once, after all rows are read."""
        for rows in self.rows():
            rows.count(self.unassigned)

    def _rows_of(self, split: str) -> SourceRows:
        if split not in self._by_split:
            self._by_split[split] = SourceRows(split, self.source)
        return self._by_split[split]


def slice_value(value: Scalar) -> str:
    """Return a slice value as text that does not depend on the file format; "" for a missing value.

    A whole number gives the same text whether it is stored as an integer, a float (Parquet with missing values) or a
    text. The same holds for true and false.
    """
    if isinstance(value, float):
        if isnan(value):
            return ""
        value = int(value) if value.is_integer() and abs(value) < 2**53 else value
    text = "" if value is None else str(value)
    return text.lower() if text.lower() in ("true", "false") else text


def collect_rows(
    source: Source,
    stream: Iterable[Record | Defect | Block],
    queries: TextSpool,
    passages: TextSpool,
    slices: dict[str, int],
    tick: Callable[[], None],
) -> Collected:
    """Collect the rows of one stream. tick: called about every TICK_ROWS rows."""
    collected = Collected(source)
    n_rows = 0
    for item in stream:
        n_rows += len(item.lines) if isinstance(item, Block) else 1
        if n_rows >= TICK_ROWS:
            n_rows = 0
            tick()
        collected.add(item, queries, passages, slices)
    return collected


@dataclass
class Gathered:
    """All rows of a run, and its texts in their spools. labels: rows from a collection's qrels, or None."""

    collected: list[Collected]
    slices: dict[str, int]
    queries: TextSpool
    passages: TextSpool
    labels: Collected | None = None

    def close(self) -> None:
        """Close the spool files if no store is made."""
        self.queries.close()
        self.passages.close()

    def rows(self) -> list[SourceRows]:
        """Return the rows of each source. Sources in the same file are separate."""
        return [rows for collected in self.collected for rows in collected.rows()]


def collect_sources(
    streams: Iterable[tuple[Source, Iterable[Record | Defect | Block]]],
    folder: Path,
    tick: Callable[[], None],
    written: Callable[[TextSpool], None] = unread,
) -> Gathered:
    """Read all sources one after another.

    folder : folder for spool files.   tick : as in `collect_rows`.   written : as in `TextSpool`, for passages.
    """
    spools = TextSpool("query", folder / "queries.txt"), TextSpool("passage", folder / "passages.txt", written)
    gathered = Gathered([], {}, *spools)
    with ExitStack() as on_error:
        on_error.callback(gathered.close)
        for source, stream in streams:
            gathered.collected.append(collect_rows(source, stream, *spools, gathered.slices, tick))
        on_error.pop_all()
    return gathered


# Rows with the same (query, first positive) become one record. Of equal negatives, one is kept.


def grouped(rows: SourceRows, query_ids: Index, passage_ids: Index, query_keys: npt.NDArray[np.uint8]) -> PlannedSource:
    """Return the source with one record for the rows of each (query, first positive). A record has each text once."""
    query = query_ids[_int64(rows.query)]
    n_rows = len(query)
    positives, positive_row = passage_ids[_int64(rows.positives)], np.repeat(np.arange(n_rows), rows.n_positives)
    negatives, negative_row = passage_ids[_int64(rows.negatives)], np.repeat(np.arange(n_rows), rows.n_negatives)
    first_positive = positives[_starts(_int64(rows.n_positives))]
    n_passages = int(passage_ids.max(initial=0)) + 1
    first_row, record = _numbered(query * n_passages + first_positive)
    kept_positive, positive_offsets, _, _ = _distinct_within(
        record[positive_row], positives, len(first_row), n_passages
    )
    kept_negative, negative_offsets, copies, listed = _distinct_within(
        record[negative_row], negatives, len(first_row), n_passages
    )
    dropped = rows.dropped + Counter(listed_again=len(negatives) - len(kept_negative))
    line, file = _int64(rows.line), _int64(rows.file)
    row, slices = negative_row[kept_negative], _int64(rows.slice)
    return PlannedSource(
        name=f"{rows.source.name}:{rows.split}" if rows.split else rows.source.name,
        split=rows.split,
        source=rows.source,
        tally=Tally(
            rows.n_used + rows.skipped.total(),
            rows.n_used,
            len(first_row),
            dict(sorted(rows.skipped.items())),
            {reason: count for reason, count in sorted(dropped.items()) if count},
            tuple(sorted((example for group in rows.examples.values() for example in group), key=place_of)),
            len(distinct(record[slices != slices[first_row][record]])),
            len(distinct(negative_row)) - len(distinct(negative_row[kept_negative])),
        ),
        n_queries_read=len(np.unique(query)),
        query=query[first_row],
        slice=slices[first_row].astype(np.int32),
        line=line[first_row],
        file=file[first_row].astype(np.int32),
        positives=positives[kept_positive],
        positive_offsets=positive_offsets,
        negatives=negatives[kept_negative],
        negative_offsets=negative_offsets,
        copies=copies.astype(np.int32),
        negative_line=narrow(line[row]),
        negative_file=file[row].astype(np.int32),
        negative_ordinal=(kept_negative - _starts(_int64(rows.n_negatives))[row]).astype(np.int32),
        listed=narrow(listed),
        findings=np.zeros(len(kept_negative), np.uint32),
        positive_findings=np.zeros(len(kept_positive), np.uint16),
        excess={},
        blanks=_blanks(rows, query_ids, query_keys),
    )


def _blanks(rows: SourceRows, query_ids: Index, query_keys: npt.NDArray[np.uint8]) -> BlankNegatives:
    query = query_ids[_int64(rows.blank_query)]
    count, line, file = (_int64(values) for values in (rows.blank_count, rows.blank_line, rows.blank_file))
    return BlankNegatives(query, query_keys[query], count, line, file.astype(np.int32))


def _int64(values: array[int]) -> Index:
    return np.array(values, dtype=np.int64)


def _starts(counts: Index) -> Index:
    return np.cumsum(counts) - counts


def _numbered(keys: Index) -> tuple[Index, Index]:
    """Number distinct keys in order of appearance. Return (place of each distinct key's first occurrence, numbers)."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(first), np.int64)
    rank[order] = np.arange(len(first))
    return first[order], rank[inverse]


def _distinct_within(group: Index, ids: Index, n_groups: int, n_ids: int) -> tuple[Index, Index, Index, Index]:
    """Return (first places, offsets, counts, numbers) of the distinct (group, id) pairs.

    First places are sorted by group, then by appearance. Offsets delimit the groups. Counts say how often each distinct
    pair occurs. Numbers give the place of every pair among the distinct pairs.
    """
    _, first, inverse, counts = np.unique(
        group * n_ids + ids, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.lexsort((first, group[first]))
    first_places = first[order]
    offsets = np.zeros(n_groups + 1, np.int64)
    np.cumsum(np.bincount(group[first_places], minlength=n_groups), out=offsets[1:])
    return first_places, offsets, counts[order], places(order, len(order))[inverse]


def places(used: Index, n: int) -> Index:
    """Return (n,) place in `used` of each id below n; -1 for ids that `used` lacks. used: sorted distinct ids."""
    result = np.full(n, -1, np.int64)
    result[used] = np.arange(len(used))
    return result
