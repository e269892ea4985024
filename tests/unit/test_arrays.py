"""Arithmetic on arrays of ids: distinct values, membership and pairs, as Python's sets and integers give them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secid.analyses.controls import triplets_from
from secid.analyses.overlap import SourceNegatives, overlaps
from secid.arrays import distinct, is_known, narrow, pairs

VALUES = st.lists(st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1), max_size=30)
LARGEST = 2**31 - 1
IDS = st.lists(st.tuples(st.integers(0, LARGEST), st.integers(0, LARGEST)), max_size=20)
"""Any that int32 holds."""


@given(VALUES)
def test_distinct_values_are_a_sorted_set(values):
    result = distinct(np.array(values, np.int64))
    assert result.tolist() == sorted(set(values))
    assert result.dtype == np.int64


@given(VALUES, VALUES)
def test_membership_is_that_of_a_set(values, known):
    result = is_known(np.array(values, np.int64), np.sort(np.array(known, np.int64)))
    assert result.tolist() == [value in set(known) for value in values]


def test_keys_without_a_sign():
    assert distinct(np.array([2**64 - 1, 0, 2**64 - 1], np.uint64)).tolist() == [0, 2**64 - 1]


@given(st.lists(st.integers(-(2**33), 2**33), max_size=10))
def test_narrow_keeps_every_value_and_is_small_where_all_fit(values):
    result = narrow(np.array(values, np.int64))
    assert result.tolist() == values
    fits = all(-(2**31) <= value < 2**31 for value in values)
    assert result.dtype == (np.int32 if fits else np.int64)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(LARGEST, np.int32), (LARGEST + 1, np.int64), (-(2**31), np.int32), (-(2**31) - 1, np.int64)],
)
def test_narrow_at_the_edge(value, dtype):
    result = narrow(np.array([0, value], np.int64))
    assert (result.dtype, result.tolist()) == (dtype, [0, value])


@given(IDS, st.sampled_from([np.int32, np.int64]))
def test_pairs_of_narrow_ids_are_exact(ids, dtype):
    first, second = np.array(ids, np.int64).reshape(-1, 2).T.astype(dtype)
    n_second = LARGEST + 1
    result = pairs(first, second, n_second)
    assert result.tolist() == [a * n_second + b for a, b in ids]
    order = sorted(range(len(ids)), key=lambda place: ids[place])
    assert np.argsort(result, kind="stable").tolist() == order


def test_a_product_that_was_not_widened_first_would_be_noticed():
    ids = np.array([2**20, 2**12], np.int32)
    assert pairs(ids, ids, 2**20).tolist() == [2**40 + 2**20, 2**32 + 2**12]
    assert (ids * np.int32(2**20)).tolist() != [2**40, 2**32]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_overlap_of_large_ids(dtype):
    """Keys of the last pairs lie near 2^40: as int32 they would collide."""
    query = np.array([0, 2**20, 2**20], dtype)
    first = SourceNegatives("a", query, np.array([2**20 - 1, 3, 2**20], dtype))
    second = SourceNegatives("b", query, np.array([2**20 - 1, 3, 5], dtype))
    (shared,) = overlaps([first, second])
    assert shared.negative_jaccard_mean == pytest.approx((1 + 1 / 3) / 2)
    assert (shared.shared_query_fraction, shared.shared_document_fraction) == (1.0, pytest.approx(2 / 3))


def test_triplets_of_controls_hold_narrow_ids_and_wide_ones_where_they_must():
    pair, small = np.array([0, 0, 2]), np.array([7, 7, 2**31 - 1])
    rows = triplets_from(pair, small, small, small)
    assert (rows.record.tolist(), rows.record_offsets.tolist()) == ([0, 0, 1], [0, 2, 3])
    assert {rows.query.dtype, rows.positive.dtype, rows.negative.dtype, rows.place.dtype} == {np.dtype(np.int32)}
    wide = triplets_from(pair, small, small, small + 1)
    assert (wide.negative.dtype, wide.negative.tolist()) == (np.int64, [8, 8, 2**31])
