"""Finished training runs: resumed after SIGKILL, damaged, and never taken for those of other settings."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from secid.encode import CacheFolder
from secid.encode.transformer import TransformerEncoder
from secid.progress import Silent
from secid.results.probe import Probe
from secid.settings import Settings
from secid.tools.probing import learner, schedule
from secid.tools.probing.learner import TrainingRun
from secid.tools.probing.options import Options
from secid.tools.probing.run import run_probe
from secid.tools.probing.schedule import TrainingFiles
from secid.tools.probing.task import NegativeSource, RowLists, Task
from tests.kills import fork
from tests.tiny_probe import PLANTED, before_each_run, keyed_task, probe_planted, tiny_encoder

QUICK = replace(PLANTED, steps=1)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[TrainingRun]:
    """Record the training runs, in order."""
    done: list[TrainingRun] = []
    before_each_run(monkeypatch, lambda _, run: done.append(run))
    return done


def settings_of(folder: Path, **more: Any) -> Settings:
    return Settings(device="cpu", cache_dir=str(folder / "cache"), **more)


def probed(task: Task, encoder: Any, folder: Path, options: Options = QUICK, **more: Any) -> Probe:
    return run_probe(task, encoder, settings_of(folder, **more), options, Silent(), {})


def files(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "probes").glob("*.json"))


def test_a_killed_probe_resumes_with_the_same_table(tmp_path: Path, runs: list[TrainingRun]) -> None:
    tiny_encoder(tmp_path / "encoder")
    child = fork([], tmp_path, tmp_path / "said", probe_planted)
    end = time.monotonic() + 120
    while len(files(tmp_path)) < 4:
        assert child.poll() is None, child.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert child.returncode == -signal.SIGKILL, "it was not done before"
    n_kept = len(files(tmp_path))
    task, encoder = keyed_task(tmp_path / "own"), tiny_encoder(tmp_path / "encoder")
    resumed = probed(task, encoder, tmp_path, PLANTED)
    assert 0 < len(runs) <= 2 + 2 * 2 * 3 - n_kept, "hard is trained once under both of its names"
    runs.clear()
    assert resumed == probed(task, encoder, tmp_path, PLANTED, cache=False)
    assert len(runs) == 2 + 2 * 2 * 3


def test_a_probe_that_is_done_trains_nothing(
    task: Task, encoder: TransformerEncoder, tmp_path: Path, runs: list[TrainingRun]
) -> None:
    first = probed(task, encoder, tmp_path)
    runs.clear()
    assert probed(task, encoder, tmp_path) == first
    assert runs == []
    assert CacheFolder.of(settings_of(tmp_path)).info().n_trainings == len(files(tmp_path)) > 0


DAMAGES: list[Callable[[str], str]] = [
    lambda text: "", lambda text: text[:-9], lambda text: text.replace("[[", "[[7"),
    lambda text: text.replace("0.", "NaN, 0.", 1), lambda text: text.split("\n")[1],
]  # fmt: skip


def test_a_damaged_file_is_trained_again(
    task: Task, encoder: TransformerEncoder, tmp_path: Path, runs: list[TrainingRun]
) -> None:
    small = replace(task, negatives={"hard": task.negatives["hard"]}, controls={})
    first = probed(small, encoder, tmp_path)
    victim = files(tmp_path)[0]
    before = victim.read_text(encoding="utf-8")
    for place, damage in enumerate(DAMAGES):
        runs.clear()
        victim.write_text(damage(before), encoding="utf-8")
        assert probed(small, encoder, tmp_path) == first, place
        assert len(runs) == 1, place
        assert victim.read_text(encoding="utf-8") == before, place


def test_a_folder_that_cannot_be_written_costs_no_result(
    task: Task, encoder: TransformerEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "probes").write_text("a file where the folder would be", encoding="utf-8")
    assert probed(task, encoder, tmp_path).n_held_out == 120
    monkeypatch.setattr(encoder, "info", replace(encoder.info, fingerprint=""))
    assert probed(task, encoder, tmp_path / "unknown").n_held_out == 120
    assert files(tmp_path / "unknown") == []


def name_of(
    task: Task, rows: np.ndarray, parts: list[object] | None = None, source: str = "hard", run: Any = None
) -> str:
    """Return the name of a training run."""
    held = {0: learner.HeldOut(rows, None, None, rows, rows)}  # type: ignore[arg-type]
    own = TrainingFiles(task, held, Settings(cache_dir="/nowhere"), parts or ["fingerprint", 12, 2, 0.05])
    return own.name(run or TrainingRun(NegativeSource(source), 0, 0, 3e-3))


def moved(lists: RowLists) -> RowLists:
    """Return the lists with the first two passages swapped."""
    return replace(lists, ids=np.concatenate([lists.ids[1::-1], lists.ids[2:]]))


def test_each_part_of_a_training_changes_its_name(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(50)
    expected = name_of(task, rows)
    assert name_of(task, rows, source="again") == expected, "what is trained on decides, not what it is called"
    hard, swapped = task.negatives["hard"], moved(task.positives)
    others = {
        "negatives": name_of(replace(task, negatives={"hard": moved(hard)}), rows),
        "offsets": name_of(replace(task, negatives={"hard": RowLists(hard.ids, hard.offsets - 1)}), rows),
        "positives": name_of(replace(task, positives=swapped), rows),
        "grouped": name_of(replace(task, positives=RowLists(task.positives.ids, task.positives.offsets + 1)), rows),
        "fold": name_of(replace(task, fold=1 - task.fold), rows),
        "candidates": name_of(replace(task, candidates=task.candidates[1:]), rows),
        "queries": name_of(replace(task, query=task.query[::-1]), rows),
        "ranked": name_of(task, rows[1:]),
        "seed": name_of(task, rows, run=TrainingRun(NegativeSource("hard"), 0, 1, 3e-3)),
        "held out": name_of(task, rows, run=TrainingRun(NegativeSource("hard"), 1, 0, 3e-3)),
        "rate": name_of(task, rows, run=TrainingRun(NegativeSource("hard"), 0, 0, 1e-3)),
        "frozen": name_of(task, rows, run=TrainingRun(None, 0, 0, 3e-3)),
        "source": name_of(task, rows, source="easy"),
        "part": name_of(task, rows, ["fingerprint", 12, 2, 0.06]),
    }
    monkeypatch.setattr(schedule, "TRAINING_VERSION", (2, "2.9"))
    others["recipe"] = name_of(task, rows)
    assert expected not in others.values()
    assert len(set(others.values())) == len(others)


OTHERS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"steps": 2}, {}, {}), ({"batch": 3}, {}, {}), ({"lora": True}, {}, {}), ({}, {"temperature": 0.06}, {}),
    ({"loss": "mw"}, {}, {}), ({"passages": "own"}, {}, {}),
    ({}, {"dtype": "bf16"}, {}), ({}, {}, {"passage_prefix": "text: "}),
]  # fmt: skip


def test_other_settings_use_no_kept_training(task: Task, folder: Path, tmp_path: Path, runs: list[TrainingRun]) -> None:
    one = replace(task, negatives={"hard": task.negatives["hard"]}, controls={})
    short = replace(QUICK, n_seeds=1)
    probed(one, tiny_encoder(folder), tmp_path, short)
    folds = {run.fold for run in runs if run.source}
    for options, settings, recipe in OTHERS:
        runs.clear()
        probed(one, tiny_encoder(folder, **recipe), tmp_path, replace(short, **options), **settings)
        assert {run.fold for run in runs if run.source} == folds, (options, settings, recipe)


def test_clearing_the_cache_removes_trainings_and_no_other_file(
    task: Task, encoder: TransformerEncoder, tmp_path: Path
) -> None:
    probed(task, encoder, tmp_path)
    other = tmp_path / "cache" / "probes" / "notes.json"
    other.write_text("mine", encoding="utf-8")
    folder = CacheFolder.of(settings_of(tmp_path))
    n_bytes = sum(path.stat().st_size for path in files(tmp_path) if path != other)
    assert folder.clear().n_bytes_freed >= n_bytes > 0
    assert files(tmp_path) == [other]
    assert folder.info().n_trainings == 0
