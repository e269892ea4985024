"""The score of a part of a set equals that of the part alone, also where a difference of sums would not be exact."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from secid.measure.blocks import Triplets, Vectors
from secid.measure.information import InformationState
from secid.measure.uncertainty import information
from secid.triplets.measure_set import Measurer

D, T = 16, 800
rng = np.random.default_rng(0)


class Table(SimpleNamespace):
    """The parts of a TripletTable that `score_of` reads."""

    def rows(self, keep: Any) -> Table:
        return Table(triplets=self.triplets.take(keep), weight=self.weight[keep], squared=self.squared[keep])

    def dots(self) -> Any:
        return SimpleNamespace(squared_distance=torch.from_numpy(self.squared))

    def gates(self) -> Any:
        return SimpleNamespace(weight=torch.from_numpy(self.weight))


def item_of(directions: np.ndarray, weight: np.ndarray) -> tuple[Measurer, Any]:
    """Return a measurer, and a set with a positive at 0 and a negative in each direction."""
    rows = torch.from_numpy(np.concatenate([np.zeros((1, D)), directions]).astype(np.float32))
    vectors, record = Vectors(torch.zeros(T, D), rows), np.arange(T)
    triplets = Triplets(record, np.zeros(T, np.int64), 1 + record, np.arange(T + 1), record, np.zeros(T, np.int64))
    table = Table(triplets=triplets, weight=weight, squared=np.ones(T))
    settings: Any = SimpleNamespace(sums="float32")
    state = information(vectors, triplets, table.squared, weight, 1e-12)
    return Measurer(vectors, np.zeros((0, 16), np.uint8), None, settings, 1e-12), SimpleNamespace(  # type: ignore[arg-type]
        table=table, triplets=triplets, state=state
    )


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


KEPT = np.arange(500)
RANDOM = unit(rng.normal(size=(T, D)))
LOW_RANK = np.concatenate([unit(np.pad(rng.normal(size=(500, D // 2)), ((0, 0), (0, D // 2)))), np.eye(D)[[-1] * 300]])
HEAVY = np.where(np.arange(T) < 500, 1e-6, 1.0)


@pytest.mark.parametrize(
    ("directions", "weight", "subtracts"),
    [(RANDOM, np.ones(T), True), (LOW_RANK, np.ones(T), False), (RANDOM, HEAVY, False)],
    ids=["full rank", "others in another direction", "others with nearly all weight"],
)
def test_a_part_has_the_score_of_a_float64_reference(directions, weight, subtracts, monkeypatch):
    measurer, item = item_of(directions, weight)
    subtracted = []
    real = InformationState.__sub__
    monkeypatch.setattr(InformationState, "__sub__", lambda one, other: subtracted.append(1) or real(one, other))
    found = measurer.score_of(item, KEPT, 1.0)[1]
    u = directions[KEPT]
    expected = np.log1p(np.clip(np.linalg.eigvalsh((u * weight[KEPT, None]).T @ u / len(KEPT)), 0, None)).sum()
    assert found == pytest.approx(expected, rel=1e-6)
    assert bool(subtracted) == (weight is not HEAVY)
    eigen = measurer._eigen(item, KEPT)
    direct = information(*measurer._inputs(item.table.rows(KEPT)), 1e-12)
    assert torch.equal(eigen.basis, torch.linalg.eigh(direct.matrix())[1]) != subtracts
