"""A whole run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from secid.results.between import Comparison, Crossing, EarlyStop, EqualNumbers, Overlap, Slice
from secid.results.inputs import EncoderInfo, IdfInfo
from secid.results.orders import Ablation
from secid.results.sources import ControlResult, SourceResult

SCHEMA_VERSION = "1.0"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run: the settings, the encoder, the ranked sources, and what it took.

    budget: the B that the ranking was made at; 1 is the paper's score.
    equal_numbers: to which sources are cut where they are compared at budgets beyond 1; None where they have the
    same numbers, or cannot be cut.
    folder: the run folder as it was named; None where none was written.
    warnings: findings about the run as a whole that change how the scores are to be read.
    not_evaluated: name of a part that could not be computed, and why.
    Parts with a default are absent from older reports.
    """

    schema_version: str
    secid_version: str
    settings: Mapping[str, Any]
    encoder: EncoderInfo
    idf: IdfInfo
    budget: float
    sources: tuple[SourceResult, ...]
    controls: tuple[ControlResult, ...]
    comparisons: tuple[Comparison, ...]
    crossings: tuple[Crossing, ...]
    overlaps: tuple[Overlap, ...]
    ablations: tuple[Ablation, ...]
    equal_numbers: EqualNumbers | None = None
    slices: tuple[Slice, ...] = ()
    early_stop: EarlyStop | None = None
    folder: str | None = None
    warnings: tuple[str, ...] = ()
    not_evaluated: Mapping[str, str]
    timing: Mapping[str, Any]
    environment: Mapping[str, Any]
