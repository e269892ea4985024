"""Make pools from written rows, for tests of findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from secid.pool import Plan
from secid.records import Record, Source
from secid.settings import Settings
from tests.planning import make_plan

Row = tuple[str, Sequence[str], Sequence[str]]
"""Query, positives, negatives."""


@contextmanager
def pool_of(folder: Path, *sources: Sequence[Row]) -> Iterator[Plan]:
    """Yield the pool of these sources, each a list of rows."""
    streams = [
        (
            Source(f"source {place}", (f"{place}.jsonl",)),
            [Record(query, tuple(pos), tuple(neg), f"{place}.jsonl", n) for n, (query, pos, neg) in enumerate(rows, 1)],
        )
        for place, rows in enumerate(sources)
    ]
    spool = folder / f"pool{len(list(folder.iterdir()))}"
    spool.mkdir()
    plan = make_plan(streams, Settings(positives="all"), spool)
    try:
        yield plan
    finally:
        plan.close()
