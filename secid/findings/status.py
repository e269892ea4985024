"""Whether a source can be trained on as it is, decided by its counted defects alone.

`secid check`, `secid score` and `secid gate` decide it here, from the texts, so that they agree. Hardness, inversions
and the score change nothing: what they are worth for training is not established. Source: METHOD 14.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from secid.arrays import Flags, among, distinct
from secid.pool import PlannedSource
from secid.results import SourceFinding, Status, defects_to_drop
from secid.results.catalogue import BITS, DEFECTS, FINDINGS
from secid.triplets.estimates import Share, names_of

RECORDS_LEFT = 0.5
"""Share of the records that must keep a negative for a repair to leave the source what it was. Source: METHOD 14."""
UNREAD = 0.5
"""If the encoder does not know the script of at least this share of the negatives, there is no verdict."""
DEFECT_MASK = np.uint32(sum(1 << BITS[name] for name in DEFECTS if not FINDINGS[name].formal))
"""The defects that count in every source."""
LIMITS: Mapping[str, float] = {name: FINDINGS[name].limit or 0.0 for name in DEFECTS}


@dataclass(frozen=True)
class SourceStatus:
    """status: see `source_status`.   flagged: listed negatives with at least one counted defect.

    defects : the counted defects to drop, in the order of the catalogue.
    """

    status: Status
    flagged: Share
    defects: tuple[str, ...]


def sound_negatives(planned: PlannedSource) -> Flags:
    """(T,) which negatives have no counted defect. Of a negative that its record lists again the first copy stays.

    A formal defect counts where the source has more of it than its positives.
    """
    return _without(planned, planned.excess)


def _without(planned: PlannedSource, formal: Iterable[str]) -> Flags:
    """(T,) which negatives have none of these formal defects, and none that counts in every source."""
    mask = DEFECT_MASK | np.uint32(sum(1 << BITS[name] for name in formal))
    return np.asarray(planned.findings & mask == 0)


def source_status(planned: PlannedSource, findings: Sequence[SourceFinding], flagged: Share) -> SourceStatus:
    """The status of a source.

    no_defects : no counted defect is above its limit; each is held against its own, not their union.
    repair     : one is, and at least half of the records keep a negative once the defects that dropping repairs are
                 dropped.
    unusable   : one is, and fewer do.

    findings : those of the texts.   flagged : as `ListedNegatives.flagged` gives it.
    Queries that list only blank negatives count as a record each, which keeps none. Source: METHOD 14, 16.2.
    """
    return SourceStatus(status_of(findings, *records_left(planned)), flagged, defects_to_drop(findings))


def records_left(planned: PlannedSource) -> tuple[int, int]:
    """Records that keep a negative where dropping defects repairs the source, and all.

    A formal defect that dropping does not repair takes no record away: its texts are to be repaired. Queries of blank
    negatives alone are a record each.
    """
    dropped = tuple(name for name, helps in planned.excess.items() if helps)
    n_left = len(distinct(planned.triplet_record()[_without(planned, dropped)]))
    blank = planned.blanks.keys[~among(planned.blanks.query, distinct(planned.query))]
    return n_left, planned.n_records + len(np.unique(names_of(blank)))


def status_of(findings: Sequence[SourceFinding], n_left: int, n_records: int) -> Status:
    """The same by numbers. findings: of the texts.   n_left, n_records: what `records_left` gives."""
    shares = {item.name: item.counted_share for item in findings}
    if all(shares[name] <= LIMITS[name] for name in DEFECTS):  # "no defects if at most the limit": NaN is not
        return "no_defects"
    left = n_left > 0 and n_left >= RECORDS_LEFT * n_records
    return "repair" if left else "unusable"


def readable(status: Status, unknown_script: float | None) -> Status:
    """Return the status once an encoder has read the texts: "no_verdict" instead of "no_defects" if it cannot.

    unknown_script : share of the negatives with this finding; None if it was not evaluated. Source: METHOD 14.
    """
    unread = unknown_script is not None and not unknown_script < UNREAD
    return "no_verdict" if status == "no_defects" and unread else status
