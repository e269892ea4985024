"""States of parts add up to the state of the whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from secid.measure.blocks import Triplets, Vectors, padded_blocks
from secid.measure.information import InformationState, log_det_nats
from secid.measure.sweep import Variant, sweep

D, RECORDS = 48, 2000
VARIANTS = (Variant(0.05, "base", "full"), Variant(0.2, "base", "fisher"))


def unit(generator: np.random.Generator, n: int) -> torch.Tensor:
    rows = generator.standard_normal((n, D)).astype(np.float32) + 0.5
    return torch.from_numpy(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def made(seed: int) -> tuple[Vectors, Triplets, np.ndarray]:
    """Records of 1 to 12 negatives in random order."""
    generator = np.random.default_rng(seed)
    counts = generator.integers(1, 13, RECORDS)
    n = int(counts.sum())
    record = np.repeat(np.arange(RECORDS), counts)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    vectors = Vectors(unit(generator, RECORDS), unit(generator, RECORDS + n))
    rows = Triplets(record, record, RECORDS + generator.permutation(n), offsets, record, np.arange(n))
    return vectors, rows, generator.uniform(0, 1, n)


def part_state(vectors: Vectors, rows: Triplets, coverage: np.ndarray, records: np.ndarray) -> list[InformationState]:
    """The states of some records, as a run over them alone would leave them."""
    keep = np.flatnonzero(np.isin(rows.record, records))
    counts = np.diff(rows.record_offsets)[np.sort(records)]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    part = Triplets(rows.query[keep], rows.positive[keep], rows.negative[keep], offsets, rows.record[keep], keep)
    swept = sweep(vectors, part, {"base": coverage[keep]}, VARIANTS)
    return [swept.state(variant) for variant in VARIANTS]


def relative(one: InformationState, other: InformationState) -> float:
    """Largest relative difference of the matrices' entries (to the largest) and of the scores at two budgets."""
    entries = float((one.matrix() - other.matrix()).abs().max() / other.matrix().abs().max())
    scores = [
        abs(log_det_nats(one.matrix(), budget) / log_det_nats(other.matrix(), budget) - 1) for budget in (1.0, 1000.0)
    ]
    return max(entries, *scores)


def test_parts_of_whole_blocks_merge_to_the_last_bits():
    vectors, rows, coverage = made(0)
    whole = part_state(vectors, rows, coverage, np.arange(RECORDS))
    blocks = [block.groups for block in padded_blocks(rows.record_offsets)]
    assert len(blocks) > 5
    parts = [part_state(vectors, rows, coverage, np.concatenate(blocks[start : start + 2])) for start in (0, 2, 4)]
    parts.append(part_state(vectors, rows, coverage, np.concatenate(blocks[6:])))
    for place in range(len(VARIANTS)):
        merged = parts[2][place] + parts[0][place] + (parts[3][place] + parts[1][place])
        assert merged.n_negatives == whole[place].n_negatives
        assert relative(merged, whole[place]) < 1e-12
        missing = parts[2][place] + parts[0][place] + parts[3][place]
        assert relative(missing, whole[place]) > 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_any_parts_merge_to_float32_rounding_of_one_block(seed):
    vectors, rows, coverage = made(seed)
    whole = part_state(vectors, rows, coverage, np.arange(RECORDS))
    chosen = np.random.default_rng(seed).random(RECORDS) < 0.4
    for place in range(len(VARIANTS)):
        parts = [part_state(vectors, rows, coverage, np.flatnonzero(side))[place] for side in (chosen, ~chosen)]
        assert relative(parts[0] + parts[1], whole[place]) < 5e-7
