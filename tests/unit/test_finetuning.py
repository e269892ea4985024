"""Test that docs/experiments/finetuning.py finds a planted effect in random numbers, and none in noise."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from argparse import Namespace
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from secid.tools.probing.task import NegativeSource

NAMES = ["bm25", "dense", "dense95", "random"]
N = 600
FOLD, GROUP = np.arange(N) % 3, np.arange(N)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[2] / "docs" / "experiments" / "finetuning.py"
    spec = importlib.util.spec_from_file_location("finetuning_experiment", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def outcomes(script: ModuleType, seed: int, *means: float, n_seeds: int = 3, of_runs: float = 0.0):
    """Outcomes of four sources with these means, and noise: of queries, of runs, and the rest."""
    draws = np.random.default_rng(seed)
    noise = draws.normal(0, 0.3, N) + draws.normal(0, 0.05, (4, n_seeds, N))
    noise += draws.normal(0, of_runs, (4, n_seeds, 3))[:, :, FOLD]
    values = np.array(means)[:, None, None] + noise
    return script.Outcomes(NAMES, values, np.zeros(N), np.arange(N), FOLD, GROUP)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        ((0.6, 0.63, 0.6, 0.6), (0.6, 0.57, 0.6, 0.6), "the sign flips"),
        ((0.6, 0.63, 0.6, 0.6), (0.6, 0.60, 0.6, 0.6), "D moves"),
        ((0.6, 0.63, 0.6, 0.6), (0.6, 0.63, 0.6, 0.6), "nothing is shown"),
        ((0.6, 0.60, 0.6, 0.6), (0.6, 0.60, 0.6, 0.6), "nothing is shown"),
    ],
)
def test_a_flip_is_found_only_where_it_was_planted(script, low, high, verdict):
    said = script.flip(outcomes(script, 1, *low), outcomes(script, 2, *high), "dense", "random")
    assert said.startswith(verdict)


def test_a_change_of_sign_within_the_error_of_runs_is_not_shown(script):
    low = outcomes(script, 1, 0.6, 0.62, 0.6, 0.6, of_runs=0.03)
    high = outcomes(script, 2, 0.6, 0.58, 0.6, 0.6, of_runs=0.03)
    assert script.flip(low, high, "dense", "random").startswith("nothing is shown")


def test_regret_is_established_only_beyond_the_errors(script):
    def said(*means: tuple[float, ...], of_runs: float = 0.0) -> str:
        doses = [outcomes(script, seed, *own, of_runs=of_runs) for seed, own in enumerate(means)]
        return script.smallest_regret(doses, "dense95")

    assert said((0.5, 0.62, 0.6, 0.5), (0.5, 0.5, 0.6, 0.62)).startswith("dense95 keeps the smallest, established")
    assert "does not keep" in said((0.5, 0.6, 0.5, 0.5), (0.5, 0.6, 0.5, 0.5))
    near = (0.6, 0.6, 0.601, 0.6), (0.6, 0.6, 0.601, 0.6)
    assert said(*near).startswith("dense95 keeps the smallest, not established")
    above = (0.6, 0.6, 0.615, 0.6), (0.6, 0.6, 0.615, 0.6)
    assert said(*above).startswith("dense95 keeps the smallest, established")
    runs_differ = said(*above, of_runs=0.02)
    assert runs_differ.startswith("dense95 keeps the smallest, not established")


def test_one_seed_judges_nothing(script):
    one = [outcomes(script, seed, 0.5, 0.7, 0.6, 0.5, n_seeds=1) for seed in (1, 2)]
    assert script.flip(*one, "dense", "random").startswith("not judged")
    assert script.smallest_regret(one, "dense95").startswith("not judged")


def test_worst_regret_by_hand(script):
    means = np.array([[0.5, 0.7], [0.8, 0.4]])
    assert script.worst_regret(means) == pytest.approx([0.2, 0.4])


def test_part_of_the_runs_is_judged_where_all_sources_have_them(script):
    rates = (5e-5, 2e-4)

    def choice(*runs: tuple[int, int], without: tuple[str, float, int, int] | None = None):
        done = {(name, rate, *own) for own in runs for name in NAMES for rate in rates} - {without}
        return script.finished_by_all(done, NAMES, rates)

    assert choice() == ([], 1)
    assert script.finished_by_all([(None, 0.0, 0, 0)], [], rates) == ([], 1), "the frozen encoder alone"
    assert choice((0, 0), without=("dense", 2e-4, 0, 0)) == ([], 1)
    assert choice((0, 0), (1, 0)) == ([0], 2)
    assert choice((0, 0), (1, 0), (0, 1)) == ([0], 2), "two seeds have errors of runs"
    assert choice((0, 0), (1, 0), (0, 1), (1, 1), (2, 0)) == ([0, 1], 2)
    assert choice((0, 0), (0, 1), (1, 1)) == ([1], 2)
    assert choice((1, 0), (2, 0)) == ([], 1), "seeds count from the first"
    assert choice(*product(range(3), range(3))) == ([0, 1, 2], 3)


def test_runs_made_otherwise_are_not_read(script, tmp_path, capsys):
    task = SimpleNamespace(sources=dict.fromkeys(map(NegativeSource, NAMES)), fold=np.arange(6) % 2, group=np.arange(6))
    arguments = Namespace(
        collection="cosqa", encoder="minilm", tokens=96, bf16=True, folds=2, steps=60, passages="own",
        rates=[5e-5, 2e-4], runs=tmp_path / "runs.jsonl",
    )  # fmt: skip
    conditions = script.conditions_of(arguments)
    planned = [(None, 0.0, 0), *product(NAMES, arguments.rates, range(2))]

    def line(fold: int, source: str | None, rate: float, seed: int, **other: object) -> str:
        run = {"source": source, "rate": rate, "seed": seed, "fold": fold, "ndcg_10": [0.5] * 3}
        return json.dumps({**conditions, **run, **other})

    lines = [line(0, *run) for run in planned] + [line(1, *run, tokens=128) for run in planned]
    arguments.runs.write_text("\n".join(lines) + "\n")
    by_rate = script.read_outcomes(task, arguments)
    assert [own.values.shape for own in by_rate.values()] == [(4, 2, 3)] * 2
    assert re.match(r"16 runs of .*; judged: folds \[0\] with 2 seeds", capsys.readouterr().out)
    arguments.passages = "batch"
    with pytest.raises(SystemExit, match="no fold is finished"):
        script.read_outcomes(task, arguments)
