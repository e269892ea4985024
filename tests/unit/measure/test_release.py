"""Rows in a file are gathered window by window in both passes, and the size of a window changes no result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from secid.arrays import FLOAT32_DISTANCE
from secid.errors import NumericalError
from secid.measure import blocks
from secid.measure.blocks import Triplets, Vectors
from secid.measure.gates import gates
from secid.measure.information import Eigen
from secid.measure.sweep import Variant, sweep
from secid.measure.uncertainty import influence
from secid.triplets import embedding as module
from secid.triplets.embedding import FileRows

BASE = Variant(0.05, "base", "full")
QUERIES, NEGATIVES, D = 50, 4, 12


def rows(n: int, seed: int) -> np.ndarray:
    found = np.random.default_rng(seed).standard_normal((n, D)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def triplets() -> Triplets:
    record = np.repeat(np.arange(QUERIES), NEGATIVES)
    place = np.arange(len(record))
    return Triplets(record, record, QUERIES + place, np.arange(QUERIES + 1) * NEGATIVES, record, place)


def both_passes(vectors: Vectors) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    source = triplets()
    swept = sweep(vectors, source, {"base": np.full(len(source), 0.25)}, [BASE])
    weight = gates(swept.dots, torch.full((len(source),), 0.25, dtype=torch.float64), BASE.temperature).weight.numpy()
    found = influence(
        vectors,
        source,
        swept.dots.squared_distance.numpy(),
        weight,
        Eigen.of(swept.state(BASE), D),
        FLOAT32_DISTANCE,
        (1.0, 50.0),
    )
    return swept.state(BASE).total.numpy(), found.per_query, found.bias_nats


def test_rows_are_gathered_by_windows_in_both_passes_and_results_stay(tmp_path, monkeypatch):
    plain = Vectors(torch.from_numpy(rows(QUERIES, 0)), torch.from_numpy(rows(QUERIES * (1 + NEGATIVES), 1)))
    whole = both_passes(plain)
    small = replace(blocks.PLANS["cpu"], n_triplets=16, window_bytes=64 * 4 * D, panels={torch.float32: 5})
    monkeypatch.setitem(blocks.PLANS, "cpu", small)
    monkeypatch.setattr(module, "COPIED_BYTES_AT_ONCE", 30 * 4 * D)
    files = {
        name: FileRows(tmp_path / name, len(own), D) for name, own in (("q", plain.queries), ("p", plain.passages))
    }
    for name, own in (("q", plain.queries), ("p", plain.passages)):
        files[name].writer(np.arange(len(own)))(np.arange(len(own)), own)
    gathered = []

    def gather(role: str, ids: np.ndarray, out: torch.Tensor) -> None:
        gathered.append((role, len(ids)))
        files[role[0]].take(ids, out)

    vectors = Vectors(torch.empty(0, D), torch.empty(0, D), gather)
    for first, second in zip(whole, both_passes(vectors), strict=True):
        np.testing.assert_allclose(second, first, rtol=2e-5, atol=1e-9)
    n_windows = -(-QUERIES * NEGATIVES // 64)
    assert len([n for role, n in gathered if role == "passage"]) == 2 * n_windows
    assert max(n for _, n in gathered) <= 64 + 16  # a positive for every four negatives


def test_zero_and_non_finite_queries_are_refused():
    for value in (0.0, np.nan, np.inf):
        queries = rows(QUERIES, 0)
        queries[7] = value
        vectors = Vectors(torch.from_numpy(queries), torch.from_numpy(rows(QUERIES * (1 + NEGATIVES), 1)))
        with pytest.raises(NumericalError):
            both_passes(vectors)
