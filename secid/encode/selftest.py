"""Run the self-test of an encoder, and describe the encoder with its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from secid.arrays import FLOAT32_DISTANCE
from secid.encode.encoder import Encoder, Float32Rows, finish_rows
from secid.encode.precomputed import PrecomputedEncoder
from secid.encode.recipe import Recipe
from secid.records import Fact
from secid.results import EncoderInfo

# Checks that every encoder must pass, and the batch noise, which is how much a row depends on the rest of its batch.

NOISE_FACTOR = 10.0
"""Multiple of the measured batch noise, for number formats other than float32. If n - p is not longer, its direction
counts as noise. Source: METHOD 2.6."""

BATCH_TOLERANCE = 1e-5
"""Maximum difference between a float32 row from a batch of one text and from a batch of many."""

MAX_NOISE = (2.0 - 2.0 * 0.99) ** 0.5 / NOISE_FACTOR
"""Maximum difference, as in BATCH_TOLERANCE, for other number formats: 0.014. NOISE_FACTOR times it must not
exceed the length of n - p for a near-copy (s_pn 0.99), because shorter directions are dropped."""

LENGTH_TOLERANCE = 1e-5
"""Maximum difference between 1 and the length of a row. Rows of all models are scaled in float32."""

SELF_TEST_TEXTS = (
    "what causes tides",
    "The gravity of the moon and the sun moves the water of the oceans.",
    "Bread rises because yeast turns sugar into carbon dioxide, which the dough holds in small bubbles. " * 6,
    "a",
    "A glacier is a body of dense ice that moves under its own weight; it forms where snow outlasts the summers.",
    "Der Mond zieht das Wasser der Meere an.",
)
"""Texts for the checks: short, long, a single letter, another language. Different lengths reveal padding errors."""

SELF_TEST_CHECKS = ("finite", "unit", "texts", "roles", "batch")
"""Names of the checks. finite: no NaN or infinity. unit: rows have unit length. texts: different texts have different
rows. roles: rows of the two roles differ only if their prefixes do, or match sentence-transformers. batch: the row of a
text does not depend on its batch."""

SelfTestOutcome = Literal["pass", "fail", "not evaluated"]


@dataclass(frozen=True)
class SelfTestCheck:
    """Result of one check of the self-test. fact: the comparison; pages.encoder_page.CHECK_RESULTS lists its kinds."""

    name: str
    outcome: SelfTestOutcome
    fact: Fact


def self_test(encoder: Encoder) -> tuple[SelfTestCheck, ...]:
    """Run the checks in SELF_TEST_CHECKS. A check passes only on evidence.

    The checks "roles" and "batch" do not apply to stored rows. A failure of "finite" or "unit" ends the test.
    """
    if stored := isinstance(encoder, PrecomputedEncoder):  # only the file's own texts have rows
        rows = queries = passages = encoder.stored()
    else:
        queries, passages = (
            encoder.encode(list(SELF_TEST_TEXTS), "query"),
            encoder.encode(list(SELF_TEST_TEXTS), "passage"),
        )
        rows = np.concatenate([queries, passages])
    finite = _finite(encoder, rows)
    if finite.outcome == "fail":
        return (finite,)
    unit = _unit(encoder, rows)
    if unit.outcome == "fail":
        return finite, unit
    if stored:
        return finite, unit, _stored_texts(rows)
    return finite, unit, _texts(passages), _roles(encoder, queries, passages), _batch(encoder, passages)


def batch_noise(encoder: Encoder) -> float:
    """Return the maximum distance between a text's row from a batch of one and from a batch of many.

    Rows are compared at unit length, as in the score. For stored rows, return their rounding error.
    Source: METHOD 2.6.
    """
    if isinstance(encoder, PrecomputedEncoder):
        return encoder.rounding
    return _noise(encoder, encoder.encode(list(SELF_TEST_TEXTS), "passage"))


def smallest_distance(encoder: Encoder) -> float:
    """Return the maximum length of n - p at which its direction counts as noise. Source: METHOD 2.6."""
    if encoder.info.dtype == "float32":
        return FLOAT32_DISTANCE
    return max(NOISE_FACTOR * batch_noise(encoder), FLOAT32_DISTANCE)


def _noise(encoder: Encoder, batched: Float32Rows) -> float:
    single = np.concatenate([encoder.encode([text], "passage") for text in SELF_TEST_TEXTS])
    return _largest_difference(single, batched)


def _largest_difference(rows: Float32Rows, others: Float32Rows) -> float:
    """Return the maximum distance between two unit rows of the same text. Both arrays are scaled first."""
    return float(np.linalg.norm(_scaled(rows) - _scaled(others), axis=1).max())


def _scaled(rows: Float32Rows) -> Float32Rows:
    return finish_rows(rows, None, normalize=True)


def _probe(name: str, passes: bool, kind: str, **values: str | float) -> SelfTestCheck:
    return SelfTestCheck(name, "pass" if passes else "fail", Fact(kind, values))


def _finite(encoder: Encoder, rows: Float32Rows) -> SelfTestCheck:
    bad = int((~np.isfinite(rows)).any(axis=1).sum())
    half = bad and encoder.info.dtype in ("bf16", "fp16") and not isinstance(encoder, PrecomputedEncoder)
    kind = "half_precision" if half else "finite"
    return _probe("finite", bad == 0, kind, bad=bad, n=len(rows), dtype=encoder.info.dtype)


def _unit(encoder: Encoder, rows: Float32Rows) -> SelfTestCheck:
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    if not encoder.info.normalize:
        shortest = float(lengths.min())
        return _probe("unit", shortest > 0, "any_length", measured=shortest)
    error = float(np.abs(lengths - 1).max())
    return _probe("unit", error <= LENGTH_TOLERANCE, "unit_length", measured=error)


def _texts(passages: Float32Rows) -> SelfTestCheck:
    rows = _scaled(passages)
    distances = np.linalg.norm(rows[:, None] - rows[None], axis=2)[np.triu_indices(len(rows), 1)]
    nearest = float(distances.min())
    return _probe("texts", nearest > FLOAT32_DISTANCE, "texts", measured=nearest)


def _stored_texts(rows: Float32Rows) -> SelfTestCheck:
    """Check that the rows of a file are not all equal. Similar rows pass, because the texts may be similar."""
    if len(rows) == 1:
        return SelfTestCheck("texts", "not evaluated", Fact("one_row"))
    farthest = float(np.linalg.norm(_scaled(rows[1:]) - _scaled(rows[:1]), axis=1).max())
    return _probe("texts", farthest > FLOAT32_DISTANCE, "stored_texts", measured=farthest)


def _roles(encoder: Encoder, queries: Float32Rows, passages: Float32Rows) -> SelfTestCheck:
    """Check the rows of both roles. A chain of modules must match sentence-transformers with its routes and tasks."""
    info, limit = encoder.info, _tolerance(encoder)
    reference: Any = getattr(encoder, "reference", None)
    if reference is not None:
        farthest = max(
            _largest_difference(queries, reference(SELF_TEST_TEXTS, "query")),
            _largest_difference(passages, reference(SELF_TEST_TEXTS, "passage")),
        )
        return _probe("roles", farthest <= limit, "reference", measured=farthest, limit=limit)
    distances = np.linalg.norm(_scaled(queries) - _scaled(passages), axis=1)
    if info.query_prefix != info.passage_prefix:
        nearest, limit = float(distances.min()), FLOAT32_DISTANCE
        return _probe("roles", nearest > limit, "other_prefixes", measured=nearest, limit=limit)
    if info.rules.get("query_prefix") == "function":
        return SelfTestCheck("roles", "not evaluated", Fact("own_prefixes"))
    farthest = float(distances.max())
    return _probe("roles", farthest <= limit, "same_prefixes", measured=farthest, limit=limit)


def _batch(encoder: Encoder, passages: Float32Rows) -> SelfTestCheck:
    noise, limit = _noise(encoder, passages), _tolerance(encoder)
    return _probe("batch", noise <= limit, "batch", n=len(SELF_TEST_TEXTS), measured=noise, limit=limit)


def _tolerance(encoder: Encoder) -> float:
    """Return the maximum allowed distance between two rows of the same text."""
    return BATCH_TOLERANCE if encoder.info.dtype == "float32" else MAX_NOISE


# The description of an encoder, with the outcome of its self-test.


@dataclass(frozen=True)
class Description:
    """The report of `secid encoder`.

    n_parameters : number of weights of model and heads; None without a model (vectors file, endpoint).
    heads        : modules after pooling in order, such as "dense 768 to 3072". A final normalisation is in
                   info.normalize instead.
    truncate_dim : number of leading dimensions that the setting `truncate_dim` keeps; None if it is not set.
    not_asked    : names of checks that the self-test did not run, for stored rows or after a failed check.
    """

    info: EncoderInfo
    n_parameters: int | None
    heads: tuple[str, ...]
    checks: tuple[SelfTestCheck, ...]
    truncate_dim: int | None = None
    not_asked: tuple[str, ...] = ()

    @property
    def unsettled(self) -> tuple[str, ...]:
        """Names of the checks that failed or were not evaluated."""
        return tuple(check.name for check in self.checks if check.outcome != "pass")


def describe(encoder: Encoder) -> Description:
    """Describe an encoder by its recipe and its self-test. The self-test encodes a few short texts."""
    recipe: Recipe | None = getattr(encoder, "recipe", None)
    checks = self_test(encoder)
    names = {check.name for check in checks}
    return Description(
        info=encoder.info,
        n_parameters=getattr(encoder, "n_parameters", None),
        heads=() if recipe is None else recipe.heads,
        checks=checks,
        truncate_dim=encoder.info.dim if encoder.info.rules.get("truncate_dim") == "flag" else None,
        not_asked=tuple(name for name in SELF_TEST_CHECKS if name not in names),
    )
