"""The main job: files to a ranking, through plan, embed, measure and finish."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

import secid
from secid.data import Reader, open_source
from secid.encoders import Cache, EmbedCounts, Encoder, Role, embed, smallest_distance
from secid.lexical import DocumentFrequencies, Lexicon
from secid.measure.information import InformationState
from secid.measure.summary import gate_table
from secid.measure.sweep import Triplets, Variant, Vectors, sweep
from secid.measure.uncertainty import influence
from secid.plan import Plan, PlannedSource, make_plan, sample_order
from secid.progress import Progress
from secid.records import Source
from secid.results import SCHEMA_VERSION, IdfInfo, InputFile, Run
from secid.settings import Resolved, Settings
from secid.study.controls import chosen_kinds, make_controls
from secid.study.environment import environment
from secid.study.finish import (
    Measured,
    chances,
    compare,
    control_result,
    crossings,
    curve_budgets,
    rank_groups,
    source_result,
)
from secid.study.inspect import Inspector, overlaps
from secid.study.triplets import triplets_of
from secid.texts import TextStore, text_key

Floats = npt.NDArray[np.float64]
BASE_COVERAGE = "base"


@dataclass
class Clock:
    """Seconds and counts of each stage, for the report."""

    stages: dict[str, dict[str, float]] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, **counts: float) -> Iterator[dict[str, float]]:
        """Times a stage; what is put in the yielded dictionary is reported with it."""
        entry: dict[str, float] = dict(counts)
        start = time.perf_counter()
        yield entry
        self.stages[name] = {"seconds": round(time.perf_counter() - start, 3), **entry}


@dataclass(frozen=True)
class Scored:
    """A finished run and the measurements behind it, sources in rank order in both."""

    run: Run
    measured: tuple[Measured, ...]
    frequencies: DocumentFrequencies


def score_sources(
    sources: Sequence[Source], encoder: Encoder, resolved: Resolved, folder: Path, progress: Progress
) -> Scored:
    """Ranks sources by ECI_sem under one encoder, with controls, intervals and budget curves.

    folder : an empty folder for spool files and vectors; the caller removes it.
    Raises what reading, encoding and measuring raise (SecidError).
    Source: METHOD 1, 2, 6, 7, 8.
    """
    clock, settings = Clock(), resolved.values
    kinds = chosen_kinds(settings.controls)
    plan, readers = read(sources, settings, folder, clock, progress, kinds)
    try:
        vectors, marks = encode(plan, encoder, settings, folder, clock, progress)
        triplets = [triplets_of(planned, settings.positives, vectors) for planned in plan.sources]
        with clock.stage("controls"):
            controls, missing = make_controls(plan, triplets, vectors, settings)
        with clock.stage("lex", n_texts=len(plan.queries) + len(plan.passages)):
            lexicon = make_lexicon(plan, triplets, settings.tokenizer, folder)
            table = RunFrequencies(plan, lexicon, settings)
        bench = Bench(vectors, lexicon, table, settings, smallest_distance(encoder))
        sets = [*triplets, *(control.triplets for control in controls)]
        progress.start("measure", sum(map(len, sets)), "triplets")
        with clock.stage("measure", n_triplets=sum(map(len, sets))):
            items = [bench.measure(p.name, p, rows, progress) for p, rows in zip(plan.sources, triplets, strict=True)]
            control_items = [bench.measure(control.kind, None, control.triplets, progress) for control in controls]
            level = level_sets(plan, triplets, settings.seed)
            level_items = items
            if level is not None:
                level_items = [
                    bench.measure(p.name, p, rows, None) for p, rows in zip(plan.sources, level, strict=True)
                ]
        with clock.stage("inspect"):
            inspector = Inspector(plan, lexicon, table.idf, marks, settings)
            found = {item.name: inspector.findings(item) for item in items}
    finally:
        plan.close()
    files = {path: file for reader in readers for path, file in input_files(reader).items()}
    judged = items if settings.budget == 1.0 else level_items
    order = sorted(
        range(len(items)), key=lambda place: (-judged[place].nats(settings.budget), plan.sources[place].name)
    )
    ranked, judged = [items[place] for place in order], [judged[place] for place in order]
    comparisons = compare(judged, settings.budget)
    groups = rank_groups([item.name for item in ranked], comparisons)
    pool = np.unique(np.concatenate([ids for rows in triplets for ids in (rows.positive, rows.negative)]))
    run = Run(
        schema_version=SCHEMA_VERSION,
        secid_version=secid.__version__,
        settings=resolved.document(),
        encoder=encoder.info,
        idf=table.info,
        budget=settings.budget,
        sources=tuple(
            source_result(item, rank, groups[item.name], float(chance), files, found[item.name], settings)
            for rank, (item, chance) in enumerate(zip(ranked, chances(judged, settings), strict=True), 1)
        ),
        controls=tuple(
            control_result(
                control.kind, control.of, item, len(np.setdiff1d(item.triplets.negative, pool)), ranked, settings
            )
            for control, item in zip(controls, control_items, strict=True)
        ),
        comparisons=comparisons,
        crossings=crossings(level_items),
        overlaps=overlaps(ranked),
        ablations=(),
        not_evaluated=missing,
        timing=clock.stages,
        environment=environment(),
    )
    return Scored(run, tuple(ranked), table.shared)


def read(
    sources: Sequence[Source],
    settings: Settings,
    folder: Path,
    clock: Clock,
    progress: Progress,
    control_kinds: Sequence[str] = (),
) -> tuple[Plan, list[Reader]]:
    """Opens and reads all sources into a plan, telling what was understood of each file."""
    readers = [open_source(source, settings) for source in sources]
    for source, reader in zip(sources, readers, strict=True):
        for shape in reader.files:
            progress.note(f"{source.name}: {shape.path}: {shape.schema} ({shape.mapping})")
    sizes = [reader.n_bytes for reader in readers]
    total = None if None in sizes else sum(size for size in sizes if size is not None)
    progress.start("read", total, "bytes")
    done = 0

    def tick() -> None:
        nonlocal done
        now = sum(reader.bytes_read() for reader in readers)
        progress.advance(now - done)
        done = now

    with clock.stage("read") as counts:
        plan = make_plan(
            zip(sources, readers, strict=True),
            settings,
            folder,
            tick,
            with_positives="known_positive" in control_kinds,
            with_echoes="query_echo" in control_kinds,
        )
        tick()
        counts["n_rows"] = sum(planned.tally.n_read for planned in plan.sources)
        counts["n_distinct_queries"] = len(plan.queries)
        counts["n_distinct_passages"] = len(plan.passages)
    return plan, readers


def encode(
    plan: Plan, encoder: Encoder, settings: Settings, folder: Path, clock: Clock, progress: Progress
) -> tuple[Vectors, npt.NDArray[np.bool_]]:
    """Unit rows of every distinct text, in memory-mapped files; (n_passages,) which passages were truncated."""
    cache = Cache.open(settings, encoder.info.fingerprint) if settings.cache else None
    progress.start("encode", len(plan.queries) + len(plan.passages), "texts")
    with clock.stage("encode") as counts:
        rows: dict[Role, torch.Tensor] = {}
        marks: dict[Role, npt.NDArray[np.bool_]] = {}
        stores: dict[Role, TextStore] = {"query": plan.queries, "passage": plan.passages}
        for role, store in stores.items():
            marks[role] = np.zeros(len(store), np.bool_)
            rows[role], done = _embedded(store, role, encoder, cache, folder, progress, marks[role])
            for name in COUNTED:
                counts[name] = counts.get(name, 0) + getattr(done, name)
    return Vectors(rows["query"], rows["passage"]), marks["passage"]


COUNTED = ("n_texts", "n_cached", "n_encoded", "n_tokens", "n_truncated")


def _embedded(
    store: TextStore,
    role: Role,
    encoder: Encoder,
    cache: Cache | None,
    folder: Path,
    progress: Progress,
    marks: npt.NDArray[np.bool_],
) -> tuple[torch.Tensor, EmbedCounts]:
    path = folder / f"{role}.f32"
    out = np.memmap(path, np.float32, "w+", shape=(len(store), encoder.dimension))
    counts = embed(encoder, store, store.keys, role, out, cache=cache, progress=progress.advance, truncated=marks)
    return torch.from_numpy(out), counts


def make_lexicon(plan: Plan, triplets: Sequence[Triplets], tokenizer: str, folder: Path) -> Lexicon:
    """Token sets of the plan's texts; the pool is the distinct documents of the scored triplets."""
    counted = np.zeros(len(plan.passages), np.bool_)
    for rows in triplets:
        counted[rows.positive] = True
        counted[rows.negative] = True
    return Lexicon(
        tokenizer, plan.queries.get, len(plan.queries), plan.passages.get, counted, folder / f"{tokenizer}.tokens"
    )


class RunFrequencies:
    """The document frequencies that coverage is counted with. shared: the table of the pool (METHOD 2, 4)."""

    def __init__(self, plan: Plan, lexicon: Lexicon, settings: Settings) -> None:
        self._lexicon = lexicon
        self._corpus = settings.idf
        self.shared = lexicon.pooled()
        if settings.idf == "pooled_with_queries":
            self.shared = lexicon.with_queries(self.shared, ~queries_among_passages(plan))
        self.info = IdfInfo(
            settings.idf, settings.tokenizer, self.shared.n_documents, len(self.shared.keys), self.shared.sha256()
        )

    def idf(self, rows: Triplets) -> Floats:
        """IDF of the query vocabulary for these triplets; "own" counts their own documents."""
        if self._corpus == "uniform":
            return self._lexicon.idf(None)
        if self._corpus == "own":
            own = np.unique(np.concatenate([rows.positive, rows.negative]))
            return self._lexicon.idf(self._lexicon.of_passages(own))
        return self._lexicon.idf(self.shared)


def queries_among_passages(plan: Plan) -> npt.NDArray[np.bool_]:
    """(n_queries,) True where a query's text is also a passage of the plan, so that it counts once."""
    passages = set(map(bytes, plan.passages.keys))
    texts = plan.queries.get(0, len(plan.queries))
    return np.array([text_key("passage", text) in passages for text in texts], np.bool_)


@dataclass(frozen=True)
class Bench:
    """What every set of triplets of a run is measured with: both passes, under the base setting."""

    vectors: Vectors
    lexicon: Lexicon
    frequencies: RunFrequencies
    settings: Settings
    smallest_distance: float

    def measure(self, name: str, planned: PlannedSource | None, rows: Triplets, progress: Progress | None) -> Measured:
        """Gates, information and influence of one set of triplets. Source: METHOD 2, 7, 8."""
        settings = self.settings
        idf = self.frequencies.idf(rows)
        coverage = self.lexicon.coverage(rows.query, rows.negative, idf)
        heads = rows.record_offsets[:-1]  # one (query, positive) for all triplets of a record
        positive_coverage = np.repeat(
            self.lexicon.coverage(rows.query[heads], rows.positive[heads], idf), np.diff(rows.record_offsets)
        )
        base = Variant(settings.temperature, BASE_COVERAGE, "full")
        swept = sweep(self.vectors, rows, {BASE_COVERAGE: coverage}, [base], self.smallest_distance, settings.temperature)
        gates = gate_table(swept.scalars.dots(), coverage, settings.temperature)
        state = InformationState(swept.matrices[base], swept.n_negatives)
        budgets = sorted({1.0, *curve_budgets(settings.budget, swept.n_negatives)}, key=lambda b: b != settings.budget)
        effect = influence(self.vectors, rows, swept.scalars, gates.weight, state, self.smallest_distance, budgets)
        if progress is not None:
            progress.advance(len(rows))
        return Measured(
            name,
            planned,
            rows,
            swept.scalars,
            coverage,
            positive_coverage,
            gates,
            swept.record_gradient,
            state,
            effect,
        )


def level_sets(plan: Plan, triplets: Sequence[Triplets], seed: int) -> list[Triplets] | None:
    """The sources cut to equal numbers of queries and negatives; None where they are equal already.

    Queries go by the order of every sample; negatives are dealt round by round, one a query, so
    that every query keeps some. Source: METHOD 7.
    """
    sizes = {(len(np.unique(rows.query)), rows.n_negatives) for rows in triplets}
    if len(sizes) == 1:
        return None
    n_queries = min(size for size, _ in sizes)
    orders = []
    for rows in triplets:
        priority = sample_order(plan.queries.keys[rows.query], seed)
        _, query_rank = np.unique(priority, return_inverse=True)
        order = np.lexsort((np.arange(len(rows)), query_rank))
        starts = np.searchsorted(query_rank[order], np.arange(n_queries))
        inside = order[: int(np.searchsorted(query_rank[order], n_queries))]
        round_number = np.arange(len(inside)) - starts[query_rank[inside]]
        orders.append(inside[np.lexsort((query_rank[inside], round_number))])
    n_triplets = min(map(len, orders))
    return [_subset(rows, np.sort(order[:n_triplets])) for rows, order in zip(triplets, orders, strict=True)]


def _subset(rows: Triplets, keep: npt.NDArray[np.int64]) -> Triplets:
    """Some triplets of a set, records and shares kept."""
    group = np.searchsorted(rows.record_offsets, keep, side="right")
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    return Triplets(
        query=rows.query[keep],
        positive=rows.positive[keep],
        negative=rows.negative[keep],
        record_offsets=np.append(starts, len(keep)),
        record=rows.record[keep],
        place=rows.place[keep],
        share=None if rows.share is None else rows.share[keep],
    )


def input_files(reader: Reader) -> dict[str, InputFile]:
    """What was read of each path of a reader, after it has been read."""
    shapes = {shape.path: shape for shape in reader.files}
    return {
        content.path: InputFile(
            content.path, content.sha256, content.n_bytes, shapes[content.path].schema, shapes[content.path].mapping
        )
        for content in reader.content()
    }
