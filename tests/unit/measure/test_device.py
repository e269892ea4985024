"""Test on meta tensors that the loops over blocks never wait for the device and never mix devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from secid.measure import blocks
from secid.measure.blocks import ACCELERATOR_PLAN, Triplets, Vectors, windows
from secid.measure.gates import WEIGHT_FORMULAS
from secid.measure.sweep import SymmetricSums, Variant, sweep
from secid.measure.uncertainty import gram, quadratic_forms
from secid.settings import Settings
from secid.triplets.measure_set import aspects, base_variant

META = torch.device("meta")
D = 64
WAITS = frozenset({"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "is_nonzero", "equal", "item"})


class Watch(TorchDispatchMode):
    """Inside `loop`: counts operations that launch something, refuses those that wait, copy over or mix devices."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = False
        self.counts: Counter[str] = Counter()

    @contextmanager
    def loop(self) -> Iterator[None]:
        self.inside = True
        try:
            yield
        finally:
            self.inside = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        if self.inside:
            name = func.overloadpacket.__name__
            tensors = [leaf for leaf in tree_leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
            assert name not in WAITS, name
            assert {tensor.device.type for tensor in tensors if tensor.dim()} <= {"meta"}, name
            if name in ("index", "index_put", "index_put_"):
                assert all(tensor.dtype != torch.bool for tensor in tensors), f"{name} by a mask"
            if not func.is_view:
                self.counts[name] += 1
        return result


def source(n_queries: int, k: int) -> tuple[Vectors, Triplets]:
    record = np.repeat(np.arange(n_queries, dtype=np.int32), k)
    n = len(record)
    rows = Triplets(record, record, n_queries + np.arange(n), np.arange(n_queries + 1) * k, record, np.arange(n))
    on_meta = torch.empty(n_queries, D, device=META), torch.empty(n_queries + n, D, device=META)
    return Vectors(*on_meta), rows


def suite() -> list[Variant]:
    base = base_variant(Settings())
    whole = [variant for aspect in aspects(Settings()) for variant in aspect.variants.values()]
    return list(dict.fromkeys([base, *whole]))


def watched(vectors: Vectors, rows: Triplets, monkeypatch: pytest.MonkeyPatch) -> tuple[Watch, Vectors, list[int]]:
    """A watch that is on from the end of each window's first block to the end of the pass's last."""
    watch, seen, read = Watch(), [], blocks._read

    def between(*args):  # type: ignore[no-untyped-def]
        watch.inside = False
        return read(*args)

    def tick(n: int) -> None:
        seen.append(n)
        watch.inside = sum(seen) < len(rows)

    monkeypatch.setattr(blocks, "_read", between)
    return watch, replace(vectors, tick=tick), seen


@pytest.mark.parametrize(("n_variants", "most"), [(1, 90), (99, 560)], ids=["score", "ablations"])
def test_the_first_pass_waits_for_nothing_and_launches_few_operations(monkeypatch, n_variants, most):
    plain, rows = source(20_000, 10)
    variants = suite()[:n_variants]
    watch, vectors, seen = watched(plain, rows, monkeypatch)
    names = dict.fromkeys(variant.coverage for variant in variants)
    covered = {name: np.full(len(rows), 0.05 * max(1, place)) for place, name in enumerate(names)}  # two are equal
    position = np.repeat(np.random.default_rng(0).permutation(20_000) / 20_000, 10)
    with watch, pytest.raises(NotImplementedError):  # the numbers themselves, after the last block
        sweep(vectors, rows, covered, variants, position=position)
    assert sum(seen) == len(rows)
    assert len(seen) < 20  # 7 blocks of one stratum, and a rest for each of 8
    families = {(variant.temperature, covered[variant.coverage][0], variant.weight) for variant in variants}
    assert watch.counts["mm"] == (len(seen) - 1) * len(families)  # whole products; samples cost none
    per_block = sum(watch.counts.values()) / (len(seen) - 1)
    assert per_block <= most


@pytest.mark.parametrize("k", [10, 60], ids=["few negatives", "many"])
def test_the_second_pass_waits_for_nothing(monkeypatch, k):
    """Uneven numbers of negatives, so that the sums by dimension are needed as well."""
    plain, rows = source(120_000 // k, k)
    watch, vectors, seen = watched(plain, rows, monkeypatch)
    excess, shrink = np.ones(len(rows) // k), np.ones((6, D))
    with watch, pytest.raises(NotImplementedError):
        quadratic_forms(vectors, rows, np.ones(len(rows)), rows.query, excess, torch.empty(D, D, device=META), shrink)
    assert sum(seen) == len(rows)
    per_block = sum(watch.counts.values()) / (len(seen) - 1)
    assert per_block <= 40


def test_products_of_few_triplets_stay_on_the_device():
    vectors, rows = source(5, 4)
    assert gram(vectors, rows, np.ones(20)).shape == (20, 20)


def test_the_finish_stays_on_the_device():
    watch = Watch()
    with watch, watch.loop():
        total = SymmetricSums(1, D, META, torch.float32)
        for part in total.products(torch.empty(8, D, device=META), torch.empty(8, 1, device=META)):
            total.add(*part)
        values, basis = torch.linalg.eigh(total.matrix(0))
        assert basis.device == values.device == META


def test_all_variants_at_4096_dimensions_stay_below_8_gb():
    """Sixty variants, one whole matrix at a time and its factor."""
    d = 4096
    kept = sum(panel.numel() for panel in SymmetricSums(60, d, META, torch.float32)._panels) * 8
    assert kept + 4 * d * d * 8 < 6e9


def test_large_blocks_and_small_ones_sum_the_same_under_every_variant(monkeypatch):
    generator = np.random.default_rng(3)
    counts = generator.integers(1, 9, 500)
    record, n = np.repeat(np.arange(500), counts), int(counts.sum())
    drawn = generator.standard_normal((1000 + n, 24)).astype(np.float32) + 0.3
    unit = torch.from_numpy(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))
    vectors, offsets = Vectors(unit[:500], unit[500:]), np.concatenate([[0], np.cumsum(counts)])
    rows = Triplets(record, record, 500 + np.arange(n), offsets, record, np.arange(n), generator.choice([0.5, 1.0], n))
    position = (generator.permutation(500) / 500)[record]
    variants = [Variant(0.05, "c", name, part) for name in WEIGHT_FORMULAS for part in (0.1, 0.5, 1.0)]
    covered = {"c": generator.uniform(0, 1, n)}
    small = sweep(vectors, rows, covered, variants, position=position)
    monkeypatch.setitem(blocks.PLANS, "cpu", ACCELERATOR_PLAN)
    large = sweep(vectors, rows, covered, variants, position=position)
    np.testing.assert_allclose(large.record_gradient, small.record_gradient, rtol=1e-6)
    for variant in variants:
        inside = np.flatnonzero(position < variant.sample)
        alone = sweep(vectors, rows.take(inside), {"c": covered["c"][inside]}, [Variant(0.05, "c", variant.weight)])
        (whole,) = alone.weights
        for item in (small, large):
            assert item.n_negatives[variant] == pytest.approx(alone.n_negatives[whole])
            assert item.weights[variant] == pytest.approx(alone.weights[whole])
            total = alone.state(whole).total
            assert float((item.state(variant).total - total).abs().max() / total.abs().max()) < 1e-6


def test_rows_in_a_file_reach_the_device_once_a_window():
    """`gather` fills memory of the CPU; blocks hold tensors of the device that computes."""
    _, rows = source(300, 10)
    filled: list[tuple[str, int]] = []

    def gather(role: str, ids: np.ndarray, out: torch.Tensor) -> None:
        assert out.device.type == "cpu"
        assert (np.diff(ids) > 0).all()
        filled.append((role, len(out)))

    vectors = Vectors(torch.empty(300, D), torch.empty(3300, D), gather, device=META)
    (window,) = windows(vectors, rows, rows.record_offsets)
    assert sorted(filled) == [("passage", 3300), ("query", 300)]
    tensors = [window.queries, window.passages]
    tensors += [getattr(block, name) for block in window.blocks for name in ("groups", "triplet", "negative", "query")]
    assert {tensor.device for tensor in tensors} == {META}
