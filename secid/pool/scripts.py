"""Words of any script: combining marks stay inside their word, scripts without spaces give bigrams.

The alphanumeric tokenizer of METHOD 2 ends a word at every combining mark (Hindi vowel signs, Arabic
and Hebrew points) and makes one token of a whole Chinese sentence. Character bigrams need no dictionary
and no model, are the usual index unit for these scripts, and still hold most two-character words whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

UNSPACED_RANGES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # ideographic iteration mark and zero
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF66, 0xFF9F),  # half-width Katakana
    (0x20000, 0x3FFFF),
)
"""Code points of scripts that are written without spaces between words."""

SELECTORS = ((0x34F, 0x34F), (0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
"""Marks that choose a glyph and spell nothing: the grapheme joiner and variation selectors."""
LETTER = re.compile(r"[^\W_]").search
WORD_BREAK = 0x200B
"""The zero-width space: the one format character that stands between words (Khmer, Burmese, Thai)."""


@dataclass(frozen=True)
class _Patterns:
    """run: a letter or digit, and the letters, digits and marks behind it.   unspaced: its scripts without spaces.

    mark: one combining mark.   ignored: characters within words that spell nothing (joiners, soft hyphens, selectors).
    """

    run: re.Pattern[str]
    unspaced: re.Pattern[str]
    mark: re.Pattern[str]
    ignored: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    ignored = {code for low, high in SELECTORS for code in range(low, high + 1)}
    marks = []
    for code in (*range(0x80, 0x20000), *range(0xE0000, 0xE1000)):  # between these lie letters alone
        kind = unicodedata.category(chr(code))
        if kind == "Cf" and code != WORD_BREAK:
            ignored.add(code)
        elif kind in ("Mn", "Mc") and code not in ignored:  # not Me: a circle around a letter spells nothing
            marks.append(code)
    mark = f"[{_ranges(marks)}]"
    unspaced = "".join(f"{chr(low)}-{chr(high)}" for low, high in UNSPACED_RANGES)
    return _Patterns(
        run=re.compile(f"[^\\W_](?:[^\\W_]|{mark})*"),
        unspaced=re.compile(f"([{unspaced}]+)"),
        mark=re.compile(mark),
        ignored=re.compile(f"[{_ranges(sorted(ignored))}]+"),
    )


def _ranges(codes: list[int]) -> str:
    """Sorted code points as the inside of a character class."""
    parts: list[list[int]] = []
    for code in codes:
        if parts and parts[-1][1] == code - 1:
            parts[-1][1] = code
        else:
            parts.append([code, code])
    return "".join(f"{chr(low)}-{chr(high)}" for low, high in parts)


def split_multilingual(text: str) -> list[str]:
    """Tokens of the lower-cased text: words with their marks; bigrams of unspaced scripts.

    Letters are brought to one form first (NFKC: composed, of one width), and what spells nothing (joiners, soft
    hyphens, variation selectors) is left out. Every token has a letter or digit. A run of one unspaced character is its
    own token. In ASCII text the same as alphanumeric.
    """
    return _split(text, with_characters=False)


def split_multilingual_passage(text: str) -> list[str]:
    """As `split_multilingual`, and each character of unspaced scripts: a query of one such character asks for it
    wherever it stands, and no other query does.
    """
    return _split(text, with_characters=True)


def spelled(text: str) -> str:
    """The text without the characters that spell nothing: joiners, soft hyphens, variation selectors."""
    return _patterns().ignored.sub("", text)


def _normal(text: str) -> str:
    """Lower-cased, letters in one form, without the characters that spell nothing."""
    return unicodedata.normalize("NFKC", spelled(text)).lower()


def _split(text: str, *, with_characters: bool) -> list[str]:
    patterns = _patterns()
    if text.isascii():
        return patterns.run.findall(text.lower())
    text = _normal(text)
    words: list[str] = patterns.run.findall(text)
    if not patterns.unspaced.search(text):
        return words
    tokens: list[str] = []
    for word in words:
        for place, part in enumerate(patterns.unspaced.split(word)):
            parts = [part]
            if place % 2 and len(part) > 1:
                parts = [part[start : start + 2] for start in range(len(part) - 1)]
                if with_characters:
                    parts.extend(part)
            # Nearly every part is of letters alone, as one test shows
            tokens.extend(parts if part.isalnum() else filter(LETTER, parts))
    return tokens


Fault = Literal["cut", "fused", "decomposed"]
MISREAD_FRACTION = 0.5
"""Share of a text's letters in words that are misread, from which the text is."""


def fault(text: str, split: Callable[[str], list[str]]) -> Fault | None:
    """What `split` does to most of a text that `split_multilingual` does not; None where it does the text no harm.

    cut: it ends words at their marks, or drops these.   fused: it makes one word of many in a script without spaces.
    decomposed: the text has letters apart from their marks (NFD), which are other tokens than composed ones.
    """
    if text.isascii():
        return None
    patterns = _patterns()
    words = patterns.run.findall(_normal(text))
    n_cut = n_fused = 0
    for word in words:
        if word.isascii() or (tokens := split(word)) == split_multilingual(word):
            continue
        if tokens != [word] and patterns.mark.search(word):
            n_cut += len(word)
        elif patterns.unspaced.search(word):
            n_fused += len(word)
    least = MISREAD_FRACTION * sum(map(len, words))
    if max(n_cut, n_fused) and n_cut + n_fused >= least:
        return "cut" if n_cut >= n_fused else "fused"
    composed = unicodedata.is_normalized("NFC", text)
    return None if composed or len(unicodedata.normalize("NFC", text)) == len(text) else "decomposed"
