"""Records to a plan: every distinct text once for all sources, and triplets as index arrays.

What is kept per row is integers; texts go to the spool. All grouping (rows of one record, equal
negatives, negatives that are positives) is array arithmetic once the files have been read.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from secid.errors import BadRecordsError, NothingToScoreError
from secid.records import REASONS, Defect, Record, Source
from secid.results import Example
from secid.settings import Settings
from secid.texts import TextSpool, TextStore

Index = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]
"""Numbers that stay far below 2^31 and are kept for every triplet: half the memory."""
EXAMPLES_PER_REASON = 3
REMEDIES = {
    "no_positive": "each query needs at least one labelled positive: ECI compares negatives with it",
    "text_not_found": "is it the collection these ids were made from? --collection, --corpus and --queries name it",
}
"""What helps where every row is left out under one reason."""
TICK_ROWS = 4096
"""Rows between two calls of the progress callback."""


@dataclass(frozen=True)
class Tally:
    """What became of the rows of one source: n_read = n_used + sum(skipped).

    n_records : records that the used rows form, before any sample.
    """

    n_read: int
    n_used: int
    n_records: int
    skipped: dict[str, int]
    dropped: dict[str, int]
    examples: tuple[Example, ...]

    @property
    def n_malformed(self) -> int:
        """Rows and single negatives left out under a reason that counts as bad."""
        reasons = Counter(self.skipped) + Counter(self.dropped)
        return sum(count for reason, count in reasons.items() if reason in REASONS and REASONS[reason].malformed)


@dataclass(frozen=True)
class PlannedSource:
    """One source as index arrays. R records, T triplets; triplets of one record are neighbours.

    query            : (R,) query id.        line, file : (R,) where the record's first row stands.
    slice            : (R,) place of the record's value in Plan.slices; all 0 without --by.
    positives        : ids of all labelled positives, record r's at positive_offsets[r:r+2].
    negatives        : (T,) passage ids, record r's at negative_offsets[r:r+2], in file order.
    copies           : (T,) how often the record's rows list the negative, >= 1.
    negative_line, negative_file : (T,) the row that first lists the negative.   negative_ordinal : (T,)
                       its 0-based place among that row's usable negatives.
    listed           : (L,) triplet of every usable negative in the order of reading, copies included;
                       -1 where the settings leave it out. So a second reading finds each one again.
    equals_positive  : (T,) True where the negative is a labelled positive of the same query in any
                       record of the run.
    """

    name: str
    source: Source
    tally: Tally
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
    equals_positive: npt.NDArray[np.bool_]

    @property
    def n_records(self) -> int:
        return len(self.query)

    @property
    def n_triplets(self) -> int:
        return len(self.negatives)

    def triplet_record(self) -> Index:
        """(T,) record of each triplet."""
        return np.repeat(np.arange(self.n_records), np.diff(self.negative_offsets))


@dataclass(frozen=True)
class Plan:
    """The distinct texts of a run and the sources that point at them.

    known_positives : sorted query * len(passages) + passage of every labelled positive of the run
                      whose text is in the plan.
    n_queries_read  : distinct queries of all used rows, before any sample.
    empty           : sources of a file that holds several, left out since they have no triplet, and why.
    slices          : values of the column that the run is sliced by, "" for an absent one.
    echoes          : (n_queries,) passage id of the query's own text, -1 where it was not asked for.
    """

    queries: TextStore
    passages: TextStore
    sources: tuple[PlannedSource, ...]
    known_positives: Index
    echoes: Index
    slices: tuple[str, ...]
    empty: Mapping[str, str]
    n_queries_read: int

    def close(self) -> None:
        """Lets go of the spool files."""
        self.queries.close()
        self.passages.close()


@dataclass
class _Rows:
    """Rows of one source while its files are read; occurrence numbers, not yet ids."""

    name: str
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

    def skip(self, defect: Defect) -> None:
        self.skipped[defect.reason] += 1
        self.show(Example(defect.reason, defect.path, defect.line, defect.detail))

    def show(self, example: Example) -> None:
        shown = self.examples.setdefault(example.reason, [])
        if len(shown) < EXAMPLES_PER_REASON:
            shown.append(example)


def make_plan(
    readers: Iterable[tuple[Source, Iterable[Record | Defect]]],
    settings: Settings,
    folder: Path,
    tick: Callable[[], None] = lambda: None,
    *,
    with_positives: bool = False,
    with_echoes: bool = False,
) -> Plan:
    """Reads all sources and plans what has to be encoded.

    readers : each source with its stream of rows; a stream that names splits gives several sources.
    folder  : an existing folder that the spool files are written to.
    tick    : called now and then while rows are read, for a progress bar.
    with_positives, with_echoes : also plan, for the sample of queries that controls are made of, the
              labelled positives that are not scored, and the queries' own texts as passages.
    Raises BadRecordsError (settings.on_bad, settings.max_bad_fraction) and NothingToScoreError.
    Source: METHOD 1, DESIGN 1.
    """
    queries = TextSpool("query", folder / "queries.txt")
    passages = TextSpool("passage", folder / "passages.txt")
    collected: list[_Rows] = []
    slices: dict[str, int] = {}
    for source, rows in readers:
        collected += _collect(source, rows, queries, passages, slices, tick)
    query_store, query_ids = queries.store()
    sampled = np.argsort(sample_order(query_store.keys, settings.seed), kind="stable")[: settings.control_queries]
    echoed = [passages.add(text) for text in query_store.take(sampled)] if with_echoes else []
    passage_store, passage_ids = passages.store()
    echoes = np.full(len(query_store), -1, np.int64)
    echoes[sampled[: len(echoed)]] = passage_ids[np.array(echoed, np.int64)]
    sources = [_grouped(rows, query_ids, passage_ids) for rows in collected]
    refuse_bad(sources, settings)
    n_queries_read = len(np.unique(np.concatenate([planned.query for planned in sources]))) if sources else 0
    sources = [_restricted(source, query_store, settings) for source in sources]
    empty = {f"source {p.name}": f"no triplet: {_told(p.tally)}" for p in sources if not p.n_triplets and ":" in p.name}
    filled = {planned.source.name for planned in sources if planned.n_triplets}
    sources = [p for p in sources if p.n_triplets or p.source.name not in filled]
    for planned in sources:
        if not planned.n_triplets:
            raise NothingToScoreError(
                f"no triplet to score: {_told(planned.tally)}",
                where=planned.name,
                remedy="a source needs rows with a query, a positive and at least one negative",
            )
    if not sources:
        raise NothingToScoreError("no source given", remedy="secid score negatives/*.parquet --encoder e5-base")
    known = _known_positives(sources, len(passage_store))
    sources = [_marked(planned, known, len(passage_store)) for planned in sources]
    sources = [_with_scorable_positives(planned, query_store, settings) for planned in sources]
    extra = known[np.isin(known // len(passage_store), sampled)] if with_positives else known[:0]
    plan = _compacted(query_store, passage_store, sources, known, extra, echoes)
    return replace(plan, slices=tuple(slices), empty=empty, n_queries_read=n_queries_read)


def _collect(
    source: Source,
    stream: Iterable[Record | Defect],
    queries: TextSpool,
    passages: TextSpool,
    slices: dict[str, int],
    tick: Callable[[], None],
) -> list[_Rows]:
    """Rows of one reader by split, in order of appearance. Untold rows count against every split."""
    by_split: dict[str, _Rows] = {}
    files = {path: number for number, path in enumerate(source.paths)}
    untold: list[Defect] = []
    add_query, add_passage = queries.add, passages.add
    for number, item in enumerate(stream, 1):
        if number % TICK_ROWS == 0:
            tick()
        if isinstance(item, Defect):
            if item.split is None:
                untold.append(item)
            else:
                _rows_of(by_split, source, item.split).skip(item)
            continue
        query, positives, negatives, path, line, split, dropped, fields = item
        rows = by_split.get(split) or _rows_of(by_split, source, split)
        rows.query.append(add_query(query))
        value = next(iter(fields.values()), None) if fields else None
        rows.slice.append(slices.setdefault("" if value is None else str(value), len(slices)))
        rows.positives.extend(map(add_passage, positives))
        rows.n_positives.append(len(positives))
        rows.negatives.extend(map(add_passage, negatives))
        rows.n_negatives.append(len(negatives))
        rows.line.append(line)
        rows.file.append(files.get(path, 0))
        for reason, count in dropped:
            rows.dropped[reason] += count
            rows.show(Example(reason, path, line, f"{count} of the row's negatives left out"))
    if not by_split:
        _rows_of(by_split, source, "")
    for rows in by_split.values():
        for defect in untold:
            rows.skip(defect)
    return list(by_split.values())


def _rows_of(by_split: dict[str, _Rows], source: Source, split: str) -> _Rows:
    if split not in by_split:
        by_split[split] = _Rows(f"{source.name}:{split}" if split else source.name, source)
    return by_split[split]


def _grouped(rows: _Rows, query_ids: Index, passage_ids: Index) -> PlannedSource:
    """Rows of equal (query, first positive) become one record; its texts are kept once, in order."""
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
    dropped = rows.dropped + Counter(duplicate_negative=len(negatives) - len(kept_negative))
    n_read = n_rows + rows.skipped.total()
    line, file = _int64(rows.line), _int64(rows.file)
    row = negative_row[kept_negative]
    return PlannedSource(
        name=rows.name,
        source=rows.source,
        tally=Tally(
            n_read,
            n_rows,
            len(first_row),
            dict(sorted(rows.skipped.items())),
            {reason: count for reason, count in sorted(dropped.items()) if count},
            tuple(example for shown in rows.examples.values() for example in shown),
        ),
        query=query[first_row],
        slice=_int64(rows.slice)[first_row].astype(np.int32),
        line=line[first_row],
        file=file[first_row].astype(np.int32),
        positives=positives[kept_positive],
        positive_offsets=positive_offsets,
        negatives=negatives[kept_negative],
        negative_offsets=negative_offsets,
        copies=copies.astype(np.int32),
        negative_line=line[row],
        negative_file=file[row].astype(np.int32),
        negative_ordinal=(kept_negative - _starts(_int64(rows.n_negatives))[row]).astype(np.int32),
        listed=listed,
        equals_positive=np.zeros(len(kept_negative), np.bool_),
    )


def _int64(values: array[int]) -> Index:
    return np.array(values, dtype=np.int64)


def _starts(counts: Index) -> Index:
    return np.cumsum(counts) - counts


def _numbered(keys: Index) -> tuple[Index, Index]:
    """Place of the first of each distinct key in order of appearance, and each key's number."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(first), np.int64)
    rank[order] = np.arange(len(first))
    return first[order], rank[inverse]


def _distinct_within(group: Index, ids: Index, n_groups: int, n_ids: int) -> tuple[Index, Index, Index, Index]:
    """Places of the first of each (group, id), by group and then appearance; offsets per group; counts;
    for every given (group, id) which of the kept ones it is.
    """
    _, first, inverse, counts = np.unique(
        group * n_ids + ids, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.lexsort((first, group[first]))
    kept = first[order]
    offsets = np.zeros(n_groups + 1, np.int64)
    np.cumsum(np.bincount(group[kept], minlength=n_groups), out=offsets[1:])
    return kept, offsets, counts[order], _places(order, len(order))[inverse]


def refuse_bad(sources: Sequence[PlannedSource], settings: Settings) -> None:
    """Raises BadRecordsError where the settings do not allow the malformed rows that were found."""
    for planned in sources:
        tally = planned.tally
        n_bad = tally.n_malformed
        if not n_bad:
            continue
        fraction = min(1.0, n_bad / tally.n_read)  # one row may hold several malformed passages
        shown = next(e for e in tally.examples if e.reason in REASONS and REASONS[e.reason].malformed)
        first = f"first: {shown.path}:{shown.line}: {shown.reason}: {shown.detail}"
        if settings.on_bad == "fail":
            raise BadRecordsError(
                f"{n_bad} malformed of {tally.n_read} rows ({_told(tally)}); {first}",
                where=planned.name,
                remedy="mend the file, or leave --strict out to skip and count them",
            )
        if fraction > settings.max_bad_fraction:
            reason, count = max(tally.skipped.items(), key=lambda item: item[1], default=("", 0))
            if count == tally.n_read:  # neither another schema nor a larger fraction would help
                raise BadRecordsError(
                    f"no row can be used, all {count} for one reason: {REASONS[reason].text}; {first}",
                    where=planned.name,
                    remedy=REMEDIES.get(reason, "mend the file; if it was misread, --format names the schema"),
                )
            raise BadRecordsError(
                f"{n_bad} malformed of {tally.n_read} rows, more than --max-bad-fraction "
                f"{settings.max_bad_fraction:g} allows: the file was probably misread ({_told(tally)}); {first}",
                where=planned.name,
                remedy="name the schema with --format or the columns, or raise --max-bad-fraction",
            )


def _told(tally: Tally) -> str:
    reasons = {**tally.skipped, **tally.dropped}
    return ", ".join(f"{reason} {count}" for reason, count in reasons.items()) or f"{tally.n_read} rows read"


def _restricted(planned: PlannedSource, queries: TextStore, settings: Settings) -> PlannedSource:
    """The sample of queries and the first K negatives of each record that the settings ask for."""
    keep_record = np.ones(planned.n_records, np.bool_)
    if settings.max_records is not None:
        distinct = np.unique(planned.query)
        order = np.argsort(sample_order(queries.keys[distinct], settings.seed), kind="stable")
        keep_record = np.isin(planned.query, distinct[order[: settings.max_records]])
    record = planned.triplet_record()
    keep = keep_record[record]
    if settings.first_k is not None:
        keep &= np.arange(planned.n_triplets) - planned.negative_offsets[record] < settings.first_k
    return planned if keep.all() else select(planned, keep_record, keep)


def select(
    planned: PlannedSource, keep_record: npt.NDArray[np.bool_], keep_triplet: npt.NDArray[np.bool_]
) -> PlannedSource:
    """The source with some of its records and triplets. keep_record: (R,), keep_triplet: (T,)."""
    positive_record = np.repeat(np.arange(planned.n_records), np.diff(planned.positive_offsets))
    keep_positive = keep_record[positive_record]
    keep_triplet = keep_triplet & keep_record[planned.triplet_record()]

    def offsets(groups: Index) -> Index:
        counts = np.bincount(groups, minlength=planned.n_records)[keep_record]
        return np.concatenate([[0], np.cumsum(counts)])

    return replace(
        planned,
        query=planned.query[keep_record],
        slice=planned.slice[keep_record],
        line=planned.line[keep_record],
        file=planned.file[keep_record],
        positives=planned.positives[keep_positive],
        positive_offsets=offsets(positive_record[keep_positive]),
        negatives=planned.negatives[keep_triplet],
        negative_offsets=offsets(planned.triplet_record()[keep_triplet]),
        copies=planned.copies[keep_triplet],
        negative_line=planned.negative_line[keep_triplet],
        negative_file=planned.negative_file[keep_triplet],
        negative_ordinal=planned.negative_ordinal[keep_triplet],
        listed=np.where(
            planned.listed >= 0, _places(np.flatnonzero(keep_triplet), planned.n_triplets)[planned.listed], -1
        ),
        equals_positive=planned.equals_positive[keep_triplet],
    )


def sample_order(keys: npt.NDArray[np.uint8], seed: int) -> npt.NDArray[np.uint64]:
    """(n,) a uniform 64-bit number for each text key and seed: sampling takes the smallest.

    The same text gets the same number in every source, file and run, so samples are nested and
    paired. The mixing is that of splitmix64. Source: METHOD 8, DESIGN 5.
    """
    with np.errstate(over="ignore"):
        mixed = np.ascontiguousarray(keys[:, :8]).view(np.uint64).ravel() + np.uint64(seed) * np.uint64(
            0x9E3779B97F4A7C15
        )
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _known_positives(sources: Sequence[PlannedSource], n_passages: int) -> Index:
    """Sorted query * n_passages + passage of every labelled positive of the run."""
    pairs = [
        np.repeat(planned.query, np.diff(planned.positive_offsets)) * n_passages + planned.positives
        for planned in sources
    ]
    return np.unique(np.concatenate(pairs))


def _marked(planned: PlannedSource, known: Index, n_passages: int) -> PlannedSource:
    """The source with equals_positive filled in from the positives of the whole run."""
    pairs = planned.query[planned.triplet_record()] * n_passages + planned.negatives
    return replace(planned, equals_positive=np.isin(pairs, known))


def _with_scorable_positives(planned: PlannedSource, queries: TextStore, settings: Settings) -> PlannedSource:
    """Only the positives that the policy may score, so that no other is encoded. Source: METHOD 9."""
    starts, counts = planned.positive_offsets[:-1], np.diff(planned.positive_offsets)
    if settings.positives == "first":
        chosen = starts
    elif settings.positives == "random":
        draws = sample_order(queries.keys[planned.query], settings.seed + 1)  # + 1: not the order of samples
        chosen = starts + (draws % counts.astype(np.uint64)).astype(np.int64)
    else:
        return planned
    return replace(
        planned, positives=planned.positives[chosen], positive_offsets=np.arange(planned.n_records + 1, dtype=np.int64)
    )


def _compacted(
    queries: TextStore,
    passages: TextStore,
    sources: Sequence[PlannedSource],
    known: Index,
    extra: Index,
    echoes: Index,
) -> Plan:
    """The plan with only the texts that are still pointed at, renumbered. extra: pairs planned beside them."""
    used_queries = np.unique(np.concatenate([planned.query for planned in sources]))
    pointed = [ids for planned in sources for ids in (planned.positives, planned.negatives)]
    kept_echoes = echoes[used_queries]
    used_passages = np.unique(np.concatenate([*pointed, extra % len(passages), kept_echoes[kept_echoes >= 0]]))
    query_place = _places(used_queries, len(queries))
    passage_place = _places(used_passages, len(passages))
    known_query, known_passage = query_place[known // len(passages)], passage_place[known % len(passages)]
    kept = (known_query >= 0) & (known_passage >= 0)
    return Plan(
        queries.only(used_queries),
        passages.only(used_passages),
        tuple(
            replace(
                planned,
                query=query_place[planned.query],
                positives=passage_place[planned.positives],
                negatives=passage_place[planned.negatives],
            )
            for planned in sources
        ),
        np.sort(known_query[kept] * len(used_passages) + known_passage[kept]),
        np.where(kept_echoes >= 0, passage_place[kept_echoes], -1),
        (),
        {},
        len(used_queries),
    )


def _places(used: Index, n: int) -> Index:
    places = np.full(n, -1, np.int64)
    places[used] = np.arange(len(used))
    return places
