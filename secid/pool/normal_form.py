"""Compute the normal form of texts, and 64-bit keys of it that are the same on every machine.

Texts with the same normal form are the same text to a reader. `normal_form` defines it. `FormKeys` computes the same
words for many texts at once by array arithmetic. Source: METHOD 14.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Index
from secid.pool.texts import TEXT_SEPARATOR, Packed, TextStore, batch_ranges
from secid.pool.tokens import BLOB_BYTES, UNSPACED_RANGES, find_letter, span_keys, spelled

Keys = npt.NDArray[np.uint64]
SPACE = ord(" ")
ENTITY = re.compile(rb"&#?\w+;")
"""Pattern of an HTML entity. Scraped text often has them: `&amp;` is a mark, not the word "amp"."""
KEPT_MARKS = "#%"
"""Punctuation marks that count as symbols: C# is not C, and 5 % is not 5."""
DROPPED_SYMBOLS = "|\u2044\u2212"
"""Unicode symbols that only separate words, or that have a punctuation mark as a variant: the slash of ½, the minus."""


def is_symbol(character: str) -> bool:
    """Return True if a character is a word by itself: #, %, or a mathematical, currency or other symbol.

    Source: METHOD 14, docs/decisions/symbols.md.
    """
    symbol = unicodedata.category(character) in ("Sm", "Sc", "So")
    return character in KEPT_MARKS or (symbol and character not in DROPPED_SYMBOLS)


ASCII_SYMBOLS = "".join(filter(is_symbol, map(chr, range(128))))
SYMBOL = re.compile(f"[{re.escape(ASCII_SYMBOLS)}]")
ASCII_FORM = bytes(
    ord(chr(code).lower()) if chr(code).isalnum() or chr(code) in ASCII_SYMBOLS else SPACE for code in range(128)
) + bytes(range(128, 256))
"""Translation of ASCII bytes to the normal form, without the spaces around symbols."""
BETWEEN_WORDS, IN_WORD, ALONE = range(3)
BYTE_KINDS = bytes(
    ALONE if chr(code) in ASCII_SYMBOLS else IN_WORD if code > SPACE else BETWEEN_WORDS for code in range(256)
)
"""Kind of each byte of a form. Symbols beyond ASCII have spaces around them."""
_RANGES = "".join(f"{chr(low)}-{chr(high)}" for low, high in UNSPACED_RANGES)
UNSPACED, SPACED = re.compile(f"[{_RANGES}]"), re.compile(f"[^ {_RANGES}]+")
"""Patterns of a character in a script without spaces, and of a stretch of a normal form without such characters."""
CHARACTERS_PER_WORD = 2
"""Approximate number of characters per word in scripts without spaces. Words are counted, not characters, so that a
Chinese text with Latin names stays Chinese. With characters, 4.9 % of XQuAD's paragraphs changed sides if cut to 60 %.
"""
EMPTY_FORM = np.uint64(0)
"""Hash of the normal form "", which texts without letters, digits, combining marks and symbols have."""
PLACEHOLDERS = frozenset(
    ("n a", "na", "nan", "none", "null", "nil", "empty", "todo", "tbd", "text", "passage", "removed", "deleted")
)
"""Normal forms of placeholders for a text."""
MAX_PLACEHOLDER_WORDS = 4
"""Number of words in the longest placeholder between two symbols: <n/a>."""
LOOP_TOKENS, LOOP_REACH = 20, 4
"""Minimum number of tokens in a loop (source: METHOD 16.2), and maximum distance between two occurrences of a token in
it. If a pair of tokens makes up more than half of a text, it recurs every four tokens or sooner, on average."""
FORMS_AT_ONCE = 1024
"""Number of texts to process at once: enough to hide the cost of a numpy call, with words that stay in the cache."""
MAX_CACHED_FORMS, MAX_CACHED_TEXT_BYTES = 1 << 12, 1 << 12
"""Number of normal forms to cache, and maximum bytes of a cached text. The cache takes at most about 50 MB."""
STEP, FIRST_FACTOR, SECOND_FACTOR = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)
"""Constants of splitmix64. Source: Steele, Lea and Flood 2014."""


def normal_form(text: str) -> str:
    """Return the normal form of a text; "" if nothing is left.

    HTML entities are resolved, and characters that spell nothing are dropped. The text is brought to NFKC, case-folded,
    and brought to NFKC again, because some letters fold into a letter and a mark. Every symbol becomes a word. All
    characters except letters, digits, combining marks and symbols become single spaces between words.

    >>> normal_form("  ＣＡＦＥ\u0301 &amp; Straße! ")
    'café strasse'
    >>> normal_form("C++, not C#")
    'c + + not c #'

    Source: METHOD 14.
    """
    if text.isascii() and "&" not in text:  # the same result, five times as fast
        return _one_space(text.encode().translate(ASCII_FORM).decode())
    folded = unicodedata.normalize("NFKC", spelled(html.unescape(text))).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).translate(_SPELLING).split())


def _one_space(form: str) -> str:
    """Return a form with one space between words and around each ASCII symbol."""
    return " ".join((SYMBOL.sub(r" \g<0> ", form) if SYMBOL.search(form) else form).split())  # twice as fast


class _Spelling(dict[int, str]):
    """Table for `str.translate`, filled on first use.

    Letters, digits and combining marks stay, symbols get blanks around them, and all other characters become a blank.
    """

    def __missing__(self, code: int) -> str:
        character = chr(code)
        spelling = unicodedata.category(character)[0] in "LMN"
        self[code] = character if spelling else f" {character} " if is_symbol(character) else " "
        return self[code]


_SPELLING = _Spelling()


def _form(part: bytes) -> str:
    """Return the normal form of a text in UTF-8. Forms of short texts are cached, because queries share passages."""
    return _remembered(part) if len(part) <= MAX_CACHED_TEXT_BYTES else normal_form(part.decode())


@lru_cache(MAX_CACHED_FORMS)
def _remembered(part: bytes) -> str:
    return normal_form(part.decode())


def is_unspaced(form: str) -> bool:
    """Return True if most words of a normal form are in scripts without spaces."""
    if form.isascii() or not UNSPACED.search(form):
        return False
    spaced = SPACED.findall(form)
    n_unspaced = len(form) - form.count(" ") - sum(map(len, spaced))
    return n_unspaced > CHARACTERS_PER_WORD * len(spaced)


@dataclass(frozen=True)
class FormKeys:
    """The normal forms of n texts.

    data, starts, ends : form i is data[starts[i]:ends[i]] in UTF-8. Spaces around ASCII symbols may be missing.
    words, n_words     : keys of all words in order, and (n,) number of words in each text.
    with_content       : (n,) flags of texts with a letter or digit.
    unspaced           : (n,) flags of texts with most words in scripts without spaces.
    characters, n_characters : code points of the words of unspaced texts in order, and (n,) number of code points in
                         each text; 0 for texts that are not unspaced.
    """

    data: bytes
    starts: Index
    ends: Index
    words: Keys
    n_words: Index
    with_content: Flags
    unspaced: Flags
    characters: Keys
    n_characters: Index

    @staticmethod
    def of(texts: Packed) -> FormKeys:
        data, ends = texts.data.translate(ASCII_FORM), texts.ends()
        starts = ends - texts.lengths
        places = _not_plain(texts)
        forms: list[str] = []
        if places:
            original = texts.parts()
            forms = [_form(original[place]) for place in places]
            parts = Packed(data, texts.lengths).parts()
            for place, form in zip(places, forms, strict=True):
                parts[place] = form.encode()
            lengths = np.fromiter(map(len, parts), np.int64, len(parts))
            data, ends = (
                TEXT_SEPARATOR.join([*parts, b""]),
                np.cumsum(lengths + len(TEXT_SEPARATOR)) - len(TEXT_SEPARATOR),
            )
            starts = ends - lengths
        words, n_words, with_content = _words(data, starts, ends)
        unspaced = np.zeros(len(texts), np.bool_)
        with_content[places] = [find_letter(form) is not None for form in forms]
        unspaced[places] = [is_unspaced(form) for form in forms]
        spelled_out = [form.replace(" ", "") for form, flag in zip(forms, unspaced[places], strict=True) if flag]
        n_characters = np.zeros(len(texts), np.int64)
        n_characters[unspaced] = list(map(len, spelled_out))
        characters = np.frombuffer("".join(spelled_out).encode("utf-32-le"), np.dtype("<u4")).astype(np.uint64)
        return FormKeys(data, starts, ends, words, n_words, with_content, unspaced, characters, n_characters)

    def __len__(self) -> int:
        return len(self.starts)

    def hashes(self) -> Keys:
        """Return (n,) hash of each form, the same on every machine; EMPTY_FORM for a form without words."""
        offsets = np.concatenate([[0], np.cumsum(self.n_words)])
        place = np.arange(len(self.words), dtype=np.int64) - np.repeat(offsets[:-1], self.n_words)
        # Each key includes the place of its word, so that order counts although keys are only added (modulo 2^64).
        summed = np.concatenate([[np.uint64(0)], np.cumsum(mixed_bits(self.words + place.view(np.uint64) * STEP))])
        return mixed_bits((summed[offsets[1:]] - summed[offsets[:-1]]) + self.n_words.view(np.uint64) * SECOND_FACTOR)

    def form(self, place: int) -> str:
        return _one_space(self.data[int(self.starts[place]) : int(self.ends[place])].decode())


@dataclass(frozen=True)
class TextForms:
    """The normal forms of n distinct texts, by id.

    form   : (n,) uint64 hash of each form, the same on every machine; EMPTY_FORM for "".
    number : (n,) number of each form, below n_forms. Equal forms share a number.
    empty  : (n,) flags of texts without a letter or digit, and of placeholders.
    loop   : (n,) flags of texts that repeat one word, or a pair of words, over and over.
    """

    form: Keys
    number: Index
    n_forms: int
    empty: Flags
    loop: Flags

    @staticmethod
    def of(form: Keys, empty: Flags, loop: Flags) -> TextForms:
        distinct_forms, number = np.unique(form, return_inverse=True)
        return TextForms(form, number, len(distinct_forms), empty, loop)


def text_forms(store: TextStore) -> TextForms:
    """Return the normal forms of all texts of a store, by id. They are cached as long as the store exists."""
    if store not in _KNOWN:
        packed = (store.packed(*part) for part in batch_ranges(len(store), FORMS_AT_ONCE, store.lengths))
        parts = [form_columns(FormKeys.of(texts)) for texts in (Packed.of([]), *packed)]
        _KNOWN[store] = TextForms.of(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    return _KNOWN[store]


_KNOWN: WeakKeyDictionary[TextStore, TextForms] = WeakKeyDictionary()


def form_columns(forms: FormKeys) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of `TextForms` that depend only on each text: form, empty and loop."""
    return {"form": forms.hashes(), "empty": _empty(forms), "loop": _loops(forms)}


def is_empty(form: str) -> bool:
    """Return True if a normal form has no letter or digit, is a single ASCII letter, or is a placeholder.

    A single letter of another script may be a word (水), and a digit may be an answer. Two letters, or a letter with a
    symbol, may be a word too (UK, 나무, C#). A placeholder may have symbols around it (<null>), but not many.
    """
    words = form.split()
    contents = [word for word in words if any(map(str.isalnum, word))]
    is_placeholder = len(words) <= MAX_PLACEHOLDER_WORDS and " ".join(contents) in PLACEHOLDERS
    return not contents or is_placeholder or (len(form) == 1 and form.isascii() and form.isalpha())


def _empty(forms: FormKeys) -> Flags:
    """Return (n,) flags of empty texts. A text with a letter or digit can be empty only if it has few words."""
    empty = ~forms.with_content
    for place in np.flatnonzero(forms.with_content & (forms.n_words <= MAX_PLACEHOLDER_WORDS)).tolist():
        empty[place] = is_empty(forms.form(place))
    return empty


def _loops(forms: FormKeys) -> Flags:
    """Return (n,) flags of texts that are loops of words, or of characters in scripts without spaces."""
    of_words, of_characters = (
        loops(tokens, counts)
        for tokens, counts in ((forms.words, forms.n_words), (forms.characters, forms.n_characters))
    )
    return np.where(forms.unspaced, of_characters, of_words)


def loops(tokens: Keys, counts: Index) -> Flags:
    """Return (n,) flags of loops: texts of at least LOOP_TOKENS tokens, over half of them one token or one pair.

    tokens : keys of the tokens of all texts, in order.   counts : (n,) number of tokens in each text.
    In a loop, many tokens recur within LOOP_REACH tokens. A first test of this uses 16 bits of each key. Only texts
    that pass it are counted exactly. Source: METHOD 16.2.
    """
    returns, short = np.zeros(len(tokens), np.bool_), (tokens * STEP >> np.uint64(48)).astype(np.uint16)
    for gap in range(1, LOOP_REACH + 1):
        returns[gap:] |= short[gap:] == short[:-gap]
    ends, sums = np.cumsum(counts), np.zeros(len(tokens) + 1, np.int32)
    np.cumsum(returns, out=sums[1:])
    n_returns = sums[ends] - sums[ends - counts]
    flags: Flags = (counts >= LOOP_TOKENS) & (n_returns >= np.maximum(1, counts // 10 - 1))
    for place in np.flatnonzero(flags).tolist():
        flags[place] = _is_loop(tokens[ends[place] - counts[place] : ends[place]].tolist())
    return flags


def _is_loop(tokens: list[int]) -> bool:
    if 2 * len(set(tokens)) >= len(tokens) + 4:  # less than half of a loop's tokens differ from its two
        return False
    sequences = Counter(pair for pair in pairwise(tokens) if pair[0] != pair[1])
    most = max(*Counter(tokens).values(), 2 * max(sequences.values(), default=0))
    return 2 * most > len(tokens)


def _not_plain(texts: Packed) -> list[int]:
    """Return the places of texts beyond ASCII or with an HTML entity."""
    if texts.data.isascii() and not (b"&" in texts.data and ENTITY.search(texts.data)):
        return []
    parts = enumerate(texts.parts())
    return [place for place, part in parts if not part.isascii() or (b"&" in part and ENTITY.search(part))]


def _words(data: bytes, starts: Index, ends: Index) -> tuple[Keys, Index, Flags]:
    """Return the keys of all words, (n,) words per text, and (n,) flags of texts with a word beyond ASCII symbols.

    Texts are processed in blobs whose intermediate arrays stay in the processor's cache.
    """
    keys: list[Keys] = [np.zeros(0, np.uint64)]
    counts: list[Index] = [np.zeros(0, np.int64)]
    spelled_out: list[Flags] = [np.zeros(0, np.bool_)]
    for first, last in batch_ranges(len(starts), len(starts), ends - starts, BLOB_BYTES):
        begin, end = int(starts[first]), int(ends[last - 1])
        blob = data[begin:end] + b" "
        kinds = np.frombuffer(bytes([BETWEEN_WORDS]) + blob.translate(BYTE_KINDS), np.uint8)
        is_symbol = kinds[1:] == ALONE
        edges, symbols = np.flatnonzero((kinds[1:] != kinds[:-1]) | is_symbol), np.flatnonzero(is_symbol)
        heads, tails = edges[0::2], edges[1::2]
        if len(symbols):  # a word may begin where another ends
            is_word = np.flatnonzero(kinds[1:][edges] != BETWEEN_WORDS)  # the last edge is the blank at the end
            heads, tails = edges[is_word], edges[is_word + 1]
        keys.append(span_keys(blob, heads, tails))
        firsts = starts[first:last] - begin
        n_words, n_symbols = (np.diff(np.searchsorted(at, firsts), append=len(at)) for at in (heads, symbols))
        counts.append(n_words)
        spelled_out.append(n_words > n_symbols)
    return np.concatenate(keys), np.concatenate(counts), np.concatenate(spelled_out)


def mixed_bits(values: Keys) -> Keys:
    """Mix the bits of each value, so that every bit of the result depends on every bit of the value. 0 stays 0."""
    values = values ^ values >> np.uint64(30)
    values *= FIRST_FACTOR
    values ^= values >> np.uint64(27)
    values *= SECOND_FACTOR
    values ^= values >> np.uint64(31)
    return values
