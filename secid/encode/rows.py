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

SMALLEST_SQUARE, LARGEST_SQUARE = 1e-250, 1e250
"""The same of squared lengths in float64."""

BLOCK_ROWS = 512
"""Rows that are scaled at once: their float64 copy stays in the cache of the processor."""

Rows = NDArray[np.floating[Any]]


def as_rows(values: Any, n_texts: int, dimension: int | None, where: str) -> Rows:
    """(n_texts, d) numbers, in their own format. Raises EncoderError if `values` is no such array of numbers."""
    try:
        rows = np.asarray(values)
        rows = rows if rows.dtype.kind == "f" else rows.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise EncoderError(f"vectors must be arrays of numbers of equal length: {error}", where=where) from error
    expected = f"({n_texts}, {'d' if dimension is None else dimension})"
    if rows.ndim != 2 or len(rows) != n_texts or rows.shape[1] == 0 or dimension not in (None, rows.shape[1]):
        raise EncoderError(f"vectors of shape {rows.shape} for {n_texts} texts, expected {expected}", where=where)
    return rows


def finish_rows(rows: Rows, truncate_dim: int | None, normalize: bool) -> Float32Rows:
    """The first `truncate_dim` numbers of each row, at unit length if `normalize`. A zero row stays zero.

    Rows that float32 cannot hold have unit length in any case: the score uses directions alone.
    NaN and infinity pass through as NaN or infinity: `embed` stops on them and names the text.
    """
    if truncate_dim is not None:
        rows = rows[:, :truncate_dim]
    if normalize:
        return _unit_rows(rows)
    if rows.dtype.itemsize <= np.dtype(np.float32).itemsize:
        return rows.astype(np.float32, copy=False)
    largest = np.abs(rows).max(axis=1)
    outside = (largest > 0) & (largest < np.inf) & ((largest < SMALLEST) | (largest > LARGEST))
    with np.errstate(over="ignore"):
        kept = rows.astype(np.float32)
    kept[outside] = _unit_rows(rows[outside])
    return kept


def _unit_rows(rows: Rows) -> Float32Rows:
    """Scale in float64, and round once at the end."""
    unit = np.empty(rows.shape, np.float32)
    for start in range(0, len(rows), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        part = rows[block].astype(np.float64)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            squares = np.einsum("ij,ij->i", part, part)
            if not ((squares > SMALLEST_SQUARE) & (squares < LARGEST_SQUARE)).all():
                _, exponent = np.frexp(np.abs(part).max(axis=1, keepdims=True))
                part = np.ldexp(part, -exponent)  # exact: the largest number of each row is now 0.5 to 1
                squares = np.einsum("ij,ij->i", part, part)
            part /= np.sqrt(np.where(squares == 0, 1, squares))[:, None]
            unit[block] = part
    return unit


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
