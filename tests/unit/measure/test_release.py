"""Memory of mapped rows is given back during both passes, and how often changes no result."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from secid.errors import NumericalError
from secid.measure import sweep as sweep_module
from secid.measure import uncertainty
from secid.measure.sweep import FLOAT32_DISTANCE, Triplets, Variant, Vectors, sweep
from secid.measure.uncertainty import influence
from secid.study.mapped import MappedRows

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
    made = triplets()
    swept = sweep(vectors, made, {"base": np.full(len(made), 0.25)}, [BASE])
    weight = np.random.default_rng(3).uniform(0, 1, len(made))
    found = influence(vectors, made, swept.scalars, weight, swept.state(BASE), FLOAT32_DISTANCE, (1.0, 50.0))
    return swept.matrices[BASE].numpy(), found.per_query, found.bias_nats


def test_rows_are_released_in_both_passes_and_results_stay(tmp_path, monkeypatch):
    plain = Vectors(torch.from_numpy(rows(QUERIES, 0)), torch.from_numpy(rows(QUERIES * (1 + NEGATIVES), 1)))
    whole = both_passes(plain)
    monkeypatch.setattr(sweep_module, "BLOCK_TRIPLETS", 16)
    monkeypatch.setattr(sweep_module, "RELEASE_TRIPLETS", 64)
    monkeypatch.setattr(sweep_module, "PANEL_COLUMNS", 5)
    monkeypatch.setattr(uncertainty, "WITHIN_NUMBERS", 100)
    mapped = {
        name: MappedRows(tmp_path / name, len(own), D) for name, own in (("q", plain.queries), ("p", plain.passages))
    }
    mapped["q"].values[:], mapped["p"].values[:] = plain.queries.numpy(), plain.passages.numpy()
    released = []

    def release() -> None:
        released.append(True)
        for own in mapped.values():
            own.release()

    vectors = Vectors(torch.from_numpy(mapped["q"].values), torch.from_numpy(mapped["p"].values), release)
    for first, second in zip(whole, both_passes(vectors), strict=True):
        np.testing.assert_allclose(second, first, rtol=2e-5, atol=1e-9)
    assert len(released) == 2 * (QUERIES * NEGATIVES // 64 + 1)


def test_written_rows_outlive_a_release(tmp_path):
    made = MappedRows(tmp_path / "rows", 2000, D)
    made.values[:] = rows(2000, 5)
    made.release()
    assert np.array_equal(made.values, rows(2000, 5))
    assert np.array_equal(MappedRows(tmp_path / "rows", 2000, D, new=False).values, rows(2000, 5))


def test_the_second_pass_is_the_same_by_rows_and_by_dimensions():
    drawn = torch.from_numpy(np.random.default_rng(8).standard_normal((7, 9, 6))).float()
    shrink = torch.tensor([[1.0, 0.9, 0.5, 0.3, 0.2, 0.1], [1.0] * 6])
    for first, second in zip(
        uncertainty._by_rows(drawn, shrink), uncertainty._by_dimensions(drawn, shrink), strict=True
    ):
        np.testing.assert_allclose(second, first, rtol=1e-5)
    expected = sum(float(((own * shrink[0]) @ own.T).square().sum()) for own in drawn)
    np.testing.assert_allclose(uncertainty._by_rows(drawn, shrink)[1][0], expected, rtol=1e-5)


def test_zero_and_non_finite_queries_are_refused():
    for value in (0.0, np.nan, np.inf):
        queries = rows(QUERIES, 0)
        queries[7] = value
        vectors = Vectors(torch.from_numpy(queries), torch.from_numpy(rows(QUERIES * (1 + NEGATIVES), 1)))
        with pytest.raises(NumericalError):
            both_passes(vectors)
