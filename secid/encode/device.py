"""Device, number format and batch budget."""

from __future__ import annotations

import re

import torch

from secid.errors import EncoderError

CPU_BUDGET = 512
"""Padded tokens of a batch on one core: its activations stay in the core's cache. Measured with MiniLM on
mixed lengths, processor time against 256 tokens: 512 0.99, 1,024 1.01, 2,048 1.03, 8,192 1.4."""

GPU_BUDGET = 131_072
"""Padded tokens of a batch to start from; a GPU that runs out of memory halves it (`Replica.work`)."""


def choose_devices(asked: str) -> tuple[torch.device, ...]:
    """The devices of --device, each with a worker of its own. auto: all CUDA devices, else Apple's MPS, else the CPU.

    Raises EncoderError where the machine or the installed torch lacks one, or where they are not of one kind.
    """
    if asked == "auto":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count > 1:
            return tuple(torch.device("cuda", number) for number in range(count))
        return (torch.device("cuda" if count else "mps" if torch.backends.mps.is_available() else "cpu"),)
    devices = tuple(map(_named_device, asked.split(",")))
    if len({device.type for device in devices}) > 1:
        raise EncoderError(
            f"{asked!r} names devices of several kinds", where="--device", remedy="name one kind, such as cuda:0,cuda:1"
        )
    return devices


def _named_device(asked: str) -> torch.device:
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", asked):
        raise EncoderError(
            f"device {asked!r} is not known",
            where="--device",
            remedy="auto, cpu, mps, cuda, cuda:N, or several such as cuda:0,cuda:1",
        )
    device = torch.device(asked)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count <= (device.index or 0):
            build = "a CPU build" if torch.version.cuda is None else f"built for CUDA {torch.version.cuda}"
            raise EncoderError(
                f"{asked} is not there: {count} CUDA devices seen, torch {torch.__version__} is {build}",
                where="--device",
                remedy="--device auto takes what there is; `secid doctor` lists it",
            )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise EncoderError("mps is not there", where="--device", remedy="--device auto takes what there is")
    return device


def choose_dtype(asked: str, device: torch.device) -> torch.dtype:
    """The number format of --dtype. auto: bf16 on CUDA, float32 elsewhere (METHOD 11)."""
    if asked == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[asked]


def default_budget(device: torch.device) -> int:
    """Padded tokens of one batch."""
    return GPU_BUDGET if device.type == "cuda" else CPU_BUDGET
