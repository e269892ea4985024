"""The settings under which one pass sums the same triplets: the run's own, and those that ablations vary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from secid.measure.gates import WEIGHTS
from secid.measure.sweep import Variant
from secid.settings import Settings

TEMPERATURES = (0.01, 0.02, 0.05, 0.1, 0.2)
TOKENIZERS = ("alphanumeric", "alphanumeric2", "whitespace", "trigrams", "multilingual")
CORPORA = ("pooled", "own", "pooled_with_queries", "uniform")
DIGITS = 12
"""Of a temperature: with fewer, 0.05 and a run at 0.04999999 were one row."""
SAMPLES = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)


def coverage_name(tokenizer: str, corpus: str) -> str:
    """The name under which a sweep finds a coverage."""
    return f"{tokenizer}/{corpus}"


def tokenizer_of(variant: Variant) -> str:
    """The tokenizer of a variant's coverage."""
    return variant.coverage.split("/")[0]


def base_variant(settings: Settings) -> Variant:
    """The setting of the run itself."""
    return Variant(settings.temperature, coverage_name(settings.tokenizer, settings.idf), "full")


@dataclass(frozen=True)
class Aspect:
    """One thing that is varied. variants: setting as text -> variant; base: the run's own setting."""

    name: str
    base: str
    variants: Mapping[str, Variant]


def aspects(settings: Settings, has_pieces: bool = False) -> tuple[Aspect, ...]:
    """The default suite around a run's settings; every aspect includes the base. Source: METHOD 3, 4."""
    base = base_variant(settings)
    temperatures = sorted({*TEMPERATURES, settings.temperature})
    tokenizers = (*TOKENIZERS, "wordpieces") if has_pieces else TOKENIZERS
    return (
        Aspect(
            "temperature",
            f"{settings.temperature:.{DIGITS}g}",
            {f"{tau:.{DIGITS}g}": Variant(tau, base.coverage, "full") for tau in temperatures},
        ),
        Aspect(
            "tokenizer",
            settings.tokenizer,
            {name: Variant(base.temperature, coverage_name(name, settings.idf), "full") for name in tokenizers},
        ),
        Aspect(
            "idf",
            settings.idf,
            {name: Variant(base.temperature, coverage_name(settings.tokenizer, name), "full") for name in CORPORA},
        ),
        Aspect("weight", "full", {name: Variant(base.temperature, base.coverage, name) for name in WEIGHTS}),
        Aspect(
            "sample",
            "100 %",
            {f"{100 * part:g} %": Variant(base.temperature, base.coverage, "full", part) for part in SAMPLES},
        ),
    )
