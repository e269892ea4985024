"""Distinct values, membership and ordering in large arrays, with ties broken by content."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

FLOAT32_DISTANCE = 1e-3
"""Maximum length of a float32 difference n - p that counts as rounding noise, not a direction. Source: METHOD 2.6."""

SCORE_UNIT = 2.0**-30
"""Unit to which scores are rounded before comparison, about 1e-9. A different order of summation changes a score
by at most 1e-14. Scores of different texts mostly differ by more than 1e-6. Source: METHOD 11."""

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]
Number = TypeVar("Number", bound=np.generic)


def distinct(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """Return the distinct values, sorted. values: (n,) in any order.

    Sorting is ten times as fast here as `numpy.unique`, and fastest if the values are already sorted, as most ids are.
    """
    ordered = np.sort(values, kind="stable")
    new = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def is_known(values: npt.NDArray[Number], known: npt.NDArray[Number]) -> npt.NDArray[np.bool_]:
    """Return flags in the shape of `values`: True for each value that is in `known`, which is sorted."""
    if not len(known):
        return np.zeros(values.shape, np.bool_)
    place = np.minimum(np.searchsorted(known, values), len(known) - 1)
    flags: npt.NDArray[np.bool_] = known[place] == values
    return flags


def narrow(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the values as int32 if they fit, to halve the memory of a triplet. The type hint stays int64.

    Products of int32 ids can overflow, so `pairs` converts them to int64 first.
    """
    fits = not len(values) or (values.max() < 2**31 and values.min() >= -(2**31))
    return values.astype(np.int32, copy=False) if fits else values


def pairs(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64], n_second: int) -> npt.NDArray[np.int64]:
    """Return a number for each pair of ids, (n,). The numbers sort by the first id, then by the second.

    n_second : any number above every second id.
    """
    return first.astype(np.int64) * n_second + second


def rounded(scores: Floats, unit: float = SCORE_UNIT) -> Floats:
    """Round to the nearest multiple of `unit`, a power of two. Infinity and NaN stay."""
    multiples: Floats = np.rint(scores / unit)
    multiples *= unit
    return multiples


def best_first(scores: Floats, content: npt.NDArray[Any], *groups: npt.NDArray[Any], unit: float = SCORE_UNIT) -> Index:
    """Return the sort order that every selection uses: highest rounded score first, ties broken by content.

    scores  : (n,), or (q, m) to sort each row. NaN comes last.
    content : hash of each text, or its rank by such a hash, in the shape of `scores`.
    groups  : (n,) sort keys that take precedence over the score; the last key is the primary one. Source: METHOD 11.
    """
    order: Index = np.lexsort((content, -rounded(scores, unit), *groups))
    return order


def best(scores: Floats, content: npt.NDArray[Any], k: int) -> Index:
    """Return (k,) positions of the k best scores in the order of `best_first`; all of them if there are fewer."""
    places = np.arange(len(scores))
    if len(scores) > k:
        last = np.partition(scores, len(scores) - k)[len(scores) - k]
        places = np.flatnonzero(scores >= last - SCORE_UNIT)
        places = places[rounded(scores[places]) >= rounded(last)]
    return places[best_first(scores[places], content[places])[:k]]


def first_in_row(table: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return flags in the shape of `table`: True for the first occurrence of each value in its row."""
    order = np.argsort(table, axis=1, kind="stable")
    ordered = np.take_along_axis(table, order, axis=1)
    new = np.ones_like(ordered, np.bool_)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.empty_like(new)
    np.put_along_axis(first, order, new, axis=1)
    return first
