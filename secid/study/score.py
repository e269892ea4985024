"""The main job: files to a ranking, through plan, embed, measure and finish."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

import secid
from secid.data import Reader
from secid.distinct import distinct
from secid.encoders import Encoder, smallest_distance
from secid.errors import UsageError
from secid.lexical import DocumentFrequencies
from secid.measure.blocks import Triplets
from secid.measure.information import log_det_nats
from secid.plan import Plan
from secid.progress import Progress
from secid.records import Source
from secid.results import SCHEMA_VERSION, Ablation, EarlyStop, EqualNumbers, IdfInfo, InputFile, Run, Slice
from secid.settings import Resolved, Settings
from secid.study.ablate import Aspect, ablation, aspects, blocks_of, tokenizer_of
from secid.study.bench import Bench, level_sets, sample_positions
from secid.study.cautions import NOT_LEVEL, few_queries, noisy, not_level, odd_slices, unpaired
from secid.study.controls import Control, chosen_kinds, make_controls
from secid.study.coverage import CoverageBench, piece_stream
from secid.study.early import rank_early
from secid.study.embedding import Embedder
from secid.study.environment import environment
from secid.study.finish import Measured, chances, compare, control_result, crossings, rank_groups, source_result
from secid.study.inspect import Findings, Inspector
from secid.study.lexical_cautions import lexical
from secid.study.overlap import Listed, overlaps
from secid.study.reading import read_plan
from secid.study.sample_noise import with_noise
from secid.study.slices import MOST_SLICES, slices
from secid.study.triplets import triplets_of

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Frozen = dict[tuple[str, str], DocumentFrequencies]
PASSES = 2
"""Over the triplets: one for the sums, one for the influence."""


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


UNSEEN_CUTS = "a vectors file, an endpoint or a function does not say which texts it cut"


@dataclass(frozen=True)
class Scored:
    """A finished run and the measurements behind it, sources in rank order in both.

    flags  : by source and bucket, (T,) which triplets are in it.
    scores : what the sources are ranked by, ECI_B at the run's budget, of sets of equal size beyond budget 1.
    """

    run: Run
    measured: tuple[Measured, ...]
    controls: tuple[tuple[Control, Measured], ...]
    flags: Mapping[str, Mapping[str, Flags]]
    frequencies: DocumentFrequencies
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Measurements:
    """All sets of triplets of a run, measured.

    level: the sources cut to equal size, for budgets beyond 1; None where they cannot be.
    """

    items: list[Measured]
    level: list[Measured] | None
    controls: list[tuple[Control, Measured]]
    not_evaluated: dict[str, str]
    findings: dict[str, Findings]
    flags: dict[str, dict[str, Flags]]
    idf: IdfInfo
    frequencies: DocumentFrequencies
    slices: tuple[Slice, ...]
    warnings: tuple[str, ...]
    early_stop: EarlyStop | None
    suite: tuple[Aspect, ...]


def score_sources(
    sources: Sequence[Source],
    encoder: Encoder,
    resolved: Resolved,
    folder: Path,
    progress: Progress,
    frozen: DocumentFrequencies | None = None,
    uncounted: Collection[str] = (),
) -> Scored:
    """Ranks sources by ECI_sem under one encoder, with controls, intervals and budget curves.

    folder : an empty folder for spool files and vectors; the caller removes it.
    frozen : document frequencies of an earlier run's pool, to be scored in instead of this run's own.
    uncounted : reasons for leaving a row or a negative out that the caller judges itself (plan.refuse).
    Raises what reading, encoding and measuring raise (SecidError).
    Source: METHOD 1, 2, 4, 6, 7, 8.
    """
    clock = Clock()
    plan, readers = read(sources, resolved.values, folder, clock, progress, uncounted)
    try:
        measurements = measure(plan, encoder, resolved.values, folder, clock, progress, frozen)
    finally:
        plan.close()
    files = {path: file for reader in readers for path, file in input_files(reader).items()}
    return finished(measurements, files, encoder, resolved, clock)


def measure(
    plan: Plan,
    encoder: Encoder,
    settings: Settings,
    folder: Path,
    clock: Clock,
    progress: Progress,
    frozen: DocumentFrequencies | None,
) -> Measurements:
    """Embeds what is needed and measures sources, controls and variants."""
    blocks_of(settings.block, [planned.name for planned in plan.sources])
    if settings.by is not None and plan.slices == ("",):
        raise UsageError(f"no row has a value in a column {settings.by!r}", where="--by")
    if len(plan.slices) > MOST_SLICES:
        raise UsageError(
            f"column {settings.by!r} has {len(plan.slices):,} values, at most {MOST_SLICES:,} slices are scored",
            where="--by",
            remedy="choose a column of fewer values, such as a language or a subset",
        )
    pieces = getattr(encoder, "word_pieces", None)
    if settings.tokenizer == "wordpieces":
        piece_stream(pieces)  # an encoder without pieces is refused before it encodes anything
    embedder = Embedder(plan, encoder, settings, folder, progress)
    early = None
    if settings.until_ranked is None:
        with clock.stage("encode") as counts:
            embedder.everything()
            counts.update(embedder.counts)
    triplets = [triplets_of(planned, settings.positives, embedder.vectors) for planned in plan.sources]
    suite = aspects(settings, has_pieces=pieces is not None) if settings.ablate else ()
    variants = [variant for aspect in suite for variant in aspect.variants.values()]
    known: Frozen = {(settings.tokenizer, settings.idf): frozen} if frozen else {}
    coverages = CoverageBench(plan, triplets, folder, known, pieces, progress)
    with clock.stage("lex", n_texts=len(plan.queries) + len(plan.passages)):
        for tokenizer in dict.fromkeys([settings.tokenizer, *(tokenizer_of(variant) for variant in variants)]):
            coverages.lexicon(tokenizer)
        idf = coverages.info(settings.tokenizer, settings.idf)
    distance = smallest_distance(encoder)
    bench = Bench(embedder.vectors, plan.queries.keys, coverages, settings, distance)
    if settings.until_ranked is not None:
        with clock.stage("encode") as counts:
            plan, triplets, early = rank_early(plan, embedder, bench, settings, progress)
            counts.update(embedder.counts)
    with clock.stage("controls"):
        controls, missing = make_controls(plan, triplets, embedder.vectors, settings, progress)
        for control in controls:  # nothing is left to encode but after an early stop
            embedder.need(control.triplets.query, control.triplets.negative)
    position = sample_positions(plan, settings.seed, triplets)  # after an early stop, percentages of what was scored
    n_triplets = sum(map(len, triplets)) + sum(len(control.triplets) for control in controls)
    with clock.stage("measure", n_triplets=n_triplets):
        level = level_sets(plan, triplets, settings.seed)
        n_cut = sum(len(cut) for cut, item in zip(level or (), triplets, strict=False) if cut is not item)
        progress.start("measure", PASSES * (n_triplets + n_cut), "triplets")
        watched = replace(bench, vectors=replace(bench.vectors, seen=progress.advance))
        # Sources are ranked cut to equal size at budgets other than 1, and so they are under every variant
        ranked = triplets if level is None or settings.budget == 1.0 else level
        items = [
            watched.measure(p.name, p, rows, variants if rows is own else (), position[rows.query])
            for p, rows, own in zip(plan.sources, triplets, ranked, strict=True)
        ]
        measured_controls = [(control, watched.measure(control.kind, None, control.triplets)) for control in controls]
        level_items = None
        if level is not None:
            further = variants if ranked is level else ()
            level_items = [
                item if cut is item.triplets else watched.measure(p.name, p, cut, further, position[cut.query])
                for p, item, cut in zip(plan.sources, items, level, strict=True)
            ]
    with clock.stage("inspect"):
        inspector = Inspector(plan, coverages, embedder.truncated, settings)
        progress.start("inspect", len(items), "sources")
        findings = {}
        for item in items:
            findings[item.name] = inspector.findings(item)
            progress.advance(1)
        flags = {item.name: {name: trait.flags for name, trait in inspector.traits(item).items()} for item in items}
        warnings = noisy(distance) + lexical(plan, items, coverages, settings, folder / "cautions")
        warnings += few_queries(items) + not_level(level_items, settings) + odd_slices(plan, settings)
        whole = {item.name: item.nats(settings.budget) for item in judged(items, level_items, settings.budget)}
        sliced = slices(plan, items, bench, flags, whole, settings, progress)
    table = coverages.table(settings.tokenizer, settings.idf)
    return Measurements(
        items=items,
        level=level_items,
        controls=measured_controls,
        not_evaluated={
            **missing,
            **plan.empty,
            **({"crossings": NOT_LEVEL} if level_items is None else {}),
            **({"truncated": UNSEEN_CUTS} if encoder.info.pooling in ("precomputed", "unknown") else {}),
        },
        findings=findings,
        flags=flags,
        idf=idf,
        frequencies=table,
        slices=sliced,
        warnings=warnings,
        early_stop=early,
        suite=suite,
    )


def finished(
    found: Measurements, files: Mapping[str, InputFile], encoder: Encoder, resolved: Resolved, clock: Clock
) -> Scored:
    """Ranks, compares, and puts the run together."""
    settings = resolved.values
    cut = judged(found.items, found.level, settings.budget)
    order = sorted(range(len(cut)), key=lambda place: (-cut[place].nats(settings.budget), cut[place].name))
    ranked, cut = [found.items[place] for place in order], [cut[place] for place in order]
    names = [item.name for item in ranked]
    looks = found.early_stop.planned_looks if found.early_stop else ()
    comparisons = compare(cut, settings.budget, looks)
    groups = rank_groups(names, comparisons)
    blocks = blocks_of(settings.block, names)
    pool = distinct(np.concatenate([ids for item in ranked for ids in _documents(item.triplets)]))
    run = Run(
        schema_version=SCHEMA_VERSION,
        secid_version=secid.__version__,
        settings=resolved.document(),
        encoder=encoder.info,
        idf=found.idf,
        budget=settings.budget,
        sources=tuple(
            source_result(item, own, rank, groups[item.name], float(chance), files, found.findings[item.name], settings)
            for rank, (item, own, chance) in enumerate(zip(ranked, cut, chances(cut, settings), strict=True), 1)
        ),
        controls=tuple(
            control_result(control, item, len(np.setdiff1d(item.triplets.negative, pool)), ranked, settings)
            for control, item in found.controls
        ),
        comparisons=comparisons,
        crossings=crossings(found.level or (), max(budget for item in ranked for budget in item.influence.budgets)),
        overlaps=overlaps([Listed(item.name, item.triplets.query, item.triplets.negative) for item in ranked]),
        ablations=tuple(ablated(aspect, cut, blocks, settings.budget) for aspect in found.suite),
        equal_numbers=equal_numbers(found.items, found.level),
        slices=found.slices,
        early_stop=found.early_stop,
        warnings=(*unpaired(comparisons, {item.name: len(item.influence.queries) for item in cut}), *found.warnings),
        not_evaluated=found.not_evaluated,
        timing=clock.stages,
        environment=environment(),
    )
    scores = {item.name: item.nats(settings.budget) for item in cut}
    return Scored(run, tuple(ranked), tuple(found.controls), found.flags, found.frequencies, scores)


def _documents(rows: Triplets) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return rows.positive, rows.negative


def read(
    sources: Sequence[Source],
    settings: Settings,
    folder: Path,
    clock: Clock,
    progress: Progress,
    uncounted: Collection[str] = (),
) -> tuple[Plan, list[Reader]]:
    """Reads all sources into a plan, with what the controls need beside the scored texts."""
    kinds = chosen_kinds(settings.controls)
    with clock.stage("read") as counts:
        plan, readers = read_plan(
            sources,
            settings,
            folder,
            progress,
            with_positives="known_positive" in kinds,
            with_echoes="query_echo" in kinds,
            uncounted=uncounted,
        )
        counts["n_rows"] = sum(planned.tally.n_read for planned in plan.sources)
        counts["n_distinct_queries"] = len(plan.queries)
        counts["n_distinct_passages"] = plan.n_source_passages()
    return plan, readers


def judged(items: Sequence[Measured], level: Sequence[Measured] | None, budget: float) -> Sequence[Measured]:
    """What sources are ranked by: all of them at budget 1, else sets of equal size where these could be cut."""
    return items if budget == 1.0 or level is None else level


def equal_numbers(items: Sequence[Measured], level: Sequence[Measured] | None) -> EqualNumbers | None:
    """What sources of unequal numbers are cut to."""
    if level is None or all(cut is item for cut, item in zip(level, items, strict=True)):
        return None
    return EqualNumbers(n_queries=len(level[0].influence.queries), n_triplets=len(level[0].triplets))


def ablated(aspect: Aspect, items: Sequence[Measured], blocks: Mapping[str, Sequence[str]], budget: float) -> Ablation:
    """The table of one aspect over all sources, at the budget that they are ranked at."""
    table: dict[str, dict[str, float | None]] = {}
    for setting, variant in aspect.variants.items():
        scores = {item.name: item.variants[variant] for item in items}
        states = [score.state for score in scores.values() if score.state is not None]
        n = sum(state.n_negatives for state in states)
        mean = sum(score.weight_sum for score in scores.values()) / n if n else 0.0
        table[setting] = {
            name: log_det_nats(score.state.matrix() / mean, budget)
            if score.state is not None and mean > 0
            else score.nats
            for name, score in scores.items()
        }
    found = ablation(aspect.name, aspect.base, table, blocks)
    return with_noise(found, aspect.variants, items, budget) if aspect.name == "sample" else found


def input_files(reader: Reader) -> dict[str, InputFile]:
    """What was read of each path of a reader, after it has been read."""
    shapes = {shape.path: shape for shape in reader.files}
    return {
        content.path: InputFile(
            content.path, content.sha256, content.n_bytes, shapes[content.path].schema, shapes[content.path].mapping
        )
        for content in reader.content()
    }
