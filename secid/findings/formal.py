"""Formal findings: what gives negatives away only where positives are written otherwise.

Each is looked up for negatives and labelled positives alike; `shares.Compared` makes a difference of both, which
decides whether a formal defect counts. Source: METHOD 16.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Index, among, pairs
from secid.findings.form import has_trailing_note, is_markup, is_unfinished, is_wrapped
from secid.findings.languages import LANGUAGES, UNDECIDED, is_mojibake, language_numbers
from secid.findings.openings import chunks
from secid.pool import DocumentFrequencies, PlannedSource
from secid.pool.normal_form import TextForms
from secid.pool.texts import TextStore

TEXT_RULES = {
    "mojibake": is_mojibake,
    "trailing_note": has_trailing_note,
    "wrapper": is_wrapped,
    "unfinished": is_unfinished,
    "markup": is_markup,
}
"""Rules that read one text, by finding."""
ORDINARY_LENGTHS = (0.01, 0.99)
"""Quantiles of the positives' lengths between which a length is ordinary. Source: METHOD 16.2."""
LengthRange = tuple[int, int]
BothFlags = tuple[Flags, Flags]
"""(T,) of negatives and (P,) of labelled positives."""


@dataclass(frozen=True)
class Facts:
    """Facts of n passages, by id; those that no source points at have none.

    language   : (n,) place in LANGUAGES, UNDECIDED where the library is not sure or there is none.
    characters : (n,) length.   flags : (n,) by finding, of TEXT_RULES and `loop`.
    """

    language: npt.NDArray[np.int16]
    characters: Index
    flags: Mapping[str, Flags]

    @staticmethod
    def of(passages: TextStore, ids: Index, forms: TextForms) -> Facts:
        """Facts of the passages with these ids, each read once. forms: of all passages."""
        languages = np.full(len(passages), UNDECIDED, np.int16)
        characters = np.zeros(len(passages), np.int64)
        flags = {name: np.zeros(len(passages), np.bool_) for name in TEXT_RULES}
        for part, texts in chunks(passages, ids):
            languages[part] = language_numbers(texts)
            characters[part] = np.fromiter(map(len, texts), np.int64, len(texts))
            for name, rule in TEXT_RULES.items():
                flags[name][part] = np.fromiter(map(rule, texts), np.bool_, len(texts))
        return Facts(languages, characters, {**flags, "loop": forms.loop})

    def of_source(self, planned: PlannedSource, ordinary: LengthRange | None = None) -> dict[str, BothFlags]:
        """Formal findings of one source by name. ordinary: shortest and longest; of its own positives where None.

        other_language : its language is decided, and so is that of a positive of its record, and no such positive has
                         it. A positive is held against the other positives of its record.
        """
        low, high = ordinary or ordinary_lengths(self.lengths(planned))
        unordinary = (self.characters < low) | (self.characters > high)
        return {
            name: (flags[planned.negatives], flags[planned.positives])
            for name, flags in {**self.flags, "length": unordinary}.items()
        } | {"other_language": _other_language(planned, self.language)}

    def lengths(self, planned: PlannedSource) -> DocumentFrequencies:
        """How many of a source's labelled positives have each number of characters."""
        labelled = planned.positives[first_labels(planned)]
        values, counts = np.unique(self.characters[labelled], return_counts=True)
        return DocumentFrequencies(values.astype(np.uint64), counts.astype(np.int64), len(labelled))


def first_labels(planned: PlannedSource) -> Index:
    """Places in `positives` of the distinct pairs of query and labelled positive."""
    labels = pairs(
        planned.query[planned.positive_record()], planned.positives, int(planned.positives.max(initial=0)) + 1
    )
    return np.unique(labels, return_index=True)[1]


def ordinary_lengths(lengths: DocumentFrequencies) -> LengthRange:
    """The lengths at ORDINARY_LENGTHS; every length where there is no positive. lengths: positives by length."""
    if not len(lengths.keys):
        return 0, np.iinfo(np.int64).max
    ranks = np.cumsum(lengths.counts)
    low, high = (int(np.searchsorted(ranks, quantile * ranks[-1])) for quantile in ORDINARY_LENGTHS)
    return int(lengths.keys[low]), int(lengths.keys[high])


def _other_language(planned: PlannedSource, language: npt.NDArray[np.int16]) -> BothFlags:
    """See `Facts.of_source`. language: (n_passages,) by id."""
    own, record = language[planned.negatives], planned.triplet_record()
    of_positive, record_of_positive = language[planned.positives], planned.positive_record()
    decided = of_positive != UNDECIDED
    decided_in = np.bincount(record_of_positive[decided], minlength=planned.n_records)
    spoken = record_of_positive * len(LANGUAGES) + of_positive
    labels, counts = np.unique(spoken[decided], return_counts=True)
    known = among(record * len(LANGUAGES) + own, labels)
    alone = among(spoken, labels[counts == 1])
    return (
        (own != UNDECIDED) & (decided_in[record] > 0) & ~known,
        decided & (decided_in[record_of_positive] > 1) & alone,
    )
