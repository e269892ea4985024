"""The main job: files to a ranking, through plan, embed, measure and finish."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import secid
from secid.data import Reader, open_source
from secid.encoders import Cache, Encoder, embed, smallest_distance
from secid.lexical import Lexicon
from secid.measure.information import InformationState, log_det_nats, trace
from secid.measure.summary import GateTable, gate_means, gate_table
from secid.measure.sweep import Scalars, Triplets, Variant, Vectors, sweep
from secid.plan import Plan, PlannedSource, make_plan
from secid.progress import Progress
from secid.records import Source
from secid.results import SCHEMA_VERSION, IdfInfo, InputFile, Run, SourceResult
from secid.settings import Resolved, Settings
from secid.study.environment import environment
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
class Measured:
    """One source after the sweep: what its results, tables and later studies are made from.

    coverage, positive_coverage : (T,) of the negative and of the scored positive.
    """

    planned: PlannedSource
    triplets: Triplets
    scalars: Scalars
    coverage: Floats
    positive_coverage: Floats
    gates: GateTable
    state: InformationState


@dataclass(frozen=True)
class Scored:
    """A finished run and the measurements behind it, sources in rank order in both."""

    run: Run
    measured: tuple[Measured, ...]


def score_sources(
    sources: Sequence[Source], encoder: Encoder, resolved: Resolved, folder: Path, progress: Progress
) -> Scored:
    """Ranks sources by ECI_sem under one encoder.

    folder : an empty folder for spool files and vectors; the caller removes it.
    Raises what reading, encoding and measuring raise (SecidError).
    Source: METHOD 1, 2.
    """
    clock, settings = Clock(), resolved.values
    plan, readers = read(sources, settings, folder, clock, progress)
    try:
        vectors = encode(plan, encoder, settings, folder, clock, progress)
        triplets = [triplets_of(planned, settings.positives, vectors) for planned in plan.sources]
        with clock.stage("lex", n_texts=len(plan.queries) + len(plan.passages)):
            lexicon = make_lexicon(plan, triplets, settings.tokenizer, folder)
            idf_info, coverages = _coverages(plan, lexicon, triplets, settings)
        progress.start("measure", sum(map(len, triplets)), "triplets")
        with clock.stage("measure", n_triplets=sum(map(len, triplets))):
            epsilon = smallest_distance(encoder)
            measured = []
            for planned, rows, (coverage, positive_coverage) in zip(plan.sources, triplets, coverages, strict=True):
                measured.append(_measure(planned, rows, vectors, coverage, positive_coverage, settings, epsilon))
                progress.advance(len(rows))
    finally:
        plan.close()
    measured.sort(key=lambda item: (-log_det_nats(item.state.matrix()), item.planned.name))
    contents = {path: file for reader in readers for path, file in input_files(reader).items()}
    run = Run(
        schema_version=SCHEMA_VERSION,
        secid_version=secid.__version__,
        settings=resolved.document(),
        encoder=encoder.info,
        idf=idf_info,
        sources=tuple(
            source_result(item, rank, contents, settings.high_coverage) for rank, item in enumerate(measured, 1)
        ),
        timing=clock.stages,
        environment=environment(),
    )
    return Scored(run, tuple(measured))


def read(
    sources: Sequence[Source], settings: Settings, folder: Path, clock: Clock, progress: Progress
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
        plan = make_plan(zip(sources, readers, strict=True), settings, folder, tick)
        tick()
        counts["n_rows"] = sum(planned.tally.n_read for planned in plan.sources)
        counts["n_distinct_queries"] = len(plan.queries)
        counts["n_distinct_passages"] = len(plan.passages)
    return plan, readers


def encode(
    plan: Plan, encoder: Encoder, settings: Settings, folder: Path, clock: Clock, progress: Progress
) -> Vectors:
    """Unit rows of every distinct text, in memory-mapped files."""
    cache = Cache.open(settings, encoder.info.fingerprint) if settings.cache else None
    progress.start("encode", len(plan.queries) + len(plan.passages), "texts")
    with clock.stage("encode") as counts:
        rows = {}
        for role, store in (("query", plan.queries), ("passage", plan.passages)):
            rows[role], done = _embedded(store, role, encoder, cache, folder, progress)
            for name, value in done.items():
                counts[name] = counts.get(name, 0) + value
    return Vectors(rows["query"], rows["passage"])


def _embedded(
    store: TextStore, role: Any, encoder: Encoder, cache: Cache | None, folder: Path, progress: Progress
) -> tuple[torch.Tensor, dict[str, float]]:
    path = folder / f"{role}.f32"
    out = np.memmap(path, np.float32, "w+", shape=(len(store), encoder.dimension))
    counts = embed(encoder, store, store.keys, role, out, cache=cache, progress=progress.advance)
    return torch.from_numpy(out), counts.document()


def make_lexicon(plan: Plan, triplets: Sequence[Triplets], tokenizer: str, folder: Path) -> Lexicon:
    """Token sets of the plan's texts; the pool is the distinct documents of the scored triplets."""
    counted = np.zeros(len(plan.passages), np.bool_)
    for rows in triplets:
        counted[rows.positive] = True
        counted[rows.negative] = True
    return Lexicon(
        tokenizer, plan.queries.get, len(plan.queries), plan.passages.get, counted, folder / f"{tokenizer}.tokens"
    )


def _coverages(
    plan: Plan, lexicon: Lexicon, triplets: Sequence[Triplets], settings: Settings
) -> tuple[IdfInfo, list[tuple[Floats, Floats]]]:
    """Coverage of each source's negatives and scored positives under the run's IDF. Source: METHOD 2.3, 4."""
    shared = lexicon.pooled() if settings.idf == "pooled" else None
    if settings.idf == "pooled_with_queries":
        shared = lexicon.with_queries(lexicon.pooled(), ~queries_among_passages(plan))
    found = []
    for rows in triplets:
        table = shared
        if settings.idf == "own":
            table = lexicon.of_passages(np.unique(np.concatenate([rows.positive, rows.negative])))
        idf = lexicon.idf(table)
        covered = lexicon.coverage(rows.query, rows.negative, idf)
        positive = lexicon.coverage(rows.query[_heads(rows)], rows.positive[_heads(rows)], idf)
        found.append((covered, np.repeat(positive, np.diff(rows.record_offsets))))
    named = shared or lexicon.pooled()
    return IdfInfo(settings.idf, settings.tokenizer, named.n_documents, len(named.keys), named.sha256()), found


def queries_among_passages(plan: Plan) -> npt.NDArray[np.bool_]:
    """(n_queries,) True where a query's text is also a passage of the plan, so that it counts once."""
    passages = set(map(bytes, plan.passages.keys))
    texts = plan.queries.get(0, len(plan.queries))
    return np.array([text_key("passage", text) in passages for text in texts], np.bool_)


def _heads(rows: Triplets) -> npt.NDArray[np.int64]:
    """First triplet of each (record, positive): the pair is the same for all of them."""
    return rows.record_offsets[:-1]


def _measure(
    planned: PlannedSource,
    rows: Triplets,
    vectors: Vectors,
    coverage: Floats,
    positive_coverage: Floats,
    settings: Settings,
    epsilon: float,
) -> Measured:
    base = Variant(settings.temperature, BASE_COVERAGE, "full")
    swept = sweep(vectors, rows, {BASE_COVERAGE: coverage}, [base], epsilon)
    table = gate_table(swept.scalars.dots(), coverage, settings.temperature)
    state = InformationState(swept.matrices[base], swept.n_negatives)
    return Measured(planned, rows, swept.scalars, coverage, positive_coverage, table, state)


def input_files(reader: Reader) -> dict[str, InputFile]:
    """What was read of each path of a reader, after it has been read."""
    shapes = {shape.path: shape for shape in reader.files}
    return {
        content.path: InputFile(
            content.path, content.sha256, content.n_bytes, shapes[content.path].schema, shapes[content.path].mapping
        )
        for content in reader.content()
    }


def source_result(item: Measured, rank: int, contents: dict[str, InputFile], high_coverage: float) -> SourceResult:
    """The published numbers of one measured source."""
    planned, matrix = item.planned, item.state.matrix()
    eci = log_det_nats(matrix)
    means = gate_means(item.gates, item.positive_coverage, high_coverage, item.triplets.share)
    files = tuple(contents[path] for path in planned.source.paths)
    return SourceResult(
        name=planned.name,
        rank=rank,
        paths=files,
        schema=", ".join(sorted({file.schema for file in files})),
        n_read=planned.tally.n_read,
        n_used=planned.tally.n_used,
        n_records=planned.n_records,
        n_queries=len(np.unique(planned.query)),
        n_triplets=planned.n_triplets,
        skipped=planned.tally.skipped,
        dropped_negatives=planned.tally.dropped,
        examples=planned.tally.examples,
        eci_nats=eci,
        eci_per_dimension=eci / matrix.shape[0],
        trace=trace(matrix),
        **vars(means),
        buckets={"equals_positive": int(planned.equals_positive.sum())},
    )
