"""Where training objectives would put their gradient, and what more positives and negatives a record change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ObjectiveResult:
    """One objective on one source, from the frozen scores. Source: METHOD 9.

    loss_nats: mean over records, of mw over all pairs of all queries.
    gradient_shares: share of the negatives' gradient on classes of negatives (inversion, copy, margin, suspect, and
    valid: none of these and no counted defect), in [0, 1]; classes but valid overlap. None without any gradient.
    effective_negatives: exp of the entropy of the negatives' gradient, from 1 to all of the source's negatives.
    strongest_positive, weakest_positive: share of the positives' gradient on the highest- and the lowest-scored
    positive of each record, over records of two positives or more; None without any, and for objectives of one.
    """

    source: str
    objective: str
    loss_nats: float
    gradient_shares: Mapping[str, float | None]
    effective_negatives: float | None
    strongest_positive: float | None
    weakest_positive: float | None


@dataclass(frozen=True, kw_only=True)
class RecordSize:
    """One source with only the first passages of each record. n_positives, n_negatives: how many; None for the run's
    own positives, and for all negatives.

    eci_nats, interval_95: at B = 1, in the pool of the run. inversion_share, margin_share: of the negatives, each pair
    with its weight. gradient_on_inversions, effective_negatives: of joint_lh, as in ObjectiveResult.
    """

    source: str
    n_positives: int | None
    n_negatives: int | None
    n_queries: int
    n_triplets: int
    eci_nats: float
    interval_95: tuple[float, float]
    inversion_share: float
    margin_share: float
    gradient_on_inversions: float | None
    effective_negatives: float | None


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """By which share the interval of a score would narrow, in [0, 1), estimated from its variance within queries.

    one_more_negative: a further negative for each query; None where no query has two, or there are too few queries.
    one_more_positive: a further labelled positive for each record; None likewise of a record's own list.
    """

    source: str
    one_more_negative: float | None
    one_more_positive: float | None


@dataclass(frozen=True, kw_only=True)
class ObjectiveLens:
    """What `--objectives` reports. margin: relative margin that flags a negative.

    most_queries: the largest number of queries of a source that `sizes` and `narrowing` are computed on.
    """

    margin: float
    most_queries: int
    objectives: tuple[ObjectiveResult, ...]
    sizes: tuple[RecordSize, ...]
    narrowing: tuple[Narrowing, ...]
