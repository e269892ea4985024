"""Distinct values and membership by sorting: those of Python's sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from secid.arrays import among, distinct

VALUES = st.lists(st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1), max_size=30)


@given(VALUES)
def test_distinct_values_are_a_sorted_set(values):
    found = distinct(np.array(values, np.int64))
    assert found.tolist() == sorted(set(values))
    assert found.dtype == np.int64


@given(VALUES, VALUES)
def test_membership_is_that_of_a_set(values, known):
    found = among(np.array(values, np.int64), np.sort(np.array(known, np.int64)))
    assert found.tolist() == [value in set(known) for value in values]


def test_keys_without_a_sign():
    assert distinct(np.array([2**64 - 1, 0, 2**64 - 1], np.uint64)).tolist() == [0, 2**64 - 1]
