"""Test which passages a step compares under each loss, and what a guide leaves out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from secid.encode.transformer import TransformerEncoder
from secid.progress import Silent
from secid.settings import Settings
from secid.tools.probing.learner import MAX_POSITIVES, Guidance, Objective, Step, TrainingRun, steps_of
from secid.tools.probing.options import PASSAGE_CHOICES
from secid.tools.probing.task import NegativeSource, RowLists, Task


def steps(task: Task, loss: str, passages: str, n: int = 6, guide: Guidance | None = None) -> list[Step]:
    """Return the first n steps of five rows."""
    batches = steps_of(
        task,
        task.sources[NegativeSource("hard")],
        TrainingRun(NegativeSource("hard"), 0, 0, 1e-3),
        5,
        Objective(loss, passages, guide),
    )
    return [step for step, _ in zip(batches, range(n), strict=False)]


@pytest.fixture
def several(task: Task) -> Task:
    """Return rows with ten labelled positives each, nine of them shared with the neighbouring rows."""
    n = len(task.query)
    ids = np.concatenate([task.positives.ids[(row + np.arange(10)) % n] for row in range(n)])
    return replace(task, positives=RowLists.of_counts(ids, [10] * n))


@pytest.mark.parametrize("passages", PASSAGE_CHOICES)
@pytest.mark.parametrize("loss", ["infonce", "joint"])
def test_a_step_compares_what_the_labels_and_the_options_say(several: Task, loss: str, passages: str) -> None:
    row_of = {text: row for row, text in enumerate(several.queries.take(several.query))}
    for step in steps(several, loss, passages):
        b = len(step.queries)
        n_positives = MAX_POSITIVES if loss == "joint" else 1
        assert step.sides.positive.sum(axis=1).tolist() == [n_positives] * b
        assert len(step.passages) == b + b * n_positives
        for i, query in enumerate(step.queries):
            labelled = set(several.passages.take(several.positives.of(row_of[query])))
            own = [text for text, flag in zip(step.passages, step.sides.positive[i], strict=True) if flag]
            assert set(own) <= labelled
            assert len(set(own)) == len(own)
            others = [step.passages[j] for j in np.flatnonzero(step.sides.negative[i]) if j != b + i]
            assert step.sides.negative[i, b + i]
            assert not labelled & set(others)
            if passages == "own":
                assert others == []
            else:
                expected = [
                    text
                    for j, text in enumerate(step.passages)
                    if not step.sides.positive[i, j] and j != b + i and text not in labelled
                ]
                assert others == expected


def test_other_losses_and_passages_meet_the_same_rows_and_negatives(several: Task) -> None:
    base = steps(several, "infonce", "batch")
    for loss, passages in (("joint", "batch"), ("mw", "own"), ("infonce", "own")):
        for one, other in zip(base, steps(several, loss, passages), strict=True):
            b = len(one.queries)
            assert (one.queries, one.passages[: 2 * b]) == (other.queries, other.passages[: 2 * b])


def test_a_guide_masks_what_it_scores_above_the_positive(
    task: Task, encoder: TransformerEncoder, tmp_path: Path
) -> None:
    settings = Settings(device="cpu", cache=False, guide="any")
    guide = Guidance(task, encoder, settings, tmp_path / "guide", Silent())
    (step,) = steps(task, "gist", "batch", n=1, guide=guide)
    queries = encoder.encode(step.queries, "query").astype(np.float64)
    texts = encoder.encode(step.passages, "passage").astype(np.float64)
    scores = queries @ texts.T / np.linalg.norm(queries, axis=1)[:, None] / np.linalg.norm(texts, axis=1)
    own = np.diag(scores)[:, None]
    near = np.abs(scores - own) < 1e-4
    assert step.sides.masked is not None
    assert (near | (step.sides.masked == (scores > own))).all()
    assert not np.diag(step.sides.masked).any()  # the positive equals itself
    assert 0 < step.sides.masked[step.sides.negative].mean() < 1
