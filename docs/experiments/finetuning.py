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
from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from math import ceil, sqrt
from pathlib import Path
from typing import Any

import numpy as np
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
from secid.probing.judge import BetweenRuns, Judge, between_runs, gap
from secid.probing.learner import Learner
from secid.probing.options import Options
from secid.probing.task import Arm, Task, read_task
from secid.probing.training import Work, held_out, train_and_rank
from secid.progress import Silent
from secid.read import resolve_sources
from secid.results.probe import Gap
from secid.settings import Settings, resolve

BATCH = 32


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The finished runs of a file; none where it is missing."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def name_of(work: Work, collection: str, steps: int) -> str:
    """A run's name: what decides its numbers."""
    source = "frozen" if work.arm is None else work.arm.name
    return f"{collection} {source} fold {work.fold} seed {work.seed} rate {work.rate:g} steps {steps}"


def claimed(path: Path, name: str) -> bool:
    """Whether no process has done or begun this run; it is then begun by this one."""
    with path.with_suffix(".claims").open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if name in {line.strip() for line in file} | {line["run"] for line in read_runs(path)}:
            return False
        file.write(f"{name}\n")
        return True


def works(task: Task, arguments: argparse.Namespace) -> Iterator[Work]:
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
        for work in works(task, arguments):
            name = name_of(work, collection, arguments.steps)
            if not claimed(arguments.runs, name):
                continue
            start = time.time()
            held = held_out(task, work.fold, chosen, candidates, learner)
            values = train_and_rank(learner, task, held, work, options, lambda: None)
            source = None if work.arm is None else work.arm.name
            line: dict[str, Any] = {
                "run": name,
                "collection": collection,
                "source": source,
                "fold": work.fold,
                "seed": work.seed,
            }
            line |= {"rate": work.rate, "steps": arguments.steps}
            line["ndcg_10"] = values[:, 0].round(5).tolist()
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


def outcomes(task: Task, arguments: argparse.Namespace) -> tuple[dict[str, Floats], Floats, Index]:
    """(S, n) nDCG@10 by seed and held-out query of each source, (n,) of the frozen encoder, and (n,) rows of the task.

    Of the runs with this rate and so many steps, the folds that every source of the task has finished with the first
    seed, and the seeds that every one has in all of them.
    """
    collection = Path(arguments.collection).name
    done = {
        (line["source"], line["seed"], line["fold"]): line
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
        return np.concatenate([done[source, seed, fold]["ndcg_10"] for fold in folds])

    rows = np.concatenate([np.flatnonzero(task.fold == fold) for fold in folds])
    return {name: np.stack([values(name, seed) for seed in seeds]) for name in names}, values(None, 0), rows


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


def numbers_of(arguments: argparse.Namespace, names: list[str]) -> dict[str, dict[str, float]]:
    """Every number of the frozen encoder by source, from one run of `secid score` a budget. METHOD 2, 3, 7, 10.

    Where less is likely to be better the number is negative.
    """
    assert isinstance(WEIGHTS, dict)
    WEIGHTS.update(MORE_WEIGHTS)
    numbers: dict[str, dict[str, float]] = {}
    for budget in BUDGETS:
        with tempfile.TemporaryDirectory() as folder:
            run_of = secid.score(
                [*arguments.sources, random_of(arguments)],
                encoder=arguments.encoder,
                max_length=128,
                collection=arguments.collection,
                budget=budget,
                ablate=True,
                controls="none",
                guide=arguments.guide,
                run=f"{folder}/run",
            )
            tables = {
                source.name: pq.read_table(
                    f"{folder}/run/negatives.parquet", filters=[("source", "==", source.name)]
                ).to_pydict()
                for source in run_of.sources
            }
        for item in run_of.ablations:
            if item.name in ("temperature", "weight"):
                for row in item.rows:
                    name = f"ECI at B = {budget:g}, {item.name} {row.setting}"
                    numbers[name] = {key: float(own or 0) for key, own in row.scores.items()}
        for own in run_of.guide.sources if run_of.guide else ():
            without = own.without_suspects and own.without_suspects.eci_nats
            numbers.setdefault(f"ECI at B = {budget:g}, without the guide's suspects", {})[own.name] = without or 0.0
    for source in run_of.sources:
        values = {"hardness": source.hardness, "inversions": -source.inversion_fraction}
        values |= {name: -finding.share for name in DEFECTS if (finding := source.finding(name))}
        for point in source.compared_curve:
            values[f"ECI at B = {point.budget:g}"] = point.nats
        for name in ("gradient_energy", "mnrl_loss", "ambiguity"):
            for form in ("pair", "record"):
                values[f"{name}, {form} form"] = getattr(source.proxies, f"{name}_{form}")
        rows = {name: np.array(tables[source.name][name]) for name in COLUMNS}
        values |= {f"mean {name}": float(rows[name].mean()) for name in ("consistency", "locality", "residual")}
        values |= in_batch_weights(rows, tables["random"], tables[source.name]["in_suspect"])
        for name, value in values.items():
            if value is not None:
                numbers.setdefault(name, {})[source.name] = value
    return {name: {key: own[key] for key in names} for name, own in numbers.items() if set(names) <= set(own)}


COLUMNS = ("s_query_positive", "s_query_negative", "consistency", "locality", "residual")


DEFECTS = ("false_negative", "suspect")


def in_batch_weights(
    rows: dict[str, Floats], random: dict[str, list[float]], suspect: list[bool | None]
) -> dict[str, float]:
    """Softmax weight of a negative in a batch of 32 at 0.05, the other passages as near as random ones; alone, and for
    those only that lie below 95 % of their positive, under the target and under the guide.
    """
    others = 62 * float(np.exp(np.array(random["s_query_negative"]) / 0.05).mean())
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
    sources = resolve_sources([*arguments.sources, random_of(arguments)], settings)
    with tempfile.TemporaryDirectory() as folder:
        plan = read_plan(sources, settings, Path(folder), Silent())[0]
        texts = sorted({text for store in (plan.queries, plan.passages) for text in store.take(np.arange(len(store)))})
        plan.close()
    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    np.savez(
        arguments.guide, vector=model.embed(texts), text_sha256=[sha256(text.encode()).hexdigest() for text in texts]
    )


def random_of(arguments: argparse.Namespace) -> str:
    """The source of random passages beside the others."""
    return f"{Path(arguments.sources[0]).parent}/random.jsonl.gz"


def seen(task: Task, rows: Index, names: Iterable[str]) -> Flags:
    """(n,) held-out rows with a relevant passage among the negatives that one of these sources lists for others.

    Relevant passages of training rows are never theirs: folds keep these apart.
    """
    flags, own = np.zeros(len(rows), np.bool_), {arm.name: lists for arm, lists in task.arms.items()}
    for fold in np.unique(task.fold[rows]):
        others, held = np.flatnonzero(task.fold != fold), np.flatnonzero(task.fold[rows] == fold)
        listed = np.unique(np.concatenate([own[name].take(others).ids for name in names]))
        positives = task.positives.take(rows[held])
        flags[held] = np.bincount(positives.rows, np.isin(positives.ids, listed), len(held)) > 0
    return flags


def listed_effect(listed: Flags, values: dict[str, Floats], group: Index, fold: Index) -> Gap:
    """Outcome of a query under a source that lists a relevant passage of it, less that under one that does not.

    listed : (K, n) by source and query. Least squares with an effect of each query, and of each source in each fold,
    so that neither hard queries nor good sources and runs are in it; the error is that of the groups.
    """
    x, y = listed.astype(np.float64), np.stack([own.mean(axis=0) for own in values.values()])
    for name in np.unique(fold):
        own = fold == name
        for side in (x, y):
            part = side[:, own] - side[:, own].mean(axis=0)
            side[:, own] = part - part.mean(axis=1, keepdims=True)
    effect, scale = float((x * y).sum() / (x**2).sum()), x.shape[1] / (x**2).sum()
    return gap((effect + scale * ((y - effect * x) * x).sum(axis=0))[None], group, None)


def error_covariance(values: dict[str, Floats], group: Index, runs: BetweenRuns | None) -> Floats:
    """(K, K) of the sources' mean outcomes, from queries by group and, one by one, from runs."""
    by_query = np.stack([own.mean(axis=0) for own in values.values()])
    n_groups = len(np.unique(group))
    rest = (by_query - by_query.mean(axis=1, keepdims=True)) / by_query.shape[1]
    sums = np.stack([np.bincount(group, own) for own in rest])
    of_runs = 0.0 if runs is None else max(0.0, runs.variance) / 2 / len(next(iter(values.values())))
    covariance: Floats = sums @ sums.T * n_groups / (n_groups - 1) + of_runs * np.eye(len(values))
    return covariance


def equal_p(means: Floats, covariance: Floats) -> float:
    """p of all sources being equal: one test of what they share, however many pairs they form (chi squared)."""
    contrasts = np.eye(len(means))[1:] - np.eye(len(means))[0]
    found = contrasts @ means
    return float(chdtrc(len(found), found @ np.linalg.solve(contrasts @ covariance @ contrasts.T, found)))


def strongest_p(slopes: Floats, means: Floats, covariance: Floats) -> float:
    """How often the largest of M slopes, over its error, would be as large as found, were all sources equal.

    slopes : (M, K) weights of the sources' means in each. 20,000 draws.
    """
    scaled = slopes / np.sqrt(np.einsum("mk,kl,ml->m", slopes, covariance, slopes))[:, None]
    draws = np.random.default_rng(0).multivariate_normal(np.zeros(len(means)), covariance, 20_000)
    return float((np.abs(draws @ scaled.T).max(axis=1) >= np.abs(scaled @ means).max()).mean())


def tau_ceiling(true: Floats, covariance: Floats) -> float:
    """Mean tau of the true order with outcomes as noisy as these; 1,000 draws. true : (K,) mean outcomes."""
    draws = np.random.default_rng(0).multivariate_normal(true, covariance, 1_000)
    return float(np.mean([kendall_tau_b(true, found) or 0.0 for found in draws]))


def true_spread(means: Floats, covariance: Floats) -> Floats:
    """(K,) means drawn together, to the spread that is left when what the errors make of it is taken off; or none."""
    off = means - means.mean()
    of_errors = float(np.trace(covariance) - covariance.mean(axis=1).sum())
    true: Floats = means.mean() + off * sqrt(max(0.0, 1.0 - of_errors / float((off**2).sum())))
    return true


def judged(arguments: argparse.Namespace) -> None:
    """Prints gains with both errors, the pairs, the runs that a difference would take, and how the numbers agree."""
    collection = Path(arguments.collection).name
    with tempfile.TemporaryDirectory() as folder:
        task = task_of(arguments.sources, settings_of(arguments), arguments.folds, Path(folder))
    values, frozen, rows = outcomes(task, arguments)
    group, fold = task.group[rows], task.fold[rows]
    n_seeds = len(next(iter(values.values())))
    print(
        f"{collection}: {len(rows)} queries in {len(np.unique(group))} groups, {len(np.unique(fold))} folds, "
        f"seeds: {n_seeds}"
    )
    print(f"\n| source | nDCG@10 | gain | 95 % CI | error, queries | error, runs | tie |\n|{7 * '---|'}")
    judge = Judge({Arm(name): own for name, own in values.items()}, group, fold)
    pairs, ties = judge.pairs()
    gains = judge.gains(frozen)
    print(f"| frozen | {frozen.mean():.4f} | | | | | |")
    for name in sorted(values, key=lambda name: -values[name].mean()):
        own = gains[Arm(name)]
        ends = "" if own.interval_95 is None else "{:+.4f} to {:+.4f}".format(*own.interval_95)
        of_runs = "" if own.error_runs is None else f"{own.error_runs:.4f}"
        print(
            f"| {name} | {values[name].mean():.4f} | {own.value:+.4f} | {ends} | {own.error_queries:.4f} | {of_runs} | "
            f"{ties[name]} |"
        )
    print(f"\n| pair | difference | error | error of runs | seeds for 0.005 | p (Holm) |\n|{6 * '---|'}")
    for pair in pairs:
        between, p = pair.gap.error_runs or 0.0, pair.p_holm
        print(
            f"| {pair.first} − {pair.second} | {pair.gap.value:+.4f} | {pair.gap.standard_error:.4f} | {between:.4f} | "
            f"{seeds_needed(values[pair.first] - values[pair.second], group, pair.gap)} | "
            f"{'' if p is None else f'{p:.3f}'} |"
        )
    known = seen(task, rows, task.negatives)
    print(f"\n| gain | {known.sum()} queries with a relevant passage among the negatives | {(~known).sum()} without |")
    print(f"|---|---|---|\n| frozen: nDCG@10 | {frozen[known].mean():.4f} | {frozen[~known].mean():.4f} |")
    for name, values_of in values.items():
        gain = (values_of - frozen).mean(axis=0)
        print(f"| {name} | {gain[known].mean():+.4f} | {gain[~known].mean():+.4f} |")
    item = listed_effect(np.stack([seen(task, rows, [name]) for name in values]), values, group, fold)
    print(
        "\nnDCG@10 of a query under sources that list a relevant passage of it for others, less that under sources "
        f"that do not, at equal query and source: {item.value:+.4f} ± {item.standard_error:.4f}"
    )
    established = [(pair.first, pair.second) for pair in pairs if pair.established]
    runs = between_runs(np.stack([*{own.tobytes(): own for own in values.values()}.values()]), fold)
    means, covariance = np.array([own.mean() for own in values.values()]), error_covariance(values, group, runs)
    equal = equal_p(means, covariance)
    print(f"\n{len(established)} of {len(pairs)} pairs established; p of all sources being equal: {equal:.3f}\n")
    print(
        "| number | established pairs in order | all pairs in order | top-1 regret | τ | slope ± error | p "
        "| slope without random | p |"
    )
    print(f"|{9 * '---|'}")
    mean = {name: float(own.mean()) for name, own in values.items()}
    for seed in range(n_seeds if n_seeds > 1 else 0):
        one = {name: float(own[seed].mean()) for name, own in values.items()}
        others = {name: float(np.delete(own, seed, axis=0).mean()) for name, own in values.items()}
        print(f"| the probe with seed {seed}, against the other seeds {agreement(one, others, established)} | | | | |")
    everything, mined = np.ones(len(values), np.bool_), np.array([name != "random" for name in values])
    slopes: dict[bool, list[Floats]] = {True: [], False: []}
    for name, of_source in numbers_of(arguments, list(values)).items():
        cells = agreement(of_source, mean, established)
        for with_random, among in ((True, everything), (False, mined)):
            weights = slope_weights(np.array([of_source[name] for name in values]), among)
            if weights is None:
                cells += " | |"
                continue
            slopes[with_random].append(weights)
            of_slope = slope(weights, values, group, runs)
            p = "" if of_slope.p is None else f"{of_slope.p:.3f}"
            cells += f" | {of_slope.value:+.4f} ± {of_slope.standard_error:.4f} | {p}"
        print(f"| {name} {cells} |")
    for with_random, own in slopes.items():
        strongest = strongest_p(np.stack(own), means, covariance)
        print(
            f"\np of the strongest slope among these {len(own)}, {'with' if with_random else 'without'} random, were "
            f"all sources equal: {strongest:.3f}"
        )
    of_errors = tau_ceiling(true_spread(means, covariance), covariance)
    print(f"\nceiling of τ: {tau_ceiling(means, covariance):.2f} were the means found the true ones")
    print(f"ceiling of τ: {of_errors:.2f} with what the errors make of their spread taken off")


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


def slope(weights: Floats, values: dict[str, Floats], group: Index, runs: BetweenRuns | None) -> Gap:
    """nDCG@10 that a source gains where its number is one standard deviation of the sources' numbers higher.

    One test over these sources, with the error of queries and of runs: it needs no pair to be established, and says
    nothing of other sources.
    """
    of_runs = runs and BetweenRuns(runs.variance / 2 * float((weights**2).sum()), runs.degrees)
    return gap(np.tensordot(weights, np.stack([*values.values()]), axes=1), group, of_runs)


def seeds_needed(differences: Floats, group: Index, of_means: Gap) -> str:
    """Seeds in every fold with which a difference of 0.005 is two standard errors; "–" where none is enough.

    differences : (S, n) by seed and query. What two seeds share of a query's difference (the covariance of their sums
    by group) stays; the rest of the error of the queries falls with the number of seeds, as that of the runs does.
    """
    n_seeds, n = differences.shape
    if of_means.error_runs is None:
        return ""
    n_groups = len(np.unique(group))
    rest = (differences - differences.mean(axis=1, keepdims=True)) / n
    sums = np.stack([np.bincount(group, own) for own in rest])
    covariance = sums @ sums.T * n_groups / (n_groups - 1)
    stays = max(0.0, float(covariance[~np.eye(n_seeds, dtype=np.bool_)].mean()))
    falls = float(np.diag(covariance).mean()) - stays + n_seeds * of_means.error_runs**2
    left = 0.0025**2 - stays
    return "–" if left <= 0 else str(max(1, ceil(falls / left)))


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
    {"train": train, "guide": write_guide, "judge": judged}[arguments.command](arguments)


if __name__ == "__main__":
    main()
