"""Define the parts of a plan: sources as index arrays over distinct texts, for all queries or a part of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from secid.arrays import Index, pairs
from secid.errors import NothingToScoreError, UsageError
from secid.pool.normal_form import normal_form
from secid.pool.texts import TextStore
from secid.records import SKIP_REASONS, Block, Defect, Record, Source
from secid.results import Example, RowCounts
from secid.results.catalogue import BITS, TEXT_FINDINGS
from secid.settings import Settings, flag_of

# The parts of a plan.

Small = npt.NDArray[np.int32]
"""Numbers per triplet. They are far below 2^31, and take half the memory of Index."""
Mask = npt.NDArray[np.uint32]
FormalMask = npt.NDArray[np.uint16]
"""Masks of formal findings. Their bits in the catalogue are below 16."""


class TextFindings(NamedTuple):
    """Text findings of one source.

    negatives : (T,) masks, bit i for the catalogue's i-th finding.   positives : (P,) masks of formal findings.
    excess    : formal defect -> True if dropping it brings the negatives closer to the positives. Only defects above
                their limit are listed.
    """

    negatives: Mask
    positives: FormalMask
    excess: Mapping[str, bool] = {}


@dataclass(frozen=True)
class Tally:
    """Counts of the rows of one source: n_read = n_used + sum(skipped).

    n_records       : number of records that the used rows form, before any sample.
    skipped         : reason -> number of skipped rows.   dropped : reason -> number of dropped passages.
    n_repeated_rows : number of rows whose negatives are all listed by earlier rows of their record.
    n_mixed_slices  : number of records whose rows differ in the value of --by. The value of the first row is used.
    """

    n_read: int
    n_used: int
    n_records: int
    skipped: dict[str, int]
    dropped: dict[str, int]
    examples: tuple[Example, ...]
    n_mixed_slices: int = 0
    n_repeated_rows: int = 0

    def row_counts(self, n_records: int) -> RowCounts:
        """Return the counts for a report. n_records: number of records left after a sample."""
        return RowCounts(
            n_read=self.n_read,
            n_used=self.n_used,
            n_records=n_records,
            n_not_sampled=self.n_records - n_records,
            skipped=self.skipped,
            dropped_negatives=self.dropped,
            examples=self.examples,
        )

    @property
    def n_malformed_rows(self) -> int:
        """Number of rows skipped for a reason that counts as malformed."""
        return _n_malformed(self.skipped)

    @property
    def n_malformed_passages(self) -> int:
        """Number of passages dropped from usable rows for a reason that counts as malformed."""
        return _n_malformed(self.dropped)

    @property
    def n_malformed(self) -> int:
        """Number of malformed rows and passages together."""
        return self.n_malformed_rows + self.n_malformed_passages


def _n_malformed(reasons: Mapping[str, int]) -> int:
    return sum(count for reason, count in reasons.items() if reason in SKIP_REASONS and SKIP_REASONS[reason].malformed)


@dataclass(frozen=True)
class BlankNegatives:
    """Negatives without text, which give no triplet. E rows list at least one.

    query : (E,) query ids; -1 for a query without a record.   keys : (E, 16) text keys of the queries.
    count : (E,) number of negatives without text in the row.   line, file : (E,) place of the row.
    """

    query: Index
    keys: npt.NDArray[np.uint8]
    count: Index
    line: Index
    file: Small

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return zip(self.file.tolist(), self.line.tolist(), self.count.tolist(), strict=True)

    def only(self, keep: npt.NDArray[np.bool_]) -> BlankNegatives:
        """Return only the flagged rows. keep: (E,) flags."""
        return BlankNegatives(self.query[keep], self.keys[keep], self.count[keep], self.line[keep], self.file[keep])


@dataclass(frozen=True)
class PlannedSource:
    """One source as index arrays, with R records, P labelled positives and T triplets, which are grouped by record.

    split             : name of the source within its files; "" if they hold only one.
    n_queries_read    : number of distinct queries in the used rows, before any sample.
    query             : (R,) query id.   line, file : (R,) place of the record's first row.
    slice             : (R,) index of the record's value in Plan.slices; all 0 without --by.
    positives         : (P,) passage ids of labelled positives. Record r has positive_offsets[r] … [r+1] - 1.
    negatives         : (T,) passage ids in file order. Record r has negative_offsets[r] … [r+1] - 1.
    copies            : (T,) number of times that the record's rows list the negative, >= 1.
    negative_line, negative_file : (T,) place of the row that first lists the negative.
    negative_ordinal  : (T,) place of the negative among that row's usable negatives, from 0.
    listed            : (L,) triplet of every usable negative in reading order, including copies; -1 if the settings
                        leave it out. With it, a second reading finds each negative again.
    findings          : (T,) masks of text findings, bit i for the catalogue's i-th finding. The bit of `repeat` means
                        that the record lists the text earlier in another spelling.
    positive_findings : (P,) masks of formal findings.
    excess            : formal defect that counts in this source -> whether dropping it repairs the source.
    blanks            : negatives that the reader left out because they have no text.
    """

    name: str
    split: str
    source: Source
    tally: Tally
    n_queries_read: int
    query: Index
    slice: Small
    line: Index
    file: Small
    positives: Index
    positive_offsets: Index
    negatives: Index
    negative_offsets: Index
    copies: Small
    negative_line: Index
    negative_file: Small
    negative_ordinal: Small
    listed: Index
    findings: Mask
    positive_findings: FormalMask
    excess: Mapping[str, bool]
    blanks: BlankNegatives

    @property
    def n_records(self) -> int:
        return len(self.query)

    @property
    def n_triplets(self) -> int:
        return len(self.negatives)

    def has(self, finding: str) -> npt.NDArray[np.bool_]:
        """Return (T,) flags of negatives with a text finding. A negative has `repeat` if its record lists it twice."""
        flags = bit_of(self.findings, finding)
        return flags | (self.copies > 1) if finding == "repeat" else flags

    def findings_at(self, place: int) -> tuple[str, ...]:
        mask, is_copied = int(self.findings[place]), self.copies[place] > 1
        return tuple(name for name in TEXT_FINDINGS if mask >> BITS[name] & 1 or (name == "repeat" and is_copied))

    def respelled(self) -> npt.NDArray[np.bool_]:
        """Return (T,) flags of the negatives whose text the record lists earlier in another spelling."""
        return bit_of(self.findings, "repeat")

    def listed_again(self) -> npt.NDArray[np.bool_]:
        """Return (L,) flags of the listings after the first one of their triplet."""
        again = np.ones(len(self.listed), np.bool_)
        again[np.unique(self.listed, return_index=True)[1]] = False
        return again

    def triplet_record(self) -> Index:
        """Return (T,) record of each triplet."""
        return np.repeat(np.arange(self.n_records), np.diff(self.negative_offsets))

    def positive_record(self) -> Index:
        """Return (P,) record of each labelled positive."""
        return np.repeat(np.arange(self.n_records), np.diff(self.positive_offsets))

    def with_findings(self, findings: TextFindings) -> PlannedSource:
        return replace(self, findings=findings.negatives, positive_findings=findings.positives, excess=findings.excess)


def bit_of(mask: Mask | FormalMask, finding: str) -> npt.NDArray[np.bool_]:
    """Return flags: True for each mask that has the finding."""
    flags: npt.NDArray[np.bool_] = (mask >> np.uint32(BITS[finding])) & np.uint32(1) != 0
    return flags


@dataclass(frozen=True)
class Plan:
    """The distinct texts of a run, and the sources that refer to them.

    known_positives  : sorted query * len(passages) + passage of every labelled positive whose text is in the plan,
                       including those from a collection's qrels.
    echoes           : (n_queries,) passage id of the query's own text; -1 if it is not planned.
    slices           : values of the slicing column, with "" for a missing value.
    empty            : source without triplets -> reason -> number of omissions, for files with several sources.
    n_queries_read   : number of distinct queries in all used rows, before any sample.
    label_line, label_path : place of the first label of each known positive; label_path is an index into label_paths.
    n_labelled       : number of labelled (query, positive) pairs in the files, and number of additional pairs in qrels.
    tallies          : source -> counts, for every source that was read, even without a triplet.
    without_triplets : sources without a triplet in this shard. They may list blank negatives.
    """

    queries: TextStore
    passages: TextStore
    sources: tuple[PlannedSource, ...]
    known_positives: Index
    echoes: Index
    slices: tuple[str, ...]
    empty: Mapping[str, Mapping[str, int]]
    n_queries_read: int
    label_line: Index
    label_path: Small
    label_paths: tuple[str, ...] = ()
    n_labelled: tuple[int, int] = (0, 0)
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    without_triplets: tuple[PlannedSource, ...] = ()

    def source_passages(self) -> Index:
        """Return the sorted ids of the passages that sources refer to. The plan may hold more, for controls."""
        used = np.zeros(len(self.passages), np.bool_)
        for planned in self.sources:
            used[planned.positives] = used[planned.negatives] = True
        return np.flatnonzero(used)

    def close(self) -> None:
        self.queries.close()
        self.passages.close()


def labels_of(plan: Plan, queries: Index) -> tuple[Index, Index]:
    """Find the labelled positives of these queries. Return (K,) places in `queries`, and (K,) in `known_positives`."""
    ends = (pairs(queries + more, np.zeros_like(queries), len(plan.passages)) for more in (0, 1))
    start, stop = (np.searchsorted(plan.known_positives, end) for end in ends)
    counts = stop - start
    places = np.repeat(start - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return np.repeat(np.arange(len(queries)), counts), places


# A part of a run's queries. It depends only on the texts of the queries, so it is the same in every file and process.

Keep = Callable[[Sequence[str]], Sequence[bool]]
"""Function from queries to (n,) flags of the queries whose rows to use."""


def unassigned_of(file: str) -> str:
    """Return the key in a shard's tallies for a file's rows that are too broken to state their source."""
    return f"{file}\n"


class EmptyShardError(NothingToScoreError):
    """Error for a shard without triplets. tallies: source -> counts of its rows. without_triplets: as in Plan."""

    def __init__(self, shard: str, tallies: Mapping[str, Tally], without_triplets: Sequence[PlannedSource]) -> None:
        super().__init__("no triplet to score", where=flag_of("shard", shard))
        self.tallies, self.without_triplets = tallies, without_triplets


@dataclass(frozen=True)
class Shard:
    """One of several parts of a run's queries. number: its index, from 0.   of: number of parts.

    Queries with the same normal form are in the same part, together with their labels.
    """

    number: int
    of: int

    @staticmethod
    def parse(text: str) -> Shard:
        """Parse a text such as `3/8`. Raises UsageError."""
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        number, of = map(int, match.groups()) if match else (0, 0)
        if not number < of:
            raise UsageError(
                f"expected I/N with I from 0 to N - 1, got {text!r}",
                where=flag_of("shard"),
                remedy=f"{flag_of('shard', '0/8')} is the first of eight",
            )
        return Shard(number, of)

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def has(self, queries: Sequence[str]) -> list[bool]:
        """Return (n,) flags of the queries in this part."""
        return [crc32(normal_form(query).encode()) % self.of == self.number for query in queries]

    def owns(self, passages: Sequence[str]) -> list[bool]:
        """Return (n,) flags of the texts that this part counts. Each text is counted by exactly one part."""
        return [crc32(text.encode()) % self.of == self.number for text in passages]


@dataclass(frozen=True)
class QuerySubset:
    """The queries whose rows a run plans.

    has      : function that flags the queries to plan; None to plan all queries.
    nameless : whether to count skipped rows without a query.
    """

    has: Keep | None = None
    nameless: bool = True

    @staticmethod
    def of(settings: Settings) -> QuerySubset:
        """Return all queries, or the queries of the shard in the settings."""
        if settings.shard is None:
            return QuerySubset()
        shard = Shard.parse(settings.shard)
        return QuerySubset(shard.has, nameless=shard.number == 0)

    def rows(self, stream: Iterable[Record | Defect | Block]) -> Iterator[Record | Defect | Block]:
        for item in stream:
            if self.has is None:
                yield item
            elif isinstance(item, Block):
                flags = self.has(item.queries)
                if all(flags):
                    yield item
                elif any(flags):
                    yield item.only(flags)
            elif self.has([item.query])[0] if item.query else self.nameless:
                yield item
