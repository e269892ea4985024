"""A part of the queries of a run, decided by the query's text alone: the same in every file, source and process."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from secid.errors import NothingToScoreError, UsageError
from secid.pool.normal_form import normal_form
from secid.pool.plan import PlannedSource, Tally
from secid.records import Block, Defect, Record
from secid.settings import flag_of

Keep = Callable[[Sequence[str]], Sequence[bool]]
"""Takes queries; (n,) whether the rows of each are of the part."""


def unassigned_of(file: str) -> str:
    """The key, among the tallies of a shard, of the rows of a file that are too broken to tell their source."""
    return f"{file}\n"


class EmptyShardError(NothingToScoreError):
    """A shard without a triplet. tallies: what became of its rows, by source.   silent: as of a plan."""

    def __init__(self, shard: str, tallies: Mapping[str, Tally], silent: Sequence[PlannedSource]) -> None:
        super().__init__("no triplet to score", where=flag_of("shard", shard))
        self.tallies, self.silent = tallies, silent


@dataclass(frozen=True)
class Shard:
    """Part `number` of `of` parts, from 0. Queries of one normal form share a part, so labels of a query do too."""

    number: int
    of: int

    @staticmethod
    def parse(text: str) -> Shard:
        """`3/8`. Raises UsageError."""
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
        """(n,) whose rows are in this part."""
        return [crc32(normal_form(query).encode()) % self.of == self.number for query in queries]

    def owns(self, passages: Sequence[str]) -> list[bool]:
        """(n,) which texts this part counts, each counted by one of all parts."""
        return [crc32(text.encode()) % self.of == self.number for text in passages]


def rows_of(
    stream: Iterable[Record | Defect | Block], keep: Keep, *, nameless: bool = True
) -> Iterator[Record | Defect | Block]:
    """The rows of some queries, and those that were left out since they have no query where `nameless`."""
    for item in stream:
        if isinstance(item, Block):
            flags = keep(item.queries)
            if all(flags):
                yield item
            elif any(flags):
                yield item.only(flags)
        elif keep([item.query])[0] if item.query else nameless:
            yield item
