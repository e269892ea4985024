"""Estimate the share of a source's negatives with each finding, and decide whether it can be used for training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Floats, Index, distinct, is_known
from secid.findings.openings import first_labels
from secid.pool import PlannedSource
from secid.pool.plan import bit_of
from secid.results import SourceFinding, Status, defects_to_drop
from secid.results.catalogue import BITS, DAMAGE_FINDINGS, DEFECT_LIMIT, DEFECTS, FINDINGS, TEXT_FINDINGS
from secid.results.sources import dropping_narrows_gap
from secid.triplets.estimates import GapMoments, Moments, Names, Share, comparable_keys

# The status of a source depends only on its counted defects.
#
# `secid check`, `secid score` and `secid gate` decide it here, from the texts, so that they agree. Hardness, inversions
# and the score do not affect it, because their value for training is not established. Source: METHOD 14.

MIN_FRACTION_LEFT = 0.5
"""Minimum share of records that must keep a negative after a repair. Source: METHOD 14."""
MIN_UNREAD_FRACTION = 0.5
"""Minimum share of negatives in a script unknown to the encoder for which there is no verdict."""
DEFECT_MASK = np.uint32(sum(1 << BITS[name] for name in DEFECTS if not FINDINGS[name].formal))
"""Bits of the defects that count in every source."""


@dataclass(frozen=True)
class SourceStatus:
    """Status of one source.

    status  : see `source_status`.   flagged : share of listed negatives with at least one counted defect.
    defects : counted defects to drop, in the order of the catalogue.
    """

    status: Status
    flagged: Share
    defects: tuple[str, ...]


def sound_negatives(planned: PlannedSource) -> Flags:
    """Return (T,) flags of negatives without a counted defect. The first of repeated negatives in a record is sound.

    A formal defect counts if the source's negatives have more of it than its positives.
    """
    return _without(planned, planned.excess)


def _without(planned: PlannedSource, formal: Iterable[str]) -> Flags:
    """Return (T,) flags of negatives without these formal defects and without defects that count in all sources."""
    mask = DEFECT_MASK | np.uint32(sum(1 << BITS[name] for name in formal))
    return np.asarray(planned.findings & mask == 0)


def source_status(planned: PlannedSource, findings: Sequence[SourceFinding], flagged: Share) -> SourceStatus:
    """Return the status of a source.

    no_defects : no share of a counted defect is above the limit. The share of their union may be.
    repair     : a defect is above the limit, and at least half of the records keep a negative after dropping the
                 negatives with a defect that dropping repairs.
    unusable   : a defect is above the limit, and fewer records keep a negative.

    findings : findings of the texts.   flagged : from `ListedNegatives.flagged`.
    A query with only blank negatives counts as a record that keeps no negative. Source: METHOD 14, 16.2.
    """
    return SourceStatus(status_of(findings, *records_left(planned)), flagged, defects_to_drop(findings))


def records_left(planned: PlannedSource) -> tuple[int, int]:
    """Return (number of records that keep a negative after dropping defects, number of all records).

    A formal defect that dropping does not repair costs no record, because its texts can be repaired instead. A query
    with only blank negatives counts as a record.
    """
    dropped = tuple(name for name, helps in planned.excess.items() if helps)
    n_left = len(distinct(planned.triplet_record()[_without(planned, dropped)]))
    blank = planned.blanks.keys[~is_known(planned.blanks.query, distinct(planned.query))]
    return n_left, planned.n_records + len(np.unique(comparable_keys(blank)))


def status_of(findings: Sequence[SourceFinding], n_left: int, n_records: int) -> Status:
    """Decide the status from numbers. findings: findings of the texts. n_left, n_records: from `records_left`."""
    shares = {item.name: item.counted_share for item in findings}
    if all(shares[name] <= DEFECT_LIMIT for name in DEFECTS):  # NaN is not within the limit
        return "no_defects"
    left = n_left > 0 and n_left >= MIN_FRACTION_LEFT * n_records
    return "repair" if left else "unusable"


def readable(status: Status, unknown_script: float | None) -> Status:
    """Return the status by texts and encoder: "no_verdict" replaces "no_defects" if the encoder cannot read the texts.

    unknown_script : share of negatives with this finding; None if it was not evaluated. Source: METHOD 14.
    """
    unread = unknown_script is not None and not unknown_script < MIN_UNREAD_FRACTION
    return "no_verdict" if status == "no_defects" and unread else status


# Shares of a source's negatives with a finding, with errors clustered by query; for formal ones, also of positives.

FLAGGED = "flagged"
"""Key in `ListedNegatives.moments` for negatives with at least one counted defect."""


class ListedNegatives:
    """The negatives of a source as its records list them, including repeats and negatives without text.

    query_keys : (n_queries, 16) text keys by query id.
    """

    def __init__(self, planned: PlannedSource, query_keys: npt.NDArray[np.uint8]) -> None:
        self._planned, self._keys = planned, query_keys

    @cached_property
    def _clusters(self) -> tuple[Index, Names]:
        """Return (cluster, names): the place of each row's query in the names, (T + E,), and the queries' names.

        Rows are the T triplets, then the E rows with blank negatives.
        """
        planned = self._planned
        names_by_row = comparable_keys(self._keys[planned.query[planned.triplet_record()]])
        names, cluster = np.unique(
            np.concatenate([names_by_row, comparable_keys(planned.blanks.keys)]), return_inverse=True
        )
        return cluster, names

    @cached_property
    def _weight(self) -> Floats:
        return np.concatenate([self._planned.copies, self._planned.blanks.count]).astype(np.float64)

    @property
    def n(self) -> int:
        return int(self._weight.sum())

    def share(self, finding: str) -> Share:
        """Return a text finding's share of the listed negatives. All but one copy of a text in a record are repeats."""
        return Share.of(self._amount(finding), self._weight, *self._clusters)

    def _amount(self, finding: str) -> Floats:
        """Return the number of negatives with the finding in each row, (T + E,)."""
        planned, copies = self._planned, self._planned.copies.astype(np.float64)
        amount = copies - 1.0 + planned.respelled() if finding == "repeat" else planned.has(finding) * copies
        n_blank = planned.blanks.count.astype(np.float64) * (finding == "empty")
        return np.concatenate([amount, n_blank])

    def shares(self) -> Mapping[str, Share]:
        return {name: self.share(name) for name in TEXT_FINDINGS}

    def flagged(self) -> Share:
        """Return the share of negatives with a counted defect. Blank negatives and repeats in a record count."""
        return Share.of(self._flagged(), self._weight, *self._clusters)

    def _flagged(self) -> Floats:
        copies = self._planned.copies.astype(np.float64)
        amount = np.where(sound_negatives(self._planned), copies - 1.0, copies)
        return np.concatenate([amount, self._planned.blanks.count])

    def compared(self, finding: str) -> GapMoments:
        """Compare the share of a formal finding among negatives with that among the queries' distinct positives."""
        places, of_negatives, of_labels, n_queries = self._labels
        has_it = bit_of(self._planned.positive_findings[places], finding).astype(np.float64)
        return GapMoments.of(
            (self._amount(finding), self._weight, of_negatives), (has_it, np.ones(len(places)), of_labels), n_queries
        )

    @cached_property
    def _labels(self) -> tuple[Index, Index, Index, int]:
        """Return (places of the distinct labels, query number of each row and of each label, number of queries)."""
        planned, (cluster, names) = self._planned, self._clusters
        places = first_labels(planned)
        of_labels = comparable_keys(self._keys[planned.query[planned.positive_record()[places]]])
        labelled, number = np.unique(np.concatenate([names, of_labels]), return_inverse=True)
        return places, number[: len(names)][cluster], number[len(names) :], len(labelled)

    def excess(self) -> dict[str, bool]:
        """Return `formal_excess` of this source: formal defect that counts -> whether dropping it helps."""
        return formal_excess({name: self.compared(name) for name in DAMAGE_FINDINGS})

    def moments(self) -> dict[str, Moments]:
        """Return finding or FLAGGED -> moments of its share. Moments of other queries can be added."""
        amounts = {name: self._amount(name) for name in TEXT_FINDINGS} | {FLAGGED: self._flagged()}
        cluster, names = self._clusters
        return {name: Moments.of(amount, self._weight, cluster, len(names)) for name, amount in amounts.items()}


def formal_excess(compared: Mapping[str, GapMoments]) -> dict[str, bool]:
    """Return formal defect that counts -> whether dropping it helps.

    A formal defect counts if its share among negatives exceeds that among positives by more than the limit, beyond
    chance. Dropping helps if it brings the share nearer to that of the positives. A source without negatives or
    without positives has no such defect. Source: METHOD 16.2.
    """
    known = {name: gap for name, gap in compared.items() if gap.negatives.all and gap.positives.all}
    return {
        name: dropping_narrows_gap(moments.positives.value, moments.value)
        for name, moments in known.items()
        if FINDINGS[name].exceeded_by(moments.excess)
    }
