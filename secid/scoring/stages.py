"""Turn a plan into measurements: encode, tokenize, make controls, measure by both passes, and look for findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from secid.analyses.ablations import blocks_of
from secid.analyses.analysis import Context
from secid.analyses.controls import Control, bm25_control, chosen_kinds, control_gaps, make_controls
from secid.analyses.equal_hardness import equal_hardness
from secid.analyses.in_batch import conflicts
from secid.analyses.ranking import rank_early, without_flagged
from secid.analyses.shared_queries import SourcePairs, compared_pairs, counts_of, flags_of, same_queries, table_sets
from secid.analyses.slices import MAX_SLICES
from secid.arrays import distinct, is_known
from secid.encode import Encoder, smallest_distance
from secid.encode.device import multiplies_bf16
from secid.errors import UsageError
from secid.findings.copies import LabelledPositives
from secid.findings.lexical_gate import NO_TOKENIZER, lexical, unknown_scripts
from secid.findings.rows import Inspector
from secid.findings.summary import RunTextFindings, SourceFindings
from secid.findings.texts import RunTexts
from secid.measure.blocks import Triplets
from secid.measure.false_negatives import Conflicts
from secid.measure.sweep import Variant
from secid.pool import SPLITTERS, DocumentFrequencies, DraftPlan, Lexicon, Plan, PlannedSource
from secid.pool.make import scored_part
from secid.pool.workers import child_processes, n_workers
from secid.progress import Clock, Progress
from secid.read.collection import Collection
from secid.results import EarlyStop, EncoderInfo, InputFile, RunWarning
from secid.scoring.publish import (
    chosen_query_warnings,
    comparison_warnings,
    few_query_warnings,
    noise_warnings,
    slice_warnings,
    unequal_size_warnings,
)
from secid.settings import Resolved, Settings, flag_of
from secid.triplets.embedding import CUTS_UNKNOWN, Embedder
from secid.triplets.guide import Guide, guide_scores, random_rows
from secid.triplets.measure_set import Aspect, Measured, Measurer, aspects, equal_size_sets, sample_positions
from secid.triplets.random_reference import RandomReference, passage_means, passage_pool, random_reference
from secid.triplets.table import (
    CoverageTables,
    grouped_tokenizers,
    lexicons_of,
    piece_stream,
    pool_flags,
    triplets_of,
)

Set = TypeVar("Set", Triplets, Measured)
NO_REFERENCE = "no_reference"
NO_SPAN = "no_span"
MIN_TEXTS_FOR_BF16_NOTE = 5_000
"""Minimum number of texts for a note that suggests bf16 on a CPU. Encoding that many takes minutes."""
WaitForLexicons = Callable[[], Mapping[str, Lexicon]]
WaitForBm25 = Callable[[], Triplets | str] | None
PASSES = 2
"""Number of passes over the triplets: one for the sums, one for the influence."""


@dataclass(frozen=True)
class Background:
    """Reference data from outside the run. If a field is None, the run uses only its own data.

    frequencies : document frequencies of another pool, such as a baseline's.
    known : further labelled positives, such as a baseline's, which count like the run's own.
    run_texts : for a shard, counts over the texts of the whole run.
    """

    frequencies: DocumentFrequencies | None = None
    known: LabelledPositives | None = None
    run_texts: RunTexts | None = None


@dataclass(frozen=True)
class ReadSources:
    """Sources that were read into a plan, and facts that need all rows.

    draft : plan without text findings, which is enough for encoding.   plan : plan with text findings.
    wait_for_findings : function that waits for the text findings of all rows, and returns them.   texts : its result.
    resolved : settings with the chosen tokenizer.
    collection : collection whose whole corpus is compared with positives (separation), or None.
    """

    draft: DraftPlan
    wait_for_findings: Callable[[], RunTextFindings]
    resolved: Resolved
    files: Mapping[str, InputFile]
    collection: Collection | None = None

    @property
    def texts(self) -> RunTextFindings:
        return self.wait_for_findings()

    @cached_property
    def plan(self) -> Plan:
        return self.draft.with_text_findings(self.texts.of_read).plan

    def batch_rows(self) -> dict[str, Conflicts]:
        """Count in-batch conflicts over all rows of each source's files. Empty if the encoder chooses the positives."""
        settings, whole = self.resolved.values, self.draft.full_plan
        if settings.positives not in ("first", "random", "all"):
            return {}
        every = replace(settings, max_records=None)
        parts = {planned.name: scored_part(planned, whole.queries, every) for planned in whole.sources}
        rows = {name: triplets_of(part, settings.positives) for name, part in parts.items()}
        return {
            name: conflicts(triplets, whole.known_positives, len(whole.passages)) for name, triplets in rows.items()
        }


def measure(
    read: ReadSources,
    encoder: Encoder,
    guide: Guide | None,
    background: Background,
    folder: Path,
    clock: Clock,
    progress: Progress,
) -> Context:
    """Encode the texts that are needed, and measure sources, controls and variants.

    guide : guide from `load_guide`, or None.   folder : empty folder for vectors.
    """
    settings, early = read.resolved.values, None
    with during_encoding(read.draft.plan, settings, folder) as (wait_for_lexicons, wait_for_bm25):
        embedder = encode_texts(read.draft.plan, encoder, settings, folder, clock, progress)
        with clock.stage("text rules"):
            progress.start("text rules", None, "")
            plan = read.plan
        triplets = [
            triplets_of(planned, settings.positives, embedder.vectors, plan.passages) for planned in plan.sources
        ]
        measurer, suite = measurer_of(
            plan, triplets, wait_for_lexicons, embedder, encoder, settings, folder, background, clock, progress
        )
        if settings.until_ranked is not None:
            with clock.stage("encode") as counts:
                plan, triplets, early = rank_early(plan, embedder, measurer, settings, progress)
                counts.update(embedder.counts)
            note_cached(embedder, progress)
        with clock.stage("controls"):
            controls, missing = make_controls(plan, triplets, embedder.vectors, settings, progress, wait_for_bm25)
            for control in controls:  # texts are left to encode only after an early stop
                embedder.need(control.triplets.query, control.triplets.negative)
    sets = measured_sets(plan, triplets, controls, measurer, suite, clock, progress)
    if guide is not None:
        with clock.stage("guide") as counts:
            items = with_guide_scores(plan, sets.items, guide, settings, folder / "guide", progress, counts)
            sets = sets.with_items(items)
    with clock.stage("inspect"):
        inspection = inspect_sets(plan, sets, embedder, encoder, measurer, read.texts.of_sources, progress)
        inspection = replace(inspection, missing={**missing, **inspection.missing})
        return context_of(read, plan, inspection, embedder, measurer, suite, early, guide, folder, clock, progress)


def encode_texts(
    plan: Plan, encoder: Encoder, settings: Settings, folder: Path, clock: Clock, progress: Progress
) -> Embedder:
    """Return an embedder with all texts encoded; with --until-ranked, none yet. Raises as `refuse_unfit_settings`."""
    refuse_unfit_settings(plan, encoder, settings)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    note_bf16(encoder.info, len(plan.queries) + len(plan.passages), settings, progress)
    embedder = Embedder(plan.queries, plan.passages, encoder, settings, folder, progress)
    if settings.until_ranked is None:
        with clock.stage("encode") as counts:
            if chosen_kinds(settings.controls):
                embedder.everything()
            else:  # the plan may contain texts for controls that only another encoder needs
                embedder.passages(plan.source_passages())
            counts.update(embedder.counts)
    note_cached(embedder, progress)
    return embedder


@contextmanager
def during_encoding(plan: Plan, settings: Settings, folder: Path) -> Iterator[tuple[WaitForLexicons, WaitForBm25]]:
    """Do work that needs only texts in child processes while the block runs: tokenize, and search by BM25.

    Yield two functions. The first waits for the lexicons of the tokenizers that need no encoder, by tokenizer. The
    second waits for the control bm25_pool, or the reason why it could not be made. Without child processes, because
    there are few texts or because the encoder decides which texts are scored, they are `dict` and None.
    """
    by_encoder = settings.positives in ("hardest", "easiest") or settings.until_ranked is not None
    if by_encoder or n_workers(len(plan.passages), settings.threads) < 2:
        yield dict, None
        return
    triplets = [triplets_of(planned, settings.positives) for planned in plan.sources]
    counted = pool_flags(plan, triplets)
    names = [name for name in tokenizers_of(settings, aspects(settings)) if name in SPLITTERS]
    groups = grouped_tokenizers(names)
    has_bm25 = "bm25_pool" in chosen_kinds(settings.controls)
    with child_processes(len(groups) + has_bm25, len(plan.passages), settings.threads) as call:
        texts = plan.queries, plan.passages, counted, folder, settings.tokenizer
        waits = [call(lexicons_of, group, *texts) for group in groups]
        wait_for_bm25 = call(bm25_control, plan, triplets, settings) if has_bm25 else None
        yield lambda: {name: made for wait in waits for name, made in wait().items()}, wait_for_bm25


def tokenizers_of(settings: Settings, suite: Sequence[Aspect]) -> list[str]:
    """Return the run's tokenizer and those of the aspects that --ablate varies, each once."""
    of_variants = [variant.coverage.split("/")[0] for variant in variants_of(suite)] if settings.ablate else []
    return list(dict.fromkeys([settings.tokenizer, *of_variants]))


def measurer_of(
    plan: Plan,
    triplets: Sequence[Triplets],
    wait_for_lexicons: WaitForLexicons,
    embedder: Embedder,
    encoder: Encoder,
    settings: Settings,
    folder: Path,
    background: Background,
    clock: Clock,
    progress: Progress,
) -> tuple[Measurer, Sequence[Aspect]]:
    """Tokenize all texts with each tokenizer. Return the measurer, and the aspects that --ablate varies."""
    pieces = getattr(encoder, "word_pieces", None)
    suite = aspects(settings, has_pieces=pieces is not None) if settings.ablate else ()
    known: dict[tuple[str, str], DocumentFrequencies] = {}
    if background.frequencies:
        known[settings.tokenizer, settings.idf] = background.frequencies
    with clock.stage("lex", n_texts=len(plan.queries) + len(plan.passages)):
        coverages = CoverageTables(plan, triplets, folder, known, pieces, progress, wait_for_lexicons())
        for tokenizer in tokenizers_of(settings, suite):
            coverages.lexicon(tokenizer, with_others=tokenizer == settings.tokenizer)
        coverages.info(settings.tokenizer, settings.idf)
    return Measurer(embedder.vectors, plan.queries.keys, coverages, settings, smallest_distance(encoder)), suite


def variants_of(suite: Sequence[Aspect]) -> list[Variant]:
    return [variant for aspect in suite for variant in aspect.variants.values()]


def note_bf16(info: EncoderInfo, n_texts: int, settings: Settings, progress: Progress) -> None:
    """Show a note that bf16 would be faster, if this CPU supports it and encoding takes minutes."""
    slow = info.device == "cpu" and info.dtype == "float32" and n_texts >= MIN_TEXTS_FOR_BF16_NOTE
    if slow and settings.dtype == "auto" and multiplies_bf16():
        progress.note(
            f"encode: this CPU supports bf16. {flag_of('dtype', 'bf16')} encodes in about two thirds of the time; "
            "scores change by about 4e-4 nats"
        )


def note_cached(embedder: Embedder, progress: Progress) -> None:
    """Show a note on how many texts were in the cache, if any."""
    if embedder.counts["n_cached"]:
        n_cached, n_texts = embedder.counts["n_cached"], embedder.counts["n_texts"]
        progress.note(f"encode: {n_cached:,.0f} of {n_texts:,.0f} texts from the cache")


def refuse_unfit_settings(plan: Plan, encoder: Encoder, settings: Settings) -> None:
    """Raise UsageError for settings that do not fit these sources or this encoder, before anything is encoded."""
    blocks_of(settings.block, [planned.name for planned in plan.sources])
    if settings.by is not None and plan.slices == ("",):
        raise UsageError(
            f"no row has a value in column {settings.by!r}", where="--by", remedy="name a column of the source files"
        )
    if len(plan.slices) > MAX_SLICES:
        raise UsageError(
            f"column {settings.by!r} has {len(plan.slices):,} values, but at most {MAX_SLICES:,} slices are scored",
            where="--by",
            remedy="choose a column with fewer values, such as a language or a subset",
        )
    if settings.tokenizer == "wordpieces":
        piece_stream(getattr(encoder, "word_pieces", None))


@dataclass(frozen=True)
class Inspection:
    """Measured sets with their findings.

    reference : random passages; None if there are too few.   findings : findings by source.
    missing : kind of reason for each part that could not be computed, by name.
    """

    sets: MeasuredSets
    reference: RandomReference | None
    findings: Mapping[str, SourceFindings]
    missing: Mapping[str, str]


@dataclass(frozen=True)
class MeasuredSets:
    """Measured sets in the order of the plan. Fields are as in `Context`."""

    items: Sequence[Measured]
    table: Sequence[Measured]
    equal_size: Sequence[Measured] | None
    controls: Sequence[tuple[Control, Measured]]

    def with_items(self, items: Sequence[Measured]) -> MeasuredSets:
        """Return the sets with other items. Sets in `table` and `equal_size` that are whole items change with them."""
        new_of = {id(old): new for old, new in zip(self.items, items, strict=True)}
        table = [new_of.get(id(cut), cut) for cut in self.table]
        equal_size = None if self.equal_size is None else [new_of.get(id(cut), cut) for cut in self.equal_size]
        return replace(self, items=items, table=table, equal_size=equal_size)


def measured_sets(
    plan: Plan,
    triplets: Sequence[Triplets],
    controls: Sequence[Control],
    measurer: Measurer,
    suite: Sequence[Aspect],
    clock: Clock,
    progress: Progress,
) -> MeasuredSets:
    """Measure every set of triplets once, and variants on the sets by which sources are ranked (`ranked_sets`)."""
    settings, variants = measurer.settings, variants_of(suite)
    position = sample_positions(plan, settings.seed, triplets)  # after an early stop, samples of the scored queries
    n_triplets = sum(map(len, triplets)) + sum(len(control.triplets) for control in controls)
    with clock.stage("measure", n_triplets=n_triplets):
        shared = table_sets(triplets) or list(triplets)
        cuts = equal_size_sets(plan, shared, settings.seed)
        of_all = {id(rows) for rows in triplets}
        others = {id(rows): len(rows) for rows in (*shared, *(cuts or ())) if id(rows) not in of_all}
        progress.start("measure", PASSES * (n_triplets + sum(others.values())), "triplets")
        watched = replace(measurer, vectors=replace(measurer.vectors, tick=progress.advance))
        ranked = ranked_sets(shared, cuts, settings.budget)
        done: dict[int, Measured] = {}

        def measured(planned: PlannedSource, rows: Triplets, source_rows: Triplets, *, keep_sum: bool) -> Measured:
            if id(rows) not in done:
                further = variants if rows is source_rows else ()
                place = position[rows.query]
                done[id(rows)] = watched.measure(planned.name, planned, rows, further, place, keep_sum=keep_sum)
            return done[id(rows)]

        def all_of(sets: Sequence[Triplets], *, keep_sum: bool) -> list[Measured]:
            parts = zip(plan.sources, sets, ranked, strict=True)
            return [measured(*part, keep_sum=keep_sum) for part in parts]

        items = all_of(triplets, keep_sum=True)
        measured_controls = [(control, watched.measure(control.kind, None, control.triplets)) for control in controls]
        table = all_of(shared, keep_sum=True)
        equal_size = None if cuts is None else all_of(cuts, keep_sum=False)
    return MeasuredSets(items, table, equal_size, measured_controls)


def query_warnings(
    items: Sequence[Measured], pairs: SourcePairs, reference: RandomReference | None
) -> tuple[RunWarning, ...]:
    """Warn of comparisons that suffer from different queries; returns nothing if all sources have the same."""
    if same_queries(items):
        return ()
    has = flags_of([item.influence.queries for item in items])
    counts = counts_of(has)
    hardness = [] if reference is None else [item.table.hardness_sums(reference) for item in items]
    by_hardness = (
        chosen_query_warnings([item.name for item in items], has, hardness, counts.n_queries) if hardness else ()
    )
    return comparison_warnings(pairs, counts) + by_hardness


def inspect_sets(
    plan: Plan,
    sets: MeasuredSets,
    embedder: Embedder,
    encoder: Encoder,
    measurer: Measurer,
    texts: Mapping[str, SourceFindings],
    progress: Progress,
) -> Inspection:
    """Look for findings in every triplet of the sources. texts: text findings by source."""
    triplets = [item.triplets for item in sets.items]
    reference = random_reference(plan, triplets, measurer.vectors, measurer.settings.seed)
    means = passage_means(plan, triplets, measurer.vectors)
    shares = getattr(encoder, "unknown_shares", None)
    negatives = distinct(np.concatenate([rows.negative for rows in triplets]))
    unknown = None if shares is None else unknown_scripts(plan.passages, negatives, shares)
    marks = embedder.truncated, unknown
    inspector = Inspector(plan, measurer.coverages, *marks, reference, means, texts, measurer.settings)
    progress.start("inspect", len(sets.items), "sources")
    items, findings = [], {}
    for item in sets.items:
        columns, findings[item.name] = inspector.inspect(item)
        items.append(replace(item, table=columns))
        progress.advance(1)
    table = []  # of sources that are cut, the triplets of the queries that remain
    for cut, old, new in zip(sets.table, sets.items, items, strict=True):
        inside = is_known(new.triplets.query, distinct(cut.triplets.query))
        table.append(new if cut is old else replace(cut, table=new.table.rows(np.flatnonzero(inside))))
    equal_size = sets.equal_size
    if equal_size is not None:  # if nothing is cut from a source, the set is the source
        equal_size = [new if cut is old else cut for cut, old, new in zip(equal_size, sets.table, table, strict=True)]
    missing = {
        **({} if embedder.truncated is not None else {"truncated": CUTS_UNKNOWN}),
        **({} if unknown is not None else {"unknown_script": NO_TOKENIZER}),
        **({} if reference is not None else {"hardness": NO_REFERENCE}),
    }
    return Inspection(replace(sets, items=items, table=table, equal_size=equal_size), reference, findings, missing)


def context_of(
    read: ReadSources,
    plan: Plan,
    inspection: Inspection,
    embedder: Embedder,
    measurer: Measurer,
    suite: Sequence[Aspect],
    early: EarlyStop | None,
    guide: Guide | None,
    folder: Path,
    clock: Clock,
    progress: Progress,
) -> Context:
    """Compare the sources, sort them in rank order, and build the context of the analyses."""
    settings, sets, reference = measurer.settings, inspection.sets, inspection.reference
    cut = ranked_sets(sets.table, sets.equal_size, settings.budget)
    pairs = compared_pairs(plan, sets.items, cut, measurer, settings, reference, sets.table)
    hard = {} if reference is None else {item.name: item.table.hardness(reference) for item in sets.items}
    same = same_queries(sets.items)
    place_of = {item.name: place for place, item in enumerate(cut)}
    by_score = pairs.order({item.name: item.nats(settings.budget) for item in cut}, same_queries=same_queries(cut))
    known = {name: estimate for name, estimate in hard.items() if estimate is not None}
    items = [sets.items[place_of[name]] for name in by_score]
    equal = equal_hardness(items, pairs, known, measurer.smallest_distance)
    places = [place_of[name] for name in equal.listed(by_score)]
    return Context(
        plan=plan,
        settings=settings,
        items=[sets.items[place] for place in places],
        table=[sets.table[place] for place in places],
        equal_size=None if sets.equal_size is None else [sets.equal_size[place] for place in places],
        ranked=[cut[place] for place in places],
        pairs=pairs,
        equal_hardness=equal,
        controls=sets.controls,
        control_gaps=[
            control_gaps(item, control.of, sets.table, measurer, same_queries=same) for control, item in sets.controls
        ],
        findings=inspection.findings,
        hardness=known,
        without_flagged={item.name: without_flagged(item, measurer, reference) for item in sets.items},
        reference=reference,
        guide=None if guide is None else guide.info,
        collection=read.collection,
        batch_rows=read.batch_rows(),
        suite=suite,
        early_stop=early,
        warnings=(
            *query_warnings(sets.items, pairs, reference),
            *noise_warnings(measurer.smallest_distance),
            *lexical(plan, sets.items, measurer.coverages, settings, folder / "cautions"),
            *few_query_warnings({item.name: item.influence.n_queries for item in sets.items}),
            *unequal_size_warnings(sets.equal_size, settings),
            *slice_warnings(plan, settings),
        ),
        not_evaluated={
            **inspection.missing,
            **{f"hardness of {name}": NO_SPAN for name, estimate in hard.items() if estimate is None},
        },
        embedder=embedder,
        measurer=measurer,
        stages=clock.stages,
        progress=progress,
    )


def with_guide_scores(
    plan: Plan,
    items: Sequence[Measured],
    guide: Guide,
    settings: Settings,
    folder: Path,
    progress: Progress,
    counts: dict[str, float],
) -> list[Measured]:
    """Return the items with the guide's scores as columns. counts: dictionary to which the guide's cost is added."""
    sources = [(item.triplets, item.table.s_query_negative) for item in items]
    pool = passage_pool(plan, [item.triplets for item in items])
    random = [random_rows(plan, item.triplets, pool, settings.seed) for item in items]
    scores = guide_scores(plan, sources, guide, settings, folder, progress, counts, random)
    return [
        replace(item, table=replace(item.table, guide=guide_scores))
        for item, guide_scores in zip(items, scores, strict=True)
    ]


def ranked_sets(items: Sequence[Set], equal_size: Sequence[Set] | None, budget: float) -> Sequence[Set]:
    """Return the ranked sets: up to budget 1 the items, beyond it sets of equal size if possible. Source: METHOD 7."""
    return items if budget <= 1.0 or equal_size is None else equal_size
