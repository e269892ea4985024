"""What was found between sources: overlaps, differences, crossings, and the order on parts of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Number = Literal["score", "trace"]
"""Number that a pair is compared by: the score, or tr M if too many sets of shared queries would need a matrix."""


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """What two sources share: queries and documents over the smaller source's; mean Jaccard of a query's negatives."""

    first: str
    second: str
    shared_query_fraction: float
    negative_jaccard_mean: float | None
    shared_document_fraction: float


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """First source minus second on the queries that both have. interval_95 : None with too few queries."""

    value: float
    interval_95: tuple[float, float] | None

    def turned(self) -> PairedDifference:
        """Return second source minus first."""
        ends = self.interval_95
        return PairedDifference(value=-self.value, interval_95=ends and (-ends[1], -ends[0]))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two sources on the queries that both have, the higher-scored first. Source: METHOD 16.1.

    p values are two-sided; p_holm over all pairs of the run.   established: p_holm below 0.05.
    queries_needed_50, _80: distinct queries with which such a difference is found with 50 % and 80 % power; None where
    the difference is 0.
    number: if "trace", difference_nats and all that follows from it are differences of tr M.
    hardness: difference of the hardness over the sampled queries.   outscoring: difference of the share of negatives
    that outscore their positive. None if a side has no value, and in a report of an earlier version.
    """

    first: str
    second: str
    difference_nats: float
    standard_error_nats: float
    interval_95: tuple[float, float]
    n_shared_queries: int
    z: float | None
    p: float
    p_holm: float
    established: bool
    queries_needed_50: int | None
    queries_needed_80: int | None
    number: Number = "score"
    hardness: PairedDifference | None = None
    outscoring: PairedDifference | None = None


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look of an early stop. alpha: largest chance of a wrong order by then. n_decided: pairs decided so far."""

    n_queries: int
    n_texts_encoded: int
    alpha: float
    n_decided: int


@dataclass(frozen=True, kw_only=True)
class EarlyPair:
    """A decided pair. outcome: "ordered" (first scores higher) or "tied" (they differ by less than the tie)."""

    first: str
    second: str
    outcome: str
    n_queries: int
    difference_nats: float


@dataclass(frozen=True, kw_only=True)
class EarlyStop:
    """How a run with --until-ranked went. confidence: that every order declared is the full files'; ties
    are declared pair by pair, each at the look's share of the error.

    planned_looks: queries of every look that was planned, made or not.
    n_texts_encoded of n_texts: distinct texts that the looks needed, of those that scoring without them would; cached
    ones are in both, what max_records or first_k left out in neither.
    """

    confidence: float
    tie_nats: float | None
    planned_looks: tuple[int, ...] = ()
    looks: tuple[Look, ...]
    pairs: tuple[EarlyPair, ...]
    undecided: tuple[tuple[str, str], ...]
    n_texts_encoded: int
    n_texts: int
