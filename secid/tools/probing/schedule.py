"""All trainings of a probe on one or several devices, each done once and kept. Source: METHOD 13."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from itertools import combinations
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import stdtr, stdtrit

from secid.analyses.ranking import ESTABLISHED_P, rank_groups
from secid.arrays import Floats, Index
from secid.encode import CacheFolder
from secid.encode.device import choose_devices, choose_dtype, multiplies_bf16
from secid.encode.transformer import TransformerEncoder
from secid.errors import NonFiniteEmbeddingError, OutputError
from secid.files import write_whole
from secid.measure.uncertainty import holm
from secid.progress import Progress
from secid.results.probe import Gap, ProbedPair, sign
from secid.settings import Settings
from secid.tools.probing.learner import DivergedError, HeldOut, Learner, Work, held_out, steps_of, train_and_rank
from secid.tools.probing.options import Options
from secid.tools.probing.task import Arm, Task

RECIPE = (3, ".".join(version("torch").split(".")[:2]))
"""Of the code that decides a training's numbers: the first is one more where it changes them."""


class Trainings:
    """The trainings of a task: a copy of the encoder on each device, and the held-out queries as tokens.

    arms        : all sources and controls.   identical : names of sources with the same negatives, trained once.
    precision   : of the trainings.   faster_in_bf16 : whether --dtype bf16 would make them shorter on this CPU.
    are_kept    : whether a finished one stays in the cache.
    fold, group : (n,) of the held-out queries in the order of all measures.
    """

    def __init__(
        self,
        task: Task,
        chosen: Index,
        encoder: TransformerEncoder,
        settings: Settings,
        options: Options,
        progress: Progress,
    ) -> None:
        """chosen : rows of the task that are ranked when their fold is held out."""
        devices = choose_devices(settings.device)
        bf16 = choose_dtype(settings.dtype, devices[0]) != torch.float32
        self.precision = "bf16 autocast" if bf16 else "float32"
        self.faster_in_bf16 = devices[0].type == "cpu" and settings.dtype == "auto" and multiplies_bf16()
        self._learners = [Learner(encoder, device, options.lora, bf16, settings.temperature) for device in devices]
        self._task, self._options, self._progress = task, options, progress
        first = self._learners[0]
        candidates = first.tokens(task.passages.take(task.candidates), "passage")
        names = np.unique(task.fold[chosen]).tolist()  # a fold may hold none of them
        self._held = {fold: held_out(task, fold, chosen, candidates, first) for fold in names}
        rows = np.concatenate([held.rows for held in self._held.values()])
        self.fold, self.group = task.fold[rows], task.group[rows]
        known = encoder.info.fingerprint
        own = (options.lora, options.steps, options.batch, settings.temperature)
        parts = [known, self.precision, devices[0].type, *own] if known else None
        self._files = TrainingFiles(task, self._held, settings, parts)
        self.arms, self.identical = tuple(task.arms), self._files.identical()
        self.are_kept = self._files.folder is not None
        self._step_seconds, self._ranking_steps = self._timed()
        self._n_steps_done = self._total = 0

    def frozen(self) -> Floats:
        """(n, 3) nDCG@10, MRR@10 and recall@100 of the held-out queries by the encoder as it is."""
        works = [Work(None, fold, 0, 0.0) for fold in self._held]
        n_missing = sum(self._files.read(work) is None for work in works)
        self._progress.start("rank", self._ranking_steps * n_missing, "steps")
        done = self._all(works)
        return np.concatenate([done[work] for work in works])

    def seed(self, arms: Sequence[Arm], seed: int, rate: float) -> dict[Arm, Floats]:
        """(n, 3) the same after training on each source or control. Raises DivergedError."""
        works = {arm: [Work(arm, fold, seed, rate) for fold in self._held] for arm in arms}
        in_order = [work for of_fold in zip(*works.values(), strict=True) for work in of_fold]
        self._total = self._n_steps_done + self.numbers(arms, seed, rate)[1] * self._steps
        done = self._all(in_order)
        return {arm: np.concatenate([done[work] for work in own]) for arm, own in works.items()}

    def begin(self) -> None:
        """The trainings begin: one stage of progress."""
        self._n_steps_done, self._total = 0, self.numbers()[1] * self._steps
        self._progress.start("train", self._total, "steps")

    def numbers(self, arms: Sequence[Arm] | None = None, seed: int = 0, rate: float | None = None) -> tuple[int, int]:
        """How many trainings are to come, none stopped early, and how many of them are not kept.

        arms : by default all.   seed, rate : the next ones; by default the first.
        """
        all_of: dict[tuple[str, ...], bool] = {}  # sources with the same negatives are trained once
        for later, rates in self._ahead(seed, self._options.rates[0] if rate is None else rate):
            for arm in arms or self.arms:
                for fold in self._held:
                    works = [Work(arm, fold, later, own) for own in rates]
                    key = tuple(map(self._files.name, works))
                    if key not in all_of:
                        all_of[key] = any(self._files.read(work) is not None for work in works)
        return len(all_of), sum(not kept for kept in all_of.values())

    def _ahead(self, seed: int, rate: float) -> Iterator[tuple[int, tuple[float, ...]]]:
        """The plan from a seed and rate on: each seed, with the rates of which any one will do.

        The first seed tries one rate after the other, and which of them trains the others is not known before.
        """
        rates = self._options.rates
        if seed == 0:
            yield from ((0, (own,)) for own in rates[rates.index(rate) :])
        for later in range(max(1, seed), self._options.n_seeds):
            yield later, rates if seed == 0 else (rate,)

    def seconds(self, n: int) -> float:
        """That so many trainings take."""
        return n * self._step_seconds * self._steps / len(self._learners)

    @property
    def _steps(self) -> int:
        """Of a training, its ranking included."""
        return self._options.steps + self._ranking_steps

    def _timed(self) -> tuple[float, int]:
        """Seconds of a step, and the steps that ranking takes as long as; by a few of each."""
        learner, (fold, held) = self._learners[0], next(iter(self._held.items()))
        negatives = next(iter(self._task.negatives.values()))
        steps = steps_of(self._task, negatives, Work(None, fold, 0, 0.0), self._options.batch)
        try:
            learner.fit(steps, 1, 0.0, lambda: None)  # the first one reserves memory
        except DivergedError as error:
            raise NonFiniteEmbeddingError(
                f"before training, {error.message}", remedy="use another encoder: its weights may be damaged"
            ) from error
        start = time.perf_counter()
        learner.fit(steps, 2, 0.0, lambda: None)
        middle = time.perf_counter()
        learner.rows(held.queries, "query")
        each = (time.perf_counter() - middle) / int(held.queries.lengths.sum())
        step = (middle - start) / 2
        return step, max(1, round(each * int(held.candidates.lengths.sum()) / step))

    def _all(self, works: Sequence[Work]) -> dict[Work, Floats]:
        """The measures of each work, kept ones read, and of equal ones the first alone trained."""
        kept = {self._files.name(work): self._files.read(work) for work in works}
        missing: dict[str, Work] = {}
        for work in works:
            if kept[name := self._files.name(work)] is None:
                missing.setdefault(name, work)
        trained = self._run([*missing.values()])
        done = {name: trained[missing[name]] if values is None else values for name, values in kept.items()}
        return {work: done[self._files.name(work)] for work in works}

    def _run(self, works: Sequence[Work]) -> dict[Work, Floats]:
        """The measures of each work, one at a time on a device. After an error or Ctrl-C no further one begins."""
        stop = threading.Event()
        free = list(self._learners)  # of each thread one; list.pop and append are atomic

        def tick() -> None:
            if stop.is_set():
                raise _StoppedError
            self._advance(1)

        def one(work: Work) -> Floats:
            learner = free.pop()
            if work.arm is not None:
                self._progress.at(f"{work.arm.name}, fold {work.fold + 1}, seed {work.seed + 1}", self._total)
            try:
                values = train_and_rank(learner, self._task, self._held[work.fold], work, self._options, tick)
            finally:
                free.append(learner)
            self._files.write(work, values)
            self._advance(self._ranking_steps)
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

    def _advance(self, n_steps: int) -> None:
        self._n_steps_done += n_steps
        self._progress.advance(n_steps)


class _StoppedError(Exception):
    """Ends a training in another thread."""


class TrainingFiles:
    """Finished trainings in the cache folder: one small file each, named by all that decides its numbers.

    folder : None where they are not kept.
    """

    def __init__(
        self, task: Task, held: Mapping[int, HeldOut], settings: Settings, parts: Sequence[object] | None
    ) -> None:
        """parts : what decides a training's numbers beside its texts; None where trainings are not kept."""
        self.folder = CacheFolder.of(settings).trainings if settings.cache and parts is not None else None
        keys, queries = task.passages.keys, task.queries.keys[task.query]
        texts: list[Any] = [queries, keys[task.positives.ids], task.positives.offsets, task.fold, keys[task.candidates]]
        self._shared = [RECIPE, str(parts), *map(_hash, [*texts, *(each.rows for each in held.values())])]
        self._of: dict[Arm | None, str] = {None: ""}
        self._of.update({arm: _hash(keys[own.ids]) + _hash(own.offsets) for arm, own in task.arms.items()})

    def identical(self) -> tuple[tuple[str, ...], ...]:
        """The names of sources that have the same negatives as another one, together."""
        by_negatives: dict[str, list[str]] = {}
        for arm, name in self._of.items():
            if arm is not None and not arm.control:
                by_negatives.setdefault(name, []).append(arm.name)
        return tuple(tuple(names) for names in by_negatives.values() if len(names) > 1)

    def name(self, work: Work, numbers: str = "") -> str:
        """SHA-256 of all that decides a training: works of one name give the same. numbers : what came of it."""
        name = json.dumps([*self._shared, self._of[work.arm], work.fold, work.seed, work.rate, numbers])
        return hashlib.sha256(name.encode()).hexdigest()

    def read(self, work: Work) -> Floats | None:
        """(n, 3) of a finished training; None where it is not kept, or the file is damaged."""
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
        """Keeps one; a folder that cannot be written costs the next run time, no more."""
        if self.folder is not None:
            with contextlib.suppress(OutputError):
                numbers = json.dumps(values.tolist())
                write_whole(self._path(self.folder, work), f"{self.name(work, numbers)}\n{numbers}")

    def _path(self, folder: Path, work: Work) -> Path:
        return folder / f"{self.name(work)[:32]}.json"


def _hash(values: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


ROUNDING = 1e-12
"""At and below which a difference, or its error, is none: two sources that trained on the same texts."""
FEWEST_TO_STOP = 4
"""Sources from which on those that trail are stopped."""


@dataclass(frozen=True)
class BetweenRuns:
    """What other runs of the same trainings would change of a mean over one seed, and its degrees of freedom.

    variance : may be below 0, as an estimate of a difference of two.
    """

    variance: float
    degrees: int


def between_runs(values: Floats, fold: Index) -> BetweenRuns | None:
    """Of the difference of any two of K arms, pooled over all of them; None with one seed. Of one arm it is 0.

    values : (K, S, n) by arm, seed and query. What a seed changes of all arms alike is no part of it, nor what
    it changes by query, which the clustered error of the mean over queries has already.
    """
    n_arms, n_seeds, n = values.shape
    names = np.unique(fold)
    if n_seeds < 2:
        return None
    rest = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean(axis=(0, 1))
    free, total = max(1, n_arms - 1) * (n_seeds - 1), 0.0
    for name in names:
        own = rest[:, :, fold == name]
        runs = own.mean(axis=2)
        noise = ((own - runs[:, :, None]) ** 2).sum() / own.shape[2] ** 2
        total += 2 * (own.shape[2] / n) ** 2 * float((runs**2).sum() - noise) / free
    return BetweenRuns(total, len(names) * free)


def clustered_covariance(values: Floats, group: Index) -> Floats:
    """(K, K) covariance, with other queries, of the means of (K, n) values by query. group : (n,) as in `gap`."""
    rest = (values - values.mean(axis=1, keepdims=True)) / values.shape[1]
    sums = np.stack([np.bincount(group, own) for own in rest])
    n_groups = len(np.unique(group))
    covariance: Floats = sums @ sums.T * n_groups / max(1, n_groups - 1)
    return covariance


def gap(values: Floats, group: Index, runs: BetweenRuns | None) -> Gap:
    """Mean of (S, n) differences by seed and query. Without an interval where nothing is known of runs.

    group : (n,) queries that share a relevant passage count as one.
    Variance = that of the mean over seeds, clustered by group, plus that between runs over S. Degrees of freedom:
    Satterthwaite 1946. Source: METHOD 13.
    """
    n_seeds = len(values)
    by_query = values.mean(axis=0)
    mean = float(by_query.mean())
    n_groups = len(np.unique(group))
    of_queries = float(clustered_covariance(by_query[None], group)[0, 0])
    if runs is None or n_groups < 2:
        error = sqrt(of_queries)
        return Gap(value=mean, standard_error=error, error_queries=error, error_runs=None, interval_95=None, p=None)
    of_runs = max(0.0, runs.variance) / n_seeds
    variance = of_queries + of_runs
    error = sqrt(variance)
    if not np.abs(values).max() > ROUNDING or error <= ROUNDING:  # the same texts, or the same difference everywhere
        p = float(abs(mean) <= ROUNDING)
        return Gap(value=mean, standard_error=0.0, error_queries=0.0, error_runs=0.0, interval_95=(mean, mean), p=p)
    freedom = variance**2 / (of_queries**2 / (n_groups - 1) + of_runs**2 / runs.degrees)
    half = float(stdtrit(freedom, 0.975)) * error
    return Gap(
        value=mean,
        standard_error=error,
        error_queries=sqrt(of_queries),
        error_runs=sqrt(of_runs),
        interval_95=(mean - half, mean + half),
        p=float(2.0 * stdtr(freedom, -abs(mean) / error)),
    )


class Judge:
    """The comparisons of all arms, with the error between runs pooled over them.

    values  : (S, n) nDCG@10 by seed and held-out query of each arm, sources and controls. Of two arms the seeds that
              both have are compared, at least those that all have.
    runs    : what other runs would change of a difference of two arms; None with one seed.
    n_seeds : that all arms have: gains, and the order, are of these alone, since a seed is good or bad for all arms.
    """

    def __init__(self, values: Mapping[Arm, Floats], group: Index, fold: Index) -> None:
        self._values, self._group, self._fold = values, group, fold
        self.n_seeds = min(map(len, values.values()))
        self._common = np.stack([own[: self.n_seeds] for own in values.values()])
        self._distinct = [*{own.tobytes(): own for own in self._common}.values()]  # the same negatives: one training
        self.runs = between_runs(np.stack(self._distinct), fold)

    def gains(self, frozen: Floats) -> dict[Arm, Gap]:
        """Of each arm over the frozen encoder, (n,)."""
        alone = [between_runs(np.stack([own, np.zeros_like(own)]), self._fold) for own in self._distinct]
        known = [item for item in alone if item is not None]
        runs = BetweenRuns(float(np.mean([item.variance for item in known])), known[0].degrees) if known else None
        gaps = [gap(own - frozen, self._group, runs) for own in self._common]
        return dict(zip(self._values, gaps, strict=True))

    def difference(self, first: Arm, second: Arm) -> Gap:
        """Mean difference of two arms."""
        n = min(len(self._values[first]), len(self._values[second]))
        return gap(self._values[first][:n] - self._values[second][:n], self._group, self.runs)

    def pairs(self) -> tuple[tuple[ProbedPair, ...], Mapping[str, int]]:
        """All pairs of sources, the better one first, with Holm-adjusted p; and each source's tie group, 1 first."""
        order = self._order()
        pairs = [(a, b) if self.difference(a, b).value >= 0 else (b, a) for a, b in combinations(order, 2)]
        gaps = [self.difference(a, b) for a, b in pairs]
        adjusted: list[float | None] = [None] * len(gaps)
        if all(item.p is not None for item in gaps):  # None is that of all or of none: no source stops after one seed
            adjusted = holm(np.array([item.p for item in gaps], np.float64)).tolist()
        judged = tuple(
            ProbedPair(first=a.name, second=b.name, gap=item, p_holm=p, established=p is not None and p < ESTABLISHED_P)
            for (a, b), item, p in zip(pairs, gaps, adjusted, strict=True)
        )
        return judged, rank_groups([arm.name for arm in order], judged)

    def trailing(self) -> set[Arm]:
        """The sources whose interval of the difference to the best one lies below 0; none where there are few.

        Each look is at a level of 5 %. With many sources the correction for their pairs makes up for that, with few it
        does not: of equal sources an order was established in 8 to 13 % of simulated probes of two, in 3 to 6 % from
        four on.
        """
        leader, *others = self._order()
        if len(others) + 1 < FEWEST_TO_STOP:
            return set()
        gaps = {arm: self.difference(arm, leader) for arm in others}
        return {arm for arm, item in gaps.items() if sign(item.interval_95) < 0}

    def _order(self) -> list[Arm]:
        means = dict(zip(self._values, self._common.mean(axis=(1, 2)), strict=True))
        return sorted((arm for arm in means if not arm.control), key=lambda arm: (-means[arm], arm.name))


def effective_number(group: Index) -> float:
    """How many groups of one size tell as much as these, 1 / sum of squared shares. group : (n,), n >= 1.

    With one group of 40 % of the queries, a 95 % interval by group covered 80 to 88 % of simulations.
    """
    shares = np.bincount(group) / len(group)
    return float(1.0 / (shares**2).sum())
