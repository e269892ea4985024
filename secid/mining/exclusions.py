"""Candidates that must never be a negative of a query, and why: the catalogue's rules of the texts.

    false_negative     the normal form of a labelled positive of the query
    near_copy          nearly one of them
    query_echo         the query's own normal form
    empty              no letter or digit, or a placeholder
    repeat             the normal form of a candidate before it in the query's order

Source: METHOD 14.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from secid.arrays import Index, first_in_row
from secid.findings.copies import CopyFinder, positives_of_pairs
from secid.mining.questions import Questions
from secid.pool.normal_form import EMPTY_FORM, text_forms
from secid.progress import Progress

Codes = npt.NDArray[np.uint8]

EXCLUDED = ("false_negative", "near_copy", "query_echo", "empty", "repeat")
"""The reasons by their codes, 1 and up: of several, the first."""


class Exclusions:
    """The rules for all queries of a run."""

    def __init__(self, questions: Questions, progress: Progress) -> None:
        progress.start("texts", len(questions.queries) + len(questions.passages), "texts")
        self._queries = text_forms(questions.queries, progress.advance)
        self._passages = text_forms(questions.passages, progress.advance)
        query, passage = questions.labels
        known = positives_of_pairs(self._queries.form[query], passage, self._passages, questions.passages)
        self._copies = CopyFinder(self._queries, self._passages, questions.passages, (), known)

    @property
    def query_forms(self) -> Index:
        """(Q,) a number that queries of one normal form share."""
        return self._queries.number

    def codes(self, queries: Index, ids: Index) -> Codes:
        """(q, m) 0 where a candidate may be a negative, else the number of the reason.

        queries : (q,).   ids : (q, m) of candidates in their order, -1 for none, which gets 0.
        """
        codes = np.zeros(ids.shape, np.uint8)
        row, place = np.nonzero(ids >= 0)
        passage, query = ids[row, place], queries[row]
        copies = self._copies.flags_of_pairs(self._queries.form[query], passage)
        form = self._passages.form[passage]
        flags = {
            "false_negative": copies["false_negative"],
            "near_copy": copies["near_copy"],
            "query_echo": (form == self._queries.form[query]) & (form != EMPTY_FORM),
            "empty": self._passages.empty[passage],
            "repeat": ~first_in_row(np.where(ids >= 0, self.forms(ids), -1))[row, place],
        }
        for name in reversed(EXCLUDED):
            codes[row[flags[name]], place[flags[name]]] = EXCLUDED.index(name) + 1
        return codes

    def forms(self, ids: Index) -> Index:
        """Numbers that candidates of one normal form share."""
        return self._passages.number[ids]
