"""Letters in one form (NFKC) and case-folded, for many texts at once, as code points.

`fold` is the meaning. `folded_codes` looks most characters up in a table, and calls `fold` only for the few clusters
in which characters may join, split or change places: Unicode normalization of whole texts takes 80 ns a character.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from secid.pool.scripts import UNSPACED_RANGES, spelled

Codes = npt.NDArray[np.uint32]
Kinds = npt.NDArray[np.uint8]

SPELLING, CONTENT, UNSPACED, MARK, SPECIAL, DROPPED = 1, 2, 4, 8, 16, 32
"""What a character is: a letter, digit or combining mark; a letter or digit; one of a script without spaces; one that
goes before or behind others by its combining class; one whose form is not a single character, or depends on those
before it; one that spells nothing."""
ASSIGNED = (range(0xD800), range(0xE000, 0x40000), range(0xE0000, 0xE1000))
"""Code points that may be letters, digits, marks or format characters. Surrogates are in no text."""
N_CODES = 0xE1000
JOINING_JAMO = (range(0x1161, 0x1176), range(0x11A8, 0x11C3))
"""Hangul vowels and final consonants, which join the syllable before them by a rule and not by a table."""


@dataclass(frozen=True)
class _Table:
    """By code point up to N_CODES: the folded character, and what it is (a sum of the constants above)."""

    fold: Codes
    kinds: Kinds


def fold(text: str) -> str:
    """NFKC, case-folded, and NFKC again, since some letters fold into a letter and a mark."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def kinds_of(codes: Codes) -> Kinds:
    """(n,) what each character is."""
    return _table().kinds[np.minimum(codes, np.uint32(N_CODES))]


def folded_codes(text: str) -> Codes:
    """The code points of `fold` of the text without the characters that spell nothing. text : no surrogates."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.dtype("<u4"))
    codes = np.minimum(codes, np.uint32(N_CODES))  # nothing above is a letter, a digit or a mark
    kinds = _table().kinds[codes]
    if (kinds & DROPPED).any():
        kept = kinds & DROPPED == 0
        codes, kinds = codes[kept], kinds[kept]
    folded = _table().fold[codes]
    special, mark = kinds & SPECIAL > 0, kinds & MARK > 0
    special[1:] |= mark[1:] & mark[:-1]
    return _with_clusters(codes, folded, special, mark) if special.any() else folded


def _with_clusters(codes: Codes, folded: Codes, special: npt.NDArray[np.bool_], mark: npt.NDArray[np.bool_]) -> Codes:
    """The folded characters, each cluster with a special character folded as a whole.

    A cluster begins at a character that changes with nothing before it and reaches up to the next such one.
    """
    heads = ~(special | mark)
    heads[0] = True
    starts = np.append(np.flatnonzero(heads), len(codes))
    odd = np.unique(np.cumsum(heads)[special] - 1)
    original, plain = (values.tobytes().decode("utf-32-le") for values in (codes, folded))
    forms: dict[str, str] = {}
    parts, done = [], 0
    for start, stop in zip(starts[odd].tolist(), starts[odd + 1].tolist(), strict=True):
        cluster = original[start:stop]
        if cluster not in forms:
            forms[cluster] = fold(cluster)
        parts += [plain[done:start], forms[cluster]]
        done = stop
    return np.frombuffer("".join([*parts, plain[done:]]).encode("utf-32-le"), np.dtype("<u4"))


@cache
def _table() -> _Table:
    """Built once, where a text is not ASCII: 0.2 s."""
    joining = _joining()
    folds, kinds = np.arange(N_CODES + 1, dtype=np.uint32), np.zeros(N_CODES + 1, np.uint8)
    of_category = {"L": SPELLING | CONTENT, "N": SPELLING | CONTENT, "M": SPELLING}
    for codes in ASSIGNED:
        for code in codes:
            char = chr(code)
            category = unicodedata.category(char)
            if category == "Cn":
                continue
            kind = of_category.get(category[0], 0)
            form = fold(char)
            if unicodedata.combining(char) and form == char:
                kind |= MARK
            if len(form) != 1 or code in joining or ord(form) in joining or (form != char and _moves(form)):
                kind |= SPECIAL
            else:
                folds[code] = ord(form)
            if not spelled(char):
                kind |= DROPPED
            kinds[code] = kind
    for low, high in UNSPACED_RANGES:
        kinds[low : high + 1] |= np.where(kinds[low : high + 1] & SPELLING, UNSPACED, 0).astype(np.uint8)
    return _Table(folds, kinds)


def _moves(form: str) -> bool:
    return unicodedata.combining(form) > 0


def _joining() -> frozenset[int]:
    """Characters that may join the one before them: the second parts of all canonical decompositions."""
    parts = (unicodedata.decomposition(chr(code)).split() for codes in ASSIGNED for code in codes)
    seconds = {int(part[1], 16) for part in parts if len(part) == 2 and not part[0].startswith("<")}
    return frozenset(seconds.union(*JOINING_JAMO))
