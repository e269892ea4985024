"""Findings that need the encoder's rows or a tokenizer: one rule each, over the columns of the triplet table.

Thresholds of METHOD 4 are ours, settable, and printed with the numbers. Source: METHOD 4, 10, 14.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from secid.arrays import Flags, Floats
from secid.measure.summary import INVERSION, LOW_LOCALITY
from secid.triplets.random_reference import RandomReference, random_like
from secid.triplets.table import TripletTable

SAMPLED = frozenset({"random_like", "weak_positive"})
"""Findings that are evaluated for the queries of the random reference alone."""


@dataclass(frozen=True)
class Thresholds:
    """high_coverage: c from which coverage is high.   valid: π (and ρ) from which a triplet counts as valid.
    far: ρ below which it counts as far. All in [0, 1].
    """

    high_coverage: float
    valid: float
    far: float


@dataclass(frozen=True)
class Rule:
    """flags: (T,) which negatives have the finding.   severity: (T,) larger is worse, for choosing examples."""

    flags: Flags
    severity: Floats


def row_rules(
    table: TripletTable,
    thresholds: Thresholds,
    reference: RandomReference | None,
    truncated: Flags | None,
    unknown: Flags | None,
    wordless: Flags,
) -> dict[str, Rule]:
    """Every finding that needs more than the texts, by name, in no particular order.

    reference : random passages of the sampled queries; None where there are none, and two findings fewer.
    truncated : (n_passages,) which texts the encoder cut; None where it does not say, and there is no such finding.
    unknown   : (n_passages,) which texts are in a script that its tokenizer does not know; likewise.
    wordless  : (n_queries,) which queries have no token.
    """
    columns = table.columns()
    pi, rho, c, weight = (columns[name] for name in ("consistency", "locality", "coverage", "weight"))
    valid, far, high = thresholds.valid, thresholds.far, thresholds.high_coverage
    rules = {
        "query_without_tokens": Rule(wordless[table.triplets.query], np.zeros(len(table))),
        "inversion": Rule(pi < INVERSION, -pi),
        "low_locality": Rule(rho < LOW_LOCALITY, -rho),
        "high_coverage": Rule(c >= high, c),
        "valid_but_lexical": Rule((pi >= valid) & (rho >= valid) & (c >= high), c),
        "valid_but_far": Rule((pi >= valid) & (c < high) & (rho < far), -rho),
    }
    if truncated is not None:
        rules["truncated"] = Rule(truncated[table.triplets.negative], weight)
    if unknown is not None:
        rules["unknown_script"] = Rule(unknown[table.triplets.negative], weight)
    if table.guide is not None:
        with np.errstate(invalid="ignore"):
            gap = table.guide.s_query_negative - table.guide.s_query_positive
        rules["suspect"] = Rule(table.guide.suspect(), gap)
    if reference is not None:
        rules |= _against_random(table, columns, reference)
    return rules


def _against_random(table: TripletTable, columns: Mapping[str, Floats], reference: RandomReference) -> dict[str, Rule]:
    query, near, best = table.triplets.query, columns["s_query_negative"], columns["s_query_positive"]
    return {
        "random_like": Rule(random_like(query, near, reference), -near),
        "weak_positive": Rule(random_like(query, best, reference), -best),
    }
