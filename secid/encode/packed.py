"""Linear layers of a model with packed weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from secid.measure.packed_matrix import PackedMatrix


class PackedLinear(nn.Module):
    """nn.Linear for inference: same numbers in, same numbers out."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self._matrix = PackedMatrix(linear.weight.detach(), None if linear.bias is None else linear.bias.detach())

    def forward(self, values: Tensor) -> Tensor:
        return self._matrix.product(values)


@torch.inference_mode()
def pack(model: nn.Module) -> int:
    """Replaces every plain nn.Linear of the model; returns how many. Subclasses keep their own forward."""
    found = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear
    ]
    for parent, name, child in found:
        setattr(parent, name, PackedLinear(child))
    return len(found)
