"""Rows that come from outside (a file, an endpoint, a function): checked, truncated, scaled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secid.encode.protocol import Float32Rows
from secid.errors import EncoderError
from secid.records import Fact
from secid.settings import DEFAULTS, Settings, flag_of

MODEL_FIELDS = ("dtype", "device", "batch_tokens", "trust_remote_code", "allow_pickle")
"""Settings for loading and running a model, without effect if secid runs none."""

SMALLEST, LARGEST = 1e-15, 1e15
"""Rows whose largest number lies in this range keep squared sums far from the limits of float32, in any dimension."""


def as_rows(values: Any, n_texts: int, dimension: int | None, where: str) -> Float32Rows:
    """(n_texts, d) float32. Raises EncoderError if `values` is no such array of numbers."""
    try:
        rows = np.asarray(values)
        rows = as_float32(rows if rows.dtype.kind == "f" else rows.astype(np.float64))
    except (TypeError, ValueError, OverflowError) as error:
        raise EncoderError(f"vectors must be arrays of numbers of equal length: {error}", where=where) from error
    expected = f"({n_texts}, {'d' if dimension is None else dimension})"
    if rows.ndim != 2 or len(rows) != n_texts or rows.shape[1] == 0 or dimension not in (None, rows.shape[1]):
        raise EncoderError(f"vectors of shape {rows.shape} for {n_texts} texts, expected {expected}", where=where)
    return rows


def as_float32(rows: NDArray[np.floating[Any]]) -> Float32Rows:
    """(n, d) float32. Rows whose squares float32 cannot hold are divided by their largest number first.

    The score uses directions alone, so the length of such a row is not kept. NaN and infinity stay.
    """
    if rows.ndim != 2 or not rows.size:
        return rows.astype(np.float32)
    largest = np.maximum(rows.max(axis=1, keepdims=True), -rows.min(axis=1, keepdims=True)).astype(np.float64)
    outside = (largest > 0) & (largest < np.inf) & ((largest < SMALLEST) | (largest > LARGEST))
    if outside.any():
        rows = rows / np.where(outside, largest, 1)
    with np.errstate(over="ignore"):
        return rows.astype(np.float32, copy=False)


def finish_rows(rows: Float32Rows, truncate_dim: int | None, normalize: bool) -> Float32Rows:
    """The first `truncate_dim` numbers of each row, at unit length if `normalize`. A zero row stays zero.

    NaN and infinity pass through as NaN: `embed` stops on them and names the text.
    """
    if truncate_dim is not None:
        rows = rows[:, :truncate_dim]
    if not normalize:
        return rows
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.divide(rows, np.where(lengths == 0, 1, lengths), dtype=np.float32)


def unused_flags(settings: Settings, kind: str, names: tuple[str, ...]) -> tuple[Fact, ...]:
    """The settings among `names` that were given but have no effect on an encoder; kind: of the fact."""
    ignored = [name for name in names if getattr(settings, name) != getattr(DEFAULTS, name)]
    return (Fact(kind, {"flags": ", ".join(map(flag_of, ignored))}),) if ignored else ()


def cut_dimension(dimension: int, truncate_dim: int | None) -> int:
    """The dimension after truncation. Raises EncoderError if the encoder has fewer."""
    if truncate_dim is not None and truncate_dim > dimension:
        raise EncoderError(
            f"{flag_of('truncate_dim', truncate_dim)} exceeds the encoder's {dimension} dimensions",
            remedy=f"use {flag_of('truncate_dim', dimension)} or less",
        )
    return dimension if truncate_dim is None else truncate_dim
