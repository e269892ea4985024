"""Words of any script: combining marks stay inside their word, scripts without spaces give bigrams.

The alphanumeric tokenizer of METHOD 2 ends a word at every combining mark (Hindi vowel signs, Arabic
and Hebrew points) and makes one token of a whole Chinese sentence. Character bigrams need no dictionary
and no model, are the usual index unit for these scripts, and still hold most two-character words whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
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

LAST_MARK = 0x1FFFF
"""Combining marks beyond this are variation selectors and tags, which spell nothing."""


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Runs of letters, digits and marks; within them, runs of unspaced scripts and the rest."""
    marks = [code for code in range(0x300, LAST_MARK + 1) if unicodedata.category(chr(code))[0] == "M"]
    unspaced = "".join(f"{chr(low)}-{chr(high)}" for low, high in UNSPACED_RANGES)
    run = re.compile(f"(?:[^\\W_]|[{_ranges(marks)}])+")
    return run, re.compile(f"([{unspaced}]+)")


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

    Letters are brought to one form first (NFKC: composed, of one width). A run of one unspaced character is its own
    token. In ASCII text the same as alphanumeric.
    """
    return _split(text, with_characters=False)


def split_multilingual_passage(text: str) -> list[str]:
    """As `split_multilingual`, and each character of unspaced scripts: a query of one such character asks for it
    wherever it stands, and no other query does.
    """
    return _split(text, with_characters=True)


def _split(text: str, *, with_characters: bool) -> list[str]:
    run, unspaced = _patterns()
    if text.isascii():
        return run.findall(text.lower())
    text = unicodedata.normalize("NFKC", text).lower()
    words: list[str] = run.findall(text)
    if not unspaced.search(text):
        return words
    tokens: list[str] = []
    for word in words:
        for place, part in enumerate(unspaced.split(word)):
            if not part:
                continue
            if place % 2 == 0 or len(part) == 1:
                tokens.append(part)
                continue
            tokens.extend(part[start : start + 2] for start in range(len(part) - 1))
            if with_characters:
                tokens.extend(part)
    return tokens


Fault = Literal["cut", "fused", "decomposed"]
MISREAD_FRACTION = 0.5
"""Share of a text's letters in words that are misread, from which the text is."""


def fault(text: str, split: Callable[[str], list[str]]) -> Fault | None:
    """What `split` does to most of a text that `split_multilingual` does not; None where it does the text no harm.

    cut: it ends words at their marks.   fused: it makes one word of many in a script without spaces.
    decomposed: the text has letters apart from their marks (NFD), which are other tokens than composed ones.
    """
    if text.isascii():
        return None
    run, unspaced = _patterns()
    words = run.findall(text.lower())
    n_cut = n_fused = 0
    for word in words:
        if not word.isascii() and split(word) != split_multilingual(word):
            if unspaced.search(word):
                n_fused += len(word)
            elif len(split(word)) > 1:
                n_cut += len(word)
    least = MISREAD_FRACTION * sum(map(len, words))
    if max(n_cut, n_fused) and n_cut + n_fused >= least:
        return "cut" if n_cut >= n_fused else "fused"
    composed = unicodedata.is_normalized("NFC", text)
    return None if composed or len(unicodedata.normalize("NFC", text)) == len(text) else "decomposed"
