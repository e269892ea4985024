"""What a negative with a finding repeats: the labelled positive, the earlier place in its record, how many queries.

Looked up for the few negatives that are shown as examples. Source: METHOD 14.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from secid.arrays import Index
from secid.pool import Plan, PlannedSource, labels_of
from secid.pool.normal_form import FormKeys, Keys, text_forms
from secid.results import Match


class Matcher:
    """Looks matches up in a plan, while its texts are at hand."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def of(self, name: str, planned: PlannedSource, place: int) -> Match | None:
        """What the triplet at `place` repeats; None for a finding that repeats nothing."""
        if name == "false_negative":
            return self._positive(planned, place)
        if name == "repeat":
            return self.copies(planned, place) or self.earlier(planned, place)
        return self._served(planned, place) if name == "hub" else None

    def _positive(self, planned: PlannedSource, place: int) -> Match:
        """The row that first labels the text as a positive of the query; none where that text is not in the plan."""
        plan = self._plan
        own = self._forms(planned.negatives[[place]])[0]
        queries = np.flatnonzero(self._queries == self._queries[planned.query[_record(planned, place)]])
        known = labels_of(plan, queries)[1]
        same = known[self._forms(plan.known_positives[known] % len(plan.passages)) == own]
        if not len(same):
            return Match(kind="positive")
        first = same[0]
        return Match(
            kind="positive", path=plan.label_paths[plan.label_path[first]], line=int(plan.label_line[first]) or None
        )

    def copies(self, planned: PlannedSource, place: int) -> Match | None:
        """How often the record lists the text; None where it does so before `place`."""
        same = self._same(planned, place)
        return Match(kind="copies", n=int(planned.copies[same].sum())) if same[0] == place else None

    def earlier(self, planned: PlannedSource, place: int) -> Match:
        """Where the record lists the text first."""
        first = self._same(planned, place)[0]
        return Match(
            kind="earlier",
            path=planned.source.paths[int(planned.negative_file[first])],
            line=int(planned.negative_line[first]),
            n=int(planned.negative_ordinal[first]) + 1,
        )

    def _same(self, planned: PlannedSource, place: int) -> Index:
        """Rising places of the text in its record."""
        record = _record(planned, place)
        low, high = planned.negative_offsets[record : record + 2]
        forms = self._forms(planned.negatives[low:high])
        return np.asarray(low + np.flatnonzero(forms == forms[place - low]))

    def _served(self, planned: PlannedSource, place: int) -> Match:
        """How many queries have the text as a negative. Every triplet of a hub has the finding."""
        places = np.flatnonzero(planned.has("hub"))
        ids, own = np.unique(planned.negatives[places], return_inverse=True)
        same = places[(self._forms(ids) == self._forms(planned.negatives[[place]])[0])[own]]
        queries = planned.query[planned.triplet_record()[same]]
        return Match(kind="queries", n=len(np.unique(self._queries[queries])))

    @cached_property
    def _queries(self) -> Keys:
        return text_forms(self._plan.queries).form

    def _forms(self, ids: Index) -> Keys:
        return FormKeys.of(self._plan.passages.packed_of(ids)).hashes()


def _record(planned: PlannedSource, place: int) -> int:
    return int(np.searchsorted(planned.negative_offsets, place, side="right")) - 1
