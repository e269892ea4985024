"""Frozen results: what every page shows, with no torch, no encoder and no data behind it.

`secid.report.document` turns these into JSON and back; a field is described once, here.
Fractions lie in [0, 1]; `_nats` are natural-log units; None always comes with a reason beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SCHEMA_VERSION = "1.0"


@dataclass(frozen=True)
class EncoderInfo:
    """The resolved recipe of the target encoder: enough to load exactly it again.

    rules: for each recipe field, which rule set it ("flag", "1_Pooling/config.json",
    "registry: e5", "default", ...).
    """

    name: str
    revision: str | None
    weights_sha256: str | None
    pooling: str
    query_prefix: str
    passage_prefix: str
    max_length: int | None
    normalize: bool
    dtype: str
    device: str
    dim: int
    fingerprint: str
    rules: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class IdfInfo:
    """The table of inverse document frequencies behind the coverage gate."""

    corpus: str
    tokenizer: str
    n_texts: int
    n_tokens: int
    sha256: str


@dataclass(frozen=True)
class InputFile:
    """One file a source was read from."""

    path: str
    sha256: str
    n_bytes: int
    schema: str
    mapping: str


@dataclass(frozen=True)
class Example:
    """One skipped row or odd negative, shown so that it can be found again."""

    reason: str
    path: str
    line: int
    detail: str


@dataclass(frozen=True)
class SourceResult:
    """Everything measured of one source. Means are over its triplets.

    n_read = n_used + sum(skipped); n_used - n_records rows were merged into an earlier row with
    the same query and positive.
    """

    name: str
    rank: int
    paths: tuple[InputFile, ...]
    schema: str
    n_read: int
    n_used: int
    n_records: int
    n_queries: int
    n_triplets: int
    skipped: Mapping[str, int]
    dropped_negatives: Mapping[str, int]
    examples: tuple[Example, ...]
    eci_nats: float
    eci_per_dimension: float
    trace: float
    consistency_mean: float
    locality_mean: float
    coverage_mean: float
    positive_coverage_mean: float
    residual_mean: float
    weight_mean: float
    pair_loss_mean: float
    inversion_fraction: float
    low_locality_fraction: float
    high_coverage_fraction: float
    buckets: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One run: the settings, the encoder, the ranked sources, and what it took."""

    schema_version: str
    secid_version: str
    settings: Mapping[str, Any]
    encoder: EncoderInfo
    idf: IdfInfo
    sources: tuple[SourceResult, ...]
    timing: Mapping[str, Any]
    environment: Mapping[str, Any]
    notes: tuple[str, ...] = ()
