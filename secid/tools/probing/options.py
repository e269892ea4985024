"""Options of `secid probe`, and the checks that need no encoder."""

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

DEFAULT_RATES = {"full": 5e-5, "lora": 2e-4}
"""Default learning rate when all weights are trained, and with adapters."""
SECOND_RATE_RATIO = 4.0
"""Ratio of the second learning rate to the first. Sources can change order between the two. Source: METHOD 13."""
MIN_OPTIONS = {"steps": 1, "n_seeds": 1, "n_folds": 2, "n_held_out": MIN_HELD_OUT, "batch": 2}
"""Minimum of each option. One of two folds is held out, fewer held-out queries give no result, and a batch needs a
passage of another row."""
MAX_OPTION = 1_000_000
"""Maximum of each option. A larger number must be a typing error."""
LOSSES = ("infonce", "mw", "lsepair", "sum_marginal", "joint", "gist")
PASSAGE_CHOICES = ("own", "batch")
SEVERAL_POSITIVES = frozenset({"mw", "lsepair", "sum_marginal", "joint"})
"""Losses that use several labelled positives of a query in a step. The others use one, drawn at random."""
UNTRAINABLE = {
    "endpoint": "an endpoint gives vectors and no weights, so it cannot be trained",
    "vectors": "a vectors file has no weights to train",
    "object": "a Python function or object cannot be trained, because secid has no access to its weights",
}
NAME_A_MODEL = "name a model: --encoder minilm, a hub name or a folder with weights"


@dataclass(frozen=True)
class Options:
    """The options of a probe.

    n_held_out : maximum number of queries that are ranked.
    rates    : learning rates, rising; every source is trained at each.
    passages : "own" compares a query with its own negatives, "batch" also with the passages of other rows.
    estimate : stop before training and report how long it would take.
    """

    steps: int
    n_seeds: int
    n_folds: int
    batch: int
    n_held_out: int
    lora: bool
    rates: tuple[float, ...]
    loss: str
    passages: str
    estimate: bool = False

    def check(self) -> None:
        """Refuse invalid options.

        Raises SettingsError for a value that is not a whole number. Raises UsageError for a number out of range, an
        unknown loss or value of passages, a rate outside (0, 1) or repeated, and for LoRA without peft.
        """
        for name, least in MIN_OPTIONS.items():
            value, flag = getattr(self, name), f"--{name.removeprefix('n_').replace('_', '-')}"
            if not isinstance(value, int) or isinstance(value, bool):
                message = f"{value!r} is not a whole number"
                raise SettingsError(message, where=flag, remedy=f"give a whole number, at least {least}")
            if value < least:
                raise UsageError(f"{value} is too small", where=flag, remedy=f"give at least {least}")
            if value > MAX_OPTION:
                raise UsageError(f"{value} is too large", where=flag, remedy=f"give at most {MAX_OPTION:,}")
        for flag, value, known in (("--loss", self.loss, LOSSES), ("--passages", self.passages, PASSAGE_CHOICES)):
            if value not in known:
                raise UsageError(f"unknown choice {value!r}", where=flag, remedy=f"use one of {', '.join(known)}")
        for rate in self.rates:
            if not (isfinite(rate) and 0 < rate < 1):
                raise UsageError(
                    f"{rate:g} is not a learning rate between 0 and 1",
                    where="--rate",
                    remedy="use, for example, --rate 2e-5",
                )
        if len(set(self.rates)) < len(self.rates):
            raise UsageError("a rate is repeated", where="--rate", remedy="give each rate once")
        if self.lora and find_spec("peft") is None:
            raise UsageError(
                "needs peft, which is not installed", where="--lora", remedy="install it: pip install 'secid[probe]'"
            )


def rates_of(rate: float | Sequence[float] | None, lora: bool) -> tuple[float, ...]:
    """Return the learning rates to train at, rising.

    Several rates are used as given. For one rate, or the default, it and four times it are used. Raises SettingsError
    if `rate` is neither a number nor a sequence of numbers. Raises UsageError if four times the rate is 1 or more.
    """
    usual = DEFAULT_RATES["lora" if lora else "full"]
    rates = (usual,) if rate is None else (rate,) if isinstance(rate, Real) else rate
    if isinstance(rates, str) or not (isinstance(rates, Iterable) and all(isinstance(item, Real) for item in rates)):
        raise SettingsError(
            f"{rate!r} is not a number or a list of numbers", where="--rate", remedy="use, for example, --rate 2e-5"
        )
    several = sorted(map(float, rates)) or [usual]
    if len(several) > 1:
        return tuple(several)
    second = SECOND_RATE_RATIO * several[0]
    if several[0] < 1 <= second:
        raise UsageError(
            f"four times {several[0]:g} is {second:g}, and a learning rate is below 1",
            where="--rate",
            remedy="give a smaller rate, or name two rates",
        )
    return several[0], second


def refuse_guide(loss: str, guide: str | None, *, named_here: bool) -> None:
    """Raise UsageError for gist without a guide, and for --guide with a loss that uses no guide.

    named_here : the guide was named for this probe, not in a settings file.
    """
    if loss == "gist" and guide is None:
        raise UsageError("gist needs a guide", where="--loss", remedy="name a second encoder with --guide")
    if loss != "gist" and named_here:
        raise UsageError(
            "only the loss gist uses a guide", where="--guide", remedy="use --loss gist, or remove --guide"
        )


def refuse_untrainable(encoder: EncoderLike | None) -> None:
    """Raise UsageError for an encoder without accessible weights: an endpoint, a vectors file, or an object."""
    if isinstance(encoder, str):
        kind: str = encoder_kind(encoder)
    else:
        from secid.encode import is_sentence_transformer
        from secid.encode.transformer import TransformerEncoder

        trainable = encoder is None or isinstance(encoder, TransformerEncoder) or is_sentence_transformer(encoder)
        kind = "model" if trainable else "object"
    if kind in UNTRAINABLE:
        raise UsageError(UNTRAINABLE[kind], where="--encoder", remedy=NAME_A_MODEL)
