"""`secid probe`: short trainings of the encoder, one a source, fold and seed, and what they establish.

Finished trainings are kept beside the embedding cache by all that decides their numbers, so the same command goes on
where it was stopped, and a training is done once. Source: METHOD 13.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from secid.arrays import Floats, Index
from secid.encode import CacheFolder
from secid.encode.device import choose_devices, choose_dtype
from secid.encode.transformer import TransformerEncoder
from secid.errors import NotEvaluatedError
from secid.files import write_whole
from secid.pool import sample_order
from secid.probing.judge import difference, gap, judge, trailing
from secid.probing.learner import DivergedError, Learner
from secid.probing.measures import MEASURES
from secid.probing.task import Lists, Task
from secid.probing.training import Setting, Work, held_out, run, steps_of
from secid.progress import Progress
from secid.results.probe import FEWEST_GROUPS, FEWEST_HELD_OUT, Measured, ProbedPair, ProbedSource, Rate
from secid.settings import Settings

RANDOM = "random"
RATES = {"full": (5e-5, 1.25e-5), "lora": (2e-4, 5e-5)}
"""The usual rate, and a quarter of it."""
FOLDER = "probes"
RECIPE = (1, ".".join(version("torch").split(".")[:2]))
"""Of the code that decides a training's numbers: the first is one more where it changes them."""


@dataclass(frozen=True)
class Options:
    """How to probe. rates : tried with the first seed; the best over all sources trains the others."""

    steps: int
    n_seeds: int
    n_folds: int
    batch: int
    n_queries: int
    lora: bool
    rates: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the trainings gave: the fields of these names of `results.probe.Probe`."""

    not_evaluated: Mapping[str, str]
    n_held_out: int
    precision: str | None = None
    frozen: Measured | None = None
    rates: tuple[Rate, ...] = ()
    sources: tuple[ProbedSource, ...] = ()
    controls: tuple[ProbedSource, ...] = ()
    pairs: tuple[ProbedPair, ...] = ()


def chosen_rows(task: Task, n: int, seed: int) -> Index:
    """Rows that are held out and ranked: at most n, by the hash of their query."""
    order = np.argsort(sample_order(task.queries.keys[task.query], seed), kind="stable")
    return np.sort(order[:n])


def too_little(task: Task, chosen: Index, batch: int) -> str | None:
    """Why nothing can be evaluated, or None."""
    if len(chosen) < FEWEST_HELD_OUT:
        return "few_queries"
    if len(np.unique(task.group)) < FEWEST_GROUPS:
        return "few_groups"
    in_training = len(task.fold) - np.bincount(task.fold)
    return "few_to_train_on" if in_training.min() < batch else None


class Trainings:
    """The trainings of a task on one or several devices, each done once and kept.

    rows, fold, group : (n,) of the held-out queries in the order of all measures: row of the task, fold, group.
    """

    def __init__(
        self, task: Task, encoder: TransformerEncoder, settings: Settings, options: Options, progress: Progress
    ) -> None:
        devices = choose_devices(settings.device)
        bf16 = choose_dtype(settings.dtype, devices[0]) != torch.float32
        self.precision = "bf16 autocast" if bf16 else "float32"
        self._learners = [Learner(encoder, device, options.lora, bf16) for device in devices]
        self._task, self._options, self._progress = task, options, progress
        self._setting = Setting(options.steps, options.batch, settings.temperature)
        first, chosen = self._learners[0], chosen_rows(task, options.n_queries, settings.seed)
        candidates = first.tokens(task.passages.take(task.candidates), "passage")
        self._held = [held_out(task, fold, chosen, candidates, first) for fold in range(options.n_folds)]
        self.rows = np.concatenate([held.rows for held in self._held])
        self.fold, self.group = task.fold[self.rows], task.group[self.rows]
        parts = [encoder.info.fingerprint, RECIPE, self.precision, devices[0].type, options.lora, *self._setting]
        self._kept = _Kept(task, chosen, settings, parts if encoder.info.fingerprint else None)
        self._step_seconds, self._ranking_steps = self._timed()

    def _timed(self) -> tuple[float, int]:
        """Seconds of a step, and the steps that ranking takes as long as; by a few of each."""
        learner, task, held = self._learners[0], self._task, self._held[0]
        steps = steps_of(task, next(iter(task.negatives.values())), Work(None, 0, 0, 0.0), self._setting)
        learner.fit(steps, 1, 0.0, self._setting.temperature, lambda: None)  # the first one reserves memory
        start = time.perf_counter()
        learner.fit(steps, 2, 0.0, self._setting.temperature, lambda: None)
        middle = time.perf_counter()
        learner.rows(held.queries, "query")
        each = (time.perf_counter() - middle) / int(held.queries.lengths.sum())
        step = (middle - start) / 2
        return step, max(1, round(each * int(held.candidates.lengths.sum()) / step))

    def expected_seconds(self, names: Sequence[str], rates: Sequence[float]) -> float:
        """Of all trainings that are not kept yet, none stopped early."""
        n_seeds, folds = self._options.n_seeds, range(self._options.n_folds)
        first = [Work(name, fold, 0, rate) for rate in rates for fold in folds for name in names]
        n = sum(self._kept.read(work) is None for work in first) + (n_seeds - 1) * len(folds) * len(names)
        return n * self._step_seconds * (self._options.steps + self._ranking_steps) / len(self._learners)

    def seed(self, names: Sequence[str | None], seed: int, rate: float) -> dict[str | None, Floats] | None:
        """(n, 3) MEASURES of the held-out queries by source, None being the frozen encoder.

        None where a loss diverged.
        """
        folds = range(self._options.n_folds)
        works = [Work(name, fold, seed, rate) for fold in folds for name in names]
        done = {work: values for work in works if (values := self._kept.read(work)) is not None}
        missing = [work for work in works if work not in done]
        steps = {work: self._ranking_steps + (0 if work.source is None else self._options.steps) for work in missing}
        self._progress.start("train" if names != [None] else "rank", sum(steps.values()), "steps")
        try:
            done |= self._run(missing)
        except DivergedError:
            return None
        return {name: np.concatenate([done[Work(name, fold, seed, rate)] for fold in folds]) for name in names}

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


class _Kept:
    """Finished trainings in the cache folder, one small file each, named by all that decides their numbers."""

    def __init__(self, task: Task, chosen: Index, settings: Settings, parts: Sequence[object] | None) -> None:
        """parts : what else decides them; None for an encoder that cannot be identified, whose runs are not kept."""
        self._folder = CacheFolder.of(settings).folder / FOLDER if settings.cache and parts is not None else None
        keys, queries = task.passages.keys, task.queries.keys[task.query]
        shared = (queries, keys[task.positives.ids], task.positives.offsets, task.fold, keys[task.candidates], chosen)
        self._shared = [str(parts), *(_hash(values) for values in shared)]
        self._of: dict[str | None, str] = {None: ""}
        for name, own in (*task.negatives.items(), *task.controls.items()):
            self._of[name] = _hash(keys[own.ids]) + _hash(own.offsets)

    def read(self, work: Work) -> Floats | None:
        """(n, 3) of a finished training; None where it is not kept, or the file is damaged."""
        if (path := self._path(work)) is None:
            return None
        try:
            values = np.array(json.loads(path.read_text(encoding="utf-8")), np.float64)
        except (OSError, ValueError):
            return None
        return values if values.ndim == 2 and values.shape[1] == len(MEASURES) else None

    def write(self, work: Work, values: Floats) -> None:
        """Keeps one; a folder that cannot be written costs the next run time, no more."""
        if (path := self._path(work)) is not None:
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, json.dumps(values.tolist()))

    def _path(self, work: Work) -> Path | None:
        if self._folder is None:
            return None
        name = [*self._shared, self._of[work.source], str(work[1:])]
        return self._folder / f"{hashlib.sha256(json.dumps(name).encode()).hexdigest()[:32]}.json"


def _hash(values: npt.NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


def probe(task: Task, encoder: TransformerEncoder, settings: Settings, options: Options, progress: Progress) -> Outcome:
    """Trains on every source and control, seed by seed, and judges. Nothing is trained where there is too little.

    Raises EncoderError where the model does not fit, NotEvaluatedError where every rate diverged. Source: METHOD 13.
    """
    chosen = chosen_rows(task, options.n_queries, settings.seed)
    reason = too_little(task, chosen, options.batch)
    if reason is not None:
        return Outcome(not_evaluated={"sources": reason, **task.missing}, n_held_out=len(chosen))
    trainings = Trainings(task, encoder, settings, options, progress)
    names = [*task.negatives, *task.controls]
    seconds = trainings.expected_seconds(names, options.rates)
    progress.note(f"takes up to {timedelta(seconds=round(seconds))}; Ctrl-C keeps the trainings that are finished")
    frozen = _given(trainings.seed([None], 0, 0.0))[None]
    by_rate = {rate: trainings.seed(names, 0, rate) for rate in options.rates}
    gains = {
        rate: None if done is None else float(np.mean([own[:, 0] for own in done.values()]) - frozen[:, 0].mean())
        for rate, done in by_rate.items()
    }
    finite = {rate: gain for rate, gain in gains.items() if gain is not None}
    if not finite:
        raise NotEvaluatedError(
            f"the loss is not finite at {', '.join(f'{rate:g}' for rate in options.rates)}", remedy="--rate 1e-6"
        )
    best = max(finite, key=lambda rate: finite[rate])
    values = {name: [_given(by_rate[best])[name]] for name in names}
    running = list(names)
    for seed in range(1, options.n_seeds):
        done = trainings.seed(running, seed, best)
        if done is None:
            raise NotEvaluatedError(f"the loss is not finite at {best:g} with seed {seed}", remedy="a lower --rate")
        for name in running:
            values[name].append(done[name])
        if seed + 1 >= max(2, ceil(options.n_seeds / 3)):  # with one seed nothing is known of runs
            ndcg = {name: np.stack(parts)[:, :, 0] for name, parts in values.items()}
            sources = [name for name in running if name in task.negatives]
            behind = trailing(ndcg, sources, trainings.group, trainings.fold)
            running = [name for name in running if name not in behind]
    return _judged(task, trainings, frozen, {name: np.stack(parts) for name, parts in values.items()}, gains, best)


def _given(values: dict[str | None, Floats] | None) -> dict[str | None, Floats]:
    assert values is not None  # the frozen encoder has no loss, and the best rate's are finite
    return values


def _judged(
    task: Task,
    trainings: Trainings,
    frozen: Floats,
    values: Mapping[str, Floats],
    gains: Mapping[float, float | None],
    best: float,
) -> Outcome:
    """The result of all trainings. frozen : (n, 3).   values : (S, n, 3) by source and control."""
    group, fold = trainings.group, trainings.fold
    ndcg = {name: own[:, :, 0] for name, own in values.items()}
    of_sources = {name: ndcg[name] for name in task.negatives}
    gain = {name: gap(own - frozen[:, 0], group, fold) for name, own in ndcg.items()}
    helps = any(item.interval_95 is not None and item.interval_95[0] > 0 for item in gain.values())
    pairs, ties = judge(of_sources, group, fold)

    def probed(name: str, lists: Lists) -> ProbedSource:
        of_random = ndcg.get(RANDOM) if name != RANDOM else None
        means = values[name].mean(axis=(0, 1)) - frozen.mean(axis=0)
        return ProbedSource(
            name=name,
            n_negatives=len(lists.ids),
            n_seeds=len(values[name]),
            trained=_means(values[name].mean(axis=0)),
            gain_ndcg10=gain[name].value,
            interval_95=gain[name].interval_95,
            gain=gain[name],
            gain_mrr10=float(means[1]),
            gain_recall100=float(means[2]),
            vs_random=None if of_random is None else difference(ndcg[name], of_random, group, fold),
            tie=ties.get(name) if helps else None,
        )

    return Outcome(
        not_evaluated={**({} if helps else {"sources": "no_gain"}), **task.missing},
        n_held_out=len(group),
        precision=trainings.precision,
        frozen=_means(frozen),
        rates=tuple(Rate(rate=rate, gain=gain, used=rate == best) for rate, gain in gains.items()),
        sources=_by_gain(probed(name, lists) for name, lists in task.negatives.items()),
        controls=_by_gain(probed(name, lists) for name, lists in task.controls.items()),
        pairs=pairs if helps else (),
    )


def _by_gain(sources: Iterable[ProbedSource]) -> tuple[ProbedSource, ...]:
    return tuple(sorted(sources, key=lambda source: (-source.gain_ndcg10, source.name)))


def _means(values: Floats) -> Measured:
    ndcg, mrr, recall = values.mean(axis=0).tolist()
    return Measured(ndcg_10=ndcg, mrr_10=mrr, recall_100=recall)
