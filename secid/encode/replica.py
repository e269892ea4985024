"""One copy of an encoder's modules on one device: from a batch of token ids to text vectors.

Source: FORMATS 2 (recipes), METHOD 11 (precision).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from secid.encode.batching import Feed, TokenBatch, halves
from secid.encode.protocol import EncodedBatch
from secid.encode.recipe import Recipe
from secid.errors import EncoderError

OUT_OF_MEMORY = ("out of memory", "alloc_failed", "not enough memory", "can't allocate memory")
"""Words of torch's error, in lower case, when memory runs out outside its CUDA allocator: in cuBLAS, in pinned memory,
on MPS and on the CPU it raises a plain RuntimeError."""


def _too_long(batch: TokenBatch, error: Exception) -> EncoderError:
    """For a text longer than the position table of a model type that `max_length` does not know."""
    return EncoderError(
        f"the model fails on a text of {int(batch.lengths[0])} tokens: {error}", remedy="use a smaller --max-length"
    )


def is_out_of_memory(error: Exception) -> bool:
    text = str(error).lower()
    return isinstance(error, torch.cuda.OutOfMemoryError) or any(words in text for words in OUT_OF_MEMORY)


class Pending(NamedTuple):
    """A batch in flight. vectors : (b, d) float32 in host memory, complete after `done`; None: complete already."""

    batch: TokenBatch
    vectors: Tensor
    done: torch.cuda.Event | None

    def fetched(self) -> EncodedBatch:
        if self.done is not None:
            self.done.synchronize()
        batch = self.batch
        return EncodedBatch(batch.positions, self.vectors.numpy(), batch.truncated, int(batch.lengths.sum()))


Mask = Literal["padding", "broadcast", "none"]


class Replica(NamedTuple):
    """A chain of modules (`SentenceTransformer`), ready on a device.

    mask : what its model gets of a padded batch: which tokens are padding; the same ready for attention, which saves
           transformers a look at it that waits for the device; or nothing, where no token sees a later one.
    """

    model: Any
    device: torch.device
    mask: Mask = "padding"

    def work(self, feed: Feed, recipe: Recipe, skip: int) -> Iterator[EncodedBatch]:
        """Encodes batches of the feed until it is empty; runs in its own thread.

        A batch is fetched when the next one is in flight. A batch that does not fit into the device's memory is
        halved and tried again, and the feed's later ones are smaller. Encoded batches are not lost.
        """
        self._bind_thread()
        waiting: Pending | None = None
        parts: deque[TokenBatch] = deque()
        while (batch := parts.popleft() if parts else feed.take()) is not None:
            try:
                pending = self._copy_to_host(batch, self.forward(batch, recipe, skip))
            except (IndexError, RuntimeError) as error:
                if isinstance(error, IndexError) or "must match" in str(error):
                    raise _too_long(batch, error) from error
                if not is_out_of_memory(error):
                    raise
                if len(batch.positions) == 1:
                    raise self._out_of_memory(batch) from error
                feed.shrink(batch.ids.size)
                parts.extendleft(reversed(halves(batch)))
            else:
                if waiting is not None:
                    yield waiting.fetched()
                waiting = pending
                continue
            torch.cuda.empty_cache()  # here, where the error no longer references the failed attempt's tensors
        if waiting is not None:
            yield waiting.fetched()

    def _copy_to_host(self, batch: TokenBatch, vectors: Tensor) -> Pending:
        """Queues the copy to the host behind the batch: requested later, it would wait for the next batch as well."""
        if self.device.type != "cuda":
            return Pending(batch, vectors.cpu(), None)
        host = torch.empty(vectors.shape, dtype=vectors.dtype, pin_memory=True)
        host.copy_(vectors, non_blocking=True)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        return Pending(batch, host, done)

    def _bind_thread(self) -> None:
        """Binds the calling thread to this device; on a CPU, to one core."""
        if self.device.type == "cpu":
            torch.set_num_threads(1)
        elif self.device.type == "cuda":
            torch.cuda.set_device(self.device)

    def _out_of_memory(self, batch: TokenBatch) -> EncoderError:
        return EncoderError(
            f"out of memory on {self.device} with a single text of {int(batch.lengths[0])} tokens",
            remedy="use a smaller --max-length, a smaller encoder or --device cpu",
        )

    @torch.inference_mode()
    def forward(self, batch: TokenBatch, recipe: Recipe, skip: int) -> Tensor:
        """Vectors (b, d) float32, still on the device. skip: number of leading tokens to exclude from pooling."""
        ids = self._to_device(batch.ids)
        lengths = self._to_device(batch.lengths)
        features: dict[str, Any] = {"input_ids": ids}
        if batch.lengths[-1] < batch.ids.shape[1]:  # without padding no mask is needed, and attention is faster
            features["attention_mask"] = (torch.arange(ids.shape[1], device=self.device) < lengths[:, None]).long()
        if skip:
            features["prompt_length"] = skip
        vectors: Tensor = self._run(features, recipe.task)["sentence_embedding"].float()
        if recipe.truncate_dim is not None:
            vectors = vectors[:, : recipe.truncate_dim]
        if recipe.normalize:
            vectors = nn.functional.normalize(vectors, dim=1)
        return vectors

    def _run(self, features: dict[str, Any], task: str) -> dict[str, Any]:
        """The features after all modules, as `SentenceTransformer` computes them."""
        mask = features.get("attention_mask")
        if self.mask == "padding" or mask is None:
            after: dict[str, Any] = self.model(features, task=task)
            return after
        first, *others = self.model
        given = {"input_ids": features["input_ids"]}
        if self.mask == "broadcast":
            given["attention_mask"] = mask[:, None, None, :].bool()
        features = {**first(given), **features}
        for module in others:
            features = module(features)
        return features

    def _to_device(self, array: NDArray[np.int64]) -> Tensor:
        tensor = torch.from_numpy(array)
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)
