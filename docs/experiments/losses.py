"""Compare the Mann-Whitney loss and LSEPair with InfoNCE on one source, with a small student.

    python docs/experiments/losses.py run COLLECTION… --results losses.jsonl
    python docs/experiments/losses.py judge --results losses.jsonl

COLLECTION is a BEIR folder. The student, folds, batches of 64 rows, AdamW, warm-up and the number of steps are those of
dose.py; losses and the choice of positives are those of `secid probe`. The rules below were fixed before the first run:

Source: dense passages below 95 % of the positive, ten per query, mined by the student itself; one of the ten per row
and step. Positives: one drawn at each step for InfoNCE, up to eight for the other two. Rates: 5e-4 and 2e-3, with own
negatives only and with in-batch passages; three folds and five seeds, the same for all losses.

Outcomes: nDCG@10 of the held-out queries, and the pooled AUC: of all pairs of a held-out query's positive and any
held-out query's other ranked passage, the share in the right order. Judged by: the difference from InfoNCE. In
nDCG@10 it has an interval from queries (clustered by group) and runs, as in the probe; in AUC only from runs (five
seeds). There are 2 losses x 4 doses differences per collection. A difference counts if its Holm p over all
differences of that outcome is below 0.05. With one labelled positive per query, LSEPair equals InfoNCE and is omitted.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize

sys.path.insert(0, str(Path(__file__).parent))
import dose

from secid.measure.uncertainty import holm
from secid.tools.probing.judge import BetweenRuns, between_runs, gap
from secid.tools.probing.learner import MAX_POSITIVES, Sides, training_loss

Array = Any
CELL = ("collection", "passages", "rate")
"""Fields that name a line of the results."""
LOSSES = ("infonce", "mw", "lsepair")
RATES = (5e-4, 2e-3)
SOURCE = "dense95"
LEVEL = 0.05


def positives_of(collection: dose.Collection, fold: dose.Fold) -> list[Array]:
    """Return each training row's labelled passages that the fold may train on."""
    whole = len(fold.ranked) == len(collection.passages)
    held = np.zeros(0, np.int64) if whole else fold.ranked
    return [ids[~np.isin(ids, held)] for ids in (collection.positives[row] for row in fold.rows)]


def train(
    vectors: dose.Vectors,
    relevant: Array,
    fold: dose.Fold,
    positives: list[Array],
    negatives: Array,
    loss: str,
    passages: str,
    rate: float,
    seed: int,
) -> Any:
    """(2, 1, 128, 128) maps of queries and passages after training. negatives : (R, 10)."""
    queries, texts = (torch.from_numpy(part).float() for part in vectors)
    n_rows = len(fold.rows)
    batch = min(dose.BATCH, n_rows)
    maps = torch.zeros(2, 1, dose.DIMENSION, dose.DIMENSION, requires_grad=True)
    optimizer, schedule, n_steps = dose.optimizer_of(maps, rate, n_rows)
    draws, more, order = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2]), np.zeros(0, np.int64)
    most = 1 if loss == "infonce" else MAX_POSITIVES
    for _ in range(n_steps):
        if len(order) < batch:
            order = draws.permutation(n_rows)
        rows, order = order[:batch], order[batch:]
        wrong = negatives[rows, draws.integers(0, dose.NEGATIVES, batch)]
        chosen = draws.random(batch)
        first = np.array(
            [positives[row][int(share * len(positives[row]))] for row, share in zip(rows, chosen, strict=True)]
        )
        others = [positives[row][positives[row] != one] for row, one in zip(rows, first, strict=True)]
        others = [own if len(own) < most else more.choice(own, most - 1, replace=False) for own in others]
        owner = np.repeat(np.arange(batch), list(map(len, others)))
        columns = np.concatenate([first, wrong, *others])
        sides = sides_of(relevant[fold.rows[rows][:, None], columns[None, :]], owner, passages)
        left, right = queries[fold.rows[rows]], texts[columns]
        left = normalize(left + left @ maps[0, 0], dim=1)
        right = normalize(right + right @ maps[1, 0], dim=1)
        value = training_loss(left, right, sides, loss, 1 / dose.SCALE)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
    return maps.detach()


def sides_of(labelled: Array, owner: Array, passages: str) -> Sides:
    """Return which columns are positives and negatives of each row: b positives, b negatives, then those of `owner`."""
    every = np.arange(len(labelled))
    own = np.concatenate([every, every, owner]) == every[:, None]
    positive = own.copy()
    positive[:, len(every) : 2 * len(every)] = False
    negative = own & ~positive
    return Sides(positive, negative if passages == "own" else negative | (~own & ~labelled))


def pooled_auc(vectors: dose.Vectors, relevant: Array, fold: dose.Fold, maps: Any) -> float:
    """Return the share of pairs of a held-out positive and another passage in the right order; ties count half."""
    queries = torch.from_numpy(vectors[0][fold.held]).float()
    texts = torch.from_numpy(vectors[1][fold.ranked]).float()
    scores = normalize(queries + queries @ maps[0, 0], dim=1) @ normalize(texts + texts @ maps[1, 0], dim=1).T
    labels = torch.from_numpy(relevant[np.ix_(fold.held, fold.ranked)])
    low = scores[~labels].sort().values
    below, above = (torch.searchsorted(low, scores[labels], right=side).double() for side in (False, True))
    return float((below + above).mean() / 2 / len(low))


def run(arguments: argparse.Namespace) -> None:
    """Train on the collections that are not yet in the results."""
    torch.set_num_threads(1)
    for folder in arguments.collections:
        done = {tuple(line[key] for key in CELL) for line in dose.read(arguments.results, CELL, resumes=True)}
        collection = dose.read_collection(folder)
        folds, group = dose.split(collection)
        relevant, student = collection.relevant, dose.student_vectors(collection)
        coverage, bm25 = dose.lexical(collection)
        lists = []
        for fold in folds:
            random = dose.drawn_passages(collection, fold, dose.NEGATIVES, 0)
            thirty = dose.drawn_passages(collection, fold, dose.HARDNESS_PASSAGES, 1)
            close = dose.Closeness.of(student, fold, coverage, thirty)
            lists.append(dose.mined(close, bm25, fold, random)[SOURCE])
        positives = [positives_of(collection, fold) for fold in folds]
        several = np.mean([len(own) > 1 for part in positives for own in part])
        for passages, rate in product(dose.PASSAGES, RATES):
            if (collection.name, passages, rate) in done:
                continue
            start = time.process_time()
            values: dict[str, list[list[Array]]] = {}
            aucs: dict[str, list[list[float]]] = {}
            for loss, seed in product(LOSSES, range(dose.SEEDS)):
                if loss == "lsepair" and not several:
                    continue
                own, areas = [], []
                for fold, negatives, part in zip(folds, lists, positives, strict=True):
                    maps = train(student, relevant, fold, part, negatives, loss, passages, rate, seed)
                    own.append(dose.rank(student, relevant, fold, maps)[0])
                    areas.append(pooled_auc(student, relevant, fold, maps))
                values.setdefault(loss, []).append(np.concatenate(own))
                aucs.setdefault(loss, []).append(areas)
            owner = group[np.concatenate([fold.held for fold in folds])]
            number = np.repeat(np.arange(len(folds)), [len(fold.held) for fold in folds])
            outcomes = {loss: np.stack(own) for loss, own in values.items()}
            line = {
                "collection": collection.name,
                "passages": passages,
                "rate": rate,
                "several_positives": round(float(several), 4),
                **summary(outcomes, owner, number),
                "auc": {loss: np.round(np.mean(own, axis=1), 6).tolist() for loss, own in aucs.items()},
                "cpu_seconds": round(time.process_time() - start, 1),
            }
            dose.append(arguments.results, line)
            means = ", ".join(f"{loss} {np.mean(own):.4f} {np.mean(aucs[loss]):.4f}" for loss, own in values.items())
            print(f"{collection.name} {passages} {rate:g}: {means}", flush=True)


def summary(outcomes: dict[str, Array], group: Array, fold: Array) -> dict[str, Any]:
    """Return the mean nDCG@10 of each loss, and its difference from InfoNCE. outcomes : (S, n) by seed and query."""
    base = outcomes["infonce"]
    differences = {}
    for loss, own in outcomes.items():
        if loss != "infonce":
            differences[loss] = asdict(gap(own - base, group, between_runs(np.stack([own, base]), fold)))
    means = {loss: round(float(own.mean()), 5) for loss, own in outcomes.items()}
    return {"n_queries": len(group), "n_groups": len(np.unique(group)), "ndcg_10": means, "difference": differences}


def judge(arguments: argparse.Namespace) -> None:
    """Print the table of losses.md."""
    found = []
    for line in dose.read(arguments.results, CELL):
        for loss, ndcg in line["difference"].items():
            apart = np.array(line["auc"][loss]) - np.array(line["auc"]["infonce"])
            auc = asdict(gap(apart[:, None].repeat(2, 1), np.arange(2), of_runs(apart)))
            bases = line["ndcg_10"]["infonce"], np.mean(line["auc"]["infonce"])
            found.append((line, loss, bases, (ndcg, auc)))
    adjusted = np.stack([holm(np.array([row[3][place]["p"] for row in found])) for place in (0, 1)], axis=1)
    print("| collection | passages | rate | loss | nDCG@10 of InfoNCE | difference | AUC of InfoNCE | difference |")
    print("|---|---|--:|---|--:|--:|--:|--:|")
    for (line, loss, bases, items), ps in zip(found, adjusted, strict=True):
        cells = []
        for base, item, p in zip(bases, items, ps, strict=True):
            low, high = item["interval_95"]
            text = f"{item['value']:+.4f} ± {(high - low) / 2:.4f}"
            cells += [f"{base:.4f}", f"**{text}**" if p < LEVEL else text]
        print(f"| {line['collection']} | {line['passages']} | {line['rate']:g} | {loss} | {' | '.join(cells)} |")


def of_runs(differences: Array) -> BetweenRuns:
    """Return the variance of one seed's difference, estimated from n seeds."""
    return BetweenRuns(float(np.var(differences, ddof=1)), len(differences) - 1)


def main() -> None:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("collections", nargs="+", type=Path)
    running.set_defaults(work=run)
    judging = commands.add_parser("judge")
    judging.set_defaults(work=judge)
    for part in (running, judging):
        part.add_argument("--results", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.work(arguments)


if __name__ == "__main__":
    main()
