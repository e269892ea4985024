"""Convert records to a pool, and a pool back to strings."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from secid.findings.texts import text_rules
from secid.pool import Plan, PlannedSource
from secid.pool.plan import Mask
from secid.records import Record, Source
from secid.results.catalogue import BITS
from secid.settings import Settings
from tests.planning import make_plan
from tests.unit.findings.slow_texts import NAMES, PlainRecord

Row = tuple[str, Sequence[str], Sequence[str]]
"""Query, positives, negatives."""


@contextmanager
def pooled(*sources: Sequence[Row]) -> Iterator[Plan]:
    """Yield the pool of sources named s0, s1 …, each in a file with its name."""
    streams = [
        (Source(name, (name,)), [Record(q, tuple(p), tuple(d), name, i) for i, (q, p, d) in enumerate(rows, start=1)])
        for name, rows in ((f"s{n}", rows) for n, rows in enumerate(sources))
    ]
    with tempfile.TemporaryDirectory() as folder:
        plan = make_plan(streams, Settings(positives="all"), Path(folder))
        try:
            yield plan
        finally:
            plan.close()


def text_masks(*texts: Any, **options: Any) -> list[Mask]:
    """Return the masks of the sources' negatives, without findings of made-up texts: odd lengths, no sentences."""
    shape = np.uint32(1 << BITS["length"] | 1 << BITS["unfinished"])
    return [found.negatives & ~shape for found in text_rules(*texts, **options)]


def plain(plan: Plan) -> list[list[PlainRecord]]:
    """Return the records of each source as strings."""
    queries, passages = plan.queries.get(0, len(plan.queries)), plan.passages.get(0, len(plan.passages))

    def record(source: PlannedSource, r: int) -> PlainRecord:
        a, b = source.negative_offsets[r : r + 2]
        c, d = source.positive_offsets[r : r + 2]
        return PlainRecord(
            queries[source.query[r]],
            [passages[i] for i in source.positives[c:d]],
            [passages[i] for i in source.negatives[a:b]],
        )

    return [[record(source, r) for r in range(source.n_records)] for source in plan.sources]


def names_in(mask: int) -> set[str]:
    """Return the findings of a mask that `slow_texts` also has."""
    return {name for name in NAMES if mask >> BITS[name] & 1}
