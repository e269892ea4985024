"""What share of a source's negatives has a finding, with its error by query; of a formal one, that of positives too."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt

from secid.arrays import Floats, Index
from secid.findings.formal import first_labels
from secid.findings.status import sound_negatives
from secid.pool import PlannedSource
from secid.pool.plan import bit_of
from secid.results.catalogue import DAMAGE, FINDINGS, TEXT_FINDINGS
from secid.results.sources import nearer_without
from secid.triplets.estimates import GapMoments, Moments, Names, Share, names_of

FLAGGED = "flagged"
"""What `moments` calls the negatives with at least one counted defect."""


class ListedNegatives:
    """The negatives of a source as its records list them: each as often as it is listed, those without text too.

    query_keys : (n_queries, 16) text keys by query id.
    """

    def __init__(self, planned: PlannedSource, query_keys: npt.NDArray[np.uint8]) -> None:
        self._planned, self._keys = planned, query_keys

    @cached_property
    def _clusters(self) -> tuple[Index, Names]:
        """(T + E,) place of each row's query among the names."""
        planned = self._planned
        names_by_row = names_of(self._keys[planned.query[planned.triplet_record()]])
        names, cluster = np.unique(np.concatenate([names_by_row, names_of(planned.blanks.keys)]), return_inverse=True)
        return cluster, names

    @cached_property
    def _weight(self) -> Floats:
        return np.concatenate([self._planned.copies, self._planned.blanks.count]).astype(np.float64)

    @property
    def n(self) -> int:
        """How many are listed."""
        return int(self._weight.sum())

    def share(self, finding: str) -> Share:
        """The share of a finding of the texts. A repeat is each copy but the first of its text in a record."""
        return Share.of(self._amount(finding), self._weight, *self._clusters)

    def _amount(self, finding: str) -> Floats:
        """(T + E,) how many negatives of each row have it."""
        planned, copies = self._planned, self._planned.copies.astype(np.float64)
        amount = copies - 1.0 + planned.again() if finding == "repeat" else planned.has(finding) * copies
        n_blank = planned.blanks.count.astype(np.float64) * (finding == "empty")
        return np.concatenate([amount, n_blank])

    def shares(self) -> Mapping[str, Share]:
        """The shares of all findings of the texts."""
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
        planned = self._planned
        cluster, names = self._clusters
        places = first_labels(planned)
        of_labels = names_of(self._keys[planned.query[planned.positive_record()[places]]])
        labelled, asked = np.unique(np.concatenate([names, of_labels]), return_inverse=True)
        has_it = bit_of(planned.positive_findings[places], finding).astype(np.float64)
        return GapMoments.of(
            (self._amount(finding), self._weight, asked[: len(names)][cluster]),
            (has_it, np.ones(len(places)), asked[len(names) :]),
            len(labelled),
        )

    def excess(self) -> dict[str, bool]:
        """The formal defects that the negatives have more of than the positives, by more than their limits; and whether
        dropping them helps.
        """
        return formal_excess({name: self.compared(name) for name in DAMAGE})

    def moments(self) -> dict[str, Moments]:
        """Those of every share of the texts, and of FLAGGED, to be added to those of other queries."""
        amounts = {name: self._amount(name) for name in TEXT_FINDINGS} | {FLAGGED: self._flagged()}
        cluster, names = self._clusters
        return {name: Moments.of(amount, self._weight, cluster, len(names)) for name, amount in amounts.items()}


def formal_excess(compared: Mapping[str, GapMoments]) -> dict[str, bool]:
    """The formal defects that count: their excess over the positives is above the limit; none of labels alone.

    By name, whether negatives without it would be nearer to the positives. Source: METHOD 16.2.
    """
    known = {name: own for name, own in compared.items() if own.negatives.all and own.positives.all}
    return {
        name: nearer_without(moments.positives.value, moments.value)
        for name, moments in known.items()
        if moments.excess > (FINDINGS[name].limit or 0.0)
    }
