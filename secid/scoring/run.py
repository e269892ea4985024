"""From files to a ranking, in three steps that `secid score` and the tools share.

    read_sources  read files into a plan, with the facts that need all rows (`ReadSources`)
    measure       encode and measure the sources, and look for findings
    assemble_run  build the `Run` and the data for its folder

Read the modules in this order: run, stages, publish (warnings and conversion to results), check (without an encoder).

Example: the sources `bm25.jsonl` and `random.jsonl`, settings and an encoder give one `Run` with ranked `sources`:

    source  rank  eci_nats
    bm25    1     5.2       more information about the encoder's errors at the same budget
    random  2     1.1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from secid import __version__
from secid.analyses.ablations import ABLATIONS, over_encoders
from secid.analyses.analysis import Context
from secid.analyses.controls import chosen_kinds
from secid.analyses.ranking import comparisons
from secid.analyses.registry import analyse
from secid.encode import Encoder
from secid.errors import UsageError
from secid.findings.summary import SourceFindings, judge_texts
from secid.findings.texts import RunTexts
from secid.measure.blocks import Vectors
from secid.pool import DocumentFrequencies
from secid.pool.plan import QuerySubset
from secid.pool.reading import read_draft
from secid.pool.workers import in_child_process
from secid.progress import Clock, Progress
from secid.read import Reader
from secid.read.collection import open_noting_bad_rows, with_commits
from secid.records import Source
from secid.results import SCHEMA_VERSION, Run
from secid.run_folder.write import environment
from secid.scoring.encoders import choose_tokenizer, load_noted
from secid.scoring.publish import control_results, source_reports
from secid.scoring.stages import Background, ReadSources, measure
from secid.settings import Resolved, Settings, with_encoder
from secid.triplets.measure_set import Measured
from secid.triplets.random_reference import RandomReference


@dataclass(frozen=True)
class Scored:
    """A run and the measurements behind it. Sources are in rank order.

    measured  : each source with all of its queries.   findings : findings by source.
    positives : labelled positives by source, in the form that a baseline stores.
    reference : random passages that hardness is measured against.
    scores    : ECI_B used for ranking, at the run's budget; beyond budget 1, with sources cut to equal size.
    vectors   : vectors of the texts, valid as long as the run's work folder exists.
    states    : data of each source for the run folder: the information matrix over the queries of the results table,
                and the influence of all queries.
    run_texts : for a shard, counts over the texts of the whole run.
    """

    run: Run
    measured: tuple[Measured, ...]
    findings: Mapping[str, SourceFindings]
    positives: Mapping[str, npt.NDArray[Any]]
    frequencies: DocumentFrequencies
    reference: RandomReference | None
    scores: Mapping[str, float]
    vectors: Vectors
    states: tuple[Measured, ...]
    run_texts: RunTexts | None = None


@contextmanager
def read_sources(
    sources: Sequence[Source | Reader],
    resolved: Resolved,
    subset: QuerySubset,
    background: Background,
    folder: Path,
    clock: Clock,
    progress: Progress,
) -> Iterator[ReadSources]:
    """Read all sources into a plan, with the texts that controls need, and choose a tokenizer.

    The texts are available inside the context. If there are many texts, a child process looks for findings in them.
    sources    : sources to open, or open readers.   subset : queries to keep.
    background : reference data, or empty.   folder : empty folder for temporary files. The caller removes it.
    """
    settings = resolved.values
    kinds = chosen_kinds(settings.controls)
    with clock.stage("read") as counts:
        draft, readers = read_draft(
            sources,
            settings,
            folder,
            progress,
            with_positives="known_positive" in kinds or settings.collection is not None,
            with_echoes="query_echo" in kinds,
            subset=subset,
        )
        plan = draft.plan
        counts["n_rows"] = sum(planned.tally.n_read for planned in plan.sources)
        counts["n_distinct_queries"] = len(plan.queries)
        counts["n_distinct_passages"] = len(plan.source_passages())
    try:
        separates = settings.collection is not None and settings.shard is None  # for shards, the merge does it
        resolved = choose_tokenizer(plan, resolved, progress)
        rules = settings, background.known, background.run_texts
        with in_child_process(len(draft.full_plan.passages), settings.threads, judge_texts, draft, *rules) as wait:
            yield ReadSources(
                draft=draft,
                wait_for_findings=wait,
                resolved=resolved,
                files={file.path: file for reader in readers for file in reader.content()},
                collection=open_noting_bad_rows(resolved.values, progress) if separates else None,
            )
    finally:
        draft.close()


def assemble_run(
    context: Context, read: ReadSources, encoder: Encoder, background: Background, clock: Clock, run_folder: str | None
) -> Scored:
    """Rank and compare the sources, run all analyses, and build the run.

    run_folder : folder that the run will be written to, for the commands in the run; None if it is not written.
    clock : clock whose stages become the run's timing, including stages that end after this call.
    """
    resolved, ranked = read.resolved, context.ranked
    settings = resolved.values
    names = [item.name for item in ranked]
    with clock.stage("publish"):
        compared = comparisons(context.pairs.sorted_by(names), settings.budget, context.early_stop)
        sources = source_reports(context, compared, read.files, run_folder)
        controls = control_results(context)
    results, missing = analyse(context, clock.stage)
    context.embedder.close()
    run = Run(
        schema_version=SCHEMA_VERSION,
        secid_version=__version__,
        settings=replace(resolved, values=with_commits(resolved.values)).document(),
        encoder=encoder.info,
        idf=context.measurer.coverages.info(settings.tokenizer, settings.idf),
        budget=settings.budget,
        sources=sources,
        controls=controls,
        comparisons=compared,
        early_stop=context.early_stop,
        analyses=results,
        folder=run_folder,
        warnings=context.warnings,
        without_triplets=context.plan.empty,
        not_evaluated=missing,
        one_positive=read.texts.one_positive,
        timing=clock.stages,
        environment=environment(),
    )
    return Scored(
        run=run,
        measured=tuple(context.items),
        findings=context.findings,
        positives=read.texts.positives,
        frequencies=context.measurer.coverages.table(settings.tokenizer, settings.idf),
        reference=context.reference,
        scores={item.name: item.nats(settings.budget) for item in ranked},
        vectors=context.measurer.vectors,
        states=tuple(
            replace(item, state=shared.state) for item, shared in zip(context.items, context.table, strict=True)
        ),
        run_texts=background.run_texts,
    )


def with_other_encoders(
    scored: Scored, read: ReadSources, names: Sequence[str], work: Path, progress: Progress
) -> Scored:
    """Add the ablation over encoders to a run, at the run's budget. The target encoder is the base."""
    settings = read.resolved.values
    table: dict[str, Mapping[str, float]] = {scored.run.encoder.name: scored.scores}
    for number, name in enumerate(names):
        model_settings = replace(
            with_encoder(settings, name), controls="none", ablate=False, objectives=False, by=None, block=()
        )
        folder = work / f"encoder-{number}"
        folder.mkdir()
        loaded, _ = load_noted(name, model_settings, progress)
        if loaded.info.name in table:
            raise UsageError(f"{loaded.info.name} is named twice", where="--encoder", remedy="name each encoder once")
        table[loaded.info.name] = _scores_under(read, loaded, model_settings, folder, progress)
    ablations = (*(ABLATIONS.of(scored.run) or ()), over_encoders(table))
    analyses = {**scored.run.analyses, ABLATIONS.name: ablations}
    return replace(scored, run=replace(scored.run, analyses=analyses))


def _scores_under(
    read: ReadSources, encoder: Encoder, settings: Settings, folder: Path, progress: Progress
) -> dict[str, float]:
    """Return ECI_B of each source at the run's budget, under another encoder.

    settings : settings for that encoder.   folder : empty folder for its vectors.
    """
    reading = replace(read, resolved=replace(read.resolved, values=settings))
    context = measure(reading, encoder, None, Background(), folder, Clock(), progress)
    context.embedder.close()
    return {item.name: item.nats(settings.budget) for item in context.ranked}
