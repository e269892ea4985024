"""Exact search."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from secid.measure.blocks import Vectors
from secid.triplets.search import nearest, nearest_passages
from tests.meta import NoWait


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_the_nearest_rows_are_those_of_one_search_whatever_the_windows(size):
    draw = torch.Generator().manual_seed(0)
    queries, rows = torch.randn(11, 8, generator=draw), torch.randn(300, 8, generator=draw)
    expected = (queries @ rows.T).topk(10, dim=1).indices
    assert torch.equal(nearest(queries.split(4), rows.split(size), 10)[1], expected)


def test_the_search_never_waits_for_the_device():
    queries, rows = torch.empty(2000, 16, device="meta"), torch.empty(50_000, 16, device="meta")
    with NoWait() as mode:
        _, found = nearest(queries.split(1024), rows.split(16_384), 12)
    assert found.shape == (2000, 12)
    assert found.device.type == "meta"
    assert mode.counts["mm"] == 2 * 4
    assert sum(mode.counts.values()) <= 9 * 2 * 4 + 10


@pytest.mark.parametrize("length", [0.0, 1.0])
def test_of_equal_passages_the_first_are_the_nearest(length):
    vectors = Vectors(length * torch.ones(3, 8), torch.ones(300, 8))
    places, _ = nearest_passages(vectors, np.arange(3), np.arange(300), 5)
    assert places.tolist() == 3 * [[0, 1, 2, 3, 4]]


def test_without_rows_nothing_is_near():
    scores, places = nearest(torch.randn(11, 8).split(4), [], 10)
    assert (scores.shape, places.shape, places.dtype) == ((11, 0), (11, 0), torch.int64)
