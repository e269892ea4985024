"""Attention masks of transformers' models without a wait for the device.

Before a mask is made, transformers asks whether anything is padded, and the answer has to come from the device, which
must finish all earlier batches first. Here a mask is passed only where something is padded, so there is nothing to ask.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

NAME = "secid_sdpa"


def never_wait(model: nn.Module) -> None:
    """Has transformers' models within `model` that use SDPA make their masks by `mask`."""
    import transformers
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    transformers.AttentionInterface.register(NAME, sdpa_attention_forward)
    transformers.AttentionMaskInterface.register(NAME, mask)
    for part in model.modules():
        if isinstance(part, transformers.PreTrainedModel) and part.config._attn_implementation == "sdpa":
            part.set_attn_implementation(NAME)


def mask(attention_mask: Tensor | None = None, **options: Any) -> Tensor | None:
    """transformers' mask for SDPA, without padding where attention is causal.

    There padding, on the right, is never looked at; without a mask SDPA has its fastest kernels, and keys and values
    that several heads share are not copied for each.
    """
    from transformers.masking_utils import sdpa_mask

    if options.get("allow_is_causal_skip", True):
        attention_mask = None
    elif attention_mask is not None:
        options["allow_is_bidirectional_skip"] = False
    full: Tensor | None = sdpa_mask(attention_mask=attention_mask, **options)
    return full
