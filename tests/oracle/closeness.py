"""Compare a computed result with the reference. Only this module decides what is "equal enough"."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def assert_close(actual: Any, expected: Any, rel: float = 1e-6, abs: float = 1e-12, path: str = "") -> None:
    """Raise AssertionError at the first place where `actual` differs from `expected`.

    Numbers match if |actual - expected| <= max(rel * |expected|, abs). NaN and infinity match
    nothing, not even themselves. Booleans, texts and None must be equal and of the same kind.
    Mappings must have the same keys, sequences (lists, tuples, arrays) the same length and order.
    Two results without any value inside show nothing, and do not match.
    path : name of the place, shown in the message; extended by [key] on the way down.
    """
    if _n_compared(actual, expected, rel, abs, path) == 0:
        raise AssertionError(f"{path or 'result'}: nothing to compare in {actual!r} and {expected!r}")


def _n_compared(actual: Any, expected: Any, rel: float, absolute: float, path: str) -> int:
    """Return the number of values compared below `path`; raise at the first mismatch."""
    if isinstance(expected, Mapping):
        if not isinstance(actual, Mapping) or set(actual) != set(expected):
            raise AssertionError(f"{path or 'result'}: {_keys(actual)}, expected {_keys(expected)}")
        return sum(_n_compared(actual[key], expected[key], rel, absolute, f"{path}[{key!r}]") for key in expected)
    if _is_sequence(expected):
        if not _is_sequence(actual) or len(actual) != len(expected):
            raise AssertionError(f"{path or 'result'}: {_length(actual)}, expected {_length(expected)}")
        pairs = enumerate(zip(actual, expected, strict=True))
        return sum(_n_compared(left, right, rel, absolute, f"{path}[{index}]") for index, (left, right) in pairs)
    if not _matches(actual, expected, rel, absolute):
        raise AssertionError(f"{path or 'result'}: {actual!r}, expected {expected!r} (rel {rel:g}, abs {absolute:g})")
    return 1


def _matches(actual: Any, expected: Any, rel: float, absolute: float) -> bool:
    if _is_number(actual) and _is_number(expected):
        left, right = float(actual), float(expected)
        # Written as "passes if", so that NaN and infinity - infinity fail.
        return math.fabs(left - right) <= max(rel * math.fabs(right), absolute) and math.isfinite(right)
    both_bool = isinstance(actual, bool | np.bool_) and isinstance(expected, bool | np.bool_)
    return (both_bool or type(actual) is type(expected)) and bool(actual == expected)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _keys(value: Any) -> str:
    return f"keys {sorted(map(str, value))}" if isinstance(value, Mapping) else f"{type(value).__name__} {value!r}"


def _length(value: Any) -> str:
    return f"{len(value)} values" if _is_sequence(value) else f"{type(value).__name__} {value!r}"
