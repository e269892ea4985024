"""Identify the language of passages, and find text that was decoded with the wrong character encoding.

py3langid's model decides languages, and ftfy encodings. Undecided texts are not flagged. Source: METHOD 14.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags, Index, distinct
from secid.pool import first_sampled
from secid.pool.texts import Packed, TextStore, is_plain_ascii
from secid.results import Languages

LANGUAGES = (
    "am", "ar", "az", "be", "bg", "bn", "ca", "cs", "da", "de", "el", "en", "es", "et", "eu", "fa", "fi", "fr", "gu",
    "ha", "he", "hi", "hu", "hy", "id", "is", "it", "ja", "ka", "kk", "km", "kn", "ko", "lo", "lt", "lv", "mk", "ml",
    "mn", "mr", "my", "ne", "nl", "no", "pa", "pl", "ps", "pt", "ro", "ru", "si", "sk", "sl", "so", "sq", "sr", "sv",
    "sw", "ta", "te", "th", "tl", "tr", "uk", "ur", "uz", "vi", "yo", "zh", "zu", "zxx",
)  # fmt: skip
"""Candidate languages: those of the library's 139 that have retrieval data, without dialects. Texts in Egyptian Arabic,
Wu, Nigerian Pidgin and Malay count as Arabic, Chinese, English and Indonesian. With all 139 languages, 4.6 % of Chinese
paragraphs were classified as Wu."""
LATIN = (
    "az", "ca", "cs", "da", "de", "en", "es", "et", "eu", "fi", "fr", "ha", "hu", "id", "is", "it", "lt", "lv", "nl",
    "no", "pl", "pt", "ro", "sk", "sl", "so", "sq", "sr", "sv", "sw", "tl", "tr", "uz", "vi", "yo", "zu", "zxx",
)  # fmt: skip
"""Candidate languages of ASCII texts: those written in Latin letters. With only these, classifying takes a quarter
less time, and one undecided passage of 19,071 became English (docs/decisions/languages.md)."""
MODEL = Path(__file__).with_name("languages.arrow")
"""py3langid's model for these languages. languages.LICENSE has its licence."""
NO_LANGUAGE = "zxx"
"""The library's class for numbers, markup and identifiers."""
UNCERTAIN_LANGUAGE = -1
MIN_CONFIDENCE = 0.9
"""Minimum probability of a decision. With it, no passage cut to eight words got a wrong language, in six languages;
with 0.7, up to 0.4 % did. Of whole passages, 99 to 100 % are decided (docs/decisions/languages.md)."""
FIRST_CHARACTERS, MORE_CHARACTERS = 128, 256
"""Number of characters to classify first, and number to classify if the first ones leave it undecided. 128 characters
decide 95 % of English abstracts in half the time."""
RAW_CHARACTERS = 1024
"""Number of characters in which to collapse white space. At least MORE_CHARACTERS remain even if the text is code."""
SMALL_LETTERS = 32
"""Number of first characters to search for a lower-case letter. Nearly every text has one there."""
ENCODING_CHARACTERS = 512
"""Number of characters to check from the first one beyond ASCII. Wrong decoding damages all characters beyond ASCII, so
a passage need not be read to its end."""
MIN_REPAIRED = 0.5
MIN_BADNESS = 0.1
"""Minimum share of characters beyond ASCII that ftfy's repair replaces, and minimum number of unlikely sequences per
such character (ftfy sees some damage that it cannot repair). Either one flags a text. The limits spare passages that
only quote a damaged name, such as 13 of 240 Arabic paragraphs that ftfy alone would flag. They have at most 0.013 such
sequences per character; text read as Latin-1 or Windows-1252 has 0.2 or more."""
CLASSIFIED_AT_ONCE = 8192
"""Number of texts to classify at once. The number of a feature and that of a text, up to 32,768, share 32 bits."""
SAMPLED_TEXTS = 1_000
"""Number of texts to sample from a source for its languages. A share has a standard error of at most 1.6 points."""
BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
NOT_FOR_RE2 = re.compile(r"(\[[^\]]*\]) | \#.* | \\[sw]\?? | \^ | \s+", re.VERBOSE)
"""Pattern of the parts of ftfy's verbose pattern that RE2 reads differently. Only classes of characters (group 1) stay.
Without \\s, \\w and ^, the pattern matches more."""


def languages_of(passages: TextStore, negatives: Index, seed: int) -> Languages:
    """Return the languages of a sample of a source's distinct negatives. negatives: (T,) passage ids."""
    texts = passages.packed_of(first_sampled(distinct(negatives), passages.keys, seed, SAMPLED_TEXTS))
    counts = Counter(
        "" if number == UNCERTAIN_LANGUAGE else LANGUAGES[number] for number in language_numbers(texts).tolist()
    )
    n = max(1, len(texts))
    return Languages(
        n_texts=len(texts),
        shares={code: n_texts / n for code, n_texts in sorted(counts.items(), key=lambda item: (-item[1], item[0]))},
    )


def language_numbers(texts: Packed, saved: Path | None = None) -> npt.NDArray[np.int16]:
    """Return (n,), the place of each text's language in LANGUAGES; UNCERTAIN_LANGUAGE for an uncertain text.

    saved : folder of `save_model` with the model; None to read MODEL.

    >>> texts = Packed.of(["Die Sonne scheint heute über den Bergen und dem See."])
    >>> [LANGUAGES[number] for number in language_numbers(texts)]
    ['de']
    """
    numbers, confidence = _classified(_heads(texts, np.arange(len(texts)), FIRST_CHARACTERS), saved)
    more = np.flatnonzero((confidence < MIN_CONFIDENCE) & (texts.lengths > FIRST_CHARACTERS))
    numbers[more], confidence[more] = _classified(_heads(texts, more, MORE_CHARACTERS), saved)
    decided = (confidence >= MIN_CONFIDENCE) & (numbers != LANGUAGES.index(NO_LANGUAGE))
    return np.where(decided, numbers, UNCERTAIN_LANGUAGE).astype(np.int16)


def _classified(heads: Sequence[bytes], saved: Path | None) -> tuple[Index, npt.NDArray[np.float32]]:
    """Return the most likely language of each head, (n,) as a place in LANGUAGES, and its probability, (n,)."""
    numbers, confidence = np.zeros(len(heads), np.int64), np.zeros(len(heads), np.float32)
    is_ascii = np.fromiter(map(bytes.isascii, heads), np.bool_, len(heads))
    for candidates, chosen in ((LATIN, np.flatnonzero(is_ascii)), (LANGUAGES, np.flatnonzero(~is_ascii))):
        for start in range(0, len(chosen), CLASSIFIED_AT_ONCE):
            places = chosen[start : start + CLASSIFIED_AT_ONCE]
            texts = [heads[place] for place in places.tolist()]
            numbers[places], confidence[places] = _model_of(candidates, saved).classify(texts)
    return numbers, confidence


def _heads(texts: Packed, places: Index, n: int) -> list[bytes]:
    """Return the first n characters of the texts at these places, as UTF-8 bytes like those that trained the model.

    White space is collapsed, letters are composed (NFC), and a head in capitals becomes lower case. Most heads need no
    change, because they are printable ASCII with a lower-case letter, without leading or double blanks.
    """
    rows = texts.first(n + 1)[places]
    small = (rows[:, :SMALL_LETTERS] - ord("a") < 26).any(axis=1)
    starts = (texts.ends() - texts.lengths)[places]
    heads = [texts.data[start : start + n] for start in starts.tolist()]
    closer = np.flatnonzero(~is_plain_ascii(rows) | (rows[:, 0] == ord(" ")) | ~small)
    for place, text in zip(closer.tolist(), texts.take(places[closer]), strict=True):
        head = _head(text, n)
        heads[place] = normalize("NFC", head.lower() if head.isupper() else head).encode()
    return heads


def _head(text: str, n: int) -> str:
    """Return the first n characters of a text with white space collapsed."""
    head = text[:n]
    ends_cleanly = head[-1:] != " " or text[n : n + 1].strip()
    if ends_cleanly and head[:1] != " " and "  " not in head and head.isprintable():  # nothing to collapse
        return head
    return " ".join(text[:RAW_CHARACTERS].split())[:n]


@dataclass(frozen=True)
class _Model:
    """py3langid's model as arrays. It classifies many texts at once, ten times as fast as the library.

    The library runs an automaton over the bytes of each text. Some of its states stand for features. The score of a
    language is the sum of the features' weights, each times log(1 + count). This class advances all texts together,
    one byte at a time.

    next_state   : next state, by row | byte.
    row, feature : (n_states,) row and feature of each state. Rows are multiples of 256; n_features means no feature.
    weights      : (n_features, n_columns) logarithms below 0.   prior : (n_columns,) logarithms.
    language     : (n_columns,) place in LANGUAGES of each column. The second columns of some languages are at the end.
    """

    next_state: npt.NDArray[np.uint32]
    row: Index
    feature: npt.NDArray[np.uint32]
    weights: npt.NDArray[np.floating[Any]]
    prior: npt.NDArray[np.float32]
    language: Index

    @staticmethod
    def of(path: Path) -> _Model:
        """Read the model from an Arrow file with one row and a list for each array. tests/language_model.py writes it.

        Buffers are used because Arrow's conversions to arrays would import pandas.
        """
        import pyarrow as pa

        with pa.memory_map(str(path)) as file:
            row = pa.ipc.open_file(file).get_batch(0)

        def array(name: str, dtype: type) -> npt.NDArray[Any]:
            values = row.column(name).values
            return np.frombuffer(values.buffers()[1], dtype, len(values))

        prior = array("prior", np.float32)
        return _Model(
            array("next_state", np.uint32),
            array("row", np.uint16).astype(np.int64) << 8,
            array("feature", np.uint32),
            array("weights", np.float16).reshape(-1, len(prior)),
            prior,
            np.append(np.arange(len(LANGUAGES)), array("extra", np.int64)),
        )

    def classify(self, texts: Sequence[bytes]) -> tuple[Index, npt.NDArray[np.float32]]:
        """Return what `_classified` does, of at most CLASSIFIED_AT_ONCE texts, in the languages of this model."""
        from scipy.sparse import csc_array

        n_bytes = np.fromiter(map(len, texts), np.int64, len(texts))
        bits = np.uint32(max(1, len(texts) - 1).bit_length())
        keys = self._features(texts, n_bytes, bits)
        features, places = keys >> bits, (keys & ((np.uint32(1) << bits) - np.uint32(1))).view(np.int32)
        starts = np.flatnonzero(np.append(True, features[1:] != features[:-1]))[: len(keys)]
        ones, shape = np.ones(len(keys), np.float32), (len(texts), len(starts))
        counts = csc_array((ones, places, np.append(starts, len(keys)).astype(np.int32)), shape)
        counts.sum_duplicates()
        np.log1p(counts.data, out=counts.data)
        # A column layout fetches each feature's weights once. Rows would fetch them for each text with the feature.
        scores = counts @ self.weights.take(features[starts], axis=0)
        none = np.flatnonzero(scores[:, 0] == 0)
        scores += self.prior
        scores[none] = 0  # a text without features has no language
        scores /= np.sqrt(np.maximum(n_bytes, 1), dtype=np.float32)[:, None]
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        # A matrix product would wake the BLAS threads, which spin between chunks.
        total = scores.sum(axis=1)
        n_languages = len(distinct(self.language))
        for column, language in enumerate(self.language[n_languages:].tolist(), n_languages):
            scores[:, self.language.tolist().index(language)] += scores[:, column]
        best = scores[:, :n_languages].argmax(axis=1)
        return self.language[best], scores[np.arange(len(texts)), best] / total

    def _features(self, texts: Sequence[bytes], n_bytes: Index, bits: np.uint32) -> npt.NDArray[np.uint32]:
        """Return one number for each occurrence of a feature, feature << bits | text number, sorted.

        Texts are ordered longest first, so that the n texts not yet read to their end are always the first n.
        """
        order = np.argsort(-n_bytes, kind="stable")
        width = int(n_bytes.max(initial=0))
        n_left = np.searchsorted(-n_bytes[order], -np.arange(width))
        letters = np.frombuffer(b"".join([text.ljust(width) for text in texts]), np.uint8).reshape(len(texts), width)
        letters = np.ascontiguousarray(letters[order].T)  # the bytes of one step are adjacent
        none = np.uint32(len(self.weights)) << bits
        row_and_feature = self.row << 32 | self.feature << bits  # fetched together
        keys = np.full(letters.shape, none)
        row = np.full(len(texts), self.row[0])  # the row of the first state
        for place, n in enumerate(n_left.tolist()):
            both = row_and_feature.take(self.next_state.take(row[:n] + letters[place, :n]))
            keys[place, :n] = both & 0xFFFFFFFF
            row = both >> 32
        keys |= order.astype(np.uint32)
        keys = np.sort(keys, axis=None)
        return keys[: np.searchsorted(keys, none)]


def mojibake_flags(texts: Packed) -> Flags:
    """Return (n,) flags of the texts that `is_mojibake` accepts.

    ftfy's search for unlikely sequences takes 100 µs per text, and RE2 rules out nearly every text in 4 µs.
    """
    beyond = np.flatnonzero(texts.n_bytes(0x80, 0x100))
    candidates = np.zeros(len(texts), np.bool_)
    if len(beyond):
        from ftfy.badness import BADNESS_RE  # imported here because it takes 0.07 s

        signs = NOT_FOR_RE2.sub(lambda part: part[1] or "", BADNESS_RE.pattern)
        candidates[beyond] = Packed.of(texts.take(beyond)).may_match(signs)
    return texts.flags(is_mojibake, candidates)


def is_mojibake(text: str) -> bool:
    """Return whether a text was decoded with the wrong encoding, by its characters beyond ASCII.

    Enough of them must be unlikely (MIN_BADNESS) or replaced by ftfy's repair (MIN_REPAIRED).

    >>> is_mojibake("Ã¼ber den DÃ¤chern"), is_mojibake("über den Dächern")
    (True, False)
    """
    import ftfy
    from ftfy.badness import badness

    first = None if text.isascii() else BEYOND_ASCII.search(text)
    part = text[first.start() : first.start() + ENCODING_CHARACTERS] if first else ""
    n_unlikely = badness(part) if part else 0
    if not n_unlikely:
        return False
    before, after = _beyond_ascii(part), _beyond_ascii(ftfy.fix_encoding(part))
    n_replaced = (before - after).total()
    return n_unlikely >= MIN_BADNESS * before.total() or n_replaced >= MIN_REPAIRED * before.total()


def damage_start(text: str) -> int:
    """Return the place of the first character that a repair changes.

    If a repair changes nothing, return the place of the first character beyond ASCII; 0 if all are ASCII.

    >>> damage_start("on the DÃ¤chern")
    8
    """
    import ftfy

    fixed = ftfy.fix_encoding(text)
    if fixed != text:
        return next(
            (at for at, pair in enumerate(zip(text, fixed, strict=False)) if pair[0] != pair[1]),
            min(len(text), len(fixed)),
        )
    first = BEYOND_ASCII.search(text)
    return first.start() if first else 0


def _beyond_ascii(text: str) -> Counter[str]:
    return Counter(BEYOND_ASCII.findall(text))


@cache
def _model_of(languages: tuple[str, ...], saved: Path | None) -> _Model:
    """Return the model of these languages, with weights of 32 bits. Converting them takes 0.02 to 0.04 s."""
    model = _model(saved)
    columns = np.flatnonzero(np.isin(model.language, [LANGUAGES.index(name) for name in languages]))
    weights = model.weights[:, columns].astype(np.float32, order="C")  # rows are read one by one
    return replace(model, weights=weights, prior=model.prior[columns], language=model.language[columns])


@cache
def _model(saved: Path | None) -> _Model:
    """Return the model. Reading it takes 0.05 s, or 0.01 s from `save_model`'s folder."""
    if saved is not None:
        return _Model(*(np.asarray(np.load(saved / f"{name}.npy", mmap_mode="r")) for name in _Model.__annotations__))
    return _Model.of(MODEL)


def save_model(folder: Path) -> Path:
    """Write the model's arrays (55 MB) to files that processes map and share, and return their folder."""
    path = folder / "languages"
    path.mkdir(exist_ok=True)
    for name, array in vars(_model(None)).items():
        try:
            np.save(path / f"{name}.npy", array)
        except OSError as error:  # NumPy reports a full disk without the number of the error
            raise OSError(error.errno or errno.ENOSPC, os.strerror(error.errno or errno.ENOSPC), str(path)) from error
    return path
