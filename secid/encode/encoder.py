"""Define the interface of encoders, check, scale and move their rows, and use any Python function as an encoder."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from secid.errors import EncoderError, NonFiniteEmbeddingError, SecidError
from secid.records import Fact
from secid.results import EncoderInfo
from secid.settings import DEFAULTS, Settings, flag_of

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer
    from typing_extensions import TypeIs

# The interface of an encoder, without torch, so that planning and caching can use these types without a model.

Role = Literal["query", "passage"]
Float32Rows = NDArray[np.float32]


class EncodedBatch(NamedTuple):
    """Rows of some of the texts, in an order that suits the device.

    positions : (b,) int64 positions in the sequence of texts.
    vectors   : (b, d) float32 rows, an array or a torch tensor. A tensor on a GPU is complete when it is yielded.
    truncated : (b,) flags of texts that were truncated at the maximum length.
    n_tokens  : number of tokens of these texts, with special tokens and without padding; 0 if unknown.
    """

    positions: NDArray[np.int64]
    vectors: Any
    truncated: NDArray[np.bool_]
    n_tokens: int


class Encoder(Protocol):
    """A frozen encoder. `encode` keeps the order of the texts, and returns (0, d) for no texts."""

    @property
    def info(self) -> EncoderInfo: ...

    def encode(self, texts: Sequence[str], role: Role) -> Float32Rows:
        """Return (n, info.dim) float32; unit rows if `info.normalize`."""
        ...


@runtime_checkable
class StreamingEncoder(Protocol):
    """An encoder that yields batches when they are ready, so that rows can be stored while it runs.

    failures : one sentence for each device that has failed so far. Other devices took over its work.
    """

    @property
    def failures(self) -> tuple[str, ...]: ...

    def batches(self, texts: Sequence[str], role: Role) -> Iterator[EncodedBatch]:
        """Yield batches that together hold every position of `texts` exactly once."""
        ...


def in_text_order(batches: Iterable[EncodedBatch], n_texts: int, dimension: int) -> Float32Rows:
    """Return the rows of all batches in the order of the texts, (n_texts, dimension) float32.

    Raises ValueError if the encoder broke its contract, so that a text is missing or occurs twice.
    """
    rows = np.empty((n_texts, dimension), dtype=np.float32)
    counts = np.zeros(n_texts, dtype=np.int64)
    for batch in batches:
        rows[batch.positions] = batch.vectors
        np.add.at(counts, batch.positions, 1)
    if not bool((counts == 1).all()):
        raise ValueError(f"{int((counts != 1).sum())} of {n_texts} texts were not encoded exactly once")
    return rows


# Rows and token ids between host memory and devices. torch is imported only for tensors.


def host_rows(rows: Any) -> NDArray[Any]:
    """Return a tensor's values in host memory; an array unchanged."""
    if isinstance(rows, np.ndarray):
        return rows
    with own_stream(rows):
        values: NDArray[Any] = rows.cpu().numpy()
    return values


def to_device(array: NDArray[np.int64], device: torch.device) -> torch.Tensor:
    """Copy an array to a device; to a GPU, asynchronously."""
    import torch

    from secid.encode.device import is_gpu

    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if is_gpu(device) else tensor.to(device)


@contextmanager
def own_stream(rows: Any) -> Iterator[None]:
    """Run the block's work on GPU rows in a separate stream. At the end, wait for this work, but not for later batches.

    The rows must be complete. For rows in host memory, only run the block.
    """
    if isinstance(rows, np.ndarray) or not rows.is_cuda:
        yield
        return
    import torch

    stream = torch.cuda.Stream(rows.device)  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()


# Check, truncate and scale rows from a file, an endpoint or a function.

MODEL_FIELDS = ("dtype", "device", "batch_tokens", "trust_remote_code", "allow_pickle")
"""Settings for loading and running a model. They have no effect if secid does not run the model."""

BLOCK_ROWS = 512
"""Number of rows to scale at once. Their float64 copy stays in the processor's cache."""

ROW_PER_TEXT_REMEDY = "return one vector for each text, all of one length"

VectorRows = NDArray[np.floating[Any]]


def as_rows(values: Any, n_texts: int, dimension: int | None, where: str) -> VectorRows:
    """Return values as (n_texts, d) numbers. Keep floating-point formats. Raises EncoderError for another shape."""
    try:
        rows = np.asarray(values)
        rows = rows if rows.dtype.kind == "f" else rows.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise EncoderError(
            f"vectors must be arrays of numbers of equal length: {error}", where=where, remedy=ROW_PER_TEXT_REMEDY
        ) from error
    expected = f"({n_texts}, {'d' if dimension is None else dimension})"
    if rows.ndim != 2 or len(rows) != n_texts or rows.shape[1] == 0 or dimension not in (None, rows.shape[1]):
        message = f"got vectors of shape {rows.shape} for {n_texts} texts, expected {expected}"
        raise EncoderError(message, where=where, remedy=ROW_PER_TEXT_REMEDY)
    return rows


def finish_rows(rows: VectorRows, truncate_dim: int | None, normalize: bool) -> Float32Rows:
    """Return the first `truncate_dim` numbers of each row, at unit length if `normalize`. A zero row stays zero.

    A row with NaN, infinity or a number that float32 cannot hold becomes NaN, infinity or zero. `embed` stops on all
    three and names the text.
    """
    if truncate_dim is not None:
        rows = rows[:, :truncate_dim]
    with np.errstate(over="ignore"):
        return _unit_rows(rows) if normalize else rows.astype(np.float32, copy=False)


def _unit_rows(rows: VectorRows) -> Float32Rows:
    """Scale rows to unit length in float64, and round once at the end."""
    unit = np.empty(rows.shape, np.float32)
    for start in range(0, len(rows), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        part = rows[block].astype(np.float64)
        squares = np.einsum("ij,ij->i", part, part)
        with np.errstate(invalid="ignore"):
            unit[block] = part / np.sqrt(np.where(squares == 0, 1, squares))[:, None]
    return unit


def unused_flags(settings: Settings, kind: str, names: tuple[str, ...]) -> tuple[Fact, ...]:
    """Return one fact of this kind with the settings in `names` that the user set; () if the user set none of them."""
    ignored = [name for name in names if getattr(settings, name) != getattr(DEFAULTS, name)]
    return (Fact(kind, {"flags": ", ".join(map(flag_of, ignored))}),) if ignored else ()


def cut_dimension(dimension: int, truncate_dim: int | None) -> int:
    """Return the dimension after truncation. Raises EncoderError if the encoder has fewer dimensions."""
    if truncate_dim is not None and truncate_dim > dimension:
        raise EncoderError(
            f"{flag_of('truncate_dim', truncate_dim)} exceeds the encoder's {dimension} dimensions",
            remedy=f"use {flag_of('truncate_dim', dimension)} or less",
        )
    return dimension if truncate_dim is None else truncate_dim


# Turn texts into unit rows, batch by batch. Every row is checked, so that no text gets a meaningless row.
# Source: METHOD 2, 11.

TEXTS_PER_CALL = 256
"""Number of texts per call to an encoder that does not stream."""

TEXTS_PER_LOOKUP = 8192
"""Number of texts per call if rows are looked up in a file."""

SQUARED_LENGTH_TOLERANCE = 2e-6
"""Maximum difference between 1 and a unit row's squared length, from float32 rounding of 4,096 scaled numbers."""


def embed(encoder: Encoder, texts: Sequence[str], role: Role) -> Generator[EncodedBatch, None, None]:
    """Yield the unit rows of all texts, in batches as they become ready. Rows of unit length are not scaled again.

    texts : sequence that need not be in memory. It is read by slices or one by one, possibly by other threads.
    Raises NonFiniteEmbeddingError, which names the text, if a row has NaN or infinity, or only zeros.
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
    """Return a batch's rows at length 1, on their device. Some encoders do not scale their rows, or use 16 bits."""
    rows: Any = batch.vectors
    if bool((abs(_squares(rows, exact=False) - 1) <= SQUARED_LENGTH_TOLERANCE).all()):
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
    """Return (n,) squared lengths. exact: whether to compute in float64."""
    if isinstance(rows, np.ndarray):
        return np.einsum("ij,ij->i", rows, rows, dtype=np.float64 if exact else None)
    return (rows.double() if exact else rows).square().sum(1)


# Any Python function as an encoder.

EncodeFunction = Callable[[list[str], Role], Any]


class FunctionEncoder:
    """Encoder that passes texts and their role to a function unchanged, and checks and scales the returned rows."""

    def __init__(self, function: EncodeFunction, info: EncoderInfo) -> None:
        self._function = function
        self.info = info

    def encode(self, texts: Sequence[str], role: Role) -> Float32Rows:
        """Return (n, info.dim) float32; unit rows if `info.normalize`.

        Raises EncoderError if the function does not return one row of numbers per text.
        """
        if not texts:
            return np.empty((0, self.info.dim), np.float32)
        rows = _answer(self._function, list(texts), role, self.info.dim, self.info.name)
        return finish_rows(rows, None, self.info.normalize)


def from_callable(
    function: EncodeFunction, name: str, *, fingerprint: str = "", normalize: bool = True
) -> FunctionEncoder:
    """Return an encoder that calls a function.

    function    : `function(texts, role)` returns one vector per text, and adds its own prefixes.
    name        : name in reports.
    fingerprint : text that identifies exactly this function with its weights, so that its rows can be cached. Without
                  a fingerprint, nothing is cached.
    normalize   : whether to scale rows to unit length.
    Raises EncoderError if the function does not return (n, d) numbers.
    """
    if not name:
        raise EncoderError("an encoder function needs a name", remedy="write from_callable(function, 'my-encoder')")
    probe = _answer(function, ["dimension"], "passage", None, name)
    info = EncoderInfo(
        name=name,
        revision=None,
        weights_sha256=None,
        pooling="unknown",
        query_prefix="",
        passage_prefix="",
        max_length=None,
        normalize=normalize,
        dtype="unknown",
        device="unknown",
        dim=probe.shape[1],
        fingerprint=fingerprint,
        rules={"query_prefix": "function", "passage_prefix": "function", "normalize": "caller"},
        facts=() if fingerprint else (Fact("no_fingerprint"),),
    )
    return FunctionEncoder(function, info)


def _answer(function: EncodeFunction, texts: list[str], role: Role, dimension: int | None, name: str) -> VectorRows:
    """Return the function's rows for these texts. Raises EncoderError if it fails or returns anything else."""
    try:
        values = function(texts, role)
    except SecidError:
        raise
    except Exception as error:
        batch = f"{len(texts):,} {role} text{'s' * (len(texts) > 1)}, starting with {texts[0][:40]!r}"
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise EncoderError(
            f"the encoder function failed on {batch}: {reason}",
            where=name,
            remedy="accept any list of texts with its role; the first call has the single text 'dimension'",
        ) from error
    return as_rows(_plain(values), len(texts), dimension, name)


def _plain(values: Any) -> Any:
    """Return tensors as arrays, even if they have gradients or are on a device. Return other values unchanged."""
    if hasattr(values, "detach"):  # works without importing torch
        return values.detach().cpu().float().numpy()
    return [_plain(value) for value in values] if isinstance(values, list | tuple) else values


def is_sentence_transformer(encoder: object) -> TypeIs[SentenceTransformer]:
    """Return True if the encoder is a model of sentence-transformers. Import nothing."""
    return any(kind.__module__.startswith("sentence_transformers.") for kind in type(encoder).__mro__)
