"""Normal forms of many texts at once: arithmetic on bytes where texts are plain ASCII, one by one elsewhere."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secid.pool.texts import Packed

Index = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

OPENING_WORDS = 5
OPENING_CHARACTERS = 8
"""Opening of a text in a script without spaces, where 8 characters say about as much as 5 words."""
SPACE, LAST_PRINTABLE = ord(" "), ord("~")


def normal_form(text: str) -> str:
    """Lower-cased, composed (NFC), white space collapsed: texts of one form are the same text to a reader."""
    return " ".join(unicodedata.normalize("NFC", text.lower()).split())


def opening_of(form: str, without_spaces: bool) -> str:
    """The first words of a normal form; its first characters in a script without spaces."""
    return form[:OPENING_CHARACTERS] if without_spaces else " ".join(form.split(" ", OPENING_WORDS)[:OPENING_WORDS])


@dataclass(frozen=True)
class Forms:
    """Normal forms of n texts.

    lowered      : the texts with ASCII letters lower-cased, text i at starts[i] to ends[i].
    plain        : (n,) texts whose normal form stands there as it is.
    others       : normal forms of all other texts, by place.
    """

    lowered: bytes
    starts: Index
    ends: Index
    plain: Flags
    others: dict[int, str]

    @staticmethod
    def of(texts: Packed) -> Forms:
        """The forms of these texts."""
        lowered, ends = texts.data.lower(), texts.ends()
        starts = ends - texts.lengths
        plain = _plain(np.frombuffer(lowered, np.uint8), starts, ends)
        spans = zip(starts[~plain].tolist(), ends[~plain].tolist(), strict=True)
        others = [normal_form(str(texts.data[a:b], "utf-8")) for a, b in spans]
        return Forms(lowered, starts, ends, plain, dict(zip(np.flatnonzero(~plain).tolist(), others, strict=True)))

    def encoded(self) -> list[bytes]:
        """Each form in UTF-8."""
        return self._pieces(self.ends, {place: form.encode() for place, form in self.others.items()})

    def keys(self) -> Index:
        """(n,) hash of each form: 64 bits, this process only."""
        return _hashes(self.encoded())

    def openings(self, unspaced: Flags) -> Index:
        """(n,) hash of each form's opening. unspaced: (n,) texts in scripts without spaces, none of them plain."""
        spaces = np.flatnonzero(np.frombuffer(self.lowered, np.uint8) == SPACE)
        spaces = np.append(spaces, np.full(OPENING_WORDS, len(self.lowered)))
        ends = np.minimum(spaces[np.searchsorted(spaces, self.starts) + OPENING_WORDS - 1], self.ends)
        others = {place: opening_of(form, bool(unspaced[place])).encode() for place, form in self.others.items()}
        return _hashes(self._pieces(ends, others))

    def with_letters(self) -> Flags:
        """(n,) forms that hold a letter with a case, all of them lower."""
        data = np.frombuffer(self.lowered, np.uint8)
        first = data[self.starts]
        found = self.plain & (first >= ord("a")) & (first <= ord("z"))
        for place in np.flatnonzero(self.plain & ~found).tolist():
            found[place] = self.lowered[self.starts[place] : self.ends[place]].islower()
        for place, form in self.others.items():
            found[place] = form.islower()
        return found

    def _pieces(self, ends: Index, others: dict[int, bytes]) -> list[bytes]:
        """From each text's start to `ends`; what `others` says where it says something."""
        pieces = [self.lowered[a:b] for a, b in zip(self.starts.tolist(), ends.tolist(), strict=True)]
        for place, piece in others.items():
            pieces[place] = piece
        return pieces


def _plain(data: npt.NDArray[np.uint8], starts: Index, ends: Index) -> Flags:
    """(n,) texts of printable ASCII in which no space stands at an end or beside another."""
    # Wraps around: control characters are above the last printable one, too.
    odd = data - np.uint8(SPACE) > LAST_PRINTABLE - SPACE
    odd[ends] = False
    space = data == SPACE
    odd[1:] |= space[1:] & space[:-1]
    found: Flags = ~(space[starts] | space[np.maximum(ends - 1, starts)])
    if odd.any():
        found &= ~np.logical_or.reduceat(odd, starts)
    return found


def _hashes(pieces: list[bytes]) -> Index:
    return np.fromiter(map(hash, pieces), np.int64, len(pieces))
