"""Fine-tune one encoder briefly on several sources, folds and seeds: nDCG@10 of every held-out query.

    python docs/experiments/finetuning.py train COLLECTION SOURCE… --runs RUNS.jsonl [--steps 60] [--seeds 3] [--bf16]
    python docs/experiments/finetuning.py guide COLLECTION SOURCE… --guide GUIDE.npz
    python docs/experiments/finetuning.py judge COLLECTION SOURCE… --runs RUNS.jsonl [--guide GUIDE.npz] [--bf16]
    python docs/experiments/finetuning.py doses COLLECTION SOURCE… --runs RUNS.jsonl --rates 5e-5 2e-4 --passages own

COLLECTION is a BEIR folder, and each SOURCE a file of its documents by id. The code is that of `secid probe`: folds by
shared relevant documents, the same batches for every source. Each finished run is one line of RUNS.jsonl, so the same
command resumes where it stopped. `judge` and `doses` read the runs made with the same options. `judge` prints the
established differences, and which numbers of the frozen encoder predict them. `guide` writes vectors of a second
encoder and needs WordLlama. Results: finetuning.md.

`doses` asks whether MiniLM confirms what a small student showed in dose.md. It compares random passages, BM25, dense
and dense below 95 % of the positive at two learning rates, the usual one and four times it, with a query's own
negative only: CoSQA, 96 tokens, three folds, three seeds. These rules were fixed before the first run:

1. Flip. D is nDCG@10 after `dense` (the hardest source) minus that after `random` (the easiest). The sign flips if the
   95 % intervals of D at the two rates lie on opposite sides of 0. If they do not, but the interval of the change of D
   between the rates excludes 0, D changes but the flip is not shown. Otherwise nothing is shown. The signs of all six
   pairs are printed for information.
2. Regret. The regret of a source at a rate is the mean of the best source less its own; its worst regret is the larger
   of the two. `dense95` keeps the smallest if no other source's worst regret is smaller, and this is established if it
   also holds in 95 % of 20,000 draws of the eight means with their errors.
3. Pairs. At each rate, a pair is established if Holm's p over the six pairs is below 0.05.

Errors are those of the probe: queries clustered by shared relevant documents, and runs. If the runs are stopped early,
the rules apply to the folds and seeds that all four sources have finished at both rates. One seed gives no error
between runs, so nothing is judged.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice, product
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from scipy.special import chdtrc
from transformers import PreTrainedModel

import secid
from secid.analyses.agreement import kendall_tau_b, pairs_ordered_alike, top_1_regret
from secid.arrays import Flags, Floats, Index
from secid.encode import load
from secid.encode.transformer import TransformerEncoder
from secid.measure.false_negatives import margin_flags
from secid.measure.gates import WEIGHT_FORMULAS, WeightFormula
from secid.pool.reading import read_draft
from secid.progress import Silent
from secid.read import resolve_sources
from secid.results.probe import Gap, ProbedPair, sign
from secid.settings import Settings, resolve
from secid.tools.probing.judge import BetweenRuns, Judge, between_runs, clustered_covariance, gap
from secid.tools.probing.learner import (
    DivergedError,
    HeldOut,
    Learner,
    Objective,
    TrainingRun,
    held_out,
    measures,
    steps_of,
)
from secid.tools.probing.task import NegativeSource, Task, read_task

BATCH, LOSS = 32, "infonce"


def read_runs(path: Path) -> list[dict[str, Any]]:
    """Return the finished runs in a file; none if it is missing."""
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def conditions_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the conditions that all runs of a command share, besides code and data."""
    return {
        "collection": Path(arguments.collection).name,
        "encoder": arguments.encoder,
        "tokens": arguments.tokens,
        "bf16": arguments.bf16,
        "folds": arguments.folds,
        "steps": arguments.steps,
        "passages": arguments.passages,
    }


def name_of(run: TrainingRun, conditions: Mapping[str, Any]) -> str:
    """Return a run's name, made of everything that determines its numbers."""
    source = "frozen" if run.source is None else run.source.name
    common = " ".join(f"{key} {value}" for key, value in conditions.items())
    return f"{common} source {source} fold {run.fold} seed {run.seed} rate {run.rate:g}"


def planned_runs(task: Task, arguments: argparse.Namespace) -> Iterator[TrainingRun]:
    """Yield, fold by fold, the frozen encoder and two seeds of all rates and sources; then the other seeds. So after an
    early stop most runs have a run to compare with, and the errors of runs are known.
    """
    folds, seeds = range(arguments.folds), range(arguments.seeds)
    sources = [own for own in task.sources if arguments.control or own.name != "random"]
    for fold in folds:
        yield TrainingRun(None, fold, 0, 0.0)
        for seed, rate, source in product(seeds[:2], arguments.rates, sources):
            yield TrainingRun(source, fold, seed, rate)
    for fold, seed, rate, source in product(folds, seeds[2:], arguments.rates, sources):
        yield TrainingRun(source, fold, seed, rate)


def use_plain_attention(learner: Learner) -> None:
    """Use plain attention: at 100 tokens in bfloat16, training takes half as long as with torch's fused attention."""
    for part in learner._replica.model.modules():
        if isinstance(part, PreTrainedModel):
            part.set_attn_implementation("eager")


def train_and_rank(
    learner: Learner, task: Task, held: HeldOut, run: TrainingRun, arguments: argparse.Namespace
) -> Floats:
    """Return (n,) nDCG@10 of the held-out rows after training, or of the frozen encoder without a source.

    Raise DivergedError if a loss or a vector is not finite.
    """
    learner.restore()
    if run.source is not None:
        steps = steps_of(task, task.sources[run.source], run, BATCH, Objective(LOSS, arguments.passages, None))
        learner.fit(steps, arguments.steps, run.rate, lambda: None)
    queries, candidates = learner.rows(held.queries, "query"), learner.rows(held.candidates, "passage")
    if not (queries.isfinite().all() and candidates.isfinite().all()):
        raise DivergedError("the vector of a text is not finite")
    ndcg_10: Floats = measures(queries, candidates, held.row, held.place)[:, 0]
    return ndcg_10


def train(arguments: argparse.Namespace) -> None:
    """Do the runs that are not in the file. One process per file; `--part 1/4` is one of four processes."""
    settings = settings_of(arguments)
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        task = task_of(arguments.sources, settings, arguments.folds, Path(folder))
        encoder = load(settings)
        assert isinstance(encoder, TransformerEncoder)
        train_all(task, encoder, arguments)


def train_all(task: Task, encoder: TransformerEncoder, arguments: argparse.Namespace) -> None:
    """Do the missing runs of a task."""
    conditions, device = conditions_of(arguments), torch.device(arguments.device)
    part, n_parts = map(int, arguments.part.split("/"))
    learner = Learner(encoder, device, False, arguments.bf16, settings_of(arguments).temperature, LOSS)
    use_plain_attention(learner)
    candidates = learner.tokens(task.passages.take(task.candidates), "passage")
    finished = {line["run"] for line in read_runs(arguments.runs)}
    for run in islice(planned_runs(task, arguments), part - 1, None, n_parts):
        name = name_of(run, conditions)
        if name in finished:
            continue
        start, began = time.process_time(), time.perf_counter()
        held = held_out(task, run.fold, np.arange(len(task.query)), candidates, learner)
        values = train_and_rank(learner, task, held, run, arguments)
        source = None if run.source is None else run.source.name
        of_run = {"source": source, "fold": run.fold, "seed": run.seed, "rate": run.rate}
        line = {"run": name, **conditions, **of_run, "ndcg_10": values.round(5).tolist()}
        with arguments.runs.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
        spent = f"{time.process_time() - start:.0f} core-seconds, {time.perf_counter() - began:.1f} s"
        print(f"{name}: nDCG@10 {values.mean():.4f} in {spent}", flush=True)


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Return the settings. Texts are cut at 128 tokens by default: half of the length in a quarter of the time."""
    given = {"encoder": arguments.encoder, "max_length": arguments.tokens, "collection": arguments.collection}
    return resolve(given).values


def task_of(sources: list[str], settings: Settings, n_folds: int, folder: Path) -> Task:
    """Return the queries that all sources have, in folds."""
    return read_task(resolve_sources(sources), settings, folder, Silent(), n_folds)[0]


@dataclass(frozen=True)
class Outcomes:
    """nDCG@10 of K sources by seed and held-out query, in the folds and with the seeds that all of them have.

    names  : (K,) sorted.        values : (K, S, n) by source, seed and query.        frozen : (n,) before training.
    rows   : (n,) of the task.   fold   : (n,)   group : (n,) queries that share a relevant passage count as one.
    """

    names: list[str]
    values: Floats
    frozen: Floats
    rows: Index
    fold: Index
    group: Index

    @property
    def means(self) -> Floats:
        """Return (K,) means over seeds and queries."""
        means: Floats = self.values.mean(axis=(1, 2))
        return means

    @property
    def n_seeds(self) -> int:
        """Return the number of seeds, S."""
        return len(self.values[0])

    def by_source(self, values: Floats) -> dict[str, float]:
        """Return (K,) numbers by name."""
        return dict(zip(self.names, values.tolist(), strict=True))


Run = tuple[str | None, float, int, int]
"""Source, rate, seed and fold of a run. Runs of the frozen encoder have no source, rate 0 and seed 0."""


def finished_by_all(done: Collection[Run], names: Sequence[str], rates: Sequence[float]) -> tuple[list[int], int]:
    """Return the folds and the number of seeds that all sources have finished at all rates; no fold if there is none.

    If there are several choices, prefer two seeds to one, then more runs, then more folds.
    """
    runs = {(own_seed, fold) for _, _, own_seed, fold in done}
    by_all = {own for own in runs if names and all((name, rate, *own) in done for name in names for rate in rates)}
    choices: list[tuple[list[int], int]] = [([], 1)]
    for n_seeds in range(1, len(by_all) + 1):
        folds = sorted({fold for _, fold in by_all if all((seed, fold) in by_all for seed in range(n_seeds))})
        if folds:
            choices.append((folds, n_seeds))
    return max(choices, key=lambda choice: (choice[1] > 1, len(choice[0]) * choice[1], len(choice[0])))


def read_outcomes(task: Task, arguments: argparse.Namespace) -> dict[float, Outcomes]:
    """Return outcomes by rate, over the folds and seeds that every source of the task has finished at every rate.

    Print how many of the command's runs exist. Exit if no fold is finished.
    """
    conditions = conditions_of(arguments)
    done: dict[Run, list[float]] = {
        (line["source"], line["rate"], line["seed"], line["fold"]): line["ndcg_10"]
        for line in read_runs(arguments.runs)
        if conditions.items() <= line.items()
    }
    names = sorted({source.name for source in task.sources} & {source for source, *_ in done if source is not None})
    n_runs = sum(source in names and rate in arguments.rates for source, rate, *_ in done)
    folds, n_seeds = finished_by_all(done, names, arguments.rates)
    print(f"{n_runs} runs of {', '.join(names) or 'no source'}; judged: folds {folds} with {n_seeds} seeds")
    if not folds:
        raise SystemExit("no fold is finished for all sources and rates")

    def values(source: str | None, rate: float, seed: int) -> Floats:
        return np.concatenate([done[source, rate, seed, fold] for fold in folds])

    rows = np.concatenate([np.flatnonzero(task.fold == fold) for fold in folds])
    frozen, fold, group = values(None, 0.0, 0), task.fold[rows], task.group[rows]
    by_rate = {
        rate: np.stack([[values(name, rate, seed) for seed in range(n_seeds)] for name in names])
        for rate in arguments.rates
    }
    return {rate: Outcomes(names, own, frozen, rows, fold, group) for rate, own in by_rate.items()}


MORE_WEIGHTS: dict[str, WeightFormula] = {
    "consistency alone": lambda g, dots, tau: g.consistency,
    "locality alone": lambda g, dots, tau: g.locality,
    "lexical residual alone": lambda g, dots, tau: g.residual,
    "fisher without locality and residual": lambda g, dots, tau: 4.0 * g.consistency * g.negative_probability,
    "full, below 95 %": lambda g, dots, tau: (
        g.weight * ~margin_flags(dots.query_negative, dots.query_positive, "relative", 0.05)
    ),
}
"""Weights in addition to those of METHOD 3. The last one omits negatives at 95 % of their positive's score or above."""
BUDGETS = (1.0, 1_000.0)
"""Budgets. At 1 the log-det is a trace; at 1,000 diversity counts, and only diversity with equal weights
(`residual_only`)."""


COLUMNS = ("s_query_positive", "s_query_negative", "consistency", "locality", "residual")
"""Columns of negatives.parquet."""


def numbers_of(arguments: argparse.Namespace, names: list[str]) -> dict[str, dict[str, float]]:
    """Return all numbers of the frozen encoder by source, from one `secid score` per budget: METHOD 2, 3, 7, 10.

    Of names with equal numbers only the first is kept. A number whose small values are likely to be better is negated.
    """
    assert isinstance(WEIGHT_FORMULAS, dict)
    WEIGHT_FORMULAS.update(MORE_WEIGHTS)
    numbers: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for budget in BUDGETS:
            run_of = secid.score(
                [*arguments.sources, random_file(arguments)],
                encoder=arguments.encoder,
                max_length=arguments.tokens,
                collection=arguments.collection,
                budget=budget,
                ablate=True,
                controls="none",
                guide=arguments.guide,
                run=f"{folder}/{budget:g}",
            )
            for item in run_of.analyses.get("ablations", ()):
                if item.name in ("temperature", "weight"):
                    for row in item.rows:
                        name = f"ECI at B = {budget:g}, {item.name} {row.setting}"
                        numbers[name] = {key: float(own or 0) for key, own in row.scores.items()}
            for own in run_of.analyses["guide"].sources if "guide" in run_of.analyses else ():
                without = own.without_suspects and own.without_suspects.eci_nats
                numbers.setdefault(f"ECI at B = {budget:g}, without the guide's suspects", {})[own.name] = (
                    without or 0.0
                )
        table = pq.read_table(f"{folder}/{budget:g}/negatives.parquet", columns=["source", "in_suspect", *COLUMNS])
    of_source = {source.name: table.filter(pc.field("source") == source.name) for source in run_of.sources}
    columns = {source: {name: own[name].to_numpy() for name in COLUMNS} for source, own in of_source.items()}
    for source in run_of.sources:
        values = {"hardness": source.hardness and source.hardness.value, "inversions": -source.score.inversion_fraction}
        values |= {name: -finding.share for name in ("false_negative", "suspect") if (finding := source.finding(name))}
        for point in source.score.compared_curve:
            values[f"ECI at B = {point.budget:g}"] = point.nats
        for name in ("gradient_energy", "mnrl_loss", "ambiguity"):
            for form in ("pair", "record"):
                values[f"{name}, {form} form"] = getattr(source.score.proxies, f"{name}_{form}")
        rows = columns[source.name]
        values |= in_batch_weights(rows, columns["random"], of_source[source.name]["in_suspect"].to_pylist())
        for name, value in values.items():
            if value is not None:
                numbers.setdefault(name, {})[source.name] = value
    distinct: dict[tuple[str, ...], str] = {}
    for name, own in numbers.items():
        if set(names) <= set(own):
            distinct.setdefault(tuple(f"{own[key]:.4g}" for key in names), name)
    return {name: {key: numbers[name][key] for key in names} for name in distinct.values()}


def in_batch_weights(
    rows: dict[str, Floats], random: dict[str, Floats], suspect: list[bool | None]
) -> dict[str, float]:
    """Return the softmax weight of a negative in a batch of 32 at 0.05, with other passages as near as random ones.

    It is for all negatives, and for those below 95 % of their positive under the target and under the guide.
    """
    others = 62 * float(np.exp(random["s_query_negative"] / 0.05).mean())
    positive, negative = (np.exp(rows[name] / 0.05) for name in COLUMNS[:2])
    weight = negative / (positive + negative + others)
    true = ~margin_flags(rows["s_query_negative"], rows["s_query_positive"], "relative", 0.05)
    values = {"in-batch weight": float(weight.mean()), "in-batch weight, below 95 %": float((weight * true).mean())}
    if suspect[0] is not None:
        values["in-batch weight, without the guide's suspects"] = float((weight * ~np.array(suspect)).mean())
    return values


def write_guide(arguments: argparse.Namespace) -> None:
    """Write WordLlama vectors of all texts of the sources (256 numbers, means of token vectors) for `judge --guide`."""
    import wordllama

    settings = replace(settings_of(arguments), controls="none")
    sources = resolve_sources([*arguments.sources, random_file(arguments)])
    with tempfile.TemporaryDirectory() as folder:
        plan = read_draft(sources, settings, Path(folder), Silent())[0].plan
        texts = sorted({text for store in (plan.queries, plan.passages) for text in store.take(np.arange(len(store)))})
        plan.close()
    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    np.savez(
        arguments.guide, vector=model.embed(texts), text_sha256=[sha256(text.encode()).hexdigest() for text in texts]
    )


def random_file(arguments: argparse.Namespace) -> str:
    """Return the file of random passages in the folder of the other sources."""
    return f"{Path(arguments.sources[0]).parent}/random.jsonl.gz"


def listed(task: Task, rows: Index, names: Iterable[str]) -> Flags:
    """Return (n,) whether one of these sources lists a row's relevant passage as a negative of other queries.

    Such a passage is never relevant to a training row, because folds keep these apart.
    """
    flags, own = np.zeros(len(rows), np.bool_), {source.name: lists for source, lists in task.sources.items()}
    for fold in np.unique(task.fold[rows]):
        others, held = np.flatnonzero(task.fold != fold), np.flatnonzero(task.fold[rows] == fold)
        ids = np.unique(np.concatenate([own[name].take(others).ids for name in names]))
        positives = task.positives.take(rows[held])
        flags[held] = np.bincount(positives.rows, np.isin(positives.ids, ids), len(held)) > 0
    return flags


def listed_effect(flags: Flags, outcomes: Outcomes) -> Gap:
    """Return a query's outcome under a source that lists its relevant passage minus that under one that does not.

    flags : (K, n) by source and query. The least-squares fit has an effect of each query, and of each source in each
    fold, so hard queries, good sources and good runs do not bias it. The error is clustered by group.
    """
    x, y = flags.astype(np.float64), outcomes.values.mean(axis=1)
    for fold in np.unique(outcomes.fold):
        own = outcomes.fold == fold
        for side in (x, y):
            part = side[:, own] - side[:, own].mean(axis=0)
            side[:, own] = part - part.mean(axis=1, keepdims=True)
    squares = float((x**2).sum())
    effect = float((x * y).sum()) / squares
    by_query = effect + x.shape[1] / squares * ((y - effect * x) * x).sum(axis=0)
    return gap(by_query[None], outcomes.group, None)


def error_covariance(outcomes: Outcomes, runs: BetweenRuns | None) -> Floats:
    """Return the (K, K) covariance of the sources' means: from shared queries and from separate runs."""
    of_runs = 0.0 if runs is None else max(0.0, runs.variance) / 2 / outcomes.n_seeds
    covariance: Floats = clustered_covariance(outcomes.values.mean(axis=1), outcomes.group)
    return covariance + of_runs * np.eye(len(covariance))


def equality_p(means: Floats, covariance: Floats) -> float:
    """Return the p value of all sources being equal: a single chi-squared test, whatever the number of pairs."""
    contrasts = np.eye(len(means))[1:] - np.eye(len(means))[0]
    differences = contrasts @ means
    statistic = differences @ np.linalg.solve(contrasts @ covariance @ contrasts.T, differences)
    return float(chdtrc(len(differences), statistic))


def strongest_p(weights: Floats, means: Floats, covariance: Floats) -> float:
    """Return how often the largest of M slopes, divided by its error, is as large as observed if all sources are equal.

    weights : (M, K) of the sources' means in each slope. 20,000 draws.
    """
    scaled = weights / np.sqrt(np.einsum("mk,kl,ml->m", weights, covariance, weights))[:, None]
    draws = np.random.default_rng(0).multivariate_normal(np.zeros(len(means)), covariance, 20_000)
    return float((np.abs(draws @ scaled.T).max(axis=1) >= np.abs(scaled @ means).max()).mean())


def tau_ceiling(true: Floats, covariance: Floats) -> float:
    """Return the mean tau of the true order with outcomes this noisy (1,000 draws). true : (K,) mean outcomes."""
    draws = np.random.default_rng(0).multivariate_normal(true, covariance, 1_000)
    return float(np.mean([kendall_tau_b(true, drawn) or 0.0 for drawn in draws]))


def shrunk(means: Floats, covariance: Floats) -> Floats:
    """Shrink (K,) means by the spread that the errors add; they become equal if no spread is left."""
    off = means - means.mean()
    of_errors = float(np.trace(covariance) - covariance.mean(axis=1).sum())
    true: Floats = means.mean() + off * sqrt(max(0.0, 1.0 - of_errors / float((off**2).sum())))
    return true


def agreement(number: dict[str, float], outcome: dict[str, float], established: list[tuple[str, str]]) -> str:
    """Return table cells: established pairs and all pairs that the number orders as training did, top-1 regret, τ.

    established : the better source first.
    """
    right = sum(number[a] > number[b] for a, b in established)
    alike, n = pairs_ordered_alike(number, outcome)
    sides = [np.array([side[key] for key in outcome]) for side in (number, outcome)]
    cells = ("–" if value is None else f"{value:.3f}" for value in (top_1_regret(*sides), kendall_tau_b(*sides)))
    return f"| {right} of {len(established)} | {alike} of {n} | {' | '.join(cells)}"


def slope_weights(numbers: Floats, among: Flags) -> Floats | None:
    """Return (K,) weights of the sources' means in the least-squares slope per standard deviation of the numbers, among
    some of the sources; None if their numbers are equal.
    """
    weights, own = np.zeros(len(numbers)), numbers[among]
    if not np.ptp(own) > 0:
        return None
    weights[among] = (own - own.mean()) / own.std() / len(own)
    return weights


def slope(weights: Floats, outcomes: Outcomes, runs: BetweenRuns | None) -> Gap:
    """Return the gain in nDCG@10 of a source whose number is one standard deviation higher.

    This is one test over these sources, with the errors of queries and runs. It needs no established pair, and does not
    extend to other sources.
    """
    of_runs = runs and BetweenRuns(runs.variance / 2 * float((weights**2).sum()), runs.degrees)
    return gap(np.tensordot(weights, outcomes.values, axes=1), outcomes.group, of_runs)


def seeds_needed(differences: Floats, group: Index, of_means: Gap) -> str:
    """Return the seeds per fold with which a difference of 0.005 is two standard errors; "–" if none is enough.

    differences : (S, n) by seed and query. The part of the queries' error that two seeds share (their covariance)
    stays; the rest falls with the number of seeds, as the error of the runs does.
    """
    n_seeds = len(differences)
    if of_means.error_runs is None:
        return ""
    covariance = clustered_covariance(differences, group)
    stays = max(0.0, float(covariance[~np.eye(n_seeds, dtype=np.bool_)].mean()))
    falls = float(np.diag(covariance).mean()) - stays + n_seeds * of_means.error_runs**2
    left = 0.0025**2 - stays
    return "–" if left <= 0 else str(max(1, ceil(falls / left)))


def judge(arguments: argparse.Namespace) -> None:
    """Print gains with both errors, the pairs, the seeds that a difference needs, and the agreement of the numbers."""
    with tempfile.TemporaryDirectory() as folder:
        task = task_of(arguments.sources, settings_of(arguments), arguments.folds, Path(folder))
    (outcomes,) = read_outcomes(task, arguments).values()
    group, fold = outcomes.group, outcomes.fold
    print(
        f"{Path(arguments.collection).name}: {len(group)} queries in {len(np.unique(group))} groups, "
        f"{len(np.unique(fold))} folds, seeds: {outcomes.n_seeds}"
    )
    comparisons = Judge(dict(zip(map(NegativeSource, outcomes.names), outcomes.values, strict=True)), group, fold)
    pairs, ties = comparisons.pairs()
    print_gains(outcomes, comparisons.gains(outcomes.frozen), ties)
    print_pairs(outcomes, pairs)
    print_listed(task, outcomes)
    covariance = error_covariance(outcomes, comparisons.runs)
    established = [(pair.first, pair.second) for pair in pairs if pair.established]
    equality = equality_p(outcomes.means, covariance)
    print(f"\n{len(established)} of {len(pairs)} pairs established; p of all sources being equal: {equality:.3f}")
    print_numbers(outcomes, numbers_of(arguments, outcomes.names), established, comparisons.runs, covariance)
    true = shrunk(outcomes.means, covariance)
    print(f"\nceiling of τ: {tau_ceiling(outcomes.means, covariance):.2f} were the means found the true ones")
    print(f"ceiling of τ: {tau_ceiling(true, covariance):.2f} with what the errors make of their spread taken off")


def judge_doses(arguments: argparse.Namespace) -> None:
    """Print gains and pairs at each rate, then the results of the rules at the top for the first and the last rate."""
    with tempfile.TemporaryDirectory() as folder:
        task = task_of(arguments.sources, settings_of(arguments), arguments.folds, Path(folder))
    by_rate = read_outcomes(task, arguments)
    for rate, outcomes in by_rate.items():
        comparisons = Judge(
            dict(zip(map(NegativeSource, outcomes.names), outcomes.values, strict=True)), outcomes.group, outcomes.fold
        )
        pairs, ties = comparisons.pairs()
        print(f"\n## rate {rate:g}: {sum(pair.established for pair in pairs)} of {len(pairs)} pairs established")
        print_gains(outcomes, comparisons.gains(outcomes.frozen), ties)
        print_pairs(outcomes, pairs)
    if len(by_rate) > 1:
        doses = list(by_rate.values())
        print(f"\nflip: {flip(doses[0], doses[-1], 'dense', 'random')}")
        print(f"regret: {smallest_regret(doses, 'dense95')}")


def flip(low: Outcomes, high: Outcomes, hard: str, easy: str) -> str:
    """Return the result of rule 1 on D, the outcome after the hard source minus the easy one's, at two rates."""
    sides = [own.values[own.names.index(hard)] - own.values[own.names.index(easy)] for own in (low, high)]
    runs = [between_runs(own.values, own.fold) for own in (low, high)]
    of_change = None
    if runs[0] and runs[1]:
        variance = max(0.0, runs[0].variance) + max(0.0, runs[1].variance)
        of_change = BetweenRuns(variance, min(runs[0].degrees, runs[1].degrees))
    gaps = [gap(side, low.group, own) for side, own in zip(sides, runs, strict=True)]
    gaps.append(gap(sides[1] - sides[0], low.group, of_change))
    first, last, change = (sign(item.interval_95) for item in gaps)
    if gaps[-1].interval_95 is None:
        verdict = "not judged: no errors of runs"
    elif first * last < 0:
        verdict = "the sign flips"
    elif change:
        verdict = "D moves, a flip is not shown"
    else:
        verdict = "nothing is shown"
    names = (f"D = {hard} − {easy} at the first rate", "at the last", "change")
    cells = [f"{name} {item.value:+.4f} ± {item.standard_error:.4f}" for name, item in zip(names, gaps, strict=True)]
    return f"{verdict}. {', '.join(cells)}"


def smallest_regret(doses: Sequence[Outcomes], chosen: str) -> str:
    """Return the result of rule 2 on the worst regret of a source over the doses."""
    names, n_seeds = doses[0].names, doses[0].n_seeds
    means = np.stack([own.means for own in doses])
    worst = dict(zip(names, worst_regret(means).tolist(), strict=True))
    found = ", ".join(f"{name} {worst[name]:.4f}" for name in sorted(names, key=lambda name: worst[name]))
    runs = [between_runs(own.values, own.fold) for own in doses]
    known = [max(0.0, own.variance) / 2 / n_seeds for own in runs if own is not None]
    if not known:
        return f"not judged: no errors of runs. {found}"
    covariance = clustered_covariance(np.concatenate([own.values.mean(axis=1) for own in doses]), doses[0].group)
    covariance += np.diag(np.repeat(known, len(names)))
    draws = np.random.default_rng(0).multivariate_normal(means.ravel(), covariance, 20_000)
    drawn = worst_regret(draws.reshape(-1, *means.shape))
    share = float((drawn[:, names.index(chosen)] <= drawn.min(axis=1)).mean())
    if worst[chosen] <= min(worst.values()):
        verdict = f"{chosen} keeps the smallest, {'' if share >= 0.95 else 'not '}established"
    else:
        verdict = f"{chosen} does not keep the smallest"
    return f"{verdict} (smallest in {share:.0%} of draws). {found}"


def worst_regret(means: Floats) -> Floats:
    """Return (…, K) largest distance of each source to the best one over the doses. means : (…, doses, K)."""
    worst: Floats = (means.max(axis=-1, keepdims=True) - means).max(axis=-2)
    return worst


def print_gains(outcomes: Outcomes, gains: Mapping[NegativeSource, Gap], ties: Mapping[str, int]) -> None:
    """Print each source's mean and its gain over the frozen encoder, best first."""
    print(f"\n| source | nDCG@10 | gain | 95 % CI | error, queries | error, runs | tie |\n|{7 * '---|'}")
    print(f"| frozen | {outcomes.frozen.mean():.4f} | | | | | |")
    means = outcomes.by_source(outcomes.means)
    for name in sorted(means, key=lambda name: -means[name]):
        own = gains[NegativeSource(name)]
        ends = "" if own.interval_95 is None else "{:+.4f} to {:+.4f}".format(*own.interval_95)
        of_runs = "" if own.error_runs is None else f"{own.error_runs:.4f}"
        print(
            f"| {name} | {means[name]:.4f} | {own.value:+.4f} | {ends} | {own.error_queries:.4f} | {of_runs} | "
            f"{ties[name]} |"
        )


def print_pairs(outcomes: Outcomes, pairs: Sequence[ProbedPair]) -> None:
    """Print each pair's difference with its errors, and the seeds that a difference of 0.005 needs."""
    print(f"\n| pair | difference | error | error of runs | seeds for 0.005 | p (Holm) |\n|{6 * '---|'}")
    values = dict(zip(outcomes.names, outcomes.values, strict=True))
    for pair in pairs:
        needed = seeds_needed(values[pair.first] - values[pair.second], outcomes.group, pair.gap)
        p = "" if pair.p_holm is None else f"{pair.p_holm:.3f}"
        print(
            f"| {pair.first} − {pair.second} | {pair.gap.value:+.4f} | {pair.gap.standard_error:.4f} | "
            f"{pair.gap.error_runs or 0.0:.4f} | {needed} | {p} |"
        )


def print_listed(task: Task, outcomes: Outcomes) -> None:
    """Print gains of queries with and without a relevant passage listed as a negative, and the effect of listing."""
    by_any, frozen = listed(task, outcomes.rows, task.negatives), outcomes.frozen
    print(
        f"\n| gain | {by_any.sum()} queries with a relevant passage among the negatives | {(~by_any).sum()} without |"
    )
    print(f"|---|---|---|\n| frozen: nDCG@10 | {frozen[by_any].mean():.4f} | {frozen[~by_any].mean():.4f} |")
    for name, values in zip(outcomes.names, outcomes.values, strict=True):
        gain = (values - frozen).mean(axis=0)
        print(f"| {name} | {gain[by_any].mean():+.4f} | {gain[~by_any].mean():+.4f} |")
    effect = listed_effect(np.stack([listed(task, outcomes.rows, [name]) for name in outcomes.names]), outcomes)
    print(
        "\nnDCG@10 of a query under sources that list a relevant passage of it for others, less that under sources "
        f"that do not, at equal query and source: {effect.value:+.4f} ± {effect.standard_error:.4f}"
    )


def print_numbers(
    outcomes: Outcomes,
    numbers: Mapping[str, dict[str, float]],
    established: list[tuple[str, str]],
    runs: BetweenRuns | None,
    covariance: Floats,
) -> None:
    """Print how one probe seed and each number of the frozen encoder agree with the means, and the best slope's p."""
    print(
        "\n| number | established pairs in order | all pairs in order | top-1 regret | τ | slope ± error | p "
        f"| slope without random | p |\n|{9 * '---|'}"
    )
    by_seed = outcomes.values.mean(axis=2)
    for seed in range(outcomes.n_seeds if outcomes.n_seeds > 1 else 0):
        one, others = (outcomes.by_source(own) for own in (by_seed[:, seed], np.delete(by_seed, seed, 1).mean(axis=1)))
        print(f"| the probe with seed {seed}, against the other seeds {agreement(one, others, established)} | | | | |")
    mined = np.array([name != "random" for name in outcomes.names])
    subsets = {"with random": np.ones_like(mined), "without random": mined}
    tried: dict[str, list[Floats]] = {subset: [] for subset in subsets}
    for name, number in numbers.items():
        cells = agreement(number, outcomes.by_source(outcomes.means), established)
        for subset, among in subsets.items():
            weights = slope_weights(np.array([number[key] for key in outcomes.names]), among)
            if weights is None:
                cells += " | |"
                continue
            tried[subset].append(weights)
            own = slope(weights, outcomes, runs)
            p = "" if own.p is None else f"{own.p:.3f}"
            cells += f" | {own.value:+.4f} ± {own.standard_error:.4f} | {p}"
        print(f"| {name} {cells} |")
    for subset, slopes in tried.items():
        p_strongest = strongest_p(np.stack(slopes), outcomes.means, covariance)
        print(
            f"\np of the strongest slope among these {len(slopes)}, {subset}, were all sources equal: {p_strongest:.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("train", "guide", "judge", "doses"))
    parser.add_argument("collection")
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--guide")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[5e-5])
    parser.add_argument("--passages", choices=("own", "batch"), default="batch")
    parser.add_argument("--no-control", dest="control", action="store_false", help="no runs of random passages")
    parser.add_argument("--part", default="1/1", help="I/N: each N-th run, from the I-th")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "judge" and len(arguments.rates) > 1:
        parser.error("judge takes one rate")
    commands = {"train": train, "guide": write_guide, "judge": judge, "doses": judge_doses}
    commands[arguments.command](arguments)


if __name__ == "__main__":
    main()
