"""The second pass: quadratic forms by query do not depend on how they are computed, nor on the number of threads."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from secid.arrays import FLOAT32_DISTANCE
from secid.measure import blocks, uncertainty
from secid.measure.blocks import PARALLEL_BYTES, PackedMatrix, Scratch, Triplets, Vectors, can_pack, parallel_map
from secid.measure.gates import gates
from secid.measure.information import Eigen, InformationState
from secid.measure.sweep import Variant, sweep
from secid.measure.uncertainty import Influence, influence

BASE = Variant(0.05, "base", "full")
CPU = torch.device("cpu")
D = 24


@pytest.mark.parametrize("k", [13, 9, 1])
def test_forms_and_pairs_are_the_definition_with_many_negatives_or_few(k, monkeypatch):
    """Twice k above and below the 24 dimensions: two ways of computing; tiles of two queries and a rest."""
    monkeypatch.setitem(blocks.PLANS, "cpu", replace(blocks.PLANS["cpu"], tile_bytes=2 * 4 * 2 * k * D))
    generator = np.random.default_rng(8)
    drawn = generator.standard_normal((7, k, D))
    shrink = np.array([np.linspace(1.0, 0.1, D), np.ones(D)])
    sums = np.einsum("qki,qkj->qij", drawn, drawn)
    expected = [sum(np.trace(np.diag(c) @ own @ np.diag(c) @ own) for own in sums) for c in shrink]
    found, pairs = uncertainty._forms_and_pairs(
        torch.from_numpy(drawn).float(), torch.from_numpy(shrink).float(), Scratch(CPU)
    )
    np.testing.assert_allclose(found, np.einsum("qki,bi->qkb", drawn**2, shrink).reshape(7 * k, 2), rtol=1e-5)
    np.testing.assert_allclose(pairs, expected, rtol=1e-5)


def source(counts: np.ndarray) -> tuple[Vectors, Triplets]:
    """Return vectors and triplets in which query i has counts[i] negatives. All texts are distinct."""
    generator = np.random.default_rng(4)
    n_queries, n = len(counts), int(counts.sum())
    drawn = generator.standard_normal((2 * n_queries + n, D)).astype(np.float32) + 0.3
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    record, negative = np.repeat(np.arange(n_queries), counts), n_queries + generator.permutation(n)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    vectors = Vectors(torch.from_numpy(drawn[:n_queries]), torch.from_numpy(drawn[n_queries:]))
    return vectors, Triplets(record, record, negative, offsets, record, np.arange(n))


def measured(vectors: Vectors, rows: Triplets, state: InformationState | None = None) -> Influence:
    covered = np.random.default_rng(5).uniform(0, 1, 4000)[rows.place]
    swept = sweep(vectors, rows, {"base": covered}, [BASE])
    weight = gates(swept.dots, torch.from_numpy(covered), BASE.temperature).weight.numpy()
    squared = swept.dots.squared_distance.numpy()
    return influence(
        vectors, rows, squared, weight, Eigen.of(state or swept.state(BASE), D), FLOAT32_DISTANCE, (1.0, 300.0)
    )


def some(rows: Triplets, start: int, stop: int) -> Triplets:
    """The triplets of these records."""
    part = slice(rows.record_offsets[start], rows.record_offsets[stop])
    offsets = rows.record_offsets[start : stop + 1] - rows.record_offsets[start]
    columns = (rows.query, rows.positive, rows.negative)
    return Triplets(*(column[part] for column in columns), offsets, rows.record[part] - start, rows.place[part])


@pytest.mark.parametrize("counts", [np.full(90, 4), np.random.default_rng(1).integers(1, 9, 90)], ids=["same", "mixed"])
def test_the_bias_is_the_definition_and_adds_up_over_parts_under_the_state_of_the_whole(counts):
    vectors, rows = source(counts)
    whole = measured(vectors, rows)
    covered = np.random.default_rng(5).uniform(0, 1, 4000)[rows.place]
    swept = sweep(vectors, rows, {"base": covered}, [BASE])
    weight = gates(swept.dots, torch.from_numpy(covered), BASE.temperature).weight.numpy()
    u = (vectors.passages[rows.negative] - vectors.passages[rows.positive]).double().numpy()
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    matrix = swept.state(BASE).matrix().numpy()
    for budget, bias in zip(whole.budgets, whole.bias_nats, strict=True):
        inverse = np.linalg.inv(np.eye(D) + budget * matrix)
        total = 0.0
        for start, stop in zip(rows.record_offsets[:-1], rows.record_offsets[1:], strict=True):
            part = inverse @ ((u[start:stop].T * weight[start:stop]) @ u[start:stop] - (stop - start) * matrix)
            total += np.trace(part @ part)
        assert bias == pytest.approx(0.5 * budget**2 * total / len(rows) ** 2, rel=1e-5)
    parts = [measured(vectors, some(rows, *ends), swept.state(BASE)) for ends in ((0, 30), (30, 90))]
    np.testing.assert_allclose(parts[0].bias_nats + parts[1].bias_nats, whole.bias_nats, rtol=1e-5)


@pytest.mark.parametrize("counts", [[1] * 40, [40], [1, 30, 2, 7]], ids=["one negative", "one query", "k above d"])
def test_shared_negatives_weights_of_zero_and_copies_are_the_definition(counts, monkeypatch):
    """On one thread and on more threads than blocks; d = 24, two budgets."""
    monkeypatch.setitem(blocks.PLANS, "cpu", replace(blocks.PLANS["cpu"], n_triplets=16))
    vectors, rows = source(np.array(counts))
    generator, n = np.random.default_rng(6), len(rows)
    rows = replace(rows, share=generator.choice([0.25, 0.5, 1.0], n), negative=rows.negative.copy())
    rows.negative[0] = rows.positive[0]  # a copy of the positive: u = 0
    squared = sweep(vectors, rows, {"base": np.zeros(4000)}, [BASE]).dots.squared_distance.numpy()
    weight = generator.uniform(0, 1, n) * (generator.uniform(0, 1, n) > 0.3)
    u = (vectors.passages[rows.negative] - vectors.passages[rows.positive]).double().numpy()
    u[1:] /= np.linalg.norm(u[1:], axis=1, keepdims=True)
    total = (u.T * (weight * rows.share)) @ u
    state = InformationState(torch.from_numpy(total), rows.n_negatives)
    before = torch.get_num_threads()
    for n_threads in (1, 4):
        try:
            torch.set_num_threads(n_threads)
            found = influence(
                vectors, rows, squared, weight, Eigen.of(state, len(rows)), FLOAT32_DISTANCE, (1.0, 300.0)
            )
        finally:
            torch.set_num_threads(before)
        for place, budget in enumerate((1.0, 300.0)):
            inverse, matrix = np.linalg.inv(np.eye(D) + budget * total / rows.n_negatives), total / rows.n_negatives
            uncertainty = rows.share * weight * np.einsum("ti,ij,tj->t", u, inverse, u)
            change = budget * (uncertainty - rows.share * np.trace(inverse @ matrix))
            per_query = np.bincount(rows.query, change) / rows.n_negatives
            np.testing.assert_allclose(found.per_query[:, place], per_query, atol=2e-6 * np.abs(change).max())
            parts = [
                inverse @ ((u[own].T * (weight * rows.share)[own]) @ u[own] - rows.share[own].sum() * matrix)
                for own in (rows.query == query for query in found.queries)
            ]
            bias = 0.5 * budget**2 * sum(np.trace(part @ part) for part in parts) / rows.n_negatives**2
            scale = 0.5 * budget**2 * sum(np.trace(inverse @ matrix @ inverse @ matrix) for _ in parts)
            assert found.bias_nats[place] == pytest.approx(bias, rel=2e-5, abs=2e-6 * scale)
            if not place:
                np.testing.assert_allclose(found.information, uncertainty, atol=1e-6)


def test_a_packed_matrix_takes_rows_of_any_layout():
    if not can_pack(CPU, torch.float32):
        pytest.skip("this machine or this torch does not pack")
    weight, square, rows = torch.randn(24, 16), torch.randn(16, 16), torch.randn(40, 16)
    for given in (rows, rows[::2], torch.randn(16, 40).T, rows[:1], rows[:0], rows.view(4, 10, 16).transpose(0, 1)):
        torch.testing.assert_close(PackedMatrix(weight).product(given), given @ weight.T, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(PackedMatrix(square.T).product(given), given @ square, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", ["cuda", "mps", "meta"])
def test_nothing_on_a_device_is_packed_nor_worked_on_in_threads(device):
    assert not can_pack(torch.device(device), torch.float32)
    with parallel_map(torch.device(device)) as each:
        assert each is map


def test_the_number_of_threads_changes_nothing(monkeypatch):
    monkeypatch.setitem(blocks.PLANS, "cpu", replace(blocks.PLANS["cpu"], n_triplets=64))
    vectors, rows = source(np.random.default_rng(2).integers(1, 9, 400))
    before, found = torch.get_num_threads(), {}
    try:
        for n_threads in (1, 3):
            torch.set_num_threads(n_threads)
            found[n_threads] = measured(vectors, rows)
    finally:
        torch.set_num_threads(before)
    scale = np.abs(found[1].per_query).max(axis=0)  # an influence is a difference: its rounding is that of its parts
    np.testing.assert_allclose(found[3].per_query / scale, found[1].per_query / scale, rtol=0, atol=2e-6)
    np.testing.assert_allclose(found[3].bias_nats, found[1].bias_nats, rtol=2e-6)


@pytest.mark.skipif("backend: OpenMP" not in torch.__config__.parallel_info(), reason="one thread for each pass")
def test_parallel_map_keeps_the_order_and_the_threads_of_torch():
    before = torch.get_num_threads()
    meeting = threading.Barrier(2, timeout=30)

    def one(item: int) -> tuple[int, int]:
        meeting.wait()  # nobody comes alone
        return item, torch.get_num_threads()

    try:
        torch.set_num_threads(2)
        with parallel_map(CPU) as each:
            assert list(each(one, range(6))) == [(item, 1) for item in range(6)]
        assert torch.get_num_threads() == 2
        with parallel_map(
            CPU, PARALLEL_BYTES // 5
        ) as each:  # those of two threads, two that wait for each, and one more
            assert each is not map
        with parallel_map(CPU, PARALLEL_BYTES // 5 + 1) as each:
            assert each is map
        later: list[int] = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert later == [2]
    finally:
        torch.set_num_threads(before)


def test_scratch_is_kept_and_grows():
    scratch = Scratch(CPU)
    first = scratch.take("rows", 5, 4)
    first.fill_(7.0)
    assert scratch.take("rows", 2, 3).data_ptr() == first.data_ptr() != scratch.take("other", 2, 3).data_ptr()
    assert scratch.take("rows", 50, 4).shape == (50, 4)


def test_a_copy_of_a_positive_that_equals_its_query_is_not_nearer_to_the_query():
    """Rounding lifts half of the cosines of equal rows above 1, where s_pn of a copy is exactly 1."""
    drawn = np.random.default_rng(6).standard_normal((500, 12)).astype(np.float32)
    unit = torch.from_numpy(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))
    place = np.arange(500)
    swept = sweep(Vectors(unit, unit), Triplets(place, place, place, np.arange(501), place, place), {}, [])
    covered = torch.zeros(500, dtype=torch.float64)
    of_copies = gates(swept.dots, covered, 0.05)
    assert float(of_copies.locality.min()) == 0.5
    assert float(of_copies.consistency.min()) == 0.5
