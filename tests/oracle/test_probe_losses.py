"""The losses of the probe against their definitions in plain loops, and that damage to either is noticed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from secid.tools.probing.learner import CLOSED_FORM_NAMES, Objective, Sides, training_loss
from secid.tools.probing.options import LOSSES, PASSAGE_CHOICES
from tests.oracle import objectives as reference

TEMPERATURE = 0.05


def rows(seed: int, n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(n, 6, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(drawn, dim=1).to(dtype)


def sides_of(seed: int, passages: str, n_positives: int) -> Sides:
    """Four queries, their positives and negatives, and up to two further positives of each, as a step lays them out."""
    draws = np.random.default_rng(seed)
    owner = np.repeat(np.arange(4), draws.integers(0, 3, 4)) if n_positives > 1 else np.zeros(0, np.int64)
    columns = np.concatenate([np.arange(4), np.arange(4), owner])
    own = columns == np.arange(4)[:, None]
    positive = own.copy()
    positive[:, 4:8] = False
    negative = own & ~positive
    if passages == "batch":
        negative |= ~own & (draws.random(own.shape) < 0.8)
    return Sides(positive, negative, draws.random(own.shape) < 0.4)


def expected_loss(queries: Tensor, passages: Tensor, sides: Sides, loss: str) -> Tensor:
    """The definition, query by query; autograd follows it."""
    every = [
        [(queries[i] * passages[j]).sum() / TEMPERATURE for j in range(len(passages))] for i in range(len(queries))
    ]

    def of(i: int, flags: np.ndarray) -> list[Tensor]:
        return [every[i][j] for j in np.flatnonzero(flags[i])]

    n = range(len(queries))
    if loss == "mw":
        return reference.mw_loss(
            [s for i in n for s in of(i, sides.positive)], [s for i in n for s in of(i, sides.negative)]
        )
    assert sides.masked is not None
    losses = []
    for i in n:
        positive, negative = of(i, sides.positive), of(i, sides.negative)
        masked = sides.masked[i][sides.negative[i]].tolist()
        record = reference.Record([], [], [1.0] * len(positive), masked)
        losses.append(reference.record_loss(CLOSED_FORM_NAMES[loss], positive, negative, record))
    return torch.stack(losses).mean()


def both(loss: str, passages: str, seed: int, damage: str = "") -> tuple[float, float]:
    """The largest difference of the losses, and of their gradients by the rows of queries and passages."""
    sides = sides_of(seed, passages, Objective(loss, passages, None).n_positives)
    queries, texts = rows(seed, 4).requires_grad_(), rows(seed + 100, sides.positive.shape[1]).requires_grad_()
    other = loss
    if damage == "another loss":
        other = "lsepair" if loss == "mw" else "mw"
    own = training_loss(queries, texts, sides, other, TEMPERATURE * (1.01 if damage == "temperature" else 1.0))
    if damage == "a lost negative":
        negative = sides.negative.copy()
        for i in range(4):
            negative[i, np.flatnonzero(negative[i])[0]] = False
        sides = Sides(sides.positive, negative, sides.masked)
    expected = expected_loss(queries, texts, sides, loss)
    slopes = [torch.autograd.grad(value, [queries, texts]) for value in (own, expected)]
    apart = max(float((a - b).abs().max()) for a, b in zip(*slopes, strict=True))
    return abs(float(own.detach() - expected.detach())), apart


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("passages", PASSAGE_CHOICES)
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_and_gradients_are_those_of_their_definitions(loss: str, passages: str, seed: int) -> None:
    of_loss, of_gradient = both(loss, passages, seed)
    assert of_loss < 1e-9
    assert of_gradient < 1e-8


@pytest.mark.parametrize("damage", ["another loss", "temperature", "a lost negative"])
@pytest.mark.parametrize("loss", LOSSES)
def test_damage_to_a_loss_is_noticed(loss: str, damage: str) -> None:
    """Over seeds, since with all negatives of a query masked GIST has nothing to lose."""
    seen = np.array([both(loss, "batch", seed, damage) for seed in range(4)])
    assert (seen.max(axis=0) > 1e-4).all()


def test_every_loss_has_a_form() -> None:
    assert {*CLOSED_FORM_NAMES, "mw"} == {*LOSSES}


def test_with_one_positive_the_losses_of_several_are_infonce() -> None:
    sides = sides_of(0, "batch", 1)
    queries, texts = rows(0, 4), rows(1, 8)
    values = {loss: float(training_loss(queries, texts, sides, loss, TEMPERATURE)) for loss in LOSSES}
    for loss in ("lsepair", "sum_marginal", "joint"):
        assert values[loss] == pytest.approx(values["infonce"], abs=1e-12)
    assert abs(values["mw"] - values["infonce"]) > 1e-3
    assert values["gist"] < values["infonce"], "fewer negatives"


def test_a_query_whose_negatives_are_all_masked_has_no_loss_and_no_gradient() -> None:
    sides = sides_of(0, "own", 1)
    sides = Sides(sides.positive, sides.negative, np.ones_like(sides.negative))
    queries = rows(0, 4).requires_grad_()
    loss = training_loss(queries, rows(1, 8), sides, "gist", TEMPERATURE)
    loss.backward()
    assert loss.item() == 0.0
    assert queries.grad is not None
    assert not queries.grad.any()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_score_that_is_not_finite_gives_a_loss_that_is_nan(loss: str) -> None:
    queries = rows(0, 4)
    queries[2, 0] = torch.nan
    assert training_loss(queries, rows(1, 8), sides_of(0, "batch", 1), loss, TEMPERATURE).isnan()
