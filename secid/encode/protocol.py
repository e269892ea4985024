"""What an encoder is to the rest of secid: texts and a role in, rows out.

Torch-free, so that planning and caching can name these types without loading a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from secid.results import EncoderInfo

Role = Literal["query", "passage"]
Float32Rows = NDArray[np.float32]


class EncodedBatch(NamedTuple):
    """Some of the requested texts, encoded, in whatever order suits the device.

    positions : (b,) int64, positions in the sequence of texts.
    vectors   : (b, d) float32, an array or a torch tensor; one on a GPU has been computed when it is yielded.
    truncated : (b,) bool, whether the text was cut at the maximum length.
    n_tokens  : tokens of these texts, with special tokens and without padding; 0 if unknown.
    """

    positions: NDArray[np.int64]
    vectors: Any
    truncated: NDArray[np.bool_]
    n_tokens: int


class Encoder(Protocol):
    """A frozen encoder. `encode` keeps the order of the texts and returns (0, d) for none."""

    @property
    def info(self) -> EncoderInfo: ...

    def encode(self, texts: Sequence[str], role: Role) -> Float32Rows:
        """(n, info.dim) float32; unit rows where `info.normalize`."""
        ...


@runtime_checkable
class StreamingEncoder(Protocol):
    """An encoder that yields batches as they are ready, so that rows can be stored while it runs.

    failures : a sentence on each device that has failed so far; the others went on.
    """

    @property
    def failures(self) -> tuple[str, ...]: ...

    def batches(self, texts: Sequence[str], role: Role) -> Iterator[EncodedBatch]:
        """Every position of `texts` exactly once, over all batches."""
        ...


def gather(batches: Iterable[EncodedBatch], n_texts: int, dimension: int) -> Float32Rows:
    """Batches put back in the order of the texts: (n_texts, dimension) float32.

    Raises ValueError if a text is missing or comes twice: the encoder broke its contract.
    """
    rows = np.empty((n_texts, dimension), dtype=np.float32)
    counts = np.zeros(n_texts, dtype=np.int64)
    for batch in batches:
        rows[batch.positions] = batch.vectors
        np.add.at(counts, batch.positions, 1)
    if not bool((counts == 1).all()):
        raise ValueError(f"{int((counts != 1).sum())} of {n_texts} texts were not encoded exactly once")
    return rows
