"""A file of mixed negatives: the rows of one source, with negatives drawn from several.

Each record of the base source gets as many negatives as it lists, and each source gives its share of them. Shares
rarely make whole numbers, so they are rounded by systematic sampling: with cumulated shares c_s and one offset u in
[0, 1) for each record, source s gives floor(K c_s + u) - floor(K c_(s-1) + u) negatives. These add up to K for every
record, and on average to K times the share. Offsets and draws depend on hashes of texts and the seed, so no order of
files or rows changes them. What a source lacks, others make up; a source that would then exceed the largest share gives
up negatives, to other sources where they have more for the same record, else for nothing. Source: METHOD 7.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from secid.arrays import Index
from secid.errors import UsageError
from secid.export.read_again import Original, find_source, plan_again, read_labels
from secid.export.rows import Passage, Row
from secid.export.writer import Written, new_files, schema_of, suffix_of, write_rows, writing
from secid.findings.copies import CopyFinder, Positives
from secid.findings.texts import mask_of
from secid.measure.mixture import SLACK
from secid.pool import Plan, PlannedSource, sample_order
from secid.pool.normal_form import text_forms
from secid.pool.plan import TextFindings
from secid.pool.texts import TextStore
from secid.progress import Progress
from secid.results import Run
from secid.scoring.stored import settings_of

UNFIT = ("false_negative", "near_copy")
"""Findings whose negatives are never drawn: a copy of the query's positive contradicts its label."""
FIRST_BITS = 2.0**-64
SUM_SLACK = 1e-6
"""By which a sum of shares may miss 1: they may be copied from a rounded table."""


class Draw(NamedTuple):
    """One drawn negative: its source and triplet there."""

    source: str
    triplet: int


@dataclass(frozen=True, kw_only=True)
class DrawCounts:
    """What could not be drawn as asked.

    n_short      : negatives that a source's share asked for and it did not have; others gave them where they could.
    n_cut        : negatives left out so that no source has more than the largest share of the drawn ones.
    n_alone      : records with candidates of fewer than two of the mixture's sources; 0 where it is one source alone.
    n_false_negative, n_near_copy : candidates of the base's queries left out because they are a labelled positive of
                   the query in the run, or a near copy of one.
    """

    n_short: int
    n_cut: int
    n_alone: int
    n_false_negative: int
    n_near_copy: int


@dataclass(frozen=True, kw_only=True)
class Blend(Written, DrawCounts):
    """What was written.

    n_records : records of the base.   n_drawn : negatives of the file, by source.   wanted : their shares.
    """

    base: str
    path: str
    provenance_path: str
    n_records: int
    n_drawn: dict[str, int]
    wanted: dict[str, float]


def write_blend(
    run: Run,
    folder: Path,
    shares: Mapping[str, float],
    asked_base: str | None,
    out: Path,
    asked: str | None,
    work: Path,
    progress: Progress,
    seed: int,
    max_share: float = 1.0,
    fixed: Collection[str] = (),
) -> Blend:
    """Writes the mixed file, and OUT.provenance.jsonl with a line for each row of the file.

    folder : the run folder.   shares : by source, adding up to 1.   asked_base : the base, where one was asked for.
    asked  : the schema, None for that of the base or flagembedding.   work : an empty folder.
    max_share : largest share of the drawn negatives that a source may have, unless it is one of `fixed`.
    All records are written, also where the run scored a sample of them. The order of shares changes nothing.
    Labelled positives of sources outside the mixture, and of qrels, are those that the run kept.
    Raises UsageError for invalid shares and for a largest share that leaves no negative, InputError where an original
    has changed, OutputError for a file that exists or cannot be written.
    """
    bounds = _bounds(shares, max_share, fixed)
    base = base_of(run, shares, asked_base)
    names = sorted(name for name, share in shares.items() if share > 0)
    settings = settings_of(run, max_records=None, seed=seed)
    for name in names:
        find_source(run, name)
    schema, suffix = schema_of(asked, {file.schema for file in find_source(run, base).paths}), suffix_of(out)
    provenance = out.with_name(f"{out.name}.provenance.jsonl")
    rules = partial(_copies, known=read_labels(folder, run))
    with (
        new_files(out, provenance) as (mixed, log),
        plan_again(run, sorted({*names, base}), settings, work, progress, rules) as (plan, originals),
    ):
        planned = originals[base].planned
        sources = {name: originals[name].planned for name in names}
        drawn, counts = _drawn(plan, sources, shares, planned, seed, bounds)
        deal = _Deal(plan, originals, base, drawn)
        with writing(out):
            written = write_rows(deal.rows, schema, mixed, suffix)
        with writing(provenance), log.open("w", encoding="utf-8", newline="\n") as lines:
            n_drawn = deal.write_provenance(lines, one_each=written.layout == "triplets")
    return Blend(
        **vars(written),
        base=base,
        path=str(out),
        provenance_path=str(provenance),
        n_records=planned.n_records,
        n_drawn={name: n_drawn[name] for name in names},
        wanted={name: shares[name] for name in names},
        **vars(counts),
    )


def _bounds(shares: Mapping[str, float], max_share: float, fixed: Collection[str]) -> dict[str, float]:
    """The largest share of each source. Raises UsageError where shares are no shares, or one is larger."""
    # Written as "passes if", so that NaN fails
    if not (all(share >= 0.0 for share in shares.values()) and abs(sum(shares.values()) - 1.0) <= SUM_SLACK):
        given = ", ".join(f"{name} {share:g}" for name, share in shares.items())
        raise UsageError(f"shares must be at least 0 and add up to 1: {given}", remedy="divide them by their sum")
    bounds = {name: 1.0 if name in fixed else max_share for name in shares}
    for name, share in shares.items():
        if not share <= bounds[name] + SUM_SLACK:
            raise UsageError(
                f"the share of {name} is {share:g}, above the largest share {max_share:g}",
                where="--max-share",
                remedy="raise the largest share, lower this one, or fix it",
            )
    return bounds


def _seed_of(name: str, seed: int) -> int:
    """The seed of one source's draws: a different one for every name, whatever the other sources are."""
    return int.from_bytes(blake2b(f"{seed} {name}".encode(), digest_size=8).digest(), "big")


def _drawn(
    plan: Plan,
    sources: Mapping[str, PlannedSource],
    shares: Mapping[str, float],
    base: PlannedSource,
    seed: int,
    bounds: Mapping[str, float],
) -> tuple[list[list[Draw]], DrawCounts]:
    """The drawn negatives of each record of the base, and the counts of the drawing."""
    names = list(sources)
    tables = [_by_query(planned, plan, _seed_of(name, seed)) for name, planned in sources.items()]
    cumulated = np.cumsum([shares[name] for name in names])
    cumulated[-1] = 1.0
    offsets = sample_order(plan.queries.keys[base.query], seed).astype(np.float64) * FIRST_BITS
    sizes = np.diff(base.negative_offsets)
    order = np.argsort(offsets, kind="stable").tolist()
    draws = _Draws(base.query, tables, [planned.negatives for planned in sources.values()])
    missing = []
    for record in range(base.n_records):
        k = int(sizes[record])
        edges = np.floor(k * cumulated + min(float(offsets[record]), 1.0 - 1e-12)).astype(int)
        missing.append(draws.take_quotas(record, np.diff(edges, prepend=0).tolist()))
    largest = [bounds[name] for name in names]
    draws.make_up(order, missing, largest)
    n_cut = draws.keep_within(order, largest, names)
    unfit = {f"n_{name}": _n_candidates(name, sources.values(), base.query) for name in UNFIT}
    drawn = [[Draw(names[place], triplet) for place, triplet in sorted(picked)] for picked in draws.picked]
    return drawn, DrawCounts(n_short=sum(missing), n_cut=n_cut, n_alone=draws.n_alone, **unfit)


def _n_candidates(finding: str, sources: Iterable[PlannedSource], queries: Index) -> int:
    """How many of the sources' negatives of these queries have a finding."""
    return sum(int((p.has(finding) & np.isin(p.query, queries)[p.triplet_record()]).sum()) for p in sources)


def _copies(
    queries: TextStore, passages: TextStore, sources: Sequence[PlannedSource], known: Positives
) -> list[TextFindings]:
    """The text rules that no drawn negative may meet; the others take longer and change nothing here."""
    finder = CopyFinder(text_forms(queries), text_forms(passages), passages, sources, known)
    return [
        TextFindings(mask_of(finder.flags(planned), planned.n_triplets), planned.positive_findings)
        for planned in sources
    ]


class _Pools(NamedTuple):
    """A source's candidates: triplets sorted by query, then in the order of their draw."""

    query: Index
    triplet: Index

    def of(self, query: int) -> list[int]:
        """Triplets of a query, first drawn first."""
        low, high = np.searchsorted(self.query, [query, query + 1])
        triplets: list[int] = self.triplet[low:high].tolist()
        return triplets


def _by_query(planned: PlannedSource, plan: Plan, seed: int) -> _Pools:
    """Candidates are the source's negatives without a finding that makes them unfit."""
    fit = np.flatnonzero(~np.logical_or.reduce([planned.has(name) for name in UNFIT]))
    query = planned.query[planned.triplet_record()[fit]]
    order = np.lexsort((fit, sample_order(plan.passages.keys[planned.negatives[fit]], seed), query))
    return _Pools(query[order], fit[order])


def _most(total: int, share: float) -> int:
    """How many of this many negatives a source with this largest share may have."""
    return int((share + SLACK) * total)


def _largest_counts(counts: Sequence[int], largest: Sequence[float]) -> list[int]:
    """The largest counts, none above the given ones, of which each is within its share of their sum."""
    while True:
        total = sum(counts)
        fewer = [min(count, _most(total, share)) for count, share in zip(counts, largest, strict=True)]
        if fewer == counts:
            return fewer
        counts = fewer


class _Draws:
    """The negatives drawn for each record, as (source, triplet), and how many each source has given.

    A text that several sources have is taken once a record.
    """

    def __init__(self, query: Index, tables: Sequence[_Pools], passages: Sequence[Index]) -> None:
        self._query, self._tables, self._passages = query, tables, passages
        self.picked: list[list[tuple[int, int]]] = [[] for _ in query]
        self.counts = [0] * len(tables)
        self.n_alone = 0  # records with candidates of fewer than two sources
        self._quotas: list[list[int]] = []

    def take_quotas(self, record: int, quotas: list[int]) -> int:
        """Draws each source's quota of a record, of which records come in order. Returns how many are missing."""
        self._quotas.append(quotas)
        pools = [table.of(int(self._query[record])) for table in self._tables]
        self.n_alone += len(pools) > 1 and sum(map(bool, pools)) < 2
        # Largest quotas last would leave them the fewest texts: the scarce sources choose first
        places = sorted(range(len(pools)), key=lambda place: len(pools[place]))
        return sum(quotas[place] - self._take(record, place, quotas[place]) for place in places)

    def make_up(self, order: Sequence[int], missing: Sequence[int], largest: Sequence[float]) -> None:
        """Draws what is missing from sources that have more, largest quota first.

        A source goes beyond its largest share only where no other has more: `keep_within` then exchanges it.
        """
        wanted = sum(self.counts) + sum(missing)
        most = [_most(wanted, share) for share in largest]
        for record in order:
            left, quotas = missing[record], self._quotas[record]
            places = sorted(range(len(quotas)), key=lambda place: -quotas[place]) if left else []
            for place in places:
                left -= self._take(record, place, min(left, most[place] - self.counts[place]))
            for place in places:
                left -= self._take(record, place, left)

    def keep_within(self, order: Sequence[int], largest: Sequence[float], names: Sequence[str]) -> int:
        """Leaves no source more than its largest share. Returns how many negatives were given up for nothing.

        A negative is exchanged where another source has more for its record; the others go, from the longest records
        first. Raises UsageError where none could stay.
        """
        total = sum(self.counts)
        for place, share in enumerate(largest):
            self._exchange(place, order, [_most(total, other) for other in largest])
            if self.counts[place] == total > _most(total, share):
                raise UsageError(
                    f"only {names[place]} has negatives for the queries of the base, so its share is 100 %, "
                    f"above {100 * share:g} %",
                    where="--max-share",
                    remedy="raise --max-share, or name a --base whose queries other sources know",
                )
        counts = _largest_counts(self.counts, largest)
        if total and not sum(counts):
            raise UsageError(
                f"the {total:,} drawn negatives have no part in which every source is within its largest share",
                where="--max-share",
                remedy="raise --max-share",
            )
        for place, count in enumerate(counts):
            self._drop(place, order, self.counts[place] - count)
        return total - sum(counts)

    def _spare(self, record: int, place: int) -> Iterator[int]:
        """A source's triplets whose texts the record does not have yet, first drawn first."""
        taken = {int(self._passages[other][triplet]) for other, triplet in self.picked[record]}
        for triplet in self._tables[place].of(int(self._query[record])):
            passage = int(self._passages[place][triplet])
            if passage not in taken:
                taken.add(passage)
                yield triplet

    def _take(self, record: int, place: int, n: int) -> int:
        """Draws up to n negatives of a source. Returns how many."""
        draws = [(place, triplet) for triplet in islice(self._spare(record, place), max(0, n))]
        self.picked[record] += draws
        self.counts[place] += len(draws)
        return len(draws)

    def _give_up(self, record: int, place: int) -> None:
        """Takes back the last negative that a source gave a record."""
        picked = self.picked[record]
        del picked[max(at for at, (source, _) in enumerate(picked) if source == place)]
        self.counts[place] -= 1

    def _has(self, record: int, place: int) -> bool:
        return any(source == place for source, _ in self.picked[record])

    def _exchange(self, place: int, order: Sequence[int], most: Sequence[int]) -> None:
        """Replaces negatives of a source with more than its most, one a record and round."""
        waiting = [record for record in order if self._has(record, place)] if self.counts[place] > most[place] else []
        while waiting:
            again = []
            for record in waiting:
                if self.counts[place] <= most[place]:
                    return
                room = (other for other in range(len(most)) if self.counts[other] < most[other])
                if any(self._take(record, other, 1) for other in room):
                    self._give_up(record, place)
                    if self._has(record, place):
                        again.append(record)
            waiting = again

    def _drop(self, place: int, order: Sequence[int], n: int) -> None:
        """Takes back n negatives of a source, each from the longest record that has one."""
        if not n:
            return
        longest = [
            (-len(self.picked[record]), at, record) for at, record in enumerate(order) if self._has(record, place)
        ]
        heapify(longest)
        for _ in range(n):
            length, at, record = heappop(longest)
            self._give_up(record, place)
            if self._has(record, place):
                heappush(longest, (length + 1, at, record))


class _Deal:
    """The rows of the base, with the drawn negatives of a record dealt out to its rows in order."""

    def __init__(self, plan: Plan, originals: Mapping[str, Original], base: str, drawn: list[list[Draw]]) -> None:
        self._plan, self._originals, self._base, self._drawn = plan, originals, originals[base], drawn
        self._named = {name: self._named_passages(name) for name in {draw.source for row in drawn for draw in row}}

    def _named_passages(self, source: str) -> dict[int, Passage]:
        """The drawn passages that have an id, a title or a score of their own, by triplet."""
        original = self._originals[source]
        wanted = {draw.triplet for row in self._drawn for draw in row if draw.source == source}
        passages: dict[int, Passage] = {}
        for _, row, part in original.rows():
            triplets = original.planned.listed[part].tolist()
            for triplet, passage in zip(triplets, row.negatives if row else (), strict=True):
                if triplet in wanted and passage != Passage(passage.text):
                    passages.setdefault(triplet, passage)
        return passages

    def _dealt(self) -> Iterator[tuple[Row, list[Draw]]]:
        """Each row of the base that gets negatives, with their draws."""
        planned = self._base.planned
        record_of = planned.triplet_record()
        given: Counter[int] = Counter()
        for _, row, part in self._base.rows():
            triplets = planned.listed[part]
            inside = triplets[triplets >= 0]
            if row is None or not len(inside):
                continue
            record = int(record_of[inside[0]])
            draws = self._drawn[record][given[record] : given[record] + len(row.negatives)]
            given[record] += len(draws)
            if draws:
                yield row, draws

    def rows(self) -> Iterator[Row]:
        """The rows of the mixed file. A teacher's scores do not compare between sources, so only the base's stay."""
        for row, draws in self._dealt():
            yield row._replace(negatives=[self._passage(draw) for draw in draws])

    def _passage(self, draw: Draw) -> Passage:
        passage = self._named[draw.source].get(draw.triplet)
        if passage is None:
            ids = self._originals[draw.source].planned.negatives[[draw.triplet]]
            return Passage(self._plan.passages.take(ids)[0])
        return passage if draw.source == self._base.name else passage._replace(score=None)

    def write_provenance(self, lines: TextIO, *, one_each: bool) -> Counter[str]:
        """For each row of the file where its negatives come from, in order; how many of each source there are.

        one_each : whether each negative has a row of its own.
        """
        counts: Counter[str] = Counter()
        number = 0
        for _, draws in self._dealt():
            counts.update(draw.source for draw in draws)
            for of_row in zip(draws, strict=True) if one_each else [draws]:
                number += 1
                origins = list(map(self._origin, of_row))
                lines.write(json.dumps({"row": number, "negatives": origins}, ensure_ascii=False) + "\n")
        return counts

    def _origin(self, draw: Draw) -> dict[str, Any]:
        planned = self._originals[draw.source].planned
        return {
            "source": draw.source,
            "path": planned.source.paths[int(planned.negative_file[draw.triplet])],
            "line": int(planned.negative_line[draw.triplet]),
            "ordinal": int(planned.negative_ordinal[draw.triplet]),
        }


def base_of(run: Run, shares: Mapping[str, float], asked: str | None) -> str:
    """The source whose rows and schema the file takes: the one asked for, else the first in rank with a share."""
    if asked is not None:
        return asked
    for source in run.sources:
        if shares.get(source.name, 0.0) > 0:
            return source.name
    raise UsageError("no source has a share, so there is nothing to write", where="--out")
