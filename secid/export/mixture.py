"""A file of mixed negatives: the rows of one source, with negatives drawn from several.

For each row of the base source as many negatives as it lists are drawn by record, each source giving
its share. Shares rarely make whole numbers, so they are rounded by systematic sampling: with cumulated
shares c_s and one offset u in [0, 1) for each record, source s gives floor(K c_s + u) - floor(K c_(s-1) + u)
negatives. These add up to K for every record, and on average to K times the share. Offset and draws go
by hashes of texts and seed, so neither the order of files nor of rows changes them. Source: METHOD 7.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from secid.errors import UsageError
from secid.export.rewrite import check_output, rewrite
from secid.files import written_lines
from secid.pool import Plan, PlannedSource, sample_order
from secid.read.clean import Item
from secid.records import Record
from secid.results import Run
from secid.run_folder.source_files import Original, find_source, plan_again, settings_of

Index = npt.NDArray[np.int64]
FIRST_BITS = 2.0**-64
SUM_SLACK = 1e-6
"""By which shares may miss a sum of 1: they are read off rounded tables."""


class Draw(NamedTuple):
    """One drawn negative: its source and triplet there."""

    source: str
    triplet: int


@dataclass(frozen=True)
class Blend:
    """What was written.

    n_records    : records of the base.   n_rows : rows of the file.   n_negatives : drawn ones, by source.
    n_repeated   : cells that repeat a negative of their row, where each has a column of its own.
    n_short      : negatives that a source's share asked of it and it did not have; others gave them where they could.
    n_alone      : records with candidates of fewer than two of the mixture's sources; 0 where it is one source alone.
    n_positive   : candidates of the base's queries left out because the run labels them as positives of the query.
    """

    base: str
    path: str
    provenance_path: str
    n_records: int
    n_rows: int
    n_repeated: int
    n_negatives: dict[str, int]
    wanted: dict[str, float]
    n_short: int
    n_alone: int
    n_positive: int


def write_blend(run: Run, shares: Mapping[str, float], asked: str | None, out: Path, work: Path, seed: int) -> Blend:
    """Writes the mixed file in the base's schema and OUT.provenance.jsonl, one line a row of the file.

    shares : by source, adding up to 1.   asked : the base, where one was asked for.
    work   : an empty folder.
    All records are written, also where the run scored a sample of them. The order of shares changes nothing.
    All sources of the run are read: any of them may label what another lists as a negative.
    Raises UsageError for shares that are none, InputError where an original has changed, SchemaError where
    the base cannot be rewritten in place.
    """
    check_shares(shares)
    base = base_of(run, shares, asked)
    names = sorted(name for name, share in shares.items() if share > 0)
    settings = settings_of(run, max_records=None, seed=seed)
    for name in (base, *names):
        find_source(run, name)
    plan, originals = plan_again(run, [source.name for source in run.sources], settings, work)
    try:
        original = originals[base]
        check_output(original.paths, settings, original.split, out, mixed=True)
        drawn, told = _drawn(plan, {name: originals[name].planned for name in names}, shares, original.planned, seed)
        provenance = out.with_name(f"{out.name}.provenance.jsonl")
        with written_lines(provenance) as lines:
            dealer = _Dealer(plan, originals, base, drawn, lines)
            copied = rewrite(original.paths, settings, original.split, dealer.decide, out, mixed=True)
    finally:
        plan.close()
    return Blend(
        base=base,
        path=str(out),
        provenance_path=str(provenance),
        n_records=original.planned.n_records,
        n_rows=copied.n_rows,
        n_repeated=copied.n_repeated,
        n_negatives={name: dealer.counts[name] for name in names},
        wanted={name: shares[name] for name in names},
        **told,
    )


def check_shares(shares: Mapping[str, float]) -> None:
    """Raises UsageError where a share is not a number from 0 on, or all together are not 1."""
    for name, share in shares.items():
        # Written as "passes if", so that NaN fails
        if not 0.0 <= share < np.inf:
            raise UsageError(f"a share is a finite number from 0 on, got {share:g}", where=name)
    total = sum(shares.values())
    if not abs(total - 1.0) <= SUM_SLACK:
        raise UsageError(f"shares add up to {total:g}, not to 1", where=", ".join(shares), remedy="divide by their sum")


def _seed_of(name: str, seed: int) -> int:
    """The seed of one source's draws: another for every name, whatever the other sources are."""
    return int.from_bytes(blake2b(f"{seed} {name}".encode(), digest_size=8).digest(), "big")


def _drawn(
    plan: Plan, sources: Mapping[str, PlannedSource], shares: Mapping[str, float], base: PlannedSource, seed: int
) -> tuple[list[list[Draw]], dict[str, int]]:
    """The drawn negatives of each record of the base, and what to tell of the drawing."""
    names = list(sources)
    tables = [_by_query(planned, plan, _seed_of(name, seed)) for name, planned in sources.items()]
    cumulated = np.cumsum([shares[name] for name in names])
    cumulated[-1] = 1.0
    offsets = sample_order(plan.queries.keys[base.query], seed).astype(np.float64) * FIRST_BITS
    sizes = np.diff(base.negative_offsets)
    n_short = n_alone = 0
    drawn = []
    for record in range(base.n_records):
        query, k = int(base.query[record]), int(sizes[record])
        pools = [table.of(query) for table in tables]
        edges = np.floor(k * cumulated + min(float(offsets[record]), 1.0 - 1e-12)).astype(int)
        quotas = np.diff(edges, prepend=0)
        picked, missing = _picked(pools, quotas.tolist(), [planned.negatives for planned in sources.values()])
        n_short += missing
        n_alone += len(pools) > 1 and sum(map(bool, pools)) < 2
        drawn.append([Draw(names[place], triplet) for place, triplet in picked])
    n_positive = sum(_n_positive(planned, base.query) for planned in sources.values())
    return drawn, {"n_short": n_short, "n_alone": n_alone, "n_positive": n_positive}


def _n_positive(planned: PlannedSource, queries: Index) -> int:
    """How many of a source's negatives are labelled positives of these queries."""
    return int((planned.equals_positive & np.isin(planned.query, queries)[planned.triplet_record()]).sum())


class _Pools:
    """A source's candidates by query, in the order of their draw."""

    def __init__(self, query: Index, triplet: Index) -> None:
        self._query, self._triplet = query, triplet

    def of(self, query: int) -> list[int]:
        """Triplets of a query, first drawn first."""
        low, high = np.searchsorted(self._query, [query, query + 1])
        return [int(triplet) for triplet in self._triplet[low:high]]


def _by_query(planned: PlannedSource, plan: Plan, seed: int) -> _Pools:
    """Candidates are the source's negatives but for the labelled positives of their query."""
    fit = np.flatnonzero(~planned.equals_positive)
    query = planned.query[planned.triplet_record()[fit]]
    order = np.lexsort((fit, sample_order(plan.passages.keys[planned.negatives[fit]], seed), query))
    return _Pools(query[order], fit[order])


def _picked(
    pools: Sequence[list[int]], quotas: Sequence[int], passages: Sequence[Index]
) -> tuple[list[tuple[int, int]], int]:
    """(source, triplet) of one record: quotas first, then what is short from whoever has more.

    A text that several sources have is taken once.
    """
    taken: set[int] = set()
    picked: list[tuple[int, int]] = []

    def take(place: int, n: int) -> int:
        for triplet in pools[place]:
            if n <= 0:
                break
            passage = int(passages[place][triplet])
            if passage not in taken:
                taken.add(passage)
                picked.append((place, triplet))
                n -= 1
        return n

    # Largest quotas last would leave them the fewest texts: the scarce sources choose first
    missing = sum(take(place, quotas[place]) for place in sorted(range(len(pools)), key=lambda p: len(pools[p])))
    left = missing
    for place in sorted(range(len(pools)), key=lambda p: -quotas[p]):
        left = take(place, left)
    return sorted(picked), missing


class _Dealer:
    """Deals the drawn negatives of a record out to its rows, in order, and writes down where each comes from."""

    def __init__(
        self, plan: Plan, originals: Mapping[str, Original], base: str, drawn: list[list[Draw]], lines: Any
    ) -> None:
        self._plan, self._originals, self._base, self._drawn, self._lines = plan, originals, base, drawn, lines
        self._planned = originals[base].planned
        self._record = self._planned.triplet_record()
        self._done = self._n_rows = 0
        self.counts: Counter[str] = Counter()

    def decide(self, item: Item) -> list[int | str]:
        if not isinstance(item, Record):
            return []
        triplets = self._planned.listed[self._done : self._done + len(item.negatives)]
        self._done += len(item.negatives)
        inside = triplets[triplets >= 0]
        if not len(inside):
            return []
        waiting = self._drawn[int(self._record[inside[0]])]
        dealt, waiting[:] = waiting[: len(item.negatives)], waiting[len(item.negatives) :]
        if not dealt:
            return []
        self._n_rows += 1
        own = {int(triplet): ordinal for ordinal, triplet in reversed(list(enumerate(triplets.tolist())))}
        self._lines.write(json.dumps(self._told(dealt), ensure_ascii=False) + "\n")
        self.counts.update(draw.source for draw in dealt)
        return [self._cell(draw, own) for draw in dealt]

    def _cell(self, draw: Draw, own: Mapping[int, int]) -> int | str:
        if draw.source == self._base and draw.triplet in own:
            return own[draw.triplet]
        ids = self._originals[draw.source].planned.negatives[[draw.triplet]]
        return self._plan.passages.take(ids)[0]

    def _told(self, dealt: Sequence[Draw]) -> dict[str, Any]:
        negatives = []
        for draw in dealt:
            planned = self._originals[draw.source].planned
            negatives.append(
                {
                    "source": draw.source,
                    "path": planned.source.paths[int(planned.negative_file[draw.triplet])],
                    "line": int(planned.negative_line[draw.triplet]),
                    "ordinal": int(planned.negative_ordinal[draw.triplet]),
                }
            )
        return {"row": self._n_rows, "negatives": negatives}


def base_of(run: Run, shares: Mapping[str, float], asked: str | None) -> str:
    """The source whose rows and schema the file takes: the one asked for, else the first in rank with a share."""
    if asked is not None:
        return asked
    for source in run.sources:
        if shares.get(source.name, 0.0) > 0:
            return source.name
    raise UsageError("no source has a share, so there is nothing to write", where="--out")
