"""Texts → unit rows, batch by batch, each checked: no text of a run has a row that means nothing (METHOD 2, 11)."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np

from secid.encode.protocol import EncodedBatch, Encoder, Role, StreamingEncoder
from secid.encode.transfer import host_rows, own_stream
from secid.errors import NonFiniteEmbeddingError

TEXTS_PER_CALL = 256
"""Texts per call to an encoder that does not stream."""

TEXTS_PER_LOOKUP = 8192
"""The same where rows are looked up in a file."""

UNIT_TOLERANCE = 2e-6
"""How far the squared length of a row may be from 1: float32 rounding of 4,096 numbers that were scaled to it."""


def embed(encoder: Encoder, texts: Sequence[str], role: Role) -> Generator[EncodedBatch, None, None]:
    """Unit rows of all texts, in batches as they are ready. Rows that are unit already are not scaled again.

    texts : read by slices or one by one, possibly by other threads; need not be in memory.
    Raises NonFiniteEmbeddingError naming the text of a row of NaN, infinity or zeros.
    """
    for batch in _batches(encoder, texts, role):
        with own_stream(batch.vectors):
            batch = batch._replace(vectors=_unit(batch, texts, encoder))
        yield batch


def _batches(encoder: Encoder, texts: Sequence[str], role: Role) -> Iterator[EncodedBatch]:
    if isinstance(encoder, StreamingEncoder):
        yield from encoder.batches(texts, role)
        return
    n = TEXTS_PER_LOOKUP if encoder.info.pooling == "precomputed" else TEXTS_PER_CALL
    for start in range(0, len(texts), n):
        part = texts[start : start + n]
        positions = np.arange(start, start + len(part))
        yield EncodedBatch(positions, encoder.encode(part, role), np.zeros(len(part), dtype=np.bool_), 0)


def _unit(batch: EncodedBatch, texts: Sequence[str], encoder: Encoder) -> Any:
    """The rows of a batch, on its device, at length 1: not all encoders scale them, or compute in 32 bits."""
    rows: Any = batch.vectors
    if bool((abs(_squares(rows, exact=False) - 1) <= UNIT_TOLERANCE).all()):
        return rows
    squares = _squares(rows, exact=True)
    bad = np.flatnonzero(~host_rows((squares > 0) & (squares < np.inf)))
    if len(bad):
        is_half = isinstance(encoder, StreamingEncoder) and encoder.info.dtype in ("bf16", "fp16")
        raise NonFiniteEmbeddingError(
            f"the encoder returned NaN, infinity or a zero vector for {len(bad)} of {len(batch.positions)} texts, "
            f"first for {texts[int(batch.positions[bad[0]])][:80]!r}",
            where=encoder.info.name,
            remedy=f"use --dtype float32 (now {encoder.info.dtype})"
            if is_half
            else "remove the text, or fix the program that computes its vector",
        )
    scaled = rows / squares[:, None] ** 0.5
    return scaled.astype(np.float32) if isinstance(scaled, np.ndarray) else scaled.float()


def _squares(rows: Any, exact: bool) -> Any:
    """(n,) squared lengths, in float64 if exact."""
    if isinstance(rows, np.ndarray):
        return np.einsum("ij,ij->i", rows, rows, dtype=np.float64 if exact else None)
    return (rows.double() if exact else rows).square().sum(1)
