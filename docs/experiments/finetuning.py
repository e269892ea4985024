"""Short fine-tunings of one encoder on several sources, folds and seeds: nDCG@10 of every held-out query.

    python docs/experiments/finetuning.py train COLLECTION SOURCE… --runs RUNS.jsonl [--steps 60] [--seeds 3] [--bf16]
    python docs/experiments/finetuning.py guide COLLECTION SOURCE… --guide GUIDE.npz
    python docs/experiments/finetuning.py judge COLLECTION SOURCE… --runs RUNS.jsonl [--guide GUIDE.npz]

COLLECTION is a BEIR folder, and each SOURCE a file of its documents by id. The code is that of `secid probe`: folds by
shared relevant documents, the same batches for every source. Each finished run is one line of RUNS.jsonl, so that the
same command goes on where it was stopped, and several processes can share the file. `judge` prints what the runs
establish, and which numbers of the frozen encoder would have said it. `guide` writes vectors of a second encoder, for
which WordLlama has to be installed. Results: finetuning.md.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from scipy.special import chdtrc

import secid
from secid.analyses.agreement import kendall_tau_b, pairs_ordered_alike, top_1_regret
from secid.arrays import Flags, Floats, Index
from secid.encode import load
from secid.encode.transformer import TransformerEncoder
from secid.measure.gates import WEIGHTS, WeightFormula
from secid.pool.reading import read_plan
from secid.progress import Silent
from secid.read import resolve_sources
from secid.results.probe import Gap, ProbedPair
from secid.settings import Settings, resolve
from secid.tools.probing.learner import Learner, Work, held_out, train_and_rank
from secid.tools.probing.options import Options
from secid.tools.probing.schedule import BetweenRuns, Judge, clustered_covariance, gap
from secid.tools.probing.task import Arm, Task, read_task

BATCH = 32


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The finished runs of a file; none where it is missing."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def name_of(work: Work, collection: str, steps: int) -> str:
    """A run's name: what decides its numbers."""
    source = "frozen" if work.arm is None else work.arm.name
    return f"{collection} {source} fold {work.fold} seed {work.seed} rate {work.rate:g} steps {steps}"


def claim(path: Path, name: str) -> bool:
    """Reserves a run for this process; False where one has done or begun it."""
    with path.with_suffix(".claims").open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if name in {line.strip() for line in file} | {line["run"] for line in read_runs(path)}:
            return False
        file.write(f"{name}\n")
        return True


def trainings(task: Task, arguments: argparse.Namespace) -> Iterator[Work]:
    """The frozen encoder first, then seed by seed, so that what is there at any time is balanced."""
    for fold in range(arguments.folds):
        yield Work(None, fold, 0, 0.0)
    for seed in range(arguments.seeds):
        for fold in range(arguments.folds):
            for arm in task.arms:
                yield Work(arm, fold, seed, arguments.rate)


def train(arguments: argparse.Namespace) -> None:
    """Does the runs that no process has done or begun. After a kill, remove the .claims file first."""
    settings = settings_of(arguments)
    torch.set_num_threads(arguments.threads)
    collection = Path(arguments.collection).name
    with tempfile.TemporaryDirectory() as folder:
        task = task_of(arguments.sources, settings, arguments.folds, Path(folder))
        encoder = load(settings)
        assert isinstance(encoder, TransformerEncoder)
        device = torch.device(arguments.device)
        learner = Learner(encoder, device, lora=False, bf16=arguments.bf16, temperature=settings.temperature)
        candidates = learner.tokens(task.passages.take(task.candidates), "passage")
        chosen = np.arange(len(task.query))
        options = Options(
            steps=arguments.steps, n_seeds=arguments.seeds, n_folds=arguments.folds, batch=BATCH,
            n_held_out=len(chosen), lora=False, rates=(arguments.rate,),
        )  # fmt: skip
        for work in trainings(task, arguments):
            name = name_of(work, collection, arguments.steps)
            if not claim(arguments.runs, name):
                continue
            start = time.time()
            held = held_out(task, work.fold, chosen, candidates, learner)
            values = train_and_rank(learner, task, held, work, options, lambda: None)
            line = {
                "run": name,
                "collection": collection,
                "source": None if work.arm is None else work.arm.name,
                "fold": work.fold,
                "seed": work.seed,
                "rate": work.rate,
                "steps": arguments.steps,
                "ndcg_10": values[:, 0].round(5).tolist(),
            }
            with arguments.runs.open("a", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
            print(f"{name}: nDCG@10 {values[:, 0].mean():.4f} in {time.time() - start:.0f} s", flush=True)


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Texts cut at 128 tokens: half of the model's length, for a quarter of the time."""
    return resolve({"encoder": arguments.encoder, "max_length": 128, "collection": arguments.collection}).values


def task_of(sources: list[str], settings: Settings, n_folds: int, folder: Path) -> Task:
    """The queries that all sources have, in folds."""
    return read_task(resolve_sources(sources, settings), settings, folder, Silent(), n_folds)[0]


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
        """(K,) over seeds and queries."""
        means: Floats = self.values.mean(axis=(1, 2))
        return means

    @property
    def n_seeds(self) -> int:
        """S."""
        return len(self.values[0])

    def by_source(self, values: Floats) -> dict[str, float]:
        """(K,) numbers by name."""
        return dict(zip(self.names, values.tolist(), strict=True))


def read_outcomes(task: Task, arguments: argparse.Namespace) -> Outcomes:
    """Of the runs with this rate and so many steps, the folds that every source of the task has finished with the
    first seed, and the seeds that every one has in all of them.
    """
    collection = Path(arguments.collection).name
    done = {
        (line["source"], line["seed"], line["fold"]): line["ndcg_10"]
        for line in read_runs(arguments.runs)
        if line["collection"] == collection
        and (line["source"] is None or (line["rate"], line["steps"]) == (arguments.rate, arguments.steps))
    }
    names = sorted({arm.name for arm in task.arms} & {source for source, *_ in done if source is not None})
    folds = [fold for fold in range(int(task.fold.max()) + 1) if all((name, 0, fold) in done for name in names)]
    seeds = [seed for seed in range(99) if all((name, seed, fold) in done for name in names for fold in folds)]
    if not names or not folds:
        raise SystemExit(f"{collection}: no fold is finished for all of {', '.join(names) or 'the sources'}")

    def values(source: str | None, seed: int) -> Floats:
        return np.concatenate([done[source, seed, fold] for fold in folds])

    rows = np.concatenate([np.flatnonzero(task.fold == fold) for fold in folds])
    by_seed = np.stack([[values(name, seed) for seed in seeds] for name in names])
    return Outcomes(names, by_seed, values(None, 0), rows, task.fold[rows], task.group[rows])


MORE_WEIGHTS: dict[str, WeightFormula] = {
    "consistency alone": lambda g, dots, tau: g.consistency,
    "locality alone": lambda g, dots, tau: g.locality,
    "lexical residual alone": lambda g, dots, tau: g.residual,
    "fisher without locality and residual": lambda g, dots, tau: 4.0 * g.consistency * g.negative_probability,
    "full, below 95 %": lambda g, dots, tau: g.weight * below_95(dots.query_positive, dots.query_negative),
}
"""Beside those of METHOD 3. The last one leaves out what lies at 95 % of its positive's score or above."""
BUDGETS = (1.0, 1_000.0)
"""At 1 the log-det is a trace; at 1,000 diversity counts, alone where all weights are equal (`residual_only`)."""


COLUMNS = ("s_query_positive", "s_query_negative", "consistency", "locality", "residual")
"""Of negatives.parquet."""


def numbers_of(arguments: argparse.Namespace, names: list[str]) -> dict[str, dict[str, float]]:
    """Every number of the frozen encoder by source, from one run of `secid score` a budget. METHOD 2, 3, 7, 10.

    Of names with equal numbers only the first. Where less is likely to be better the number is negative.
    """
    assert isinstance(WEIGHTS, dict)
    WEIGHTS.update(MORE_WEIGHTS)
    numbers: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for budget in BUDGETS:
            run_of = secid.score(
                [*arguments.sources, random_file(arguments)],
                encoder=arguments.encoder,
                max_length=128,
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
    """Softmax weight of a negative in a batch of 32 at 0.05, the other passages as near as random ones; alone, and for
    those only that lie below 95 % of their positive, under the target and under the guide.
    """
    others = 62 * float(np.exp(random["s_query_negative"] / 0.05).mean())
    positive, negative = (np.exp(rows[name] / 0.05) for name in COLUMNS[:2])
    weight = negative / (positive + negative + others)
    true = below_95(rows["s_query_positive"], rows["s_query_negative"])
    values = {"in-batch weight": float(weight.mean()), "in-batch weight, below 95 %": float((weight * true).mean())}
    if suspect[0] is not None:
        values["in-batch weight, without the guide's suspects"] = float((weight * ~np.array(suspect)).mean())
    return values


def below_95(s_qp: Any, s_qn: Any) -> Any:
    """Which negatives lie below 95 % of their positive's score under the target."""
    return s_qn < 0.95 * s_qp


def write_guide(arguments: argparse.Namespace) -> None:
    """Vectors of all texts of the sources by WordLlama (256 numbers, means of token vectors), for `judge --guide`."""
    import wordllama

    settings = replace(settings_of(arguments), controls="none")
    sources = resolve_sources([*arguments.sources, random_file(arguments)], settings)
    with tempfile.TemporaryDirectory() as folder:
        plan = read_plan(sources, settings, Path(folder), Silent())[0]
        texts = sorted({text for store in (plan.queries, plan.passages) for text in store.take(np.arange(len(store)))})
        plan.close()
    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    np.savez(
        arguments.guide, vector=model.embed(texts), text_sha256=[sha256(text.encode()).hexdigest() for text in texts]
    )


def random_file(arguments: argparse.Namespace) -> str:
    """The source of random passages beside the others."""
    return f"{Path(arguments.sources[0]).parent}/random.jsonl.gz"


def listed(task: Task, rows: Index, names: Iterable[str]) -> Flags:
    """(n,) held-out rows with a relevant passage among the negatives that one of these sources lists for others.

    Relevant passages of training rows are never theirs: folds keep these apart.
    """
    flags, own = np.zeros(len(rows), np.bool_), {arm.name: lists for arm, lists in task.arms.items()}
    for fold in np.unique(task.fold[rows]):
        others, held = np.flatnonzero(task.fold != fold), np.flatnonzero(task.fold[rows] == fold)
        ids = np.unique(np.concatenate([own[name].take(others).ids for name in names]))
        positives = task.positives.take(rows[held])
        flags[held] = np.bincount(positives.rows, np.isin(positives.ids, ids), len(held)) > 0
    return flags


def listed_effect(flags: Flags, outcomes: Outcomes) -> Gap:
    """Outcome of a query under a source that lists a relevant passage of it, less that under one that does not.

    flags : (K, n) by source and query. Least squares with an effect of each query, and of each source in each fold,
    so that neither hard queries nor good sources and runs are in it; the error is that of the groups.
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
    """(K, K) of the sources' means: from queries, which they share, and from runs, which they do not."""
    of_runs = 0.0 if runs is None else max(0.0, runs.variance) / 2 / outcomes.n_seeds
    covariance: Floats = clustered_covariance(outcomes.values.mean(axis=1), outcomes.group)
    return covariance + of_runs * np.eye(len(covariance))


def equality_p(means: Floats, covariance: Floats) -> float:
    """p of all sources being equal: one test of what they share, however many pairs they form (chi squared)."""
    contrasts = np.eye(len(means))[1:] - np.eye(len(means))[0]
    differences = contrasts @ means
    statistic = differences @ np.linalg.solve(contrasts @ covariance @ contrasts.T, differences)
    return float(chdtrc(len(differences), statistic))


def strongest_p(weights: Floats, means: Floats, covariance: Floats) -> float:
    """How often the largest of M slopes, over its error, would be as large as found, were all sources equal.

    weights : (M, K) of the sources' means in each slope. 20,000 draws.
    """
    scaled = weights / np.sqrt(np.einsum("mk,kl,ml->m", weights, covariance, weights))[:, None]
    draws = np.random.default_rng(0).multivariate_normal(np.zeros(len(means)), covariance, 20_000)
    return float((np.abs(draws @ scaled.T).max(axis=1) >= np.abs(scaled @ means).max()).mean())


def tau_ceiling(true: Floats, covariance: Floats) -> float:
    """Mean tau of the true order with outcomes as noisy as these; 1,000 draws. true : (K,) mean outcomes."""
    draws = np.random.default_rng(0).multivariate_normal(true, covariance, 1_000)
    return float(np.mean([kendall_tau_b(true, drawn) or 0.0 for drawn in draws]))


def shrunk(means: Floats, covariance: Floats) -> Floats:
    """(K,) means drawn together by what the errors add to their spread; all equal where nothing is left."""
    off = means - means.mean()
    of_errors = float(np.trace(covariance) - covariance.mean(axis=1).sum())
    true: Floats = means.mean() + off * sqrt(max(0.0, 1.0 - of_errors / float((off**2).sum())))
    return true


def agreement(number: dict[str, float], outcome: dict[str, float], established: list[tuple[str, str]]) -> str:
    """Cells: established pairs and all pairs that the number orders as training did, its top-1 regret, τ.

    established : the better source first.
    """
    right = sum(number[a] > number[b] for a, b in established)
    alike, n = pairs_ordered_alike(number, outcome)
    sides = [np.array([side[key] for key in outcome]) for side in (number, outcome)]
    cells = ("–" if value is None else f"{value:.3f}" for value in (top_1_regret(*sides), kendall_tau_b(*sides)))
    return f"| {right} of {len(established)} | {alike} of {n} | {' | '.join(cells)}"


def slope_weights(numbers: Floats, among: Flags) -> Floats | None:
    """(K,) weights of the sources' means in the least-squares slope, per standard deviation of the numbers, among some
    of the sources; None where their numbers are equal.
    """
    weights, own = np.zeros(len(numbers)), numbers[among]
    if not np.ptp(own) > 0:
        return None
    weights[among] = (own - own.mean()) / own.std() / len(own)
    return weights


def slope(weights: Floats, outcomes: Outcomes, runs: BetweenRuns | None) -> Gap:
    """nDCG@10 that a source gains where its number is one standard deviation of the sources' numbers higher.

    One test over these sources, with the error of queries and of runs: it needs no pair to be established, and says
    nothing of other sources.
    """
    of_runs = runs and BetweenRuns(runs.variance / 2 * float((weights**2).sum()), runs.degrees)
    return gap(np.tensordot(weights, outcomes.values, axes=1), outcomes.group, of_runs)


def seeds_needed(differences: Floats, group: Index, of_means: Gap) -> str:
    """Seeds in every fold with which a difference of 0.005 is two standard errors; "–" where none is enough.

    differences : (S, n) by seed and query. What two seeds share of the error of the queries (their covariance) stays;
    the rest of it falls with the number of seeds, as the error of the runs does.
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
    """Prints gains with both errors, the pairs, the seeds that a difference would take, and how the numbers agree."""
    with tempfile.TemporaryDirectory() as folder:
        task = task_of(arguments.sources, settings_of(arguments), arguments.folds, Path(folder))
    outcomes = read_outcomes(task, arguments)
    group, fold = outcomes.group, outcomes.fold
    print(
        f"{Path(arguments.collection).name}: {len(group)} queries in {len(np.unique(group))} groups, "
        f"{len(np.unique(fold))} folds, seeds: {outcomes.n_seeds}"
    )
    comparisons = Judge(dict(zip(map(Arm, outcomes.names), outcomes.values, strict=True)), group, fold)
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


def print_gains(outcomes: Outcomes, gains: Mapping[Arm, Gap], ties: Mapping[str, int]) -> None:
    """Each source's mean and its gain over the frozen encoder, the best first."""
    print(f"\n| source | nDCG@10 | gain | 95 % CI | error, queries | error, runs | tie |\n|{7 * '---|'}")
    print(f"| frozen | {outcomes.frozen.mean():.4f} | | | | | |")
    means = outcomes.by_source(outcomes.means)
    for name in sorted(means, key=lambda name: -means[name]):
        own = gains[Arm(name)]
        ends = "" if own.interval_95 is None else "{:+.4f} to {:+.4f}".format(*own.interval_95)
        of_runs = "" if own.error_runs is None else f"{own.error_runs:.4f}"
        print(
            f"| {name} | {means[name]:.4f} | {own.value:+.4f} | {ends} | {own.error_queries:.4f} | {of_runs} | "
            f"{ties[name]} |"
        )


def print_pairs(outcomes: Outcomes, pairs: Sequence[ProbedPair]) -> None:
    """Each pair's difference with its errors, and the seeds that one of 0.005 would take."""
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
    """Gains of queries with and without a relevant passage among the negatives of others, and what listing it does."""
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
    """How one seed of the probe and each number of the frozen encoder agree with the means, and p of the best slope."""
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
    parser.add_argument("command", choices=("train", "guide", "judge"))
    parser.add_argument("collection")
    parser.add_argument("sources", nargs="+")
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--guide")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    arguments = parser.parse_args()
    {"train": train, "guide": write_guide, "judge": judge}[arguments.command](arguments)


if __name__ == "__main__":
    main()
