"""The main job: files to a ranking, through plan, embed, measure and finish."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

import secid
from secid.data import Reader, open_source
from secid.encoders import Cache, EmbedCounts, Encoder, Role, embed, smallest_distance
from secid.lexical import DocumentFrequencies
from secid.measure.gates import UNBOUNDED_WEIGHTS
from secid.measure.information import log_det_nats
from secid.measure.summary import gate_table
from secid.measure.sweep import Sweep, Triplets, Variant, Vectors, sweep
from secid.measure.uncertainty import influence
from secid.plan import Plan, PlannedSource, make_plan, sample_order
from secid.progress import Progress
from secid.records import Source
from secid.results import SCHEMA_VERSION, Ablation, InputFile, Run
from secid.settings import Resolved, Settings
from secid.study.ablate import Aspect, ablation, aspects, base_variant, blocks_of
from secid.study.controls import chosen_kinds, make_controls
from secid.study.coverage import CoverageBench
from secid.study.environment import environment
from secid.study.finish import (
    Measured,
    VariantScore,
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
from secid.texts import TextStore

Floats = npt.NDArray[np.float64]


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
    sources: Sequence[Source],
    encoder: Encoder,
    resolved: Resolved,
    folder: Path,
    progress: Progress,
    frozen: DocumentFrequencies | None = None,
) -> Scored:
    """Ranks sources by ECI_sem under one encoder, with controls, intervals and budget curves.

    folder : an empty folder for spool files and vectors; the caller removes it.
    frozen : document frequencies of an earlier run's pool, to be scored in instead of this run's own.
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
        coverages = CoverageBench(plan, triplets, folder, frozen)
        with clock.stage("lex", n_texts=len(plan.queries) + len(plan.passages)):
            idf_info = coverages.info(settings.tokenizer, settings.idf)
        bench = Bench(vectors, plan.queries.keys, coverages, settings, smallest_distance(encoder))
        suite = aspects(settings, has_wordpieces=False) if settings.ablate else ()
        variants = [variant for aspect in suite for variant in aspect.variants.values()]
        position = sample_positions(plan, settings.seed)
        sets = [*triplets, *(control.triplets for control in controls)]
        progress.start("measure", sum(map(len, sets)), "triplets")
        with clock.stage("measure", n_triplets=sum(map(len, sets))):
            items = []
            for planned, rows in zip(plan.sources, triplets, strict=True):
                items.append(bench.measure(planned.name, planned, rows, variants, position[rows.query]))
                progress.advance(len(rows))
            control_items = []
            for control in controls:
                control_items.append(bench.measure(control.kind, None, control.triplets))
                progress.advance(len(control.triplets))
            level = level_sets(plan, triplets, settings.seed)
            level_items = items
            if level is not None:
                level_items = [bench.measure(p.name, p, rows) for p, rows in zip(plan.sources, level, strict=True)]
        with clock.stage("inspect"):
            inspector = Inspector(plan, coverages, marks, settings)
            found = {item.name: inspector.findings(item) for item in items}
    finally:
        plan.close()
    files = {path: file for reader in readers for path, file in input_files(reader).items()}
    judged = items if settings.budget == 1.0 else level_items
    order = sorted(
        range(len(items)), key=lambda place: (-judged[place].nats(settings.budget), plan.sources[place].name)
    )
    blocks = blocks_of(settings.block, [planned.name for planned in plan.sources])
    ranked, judged = [items[place] for place in order], [judged[place] for place in order]
    comparisons = compare(judged, settings.budget)
    groups = rank_groups([item.name for item in ranked], comparisons)
    pool = np.unique(np.concatenate([ids for rows in triplets for ids in (rows.positive, rows.negative)]))
    run = Run(
        schema_version=SCHEMA_VERSION,
        secid_version=secid.__version__,
        settings=resolved.document(),
        encoder=encoder.info,
        idf=idf_info,
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
        ablations=tuple(ablated(aspect, ranked, blocks) for aspect in suite),
        not_evaluated=missing,
        timing=clock.stages,
        environment=environment(),
    )
    return Scored(run, tuple(ranked), coverages.table(settings.tokenizer, settings.idf))


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


@dataclass(frozen=True)
class Bench:
    """What every set of triplets of a run is measured with: both passes, under the base setting."""

    vectors: Vectors
    query_keys: npt.NDArray[np.uint8]
    coverages: CoverageBench
    settings: Settings
    smallest_distance: float

    def measure(
        self,
        name: str,
        planned: PlannedSource | None,
        rows: Triplets,
        variants: Sequence[Variant] = (),
        position: Floats | None = None,
    ) -> Measured:
        """Gates, information and influence of one set of triplets, and its sums under further variants.

        position : (T,) place of each triplet's query in the nested sample. Source: METHOD 2, 4, 7, 8.
        """
        settings, base = self.settings, base_variant(self.settings)
        wanted = list(dict.fromkeys([base, *variants]))
        named = {variant.coverage: self.coverages.negatives(rows, *variant.coverage.split("/")) for variant in wanted}
        swept = sweep(self.vectors, rows, named, wanted, self.smallest_distance, settings.temperature, position)
        gates = gate_table(swept.scalars.dots(), named[base.coverage], settings.temperature)
        state = swept.state(base)
        budgets = curve_budgets(settings.budget, state.n_negatives)
        return Measured(
            name=name,
            planned=planned,
            triplets=rows,
            scalars=swept.scalars,
            coverage=named[base.coverage],
            positive_coverage=self.coverages.positives(rows, settings.tokenizer, settings.idf),
            gates=gates,
            record_gradient=swept.record_gradient,
            state=state,
            influence=influence(
                self.vectors, rows, swept.scalars, gates.weight, state, self.smallest_distance, budgets
            ),
            query_keys=self.query_keys[np.unique(rows.query)],
            variants=variant_scores(swept, wanted) if variants else {},
        )


def variant_scores(swept: Sweep, variants: Sequence[Variant]) -> dict[Variant, VariantScore]:
    """Log-determinants of all variants of one sweep; only what later scaling needs is kept of the matrices."""
    found = {}
    for variant in variants:
        state = swept.state(variant)
        scaled = variant.weight in UNBOUNDED_WEIGHTS
        nats = None if scaled or not state.n_negatives else log_det_nats(state.matrix())
        found[variant] = VariantScore(nats, state if scaled else None, swept.weights[variant])
    return found


def ablated(aspect: Aspect, items: Sequence[Measured], blocks: Mapping[str, Sequence[str]]) -> Ablation:
    """The table of one aspect over all sources."""
    table: dict[str, dict[str, float | None]] = {}
    for setting, variant in aspect.variants.items():
        scores = {item.name: item.variants[variant] for item in items}
        states = [score.state for score in scores.values() if score.state is not None]
        n = sum(state.n_negatives for state in states)
        mean = sum(score.weight_sum for score in scores.values()) / n if n else 0.0
        table[setting] = {
            name: log_det_nats(score.state.matrix() / mean) if score.state is not None and mean > 0 else score.nats
            for name, score in scores.items()
        }
    return ablation(aspect.name, aspect.base, table, blocks)


def sample_positions(plan: Plan, seed: int) -> Floats:
    """(n_queries,) place of each query in the nested sample of the run, in [0, 1): a sample of 10 %
    takes those below 0.1. The same query has the same place in every source. Source: METHOD 8.
    """
    order = np.argsort(sample_order(plan.queries.keys, seed), kind="stable")
    position = np.empty(len(order))
    position[order] = np.arange(len(order)) / len(order)
    return position


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
