"""Records to a plan: every distinct text once for all sources, and triplets as index arrays.

What is kept per row is integers; texts go to the spool. All grouping (rows of one record, equal
negatives, negatives that are positives) is array arithmetic once the files have been read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from secid.arrays import Index, among, distinct, narrow, pairs
from secid.errors import NothingToScoreError
from secid.pool.collect import Gathered
from secid.pool.group import grouped, places
from secid.pool.part import EmptyShardError, unassigned_of
from secid.pool.plan import Plan, PlannedSource, Small, TextFindings
from secid.pool.refuse import reasons_left_out, refuse_bad, refuse_empty
from secid.pool.restrict import first_sampled, restricted, with_scorable_positives
from secid.pool.texts import TextStore
from secid.settings import Settings

TextRules = Callable[[TextStore, TextStore, Sequence[PlannedSource]], Sequence[TextFindings]]
"""Queries, passages and sources, as they were read, to the findings of each source. A last source without negatives
holds labels alone."""
Look = Callable[[Plan], None]
"""Takes all that was read, before a sample leaves records or negatives out; each source has a triplet in the sample.
Its texts are at hand during the call alone."""


def plan_of(
    gathered: Gathered,
    settings: Settings,
    *,
    with_positives: bool = False,
    with_echoes: bool = False,
    text_rules: TextRules | None = None,
    look: Look | None = None,
) -> Plan:
    """Plans what has to be encoded of all that was read.

    with_positives, with_echoes : also plan, for the sample of queries that controls are made of, the
              labelled positives that are not scored, and the queries' own texts as passages.
    text_rules : gives the findings of every source's negatives, from all that was read: before a sample or a policy
                 leaves records and positives out.
    look : is called with all that was read, its findings included.
    Raises BadRecordsError (settings.on_bad, settings.max_bad_fraction) and NothingToScoreError.
    Source: METHOD 1, DESIGN 1.
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
    if text_rules is not None:
        found = text_rules(query_store, passage_store, [*sources, *labels])[: len(sources)]
        sources = [planned.with_findings(own) for planned, own in zip(sources, found, strict=True)]
    whole = sources
    sources = [restricted(planned, query_store, settings) for planned in sources]
    empty = {p.name: dict(reasons_left_out(p.tally)) for p in sources if not p.n_triplets and ":" in p.name}
    filled = {planned.source.name for planned in sources if planned.n_triplets}
    sources = [p for p in sources if p.n_triplets or not (p.source.name in filled or (filled and settings.shard))]
    tallies = {planned.name: planned.tally for planned in whole}
    if settings.shard is not None:
        apart = (grouped(c.unassigned, query_ids, passage_ids, query_store.keys) for c in gathered.collected)
        tallies |= {unassigned_of(planned.source.name): planned.tally for planned in apart}
    silent = () if settings.shard is None else tuple(planned for planned in whole if not planned.n_triplets)
    if settings.shard is not None and not filled:
        raise EmptyShardError(settings.shard, tallies, silent)
    refuse_empty(sources)
    if not sources:
        raise NothingToScoreError("no source given", remedy="secid score negatives/*.parquet --encoder e5-base")
    if look is not None:
        names = {planned.name for planned in sources}
        everything = tuple(planned for planned in whole if planned.name in names)
        look(Plan(query_store, passage_store, everything, known.pairs, echoes, (), {}, n_queries_read, *known[1:]))
    sources = [with_scorable_positives(planned, query_store, settings) for planned in sources]
    extra = known.pairs[np.isin(known.pairs // len(passage_store), sampled)] if with_positives else known.pairs[:0]
    plan = _compacted(query_store, passage_store, sources, known, extra, echoes)
    return replace(
        plan,
        slices=tuple(gathered.slices),
        empty=empty,
        n_queries_read=n_queries_read,
        n_labelled=(n_in_files, len(known.pairs) - n_in_files),
        tallies=tallies,
        silent=silent,
    )


def plan_with(plan: Plan, sources: Sequence[PlannedSource]) -> Plan:
    """The plan with these sources of its texts instead of its own, and no other text."""
    none = plan.known_positives[:0], np.full(len(plan.queries), -1, np.int64)
    known = _Labels(plan.known_positives, plan.label_line, plan.label_path, plan.label_paths)
    part = _compacted(plan.queries, plan.passages, sources, known, *none)
    of_all = {name: getattr(plan, name) for name in ("slices", "empty", "n_queries_read")}
    return replace(part, **of_all)


class _Labels(NamedTuple):
    """Every labelled positive of a run: sorted query * n_passages + passage, and the row that labels it first."""

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
    """The plan with only the texts that are still pointed at, renumbered. extra: further pairs to plan."""
    used_queries = _used([planned.query for planned in sources], len(queries))
    extra = extra[among(extra // len(passages), used_queries)]
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
    """The ids below n that are pointed at, sorted."""
    used = np.zeros(n, np.bool_)
    for ids in pointed:
        used[ids] = True
    return np.flatnonzero(used)
