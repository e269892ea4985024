"""Make a plan from records: refuse malformed rows, select the part that the settings request, store each text once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from secid.arrays import Index, distinct, is_known, narrow, pairs
from secid.errors import BadRecordsError, NothingToScoreError
from secid.pool.collect import Gathered, grouped, places
from secid.pool.plan import EmptyShardError, Plan, PlannedSource, Small, Tally, TextFindings, unassigned_of
from secid.pool.texts import TextStore
from secid.read.stream import UTF_8_REMEDY
from secid.records import SKIP_REASONS, fault_text
from secid.results import Example
from secid.settings import Settings, flag_of

# Refusals of too many malformed rows, and of sources without triplets.

REMEDIES = {
    "no_positive": "add a labelled positive to each query, because ECI compares negatives with it",
    "none_relevant": "add a label or judgement that marks a passage as relevant to each query; check that the "
    "judgements in --collection DIR belong to these queries",
    "text_not_found": "name the collection of these ids with --collection DIR, or "
    f"{flag_of('corpus', 'FILE')} and {flag_of('queries', 'FILE')}",
}
"""Reason -> remedy if all rows are left out for this reason."""

BROKEN_LINE_REASONS = frozenset({"broken_line", "too_large", "too_deep", "duplicate_key", "extra_columns"})
"""Reasons why a line itself is broken, whatever its columns mean."""
COUNTED_AS_FINDINGS = ("empty_negative",)
"""Reasons that a finding with its own limit (`empty`) reports. Even many such passages do not mean that a file was
misread."""


def refuse_bad(name: str, tally: Tally, settings: Settings) -> None:
    """Raise BadRecordsError if a source has more malformed rows than the settings allow."""
    if not tally.n_malformed:
        return
    bad = bad_reasons(tally)
    n_bad = sum(bad.values())
    fraction = min(1.0, n_bad / tally.n_read)  # one row may hold several malformed passages
    example = next(e for e in tally.examples if e.reason in SKIP_REASONS and SKIP_REASONS[e.reason].malformed)
    first, encoding = _example_text(example), example.fact is not None and example.fact.kind == "not_utf8"
    if settings.on_bad == "fail":
        raise BadRecordsError(
            f"{malformed(tally)} ({left_out_text(tally)}); {first}",
            where=name,
            remedy=f"fix the file, or skip and count them with {flag_of('on_bad', 'skip')}",
        )
    if fraction > settings.max_bad_fraction:
        reason, count = max(tally.skipped.items(), key=lambda item: item[1], default=("", 0))
        if count == tally.n_read:  # neither another schema nor a larger limit would help
            raise BadRecordsError(
                f"no row can be used, all {count} for one reason: {SKIP_REASONS[reason].text}; {first}",
                where=name,
                remedy=REMEDIES.get(reason, "fix the file; if it was misread, --format names the schema"),
            )
        raise BadRecordsError(
            f"{malformed(tally)}, more than {flag_of('max_bad_fraction', settings.max_bad_fraction)} allows "
            f"({_counted(bad)}); {first}",
            where=name,
            remedy=UTF_8_REMEDY if encoding else _remedy(bad, fraction),
        )


def _remedy(bad: Mapping[str, int], fraction: float) -> str:
    """Return the remedy for malformed rows. It mentions the schema only if the lines themselves are intact."""
    skip = f"skip such rows with {flag_of('max_bad_fraction', ceil(100 * fraction) / 100)}"
    if BROKEN_LINE_REASONS.issuperset(bad):
        return f"fix {'this line' if sum(bad.values()) == 1 else 'these lines'}, or {skip}"
    return f"fix these rows; if columns were misread, name them or the schema (--format); or {skip}"


def bad_reasons(tally: Tally) -> dict[str, int]:
    """Count malformed rows and single passages by reason, without COUNTED_AS_FINDINGS."""
    return {
        reason: count
        for reason, count in rows_left_out(tally).items()
        if reason in SKIP_REASONS and SKIP_REASONS[reason].malformed and reason not in COUNTED_AS_FINDINGS
    }


def refuse_empty(sources: Sequence[PlannedSource]) -> None:
    """Raise NothingToScoreError for a source without any triplet, with an example of the commonest reason."""
    for planned in sources:
        if planned.n_triplets:
            continue
        tally = planned.tally
        reasons = rows_left_out(tally)
        reason = max(reasons, key=lambda name: reasons[name], default="")
        first = next((f"; {_example_text(example)}" for example in tally.examples if example.reason == reason), "")
        raise NothingToScoreError(
            f"no triplet to score: {left_out_text(tally)}{first}",
            where=planned.name,
            remedy=REMEDIES.get(reason, "add rows with a query, a positive and at least one negative"),
        )


def _example_text(example: Example) -> str:
    words = fault_text(example.fact)
    return f"first: {example.path}:{example.line}: {example.reason}{f': {words}' if words else ''}"


def malformed(tally: Tally) -> str:
    """Return the numbers of malformed rows and single passages as text."""
    rows, passages = tally.n_malformed_rows, tally.n_malformed_passages
    parts = [f"{rows} of {tally.n_read} rows"] if rows else []
    if passages:
        of = "other rows" if rows else f"{tally.n_read} row{'' if tally.n_read == 1 else 's'}"
        parts.append(f"{passages} single passage{'' if passages == 1 else 's'} of {of}")
    return f"{' and '.join(parts)} malformed"


def left_out_text(tally: Tally) -> str:
    return _counted(rows_left_out(tally)) or f"{tally.n_read} rows read"


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in reasons.items())


def rows_left_out(tally: Tally) -> Counter[str]:
    """Count the rows and single passages that were left out, by reason."""
    return Counter(tally.skipped) + Counter(tally.dropped)


# The part of a source that the settings request: a sample of queries, the first negatives, and scorable positives.


def restricted(planned: PlannedSource, queries: TextStore, settings: Settings) -> PlannedSource:
    """Return the sample of queries, and the first K negatives per record, that the settings request."""
    keep_record = np.ones(planned.n_records, np.bool_)
    if settings.max_records is not None:
        sample = first_sampled(distinct(planned.query), queries.keys, settings.seed, settings.max_records)
        keep_record = np.isin(planned.query, sample)
    record = planned.triplet_record()
    keep = keep_record[record]
    if settings.first_k is not None:
        keep &= np.arange(planned.n_triplets) - planned.negative_offsets[record] < settings.first_k
    return planned if keep.all() and keep_record.all() else select_records(planned, keep_record, keep)


def select_records(
    planned: PlannedSource, keep_record: npt.NDArray[np.bool_], keep_triplet: npt.NDArray[np.bool_]
) -> PlannedSource:
    """Return the source with only the flagged records and triplets. keep_record: (R,) flags; keep_triplet: (T,) flags.

    If records are removed, so are the blank negatives of queries without a remaining record.
    """
    positive_record = planned.positive_record()
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
            planned.listed >= 0, places(np.flatnonzero(keep_triplet), planned.n_triplets)[planned.listed], -1
        ),
        findings=planned.findings[keep_triplet],
        positive_findings=planned.positive_findings[keep_positive],
        blanks=planned.blanks
        if keep_record.all()
        else planned.blanks.only(np.isin(planned.blanks.query, planned.query[keep_record])),
    )


def sample_order(keys: npt.NDArray[np.uint8], seed: int) -> npt.NDArray[np.uint64]:
    """Return (n,) uniform 64-bit numbers that depend on the text key and the seed. Samples take the smallest numbers.

    A text has the same number in every source, file and run, so that samples are nested and paired. The bits are mixed
    as in splitmix64. Source: METHOD 8, DESIGN 5.
    """
    with np.errstate(over="ignore"):
        mixed = np.ascontiguousarray(keys[:, :8]).view(np.uint64).ravel() + np.uint64(seed) * np.uint64(
            0x9E3779B97F4A7C15
        )
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def content_of(*keys: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Return (n,) hashes of the texts' content, which break ties.

    keys : arrays of (n, 16) text keys, such as those of negatives, or of negatives and queries.
    """
    mixed = sample_order(keys[0], 0)
    for place, part in enumerate(keys[1:], start=1):
        mixed ^= sample_order(part, place)
    return mixed


def first_sampled(ids: Index, keys: npt.NDArray[np.uint8], seed: int, n: int | None = None) -> Index:
    """Return the first n of these text ids in sampling order; all if n is None. keys: text keys by id."""
    return ids[np.argsort(sample_order(keys[ids], seed), kind="stable")[:n]]


def key_ranks(keys: npt.NDArray[np.uint8]) -> Index:
    """Return (n,) rank of each text by its key. This order does not depend on files and rows."""
    high, low = np.ascontiguousarray(keys).view(">u8").astype(np.uint64).T
    order = np.argsort(high)
    if (high[order[1:]] == high[order[:-1]]).any():  # 8 bytes are hardly ever equal if 16 are not
        order = np.lexsort((low, high))
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = np.arange(len(keys))
    return ranks


def with_scorable_positives(planned: PlannedSource, queries: TextStore, settings: Settings) -> PlannedSource:
    """Return the source with only the positives that the policy may score, so that no other positives are encoded.

    With objectives, all positives stay, and the scored one is first. Source: METHOD 9.
    """
    starts, counts = planned.positive_offsets[:-1], np.diff(planned.positive_offsets)
    if settings.positives == "first":
        place = starts
    elif settings.positives == "random":
        draws = sample_order(queries.keys[planned.query], settings.seed + 1)  # + 1, to be independent of samples
        place = starts + (draws % counts.astype(np.uint64)).astype(np.int64)
    else:
        return planned
    if settings.objectives:
        other = np.ones(len(planned.positives), np.bool_)
        other[place] = False
        order = np.lexsort((other, planned.positive_record()))
        return _with_positives(planned, order, planned.positive_offsets)
    return _with_positives(planned, place, np.arange(planned.n_records + 1, dtype=np.int64))


def _with_positives(planned: PlannedSource, places: Index, offsets: Index) -> PlannedSource:
    return replace(
        planned,
        positives=planned.positives[places],
        positive_findings=planned.positive_findings[places],
        positive_offsets=offsets,
    )


# A plan holds every distinct text once for all sources, and triplets as index arrays.
#
# Only integers are stored per row, and texts go to the spool. After the files have been read, all grouping (rows of a
# record, equal negatives, negatives that are positives) is array arithmetic.


@dataclass(frozen=True)
class DraftPlan:
    """A plan before the text findings are known. The texts to encode do not depend on them.

    plan   : texts to encode and triplets to score, without findings.
    read   : every source with all of its rows, before a sample or a policy leaves out records and positives.
    labels : labelled positives from a collection's qrels.
    full_plan : all rows of the sources that are scored, with all texts that were read.
    """

    plan: Plan
    read: tuple[PlannedSource, ...]
    labels: tuple[PlannedSource, ...]
    full_plan: Plan
    settings: Settings

    @property
    def texts(self) -> tuple[TextStore, TextStore, Sequence[PlannedSource]]:
        """Return the input of the text rules: queries, passages, and all sources in `read`, followed by `labels`."""
        return self.full_plan.queries, self.full_plan.passages, [*self.read, *self.labels]

    def with_text_findings(self, findings: Sequence[TextFindings]) -> DraftPlan:
        """Return the draft with findings. findings: text findings of each source in `texts`, in the same order."""
        read_findings = findings[: len(self.read)]
        read = tuple(
            planned.with_findings(source_findings)
            for planned, source_findings in zip(self.read, read_findings, strict=True)
        )
        by_name = {planned.name: planned for planned in read}

        def scored(planned: PlannedSource) -> PlannedSource:
            part = scored_part(by_name[planned.name], self.full_plan.queries, self.settings)
            return planned.with_findings(TextFindings(part.findings, part.positive_findings, part.excess))

        def all_rows(sources: Sequence[PlannedSource]) -> tuple[PlannedSource, ...]:
            return tuple(by_name[planned.name] for planned in sources)

        plan = replace(
            self.plan,
            sources=tuple(map(scored, self.plan.sources)),
            without_triplets=all_rows(self.plan.without_triplets),
        )
        return replace(
            self, plan=plan, read=read, full_plan=replace(self.full_plan, sources=all_rows(self.full_plan.sources))
        )

    def close(self) -> None:
        self.plan.close()
        self.full_plan.close()


def scored_part(planned: PlannedSource, queries: TextStore, settings: Settings) -> PlannedSource:
    """Return the part of a source to score: a sample of queries, the first negatives, and scorable positives."""
    return with_scorable_positives(restricted(planned, queries, settings), queries, settings)


def draft_plan(
    gathered: Gathered, settings: Settings, *, with_positives: bool = False, with_echoes: bool = False
) -> DraftPlan:
    """Plan the texts to encode and the triplets to score.

    with_positives : whether to include the unscored labelled positives of the queries for controls.
    with_echoes    : whether to include the texts of these queries as passages.
    Raises BadRecordsError if there are too many malformed rows (settings.on_bad, settings.max_bad_fraction), and
    NothingToScoreError if a source has no triplet. Source: METHOD 1, DESIGN 1.
    """
    queries, passages = gathered.queries, gathered.passages
    if settings.shard is None:  # `secid merge` knows all splits
        for item in gathered.collected:
            item.assign()
    collected = gathered.rows()
    query_store, query_ids = queries.store()
    sampled = first_sampled(np.arange(len(query_store)), query_store.keys, settings.seed, settings.control_queries)
    echoed = passages.add(query_store.take(sampled)) if with_echoes else []
    passage_store, passage_ids = passages.store()
    echoes = np.full(len(query_store), -1, np.int64)
    echoes[sampled[: len(echoed)]] = passage_ids[np.array(echoed, np.int64)]
    sources = [grouped(rows, query_ids, passage_ids, query_store.keys) for rows in collected]
    for planned in sources if settings.shard is None else ():  # `secid merge` has all rows
        refuse_bad(planned.name, planned.tally, settings)
    n_queries_read = len(distinct(np.concatenate([planned.query for planned in sources]))) if sources else 0
    labels = [
        grouped(rows, query_ids, passage_ids, query_store.keys)
        for rows in (gathered.labels.rows() if gathered.labels else ())
    ]
    n_in_files = len(_Labels.of(sources, len(passage_store)).pairs)
    known = _Labels.of([*sources, *labels], len(passage_store))
    whole = sources
    sources = [restricted(planned, query_store, settings) for planned in sources]
    empty = {p.name: dict(rows_left_out(p.tally)) for p in sources if not p.n_triplets and ":" in p.name}
    filled = {planned.source.name for planned in sources if planned.n_triplets}
    sources = [p for p in sources if p.n_triplets or not (p.source.name in filled or (filled and settings.shard))]
    tallies = {planned.name: planned.tally for planned in whole}
    if settings.shard is not None:
        apart = (grouped(c.unassigned, query_ids, passage_ids, query_store.keys) for c in gathered.collected)
        tallies |= {unassigned_of(planned.source.name): planned.tally for planned in apart}
    without_triplets = () if settings.shard is None else tuple(planned for planned in whole if not planned.n_triplets)
    if settings.shard is not None and not filled:
        raise EmptyShardError(settings.shard, tallies, without_triplets)
    refuse_empty(sources)
    if not sources:
        raise NothingToScoreError("no source given", remedy="secid score negatives/*.parquet --encoder e5-base")
    names = {planned.name for planned in sources}
    everything = tuple(planned for planned in whole if planned.name in names)
    all_rows = Plan(query_store, passage_store, everything, known.pairs, echoes, (), {}, n_queries_read, *known[1:])
    sources = [with_scorable_positives(planned, query_store, settings) for planned in sources]
    extra = known.pairs[np.isin(known.pairs // len(passage_store), sampled)] if with_positives else known.pairs[:0]
    plan = _compacted(query_store, passage_store, sources, known, extra, echoes)
    plan = replace(
        plan,
        slices=tuple(gathered.slices),
        empty=empty,
        n_queries_read=n_queries_read,
        n_labelled=(n_in_files, len(known.pairs) - n_in_files),
        tallies=tallies,
        without_triplets=without_triplets,
    )
    return DraftPlan(plan, tuple(whole), tuple(labels), all_rows, settings)


class _Labels(NamedTuple):
    """Labelled positives of a run.

    pairs      : sorted query * n_passages + passage.
    line, path : line and file of the row that first labels each pair; path is an index into `paths`.
    """

    pairs: Index
    line: Index
    path: Small
    paths: tuple[str, ...]

    @classmethod
    def of(cls, sources: Sequence[PlannedSource], n_passages: int) -> _Labels:
        labelled, lines, files = [], [], []
        paths: list[str] = []
        for planned in sources:
            counts = np.diff(planned.positive_offsets)
            labelled.append(pairs(np.repeat(planned.query, counts), planned.positives, n_passages))
            lines.append(np.repeat(planned.line, counts))
            files.append(np.repeat(planned.file, counts) + len(paths))
            paths += planned.source.paths
        none = np.zeros(0, np.int64)
        known, first = np.unique(np.concatenate([none, *labelled]), return_index=True)
        line, path = np.concatenate([none, *lines])[first], np.concatenate([none, *files])[first]
        return cls(known, line, path.astype(np.int32), tuple(paths))


def _compacted(
    queries: TextStore,
    passages: TextStore,
    sources: Sequence[PlannedSource],
    known: _Labels,
    extra: Index,
    echoes: Index,
) -> Plan:
    """Return the plan with only the texts in use, renumbered. extra: known pairs whose texts the sources may lack."""
    used_queries = _used([planned.query for planned in sources], len(queries))
    extra = extra[is_known(extra // len(passages), used_queries)]
    pointed = [ids for planned in sources for ids in (planned.positives, planned.negatives)]
    kept_echoes = echoes[used_queries]
    pointed += [extra % len(passages), kept_echoes[kept_echoes >= 0]]
    used_passages = _used(pointed, len(passages))
    if len(used_queries) == len(queries) and len(used_passages) == len(passages):
        narrowed = tuple(replace(planned, negatives=narrow(planned.negatives)) for planned in sources)
        return Plan(queries, passages, narrowed, known.pairs, echoes, (), {}, len(queries), *known[1:])
    query_place = places(used_queries, len(queries))
    passage_place = places(used_passages, len(passages))
    known_query, known_passage = query_place[known.pairs // len(passages)], passage_place[known.pairs % len(passages)]
    present = np.flatnonzero((known_query >= 0) & (known_passage >= 0))
    renumbered = known_query[present] * len(used_passages) + known_passage[present]
    order = np.argsort(renumbered, kind="stable")
    present = present[order]
    return Plan(
        queries.only(used_queries),
        passages.only(used_passages),
        tuple(
            replace(
                planned,
                query=query_place[planned.query],
                positives=passage_place[planned.positives],
                negatives=narrow(passage_place[planned.negatives]),
                blanks=replace(planned.blanks, query=query_place[planned.blanks.query]),
            )
            for planned in sources
        ),
        renumbered[order],
        np.where(kept_echoes >= 0, passage_place[kept_echoes], -1),
        (),
        {},
        len(used_queries),
        known.line[present],
        known.path[present],
        known.paths,
    )


def _used(pointed: Sequence[Index], n: int) -> Index:
    used = np.zeros(n, np.bool_)
    for ids in pointed:
        used[ids] = True
    return np.flatnonzero(used)
