"""A plan to measurements: embed, lex, controls, both passes, inspect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from secid.analyses.ablations import blocks_of
from secid.analyses.controls import Control, chosen_kinds, make_controls
from secid.analyses.cost import cost_of
from secid.analyses.early_stopping import rank_early
from secid.analyses.guide import margins, result_of
from secid.analyses.in_batch import ONE_ROW, in_batch
from secid.analyses.objectives import NO_GUIDE, SAMPLE, RecordScores, objectives
from secid.analyses.per_record import QUERIES, record_sizes
from secid.analyses.separation import corpus_separation, separations
from secid.analyses.shared_queries import (
    Pairs,
    chosen_queries,
    compared_pairs,
    control_gaps,
    counts_of,
    flags_of,
    same_queries,
    table_sets,
)
from secid.analyses.slices import MOST_SLICES, slices
from secid.arrays import Index, among, distinct
from secid.encode import Encoder, smallest_distance
from secid.encode.device import multiplies_bf16
from secid.errors import UsageError
from secid.findings.inspector import Inspector
from secid.findings.lexical_gate import lexical
from secid.findings.scripts import NO_TOKENIZER, unknown_scripts
from secid.findings.summary import SourceFindings
from secid.measure.blocks import Triplets, Vectors
from secid.measure.in_batch import Conflicts
from secid.measure.margins import MARGIN
from secid.measure.sweep import Variant
from secid.measure.uncertainty import Difference
from secid.pool import DocumentFrequencies, Plan, PlannedSource
from secid.progress import Progress
from secid.read.collection import Collection
from secid.results import (
    CorpusSeparation,
    Cost,
    EarlyStop,
    EncoderInfo,
    IdfInfo,
    InBatch,
    ObjectiveLens,
    RunWarning,
    Slice,
    SourceSeparation,
    WithoutFlagged,
)
from secid.results.guide import GuideResult, SourceMargins
from secid.scoring.clock import Clock
from secid.scoring.publish import only, without_flagged
from secid.scoring.warnings import NOT_LEVEL, OTHER_QUERIES, few_queries, noisy, not_level, odd_slices, unlike
from secid.settings import Settings, flag_of
from secid.triplets.coverage import CoverageBench, piece_stream
from secid.triplets.embedding import CUTS_UNKNOWN, Embedder
from secid.triplets.estimates import Estimate
from secid.triplets.guide import Guide, guide_scores, random_rows
from secid.triplets.measure_set import Bench, level_sets, sample_positions
from secid.triplets.measured import Measured
from secid.triplets.positives import triplets_of
from secid.triplets.random_reference import RandomReference, passage_pool, random_reference, stored_reference
from secid.triplets.variants import Aspect, aspects, tokenizer_of

Set = TypeVar("Set", Triplets, Measured)
Frozen = dict[tuple[str, str], DocumentFrequencies]
StoredReference = Mapping[str, npt.NDArray[Any]]
"""Arrays as `RandomReference.stored` gives them."""
NO_REFERENCE = "no_reference"
NOT_STORED = "not_stored"
NO_SPAN = "no_span"
MANY_TEXTS = 5_000
"""Texts from which bf16 on a CPU is worth a note: minutes of encoding."""
PASSES = 2
"""Over the triplets: one for the sums, one for the influence."""


@dataclass(frozen=True)
class Measurements:
    """All sets of triplets of a run, measured.

    items: the sources with all of their queries.
    table: the sources on the queries that all of them share, if the table uses these; otherwise `items`.
    level: `table` cut to equal size, for budgets beyond 1; None if that is impossible.
    pairs: all pairs of sources, at the run's budget.
    control_gaps: for each control, the sources' scores minus its own, by name.
    """

    items: list[Measured]
    table: list[Measured]
    level: list[Measured] | None
    pairs: Pairs
    controls: list[tuple[Control, Measured]]
    control_gaps: list[dict[str, Difference]]
    not_evaluated: dict[str, str]
    findings: dict[str, SourceFindings]
    hardness: dict[str, Estimate]
    without_flagged: dict[str, WithoutFlagged]
    margins: tuple[SourceMargins, ...]
    guide: GuideResult | None
    reference: RandomReference | None
    idf: IdfInfo
    frequencies: DocumentFrequencies
    slices: tuple[Slice, ...]
    separation: tuple[SourceSeparation, ...]
    corpus_separation: CorpusSeparation | None
    in_batch: tuple[InBatch, ...]
    cost: Cost | None
    objectives: ObjectiveLens | None
    warnings: tuple[RunWarning, ...]
    without_triplets: Mapping[str, Mapping[str, int]]
    early_stop: EarlyStop | None
    suite: tuple[Aspect, ...]
    vectors: Vectors


def measure(
    plan: Plan,
    encoder: Encoder,
    settings: Settings,
    folder: Path,
    clock: Clock,
    progress: Progress,
    frozen: DocumentFrequencies | None,
    stored: StoredReference | None = None,
    *,
    texts: Mapping[str, SourceFindings],
    collection: Collection | None = None,
    guide: Guide | None = None,
    batch_rows: Mapping[str, Conflicts] = MappingProxyType({}),
) -> Measurements:
    """Embeds what is needed and measures sources, controls and variants.

    guide : scores the triplets of the sources too.
    frozen, stored : document frequencies and random reference of an earlier run, in place of this run's own.
    texts : findings of the texts by source, of all rows read.
    collection : whose whole corpus the positives are separated from.
    batch_rows : what all rows of each source's files are to each other; of the plan's own where there is none.
    """
    refuse(plan, encoder, settings)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    note_bf16(encoder.info, len(plan.queries) + len(plan.passages), settings, progress)
    embedder = Embedder(plan.queries, plan.passages, encoder, settings, folder, progress)
    early = None
    if settings.until_ranked is None:
        with clock.stage("encode") as counts:
            if chosen_kinds(settings.controls):
                embedder.everything()
            else:  # a plan that another encoder's run made may hold texts of its controls
                embedder.passages(plan.source_passages())
            counts.update(embedder.counts)
    note_cached(embedder, progress)
    triplets = [triplets_of(planned, settings.positives, embedder.vectors, plan.passages) for planned in plan.sources]
    pieces = getattr(encoder, "word_pieces", None)
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
        note_cached(embedder, progress)
    with clock.stage("controls"):
        controls, missing = make_controls(plan, triplets, embedder.vectors, settings, progress)
        for control in controls:  # nothing is left to encode but after an early stop
            embedder.need(control.triplets.query, control.triplets.negative)
    items, table, level, measured_controls = measured_sets(plan, triplets, controls, bench, variants, clock, progress)
    if guide is not None:
        with clock.stage("guide") as counts:
            items = guided(plan, items, guide, settings, folder / "guide", progress, counts)
    with clock.stage("inspect"):
        if stored is None:
            reference = random_reference(plan, [item.triplets for item in items], bench.vectors, settings.seed)
        else:
            reference = stored_reference(stored, plan)
        shares = getattr(encoder, "unknown_shares", None)
        negatives = distinct(np.concatenate([item.triplets.negative for item in items]))
        unknown = None if shares is None else unknown_scripts(plan.passages, negatives, shares)
        inspector = Inspector(plan, coverages, embedder.truncated, unknown, reference, texts, settings)
        inspected_items, findings = inspected(inspector, items, progress)
        inspected_table = [
            new if cut is old else replace(cut, table=new.table.rows(among_places(new, cut)))
            for cut, old, new in zip(table, items, inspected_items, strict=True)
        ]
        if level is not None:  # where nothing is cut of a source, the set is the source
            level = [new if cut is old else cut for cut, old, new in zip(level, table, inspected_table, strict=True)]
        items, table = inspected_items, inspected_table
        without = {item.name: without_flagged(item, bench, reference) for item in items}
        second = None if guide is None else guide_result(guide, items, settings, bench, reference)
        hard = {} if reference is None else {item.name: item.table.hardness(reference) for item in items}
        warnings = noisy(distance) + lexical(plan, items, coverages, settings, folder / "cautions")
        warnings += few_queries({item.name: item.influence.n_queries for item in items})
        warnings += not_level(level, settings) + odd_slices(plan, settings)
        cut = ranked_sets(table, level, settings.budget)
        pairs = compared_pairs(plan, items, cut, bench, settings, reference, table)
        alike = same_queries(items)
        gaps = [control_gaps(item, control.of, table, bench, alike=alike) for control, item in measured_controls]
        warnings = unlike_queries(items, pairs, reference) + warnings
        whole = {item.name: item.nats(settings.budget) for item in cut}
        by_slice = slices(plan, table, bench, whole, settings, progress)
    corpus: CorpusSeparation | str | None = None
    with clock.stage("separation"):
        separation = separations([(item.name, item.table) for item in items], plan, bench.vectors.computes_on)
        if collection is not None:
            queries = np.concatenate([item.triplets.query for item in items])
            corpus = corpus_separation(
                collection,
                plan,
                queries,
                embedder,
                settings.temperature,
                settings.seed,
                encode=settings.encode_corpus,
            )
    with clock.stage("in_batch"):
        batches = tuple(
            in_batch(plan, item.name, item.triplets, bench.vectors, settings.seed, batch_rows.get(item.name))
            for item in items
        )
    lens = None
    if settings.objectives:
        with clock.stage("objectives"):
            lens, unseen = objective_lens(plan, items, embedder, bench)
            missing |= unseen
    embedder.close()
    cost = cost_of(plan, clock.stages)
    return Measurements(
        items=items,
        table=table,
        level=level,
        pairs=pairs,
        controls=measured_controls,
        control_gaps=gaps,
        not_evaluated={
            **missing,
            **({"crossings": NOT_LEVEL} if level is None else {}),
            **({"crossings": OTHER_QUERIES} if level is not None and not same_queries(level) else {}),
            **({"truncated": CUTS_UNKNOWN} if embedder.truncated is None else {}),
            **({"unknown_script": NO_TOKENIZER} if unknown is None else {}),
            **({"suspect": NO_GUIDE} if second is None else {}),
            **({"score without suspects": SAMPLE} if second is not None and second.is_sampled else {}),
            **({"hardness": NO_REFERENCE if stored is None else NOT_STORED} if reference is None else {}),
            **{f"hardness of {name}": NO_SPAN for name, estimate in hard.items() if estimate is None},
            **{f"batches of {item.source}": ONE_ROW for item in batches if item.flagged_share is None},
            **({"separation from the corpus": corpus} if isinstance(corpus, str) else {}),
            **({"cost": cost} if isinstance(cost, str) else {}),
        },
        findings=findings,
        hardness={name: estimate for name, estimate in hard.items() if estimate is not None},
        without_flagged=without,
        margins=margins(items),
        guide=second,
        reference=reference,
        idf=idf,
        frequencies=coverages.table(settings.tokenizer, settings.idf),
        slices=by_slice,
        separation=separation,
        corpus_separation=None if isinstance(corpus, str) else corpus,
        in_batch=batches,
        cost=None if isinstance(cost, str) else cost,
        objectives=lens,
        warnings=warnings,
        without_triplets=plan.empty,
        early_stop=early,
        suite=suite,
        vectors=bench.vectors,
    )


def objective_lens(
    plan: Plan, items: Sequence[Measured], embedder: Embedder, bench: Bench
) -> tuple[ObjectiveLens, dict[str, str]]:
    """What the objectives would do on each source, and what of it was not evaluated. Source: METHOD 9, 10."""
    for planned in plan.sources:  # an early stop embeds the scored positives alone
        embedder.need(planned.query, planned.positives)
    scores = [RecordScores.of(item, bench.vectors) for item in items]
    results, missing = objectives(items, scores, bench.vectors, bench.settings.temperature)
    sizes, narrowing = record_sizes(plan, items, scores, bench)
    lens = ObjectiveLens(margin=MARGIN, most_queries=QUERIES, objectives=results, sizes=sizes, narrowing=narrowing)
    return lens, missing


def note_bf16(info: EncoderInfo, n_texts: int, settings: Settings, progress: Progress) -> None:
    """Notes that bf16 would be faster, where this CPU has instructions for it and encoding takes a while."""
    slow = info.device == "cpu" and info.dtype == "float32" and n_texts >= MANY_TEXTS
    if slow and settings.dtype == "auto" and multiplies_bf16():
        progress.note(
            f"encode: this CPU computes in bf16 too: {flag_of('dtype', 'bf16')} takes about two thirds of the time for "
            "texts that are not cached; scores differ by about 4e-4 nats"
        )


def note_cached(embedder: Embedder, progress: Progress) -> None:
    """Notes how many texts the cache held."""
    if embedder.counts["n_cached"]:
        n_cached, n_texts = embedder.counts["n_cached"], embedder.counts["n_texts"]
        progress.note(f"encode: {n_cached:,.0f} of {n_texts:,.0f} texts from the cache")


def refuse(plan: Plan, encoder: Encoder, settings: Settings) -> None:
    """Raises what the settings cannot ask of these sources and this encoder, before anything is encoded."""
    blocks_of(settings.block, [planned.name for planned in plan.sources])
    if settings.by is not None and plan.slices == ("",):
        raise UsageError(f"no row has a value in a column {settings.by!r}", where="--by")
    if len(plan.slices) > MOST_SLICES:
        raise UsageError(
            f"column {settings.by!r} has {len(plan.slices):,} values, at most {MOST_SLICES:,} slices are scored",
            where="--by",
            remedy="choose a column of fewer values, such as a language or a subset",
        )
    if settings.tokenizer == "wordpieces":
        piece_stream(getattr(encoder, "word_pieces", None))


def measured_sets(
    plan: Plan,
    triplets: Sequence[Triplets],
    controls: Sequence[Control],
    bench: Bench,
    variants: Sequence[Variant],
    clock: Clock,
    progress: Progress,
) -> tuple[list[Measured], list[Measured], list[Measured] | None, list[tuple[Control, Measured]]]:
    """Return whole sources, sources on the table's queries, these cut to equal size (None if impossible), and controls.

    Variants are measured on the triplets that sources are ranked by: the table's; beyond budget 1, those of equal size.
    """
    settings = bench.settings
    position = sample_positions(plan, settings.seed, triplets)  # after an early stop, percentages of what was scored
    n_triplets = sum(map(len, triplets)) + sum(len(control.triplets) for control in controls)
    with clock.stage("measure", n_triplets=n_triplets):
        shared = table_sets(triplets) or list(triplets)
        cuts = level_sets(plan, shared, settings.seed)
        of_all = {id(rows) for rows in triplets}
        others = {id(rows): len(rows) for rows in (*shared, *(cuts or ())) if id(rows) not in of_all}
        progress.start("measure", PASSES * (n_triplets + sum(others.values())), "triplets")
        watched = replace(bench, vectors=replace(bench.vectors, tick=progress.advance))
        ranked = ranked_sets(shared, cuts, settings.budget)
        done: dict[int, Measured] = {}

        def measured(planned: PlannedSource, rows: Triplets, own: Triplets, *, keep_sum: bool) -> Measured:
            if id(rows) not in done:
                further = variants if rows is own else ()
                place = position[rows.query]
                done[id(rows)] = watched.measure(planned.name, planned, rows, further, place, keep_sum=keep_sum)
            return done[id(rows)]

        def all_of(sets: Sequence[Triplets], *, keep_sum: bool) -> list[Measured]:
            parts = zip(plan.sources, sets, ranked, strict=True)
            return [measured(*part, keep_sum=keep_sum) for part in parts]

        items = all_of(triplets, keep_sum=True)
        measured_controls = [(control, watched.measure(control.kind, None, control.triplets)) for control in controls]
        table = all_of(shared, keep_sum=True)
        level = None if cuts is None else all_of(cuts, keep_sum=False)
    return items, table, level, measured_controls


def among_places(item: Measured, part: Measured) -> Index:
    """Return the places of a source's triplets whose queries are in a part of it."""
    return np.flatnonzero(among(item.triplets.query, distinct(part.triplets.query)))


def unlike_queries(
    items: Sequence[Measured], pairs: Pairs, reference: RandomReference | None
) -> tuple[RunWarning, ...]:
    """Warn of comparisons that suffer from different queries; returns nothing if all sources have the same."""
    if same_queries(items):
        return ()
    has = flags_of([item.influence.queries for item in items])
    counts = counts_of(has)
    hardness = [] if reference is None else [item.table.hardness_sums(reference) for item in items]
    chosen = chosen_queries([item.name for item in items], has, hardness, counts.n_queries) if hardness else ()
    return unlike(pairs, counts) + chosen


def inspected(
    inspector: Inspector, items: Sequence[Measured], progress: Progress
) -> tuple[list[Measured], dict[str, SourceFindings]]:
    """The items with their findings as columns, and what they come to by source."""
    progress.start("inspect", len(items), "sources")
    result, findings = [], {}
    for item in items:
        table, findings[item.name] = inspector.inspect(item)
        result.append(replace(item, table=table))
        progress.advance(1)
    return result, findings


def guided(
    plan: Plan,
    items: Sequence[Measured],
    guide: Guide,
    settings: Settings,
    folder: Path,
    progress: Progress,
    counts: dict[str, float],
) -> list[Measured]:
    """The items with the guide's scores as columns. counts: takes what it cost."""
    sources = [(item.triplets, item.table.s_query_negative) for item in items]
    pool = passage_pool(plan, [item.triplets for item in items])
    random = [random_rows(plan, item.triplets, pool, settings.seed) for item in items]
    scores = guide_scores(plan, sources, guide, settings, folder, progress, counts, random)
    return [replace(item, table=replace(item.table, guide=own)) for item, own in zip(items, scores, strict=True)]


def guide_result(
    guide: Guide, items: Sequence[Measured], settings: Settings, bench: Bench, reference: RandomReference | None
) -> GuideResult:
    """What the guide says of each source, and the score of each without its suspects where it scored all of them."""
    without = {}
    for item in items:
        if item.table.guide is not None and item.table.guide.is_whole:
            keep = ~item.table.has("suspect")
            without[item.name] = only(item, keep, len(np.unique(item.triplets.place[keep])), bench, reference)
    return result_of(guide.info, items, without, settings.guide_sample)


def ranked_sets(items: Sequence[Set], level: Sequence[Set] | None, budget: float) -> Sequence[Set]:
    """What sources are ranked by: all of them up to budget 1, else sets of equal size where these could be cut.

    Source: METHOD 7.
    """
    return items if budget <= 1.0 or level is None else level
