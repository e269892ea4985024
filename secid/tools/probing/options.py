"""The options of `secid probe`, and what it refuses before it loads anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING

from secid.errors import SettingsError, UsageError
from secid.results.probe import MIN_HELD_OUT
from secid.settings import encoder_kind

if TYPE_CHECKING:
    from secid.encode import EncoderLike

RATE = {"full": 5e-5, "lora": 2e-4}
"""The usual learning rate, with all weights and with adapters."""
SECOND_DOSE = 4.0
"""The second rate as a multiple of the first. METHOD 13: between these two, sources can change their order."""
SMALLEST_OPTIONS = {"steps": 1, "n_seeds": 1, "n_folds": 2, "n_held_out": MIN_HELD_OUT, "batch": 2}
"""Smallest value of each option: one of two folds is held out; with fewer held-out queries nothing is evaluated; and a
batch needs another row's passage."""
LARGEST_OPTION = 1_000_000
"""Largest value of each: more must be a typing error, and no machine would finish it."""
LOSSES = ("infonce", "mw", "lsepair", "sum_marginal", "joint", "gist")
PASSAGES = ("own", "batch")
SEVERAL_POSITIVES = frozenset({"mw", "lsepair", "sum_marginal", "joint"})
"""Losses that take all labelled positives of a query, not one drawn at each step."""
UNTRAINABLE = {
    "endpoint": "an endpoint gives vectors and no weights, so it cannot be trained",
    "vectors": "a vectors file has no weights to train",
    "object": "a Python function or object cannot be trained: its weights are not known",
}
NAME_A_MODEL = "name a model: --encoder minilm, a hub name or a folder with weights"


@dataclass(frozen=True)
class Options:
    """The options of a probe.

    n_held_out : most queries that are ranked.   rates : the doses, rising; every source is trained at each.
    loss     : of LOSSES.   passages : own: a query has only its own negatives; batch: others of the batch too.
    estimate : stop before training, with the time that it would take.
    """

    steps: int
    n_seeds: int
    n_folds: int
    batch: int
    n_held_out: int
    lora: bool
    rates: tuple[float, ...]
    loss: str = "infonce"
    passages: str = "batch"
    estimate: bool = False

    def check(self) -> None:
        """Raise SettingsError for a value that is not a whole number; UsageError for a number out of range, an unknown
        loss or kind of passages, a rate that is not between 0 and 1 or given twice, and for LoRA without peft.
        """
        for name, least in SMALLEST_OPTIONS.items():
            value, flag = getattr(self, name), f"--{name.removeprefix('n_').replace('_', '-')}"
            if not isinstance(value, int) or isinstance(value, bool):
                raise SettingsError(f"{value!r} is no whole number", where=flag, remedy=f"at least {least}")
            if value < least:
                raise UsageError(f"is {value}, and at least {least} is needed", where=flag)
            if value > LARGEST_OPTION:
                raise UsageError(f"is {value}, and at most {LARGEST_OPTION:,} is possible", where=flag)
        for flag, value, known in (("--loss", self.loss, LOSSES), ("--passages", self.passages, PASSAGES)):
            if value not in known:
                raise UsageError(f"{value!r} is not one of {', '.join(known)}", where=flag)
        for rate in self.rates:
            if not (isfinite(rate) and 0 < rate < 1):
                raise UsageError(
                    f"{rate:g} is not a learning rate between 0 and 1", where="--rate", remedy="--rate 2e-5"
                )
        if len(set(self.rates)) < len(self.rates):
            raise UsageError("the same rate is given twice", where="--rate")
        if self.lora and find_spec("peft") is None:
            raise UsageError("needs peft, which is not installed", where="--lora", remedy="pip install 'secid[probe]'")


def rates_of(rate: float | Sequence[float] | None, lora: bool) -> tuple[float, ...]:
    """Return the doses' learning rates, rising: several as given; for one, or the usual one, it and four times it.

    Raises SettingsError for other types.
    """
    usual = RATE["lora" if lora else "full"]
    rates = (usual,) if rate is None else (rate,) if isinstance(rate, Real) else rate
    if isinstance(rates, str) or not (isinstance(rates, Iterable) and all(isinstance(item, Real) for item in rates)):
        raise SettingsError(f"{rate!r} is no number, nor several", where="--rate", remedy="--rate 2e-5")
    several = sorted(map(float, rates)) or [usual]
    return tuple(several) if len(several) > 1 else (several[0], SECOND_DOSE * several[0])


def refuse_guide(loss: str, guide: str | None, *, named_here: bool) -> None:
    """Raise UsageError for GIST without a guide, and for a guide named for this probe although its loss uses none."""
    if loss == "gist" and guide is None:
        raise UsageError("gist needs a guide", where="--loss", remedy="name a second encoder by --guide")
    if loss != "gist" and named_here:
        raise UsageError("only the loss gist asks a guide", where="--guide", remedy="add --loss gist")


def refuse_untrainable(encoder: EncoderLike | None) -> None:
    """Raise UsageError for an encoder that has no weights here: an endpoint, a vectors file, or an object."""
    if isinstance(encoder, str):
        kind: str = encoder_kind(encoder)
    else:
        from secid.encode import is_sentence_transformer
        from secid.encode.transformer import TransformerEncoder

        trainable = encoder is None or isinstance(encoder, TransformerEncoder) or is_sentence_transformer(encoder)
        kind = "model" if trainable else "object"
    if kind in UNTRAINABLE:
        raise UsageError(UNTRAINABLE[kind], where="--encoder", remedy=NAME_A_MODEL)
