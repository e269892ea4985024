"""States of parts add up to the state of the whole."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
import torch

from secid.measure.blocks import PLANS, Triplets, Vectors, padded_blocks
from secid.measure.information import Eigen, InformationState, spectral_nats, spectrum, trace
from secid.measure.sweep import Variant, sweep

D, RECORDS = 48, 2000
VARIANTS = (Variant(0.05, "base", "full"), Variant(0.2, "base", "fisher"))


def unit(generator: np.random.Generator, n: int) -> torch.Tensor:
    rows = generator.standard_normal((n, D)).astype(np.float32) + 0.5
    return torch.from_numpy(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def random_source(seed: int) -> tuple[Vectors, Triplets, np.ndarray]:
    """Return records of 1 to 12 negatives, in random order."""
    generator = np.random.default_rng(seed)
    counts = generator.integers(1, 13, RECORDS)
    n = int(counts.sum())
    record = np.repeat(np.arange(RECORDS), counts)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    vectors = Vectors(unit(generator, RECORDS), unit(generator, RECORDS + n))
    rows = Triplets(record, record, RECORDS + generator.permutation(n), offsets, record, np.arange(n))
    return vectors, rows, generator.uniform(0, 1, n)


def part_state(
    vectors: Vectors, rows: Triplets, coverage: np.ndarray, records: np.ndarray, sums: torch.dtype = torch.float32
) -> list[InformationState]:
    """Return the states of some records, as a run over only these records leaves them."""
    keep = np.flatnonzero(np.isin(rows.record, records))
    counts = np.diff(rows.record_offsets)[np.sort(records)]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    part = Triplets(rows.query[keep], rows.positive[keep], rows.negative[keep], offsets, rows.record[keep], keep)
    swept = sweep(vectors, part, {"base": coverage[keep]}, VARIANTS, sums=sums)
    return [swept.state(variant) for variant in VARIANTS]


def numbers(state: InformationState) -> np.ndarray:
    """Scores at four budgets, trace, Frobenius norm, effective rank, top eigenvalues."""
    matrix, values = state.matrix(), Eigen.of(state, len(state.total)).values
    found = spectrum(values)
    scores = [spectral_nats(values, budget) for budget in (1.0, 10.0, 1000.0, 1e5)]
    return np.array([*scores, trace(matrix), found.frobenius, found.effective_rank, *found.top_eigenvalue_shares])


def relative(one: InformationState, other: InformationState) -> float:
    """Largest relative difference of the matrices' entries (to the largest) and of what is read off them."""
    entries = float((one.matrix() - other.matrix()).abs().max() / other.matrix().abs().max())
    return max(entries, float(np.abs(numbers(one) / numbers(other) - 1).max()))


def test_parts_of_whole_blocks_merge_to_the_last_bits():
    vectors, rows, coverage = random_source(0)
    whole = part_state(vectors, rows, coverage, np.arange(RECORDS))
    blocks = [block.groups for block in padded_blocks(rows.record_offsets, PLANS["cpu"].n_triplets)]
    assert len(blocks) > 5
    parts = [part_state(vectors, rows, coverage, np.concatenate(blocks[start : start + 2])) for start in (0, 2, 4)]
    parts.append(part_state(vectors, rows, coverage, np.concatenate(blocks[6:])))
    for place in range(len(VARIANTS)):
        merged = parts[2][place] + parts[0][place] + (parts[3][place] + parts[1][place])
        assert merged.n_negatives == whole[place].n_negatives
        assert relative(merged, whole[place]) < 1e-12
        missing = parts[2][place] + parts[0][place] + parts[3][place]
        assert relative(missing, whole[place]) > 1e-3


@pytest.mark.parametrize(("sums", "bound"), [(torch.float32, 5e-7), (torch.float64, 1e-12)])
@pytest.mark.parametrize(("seed", "n_parts"), [(0, 2), (1, 3), (2, 7)])
def test_any_parts_merge_to_the_rounding_of_the_sums(seed, n_parts, sums, bound):
    vectors, rows, coverage = random_source(seed)
    whole = part_state(vectors, rows, coverage, np.arange(RECORDS), sums)
    generator = np.random.default_rng(seed)
    part = generator.choice(n_parts, RECORDS, p=generator.dirichlet(np.ones(n_parts)))  # uneven
    parts = [part_state(vectors, rows, coverage, np.flatnonzero(part == number), sums) for number in np.unique(part)]
    for place in range(len(VARIANTS)):
        merged = reduce(add, (states[place] for states in parts))
        assert merged.n_negatives == whole[place].n_negatives
        assert relative(merged, whole[place]) < bound
        assert relative(merged, whole[place]) > 1e-12 or sums == torch.float64
        assert relative(merged + parts[0][place], whole[place]) > 1e-3
