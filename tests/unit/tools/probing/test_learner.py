"""Training: steps against a plain loop, the loss against sentence-transformers', memory, adapters, recipes, batches."""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.losses import MultipleNegativesRankingLoss
from torch import Tensor

from secid.encode.device import Replica
from secid.encode.transformer import TransformerEncoder
from secid.errors import EncoderError
from secid.progress import Silent
from secid.settings import Settings
from secid.tools.probing.learner import (
    MAX_GRADIENT_NORM,
    MAX_POSITIVES,
    WARM_UP_SHARE,
    WEIGHT_DECAY,
    DivergedError,
    Guidance,
    Learner,
    Objective,
    Sides,
    Step,
    TrainingRun,
    steps_of,
    training_loss,
)
from secid.tools.probing.options import PASSAGE_CHOICES
from secid.tools.probing.task import NegativeSource, RowLists, Task
from tests.snapshots import refusal
from tests.tiny_probe import tiny_encoder

CPU = torch.device("cpu")
QUERIES = ["gh a", "ik bc 7", "m", "what is it"]
PASSAGES = ["gh t 12", "ik u", "a longer text, of more words", "it", "gh u", "ik t", "m 1", "no"]
MASKED = np.zeros((4, 8), np.bool_)
MASKED[0, 5] = MASKED[2, 1] = True
POSITIVE = np.eye(4, 8, dtype=np.bool_)
STEP = Step(QUERIES, PASSAGES, Sides(POSITIVE, ~POSITIVE & ~MASKED))
TEMPERATURE = 0.05


def learner_of(encoder: TransformerEncoder, lora: bool = False) -> Learner:
    return Learner(encoder, CPU, lora, bf16=False, temperature=TEMPERATURE, loss="infonce")


def fit(learner: Learner, n_steps: int = 3, rate: float = 1e-3) -> None:
    learner.fit(repeat(STEP), n_steps, rate, lambda: None)


def rows_of(learner: Learner, texts: list[str] = PASSAGES) -> Tensor:
    return learner.rows(learner.tokens(texts, "passage"), "passage")


def unit_rows(seed: int, n: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(n, 8, generator=generator, dtype=torch.float64), dim=1)


def test_the_loss_is_that_of_sentence_transformers_where_nothing_is_masked(folder: Path) -> None:
    queries, passages = unit_rows(0, 5), unit_rows(1, 10)
    theirs = MultipleNegativesRankingLoss(SentenceTransformer(str(folder), device="cpu"), scale=1 / TEMPERATURE)
    expected = theirs.compute_loss_from_embeddings([queries, passages[:5], passages[5:]], torch.zeros(5))
    positive = np.eye(5, 10, dtype=np.bool_)
    every = Sides(positive, ~positive)
    loss = training_loss(queries, passages, every, "infonce", TEMPERATURE)
    assert abs(loss.item() - expected.item()) < 1e-6
    assert abs(training_loss(queries, passages, every, "infonce", 0.06).item() - expected.item()) > 0.01, "damage"


def plain_steps(folder: Path, n_steps: int, rate: float, clip: bool = True) -> dict[str, Tensor]:
    """Return the weights after steps written only with sentence-transformers and torch, without dropout."""
    model = SentenceTransformer(str(folder), device="cpu").eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=WEIGHT_DECAY)
    rise = max(1, round(WARM_UP_SHARE * n_steps))
    for number in range(n_steps):
        for part in optimizer.param_groups:
            part["lr"] = rate * min((number + 1) / rise, (n_steps - number) / max(1, n_steps - rise))
        rows = [
            torch.nn.functional.normalize(model(model.preprocess(texts))["sentence_embedding"], dim=1)
            for texts in (QUERIES, PASSAGES)
        ]
        scores = rows[0] @ rows[1].T / TEMPERATURE
        scores = torch.where(torch.from_numpy(MASKED), torch.tensor(-torch.inf), scores)
        loss = -(torch.log_softmax(scores, dim=1)[range(4), range(4)]).mean()
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        optimizer.step()
    return {name: weight.detach() for name, weight in model.named_parameters()}


def apart(learner: Learner, expected: dict[str, Tensor]) -> float:
    """The largest difference of a weight. A bias of the keys moves all scores of a text alike, so that its gradient is
    rounding noise, which AdamW scales to the rate.
    """
    own = dict(learner._replica.model.named_parameters())
    names = [name for name in expected if not name.endswith("key.bias")]
    assert own.keys() == expected.keys()
    return max(float((own[name].detach() - expected[name]).abs().max()) for name in names)


@pytest.mark.parametrize("n_steps", [1, 4])
def test_steps_are_those_of_a_plain_loop(folder: Path, encoder: TransformerEncoder, n_steps: int) -> None:
    learner = learner_of(encoder)
    fit(learner, n_steps, 1e-4)
    assert apart(learner, plain_steps(folder, n_steps, 1e-4)) < 2e-6
    assert apart(learner, plain_steps(folder, n_steps, 2e-4)) > 1e-5, "another rate is noticed"


def gradients(learner: Learner) -> list[Tensor]:
    learner._gradients(STEP)
    found = [weight.grad for weight in learner._weights if weight.grad is not None]
    for weight in learner._weights:
        weight.grad = None
    return found


def no_memory(
    monkeypatch: pytest.MonkeyPatch, most: int, error: type[Exception] = torch.cuda.OutOfMemoryError
) -> list[int]:
    """A device on which a micro-batch of more padded tokens than `most`, or a second graph, does not fit.

    Returns the sizes of the micro-batches that did.
    """
    real, sizes = Replica.vectors, []

    def vectors(replica: Replica, batch: Any, recipe: Any, skip: int) -> Tensor:
        if batch.ids.size > most:
            raise error("CUDA out of memory. Tried to allocate 90.00 MiB")
        sizes.append(batch.ids.size)
        return real(replica, batch, recipe, skip)

    monkeypatch.setattr(Replica, "vectors", vectors)
    return sizes


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError, RuntimeError])
def test_out_of_memory_gives_the_same_in_smaller_pieces(
    encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    learner = learner_of(encoder)
    expected = gradients(learner)
    fit(learner)
    trained = rows_of(learner)
    monkeypatch.setattr("secid.tools.probing.learner.CPU_TOKENS", 512)
    small = learner_of(encoder)
    sizes = no_memory(monkeypatch, 40, error)
    for own, other in zip(gradients(small), expected, strict=True):
        assert (own - other).abs().max() < 1e-6
    assert max(sizes) <= 40
    assert len(sizes) > 6
    fit(small)
    assert (rows_of(small) - trained).abs().max() < 1e-5
    small.restore()
    assert (rows_of(small) - trained).abs().max() > 1e-3, "training moves the rows by more"


def test_ranking_needs_no_more_memory_than_there_is(
    encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learner_of(encoder)
    expected = rows_of(learner)
    no_memory(monkeypatch, 40)
    assert (rows_of(learner) - expected).abs().max() < 1e-6


def test_a_single_text_that_does_not_fit_is_an_error(
    encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learner_of(encoder)
    no_memory(monkeypatch, 5)
    message = refusal(lambda: fit(learner), EncoderError, None)
    assert "cpu with a single text" in message
    assert "--max-length" in message
    assert "single text" in refusal(lambda: rows_of(learner), EncoderError, None)


def test_an_optimizer_that_does_not_fit_is_an_error(
    encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    learner = learner_of(encoder)
    monkeypatch.setattr(torch.optim.AdamW, "step", refuse)
    assert "--lora" in refusal(lambda: fit(learner), EncoderError, None)


def test_other_errors_are_not_taken_for_memory(encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    learner = learner_of(encoder)
    monkeypatch.setattr(Replica, "vectors", fail)
    with pytest.raises(RuntimeError, match="mat1"):
        fit(learner)


def test_a_loss_that_is_not_finite_ends_the_training(encoder: TransformerEncoder) -> None:
    learner = learner_of(encoder)
    with pytest.raises(DivergedError, match="step 2"):
        fit(learner, 3, 1e38)
    learner.restore()
    fit(learner)
    other = learner_of(encoder)
    fit(other)
    assert torch.equal(rows_of(learner), rows_of(other)), "nothing of it is left"


def test_a_gradient_that_is_not_finite_ends_the_training(
    encoder: TransformerEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No later loss would reveal NaN weights after the last step."""
    learner = learner_of(encoder)
    learner._weights[0].register_hook(lambda gradient: gradient * torch.nan)
    with pytest.raises(DivergedError, match="norm of its gradient nan"):
        fit(learner, 1)


RECIPES = [
    {},
    {"query_prefix": "ask: ", "passage_prefix": "text: "},
    {"pooling": "cls", "truncate_dim": 12},
    {"pooling": "max", "max_length": 6},
]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("lora", [False, True])
def test_untrained_rows_are_those_of_the_encoder(folder: Path, recipe: dict[str, Any], lora: bool) -> None:
    """Prefixes, pooling, truncation and length are those of the recipe, and adapters start as nothing."""
    own = tiny_encoder(folder, **recipe)
    learner = learner_of(own, lora)
    for role, texts in (("query", QUERIES), ("passage", PASSAGES)):
        rows = learner.rows(learner.tokens(texts, role), role)
        expected = own.encode(texts, role)
        assert np.abs(rows.numpy() - expected / np.linalg.norm(expected, axis=1, keepdims=True)).max() < 1e-5
        if recipe:
            plain = tiny_encoder(folder).encode(texts, role)
            assert plain.shape != expected.shape or np.abs(plain - expected).max() > 1e-3


def test_the_encoder_itself_is_not_trained(folder: Path) -> None:
    own = tiny_encoder(folder)
    before = own.encode(PASSAGES, "passage")
    fit(learner_of(own))
    assert np.array_equal(own.encode(PASSAGES, "passage"), before)


def test_lora_trains_only_adapters(encoder: TransformerEncoder) -> None:
    learner = learner_of(encoder, lora=True)
    parameters = dict(learner._replica.model.named_parameters())
    before = {name: weight.detach().clone() for name, weight in parameters.items()}
    frozen_rows = rows_of(learner)
    state = torch.random.get_rng_state()
    fit(learner, 3, 1e-2)
    changed = {name for name, weight in parameters.items() if not torch.equal(weight, before[name])}
    assert changed
    assert all("lora_" in name for name in changed)
    assert 0 < sum(weight.numel() for weight in learner._weights) < sum(map(torch.numel, parameters.values()))
    assert (rows_of(learner) - frozen_rows).abs().max() > 1e-3
    learner.restore()
    assert torch.equal(rows_of(learner), frozen_rows)
    other = learner_of(encoder, lora=True)
    assert all(torch.equal(a, b) for a, b in zip(other._weights, learner._weights, strict=True)), "the same adapters"
    assert torch.equal(state, torch.random.get_rng_state())


def test_bf16_autocast_trains_in_float32_weights(encoder: TransformerEncoder) -> None:
    learner = Learner(encoder, CPU, lora=False, bf16=True, temperature=TEMPERATURE, loss="infonce")
    rows = rows_of(learner)
    assert 0 < (rows - rows_of(learner_of(encoder))).abs().max() < 0.05
    fit(learner)
    assert {weight.dtype for weight in learner._weights} == {torch.float32}
    assert (rows_of(learner) - rows).abs().max() > 1e-3


# Which passages a step compares under each loss, and what a guide leaves out.


def first_steps(task: Task, loss: str, passages: str, n: int = 6, guide: Guidance | None = None) -> list[Step]:
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
    for step in first_steps(several, loss, passages):
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
    base = first_steps(several, "infonce", "batch")
    for loss, passages in (("joint", "batch"), ("mw", "own"), ("infonce", "own")):
        for one, other in zip(base, first_steps(several, loss, passages), strict=True):
            b = len(one.queries)
            assert (one.queries, one.passages[: 2 * b]) == (other.queries, other.passages[: 2 * b])


def test_a_guide_masks_what_it_scores_above_the_positive(
    task: Task, encoder: TransformerEncoder, tmp_path: Path
) -> None:
    settings = Settings(device="cpu", cache=False, guide="any")
    guide = Guidance(task, encoder, settings, tmp_path / "guide", Silent())
    (step,) = first_steps(task, "gist", "batch", n=1, guide=guide)
    queries = encoder.encode(step.queries, "query").astype(np.float64)
    texts = encoder.encode(step.passages, "passage").astype(np.float64)
    scores = queries @ texts.T / np.linalg.norm(queries, axis=1)[:, None] / np.linalg.norm(texts, axis=1)
    own = np.diag(scores)[:, None]
    near = np.abs(scores - own) < 1e-4
    assert step.sides.masked is not None
    assert (near | (step.sides.masked == (scores > own))).all()
    assert not np.diag(step.sides.masked).any()  # the positive equals itself
    assert 0 < step.sides.masked[step.sides.negative].mean() < 1
