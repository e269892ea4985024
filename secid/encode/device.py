"""Device, number format and batch budget, and one copy of an encoder's modules on one device."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from secid.encode.batching import Feed, TokenBatch, halves
from secid.encode.encoder import EncodedBatch, host_rows, to_device
from secid.encode.modules import AGAIN
from secid.encode.recipe import Recipe, position_room
from secid.errors import EncoderError, plainly

# Device, number format and batch budget.

CPU_BUDGET = 512
"""Padded tokens per batch on one core, so that activations stay in its cache. CPU time with MiniLM on mixed lengths,
relative to 256 tokens: 0.99 at 512, 1.01 at 1,024, 1.03 at 2,048, 1.4 at 8,192."""

CPU_BF16_BUDGET = 2_048
"""The same in bf16. CPU time relative to float32 at 512, the same texts: 0.78 at 512, 0.69 at 1,024, 0.65 at 2,048,
0.70 at 4,096."""

GPU_BUDGET = 131_072
"""Padded tokens of the first batches; halved when a GPU runs out of memory (`Replica.work`)."""

OTHER_BUDGET = 16_384
"""The same of Apple's and Intel's GPUs, which share the host's memory or have little: 200 passages. Not measured."""

BF16, FP16 = (8, 0), (7, 0)
"""First compute capabilities with matrix units for the format; before, bf16 is emulated and slower than float32."""

TEXTS_PER_GPU = 32_768
"""Texts for which another GPU is used: fewer are encoded before its copy of the model is ready."""


DEVICE_SHARE = 0.4
"""Of a GPU's free memory that rows may take; the rest is the encoder's batches and the measure stage's blocks."""


def is_gpu(device: torch.device) -> bool:
    """Whether work is queued on this device, beside which the host goes on: CUDA's, and those of AMD under its name."""
    return device.type == "cuda"


def gpu_of(names: str) -> torch.device | None:
    """The first of an encoder's devices, as its info lists them, if that is a GPU."""
    return torch.device(names.split(",")[0]) if names.startswith("cuda") else None


def gpu_with_room(names: str, n_bytes: int) -> torch.device | None:
    """The first GPU of these devices if this many bytes of rows fit on it; None for rows in a file."""
    device = gpu_of(names)
    return device if device is not None and n_bytes <= DEVICE_SHARE * torch.cuda.mem_get_info(device)[0] else None


def choose_devices(names: str) -> tuple[torch.device, ...]:
    """The devices of --device, each with its own worker. auto: all CUDA devices, else Apple's MPS, else the CPU.

    Raises EncoderError if the machine or the installed torch lacks one, or if they are of different kinds.
    """
    if names == "auto":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count > 1:
            return tuple(torch.device("cuda", number) for number in range(count))
        return (torch.device("cuda" if count else "mps" if torch.backends.mps.is_available() else "cpu"),)
    devices = tuple(map(_named_device, names.split(",")))
    if len({device.type for device in devices}) > 1:
        raise EncoderError(
            f"{names!r} mixes devices of different kinds",
            where="--device",
            remedy="use one kind, such as cuda:0,cuda:1",
        )
    return devices


def multiplies_bf16() -> bool:
    """Whether this CPU has instructions for products in bf16 (AVX512-BF16 or AMX); False where torch does not say."""
    has: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(has.get("avx512_bf16") or has.get("amx_bf16"))


def _named_device(name: str) -> torch.device:
    if not re.fullmatch(r"cpu|mps|(cuda|xpu)(:\d+)?", name):
        raise EncoderError(
            f"unknown device {name!r}",
            where="--device",
            remedy="auto, cpu, mps, xpu, cuda, cuda:N, or several such as cuda:0,cuda:1",
        )
    device = torch.device(name)
    if is_gpu(device):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count <= (device.index or 0):
            build = "a CPU build" if torch.version.cuda is None else f"built for CUDA {torch.version.cuda}"
            raise EncoderError(
                f"{name} is not available (CUDA devices: {count}; torch {torch.__version__} is {build})",
                where="--device",
                remedy="--device auto uses what is available; `secid doctor` lists it",
            )
    missing = (device.type == "mps" and not torch.backends.mps.is_available()) or (
        device.type == "xpu" and torch.xpu.device_count() <= (device.index or 0)
    )
    if missing:
        raise EncoderError(f"{name} is not available", where="--device", remedy="--device auto uses what is available")
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The number format of --dtype. auto: the fastest on CUDA, float32 elsewhere (METHOD 11).

    On CUDA that is bf16 where the hardware has it, else fp16 where it has units for that. A row that fp16 cannot hold
    is NaN, and `embed` refuses it.
    """
    if name != "auto":
        return {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
    if not is_gpu(device):
        return torch.float32
    capability = torch.cuda.get_device_capability(device)
    return torch.bfloat16 if capability >= BF16 else torch.float16 if capability >= FP16 else torch.float32


def default_budget(device: torch.device, dtype: torch.dtype = torch.float32) -> int:
    """Padded tokens of one batch."""
    if device.type == "cpu" and dtype == torch.bfloat16:
        return CPU_BF16_BUDGET
    return {"cuda": GPU_BUDGET, "cpu": CPU_BUDGET}.get(device.type, OTHER_BUDGET)


def n_devices(available: int, n_texts: int) -> int:
    """How many of the available GPUs so many texts need."""
    return max(1, min(available, -(-n_texts // TEXTS_PER_GPU)))


# One copy of an encoder's modules on one device: from a batch of token ids to text vectors.
#
# Source: FORMATS 2 (recipes), METHOD 11 (precision).

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
    """A batch in flight. vectors : (b, d) float32, on its device if that is CUDA, complete after `done`.

    stays : whether rows stay on that device. Others are safe on the host before the batch counts as encoded.
    """

    batch: TokenBatch
    vectors: Tensor
    done: torch.cuda.Event | None
    stays: bool = False

    def fetch(self) -> EncodedBatch:
        if self.done is not None:
            self.done.synchronize()
        batch, vectors = self.batch, self.vectors
        rows = vectors if self.stays else host_rows(vectors)
        return EncodedBatch(batch.positions, rows, batch.truncated, int(batch.lengths.sum()))


class Replica(NamedTuple):
    """A chain of modules (`SentenceTransformer`), ready on a device. keeps: whether rows may stay there, as on the GPU
    that the run computes on.
    """

    model: Any
    device: torch.device
    keeps: bool = True

    def on(self, device: torch.device) -> Replica:
        """A copy on another device, to which the weights go directly."""
        copies: dict[int, Any] = {id(tensor): tensor.to(device) for tensor in self.model.buffers()}
        copies |= {id(tensor): nn.Parameter(tensor.to(device), False) for tensor in self.model.parameters()}
        return Replica(copy.deepcopy(self.model, copies), device, keeps=False)

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
            return Pending(batch, vectors, done, self.keeps)
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
