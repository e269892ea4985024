"""How negatives open: with a generator's words, or with words that many of them share and few positives.

Both rules look at the first words of each distinct passage alone. Source: METHOD 14.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secid.arrays import among, distinct
from secid.findings.normal_form import Flags, Index, is_unspaced, normal_form
from secid.findings.preambles import phrase
from secid.pool import PlannedSource
from secid.pool.texts import TextStore, pieces

OPENING_WORDS = 5
OPENING_CHARACTERS = 8
"""Of a text in a script without spaces. Source for both: METHOD 14."""
SHARED_FRACTION = 0.01
"""Share of the source's distinct negatives from which an opening is shared. Source: METHOD 14."""
SHARED_RATIO = 5.0
"""Times the share among the positives: a house style opens both alike. Source: METHOD 14."""
SHARED_TEXTS = 5
"""Among fewer distinct texts chance is enough. Source: METHOD 14."""
SHARED_QUERIES = 3
"""The subject of one query opens many of its passages alike. Source: METHOD 14."""
SHARED_CHANCE = 0.01
"""Largest chance of so few positives that open so, if they did as often as the negatives. Few positives say little: 89
without "free flight measurements of the" are no sign where 8 of 670 negatives open so. Without this bound 16 of 132
sound samples of Cranfield had more than 1 % of such negatives, with it none (docs/decisions/openings.md)."""
HEAD_CHARACTERS = 128
"""Holds five words of 25 letters each."""
CHUNK_TEXTS = 4096
"""Texts decoded at once: some MB."""
NO_OPENING = 0
NO_PHRASE = -1


@dataclass(frozen=True)
class Openings:
    """How n passages open, by id.

    phrase  : (n,) number of the generator's phrase, NO_PHRASE for a passage.
    opening : (n,) hash of the opening, of this process only; NO_OPENING for a text that is shorter than one.
    Passages that no source points at have neither.
    """

    phrase: npt.NDArray[np.int32]
    opening: Index

    @staticmethod
    def of(passages: TextStore, ids: Index) -> Openings:
        """Openings of the passages with these ids, each read once."""
        phrases: dict[str, int] = {}
        numbers = np.full(len(passages), NO_PHRASE, np.int32)
        openings = np.full(len(passages), NO_OPENING, np.int64)
        for part, texts in chunks(passages, ids):
            said = [phrase(text) for text in texts]
            numbers[part] = [NO_PHRASE if words is None else phrases.setdefault(words, len(phrases)) for words in said]
            openings[part] = [hash(start) if start else NO_OPENING for start in map(opening, texts)]
        return Openings(numbers, openings)


def opening_flags(passages: TextStore, sources: Sequence[PlannedSource]) -> list[dict[str, Flags]]:
    """Flags of `preamble` and `shared_opening`: a dict per source, each (T,) in the order of its negatives.

    preamble       : opens with a generator's phrase (`preambles.phrase`) with which no positive of the run opens.
    shared_opening : see `_shared`. Shares are of distinct texts: those of the source's negatives, and those of all
                     positives of the run.
    Empty arrays for a source without negatives. Source: METHOD 14.
    """
    positives = positives_of(sources)
    texts = Openings.of(passages, used_passages(sources))
    house_style = distinct(texts.phrase[positives])
    return [
        {
            "preamble": _preambles(texts.phrase[planned.negatives], house_style),
            "shared_opening": _shared(planned, texts.opening, texts.opening[positives]),
        }
        for planned in sources
    ]


def opening(text: str) -> str:
    """The first five words of a text's normal form, or its first eight characters in a script without spaces; "" where
    it has fewer.

    >>> opening("  The “quick” brown fox — jumps over")
    'the quick brown fox jumps'
    >>> opening("Too short")
    ''

    Source: METHOD 14.
    """
    form = normal_form(text[:HEAD_CHARACTERS])
    if is_unspaced(form):
        characters = form.replace(" ", "")
        return characters[:OPENING_CHARACTERS] if len(characters) >= OPENING_CHARACTERS else ""
    words = form.split()
    return " ".join(words[:OPENING_WORDS]) if len(words) >= OPENING_WORDS else ""


def used_passages(sources: Sequence[PlannedSource]) -> Index:
    """Sorted ids of the passages that the sources point at."""
    return distinct(np.concatenate([np.zeros(0, np.int64), positives_of(sources), *(p.negatives for p in sources)]))


def positives_of(sources: Sequence[PlannedSource]) -> Index:
    """Sorted ids of the distinct labelled positives of all sources."""
    return distinct(np.concatenate([np.zeros(0, np.int64), *(planned.positives for planned in sources)]))


def chunks(passages: TextStore, ids: Index) -> Iterator[tuple[Index, list[str]]]:
    """The passages with these ids in parts that fit in memory, each with its ids."""
    for start, stop in pieces(len(ids), CHUNK_TEXTS, passages.lengths[ids]):
        yield ids[start:stop], passages.take(ids[start:stop])


def _preambles(phrases: npt.NDArray[np.int32], house_style: npt.NDArray[np.int32]) -> Flags:
    flags: Flags = (phrases != NO_PHRASE) & ~among(phrases, house_style)
    return flags


def _shared(planned: PlannedSource, openings: Index, of_positives: Index) -> Flags:
    """(T,) negatives whose opening at least SHARED_TEXTS distinct negatives of the source share, SHARED_FRACTION of
    them, SHARED_RATIO times its share of the distinct positives, of which there are enough to tell (SHARED_CHANCE),
    for at least SHARED_QUERIES queries.

    openings : (n_passages,) by id.   of_positives : (P,) of the run's distinct positives.
    """
    texts = distinct(planned.negatives)
    known, counts = np.unique(openings[texts], return_counts=True)
    known_positive, counts_positive = np.unique(of_positives, return_counts=True)
    share = counts / max(1, len(texts))
    in_positives = _looked_up(known, known_positive, counts_positive) / max(1, len(of_positives))
    common = known[
        (known != NO_OPENING)
        & (counts >= SHARED_TEXTS)
        & (share >= SHARED_FRACTION)
        & (share >= SHARED_RATIO * in_positives)
        & (chance_of_fewer(in_positives * len(of_positives), share * len(of_positives)) <= SHARED_CHANCE)
    ]
    own = openings[planned.negatives]
    return among(own, common[_n_queries(common, own, planned) >= SHARED_QUERIES])


def chance_of_fewer(n: npt.NDArray[np.float64], expected: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(n,) upper bound of the chance of n or fewer where more are expected; 1 elsewhere. Source: Chernoff 1952."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = np.where(n > 0, n * np.log(expected / n), 0.0)
    return np.where(n >= expected, 1.0, np.exp(np.minimum(n - expected + logarithm, 0.0)))


def _looked_up(values: Index, known: Index, counts: Index) -> Index:
    """(n,) count of each value among the known ones, sorted; 0 elsewhere."""
    if not len(known):
        return np.zeros(len(values), np.int64)
    place = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return np.where(known[place] == values, counts[place], 0)


def _n_queries(common: Index, own: Index, planned: PlannedSource) -> Index:
    """(C,) distinct queries whose negatives open so. common: sorted.   own: (T,) opening of each triplet."""
    with_common = among(own, common)
    query = planned.query[planned.triplet_record()[with_common]]
    pairs = distinct(np.searchsorted(common, own[with_common]) * (query.max(initial=0) + 1) + query)
    return np.bincount(pairs // (query.max(initial=0) + 1), minlength=len(common))
