"""Tests that the comparison notices damage."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.oracle import reference
from tests.oracle.reference import assert_close
from tests.oracle.samples import random_source


def test_equal_results_match():
    assert_close(
        {"a": [1.0, None, "x", True], "b": {"c": np.array([1.0, 2.0])}},
        {"a": [1.0, None, "x", True], "b": {"c": [1, 2]}},
    )
    assert_close(1.0 + 1e-9, 1.0)
    assert_close(1e-13, 0.0)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (1.0 + 1e-5, 1.0), (1e-11, 0.0), (math.nan, 1.0), (math.nan, math.nan), (1.0, math.nan), (math.inf, math.inf),
        (1.0, math.inf), (None, 1.0), (1.0, None), (True, 1), (1, True), ("1.0", 1.0), ([1.0], [1.0, 2.0]),
        ([2.0, 1.0], [1.0, 2.0]), ({"a": 1.0}, {"a": 1.0, "b": 2.0}), ({"a": 1.0, "b": 2.0}, {"a": 1.0}),
        (1.0, {"a": 1.0}), ({}, {}), ([], []),
    ],
)  # fmt: skip
def test_damage_is_noticed(actual, expected):
    with pytest.raises(AssertionError):
        assert_close(actual, expected)


def test_a_mismatch_names_the_place_and_both_numbers():
    with pytest.raises(AssertionError, match=r"run\['a'\]\[1\]: 2\.5, expected 2\.0"):
        assert_close({"a": [1.0, 2.5]}, {"a": [1.0, 2.0]}, path="run")


@pytest.mark.parametrize("key", ["eci_nats", "trace", "pair_loss_mean", "weight_mean"])
def test_a_damaged_score_is_noticed(key):
    score = reference.summary(random_source(1, 5, 2, 4))
    with pytest.raises(AssertionError, match=key):
        assert_close({**score, key: score[key] * (1 + 1e-5)}, score)
