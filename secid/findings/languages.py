"""The language of passages, and text that was decoded with the wrong character encoding.

Both by a kept library: py3langid for languages, ftfy for encodings. Undecided is not flagged. Source: METHOD 14.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import ftfy
import numpy as np
import numpy.typing as npt
from ftfy.badness import badness
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from secid.arrays import among, distinct
from secid.findings.normal_form import Flags, Index
from secid.findings.openings import chunks, used_passages
from secid.pool import PlannedSource
from secid.pool.texts import TextStore

LANGUAGES = (
    "am", "ar", "az", "be", "bg", "bn", "ca", "cs", "da", "de", "el", "en", "es", "et", "eu", "fa", "fi", "fr", "gu",
    "ha", "he", "hi", "hu", "hy", "id", "is", "it", "ja", "ka", "kk", "km", "kn", "ko", "lo", "lt", "lv", "mk", "ml",
    "mn", "mr", "my", "ne", "nl", "no", "pa", "pl", "ps", "pt", "ro", "ru", "si", "sk", "sl", "so", "sq", "sr", "sv",
    "sw", "ta", "te", "th", "tl", "tr", "uk", "ur", "uz", "vi", "yo", "zh", "zu", "zxx",
)  # fmt: skip
"""Of the library's 139: languages with retrieval data, none a variety of another. Egyptian Arabic, Wu, Nigerian Pidgin
or Malay are given as Arabic, Chinese, English or Indonesian: a dialect is no other language than its language, and
with all 139, 4.6 % of Chinese paragraphs were "Wu"."""
NO_LANGUAGE = "zxx"
"""The library's class for numbers, markup and identifiers."""
UNDECIDED = -1
MIN_CONFIDENCE = 0.9
"""Least probability of a decision. Of passages cut to eight words none in six languages was given another one, at 0.7
up to 0.4 %; of whole passages 99 to 100 % are decided (docs/decisions/languages.md)."""
FIRST_CHARACTERS, MORE_CHARACTERS = 128, 256
"""Decides 95 % of English abstracts at two thirds of the time; the others are read on. Time grows with what is read."""
RAW_CHARACTERS = 1024
"""Holds MORE_CHARACTERS of code, too, when white space is collapsed."""
ENCODING_CHARACTERS = 512
"""From the first character beyond ASCII: wrong decoding spoils all of them, so that a passage need not be read to its
end."""
MIN_REPAIRED = 0.5
MIN_BADNESS = 0.1
"""Least share of the characters beyond ASCII that ftfy's repair replaces, or least number of sequences that it calls
unlikely for each of them (some damage it sees and cannot repair). A wrongly decoded text has no sound ones; a passage
that quotes a damaged name keeps nearly all of its own: 13 of 240 Arabic paragraphs do, which the bare library would
flag; they have 0.013 such sequences a character at most, text read as Latin-1 or Windows-1252 has 0.2 or more."""
BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
FIRST_LETTER_BEYOND_ASCII = re.compile(r"[^\W\d_\x00-\x7f]")
KANA = re.compile("[\u3041-\u30ff]")
ENGLISH = re.compile(r"\b(the|and|of|that|with|from|which|this)\b")
ENGLISH_WORDS = 3
ENGLISH_CHARACTERS = 512
"""So many different ones of these words, in these first characters of an ASCII text, are English: no other language has
them together. It spares the library most English passages (docs/decisions/languages.md)."""
SCRIPTS: Mapping[str, str] = {
    "am": "\u1200-\u137f", "bn": "\u0980-\u09ff", "el": "\u0370-\u03ff\u1f00-\u1fff", "gu": "\u0a80-\u0aff",
    "he": "\u0591-\u05ea", "hy": "\u0531-\u0587", "ja": "\u3005\u3041-\u30ff\u4e00-\u9fff", "ka": "\u10a0-\u10ff",
    "km": "\u1780-\u17ff", "kn": "\u0c80-\u0cff", "ko": "\uac00-\ud7a3", "lo": "\u0e80-\u0eff", "ml": "\u0d00-\u0d7f",
    "my": "\u1000-\u109f", "pa": "\u0a00-\u0a7f", "si": "\u0d80-\u0dff", "ta": "\u0b80-\u0bff", "te": "\u0c00-\u0c7f",
    "th": "\u0e00-\u0e7f", "zh": "\u4e00-\u9fff",
}  # fmt: skip
"""Characters of the scripts that only one of LANGUAGES is written in, so that the library need not be asked."""
SCRIPT_CHARACTERS, SCRIPT_OTHERS = 20, 0.25
"""Least number of such characters among the first ones of a passage, and the most letters of other scripts to each."""
KANA_SHARE = 0.1
"""Of the characters of Japanese, at least; about half are usual. Chinese has none."""


@dataclass(frozen=True)
class Facts:
    """Facts of n passages, by id; those that no source points at are undecided and sound.

    language : (n,) place in LANGUAGES, UNDECIDED where the library is not sure or there is none.
    damaged  : (n,) decoded with the wrong encoding.
    """

    language: npt.NDArray[np.int16]
    damaged: Flags

    @staticmethod
    def of(passages: TextStore, ids: Index) -> Facts:
        """Facts of the passages with these ids, each read once."""
        languages = np.full(len(passages), UNDECIDED, np.int16)
        damaged = np.zeros(len(passages), np.bool_)
        for part, texts in chunks(passages, ids):
            languages[part] = [language_number(text) for text in texts]
            damaged[part] = [is_mojibake(text) for text in texts]
        return Facts(languages, damaged)


def language_flags(passages: TextStore, sources: Sequence[PlannedSource]) -> list[dict[str, Flags]]:
    """Flags of `other_language` and `mojibake`: a dict per source, each (T,) in the order of its negatives.

    other_language : its language is decided, and so is that of a positive of its record, and no such positive has it.
    mojibake       : decoded with the wrong encoding, and no positive of its record was.
    Empty arrays for a source without negatives. Source: METHOD 14.
    """
    facts = Facts.of(passages, used_passages(sources))
    return [
        {"other_language": _other_language(planned, facts.language), "mojibake": _mojibake(planned, facts.damaged)}
        for planned in sources
    ]


def language_of(text: str) -> str | None:
    """ISO 639-1 code of the text's language by its first characters; None where the library is not sure of one.

    >>> language_of("Die Sonne scheint heute über den Bergen und dem See.")
    'de'
    >>> language_of("4.2 kg") is None
    True
    """
    number = language_number(text)
    return None if number == UNDECIDED else LANGUAGES[number]


def language_number(text: str) -> int:
    """Place of the text's language in LANGUAGES, UNDECIDED where the library is not sure of one."""
    head = " ".join(text[:RAW_CHARACTERS].split())
    if head.isascii() and len(set(ENGLISH.findall(head[:ENGLISH_CHARACTERS]))) >= ENGLISH_WORDS:
        return LANGUAGES.index("en")
    by_script = language_of_script(head[:FIRST_CHARACTERS])
    if by_script is not None:
        return LANGUAGES.index(by_script)
    name, confidence = _identifier().classify(head[:FIRST_CHARACTERS])
    if confidence < MIN_CONFIDENCE and len(head) > FIRST_CHARACTERS:
        name, confidence = _identifier().classify(head[:MORE_CHARACTERS])
    return LANGUAGES.index(name) if confidence >= MIN_CONFIDENCE and name != NO_LANGUAGE else UNDECIDED


def language_of_script(head: str) -> str | None:
    """The only one of LANGUAGES that is written as most of these characters are; None where there is no such one."""
    foreign = FIRST_LETTER_BEYOND_ASCII.search(head)
    name = None if foreign is None else _language_by_character().get(foreign[0])
    if name is None:
        return None
    n_kana = len(KANA.findall(head)) if name in ("ja", "zh") else 0
    name = "ja" if n_kana else name
    rest = _script_pattern(name).sub("", head)
    n = len(head) - len(rest)
    sure = (
        n >= SCRIPT_CHARACTERS
        and sum(map(str.isalpha, rest)) <= SCRIPT_OTHERS * n
        and n_kana >= (KANA_SHARE * n if name == "ja" else 0)
    )
    return name if sure else None


@cache
def _language_by_character() -> dict[str, str]:
    """Language of each character of SCRIPTS."""
    ranges = ((name, re.findall("(.)-(.)", characters)) for name, characters in SCRIPTS.items())
    return {chr(code): name for name, pairs in ranges for low, high in pairs for code in range(ord(low), ord(high) + 1)}


@cache
def _script_pattern(name: str) -> re.Pattern[str]:
    return re.compile(f"[{SCRIPTS[name]}]+")


def is_mojibake(text: str) -> bool:
    """True where most of the text beyond ASCII was decoded with the wrong encoding (MIN_REPAIRED, MIN_BADNESS).

    >>> is_mojibake("Ã¼ber den DÃ¤chern"), is_mojibake("über den Dächern")
    (True, False)
    """
    first = BEYOND_ASCII.search(text)
    part = text[first.start() : first.start() + ENCODING_CHARACTERS] if first else ""
    n_unlikely = badness(part) if part else 0
    if not n_unlikely:
        return False
    before, after = _beyond_ascii(part), _beyond_ascii(ftfy.fix_encoding(part))
    n_replaced = (before - after).total()
    return n_unlikely >= MIN_BADNESS * before.total() or n_replaced >= MIN_REPAIRED * before.total()


def _beyond_ascii(text: str) -> Counter[str]:
    return Counter(BEYOND_ASCII.findall(text))


@cache
def _identifier() -> LanguageIdentifier:
    """The library's model, read once (0.4 s)."""
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages(LANGUAGES)
    return identifier


def _other_language(planned: PlannedSource, language: npt.NDArray[np.int16]) -> Flags:
    """(T,) see `language_flags`. language: (n_passages,) by id."""
    own, record = language[planned.negatives], planned.triplet_record()
    of_positive, record_of_positive = language[planned.positives], _positive_record(planned)
    decided = of_positive != UNDECIDED
    pairs = distinct(record_of_positive[decided] * len(LANGUAGES) + of_positive[decided])
    comparable = among(record, distinct(record_of_positive[decided]))
    flags: Flags = (own != UNDECIDED) & comparable & ~among(record * len(LANGUAGES) + own, pairs)
    return flags


def _mojibake(planned: PlannedSource, damaged: Flags) -> Flags:
    """(T,) see `language_flags`. damaged: (n_passages,) by id."""
    with_damaged = distinct(_positive_record(planned)[damaged[planned.positives]])
    flags: Flags = damaged[planned.negatives] & ~among(planned.triplet_record(), with_damaged)
    return flags


def _positive_record(planned: PlannedSource) -> Index:
    """Record of each entry of `positives`."""
    return np.repeat(np.arange(planned.n_records), np.diff(planned.positive_offsets))
