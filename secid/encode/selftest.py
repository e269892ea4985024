"""What an encoder must do whatever it is, and how much its rows depend on what is encoded beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from secid.arrays import FLOAT32_DISTANCE
from secid.encode.precomputed import PrecomputedEncoder
from secid.encode.protocol import Encoder, Float32Rows

NOISE_FACTOR = 10.0
"""Of number formats other than float32: the length of n - p below which a direction is noise, as a multiple of the
measured batch noise. Source: METHOD 2.6."""

BATCH_TOLERANCE = 1e-5
"""Largest difference of a float32 row between a batch of one and a batch of many."""

LARGEST_NOISE = (2.0 - 2.0 * 0.99) ** 0.5 / NOISE_FACTOR
"""The same for other number formats, 0.014: directions are dropped up to NOISE_FACTOR times the noise, and that
must stay below the length of n - p at which a negative counts as a near-copy (s_pn 0.99)."""

UNIT_TOLERANCE = 1e-5
"""Largest distance of a row's length from 1. Rows are scaled in float32 whatever the model's format."""

TEXTS = (
    "what causes tides",
    "The gravity of the moon and the sun moves the water of the oceans.",
    "Bread rises because yeast turns sugar into carbon dioxide, which the dough holds in small bubbles. " * 6,
    "a",
    "A glacier is a body of dense ice that moves under its own weight; it forms where snow outlasts the summers.",
    "Der Mond zieht das Wasser der Meere an.",
)
"""Short, long, one letter, another language: lengths that differ are what padding gets wrong."""

CHECKS = ("finite", "unit", "texts", "roles", "batch")
"""No NaN or infinity, unit length, texts and roles told apart, the same row alone as in company."""

Outcome = Literal["pass", "fail", "not evaluated"]


@dataclass(frozen=True)
class Check:
    """One check of the self-test. measured: the number behind it, None where there is none."""

    name: str
    outcome: Outcome
    detail: str
    measured: float | None = None


def self_test(encoder: Encoder) -> tuple[Check, ...]:
    """What CHECKS names. Passes only on evidence; roles and batch are not asked of stored rows."""
    if isinstance(encoder, PrecomputedEncoder):  # it knows its own texts only
        rows = encoder.stored()
        return (_finite(rows), _unit(encoder, rows), _stored_texts(rows))
    queries = encoder.encode(list(TEXTS), "query")
    passages = encoder.encode(list(TEXTS), "passage")
    return (
        _finite(np.concatenate([queries, passages])),
        _unit(encoder, np.concatenate([queries, passages])),
        _texts(passages),
        _roles(encoder, queries, passages),
        _alone(encoder, passages),
    )


def batch_noise(encoder: Encoder) -> float:
    """Largest length of the difference between a text's row in a batch of one and in a batch of many.

    Rows are compared at unit length, as the score sees them. Source: METHOD 2.6.
    """
    if isinstance(encoder, PrecomputedEncoder):
        return encoder.rounding
    return _noise(encoder, encoder.encode(list(TEXTS), "passage"))


def smallest_distance(encoder: Encoder) -> float:
    """Length of n - p at and below which a residual direction counts as noise. Source: METHOD 2.6."""
    if encoder.info.dtype == "float32":
        return FLOAT32_DISTANCE
    return max(NOISE_FACTOR * batch_noise(encoder), FLOAT32_DISTANCE)


def _noise(encoder: Encoder, together: Float32Rows) -> float:
    alone = np.concatenate([encoder.encode([text], "passage") for text in TEXTS])
    return float(np.linalg.norm(_scaled(alone) - _scaled(together), axis=1).max())


def _scaled(rows: Float32Rows) -> Float32Rows:
    scaled: Float32Rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled


def _finite(rows: Float32Rows) -> Check:
    bad = int((~np.isfinite(rows)).any(axis=1).sum())
    return Check("finite", "pass" if bad == 0 else "fail", f"{bad} of {len(rows)} rows hold NaN or infinity")


def _unit(encoder: Encoder, rows: Float32Rows) -> Check:
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    if not encoder.info.normalize:
        shortest = float(lengths.min())
        detail = f"not normalised, as the recipe says; scoring does it, from lengths of {shortest:.2g} and more"
        return Check("unit", "pass" if shortest > 0 else "fail", detail, shortest)
    off = float(np.abs(lengths - 1).max())
    return Check("unit", "pass" if off <= UNIT_TOLERANCE else "fail", f"lengths within {off:.1e} of 1", off)


def _texts(passages: Float32Rows) -> Check:
    rows = _scaled(passages)
    apart = np.linalg.norm(rows[:, None] - rows[None], axis=2)[np.triu_indices(len(rows), 1)]
    nearest = float(apart.min())
    detail = f"rows of different texts differ by {nearest:.2g} or more"
    return Check("texts", "pass" if nearest > FLOAT32_DISTANCE else "fail", detail, nearest)


def _stored_texts(rows: Float32Rows) -> Check:
    """Texts of a file may well be alike; that all get one row is a fault of whatever made it."""
    if len(rows) == 1:
        return Check("texts", "not evaluated", "the file holds one row")
    farthest = float(np.linalg.norm(_scaled(rows[1:]) - _scaled(rows[:1]), axis=1).max())
    detail = f"rows differ from the first by up to {farthest:.2g}"
    return Check("texts", "pass" if farthest > FLOAT32_DISTANCE else "fail", detail, farthest)


def _roles(encoder: Encoder, queries: Float32Rows, passages: Float32Rows) -> Check:
    info = encoder.info
    apart = np.linalg.norm(_scaled(queries) - _scaled(passages), axis=1)
    if info.query_prefix != info.passage_prefix:
        nearest = float(apart.min())
        detail = f"query and passage rows differ by {nearest:.2g} or more"
        return Check("roles", "pass" if nearest > FLOAT32_DISTANCE else "fail", detail, nearest)
    if info.rules.get("query_prefix") == "function":
        return Check("roles", "not evaluated", "the function sets its own prefixes")
    farthest = float(apart.max())
    detail = f"prefixes are the same; query and passage rows differ by {farthest:.1g} or less"
    return Check("roles", "pass" if farthest <= _tolerance(encoder) else "fail", detail, farthest)


def _alone(encoder: Encoder, passages: Float32Rows) -> Check:
    noise, limit = _noise(encoder, passages), _tolerance(encoder)
    detail = f"a batch of one and a batch of {len(TEXTS)} differ by {noise:.1e} or less (limit {limit:.2g})"
    return Check("batch", "pass" if noise <= limit else "fail", detail, noise)


def _tolerance(encoder: Encoder) -> float:
    """Largest length by which two rows of one text may differ."""
    return BATCH_TOLERANCE if encoder.info.dtype == "float32" else LARGEST_NOISE
