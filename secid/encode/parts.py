"""The loaded parts of a transformer: its tokenizer, and its model once on every device.

Source: FORMATS 2, METHOD 11.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from secid.encode.modules import AGAIN
from secid.encode.pooling import UNREADABLE, build_heads
from secid.encode.recipe import Recipe
from secid.encode.replica import Replica
from secid.encode.rows import cut_dimension
from secid.encode.tokens import Tokeniser, load_tokeniser
from secid.errors import EncoderError, plainly
from secid.measure.packed_matrix import PackedMatrix, can_pack
from secid.settings import Settings


class Parts:
    """Tokenizer and model of a recipe, each loaded on first use.

    n_parameters : number of weights of the model and its heads.   dimension: length of a text's vector.
    """

    def __init__(
        self, recipe: Recipe, settings: Settings, devices: tuple[torch.device, ...], dtype: torch.dtype
    ) -> None:
        self.recipe = recipe
        self._settings = settings
        self._devices = devices
        self._dtype = dtype

    @cached_property
    def tokeniser(self) -> Tokeniser:
        with quiet():
            return load_tokeniser(self.recipe, self._settings.trust_remote_code)

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """One copy of the model per device, in the order of the devices."""
        return self._loaded[0]

    @property
    def n_parameters(self) -> int:
        return self._loaded[1]

    @property
    def dimension(self) -> int:
        return self._loaded[2]

    def load(self) -> None:
        """Loads everything now instead of on first use. Raises EncoderError if that fails."""
        _ = self.tokeniser, self.replicas

    @cached_property
    def _loaded(self) -> tuple[tuple[Replica, ...], int, int]:
        first = self._devices[0]
        with quiet():
            model = _load_model(self.recipe, self._settings, first, self._dtype)
        heads = build_heads(self.recipe.heads, self._settings.allow_pickle)
        dimension = _dimension(self.recipe, int(getattr(model.config, "hidden_size", 0) or model.config.dim))
        n_parameters = sum(value.numel() for part in (model, heads) for value in part.parameters())
        others = [_on(device, *copy.deepcopy((model, heads)), self._dtype) for device in self._devices[1:]]
        return (_on(first, model, heads, self._dtype), *others), n_parameters, dimension


def _on(device: torch.device, model: Any, heads: nn.Module, dtype: torch.dtype) -> Replica:
    try:
        model, heads = model.to(device).eval(), heads.to(device).eval()
    except RuntimeError as error:
        raise EncoderError(
            f"the model cannot be moved to {device}: {plainly(error)[:200]}",
            remedy="free memory on it, or use --dtype bf16, a smaller encoder or --device cpu",
        ) from error
    device = next(model.parameters()).device  # with its index, which a thread must give
    if can_pack(device, dtype):
        pack(model)
    return Replica(model, heads, device)


class PackedLinear(nn.Module):
    """nn.Linear for inference with packed weights: the same numbers in and out."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self._matrix = PackedMatrix(linear.weight.detach(), None if linear.bias is None else linear.bias.detach())

    def forward(self, values: Tensor) -> Tensor:
        return self._matrix.product(values)


@torch.inference_mode()
def pack(model: nn.Module) -> None:
    """Replaces every plain nn.Linear of the model. Subclasses keep their own forward."""
    layers = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear
    ]
    for parent, name, child in layers:
        setattr(parent, name, PackedLinear(child))


def _load_model(recipe: Recipe, settings: Settings, device: torch.device, dtype: torch.dtype) -> Any:
    """The bare transformer in `dtype`, on the CPU. Every weight it uses must come from the files."""
    import transformers

    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    common = {
        ("dtype" if version >= (4, 56) else "torch_dtype"): dtype,
        "trust_remote_code": settings.trust_remote_code,
        "use_safetensors": not settings.allow_pickle or None,
        "local_files_only": not settings.trust_remote_code,
        "output_loading_info": True,
    }
    try:
        model, report = _with_attention(recipe.folder, attention_choices(device, dtype), common)
    except (*UNREADABLE, ValueError, KeyError, ImportError, RuntimeError) as error:
        raise _not_loaded(recipe.folder, error) from error
    missing = [key for key in report["missing_keys"] if "pooler" not in key]
    if missing:
        raise EncoderError(
            f"weights are missing from the model's files ({len(missing)}): {', '.join(sorted(missing)[:3])}",
            where=str(recipe.folder),
            remedy="the files belong to another architecture: check config.json",
        )
    if getattr(model.config, "is_encoder_decoder", False):
        raise EncoderError("encoder-decoder models are not supported", where=str(recipe.folder))
    return model


def attention_choices(device: torch.device, dtype: torch.dtype) -> tuple[str, ...]:
    """Attention implementations by transformers' names, best first; a model rejects those that it lacks.

    FlashAttention 2 needs its package (flash-attn), a CUDA device and a 16-bit format.
    """
    from transformers import utils as _utils

    utils: Any = _utils  # transformers does not export it to type checkers
    suitable = device.type == "cuda" and dtype in (torch.bfloat16, torch.float16)
    flash = suitable and bool(utils.is_flash_attn_2_available())
    return (*(("flash_attention_2",) if flash else ()), "sdpa")


REFUSALS = ("Flash Attention", "FlashAttention", "flash_attn", "scaled_dot_product_attention")
"""Words of transformers' errors if the model or this machine lacks an attention implementation."""


def _with_attention(folder: Path, choices: tuple[str, ...], common: dict[str, Any]) -> Any:
    """The model with the first choice that it accepts, else with its own default; and the loading report."""
    import transformers

    for choice in choices:
        try:
            return transformers.AutoModel.from_pretrained(folder, attn_implementation=choice, **common)
        except (ValueError, ImportError) as error:
            if not any(word in str(error) for word in REFUSALS):
                raise
    return transformers.AutoModel.from_pretrained(folder, **common)


def _not_loaded(folder: Path, error: Exception) -> EncoderError:
    text = " ".join(str(error).split())
    remedy = "check that the installed transformers knows this architecture"
    if isinstance(error, (SafetensorError, EOFError)):
        remedy = AGAIN
    if "ignore_mismatched_sizes" in text:
        text, remedy = "the shapes of the weights do not match config.json", AGAIN
    if "trust_remote_code" in text:
        text, remedy = "the repository needs its own Python code", "read that code, then use --trust-remote-code"
    return EncoderError(f"cannot be loaded: {text[:300]}", where=str(folder), remedy=remedy)


def _dimension(recipe: Recipe, width: int) -> int:
    """Length of a text's vector. Raises EncoderError if a head does not match the module before it."""
    dimension = width * len(recipe.pooling)
    for head in recipe.heads:
        if head.kind == "normalize":
            continue
        if head.in_features != dimension:
            raise EncoderError(
                f"{head.kind} expects {head.in_features} features, got {dimension}", where=str(head.folder)
            )
        dimension = head.out_features
    return cut_dimension(dimension, recipe.truncate_dim)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' log lines, progress bars and warnings: what matters is in secid's errors and notes."""
    from transformers.utils import logging as _logging

    logging: Any = _logging  # transformers leaves these functions untyped
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
