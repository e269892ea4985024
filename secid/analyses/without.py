"""A source without some of its negatives: without its counted defects, or without what a guide suspects."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from secid.analyses.ranking import score_interval
from secid.findings.status import sound_negatives
from secid.results import WithoutFlagged
from secid.triplets.measure_set import Bench
from secid.triplets.measured import Measured
from secid.triplets.random_reference import RandomReference


def without_flagged(item: Measured, bench: Bench, reference: RandomReference | None) -> WithoutFlagged:
    """A source without its counted defects."""
    sound = sound_negatives(item.table.source)
    return only(item, sound[item.triplets.place], int(sound.sum()), bench, reference)


def only(
    item: Measured, keep: npt.NDArray[np.bool_], n_triplets: int, bench: Bench, reference: RandomReference | None
) -> WithoutFlagged:
    """A source with some of its negatives alone, measured again where any is left out.

    keep : (T,).   n_triplets : distinct negatives of the records that stay.
    """
    if not n_triplets:
        return WithoutFlagged(n_triplets=0, eci_nats=None, interval_95=None, hardness=None)
    if not keep.all():
        item = bench.part(item, np.flatnonzero(keep), 1.0)
    effect = item.influence
    nats, error = item.nats(1.0), float(effect.standard_errors()[effect.column(1.0)])
    hardness = None if reference is None else item.table.hardness(reference)
    return WithoutFlagged(
        n_triplets=n_triplets,
        eci_nats=nats,
        interval_95=score_interval(nats, error, effect.n_queries, 1.0),
        hardness=None if hardness is None else hardness.value,
    )
