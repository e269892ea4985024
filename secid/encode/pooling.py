"""Token vectors → text vectors: pooling, then the modules after it (FORMATS 2).

Padding is on the right, so a text's tokens are its first `lengths` positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from secid.encode.modules import AGAIN, Head
from secid.errors import EncoderError, plainly
from secid.settings import flag_of

UNREADABLE = (SafetensorError, EOFError, OSError)
"""Raised by reading a truncated or damaged weights file."""


def pool(hidden: Tensor, lengths: Tensor, modes: Sequence[str], skip: int = 0) -> Tensor:
    """Text vectors (b, d * len(modes)) float32 of token vectors (b, t, d).

    lengths : (b,) int64, tokens of each text, 1 to t.
    skip    : number of leading tokens to exclude (prompt tokens, if the recipe says so).
    """
    hidden = hidden.float()
    places = torch.arange(hidden.shape[1], device=hidden.device)
    mask = (places >= skip) & (places < lengths[:, None])
    return torch.cat([_pool_one(hidden, lengths, mask, mode) for mode in modes], dim=1)


def _pool_one(hidden: Tensor, lengths: Tensor, mask: Tensor, mode: str) -> Tensor:
    if mode == "cls":
        # the first token that is not excluded; the very first if the prompt is the whole text
        return hidden[torch.arange(len(hidden), device=hidden.device), mask.int().argmax(dim=1)]
    if mode == "last":
        return hidden[torch.arange(len(hidden), device=hidden.device), lengths - 1]
    if mode == "max":
        return hidden.masked_fill(~mask[:, :, None], float("-inf")).amax(dim=1)
    weights = mask.float()
    if mode == "weighted_mean":
        weights = weights * torch.arange(1, mask.shape[1] + 1, device=hidden.device)
    total = weights.sum(dim=1, keepdim=True).clamp(min=1e-9)
    weights = weights / (total.sqrt() if mode == "mean_sqrt_len" else total)
    # One matrix product, which needs no (b, t, d) copy.
    return torch.bmm(weights[:, None, :], hidden)[:, 0]


class DenseHead(nn.Module):
    """A linear layer with an activation and, rarely, a residual."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.linear = nn.Linear(head.in_features, head.out_features, bias=head.bias)
        self.activation = getattr(nn, head.activation)()
        self.use_residual = head.residual
        if head.residual and head.in_features != head.out_features:
            self.residual = nn.Linear(head.in_features, head.out_features, bias=False)

    def forward(self, vectors: Tensor) -> Tensor:
        out: Tensor = self.activation(self.linear(vectors))
        if not self.use_residual:
            return out
        return out + (self.residual(vectors) if hasattr(self, "residual") else vectors)


class LayerNormHead(nn.Module):
    def __init__(self, head: Head) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(head.in_features)

    def forward(self, vectors: Tensor) -> Tensor:
        out: Tensor = self.norm(vectors)
        return out


class UnitHead(nn.Module):
    def forward(self, vectors: Tensor) -> Tensor:
        return nn.functional.normalize(vectors, dim=1)


def build_heads(heads: Sequence[Head], allow_pickle: bool) -> nn.Sequential:
    """The modules after pooling with their weights, float32.

    Raises EncoderError if weights are missing or do not match the config.
    """
    modules: list[nn.Module] = []
    for head in heads:
        if head.folder is None:
            modules.append(UnitHead())
            continue
        module: nn.Module = DenseHead(head) if head.kind == "dense" else LayerNormHead(head)
        path = _weight_file(head.folder, allow_pickle)
        try:
            module.load_state_dict(_weights(path))
        except UNREADABLE as error:
            raise EncoderError(f"cannot be read: {plainly(error)}", where=str(path), remedy=AGAIN) from error
        except RuntimeError as error:
            raise EncoderError(f"the weights do not match config.json: {error}", where=str(path)) from error
        modules.append(module)
    return nn.Sequential(*modules)


def head_files(heads: Sequence[Head], allow_pickle: bool) -> list[Path]:
    """The weight files of the modules after pooling, in order. Raises EncoderError if one is missing."""
    return [_weight_file(head.folder, allow_pickle) for head in heads if head.folder is not None]


def _weight_file(folder: Path, allow_pickle: bool) -> Path:
    safe, pickle = folder / "model.safetensors", folder / "pytorch_model.bin"
    if safe.is_file():
        return safe
    if pickle.is_file() and allow_pickle:
        return pickle
    remedy = f"use {flag_of('allow_pickle', True)} to load pytorch_model.bin" if pickle.is_file() else AGAIN
    raise EncoderError("model.safetensors is missing", where=str(folder), remedy=remedy)


def _weights(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    if path.suffix == ".safetensors":
        return load_file(path)
    weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return weights
