"""An encoder as it was resolved, and the outcome of its self-test."""

from __future__ import annotations

from dataclasses import dataclass

from secid.encode.protocol import Encoder
from secid.encode.recipe import Recipe
from secid.encode.selftest import CHECKS, Probe, self_test
from secid.results import EncoderInfo


@dataclass(frozen=True)
class Description:
    """What `secid encoder` reports.

    n_parameters : of model and heads; None without a model (vectors file, endpoint).
    heads        : modules after the pooling, in order, such as "dense 768 to 3072"; a final normalisation
                   is in info.normalize instead.
    truncate_dim : number of leading dimensions that are used; None for all.
    not_asked    : checks of the self-test that do not apply: to stored rows, or to rows that are not finite.
    """

    info: EncoderInfo
    n_parameters: int | None
    heads: tuple[str, ...]
    checks: tuple[Probe, ...]
    truncate_dim: int | None = None
    not_asked: tuple[str, ...] = ()

    @property
    def unsettled(self) -> tuple[str, ...]:
        """Names of the checks that failed or were not evaluated."""
        return tuple(check.name for check in self.checks if check.outcome != "pass")


def describe(encoder: Encoder) -> Description:
    """The encoder's recipe and the outcome of its self-test, which encodes a few short texts."""
    recipe: Recipe | None = getattr(encoder, "recipe", None)
    checks = self_test(encoder)
    names = {check.name for check in checks}
    return Description(
        info=encoder.info,
        n_parameters=getattr(encoder, "n_parameters", None),
        heads=() if recipe is None else recipe.heads,
        checks=checks,
        truncate_dim=encoder.info.dim if encoder.info.rules.get("truncate_dim") == "flag" else None,
        not_asked=tuple(name for name in CHECKS if name not in names),
    )
