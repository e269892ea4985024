"""Test that a forward pass never waits for its device, and that masks are those of transformers where they matter.

`device="meta"` has shapes and no numbers, so it raises where a number would have to come to the host.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from secid.encode import load
from secid.encode.batching import TokenBatch, longest_first, next_batch
from secid.encode.device import Replica
from secid.encode.parts import ATTENTION_NAME
from secid.encode.transformer import TransformerEncoder
from secid.settings import Settings

from .conftest import FAMILIES, TEXTS

Tiny = Callable[[str], Path]
META = torch.device("meta")


def padded(encoder: TransformerEncoder) -> TokenBatch:
    """Return the texts as one batch, in which most texts are padded."""
    tokens = encoder.parts.tokeniser.tokens(TEXTS)
    return next_batch(tokens, longest_first(tokens), 10_000, encoder.parts.tokeniser.padding)


def encoder_of(folder: Path) -> tuple[TransformerEncoder, Replica, Replica]:
    """Return an encoder, its model, and a copy with transformers' own masks."""
    encoder = load(Settings(encoder=str(folder), device="cpu", cache=False, dtype="bf16"))
    assert isinstance(encoder, TransformerEncoder)
    plain = copy.deepcopy(encoder.parts.replica)
    for part in plain.model.modules():
        if isinstance(part, PreTrainedModel) and part.config._attn_implementation == ATTENTION_NAME:
            part.set_attn_implementation("sdpa")
    return encoder, encoder.parts.replica, plain


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "mpnet"])
def test_a_padded_batch_is_launch_without_a_wait(tiny: Tiny, family: str) -> None:
    encoder, replica, _ = encoder_of(tiny(family))
    assert replica.on(META).forward(padded(encoder), encoder.recipe, 0).shape == (len(TEXTS), 32)


@pytest.mark.parametrize("family", ["bert", "mpnet"])
def test_transformers_own_masks_wait(tiny: Tiny, family: str) -> None:
    """MPNet's too: it has no SDPA, so its masks stay transformers'."""
    encoder, _, plain = encoder_of(tiny(family))
    with pytest.raises((RuntimeError, NotImplementedError)):
        plain.on(META).forward(padded(encoder), encoder.recipe, 0)


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_those_of_transformers_own_masks(tiny: Tiny, family: str) -> None:
    encoder, replica, plain = encoder_of(tiny(family))
    replica.model.float()
    plain.model.float()
    batch = padded(encoder)
    expected = plain.forward(batch, encoder.recipe, 0)
    assert np.abs(replica.forward(batch, encoder.recipe, 0) - expected).max() < 1e-6


@pytest.mark.parametrize(("family", "masks"), [("qwen3", 0), ("bert", 2), ("gemma3_text", 2)])
def test_causal_models_get_no_mask(tiny: Tiny, monkeypatch: pytest.MonkeyPatch, family: str, masks: int) -> None:
    """Gemma's encoder is built from a causal model and sees all tokens."""
    encoder, replica, _ = encoder_of(tiny(family))
    seen: list[tuple[Any, bool]] = []
    real = torch.nn.functional.scaled_dot_product_attention

    def attention(*tensors: Any, attn_mask: Any = None, is_causal: bool = False, **options: Any) -> Any:
        seen.append((attn_mask, is_causal))
        return real(*tensors, attn_mask=attn_mask, is_causal=is_causal, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    replica.forward(padded(encoder), encoder.recipe, 0)
    assert len(seen) == 2
    assert sum(mask is not None for mask, _ in seen) == masks
    assert [is_causal for _, is_causal in seen] == [not masks] * 2


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_cudnn_computes_no_attention_on_a_gpu(tiny: Tiny, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The model runs on the CPU; only the device's name is a GPU's."""
    encoder, _, _ = encoder_of(tiny("bert"))
    enabled, forward = [], Replica.forward

    def watched(*arguments: Any) -> Any:
        enabled.append(torch.backends.cuda.cudnn_sdp_enabled())
        return forward(*arguments)

    monkeypatch.setattr(Replica, "forward", watched)
    monkeypatch.setattr("secid.encode.device.is_gpu", lambda device: kind == "cuda" and not enabled)
    batches = encoder.batches(TEXTS, "passage")
    next(batches)
    assert set(enabled) == {kind == "cpu"}
    batches.close()
    assert torch.backends.cuda.cudnn_sdp_enabled()
