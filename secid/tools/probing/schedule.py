"""Do all training runs of a probe on one or several devices, and keep each result. Source: METHOD 13."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from secid.arrays import Floats, Index
from secid.encode import CacheFolder
from secid.encode.device import choose_devices, choose_dtype, multiplies_bf16
from secid.encode.transformer import TransformerEncoder
from secid.errors import NonFiniteEmbeddingError, OutputError
from secid.files import write_whole
from secid.progress import Progress
from secid.results.probe import Divergence
from secid.settings import Settings
from secid.tools.probing.learner import (
    DivergedError,
    Guidance,
    HeldOut,
    Learner,
    Objective,
    TrainingRun,
    held_out,
    steps_of,
    train_and_rank,
)
from secid.tools.probing.options import Options
from secid.tools.probing.task import NegativeSource, Task

TRAINING_VERSION = (4, ".".join(version("torch").split(".")[:2]))
"""Version of the training code, raised when its numbers change, and the version of torch."""


class TrainingRuns:
    """The training runs of a task, with a copy of the encoder on each device and the held-out queries as tokens.

    sources        : all sources and controls.
    identical   : groups of names of sources with the same negatives. Each group is trained once.
    precision   : number format of the training runs.   faster_in_bf16 : True if --dtype bf16 saves time on this CPU.
    are_kept    : True if finished training runs stay in the cache.
    rows, fold, group : (n,) row of the task, fold and group of each held-out query, in the order of all metrics.
    """

    def __init__(
        self,
        task: Task,
        test_rows: Index,
        encoder: TransformerEncoder,
        settings: Settings,
        options: Options,
        progress: Progress,
        guide: Guidance | None = None,
    ) -> None:
        """Prepare the devices, and time a few steps.

        test_rows : rows of the task that are ranked when their fold is held out.   guide : guide of the loss gist.
        """
        devices = choose_devices(settings.device)
        bf16 = choose_dtype(settings.dtype, devices[0]) != torch.float32
        self.precision = "bf16 autocast" if bf16 else "float32"
        self.faster_in_bf16 = devices[0].type == "cpu" and settings.dtype == "auto" and multiplies_bf16()
        self._objective = Objective(options.loss, options.passages, guide)
        self._learners = [
            Learner(encoder, device, options.lora, bf16, settings.temperature, options.loss) for device in devices
        ]
        self._task, self._options, self._progress = task, options, progress
        first = self._learners[0]
        candidates = first.tokens(task.passages.take(task.candidates), "passage")
        names = np.unique(task.fold[test_rows]).tolist()  # a fold may have no chosen row
        self._tests = {fold: held_out(task, fold, test_rows, candidates, first) for fold in names}
        self.rows = np.concatenate([test.rows for test in self._tests.values()])
        self.fold, self.group = task.fold[self.rows], task.group[self.rows]
        known = [info.fingerprint for info in (encoder.info, *([] if guide is None else [guide.info]))]
        fields = (options.lora, options.steps, options.batch, settings.temperature, options.loss, options.passages)
        parts = [*known, self.precision, devices[0].type, *fields] if all(known) else None
        self._files = TrainingFiles(task, self._tests, settings, parts)
        self.sources, self.identical = tuple(task.sources), self._files.identical()
        self.are_kept = self._files.folder is not None
        self._step_seconds, self._ranking_steps = self._time_steps()
        self._n_done = self._total = 0

    def frozen(self) -> Floats:
        """Return (n, 3) nDCG@10, MRR@10 and recall@100 of the held-out queries with the untrained encoder."""
        runs = [TrainingRun(None, fold, 0, 0.0) for fold in self._tests]
        self._n_done, self._total = 0, self._n_missing(runs)[1]
        self._progress.start("rank by the frozen encoder", self._total, "folds")
        done = self._all(runs)
        return np.concatenate([done[run] for run in runs])

    def train(self, sources: Sequence[NegativeSource], seed: int, rate: float) -> dict[NegativeSource, Floats]:
        """Return metrics (n, 3) of held-out queries after training on each source or control. Raises DivergedError."""
        runs = {source: [TrainingRun(source, fold, seed, rate) for fold in self._tests] for source in sources}
        in_order = [run for of_fold in zip(*runs.values(), strict=True) for run in of_fold]
        self._total = self._n_done + self._n_missing(self._remaining(sources, seed, rate))[1]
        done = self._all(in_order)
        return {source: np.concatenate([done[run] for run in source_runs]) for source, source_runs in runs.items()}

    def start_progress(self) -> None:
        self._n_done, self._total = 0, self.counts()[1]
        self._progress.start("train", self._total, "training runs")

    def counts(self) -> tuple[int, int]:
        """Return the number of training runs if no source stops early, and how many of them are not in the cache."""
        return self._n_missing(self._remaining(self.sources, 0, self._options.rates[0]))

    def _n_missing(self, runs: Iterable[TrainingRun]) -> tuple[int, int]:
        """Return the number of distinct training runs, and how many of them are not in the cache."""
        distinct = {self._files.name(run): run for run in runs}  # sources with the same negatives are trained once
        return len(distinct), sum(self._files.read(run) is None for run in distinct.values())

    def _remaining(self, sources: Sequence[NegativeSource], seed: int, rate: float) -> Iterator[TrainingRun]:
        """Yield the training runs of these sources at this rate from this seed, then all those at the later rates."""
        rates = self._options.rates
        for each in rates[rates.index(rate) :]:
            of_rate, first = (sources, seed) if each == rate else (self.sources, 0)
            for later, source, fold in product(range(first, self._options.n_seeds), of_rate, self._tests):
                yield TrainingRun(source, fold, later, each)

    def seconds(self, n: int) -> float:
        """Return the seconds that n training runs take."""
        return n * self._step_seconds * (self._options.steps + self._ranking_steps) / len(self._learners)

    def _time_steps(self) -> tuple[float, int]:
        """Measure the seconds of a step, and the time of a ranking as a number of steps. Return both."""
        learner, (fold, test) = self._learners[0], next(iter(self._tests.items()))
        negatives = next(iter(self._task.negatives.values()))
        run = TrainingRun(None, fold, 0, 0.0)
        steps = steps_of(self._task, negatives, run, self._options.batch, self._objective)
        try:
            learner.fit(steps, 1, 0.0, lambda: None)  # the first one reserves memory
        except DivergedError as error:
            raise NonFiniteEmbeddingError(
                f"before training, {error.message}",
                remedy="use another encoder; the weights of this one may be damaged",
            ) from error
        start = time.perf_counter()
        learner.fit(steps, 2, 0.0, lambda: None)
        middle = time.perf_counter()
        learner.rows(test.queries, "query")
        each = (time.perf_counter() - middle) / int(test.queries.lengths.sum())
        step = (middle - start) / 2
        return step, max(1, round(each * int(test.candidates.lengths.sum()) / step))

    def _all(self, runs: Sequence[TrainingRun]) -> dict[TrainingRun, Floats]:
        """Return the metrics of each run, from the cache if possible. Equal runs are trained once."""
        values_of = {self._files.name(run): self._files.read(run) for run in runs}
        missing: dict[str, TrainingRun] = {}
        for run in runs:
            if values_of[name := self._files.name(run)] is None:
                missing.setdefault(name, run)
        trained = self._run([*missing.values()])
        done = {name: trained[missing[name]] if values is None else values for name, values in values_of.items()}
        return {run: done[self._files.name(run)] for run in runs}

    def _run(self, runs: Sequence[TrainingRun]) -> dict[TrainingRun, Floats]:
        """Train, and return the metrics of each run. A device trains one at a time; none starts after an error."""
        stop = threading.Event()
        free = list(self._learners)  # there is one for each thread; list.pop and append are atomic

        def tick() -> None:
            if stop.is_set():
                raise _StoppedError

        def one(run: TrainingRun) -> Floats:
            learner = free.pop()
            if run.source is not None:
                place = f"{run.source.name}, fold {run.fold + 1}, seed {run.seed + 1}, rate {run.rate:g}"
                self._progress.at(place, self._total)
            try:
                test = self._tests[run.fold]
                values = train_and_rank(learner, self._task, test, run, self._options, self._objective, tick)
            except DivergedError as error:
                raise DivergedError(error.message, error.step, run_of(run, error.step)) from error
            finally:
                free.append(learner)
            self._files.write(run, values)
            self._n_done += 1
            self._progress.advance(1)
            return values

        if len(self._learners) == 1:
            return {run: one(run) for run in runs}
        with ThreadPoolExecutor(len(self._learners)) as pool:
            futures = {run: pool.submit(one, run) for run in runs}
            try:
                return {run: future.result() for run, future in futures.items()}
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise


def run_of(run: TrainingRun, step: int | None) -> Divergence | None:
    """Return which training run diverged, numbered from 1; None for the frozen encoder."""
    if run.source is None:
        return None
    return Divergence(
        source=run.source.name, is_control=run.source.control, fold=run.fold + 1, seed=run.seed + 1, step=step
    )


class _StoppedError(Exception):
    """Ends a training in another thread."""


class TrainingFiles:
    """Finished training runs in the cache folder, one small file each. Its name is a hash of everything that the run
    depends on.

    folder : folder of the files; None if training runs are not kept.
    """

    def __init__(
        self, task: Task, tests: Mapping[int, HeldOut], settings: Settings, parts: Sequence[object] | None
    ) -> None:
        """Hash the task. parts : everything else that a training run depends on; None if training runs are not kept."""
        self.folder = CacheFolder.of(settings).training_runs if settings.cache and parts is not None else None
        keys, queries = task.passages.keys, task.queries.keys[task.query]
        texts: list[Any] = [queries, keys[task.positives.ids], task.positives.offsets, task.fold, keys[task.candidates]]
        self._shared = [TRAINING_VERSION, str(parts), *map(_hash, [*texts, *(each.rows for each in tests.values())])]
        self._of: dict[NegativeSource | None, str] = {None: ""}
        self._of.update(
            {source: _hash(keys[lists.ids]) + _hash(lists.offsets) for source, lists in task.sources.items()}
        )

    def identical(self) -> tuple[tuple[str, ...], ...]:
        """Return groups of two or more sources with the same negatives, by name."""
        by_negatives: dict[str, list[str]] = {}
        for source, name in self._of.items():
            if source is not None and not source.control:
                by_negatives.setdefault(name, []).append(source.name)
        return tuple(tuple(names) for names in by_negatives.values() if len(names) > 1)

    def name(self, run: TrainingRun, numbers: str = "") -> str:
        """Return the SHA-256 of everything that a training depends on. Equal names have equal results.

        numbers : results of the training, to hash them too for a checksum.
        """
        name = json.dumps([*self._shared, self._of[run.source], run.fold, run.seed, run.rate, numbers])
        return hashlib.sha256(name.encode()).hexdigest()

    def read(self, run: TrainingRun) -> Floats | None:
        """Return the metrics of a finished training, (n, 3); None if it is not kept or its file is damaged."""
        if self.folder is None:
            return None
        try:
            checksum, numbers = self._path(self.folder, run).read_text(encoding="utf-8").split("\n", 1)
            if checksum != self.name(run, numbers):
                return None
            return np.array(json.loads(numbers), np.float64)
        except (OSError, ValueError):
            return None

    def write(self, run: TrainingRun, values: Floats) -> None:
        """Save a training's metrics. If the folder cannot be written, the next run trains again."""
        if self.folder is not None:
            with contextlib.suppress(OutputError):
                numbers = json.dumps(values.tolist())
                write_whole(self._path(self.folder, run), f"{self.name(run, numbers)}\n{numbers}")

    def _path(self, folder: Path, run: TrainingRun) -> Path:
        return folder / f"{self.name(run)[:32]}.json"


def _hash(values: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
