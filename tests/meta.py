"""Check on the meta device, which holds no numbers, that code never makes the host wait for a device."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WAITS = ("_local_scalar_dense", "nonzero", "is_nonzero", "masked_select", "unique", "equal", "item")
"""Operations whose result, or its shape, the host must read from the device."""


class WaitError(AssertionError):
    """An operation makes the host wait for the device, or mixes two devices."""


class NoWait(TorchDispatchMode):
    """Reject host synchronisation and mixed devices. counts : number of calls of each operation on `device`."""

    def __init__(self, device: str = "meta") -> None:
        super().__init__()
        self._device = device
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        devices = {tensor.device.type for tensor in tensors if tensor.dim()}
        if self._device in devices:
            self.counts[name] += 1
            to = kwargs.get("device")
            booleans = any(tensor.dtype == torch.bool for tensor in tensors[1:]) and name in ("index", "index_put_")
            if name in WAITS or booleans or (to is not None and torch.device(to).type != self._device):
                raise WaitError(f"{name} waits for the device")
            if len(devices) > 1 and name not in ("_to_copy", "copy_"):
                raise WaitError(f"{name} mixes {sorted(devices)}")
        return func(*args, **kwargs)
