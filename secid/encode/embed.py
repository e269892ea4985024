"""Texts of a plan → rows in a memory map; each text is encoded once, a cached one not at all (DESIGN 1, 5)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from secid.encode.cache import Cache
from secid.encode.keys import Keys
from secid.encode.precomputed import PrecomputedEncoder
from secid.encode.protocol import EncodedBatch, Encoder, Float32Rows, Role, StreamingEncoder
from secid.errors import NonFiniteEmbeddingError, OutputError

TEXTS_PER_CALL = 256
"""Texts per call to an encoder that does not stream."""


class Texts(Protocol):
    """Texts that need not be held in memory."""

    def __len__(self) -> int: ...

    def get(self, start: int, stop: int) -> list[str]: ...


@dataclass(frozen=True)
class EmbedCounts:
    """Counts and time of embedding. n_texts = n_cached + n_encoded; n_tokens: of the encoded, without padding."""

    n_texts: int
    n_cached: int
    n_encoded: int
    n_tokens: int
    n_truncated: int
    seconds: float


def embed(
    encoder: Encoder,
    texts: Texts,
    keys: Keys,
    role: Role,
    out: Float32Rows,
    *,
    cache: Cache | None,
    progress: Callable[[int], None],
    truncated: NDArray[np.bool_] | None = None,
) -> EmbedCounts:
    """Fills `out` with the rows of `texts`. Those to encode are held in memory and sorted by length together.

    keys      : (n, 16) uint8, one per text, equal only for equal role and text.
    out       : (n, d) float32, usually a memory map.
    cache     : ignored for an encoder without a fingerprint, whose rows cannot be identified, and for a vectors file,
                which needs none.
    progress  : called with the number of texts done since the last call.
    truncated : (n,) bool, filled with whether each text was cut at the maximum length.
    Raises NonFiniteEmbeddingError naming the text, ValueError if shapes do not match.
    Source: METHOD 11, DESIGN 5.
    """
    n, started = len(texts), time.perf_counter()
    if not encoder.info.fingerprint or isinstance(encoder, PrecomputedEncoder):
        cache = None
    if keys.shape != (n, 16) or out.shape != (n, encoder.dimension):
        raise ValueError(f"{n} texts, keys {keys.shape}, out {out.shape}, dimension {encoder.dimension}")
    marks = np.zeros(n, dtype=np.bool_) if truncated is None else truncated
    cached = np.zeros(n, dtype=np.bool_) if cache is None else cache.lookup(keys, out, marks)
    n_cached, n_tokens = int(cached.sum()), 0
    progress(n_cached)
    try:
        places = np.flatnonzero(~cached)
        missing = _fetch(texts, places)
        for batch in _batches(encoder, missing, role) if missing else ():
            _refuse_unusable(batch, missing, encoder)
            _store(batch, places[batch.positions], keys, out, marks, cache)
            n_tokens += batch.n_tokens
            progress(len(batch.positions))
    except BaseException:  # also on Ctrl-C: finished rows stay in the cache, and this error is the one reported
        if cache is not None:
            with contextlib.suppress(OutputError):
                cache.seal()
        raise
    if cache is not None:
        cache.seal()
    seconds = time.perf_counter() - started
    return EmbedCounts(n, n_cached, n - n_cached, n_tokens, int(marks.sum()), seconds)


def _fetch(texts: Texts, places: NDArray[np.int64]) -> list[str]:
    """The texts at ascending positions, one read per run of neighbours."""
    cuts = np.flatnonzero(np.diff(places) > 1) + 1
    result: list[str] = []
    for run in np.split(places, cuts) if len(places) else ():
        result.extend(texts.get(int(run[0]), int(run[-1]) + 1))
    return result


def _batches(encoder: Encoder, texts: list[str], role: Role) -> Iterator[EncodedBatch]:
    if isinstance(encoder, StreamingEncoder):
        yield from encoder.batches(texts, role)
        return
    for start in range(0, len(texts), TEXTS_PER_CALL):
        part = texts[start : start + TEXTS_PER_CALL]
        positions = np.arange(start, start + len(part))
        yield EncodedBatch(positions, encoder.encode(part, role), np.zeros(len(part), dtype=np.bool_), 0)


def _refuse_unusable(batch: EncodedBatch, texts: list[str], encoder: Encoder) -> None:
    squares = np.einsum("ij,ij->i", batch.vectors, batch.vectors, dtype=np.float64)
    bad = np.flatnonzero(~(np.isfinite(squares) & (squares > 0)))
    if len(bad):
        text = texts[int(batch.positions[bad[0]])]
        raise NonFiniteEmbeddingError(
            f"the encoder returned NaN, infinity or a zero vector for {len(bad)} of {len(batch.positions)} texts, "
            f"first for {text[:80]!r}",
            where=encoder.info.name,
            remedy=f"use --dtype float32 (now {encoder.info.dtype})"
            if isinstance(encoder, StreamingEncoder) and encoder.info.dtype in ("bf16", "fp16")
            else "remove the text, or fix the program that computes its vector",
        )


def _store(
    batch: EncodedBatch,
    places: NDArray[np.int64],
    keys: Keys,
    out: Float32Rows,
    truncated: NDArray[np.bool_],
    cache: Cache | None,
) -> None:
    out[places] = batch.vectors
    truncated[places] = batch.truncated
    if cache is not None:
        cache.add(keys[places], batch.vectors, batch.truncated)
