"""Device, number format and batch budget."""

from __future__ import annotations

import re

import torch

from secid.errors import EncoderError

CPU_BUDGET = 512
"""Padded tokens per batch on one core, so that activations stay in its cache. CPU time with MiniLM on mixed lengths,
relative to 256 tokens: 0.99 at 512, 1.01 at 1,024, 1.03 at 2,048, 1.4 at 8,192."""

CPU_BF16_BUDGET = 2_048
"""The same in bf16. CPU time relative to float32 at 512, the same texts: 0.78 at 512, 0.69 at 1,024, 0.65 at 2,048,
0.70 at 4,096."""

GPU_BUDGET = 131_072
"""Padded tokens of the first batches; halved when a GPU runs out of memory (`Replica.work`)."""

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
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", name):
        raise EncoderError(
            f"unknown device {name!r}",
            where="--device",
            remedy="auto, cpu, mps, cuda, cuda:N, or several such as cuda:0,cuda:1",
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
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise EncoderError("mps is not available", where="--device", remedy="--device auto uses what is available")
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
    return GPU_BUDGET if is_gpu(device) else CPU_BUDGET


def n_devices(available: int, n_texts: int) -> int:
    """How many of the available GPUs so many texts need."""
    return max(1, min(available, -(-n_texts // TEXTS_PER_GPU)))
