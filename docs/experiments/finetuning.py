"""Short fine-tunings of one encoder on several sources, folds and seeds: nDCG@10 of every held-out query.

    python docs/experiments/finetuning.py train COLLECTION SOURCE… --out RUNS.jsonl [--steps 60] [--seeds 3] [--bf16]

COLLECTION is a BEIR folder, and each SOURCE a file of its documents by id. The code is that of `secid probe`: folds by
shared relevant documents, the same batches for every source. Each finished run is one line of RUNS.jsonl, so that the
same command goes on where it was stopped, and several processes can share the file. Results: finetuning.md.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from secid.encode import load
from secid.encode.transformer import TransformerEncoder
from secid.pool import Plan
from secid.pool.reading import read_plan
from secid.probing.learner import Learner
from secid.probing.task import Task, make_task
from secid.probing.training import Setting, Work, held_out, run
from secid.progress import Silent
from secid.read import resolve_sources
from secid.read.collection import open_collection
from secid.settings import Settings, resolve

BATCH = 32


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The finished runs of a file; none where it is missing."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def name_of(work: Work, collection: str, steps: int) -> str:
    """A run's name: what decides its numbers."""
    return f"{collection} {work.source or 'frozen'} fold {work.fold} seed {work.seed} rate {work.rate:g} steps {steps}"


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
            for source in (*task.negatives, *task.controls):
                yield Work(source, fold, seed, arguments.rate)


def train(arguments: argparse.Namespace) -> None:
    """Does the runs that no process has done or begun. After a kill, remove the .claims file first."""
    settings = resolve({"encoder": arguments.encoder, "max_length": 128, "collection": arguments.collection}).values
    torch.set_num_threads(arguments.threads)
    collection = Path(arguments.collection).name
    with tempfile.TemporaryDirectory() as folder:
        task = task_of(arguments.sources, settings, arguments.folds, Path(folder))
        encoder = load(settings)
        assert isinstance(encoder, TransformerEncoder)
        learner = Learner(encoder, torch.device(arguments.device), lora=False, bf16=arguments.bf16)
        candidates = learner.tokens(task.passages.take(task.candidates), "passage")
        chosen = np.arange(len(task.query))
        setting = Setting(arguments.steps, BATCH, settings.temperature)
        for work in works(task, arguments):
            name = name_of(work, collection, arguments.steps)
            if not claimed(arguments.out, name):
                continue
            start = time.time()
            values = run(
                learner, task, held_out(task, work.fold, chosen, candidates, learner), work, setting, lambda: None
            )
            line = {"run": name, "collection": collection, **work._asdict(), "steps": arguments.steps}
            line["ndcg_10"] = values[:, 0].round(5).tolist()
            with arguments.out.open("a", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
            print(f"{name}: nDCG@10 {values[:, 0].mean():.4f} in {time.time() - start:.0f} s", flush=True)


def task_of(sources: list[str], settings: Settings, n_folds: int, folder: Path) -> Task:
    """The queries that all sources have, in folds."""
    tasks: list[Task] = []

    def look(plan: Plan) -> None:
        tasks.append(make_task(plan, open_collection(settings), folder, 0, n_folds))

    read_plan(resolve_sources(sources, settings), settings, folder, Silent(), look=look)[0].close()
    return tasks[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("train")
    command.set_defaults(main=train)
    command.add_argument("collection")
    command.add_argument("sources", nargs="+")
    command.add_argument("--out", type=Path, required=True)
    command.add_argument("--encoder", default="minilm")
    command.add_argument("--device", default="cpu")
    command.add_argument("--steps", type=int, default=60)
    command.add_argument("--seeds", type=int, default=3)
    command.add_argument("--folds", type=int, default=3)
    command.add_argument("--rate", type=float, default=5e-5)
    command.add_argument("--threads", type=int, default=1)
    command.add_argument("--bf16", action="store_true")
    arguments = parser.parse_args()
    arguments.main(arguments)


if __name__ == "__main__":
    main()
