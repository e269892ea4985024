"""All runs of a probe on one or several devices, each done once and kept. Source: METHOD 13."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from secid.arrays import Floats, Index
from secid.encode.device import choose_devices, choose_dtype
from secid.encode.transformer import TransformerEncoder
from secid.probing.kept import Kept
from secid.probing.learner import Learner
from secid.probing.task import Arm, Task
from secid.probing.training import Setting, Work, held_out, run, steps_of
from secid.progress import Progress
from secid.settings import Settings


class Runs:
    """The runs of a task: a copy of the encoder on each device, and the held-out queries as tokens.

    precision   : of the trainings.
    fold, group : (n,) of the held-out queries in the order of all measures.
    """

    def __init__(
        self,
        task: Task,
        chosen: Index,
        encoder: TransformerEncoder,
        settings: Settings,
        setting: Setting,
        lora: bool,
        progress: Progress,
    ) -> None:
        """chosen : rows of the task that are ranked when their fold is held out.   lora : as in `Learner`."""
        devices = choose_devices(settings.device)
        bf16 = choose_dtype(settings.dtype, devices[0]) != torch.float32
        self.precision = "bf16 autocast" if bf16 else "float32"
        self._learners = [Learner(encoder, device, lora, bf16) for device in devices]
        self._task, self._setting, self._progress = task, setting, progress
        first = self._learners[0]
        candidates = first.tokens(task.passages.take(task.candidates), "passage")
        names = np.unique(task.fold[chosen]).tolist()  # a fold may hold none of them
        self._held = {fold: held_out(task, fold, chosen, candidates, first) for fold in names}
        rows = np.concatenate([held.rows for held in self._held.values()])
        self.fold, self.group = task.fold[rows], task.group[rows]
        fingerprint = encoder.info.fingerprint
        parts = [fingerprint, self.precision, devices[0].type, lora, *setting] if fingerprint else None
        self._kept = Kept(task, list(self._held.values()), settings, parts)
        self._step_seconds, self._ranking_steps = self._timed()

    def frozen(self) -> Floats:
        """(n, 3) MEASURES of the held-out queries by the encoder as it is."""
        works = [Work(None, fold, 0, 0.0) for fold in self._held]
        done = self._all(works, "rank")
        return np.concatenate([done[work] for work in works])

    def seed(self, arms: Iterable[Arm], seed: int, rate: float) -> dict[Arm, Floats]:
        """(n, 3) MEASURES of the held-out queries after training on each source or control. Raises DivergedError."""
        works = {arm: [Work(arm.name, fold, seed, rate, arm.control) for fold in self._held] for arm in arms}
        done = self._all([work for of_fold in zip(*works.values(), strict=True) for work in of_fold], "train")
        return {arm: np.concatenate([done[work] for work in own]) for arm, own in works.items()}

    def expected_seconds(self, rates: Sequence[float], n_seeds: int) -> float:
        """Of all trainings, none stopped early; of those with the first seed, the ones that are not kept yet."""
        arms = self._task.arms
        first = [Work(arm.name, fold, 0, rate, arm.control) for rate in rates for fold in self._held for arm in arms]
        n = sum(self._read(work) is None for work in first) + (n_seeds - 1) * len(self._held) * len(arms)
        return n * self._step_seconds * (self._setting.steps + self._ranking_steps) / len(self._learners)

    def _timed(self) -> tuple[float, int]:
        """Seconds of a step, and the steps that ranking takes as long as; by a few of each."""
        learner, (fold, held) = self._learners[0], next(iter(self._held.items()))
        negatives = next(iter(self._task.negatives.values()))
        steps = steps_of(self._task, negatives, Work(None, fold, 0, 0.0), self._setting)
        learner.fit(steps, 1, 0.0, self._setting.temperature, lambda: None)  # the first one reserves memory
        start = time.perf_counter()
        learner.fit(steps, 2, 0.0, self._setting.temperature, lambda: None)
        middle = time.perf_counter()
        learner.rows(held.queries, "query")
        each = (time.perf_counter() - middle) / int(held.queries.lengths.sum())
        step = (middle - start) / 2
        return step, max(1, round(each * int(held.candidates.lengths.sum()) / step))

    def _read(self, work: Work) -> Floats | None:
        return self._kept.read(work, len(self._held[work.fold].rows))

    def _all(self, works: Sequence[Work], stage: str) -> dict[Work, Floats]:
        done = {work: values for work in works if (values := self._read(work)) is not None}
        missing = [work for work in works if work not in done]
        steps = self._ranking_steps + (self._setting.steps if stage == "train" else 0)
        self._progress.start(stage, steps * len(missing), "steps")
        return done | self._run(missing)

    def _run(self, works: Sequence[Work]) -> dict[Work, Floats]:
        """The measures of each work, one at a time on a device. After an error or Ctrl-C no further one begins."""
        stop = threading.Event()
        free = list(self._learners)  # of each thread one; list.pop and append are atomic

        def tick() -> None:
            if stop.is_set():
                raise _StoppedError
            self._progress.advance(1)

        def one(work: Work) -> Floats:
            learner = free.pop()
            try:
                values = run(learner, self._task, self._held[work.fold], work, self._setting, tick)
            finally:
                free.append(learner)
            self._kept.write(work, values)
            self._progress.advance(self._ranking_steps)
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


class _StoppedError(Exception):
    """Ends a training in another thread."""
