"""The settings that sources are scored with: the baseline's, unless the user set others. Imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from secid.gating.baseline import (
    ENCODER_SETTINGS,
    GUIDES,
    METHOD_SETTINGS,
    Baseline,
    differences,
    refuse_differences,
)
from secid.scoring.stored import refuse_unnamed
from secid.settings import ENCODERS, Dtype, Resolved, Settings

if TYPE_CHECKING:
    from secid.encode import EncoderLike


def settings_for(baseline: Baseline, resolved: Resolved) -> Resolved:
    """The settings to score with: the baseline's unless the user set them, and no controls.

    Raises UsageError with the list of differences if the user set something else.
    """
    values, origin = vars(resolved.values).copy(), dict(resolved.origin)
    guides = GUIDES if all(origin[name] == "default" for name in GUIDES) else ()
    for name in (*METHOD_SETTINGS, *ENCODER_SETTINGS, *guides, "guide_sample"):
        if origin[name] == "default" and name in baseline.settings:
            values[name], origin[name] = baseline.settings[name], "baseline"
    dtype = baseline.encoder.dtype  # what "auto" was on that machine: bf16 on CUDA, and the gate may run on a CPU
    if origin["dtype"] == "default" and dtype in get_args(Dtype) and baseline.encoder.pooling != "precomputed":
        values["dtype"], origin["dtype"] = dtype, "baseline"
    values |= {"controls": "none", "budget": 1.0, "ablate": False, "objectives": False, "until_ranked": None}
    refuse_differences(differences(baseline, values), "settings")
    return Resolved(Settings(**values), origin)


def refuse_encoders_of_baseline(resolved: Resolved, encoder: EncoderLike | None, where: str) -> None:
    """Raises EncoderError for an encoder or guide in a folder or at an address that only the baseline names.

    resolved : from `settings_for`.   encoder : an object in place of the encoder.   where : of the baseline.
    """
    from secid.encode import is_object

    for name in GUIDES if is_object(encoder) else ENCODERS:
        if resolved.origin[name] == "baseline":
            refuse_unnamed(getattr(resolved.values, name), name, where)
