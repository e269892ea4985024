"""How negatives open: with a generator's words, or with words that many of them share and few positives.

Both rules look at the first words of each distinct passage alone. Source: METHOD 14.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Index, among, distinct, pairs
from secid.findings.normal_form import is_unspaced, normal_form
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
NONE = 0


@dataclass(frozen=True)
class Openings:
    """How n passages open, by id.

    phrase  : (n,) number of the generator's phrase.   opening : (n,) number of the first words.
    Both are NONE where there are none, and for passages that no source points at.
    """

    phrase: Index
    opening: Index

    @staticmethod
    def of(passages: TextStore, ids: Index) -> Openings:
        """Openings of the passages with these ids, each read once."""
        phrases, openings = np.full((2, len(passages)), NONE, np.int64)
        numbers: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for part, texts in chunks(passages, ids):
            phrases[part] = [_number(phrase(text), numbers[0]) for text in texts]
            openings[part] = [_number(opening(text), numbers[1]) for text in texts]
        return Openings(phrases, openings)


def _number(words: str | None, numbers: dict[int, int]) -> int:
    """A number that equal words share. numbers : those given so far, by hash, which takes less than the words."""
    return numbers.setdefault(hash(words), len(numbers) + 1) if words else NONE


def opening_flags(passages: TextStore, sources: Sequence[PlannedSource]) -> list[dict[str, Flags]]:
    """Flags of `preamble` and `shared_opening`: a dict per source, each (T,) in the order of its negatives.

    preamble       : opens with a generator's phrase (`preambles.phrase`) with which no positive of the run opens.
    shared_opening : see `_shared`. Shares are of distinct texts: those of the source's negatives, and those of all
                     positives of the run.
    Empty arrays for a source without negatives. Source: METHOD 14.
    """
    positives = positives_of(sources)
    texts = Openings.of(passages, used_passages(sources))
    house_style = distinct(np.append(texts.phrase[positives], NONE))
    return [
        {
            "preamble": ~among(texts.phrase[planned.negatives], house_style),
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
    words = form.split(" ", OPENING_WORDS)
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


def _shared(planned: PlannedSource, openings: Index, of_positives: Index) -> Flags:
    """(T,) negatives whose opening at least SHARED_TEXTS distinct negatives of the source share, SHARED_FRACTION of
    them, SHARED_RATIO times its share of the distinct positives, of which there are enough (SHARED_CHANCE),
    for at least SHARED_QUERIES queries.

    openings : (n_passages,) by id.   of_positives : (P,) of the run's distinct positives.
    """
    texts, n = distinct(planned.negatives), int(openings.max(initial=NONE)) + 1
    counts = np.bincount(openings[texts], minlength=n)
    share = counts / max(1, len(texts))
    in_positives = np.bincount(of_positives, minlength=n) / max(1, len(of_positives))
    common = (
        (np.arange(n) != NONE)
        & (counts >= SHARED_TEXTS)
        & (share >= SHARED_FRACTION)
        & (share >= SHARED_RATIO * in_positives)
        & (chance_of_fewer(in_positives * len(of_positives), share * len(of_positives)) <= SHARED_CHANCE)
    )
    own, query = openings[planned.negatives], planned.query[planned.triplet_record()]
    n_queries = np.bincount(distinct(pairs(query, own, n)) % n, minlength=n)
    return np.asarray((common & (n_queries >= SHARED_QUERIES))[own])


def chance_of_fewer(n: npt.NDArray[np.float64], expected: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(n,) upper bound of the chance of n or fewer where more are expected; 1 elsewhere. Source: Chernoff 1952."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = np.where(n > 0, n * np.log(expected / n), 0.0)
    return np.where(n >= expected, 1.0, np.exp(np.minimum(n - expected + logarithm, 0.0)))
