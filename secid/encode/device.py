"""Choose devices, number formats and batch budgets, and run a copy of an encoder's modules on a device."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from secid.encode.batching import BatchQueue, TokenBatch, halves
from secid.encode.encoder import EncodedBatch, host_rows, to_device
from secid.encode.modules import SAVE_AGAIN
from secid.encode.recipe import Recipe, position_room
from secid.errors import EncoderError, plain_message

# Device, number format and batch budget.

CPU_BUDGET = 512
"""Padded tokens per batch on one core, so that activations stay in its cache. CPU time relative to 256 tokens (MiniLM,
texts of mixed lengths): 0.99 at 512, 1.01 at 1,024, 1.03 at 2,048, 1.4 at 8,192."""

CPU_BF16_BUDGET = 2_048
"""Padded tokens per batch on one core in bf16. CPU time relative to float32 at 512 tokens (same texts): 0.78 at 512,
0.69 at 1,024, 0.65 at 2,048, 0.70 at 4,096."""

GPU_BUDGET = 131_072
"""Padded tokens per batch on a CUDA GPU. `Replica.work` halves them if the GPU runs out of memory."""

OTHER_GPU_BUDGET = 16_384
"""Padded tokens per batch (200 passages) on Apple's and Intel's GPUs, which share the host's memory or have little
memory. Not measured."""

BF16, FP16 = (8, 0), (7, 0)
"""Lowest compute capabilities with matrix units for the format. Below, bf16 is emulated and slower than float32."""

TEXTS_PER_GPU = 32_768
"""Number of texts that justify another GPU. With fewer, the first GPUs finish before it has loaded the model."""


DEVICE_SHARE = 0.4
"""Maximum share of a GPU's free memory for rows. The rest is for the encoder's batches and the blocks of measuring."""


def is_gpu(device: torch.device) -> bool:
    """Return whether the device is a GPU that torch calls cuda (NVIDIA's and AMD's), which runs asynchronously."""
    return device.type == "cuda"


@contextmanager
def without_cudnn_attention(device: torch.device) -> Iterator[None]:
    """Keep torch from computing attention on a GPU with cuDNN, which builds a plan for each new shape of a batch.

    Batches differ in both sizes, so nearly every batch would need a plan. The switch applies to all threads
    and devices. Source: docs/decisions/gpu-attention.md.
    """
    enabled = is_gpu(device) and torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    if enabled:
        torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        if enabled:
            torch.backends.cuda.enable_cudnn_sdp(True)


def gpu_of(names: str) -> torch.device | None:
    """Return the first of an encoder's devices if it is a CUDA GPU; else None. names: as in EncoderInfo.device."""
    return torch.device(names.split(",")[0]) if names.startswith("cuda") else None


def gpu_with_room(names: str, n_bytes: int) -> torch.device | None:
    """Return the first of these devices if it is a CUDA GPU with room for n_bytes of rows; else None."""
    device = gpu_of(names)
    return device if device is not None and n_bytes <= DEVICE_SHARE * torch.cuda.mem_get_info(device)[0] else None


def choose_devices(names: str) -> tuple[torch.device, ...]:
    """Return the devices of --device. auto: all CUDA devices, else Apple's MPS, else the CPU.

    Raises EncoderError if the machine or the installed torch lacks a device, or if devices are of different kinds.
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
    """Return whether this CPU multiplies bf16 in hardware (AVX512-BF16 or AMX); False if torch does not report it."""
    has: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(has.get("avx512_bf16") or has.get("amx_bf16"))


def _named_device(name: str) -> torch.device:
    if not re.fullmatch(r"cpu|mps|(cuda|xpu)(:\d+)?", name):
        raise EncoderError(
            f"unknown device {name!r}",
            where="--device",
            remedy="use auto, cpu, mps, xpu, cuda, cuda:N, or several such as cuda:0,cuda:1",
        )
    device = torch.device(name)
    if is_gpu(device):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count <= (device.index or 0):
            build = "a CPU build" if torch.version.cuda is None else f"built for CUDA {torch.version.cuda}"
            raise EncoderError(
                f"{name} is not available (CUDA devices: {count}; torch {torch.__version__} is {build})",
                where="--device",
                remedy="use --device auto; `secid doctor` lists the available devices",
            )
    missing = (device.type == "mps" and not torch.backends.mps.is_available()) or (
        device.type == "xpu" and torch.xpu.device_count() <= (device.index or 0)
    )
    if missing:
        raise EncoderError(f"{name} is not available", where="--device", remedy="use --device auto")
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the number format of --dtype. auto: the fastest format on CUDA, float32 elsewhere (METHOD 11).

    On CUDA the fastest format is bf16 if the hardware has matrix units for it, else fp16 if it has those, else float32.
    A row that fp16 cannot hold is NaN, and `embed` rejects it.
    """
    if name != "auto":
        return {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
    if not is_gpu(device):
        return torch.float32
    capability = torch.cuda.get_device_capability(device)
    return torch.bfloat16 if capability >= BF16 else torch.float16 if capability >= FP16 else torch.float32


def default_budget(device: torch.device, dtype: torch.dtype = torch.float32) -> int:
    """Return the number of padded tokens per batch for a device and number format."""
    if device.type == "cpu" and dtype == torch.bfloat16:
        return CPU_BF16_BUDGET
    return {"cuda": GPU_BUDGET, "cpu": CPU_BUDGET}.get(device.type, OTHER_GPU_BUDGET)


def n_devices(available: int, n_texts: int) -> int:
    """Return the number of GPUs to use for n_texts, from 1 to the number available."""
    return max(1, min(available, -(-n_texts // TEXTS_PER_GPU)))


# A copy of an encoder's modules on a device turns batches of token ids into text vectors.
# Source: FORMATS 2 (recipes), METHOD 11 (precision).

OUT_OF_MEMORY = ("out of memory", "alloc_failed", "not enough memory", "can't allocate memory")
"""Words of torch's errors, in lower case, if memory runs out outside its CUDA allocator. For cuBLAS, pinned memory, MPS
and the CPU, torch raises a plain RuntimeError."""


class DeviceError(Exception):
    """Error of a device that failed. Its unfinished batches are back in the queue."""


class Limits(NamedTuple):
    """Numbers of rows in a model's token and position tables; None without a table.

    Reading beyond a table makes a CUDA device unusable.
    """

    n_words: int | None
    n_positions: int | None

    @staticmethod
    def of(model: nn.Module) -> Limits:
        models: list[Any] = [part for part in model.modules() if hasattr(part, "get_input_embeddings")]
        inputs = [part.get_input_embeddings() for part in models]
        words = next((table.num_embeddings for table in inputs if isinstance(table, nn.Embedding)), None)
        return Limits(words, position_room(model))

    def check(self, batch: TokenBatch) -> None:
        """Refuse a batch that does not fit the tables. Raises EncoderError."""
        highest, longest = int(batch.ids.max()), batch.ids.shape[1]
        if self.n_words is not None and highest >= self.n_words:
            raise EncoderError(
                f"the tokenizer returns token {highest}, but the model has {self.n_words} token vectors",
                remedy=f"the tokenizer belongs to another model: {SAVE_AGAIN}",
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
    """A batch in flight.

    vectors : (b, d) float32, complete after `done`; on the batch's device if it is CUDA, else on the host.
    done    : event at the end of the batch; None if the batch is complete.
    stays   : whether rows stay on the device. Otherwise they are copied to the host by `fetch`.
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
    """A chain of modules (`SentenceTransformer`) on a device.

    keeps : whether rows may stay on the device, because the run computes on it.
    """

    model: Any
    device: torch.device
    keeps: bool = True

    def on(self, device: torch.device) -> Replica:
        """Return a copy on another device. Weights are copied directly between devices."""
        copies: dict[int, Any] = {id(tensor): tensor.to(device) for tensor in self.model.buffers()}
        copies |= {id(tensor): nn.Parameter(tensor.to(device), False) for tensor in self.model.parameters()}
        return Replica(copy.deepcopy(self.model, copies), device, keeps=False)

    def work(self, queue: BatchQueue, recipe: Recipe, skip: int) -> Iterator[EncodedBatch]:
        """Encode batches of the queue until it is empty. Each replica works in its own thread.

        A batch is fetched when the next one is in flight. A batch that does not fit into the device's memory is
        halved and tried again, and later batches are smaller. Encoded batches are not lost.
        Raises DeviceError if the device fails. Its unfinished batches go back to the queue for other workers.
        """
        open_batches: list[TokenBatch] = []
        try:
            self._bind_thread()
            yield from self._stream(queue, recipe, skip, open_batches)
        except RuntimeError as error:
            if "device-side assert" in str(error):
                raise EncoderError(
                    f"{self.device} rejected the input of the model",
                    remedy="use --device cpu to see the cause; usually the tokenizer belongs to another model",
                ) from error
            for batch in open_batches:
                queue.give_back(batch)
            open_batches.clear()
            raise DeviceError(plain_message(error)[:200]) from error
        finally:
            queue.done(len(open_batches))

    def _stream(
        self, queue: BatchQueue, recipe: Recipe, skip: int, open_batches: list[TokenBatch]
    ) -> Iterator[EncodedBatch]:
        """Yield the encoded batches of `work`. open_batches: list that always holds the unfinished batches."""
        limits, waiting = Limits.of(self.model), None
        while True:
            batch = queue.take(wait=waiting is None)
            pending = None
            if batch is not None:
                open_batches.append(batch)
                limits.check(batch)
                pending = self._launch(batch, recipe, skip)
                if pending is None:  # by now the error has released the tensors of the failed attempt
                    torch.cuda.empty_cache()
                    queue.shrink(batch.ids.size)
                    queue.give_back(open_batches.pop(), *halves(batch))
                    continue
            elif waiting is None:
                return
            if waiting is not None:
                encoded = waiting.fetch()
                queue.done()
                open_batches.pop(0)
                yield encoded
            waiting = pending

    def _launch(self, batch: TokenBatch, recipe: Recipe, skip: int) -> Pending | None:
        """Start a batch; return None if it does not fit into the device's memory."""
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
                raise EncoderError(
                    f"out of memory on {self.device} with a single text of {int(batch.lengths[0])} tokens",
                    remedy="use a smaller --max-length, a smaller encoder or --device cpu",
                ) from error
            return None

    def _bind_thread(self) -> None:
        """Bind the calling thread to this device; on a CPU, limit torch to one thread."""
        if self.device.type == "cpu":
            torch.set_num_threads(1)
        elif is_gpu(self.device):
            torch.cuda.set_device(self.device)

    @torch.inference_mode()
    def forward(self, batch: TokenBatch, recipe: Recipe, skip: int) -> Tensor:
        """Return `vectors` without a gradient."""
        return self.vectors(batch, recipe, skip)

    def vectors(self, batch: TokenBatch, recipe: Recipe, skip: int) -> Tensor:
        """Return vectors (b, d) float32 on the device. skip: number of leading tokens to exclude from pooling."""
        ids = to_device(batch.ids, self.device)
        lengths = to_device(batch.lengths, self.device)
        features: dict[str, Any] = {"input_ids": ids}
        if batch.lengths[-1] < batch.ids.shape[1]:  # attention is faster without a mask
            features["attention_mask"] = (torch.arange(ids.shape[1], device=self.device) < lengths[:, None]).long()
        if skip:
            features["prompt_length"] = skip
        vectors: Tensor = self.model(features, task=recipe.task)["sentence_embedding"].float()
        if recipe.truncate_dim is not None:
            vectors = vectors[:, : recipe.truncate_dim]
        if recipe.normalize:
            vectors = nn.functional.normalize(vectors, dim=1)
        return vectors
