"""Triplets worth looking at, by trait. Thresholds of METHOD 4 are ours, settable, and printed with the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secid.measure.summary import INVERSION, LOW_LOCALITY

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Thresholds:
    """valid: π (and ρ) from which a triplet counts as valid.   far: ρ below which it counts as far."""

    high_coverage: float = 0.5
    near_copy: float = 0.99
    valid: float = 0.9
    far: float = 0.1


BUCKETS = (
    "inversion",
    "low_locality",
    "high_coverage",
    "valid_but_lexical",
    "valid_but_far",
    "near_copy",
    "equals_positive",
    "duplicate_negative",
    "truncated",
    "query_without_tokens",
)
"""All buckets, in the order of pages and columns."""


@dataclass(frozen=True)
class Trait:
    """One bucket. flags: (T,) who is in it.   severity: (T,) larger is worse, for choosing examples."""

    kind: str
    rule: str
    flags: Flags
    severity: Floats


def traits(columns: Mapping[str, Floats], structural: Mapping[str, Flags], thresholds: Thresholds) -> dict[str, Trait]:
    """Every bucket by name: the five of the gates, the near-copies, and the structural flags given.

    columns    : (T,) gates and dot products by name.
    structural : (T,) flags by the names of STRUCTURAL_RULES. Source: METHOD 4.
    """
    pi, rho, c = columns["consistency"], columns["locality"], columns["coverage"]
    positive_negative = columns["s_positive_negative"]
    valid, far, high = thresholds.valid, thresholds.far, thresholds.high_coverage
    found = {
        "inversion": Trait("gate", f"π < {INVERSION:g}", pi < INVERSION, -pi),
        "low_locality": Trait("gate", f"ρ < {LOW_LOCALITY:g}", rho < LOW_LOCALITY, -rho),
        "high_coverage": Trait("gate", f"c ≥ {high:g}", c >= high, c),
        "valid_but_lexical": Trait(
            "gate",
            f"π ≥ {valid:g}, ρ ≥ {valid:g}, c ≥ {high:g}",
            (pi >= valid) & (rho >= valid) & (c >= high),
            c,
        ),
        "valid_but_far": Trait(
            "gate", f"π ≥ {valid:g}, c < {high:g}, ρ < {far:g}", (pi >= valid) & (c < high) & (rho < far), -rho
        ),
        "near_copy": Trait(
            "structural",
            f"s_pn ≥ {thresholds.near_copy:g}",
            positive_negative >= thresholds.near_copy,
            positive_negative,
        ),
    }
    for name, flags in structural.items():
        found[name] = Trait("structural", STRUCTURAL_RULES[name], flags, columns["weight"])
    return found


STRUCTURAL_RULES: Mapping[str, str] = {
    "equals_positive": "the negative is a labelled positive of the query, in this or another record of the run",
    "duplicate_negative": "the record lists the same negative more than once; it is scored once",
    "truncated": "the negative is longer than the encoder's maximum length",
    "query_without_tokens": "the query has no token, so its coverage is 0 by definition",
}
