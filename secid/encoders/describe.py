"""An encoder as it was resolved, and whether it does what any encoder must."""

from __future__ import annotations

from dataclasses import dataclass

from secid.encoders.modules import Head
from secid.encoders.protocol import Encoder
from secid.encoders.recipe import Recipe
from secid.encoders.selftest import Check, self_test
from secid.results import EncoderInfo


@dataclass(frozen=True)
class Description:
    """What `secid encoder` tells.

    n_parameters : of model and heads; None where there is no model to count (vectors file, endpoint).
    heads        : modules after the pooling, in order, such as "dense 768 to 3072"; a last normalisation
                   is told by info.normalize instead.
    """

    info: EncoderInfo
    n_parameters: int | None
    heads: tuple[str, ...]
    checks: tuple[Check, ...]

    @property
    def unsettled(self) -> tuple[str, ...]:
        """Names of the checks that did not pass, failed or not evaluated alike."""
        return tuple(check.name for check in self.checks if check.outcome != "pass")


def describe(encoder: Encoder) -> Description:
    """The encoder's recipe and the outcome of its self-test, which encodes a few short texts."""
    recipe: Recipe | None = getattr(encoder, "recipe", None)
    heads = () if recipe is None else tuple(map(_head, recipe.heads))
    return Description(encoder.info, getattr(encoder, "n_parameters", None), heads, self_test(encoder))


def _head(head: Head) -> str:
    name = head.kind.replace("_", " ")
    if not head.in_features:
        return name
    activation = "" if head.activation == "Identity" else f", {head.activation}"
    return f"{name} {head.in_features} to {head.out_features}{activation}{', residual' if head.residual else ''}"
