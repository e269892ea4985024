"""`secid probe`: train the encoder briefly on each source, and decide which sources train better.

    options    options of the command             task       rows, folds and candidates that all sources share
    losses     loss of a training step            learner    one training, and the metrics after it
    schedule   all training runs, each once       judge      which differences are established
    run        the whole command

The encoder is loaded after the sources were read. Invalid input is refused before any training. Source: METHOD 13.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np

from secid import __version__
from secid.arrays import Floats, Index
from secid.encode import Encoder
from secid.encode.reranker import Reranker
from secid.encode.transformer import TransformerEncoder
from secid.errors import NotEvaluatedError, UsageError
from secid.pages.text import about
from secid.pool import sample_order
from secid.progress import Clock, Progress
from secid.read import Reader
from secid.read.collection import with_commits
from secid.results import EncoderInfo, InputFile, Run
from secid.results.probe import (
    MIN_GROUPS,
    MIN_HELD_OUT,
    PROBE_SCHEMA_VERSION,
    Dose,
    HeldOutQueries,
    Means,
    PerQuery,
    Probe,
    ProbedSource,
    reversals_of,
    sign,
)
from secid.scoring.encoders import load_guide
from secid.settings import Settings
from secid.tools.probing.judge import Judge, effective_number
from secid.tools.probing.learner import DivergedError, Guidance
from secid.tools.probing.options import NAME_A_MODEL, UNTRAINABLE, Options
from secid.tools.probing.schedule import TrainingRuns
from secid.tools.probing.task import NegativeSource, RowLists, Task, candidates_of, read_task

RANDOM = NegativeSource("random", control=True)
MIN_NOTED_SECONDS = 3_600.0
"""Expected seconds above which a note says how to shorten the probe."""


def probe_sources(
    readers: Sequence[Reader],
    load: Callable[[], tuple[Encoder, EncoderInfo]],
    options: Options,
    settings: Settings,
    folder: Path,
    clock: Clock,
    progress: Progress,
    scored_run: Run | None = None,
) -> Probe:
    """Train on each source, and compare the results.

    load : returns the encoder and its recipe; called after the files are read.
    folder : an empty folder for spool files; the caller removes it.
    scored_run : the run of `secid score` that the probe is added to; it must have the same files and encoder.
    Raises SecidError from reading and training, and UsageError if the run has other files or another encoder.
    """
    with clock.stage("read"):
        task, opened = read_task(readers, settings, folder, progress, options.n_folds)
    try:
        files = {file.path: file for reader in opened for file in reader.content()}
        if scored_run is not None:
            _refuse_other_files(_by_source(opened, task, settings), scored_run)
        with clock.stage("load"):
            encoder, info = load()
        if scored_run is not None:
            _refuse_other_encoder(info, scored_run.encoder)
        if not isinstance(encoder, TransformerEncoder):
            raise UsageError(UNTRAINABLE["object"], where="--encoder", remedy=NAME_A_MODEL)
        scorer = load_guide(settings, encoder, progress) if options.loss == "gist" else None
        if isinstance(scorer, Reranker):
            raise UsageError("a reranker cannot guide training", where="--loss", remedy="name an encoder with --guide")
        guide = None if scorer is None else Guidance(task, scorer, settings, folder / "guide", progress)
        with clock.stage("train") as counts:
            result = run_probe(task, encoder, settings, options, progress, counts, guide)
        return replace(result, encoder=info, files=files, timing=clock.stages)
    finally:
        task.close()


def _by_source(readers: Iterable[Reader], task: Task, settings: Settings) -> list[tuple[str, InputFile]]:
    """Return each source's name with each of its files. With --source-column a file has several sources, file:value."""
    return [
        (name, file)
        for reader in readers
        for name in task.negatives
        if name == reader.source.name or (settings.source_column and name.startswith(f"{reader.source.name}:"))
        for file in reader.content()
    ]


def _refuse_other_files(files: Iterable[tuple[str, InputFile]], run: Run) -> None:
    """Raise UsageError unless the run has exactly these sources, with the same names and files (SHA-256)."""
    scored = _file_descriptions((source.name, file) for source in run.sources for file in source.files)
    probed = _file_descriptions(files)
    other = [path for key, path in probed.items() if key not in scored]
    missing = [path for key, path in scored.items() if key not in probed]
    if not other and not missing:
        return
    if other and missing:
        message = f"the run was scored on {', '.join(missing)}, not on {', '.join(other)}"
    elif other:
        message = f"the run was not scored on {', '.join(other)}"
    else:
        message = f"the run was also scored on {', '.join(missing)}"
    raise UsageError(
        message,
        where="--run",
        remedy="probe the same files under the names that they have in the run (NAME=FILE), or write to another file "
        "with -o probe.json instead of --run",
    )


def _refuse_other_encoder(own: EncoderInfo, of_run: EncoderInfo) -> None:
    """Raise UsageError if the encoder has other weights or another recipe than the run's encoder."""
    for name in ("weights_sha256", "pooling", "query_prefix", "passage_prefix", "max_length", "normalize", "dim"):
        current, other = getattr(own, name), getattr(of_run, name)
        if current != other:
            message = f"the run was scored with {name.replace('_', ' ')} {other!r}, this probe has {current!r}"
            if name == "weights_sha256":
                message = (
                    f"the run was scored with {of_run.name} (weights {str(other)[:12]}), this probe has {own.name} "
                    f"(weights {str(current)[:12]})"
                )
            raise UsageError(
                message,
                where="--run",
                remedy="probe with the run's encoder, or write to another file with -o probe.json instead of --run",
            )


def _file_descriptions(files: Iterable[tuple[str, InputFile]]) -> dict[tuple[str, str], str]:
    """Return each file's description for messages, by the name of its source and its SHA-256."""
    return {(name, file.sha256): f"{file.path} as {name}" for name, file in files}


def run_probe(
    task: Task,
    encoder: TransformerEncoder,
    settings: Settings,
    options: Options,
    progress: Progress,
    counts: dict[str, float],
    guide: Guidance | None = None,
) -> Probe:
    """Train on every source and control at each learning rate, and compare. With too little data nothing is trained.

    counts : filled with the number of training runs, the number already in the cache, and the expected seconds.
    `files` and `timing` of the result are empty; the caller adds them.
    Raises EncoderError if the model does not fit in memory, NotEvaluatedError if training diverged at every rate.
    Source: METHOD 13.
    """
    order = np.argsort(sample_order(task.queries.keys[task.query], settings.seed), kind="stable")
    test_rows = np.sort(order[: options.n_held_out])  # those that are ranked, by a hash of their query
    reason = _too_little(task, test_rows, options.batch)
    guide_info = None if guide is None else guide.info
    untrained = _untrained(task, test_rows, encoder.info, guide_info, options, settings, reason)
    if reason is not None:
        if options.estimate:
            progress.note("no time is estimated, because nothing would be trained")
        return untrained
    candidates, depth = candidates_of(task, test_rows, encoder, settings, progress)
    task = replace(task, candidates=candidates)
    progress.start("time a few steps", None, "")
    runs = TrainingRuns(task, test_rows, encoder, settings, options, progress, guide)
    _announce(runs, options, progress, counts)
    if options.estimate:
        return replace(untrained, not_evaluated=_reasons("estimate", task))
    try:
        frozen = runs.frozen()
        runs.start_progress()
        doses = tuple(_dose(task, runs, rate, options.n_seeds, frozen) for rate in options.rates)
    except KeyboardInterrupt:
        progress.note(_interrupted_note(runs))
        raise
    _refuse_all_diverged(doses)
    reasons = {dose.not_evaluated for dose in doses} - {"diverged"}
    return replace(
        untrained,
        not_evaluated=_reasons(None if None in reasons else reasons.pop(), task),
        precision=runs.precision,
        n_candidates=len(candidates),
        candidate_depth=depth,
        queries=HeldOutQueries(
            text=tuple(task.queries.take(task.query[runs.rows])),
            group=tuple(runs.group.tolist()),
            fold=tuple(runs.fold.tolist()),
        ),
        frozen=_means(frozen),
        frozen_per_query=_per_query(frozen),
        doses=doses,
        reversals=reversals_of(doses),
        identical=runs.identical,
    )


def _announce(runs: TrainingRuns, options: Options, progress: Progress, counts: dict[str, float]) -> None:
    """Note how long the probe takes, and how to shorten it."""
    n, n_missing = runs.counts()
    seconds = runs.seconds(n_missing)
    counts.update(n_trainings=n, n_kept=n - n_missing, expected_seconds=round(seconds, 1))
    if options.n_seeds == 1:
        progress.note("one seed gives no interval, so sources will not be ranked; to rank them, use --seeds 3")
    notice = "finished runs are kept after Ctrl-C" if runs.are_kept else "no run is kept after Ctrl-C"
    progress.note(
        f"the probe takes {about(seconds)} at most; {n - n_missing:,} of {n:,} training runs are in the cache; {notice}"
    )
    if seconds > MIN_NOTED_SECONDS:
        ways = ["--dtype bf16 (about two thirds of the time on this CPU)"] if runs.faster_in_bf16 else []
        progress.note(f"to save time: {', '.join([*ways, 'a smaller --max-length', 'fewer --steps'])}")


def _interrupted_note(runs: TrainingRuns) -> str:
    if not runs.are_kept:
        return "no training run is kept, because the cache is off or the encoder cannot be identified"
    n, n_missing = runs.counts()
    if n_missing < n:
        return f"{n - n_missing:,} of {n:,} training runs are kept; the same command continues with the others"
    return f"0 of {n:,} training runs are kept"


def _too_little(task: Task, test_rows: Index, batch: int) -> str | None:
    """Return the reason why nothing can be evaluated; None with enough data."""
    if len(test_rows) < MIN_HELD_OUT:
        return "few_queries"
    if effective_number(task.group[test_rows]) < MIN_GROUPS:
        return "few_groups"
    in_training = len(task.fold) - np.bincount(task.fold)
    return "few_to_train_on" if in_training.min() < batch else None


def _untrained(
    task: Task,
    test_rows: Index,
    encoder: EncoderInfo,
    guide: EncoderInfo | None,
    options: Options,
    settings: Settings,
    reason: str | None,
) -> Probe:
    return Probe(
        schema_version=PROBE_SCHEMA_VERSION,
        secid_version=__version__,
        encoder=encoder,
        files={},
        collection=with_commits(settings).collection,
        trainable="lora" if options.lora else "full",
        steps=options.steps,
        batch=options.batch,
        n_seeds=options.n_seeds,
        n_folds=options.n_folds,
        seed=settings.seed,
        temperature=settings.temperature,
        loss=options.loss,
        passages=options.passages,
        guide=guide,
        precision=None,
        n_queries=len(task.query),
        n_held_out=len(test_rows),
        n_left_out=task.n_left_out,
        n_groups=len(np.unique(task.group)),
        effective_groups=effective_number(task.group[test_rows]),
        n_candidates=0,
        candidate_depth=None,
        queries=None,
        frozen=None,
        frozen_per_query=None,
        doses=(),
        reversals=(),
        not_evaluated=_reasons(reason, task),
        timing={},
    )


def _dose(task: Task, runs: TrainingRuns, rate: float, n_seeds: int, frozen: Floats) -> Dose:
    """Do all training runs at one learning rate, and compare them. frozen : (n, 3) metrics of the frozen encoder."""
    try:
        values = _all_seeds(runs, rate, n_seeds)
    except DivergedError as error:
        return Dose(rate=rate, not_evaluated="diverged", divergence=error.run, sources=(), controls=(), pairs=())
    return _compared(task, runs, rate, frozen, values)


def _refuse_all_diverged(doses: Sequence[Dose]) -> None:
    """Raise NotEvaluatedError if training diverged at every learning rate. It names the run and step of each."""
    diverged = [(dose.rate, dose.divergence) for dose in doses if dose.divergence is not None]
    if len(diverged) == len(doses):
        runs = "; ".join(
            f"{rate:g} ({run.source}, fold {run.fold}, seed {run.seed}, step {run.step or 'after the last'})"
            for rate, run in diverged
        )
        raise NotEvaluatedError(
            f"training diverged at every learning rate: {runs}",
            remedy=f"use a smaller rate, such as --rate {doses[0].rate / 10:g}",
        )


def _all_seeds(runs: TrainingRuns, rate: float, n_seeds: int) -> dict[NegativeSource, Floats]:
    """Return the metrics of each source, (S, n, 3).

    After a third of the seeds, sources that are significantly worse than the best one stop. None stops before the
    second seed, since one seed gives no between-run error. Controls never stop. Raises DivergedError, with its run.
    """
    values: dict[NegativeSource, Floats] = {}
    running: Sequence[NegativeSource] = runs.sources
    for seed in range(n_seeds):
        done = runs.train(running, seed, rate)
        values |= {source: np.stack([*values.get(source, ()), gains]) for source, gains in done.items()}
        if seed and seed + 1 >= ceil(n_seeds / 3):
            running_values = {source: values[source][:, :, 0] for source in running}
            behind = Judge(running_values, runs.group, runs.fold).trailing()
            running = [source for source in running if source not in behind]
    return values


def _compared(
    task: Task, runs: TrainingRuns, rate: float, frozen: Floats, values: Mapping[NegativeSource, Floats]
) -> Dose:
    """Compare all training runs at one learning rate.

    frozen : (n, 3) metrics of the frozen encoder.   values : (S, n, 3) metrics of each source.
    """
    judge = Judge({source: gains[:, :, 0] for source, gains in values.items()}, runs.group, runs.fold)
    gains = judge.gains(frozen[:, 0])
    beaten = any(sign(gain.interval_95) > 0 for source, gain in gains.items() if not source.control)
    reason = "one_seed" if judge.runs is None else None if beaten else "no_gain"
    pairs, ties = judge.pairs()

    def of_source(source: NegativeSource, lists: RowLists) -> ProbedSource:
        gain, mean = gains[source], values[source][: judge.n_seeds].mean(axis=0)
        return ProbedSource(
            name=source.name,
            n_negatives=len(lists.ids),
            n_seeds=len(values[source]),
            trained=_means(mean),
            gain_ndcg10=gain.value,
            interval_95=gain.interval_95,
            standard_error=gain.standard_error,
            error_queries=gain.error_queries,
            error_runs=gain.error_runs,
            p=gain.p,
            vs_random=judge.difference(source, RANDOM) if RANDOM in values and source != RANDOM else None,
            tie=None if source.control or reason == "one_seed" else ties[source.name],
            per_query=_per_query(mean),
        )

    results = {source: of_source(source, lists) for source, lists in task.sources.items()}
    return Dose(
        rate=rate,
        not_evaluated=reason,
        divergence=None,
        sources=_by_gain(item for source, item in results.items() if not source.control),
        controls=_by_gain(item for source, item in results.items() if source.control),
        pairs=() if reason == "one_seed" else pairs,
    )


def _reasons(reason: str | None, task: Task) -> dict[str, str]:
    """Return what was not evaluated, with the reason: the sources, unless `reason` is None, and missing controls."""
    return {**({} if reason is None else {"sources": reason}), **task.missing}


def _by_gain(sources: Iterable[ProbedSource]) -> tuple[ProbedSource, ...]:
    return tuple(sorted(sources, key=lambda source: (-source.gain_ndcg10, source.name)))


def _means(values: Floats) -> Means:
    ndcg, mrr, recall = values.mean(axis=0).tolist()
    return Means(ndcg_10=ndcg, mrr_10=mrr, recall_100=recall)


def _per_query(values: Floats) -> PerQuery:
    """Return the metrics by query. values : (n, 3)."""
    ndcg, mrr, recall = (tuple(column) for column in np.round(values.T, 4).tolist())
    return PerQuery(ndcg_10=ndcg, mrr_10=mrr, recall_100=recall)
