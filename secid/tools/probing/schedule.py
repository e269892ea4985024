"""Run all trainings of a probe on one or several devices, and keep each result. Source: METHOD 13."""

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
from secid.tools.probing.learner import DivergedError, HeldOut, Learner, Work, held_out, steps_of, train_and_rank
from secid.tools.probing.losses import Guidance, Objective
from secid.tools.probing.options import Options
from secid.tools.probing.task import NegativeSource, Task

TRAINING_VERSION = (4, ".".join(version("torch").split(".")[:2]))
"""Version of the training code, raised when its numbers change, and the version of torch."""


class Trainings:
    """The trainings of a task, with a copy of the encoder on each device and the held-out queries as tokens.

    sources        : all sources and controls.
    identical   : groups of names of sources with the same negatives. Each group is trained once.
    precision   : number format of the trainings.   faster_in_bf16 : True if --dtype bf16 saves time on this CPU.
    are_kept    : True if finished trainings stay in the cache.
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
        works = [Work(None, fold, 0, 0.0) for fold in self._tests]
        self._n_done, self._total = 0, self._n_missing(works)[1]
        self._progress.start("rank by the frozen encoder", self._total, "folds")
        done = self._all(works)
        return np.concatenate([done[work] for work in works])

    def seed(self, sources: Sequence[NegativeSource], seed: int, rate: float) -> dict[NegativeSource, Floats]:
        """Return metrics (n, 3) of held-out queries after training on each source or control. Raises DivergedError."""
        works = {source: [Work(source, fold, seed, rate) for fold in self._tests] for source in sources}
        in_order = [work for of_fold in zip(*works.values(), strict=True) for work in of_fold]
        self._total = self._n_done + self._n_missing(self._remaining(sources, seed, rate))[1]
        done = self._all(in_order)
        return {source: np.concatenate([done[work] for work in source_works]) for source, source_works in works.items()}

    def begin(self) -> None:
        """Start the stage of progress for all trainings."""
        self._n_done, self._total = 0, self.numbers()[1]
        self._progress.start("train", self._total, "training runs")

    def numbers(self) -> tuple[int, int]:
        """Return the number of trainings if no source stops early, and how many of them are not in the cache."""
        return self._n_missing(self._remaining(self.sources, 0, self._options.rates[0]))

    def _n_missing(self, works: Iterable[Work]) -> tuple[int, int]:
        """Return the number of distinct trainings, and how many of them are not in the cache."""
        distinct = {self._files.name(work): work for work in works}  # sources with the same negatives are trained once
        return len(distinct), sum(self._files.read(work) is None for work in distinct.values())

    def _remaining(self, sources: Sequence[NegativeSource], seed: int, rate: float) -> Iterator[Work]:
        """Yield the trainings of these sources at this rate from this seed, then all those at the later rates."""
        rates = self._options.rates
        for each in rates[rates.index(rate) :]:
            of_rate, first = (sources, seed) if each == rate else (self.sources, 0)
            for later, source, fold in product(range(first, self._options.n_seeds), of_rate, self._tests):
                yield Work(source, fold, later, each)

    def seconds(self, n: int) -> float:
        """Return the seconds that n trainings take."""
        return n * self._step_seconds * (self._options.steps + self._ranking_steps) / len(self._learners)

    def _time_steps(self) -> tuple[float, int]:
        """Measure the seconds of a step, and the time of a ranking as a number of steps. Return both."""
        learner, (fold, test) = self._learners[0], next(iter(self._tests.items()))
        negatives = next(iter(self._task.negatives.values()))
        work = Work(None, fold, 0, 0.0)
        steps = steps_of(self._task, negatives, work, self._options.batch, self._objective)
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

    def _all(self, works: Sequence[Work]) -> dict[Work, Floats]:
        """Return the metrics of each work, from the cache if possible. Equal works are trained once."""
        values_of = {self._files.name(work): self._files.read(work) for work in works}
        missing: dict[str, Work] = {}
        for work in works:
            if values_of[name := self._files.name(work)] is None:
                missing.setdefault(name, work)
        trained = self._run([*missing.values()])
        done = {name: trained[missing[name]] if values is None else values for name, values in values_of.items()}
        return {work: done[self._files.name(work)] for work in works}

    def _run(self, works: Sequence[Work]) -> dict[Work, Floats]:
        """Train, and return the metrics of each work. A device trains one at a time; none starts after an error."""
        stop = threading.Event()
        free = list(self._learners)  # there is one for each thread; list.pop and append are atomic

        def tick() -> None:
            if stop.is_set():
                raise _StoppedError

        def one(work: Work) -> Floats:
            learner = free.pop()
            if work.source is not None:
                place = f"{work.source.name}, fold {work.fold + 1}, seed {work.seed + 1}, rate {work.rate:g}"
                self._progress.at(place, self._total)
            try:
                test = self._tests[work.fold]
                values = train_and_rank(learner, self._task, test, work, self._options, self._objective, tick)
            except DivergedError as error:
                raise DivergedError(error.message, error.step, run_of(work, error.step)) from error
            finally:
                free.append(learner)
            self._files.write(work, values)
            self._n_done += 1
            self._progress.advance(1)
            return values

        if len(self._learners) == 1:
            return {work: one(work) for work in works}
        with ThreadPoolExecutor(len(self._learners)) as pool:
            futures = {work: pool.submit(one, work) for work in works}
            try:
                return {work: future.result() for work, future in futures.items()}
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise


def run_of(work: Work, step: int | None) -> Divergence | None:
    """Return which training run diverged, numbered from 1; None for the frozen encoder."""
    if work.source is None:
        return None
    return Divergence(
        source=work.source.name, is_control=work.source.control, fold=work.fold + 1, seed=work.seed + 1, step=step
    )


class _StoppedError(Exception):
    """Ends a training in another thread."""


class TrainingFiles:
    """Finished trainings in the cache folder, one small file each. A hash of everything that a training depends on is
    its file name.

    folder : folder of the files; None if trainings are not kept.
    """

    def __init__(
        self, task: Task, tests: Mapping[int, HeldOut], settings: Settings, parts: Sequence[object] | None
    ) -> None:
        """Hash the task. parts : everything else that a training depends on; None if trainings are not kept."""
        self.folder = CacheFolder.of(settings).trainings if settings.cache and parts is not None else None
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

    def name(self, work: Work, numbers: str = "") -> str:
        """Return the SHA-256 of everything that a training depends on. Equal names have equal results.

        numbers : results of the training, to hash them too for a checksum.
        """
        name = json.dumps([*self._shared, self._of[work.source], work.fold, work.seed, work.rate, numbers])
        return hashlib.sha256(name.encode()).hexdigest()

    def read(self, work: Work) -> Floats | None:
        """Return the metrics of a finished training, (n, 3); None if it is not kept or its file is damaged."""
        if self.folder is None:
            return None
        try:
            checksum, numbers = self._path(self.folder, work).read_text(encoding="utf-8").split("\n", 1)
            if checksum != self.name(work, numbers):
                return None
            return np.array(json.loads(numbers), np.float64)
        except (OSError, ValueError):
            return None

    def write(self, work: Work, values: Floats) -> None:
        """Save a training's metrics. If the folder cannot be written, the next run trains again."""
        if self.folder is not None:
            with contextlib.suppress(OutputError):
                numbers = json.dumps(values.tolist())
                write_whole(self._path(self.folder, work), f"{self.name(work, numbers)}\n{numbers}")

    def _path(self, folder: Path, work: Work) -> Path:
        return folder / f"{self.name(work)[:32]}.json"


def _hash(values: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
