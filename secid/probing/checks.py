"""What `secid probe` refuses before it loads anything: numbers, and encoders that cannot be trained."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from math import isfinite
from typing import TYPE_CHECKING

from secid.errors import UsageError
from secid.results.commands import untrainable

if TYPE_CHECKING:
    from secid.encode import Encoder

LEAST = {"--steps": 1, "--seeds": 1, "--folds": 2, "--held-out": 1, "--batch": 2}
"""Smallest value of each flag: a fold is held out of at least two, and a batch has a passage that is another row's."""
UNTRAINABLE = {
    "endpoint": "an endpoint gives vectors and no weights, so it cannot be trained",
    "vectors": "a vectors file has no weights to train",
    "object": "a Python function or object cannot be trained: its weights are not known",
}
TRAINABLE = "name a model: --encoder minilm, a hub name or a folder with weights"


def check_options(
    *, steps: int, seeds: int, folds: int, lora: bool, rates: Sequence[float], held_out: int, batch: int
) -> None:
    """Raises UsageError for a number too small, a rate that is none or is there twice, and LoRA without peft."""
    given = {"--steps": steps, "--seeds": seeds, "--folds": folds, "--held-out": held_out, "--batch": batch}
    for flag, value in given.items():
        if value < LEAST[flag]:
            raise UsageError(f"is {value}, and at least {LEAST[flag]} is needed", where=flag)
    for rate in rates:
        if not (isfinite(rate) and 0 < rate < 1):
            raise UsageError(f"{rate:g} is not a learning rate between 0 and 1", where="--rate", remedy="--rate 2e-5")
    if len(set(rates)) < len(rates):
        raise UsageError("the same rate is given twice", where="--rate")
    if lora and find_spec("peft") is None:
        raise UsageError("needs peft, which is not installed", where="--lora", remedy="pip install 'secid[probe]'")


def refuse_untrainable(encoder: str | Encoder | None) -> None:
    """Raises UsageError for an encoder that has no weights here: an endpoint, a vectors file, or an object."""
    if isinstance(encoder, str):
        kind = untrainable(encoder)
    else:
        from secid.encode.transformer import TransformerEncoder

        kind = None if encoder is None or isinstance(encoder, TransformerEncoder) else "object"
    if kind:
        raise UsageError(UNTRAINABLE[kind], where="--encoder", remedy=TRAINABLE)
