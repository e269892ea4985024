"""Make probe tasks that take seconds, from rows in memory, and an encoder small enough to train."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from secid.encode import load
from secid.encode.transformer import TransformerEncoder
from secid.progress import Silent
from secid.read import resolve_sources
from secid.settings import Settings
from secid.tools.probing import learner as training
from secid.tools.probing import schedule
from secid.tools.probing.learner import TrainingRun
from secid.tools.probing.options import Options
from secid.tools.probing.run import run_probe
from secid.tools.probing.task import Task, read_task
from tests.tiny_bert import save_tiny_bert

Row = tuple[str, Sequence[str], Sequence[str]]
"""A query, its positives and its negatives."""

KEYS = {"a": "t", "b": "u", "c": "v", "d": "w", "e": "x", "f": "y"}
"""Spelling of a key in queries, and in passages."""
TOPICS = ["ghij", "hkli", "klmn", "mgop", "opqr", "rsgh", "qmik", "nlps", "jrqo", "shnk",
          "gggl", "hhhm", "iiin", "jjjo", "kkkp", "lllq", "mmmr", "nnns", "ooog", "ppph"]  # fmt: skip


def write_source(path: Path, rows: Sequence[Row]) -> Path:
    """Write a source to a file."""
    lines = [json.dumps({"query": query, "positives": pos, "negatives": neg}) for query, pos, neg in rows]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def task_of(folder: Path, sources: Mapping[str, Sequence[Row]], seed: int = 0, n_folds: int = 3) -> Task:
    """Write sources in this order, and return their task."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [str(write_source(folder / f"{name}.jsonl", rows)) for name, rows in sources.items()]
    settings = Settings(format="lists", seed=seed)
    return read_task(resolve_sources(paths), settings, folder, Silent(), n_folds)[0]


def keyed_rows(hard: bool) -> list[Row]:
    """Return 120 rows with a topic and a key. Query and passage spell the key differently, so an untrained encoder
    recognises only the topic. hard : negatives with the same topic and other keys, which teach the spelling. Otherwise
    all negatives are one text without a topic, which teaches nothing.
    """
    rows: list[Row] = []
    for topic in TOPICS:
        for key, spelling in KEYS.items():
            others = [f"{topic} {other}" for other in KEYS.values() if other != spelling]
            rows.append((f"{topic} {key}", [f"{topic} {spelling}"], others if hard else ["zzzz 9"]))
    return rows


def tiny_encoder(folder: Path, **settings: Any) -> TransformerEncoder:
    """Load a tiny BERT, and write its files first if they are missing."""
    if not folder.exists():
        save_tiny_bert(folder, width=32, layers=1)
    encoder = load(Settings(encoder=str(folder), **{"device": "cpu", "cache": False, **settings}))
    assert isinstance(encoder, TransformerEncoder)
    return encoder


def keyed_task(folder: Path) -> Task:
    """Return the task of a source with informative negatives, one without, and a copy of the first; two folds."""
    hard, easy = keyed_rows(True), keyed_rows(False)
    return task_of(folder, {"hard": hard, "easy": easy, "again": hard}, n_folds=2)


PLANTED = Options(
    steps=6, n_seeds=2, n_folds=2, batch=2, n_held_out=500, lora=False, rates=(3e-3,), loss="infonce", passages="batch"
)
"""With two queries per batch, an encoder learns the keys almost only from the source's negatives."""


def before_each_run(patch: pytest.MonkeyPatch, act: Callable[[Any, TrainingRun], Any]) -> None:
    """Call a function before each training run. act : function of learner and run."""
    real = training.train_and_rank

    def train_and_rank(learner: Any, task: Task, held: Any, run: TrainingRun, *rest: Any) -> Any:
        act(learner, run)
        return real(learner, task, held, run, *rest)

    patch.setattr(schedule, "train_and_rank", train_and_rank)


def probe_planted(_: list[str]) -> None:
    """Probe `keyed_task` with a cache in the working directory. A test kills the process that runs this."""
    import torch

    torch.set_num_threads(1)
    home = Path.cwd()
    settings = Settings(device="cpu", cache_dir=str(home / "cache"))
    run_probe(keyed_task(home / "child"), tiny_encoder(home / "encoder"), settings, PLANTED, Silent(), {})
