"""Identify the language of passages, and find text that was decoded with the wrong character encoding.

py3langid's model decides languages, and ftfy encodings. Undecided texts are not flagged. Source: METHOD 14.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import normalize

import ftfy
import numpy as np
import numpy.typing as npt
from ftfy.badness import badness

from secid.arrays import Index, distinct
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
SAMPLED_TEXTS = 1_000
"""Number of texts to sample from a source for its languages. A share has a standard error of at most 1.6 points."""
BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")


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
    model = _model(saved)
    numbers, confidence = model.classify(_heads(texts, np.arange(len(texts)), FIRST_CHARACTERS))
    more = np.flatnonzero(confidence < MIN_CONFIDENCE)
    numbers[more], confidence[more] = model.classify(_heads(texts, more, MORE_CHARACTERS))
    decided = (confidence >= MIN_CONFIDENCE) & (numbers != LANGUAGES.index(NO_LANGUAGE))
    return np.where(decided, numbers, UNCERTAIN_LANGUAGE).astype(np.int16)


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
    extra        : language of each extra column. The first len(LANGUAGES) columns belong to LANGUAGES in order; some
                   languages have a second column after them.
    """

    next_state: npt.NDArray[np.uint32]
    row: Index
    feature: npt.NDArray[np.uint32]
    weights: npt.NDArray[np.float32]
    prior: npt.NDArray[np.float32]
    extra: Index

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
            array("weights", np.float16).reshape(-1, len(prior)).astype(np.float32),
            prior,
            array("extra", np.int64),
        )

    def classify(self, texts: Sequence[bytes]) -> tuple[Index, npt.NDArray[np.float32]]:
        """Return the most likely language of each text, (n,) as a place in LANGUAGES, and its probability, (n,)."""
        from scipy.sparse import csc_array

        n_bytes = np.fromiter(map(len, texts), np.int64, len(texts))
        bits = max(1, len(texts) - 1).bit_length()
        keys = self._features(texts, n_bytes, bits)
        features, places = keys >> bits, (keys & ((1 << bits) - 1)).astype(np.int32)
        starts = np.flatnonzero(np.append(True, features[1:] != features[:-1]))[: len(keys)]
        ones, shape = np.ones(len(keys), np.float32), (len(texts), len(starts))
        counts = csc_array((ones, places, np.append(starts, len(keys))), shape)
        counts.sum_duplicates()
        # A column layout fetches each feature's weights once. Rows would fetch them for each text with the feature.
        scores = counts.log1p() @ self.weights.take(features[starts], axis=0)
        none = np.flatnonzero(scores[:, 0] == 0)
        scores += self.prior
        scores[none] = 0  # a text without features has no language
        scores /= np.sqrt(np.maximum(n_bytes, 1), dtype=np.float32)[:, None]
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        # A matrix product would wake the BLAS threads, which spin between chunks.
        total = scores.sum(axis=1)
        for column, place in enumerate(self.extra.tolist(), len(LANGUAGES)):
            scores[:, place] += scores[:, column]
        numbers = scores[:, : len(LANGUAGES)].argmax(axis=1)
        return numbers, scores[np.arange(len(texts)), numbers] / total

    def _features(self, texts: Sequence[bytes], n_bytes: Index, bits: int) -> npt.NDArray[np.unsignedinteger]:
        """Return one number for each occurrence of a feature, feature << bits | text number, sorted.

        Texts are ordered longest first, so that the n texts not yet read to their end are always the first n.
        """
        order = np.argsort(-n_bytes, kind="stable")
        width = int(n_bytes.max(initial=0))
        n_left = np.searchsorted(-n_bytes[order], -np.arange(width))
        letters = np.frombuffer(b"".join([text.ljust(width) for text in texts]), np.uint8).reshape(len(texts), width)
        letters = np.ascontiguousarray(letters[order].T)  # the bytes of one step are adjacent
        none = len(self.weights) << bits
        kind = np.dtype(np.uint32 if none < 1 << 32 else np.uint64)
        feature, keys = self.feature.astype(kind) << bits, np.full(letters.shape, none, kind)
        row = np.full(len(texts), self.row[0])  # the row of the first state
        for place, n in enumerate(n_left.tolist()):
            state = self.next_state.take(row[:n] + letters[place, :n])
            keys[place, :n] = feature.take(state)
            row = self.row.take(state)
        keys |= order.astype(kind)
        ordered = np.sort(keys, axis=None)
        return ordered[: np.searchsorted(ordered, np.array(none, kind))]


def is_mojibake(text: str) -> bool:
    """Return whether a text was decoded with the wrong encoding, by its characters beyond ASCII.

    Enough of them must be unlikely (MIN_BADNESS) or replaced by ftfy's repair (MIN_REPAIRED).

    >>> is_mojibake("Ã¼ber den DÃ¤chern"), is_mojibake("über den Dächern")
    (True, False)
    """
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
def _model(saved: Path | None) -> _Model:
    """Return the model. Reading it takes 0.13 s, or 0.01 s from `save_model`'s folder."""
    if saved is not None:
        return _Model(*(np.asarray(np.load(saved / f"{name}.npy", mmap_mode="r")) for name in _Model.__annotations__))
    return _Model.of(MODEL)


def save_model(folder: Path) -> Path:
    """Write the model's arrays (70 MB) to files that processes map and share, and return their folder."""
    path = folder / "languages"
    path.mkdir(exist_ok=True)
    for name, array in vars(_model(None)).items():
        np.save(path / f"{name}.npy", array)
    return path
