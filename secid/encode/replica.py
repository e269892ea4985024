"""One copy of an encoder's modules on one device: from a batch of token ids to text vectors.

Source: FORMATS 2 (recipes), METHOD 11 (precision).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from secid.encode.batching import Feed, TokenBatch, halves
from secid.encode.device import is_gpu
from secid.encode.modules import AGAIN
from secid.encode.protocol import EncodedBatch
from secid.encode.recipe import Recipe, position_room
from secid.encode.transfer import to_device
from secid.errors import EncoderError, plainly

OUT_OF_MEMORY = ("out of memory", "alloc_failed", "not enough memory", "can't allocate memory")
"""Words of torch's error, in lower case, when memory runs out outside its CUDA allocator: in cuBLAS, in pinned memory,
on MPS and on the CPU it raises a plain RuntimeError."""


class DeviceError(Exception):
    """A device failed. What it had taken is back in the feed."""


class Limits(NamedTuple):
    """Sizes of a model's tables, None where it has none: reading beyond one makes a CUDA device unusable."""

    n_words: int | None
    n_positions: int | None

    @staticmethod
    def of(model: nn.Module) -> Limits:
        models: list[Any] = [part for part in model.modules() if hasattr(part, "get_input_embeddings")]
        inputs = [part.get_input_embeddings() for part in models]
        words = next((table.num_embeddings for table in inputs if isinstance(table, nn.Embedding)), None)
        return Limits(words, position_room(model))

    def check(self, batch: TokenBatch) -> None:
        """Raises EncoderError if a batch does not fit the tables."""
        highest, longest = int(batch.ids.max()), batch.ids.shape[1]
        if self.n_words is not None and highest >= self.n_words:
            raise EncoderError(
                f"the tokenizer returns token {highest}, but the model has {self.n_words} token vectors",
                remedy=f"tokenizer and model do not belong together: {AGAIN}",
            )
        if self.n_positions is not None and longest > self.n_positions:
            raise _too_long(batch, f"it has {self.n_positions} positions")


def _too_long(batch: TokenBatch, reason: object) -> EncoderError:
    return EncoderError(
        f"the model fails on a text of {int(batch.lengths[0])} tokens: {reason}", remedy="use a smaller --max-length"
    )


def is_out_of_memory(error: Exception) -> bool:
    text = str(error).lower()
    return isinstance(error, torch.cuda.OutOfMemoryError) or any(words in text for words in OUT_OF_MEMORY)


class Pending(NamedTuple):
    """A batch in flight. vectors : (b, d) float32, on its device if that is CUDA, complete after `done`."""

    batch: TokenBatch
    vectors: Tensor
    done: torch.cuda.Event | None

    def fetch(self) -> EncodedBatch:
        if self.done is not None:
            self.done.synchronize()
        batch, vectors = self.batch, self.vectors
        rows = vectors if vectors.is_cuda else vectors.numpy()
        return EncodedBatch(batch.positions, rows, batch.truncated, int(batch.lengths.sum()))


class Replica(NamedTuple):
    """A chain of modules (`SentenceTransformer`), ready on a device."""

    model: Any
    device: torch.device

    def on(self, device: torch.device) -> Replica:
        """A copy on another device, to which the weights go directly."""
        copies: dict[int, Any] = {id(tensor): tensor.to(device) for tensor in self.model.buffers()}
        copies |= {id(tensor): nn.Parameter(tensor.to(device), False) for tensor in self.model.parameters()}
        return Replica(copy.deepcopy(self.model, copies), device)

    def work(self, feed: Feed, recipe: Recipe, skip: int) -> Iterator[EncodedBatch]:
        """Encodes batches of the feed until it is empty; runs in its own thread.

        A batch is fetched when the next one is in flight. A batch that does not fit into the device's memory is
        halved and tried again, and the feed's later ones are smaller. Encoded batches are not lost.
        Raises DeviceError if the device fails: the batches that it had taken are left to the other workers.
        """
        taken: list[TokenBatch] = []
        try:
            self._bind_thread()
            yield from self._stream(feed, recipe, skip, taken)
        except RuntimeError as error:
            if "device-side assert" in str(error):
                raise EncoderError(
                    f"{self.device} rejected the input of the model",
                    remedy="--device cpu names the cause; mostly tokenizer and model do not belong together",
                ) from error
            for batch in taken:
                feed.give_back(batch)
            taken.clear()
            raise DeviceError(plainly(error)[:200]) from error
        finally:
            feed.done(len(taken))

    def _stream(self, feed: Feed, recipe: Recipe, skip: int, taken: list[TokenBatch]) -> Iterator[EncodedBatch]:
        """See `work`. taken : filled with the batches that are not encoded yet."""
        limits, waiting = Limits.of(self.model), None
        while True:
            batch = feed.take(wait=waiting is None)
            pending = None
            if batch is not None:
                taken.append(batch)
                limits.check(batch)
                pending = self._launch(batch, recipe, skip)
                if pending is None:  # after the error, which held on to the failed attempt's tensors
                    torch.cuda.empty_cache()
                    feed.shrink(batch.ids.size)
                    feed.give_back(taken.pop(), *halves(batch))
                    continue
            elif waiting is None:
                return
            if waiting is not None:
                encoded = waiting.fetch()
                feed.done()
                taken.pop(0)
                yield encoded
            waiting = pending

    def _launch(self, batch: TokenBatch, recipe: Recipe, skip: int) -> Pending | None:
        """The batch on its way; None if the device's memory does not hold it."""
        try:
            vectors = self.forward(batch, recipe, skip)
            if not is_gpu(self.device):
                return Pending(batch, vectors.cpu(), None)
            done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            done.record()
            return Pending(batch, vectors, done)
        except (IndexError, RuntimeError) as error:
            if isinstance(error, IndexError) or "must match" in str(error):
                raise _too_long(batch, error) from error
            if not is_out_of_memory(error):
                raise
            if len(batch.positions) == 1:
                raise self._out_of_memory(batch) from error
            return None

    def _bind_thread(self) -> None:
        """Binds the calling thread to this device; on a CPU, to one core."""
        if self.device.type == "cpu":
            torch.set_num_threads(1)
        elif is_gpu(self.device):
            torch.cuda.set_device(self.device)

    def _out_of_memory(self, batch: TokenBatch) -> EncoderError:
        return EncoderError(
            f"out of memory on {self.device} with a single text of {int(batch.lengths[0])} tokens",
            remedy="use a smaller --max-length, a smaller encoder or --device cpu",
        )

    @torch.inference_mode()
    def forward(self, batch: TokenBatch, recipe: Recipe, skip: int) -> Tensor:
        """As `vectors`, without a gradient."""
        return self.vectors(batch, recipe, skip)

    def vectors(self, batch: TokenBatch, recipe: Recipe, skip: int) -> Tensor:
        """Vectors (b, d) float32, still on the device. skip: number of leading tokens to exclude from pooling."""
        ids = to_device(batch.ids, self.device)
        lengths = to_device(batch.lengths, self.device)
        features: dict[str, Any] = {"input_ids": ids}
        if batch.lengths[-1] < batch.ids.shape[1]:  # without padding no mask is needed, and attention is faster
            features["attention_mask"] = (torch.arange(ids.shape[1], device=self.device) < lengths[:, None]).long()
        if skip:
            features["prompt_length"] = skip
        vectors: Tensor = self.model(features, task=recipe.task)["sentence_embedding"].float()
        if recipe.truncate_dim is not None:
            vectors = vectors[:, : recipe.truncate_dim]
        if recipe.normalize:
            vectors = nn.functional.normalize(vectors, dim=1)
        return vectors
