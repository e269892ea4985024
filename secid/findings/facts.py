"""Facts of distinct texts, gathered in one pass: length, normal form, opening, script."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from secid.findings.forms import Flags, Forms, Index
from secid.pool.boilerplate import is_preamble, may_be_preamble
from secid.pool.scripts import UNSPACED_RANGES
from secid.pool.texts import Packed, pieces

Texts = Callable[[int, int], Packed]
"""texts(start, stop) gives the texts with these ids."""

CHUNK_TEXTS = 4096
"""Texts held in memory at once: enough to hide the cost of a numpy call, at most some MB."""

ASCII_PER_TOKEN = 4.5
OTHER_PER_TOKEN = 2.0
UNSPACED_PER_TOKEN = 1.0
"""Characters of a token, by estimate. ASCII: WordPiece gives 4.4 to 5.2 on abstracts and short articles in
English. Scripts without spaces: WordPiece makes a token of each character. Others lie between."""

KANA_FRACTION = 0.1
"""Share of kana among kana and Han letters from which a text is Japanese: running Japanese has about half."""

FOREIGN_PREAMBLE = re.compile(
    r"""[\s"'“「*#>-]*(?:
      (?:好的|当然(?:可以)?)[，,。！!：:]\s*(?:以下|下面|这是|这里是|我)
    | (?:以下|下面)(?:是|为)(?:您|你|一[段篇个份]|关于)
    | (?:はい|承知(?:いた)?しました|もちろん(?:です)?)[、。！!]\s*(?:以下|こちら|次)
    | (?:물론(?:입니다|이죠|이에요)?|네|알겠습니다)[,.!]\s*(?:다음|여기|아래|요청)
    | (?:chắc\ chắn(?:\ rồi)?|tất\ nhiên(?:\ rồi)?|được\ rồi)[,.!]\s*(?:đây|dưới\ đây|sau\ đây)
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""How language models begin in Chinese, Japanese, Korean and Vietnamese; English is in lexical.boilerplate."""

LATIN, HAN, KANA = "Latin", "Han", "Kana"
NO_SCRIPT = "none"
HAN_NUMBER, KANA_NUMBER = 2, 3
"""Their places in `Facts.scripts`."""
SCRIPT_NAMES = {"CJK": HAN, "IDEOGRAPHIC": HAN, "HIRAGANA": KANA, "KATAKANA": KANA}
SYMBOLS = frozenset(
    [
        "MICRO",
        "ANGSTROM",
        "OHM",
        "KELVIN",
        "MASCULINE",
        "FEMININE",
        "MODIFIER",
        "MATHEMATICAL",
        "SCRIPT",
        "DOUBLE-STRUCK",
        "BLACK-LETTER",
        "SUPERSCRIPT",
        "SUBSCRIPT",
        "KATAKANA-HIRAGANA",
        "TURNED",
        "ALEF",
        "BET",
    ]
)
"""First words in the names of letters that are signs of no script."""

CONTINUED = -64
"""Bytes that continue a character in UTF-8 are below this, read as signed."""
FEW = 0.1
"""Share of non-ASCII bytes up to which a text counts as Latin without a look at each character: quotation
marks, accents and a Greek letter here and there."""


@dataclass(frozen=True)
class Facts:
    """Facts of n distinct texts, by id.

    characters, tokens : (n,) lengths; tokens by estimate, special tokens not counted.
    normal             : (n,) hash of the normal form; 64 bits, this process only.
    opening            : (n,) hash of the first words of that form, or characters where `unspaced`.
    preamble           : (n,) begins like a language model's answer.
    unspaced           : (n,) mostly in scripts without spaces.
    script             : (n,) index into `scripts` of the script of most letters; 0 is NO_SCRIPT.
    """

    characters: Index
    tokens: Index
    normal: Index
    opening: Index
    preamble: Flags
    unspaced: Flags
    script: npt.NDArray[np.int16]
    scripts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.characters)


class ScriptTable:
    """Script and class of code points, looked up once each.

    names : scripts by number, NO_SCRIPT first.
    """

    def __init__(self) -> None:
        self.names = [NO_SCRIPT, LATIN, HAN, KANA]  # HAN_NUMBER, KANA_NUMBER are places here
        self._script = np.full(0x110000, -1, np.int16)
        self.unspaced = np.zeros(0x110000, np.bool_)
        for low, high in UNSPACED_RANGES:
            self.unspaced[low : high + 1] = True

    def of(self, codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.int16]:
        """(n,) script number of each code point, 0 for what is no letter."""
        found = self._script[codes]
        for code in np.unique(codes[found < 0]).tolist():
            self._script[code] = self._number(chr(code))
        return self._script[codes]

    def _number(self, char: str) -> int:
        if unicodedata.category(char)[0] != "L":
            return 0
        words = unicodedata.name(char, "").split() or [NO_SCRIPT]
        word = words[1] if words[0] in ("HALFWIDTH", "FULLWIDTH") and len(words) > 1 else words[0]
        if word in SYMBOLS:
            return 0
        name = SCRIPT_NAMES.get(word, word.capitalize())
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)


def begins_as_generated(text: str) -> bool:
    """True where the text begins as a language model answers, in English or one of the languages above."""
    return is_preamble(text) or (not text.isascii() and FOREIGN_PREAMBLE.match(text) is not None)


def gather(
    texts: Texts,
    n: int,
    table: ScriptTable,
    tick: Callable[[int], None] = lambda n: None,
    lengths: npt.NDArray[np.int32] | None = None,
) -> Facts:
    """Facts of the texts with ids 0 … n-1. tick: told of each chunk's size. lengths: (n,) bytes, bounds the chunks."""
    characters, tokens, script = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int16)
    normal, opening = np.zeros(n, np.int64), np.zeros(n, np.int64)
    preamble, unspaced = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    for start, stop in pieces(n, CHUNK_TEXTS, lengths):
        chunk, part = texts(start, stop), slice(start, stop)
        forms = Forms.of(chunk)
        beyond = _continuations(chunk, forms)
        characters[part] = chunk.lengths - beyond
        tokens[part], script[part], unspaced[part] = _letters(chunk, forms, beyond, table)
        normal[part] = forms.keys()
        opening[part] = forms.openings(unspaced[part])
        preamble[part] = _preambles(chunk, forms)
        tick(len(chunk))
    return Facts(characters, tokens, normal, opening, preamble, unspaced, script, tuple(table.names))


def _continuations(chunk: Packed, forms: Forms) -> Index:
    """(n,) bytes of each text beyond one for each of its characters."""
    if chunk.data.isascii():
        return np.zeros(len(chunk), np.int64)
    # As int8 these bytes, 10xxxxxx, are the smallest.
    return np.add.reduceat(np.frombuffer(chunk.data, np.int8) < CONTINUED, forms.starts, dtype=np.int64)


def _preambles(chunk: Packed, forms: Forms) -> Flags:
    """(n,) texts that begin as a language model answers; most need no look beyond two bytes."""
    data = np.frombuffer(forms.lowered, np.uint8)
    found = ~forms.plain | may_be_preamble(data[forms.starts], data[np.minimum(forms.starts + 1, len(data) - 1)])
    places = np.flatnonzero(found)
    heads = _decoded(chunk, forms, places)
    found[places] = np.fromiter(map(begins_as_generated, heads), np.bool_, len(places))
    return found


def _decoded(chunk: Packed, forms: Forms, places: Index) -> list[str]:
    spans = zip(forms.starts[places].tolist(), forms.ends[places].tolist(), strict=True)
    return [str(chunk.data[a:b], "utf-8") for a, b in spans]


def _letters(
    chunk: Packed, forms: Forms, beyond: Index, table: ScriptTable
) -> tuple[Index, npt.NDArray[np.int16], Flags]:
    """Estimated tokens, script of most letters, and which texts are mostly in scripts without spaces."""
    characters = chunk.lengths - beyond
    amounts = characters / ASCII_PER_TOKEN + beyond / OTHER_PER_TOKEN
    script = forms.with_letters().astype(np.int16)  # 1 is LATIN
    unspaced = np.zeros(len(chunk), np.bool_)
    places = np.flatnonzero(beyond > FEW * characters)
    if len(places):
        codes = np.frombuffer("".join(_decoded(chunk, forms, places)).encode("utf-32-le"), np.uint32)
        owner = np.repeat(np.arange(len(places)), characters[places])
        numbers = table.of(codes)
        n_unspaced = np.bincount(owner[table.unspaced[codes]], minlength=len(places))
        n_ascii = np.bincount(owner[codes < 128], minlength=len(places))
        n_other = characters[places] - n_unspaced - n_ascii
        amounts[places] = n_ascii / ASCII_PER_TOKEN + n_other / OTHER_PER_TOKEN + n_unspaced / UNSPACED_PER_TOKEN
        script[places] = _majority(owner, numbers, len(places), len(table.names))
        unspaced[places] = 2 * n_unspaced > characters[places]
    return np.ceil(amounts).astype(np.int64), script, unspaced


def _majority(owner: Index, numbers: npt.NDArray[np.int16], n: int, n_scripts: int) -> npt.NDArray[np.int16]:
    """Script of most letters of each text; Han and kana count together, as Kana where enough of it is."""
    counts = np.bincount(owner * n_scripts + numbers, minlength=n * n_scripts).reshape(n, n_scripts)
    counts[:, 0] = 0
    both = counts[:, HAN_NUMBER] + counts[:, KANA_NUMBER]
    is_kana = counts[:, KANA_NUMBER] > KANA_FRACTION * both
    counts[:, HAN_NUMBER], counts[:, KANA_NUMBER] = np.where(is_kana, 0, both), np.where(is_kana, both, 0)
    found = counts.argmax(axis=1)
    return np.where(counts.max(axis=1) > 0, found, 0).astype(np.int16)
