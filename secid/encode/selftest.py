"""What every encoder must satisfy, and how much its rows depend on the rest of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from secid.arrays import FLOAT32_DISTANCE
from secid.encode.precomputed import PrecomputedEncoder
from secid.encode.protocol import Encoder, Float32Rows
from secid.records import Fact

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
"""Short, long, one letter, another language: errors in padding show between texts of different lengths."""

CHECKS = ("finite", "unit", "texts", "roles", "batch")
"""No NaN or infinity; unit length; distinct texts and roles; the same row in a batch of one and of many."""

Outcome = Literal["pass", "fail", "not evaluated"]


@dataclass(frozen=True)
class Check:
    """One check of the self-test.

    fact: what was compared, of the kinds of pages.encoder.CHECKS.   measured: the number behind it; None if there is
    none.
    """

    name: str
    outcome: Outcome
    fact: Fact
    measured: float | None = None


def self_test(encoder: Encoder) -> tuple[Check, ...]:
    """The checks of CHECKS, which pass only on evidence. Roles and batch do not apply to stored rows; rows that are not
    finite fail as such, and no other check is made of them.
    """
    if isinstance(encoder, PrecomputedEncoder):  # it has rows for its own texts only
        rows = encoder.stored()
        finite = _finite(encoder, rows)
        return (finite, _unit(encoder, rows), _stored_texts(rows)) if finite.outcome == "pass" else (finite,)
    queries = encoder.encode(list(TEXTS), "query")
    passages = encoder.encode(list(TEXTS), "passage")
    finite = _finite(encoder, np.concatenate([queries, passages]))
    if finite.outcome == "fail":
        return (finite,)
    return (
        finite,
        _unit(encoder, np.concatenate([queries, passages])),
        _texts(passages),
        _roles(encoder, queries, passages),
        _batch(encoder, passages),
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
    return _farthest(alone, together)


def _farthest(rows: Float32Rows, others: Float32Rows) -> float:
    """Largest length of the difference between two rows of one text, at unit length."""
    return float(np.linalg.norm(_scaled(rows) - _scaled(others), axis=1).max())


def _scaled(rows: Float32Rows) -> Float32Rows:
    scaled: Float32Rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled


def _finite(encoder: Encoder, rows: Float32Rows) -> Check:
    bad = int((~np.isfinite(rows)).any(axis=1).sum())
    half = bad and encoder.info.dtype in ("bf16", "fp16") and not isinstance(encoder, PrecomputedEncoder)
    fact = Fact("half_precision" if half else "finite", {"bad": bad, "n": len(rows), "dtype": encoder.info.dtype})
    return Check("finite", "pass" if bad == 0 else "fail", fact)


def _unit(encoder: Encoder, rows: Float32Rows) -> Check:
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    if not encoder.info.normalize:
        shortest = float(lengths.min())
        return Check("unit", "pass" if shortest > 0 else "fail", Fact("any_length"), shortest)
    error = float(np.abs(lengths - 1).max())
    return Check("unit", "pass" if error <= UNIT_TOLERANCE else "fail", Fact("unit_length"), error)


def _texts(passages: Float32Rows) -> Check:
    rows = _scaled(passages)
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=2)[np.triu_indices(len(rows), 1)]
    nearest = float(distances.min())
    return Check("texts", "pass" if nearest > FLOAT32_DISTANCE else "fail", Fact("texts"), nearest)


def _stored_texts(rows: Float32Rows) -> Check:
    """Texts of a file may be similar; only a file in which all rows are equal is wrong."""
    if len(rows) == 1:
        return Check("texts", "not evaluated", Fact("one_row"))
    farthest = float(np.linalg.norm(_scaled(rows[1:]) - _scaled(rows[:1]), axis=1).max())
    return Check("texts", "pass" if farthest > FLOAT32_DISTANCE else "fail", Fact("stored_texts"), farthest)


def _roles(encoder: Encoder, queries: Float32Rows, passages: Float32Rows) -> Check:
    """Of a chain of modules each role is compared with sentence-transformers', so that routes and tasks count, too."""
    info, limit = encoder.info, _tolerance(encoder)
    reference: Any = getattr(encoder, "reference", None)
    if reference is not None:
        farthest = max(_farthest(queries, reference(TEXTS, "query")), _farthest(passages, reference(TEXTS, "passage")))
        return Check("roles", "pass" if farthest <= limit else "fail", Fact("reference", {"limit": limit}), farthest)
    distances = np.linalg.norm(_scaled(queries) - _scaled(passages), axis=1)
    if info.query_prefix != info.passage_prefix:
        nearest = float(distances.min())
        fact = Fact("other_prefixes", {"limit": FLOAT32_DISTANCE})
        return Check("roles", "pass" if nearest > FLOAT32_DISTANCE else "fail", fact, nearest)
    if info.rules.get("query_prefix") == "function":
        return Check("roles", "not evaluated", Fact("own_prefixes"))
    farthest = float(distances.max())
    return Check("roles", "pass" if farthest <= limit else "fail", Fact("same_prefixes", {"limit": limit}), farthest)


def _batch(encoder: Encoder, passages: Float32Rows) -> Check:
    noise, limit = _noise(encoder, passages), _tolerance(encoder)
    return Check("batch", "pass" if noise <= limit else "fail", Fact("batch", {"n": len(TEXTS), "limit": limit}), noise)


def _tolerance(encoder: Encoder) -> float:
    """Largest length by which two rows of one text may differ."""
    return BATCH_TOLERANCE if encoder.info.dtype == "float32" else LARGEST_NOISE
