"""The stages of `secid probe`: files → task → encoder → trainings → result, what is wrong with them said in that order.

Nothing is loaded before the sources are read, and nothing is trained before all that could be refused has been.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from secid.encode import CacheFolder, Encoder
from secid.encode.transformer import TransformerEncoder
from secid.errors import UsageError
from secid.pool import Plan
from secid.pool.reading import read_plan
from secid.probing.checks import TRAINABLE, UNTRAINABLE
from secid.probing.run import Options, probe
from secid.probing.task import Task, make_task
from secid.progress import Progress
from secid.read import Reader
from secid.read.collection import open_collection
from secid.results import EncoderInfo, InputFile, Run
from secid.results.probe import PROBE_SCHEMA_VERSION, Probe
from secid.scoring.clock import Clock
from secid.scoring.run import input_files
from secid.settings import Settings
from secid.version import VERSION


def probe_sources(
    readers: Sequence[Reader],
    load: Callable[[], tuple[Encoder, EncoderInfo]],
    options: Options,
    settings: Settings,
    folder: Path,
    clock: Clock,
    progress: Progress,
    beside: Run | None = None,
) -> Probe:
    """Trains on each source and compares.

    load : gives the encoder and its recipe; called once the files are read.   folder : an empty folder for spool files;
    the caller removes it.   beside : the run of `score` that the probe belongs to, of the same files.
    Raises what reading and training raise (SecidError), UsageError for files that the run was not made of.
    """
    tasks: list[Task] = []

    def look(plan: Plan) -> None:
        tasks.append(make_task(plan, open_collection(settings), folder, settings.seed, options.n_folds))

    with clock.stage("read"):
        own = replace(settings, controls="none", by=None, ablate=False)  # the task makes its own controls
        plan, opened = read_plan(readers, own, folder, progress, look=look)
        plan.close()
    (task,) = tasks
    try:
        files = {path: file for reader in opened for path, file in input_files(reader).items()}
        if beside is not None:
            refuse_other_files(files, beside)
        with clock.stage("load"):
            encoder, info = load()
        if not isinstance(encoder, TransformerEncoder):
            raise UsageError(UNTRAINABLE["object"], where="--encoder", remedy=TRAINABLE)
        with clock.stage("train"), _said_what_is_kept(settings, info, progress):
            outcome = probe(task, encoder, settings, options, progress)
        return Probe(
            schema_version=PROBE_SCHEMA_VERSION,
            secid_version=VERSION,
            encoder=info,
            files=files,
            collection=settings.collection,
            trainable="lora" if options.lora else "full",
            steps=options.steps,
            batch=options.batch,
            n_seeds=options.n_seeds,
            n_folds=options.n_folds,
            seed=settings.seed,
            temperature=settings.temperature,
            n_queries=len(task.query),
            n_left_out=task.n_left_out,
            n_groups=len(np.unique(task.group)),
            timing=clock.stages,
            **vars(outcome),
        )
    finally:
        task.close()


def refuse_other_files(files: Mapping[str, InputFile], run: Run) -> None:
    """Raises UsageError unless the run was scored on exactly these files, by their SHA-256."""
    scored = {file.sha256: file.path for source in run.sources for file in source.paths}
    probed = {file.sha256: file.path for file in files.values()}
    if scored.keys() == probed.keys():
        return
    other = [path for sha256, path in probed.items() if sha256 not in scored]
    missing = [path for sha256, path in scored.items() if sha256 not in probed]
    parts = [f"it was not scored on {', '.join(other)}"] if other else []
    parts += [f"it was also scored on {', '.join(missing)}"] if missing else []
    raise UsageError(
        " and ".join(parts),
        where="--run",
        remedy="probe the files of that run, or leave out --run and name a file by -o probe.json",
    )


@contextmanager
def _said_what_is_kept(settings: Settings, info: EncoderInfo, progress: Progress) -> Iterator[None]:
    """After Ctrl-C notes how many trainings this probe finished, and that the same command goes on from them."""
    kept = CacheFolder.of(settings).trainings
    before = set(kept.glob("*.json"))
    try:
        yield
    except KeyboardInterrupt:
        if settings.cache and info.fingerprint:
            n = len(set(kept.glob("*.json")) - before)
            progress.note(f"{n:,} more trainings are finished and kept: the same command goes on from there")
        else:
            progress.note("no training is kept: the cache is off, or the encoder cannot be identified")
        raise
