"""Rows and token ids between host memory and devices. torch is imported only where a tensor is at hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


def host_rows(rows: Any) -> NDArray[Any]:
    """A tensor's values in host memory; an array as it is."""
    if isinstance(rows, np.ndarray):
        return rows
    with own_stream(rows):
        values: NDArray[Any] = rows.cpu().numpy()
    return values


def to_device(array: NDArray[np.int64], device: torch.device) -> torch.Tensor:
    """An array on a device; a GPU goes on with what it does, and copies it in its turn."""
    import torch

    from secid.encode.device import is_gpu

    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if is_gpu(device) else tensor.to(device)


@contextmanager
def own_stream(rows: Any) -> Iterator[None]:
    """Has work on a batch of a GPU done when the block ends, without waiting for the batches queued behind it.

    A batch is computed when it arrives. Nothing is to be done for rows in host memory.
    """
    if isinstance(rows, np.ndarray) or not rows.is_cuda:
        yield
        return
    import torch

    stream = torch.cuda.Stream(rows.device)  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()
