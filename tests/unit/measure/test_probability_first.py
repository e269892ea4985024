"""Test how often each source comes first if some cannot differ."""

from __future__ import annotations

import numpy as np
import pytest

from secid.measure.uncertainty import probability_first


def test_one_source_under_two_names_shares_the_first_place():
    """Two of three are the same: each has half of what one of them would have against the third."""
    twice = np.array([[4.0, 4.0, 0.0], [4.0, 4.0, 0.0], [0.0, 0.0, 4.0]]) * 1e-4
    found = probability_first(np.array([0.30, 0.30 + 1e-12, 0.31]), twice, seed=0)
    alone = probability_first(np.array([0.30, 0.31]), twice[1:, 1:], seed=0)
    assert found[0] == found[1] > 0.1
    assert found[0] + found[1] == pytest.approx(alone[0], abs=0.01)
    assert found.sum() == pytest.approx(1.0)


def test_sources_that_differ_for_certain_share_nothing():
    assert probability_first(np.array([0.3, 0.3001]), np.zeros((2, 2)), seed=0).tolist() == [0.0, 1.0]
