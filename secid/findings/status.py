"""Share of a source's negatives with each finding, and whether the source can be trained on as it is."""

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
from secid.results.catalogue import BITS, DAMAGE, DEFECT_LIMIT, DEFECTS, FINDINGS, TEXT_FINDINGS
from secid.results.sources import dropping_narrows_gap
from secid.triplets.estimates import GapMoments, Moments, Names, Share, comparable_keys

# Whether a source can be trained on as it is, decided only by its counted defects.
#
# `secid check`, `secid score` and `secid gate` decide it here, from the texts, so that they agree. Hardness, inversions
# and the score change nothing: what they are worth for training is not established. Source: METHOD 14.

RECORDS_LEFT = 0.5
"""Share of the records that must keep a negative for a repair to leave the source what it was. Source: METHOD 14."""
UNREAD = 0.5
"""If the encoder does not know the script of at least this share of the negatives, there is no verdict."""
DEFECT_MASK = np.uint32(sum(1 << BITS[name] for name in DEFECTS if not FINDINGS[name].formal))
"""The defects that count in every source."""


@dataclass(frozen=True)
class SourceStatus:
    """status: see `source_status`.   flagged: listed negatives with at least one counted defect.

    defects : the counted defects to drop, in the order of the catalogue.
    """

    status: Status
    flagged: Share
    defects: tuple[str, ...]


def sound_negatives(planned: PlannedSource) -> Flags:
    """Return (T,) flags of negatives without a counted defect. If a record lists one again, its first copy stays.

    A formal defect counts where the source has more of it than its positives.
    """
    return _without(planned, planned.excess)


def _without(planned: PlannedSource, formal: Iterable[str]) -> Flags:
    """Return (T,) flags of negatives without these formal defects and without any defect that counts in all sources."""
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
    blank = planned.blanks.keys[~is_known(planned.blanks.query, distinct(planned.query))]
    return n_left, planned.n_records + len(np.unique(comparable_keys(blank)))


def status_of(findings: Sequence[SourceFinding], n_left: int, n_records: int) -> Status:
    """Decide the status from numbers. findings: of the texts.   n_left, n_records: from `records_left`."""
    shares = {item.name: item.counted_share for item in findings}
    if all(shares[name] <= DEFECT_LIMIT for name in DEFECTS):  # "no defects if at most the limit": NaN is not
        return "no_defects"
    left = n_left > 0 and n_left >= RECORDS_LEFT * n_records
    return "repair" if left else "unusable"


def readable(status: Status, unknown_script: float | None) -> Status:
    """Return the status once an encoder has read the texts: "no_verdict" instead of "no_defects" if it cannot.

    unknown_script : share of the negatives with this finding; None if it was not evaluated. Source: METHOD 14.
    """
    unread = unknown_script is not None and not unknown_script < UNREAD
    return "no_verdict" if status == "no_defects" and unread else status


# What share of a source's negatives has a finding, with its error by query; of a formal one, that of positives too.

FLAGGED = "flagged"
"""Name in `moments` of the negatives with at least one counted defect."""


class ListedNegatives:
    """The negatives of a source as its records list them: each as often as it is listed, those without text too.

    query_keys : (n_queries, 16) text keys by query id.
    """

    def __init__(self, planned: PlannedSource, query_keys: npt.NDArray[np.uint8]) -> None:
        self._planned, self._keys = planned, query_keys

    @cached_property
    def _clusters(self) -> tuple[Index, Names]:
        """Return (T + E,) the place of each row's query among the names."""
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
        """Count the listed negatives."""
        return int(self._weight.sum())

    def share(self, finding: str) -> Share:
        """Return the share of a finding of the texts. A repeat is each copy but the first of its text in a record."""
        return Share.of(self._amount(finding), self._weight, *self._clusters)

    def _amount(self, finding: str) -> Floats:
        """Return (T + E,) how many negatives of each row have the finding."""
        planned, copies = self._planned, self._planned.copies.astype(np.float64)
        amount = copies - 1.0 + planned.again() if finding == "repeat" else planned.has(finding) * copies
        n_blank = planned.blanks.count.astype(np.float64) * (finding == "empty")
        return np.concatenate([amount, n_blank])

    def shares(self) -> Mapping[str, Share]:
        """Return the shares of all findings of the texts."""
        return {name: self.share(name) for name in TEXT_FINDINGS}

    def flagged(self) -> Share:
        """The share that has at least one counted defect: blank ones, and each further copy of a text in a record."""
        return Share.of(self._flagged(), self._weight, *self._clusters)

    def _flagged(self) -> Floats:
        copies = self._planned.copies.astype(np.float64)
        amount = np.where(sound_negatives(self._planned), copies - 1.0, copies)
        return np.concatenate([amount, self._planned.blanks.count])

    def compared(self, finding: str) -> GapMoments:
        """A formal finding among the negatives and among the distinct labelled positives of the queries."""
        places, of_negatives, of_labels, n_queries = self._labels
        has_it = bit_of(self._planned.positive_findings[places], finding).astype(np.float64)
        return GapMoments.of(
            (self._amount(finding), self._weight, of_negatives), (has_it, np.ones(len(places)), of_labels), n_queries
        )

    @cached_property
    def _labels(self) -> tuple[Index, Index, Index, int]:
        """Places of the distinct labels, number of each row's query and of each label's, and how many queries."""
        planned, (cluster, names) = self._planned, self._clusters
        places = first_labels(planned)
        of_labels = comparable_keys(self._keys[planned.query[planned.positive_record()[places]]])
        labelled, number = np.unique(np.concatenate([names, of_labels]), return_inverse=True)
        return places, number[: len(names)][cluster], number[len(names) :], len(labelled)

    def excess(self) -> dict[str, bool]:
        """Return the formal defects whose established excess over the positives is above the limit; and whether
        dropping them helps.
        """
        return formal_excess({name: self.compared(name) for name in DAMAGE})

    def moments(self) -> dict[str, Moments]:
        """Return the moments of every share of the texts, and of FLAGGED, to be added to those of other queries."""
        amounts = {name: self._amount(name) for name in TEXT_FINDINGS} | {FLAGGED: self._flagged()}
        cluster, names = self._clusters
        return {name: Moments.of(amount, self._weight, cluster, len(names)) for name, amount in amounts.items()}


def formal_excess(compared: Mapping[str, GapMoments]) -> dict[str, bool]:
    """Return the formal defects that count, whose established excess over the positives is above the limit, by name.

    The value says whether negatives without it would be nearer to the positives. Sources with only labels have none.
    Source: METHOD 16.2.
    """
    known = {name: own for name, own in compared.items() if own.negatives.all and own.positives.all}
    return {
        name: dropping_narrows_gap(moments.positives.value, moments.value)
        for name, moments in known.items()
        if FINDINGS[name].exceeded_by(moments.excess)
    }
