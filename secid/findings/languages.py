"""The language of passages, and text that was decoded with the wrong character encoding.

Both by a kept library: py3langid for languages, ftfy for encodings. Undecided is not flagged. Source: METHOD 14.
"""

from __future__ import annotations

import lzma
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from unicodedata import normalize

import ftfy
import numpy as np
import numpy.typing as npt
from ftfy.badness import badness
from py3langid.langid import MODEL_DIR, MODEL_FILE

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
"""Languages that are decided, of the library's 139: those with retrieval data, none a variety of another. Egyptian
Arabic, Wu, Nigerian Pidgin or Malay count as Arabic, Chinese, English or Indonesian, since a dialect is no other
language; with all 139, 4.6 % of Chinese paragraphs were "Wu"."""
NO_LANGUAGE = "zxx"
"""The library's class for numbers, markup and identifiers."""
UNDECIDED = -1
MIN_CONFIDENCE = 0.9
"""Least probability of a decision. Of passages cut to eight words none in six languages was given another one, at 0.7
up to 0.4 %; of whole passages 99 to 100 % are decided (docs/decisions/languages.md)."""
FIRST_CHARACTERS, MORE_CHARACTERS = 128, 256
"""Characters that are classified first, and again if they decide nothing. 128 decide 95 % of English abstracts, in half
of the time."""
RAW_CHARACTERS = 1024
"""Holds MORE_CHARACTERS of code, too, when white space is collapsed."""
SMALL_LETTERS = 32
"""First characters of a printable ASCII text among which nearly every text has a small letter."""
ENCODING_CHARACTERS = 512
"""From the first character beyond ASCII: wrong decoding spoils all of them, so that a passage need not be read to its
end."""
MIN_REPAIRED = 0.5
MIN_BADNESS = 0.1
"""Least share of the characters beyond ASCII that ftfy's repair replaces, or least number of sequences that it calls
unlikely for each of them (some damage it sees and cannot repair). A wrongly decoded text has no sound ones; a passage
that quotes a damaged name keeps nearly all of its own: 13 of 240 Arabic paragraphs do, which the bare library would
flag; they have 0.013 such sequences a character at most, text read as Latin-1 or Windows-1252 has 0.2 or more."""
SAMPLED_TEXTS = 1_000
"""Texts of a source whose languages the report gives: a share then has a standard error of 1.6 points at most."""
BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")


def languages_of(passages: TextStore, negatives: Index, seed: int) -> Languages:
    """Languages of a sample of the distinct texts among a source's negatives. negatives: (T,) ids."""
    texts = passages.packed_of(first_sampled(distinct(negatives), passages.keys, seed, SAMPLED_TEXTS))
    counts = Counter("" if number == UNDECIDED else LANGUAGES[number] for number in language_numbers(texts).tolist())
    n = max(1, len(texts))
    return Languages(
        n_texts=len(texts),
        shares={code: n_texts / n for code, n_texts in sorted(counts.items(), key=lambda item: (-item[1], item[0]))},
    )


def language_numbers(texts: Packed, saved: Path | None = None) -> npt.NDArray[np.int16]:
    """Return (n,) place of each text's language in LANGUAGES, UNDECIDED where the library is not sure of one.

    saved : the model, as `save_model` gives it to other processes.

    >>> texts = Packed.of(["Die Sonne scheint heute über den Bergen und dem See."])
    >>> [LANGUAGES[number] for number in language_numbers(texts)]
    ['de']
    """
    model = _model(saved)
    numbers, confidence = model.classify(_heads(texts, np.arange(len(texts)), FIRST_CHARACTERS))
    more = np.flatnonzero(confidence < MIN_CONFIDENCE)
    numbers[more], confidence[more] = model.classify(_heads(texts, more, MORE_CHARACTERS))
    decided = (confidence >= MIN_CONFIDENCE) & (numbers != LANGUAGES.index(NO_LANGUAGE))
    return np.where(decided, numbers, UNDECIDED).astype(np.int16)


def _heads(texts: Packed, places: Index, n: int) -> list[bytes]:
    """Return the first n characters of the texts at these places, as UTF-8 bytes like those that trained the model.

    Each stretch of white space is one blank, letters are composed (NFC), and a head in capitals is in lower case.
    Most are taken as they are: printable ASCII with a small letter, no blank in front and no two together.
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
    """Return the first n characters of a text, each stretch of white space one blank."""
    head = text[:n]
    goes_on = head[-1:] != " " or text[n : n + 1].strip()
    if goes_on and head[:1] != " " and "  " not in head and head.isprintable():  # nothing to collapse
        return head
    return " ".join(text[:RAW_CHARACTERS].split())[:n]


@dataclass(frozen=True)
class _Model:
    """The library's model as arrays, and its `classify` for many texts at once, ten times as fast.

    The library follows each text byte by byte through an automaton, whose states name features, and adds up
    log(1 + count) times the weights of the features. Here all texts take a step at once.

    next_state   : by row | byte.   weights : (n_features, n_columns) logarithms below 0.   prior : (n_columns,).
    row, feature : (n_states,) of each state; rows are multiples of 256, and the feature is n_features for none.
    own          : language of each further column. The first len(LANGUAGES) columns have one language each, in order;
                   some languages have a second column.
    """

    next_state: npt.NDArray[np.uint32]
    row: Index
    feature: npt.NDArray[np.uint32]
    weights: npt.NDArray[np.float32]
    prior: npt.NDArray[np.float32]
    own: Index

    @staticmethod
    def of(path: Path) -> _Model:
        """Read the library's model file, an .npz in LZMA. The library itself makes lists of its arrays."""
        with np.load(BytesIO(lzma.decompress(path.read_bytes()))) as arrays:
            weights, feature, names = arrays["ptc"], arrays["out_feat"], arrays["classes"]
            first = [names.tolist().index(name) for name in LANGUAGES]
            second = np.setdiff1d(np.flatnonzero(np.isin(names, LANGUAGES)), first)
            columns, own = [*first, *second], np.array([LANGUAGES.index(name) for name in names[second]])
            return _Model(
                arrays["nextmove"],
                arrays["nextmove_row"].astype(np.int64) << 8,
                np.where(feature < 0, len(weights), feature).astype(np.uint32),
                weights[:, columns].astype(np.float32, order="C"),
                arrays["pc"][columns],
                own,
            )

    def classify(self, texts: Sequence[bytes]) -> tuple[Index, npt.NDArray[np.float32]]:
        """Return (n,) the most likely language of each text, by its place in LANGUAGES, and the probability of it."""
        from scipy.sparse import csc_array

        n_bytes = np.fromiter(map(len, texts), np.int64, len(texts))
        bits = max(1, len(texts) - 1).bit_length()
        keys = self._features(texts, n_bytes, bits)
        features, places = keys >> bits, (keys & ((1 << bits) - 1)).astype(np.int32)
        starts = np.flatnonzero(np.append(True, features[1:] != features[:-1]))[: len(keys)]
        ones, shape = np.ones(len(keys), np.float32), (len(texts), len(starts))
        counts = csc_array((ones, places, np.append(starts, len(keys))), shape)
        counts.sum_duplicates()
        # By columns: each feature's weights are fetched once. Its rows would be fetched for each text that has it.
        scores = counts.log1p() @ self.weights.take(features[starts], axis=0)
        none = np.flatnonzero(scores[:, 0] == 0)
        scores += self.prior
        scores[none] = 0  # a text without features is of no language
        scores /= np.sqrt(np.maximum(n_bytes, 1), dtype=np.float32)[:, None]
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        # No matrix product: it would wake the threads of BLAS, which spin between two chunks.
        total = scores.sum(axis=1)
        for column, own in enumerate(self.own.tolist(), len(LANGUAGES)):
            scores[:, own] += scores[:, column]
        numbers = scores[:, : len(LANGUAGES)].argmax(axis=1)
        return numbers, scores[np.arange(len(texts)), numbers] / total

    def _features(self, texts: Sequence[bytes], n_bytes: Index, bits: int) -> npt.NDArray[np.unsignedinteger]:
        """Return feature << bits | place of the text of each occurrence of a feature, sorted.

        The longest texts come first while they are read, so that those that have not ended are the first n.
        """
        order = np.argsort(-n_bytes, kind="stable")
        width = int(n_bytes.max(initial=0))
        n_left = np.searchsorted(-n_bytes[order], -np.arange(width))
        letters = np.frombuffer(b"".join([text.ljust(width) for text in texts]), np.uint8).reshape(len(texts), width)
        letters = np.ascontiguousarray(letters[order].T)  # what is read at a step lies together
        none = len(self.weights) << bits
        kind = np.dtype(np.uint32 if none < 1 << 32 else np.uint64)
        feature, keys = self.feature.astype(kind) << bits, np.full(letters.shape, none, kind)
        row = np.full(len(texts), self.row[0])  # of the first state
        for place, n in enumerate(n_left.tolist()):
            state = self.next_state.take(row[:n] + letters[place, :n])
            keys[place, :n] = feature.take(state)
            row = self.row.take(state)
        keys |= order.astype(kind)
        ordered = np.sort(keys, axis=None)
        return ordered[: np.searchsorted(ordered, np.array(none, kind))]


def is_mojibake(text: str) -> bool:
    """True where most of the text beyond ASCII was decoded with the wrong encoding (MIN_REPAIRED, MIN_BADNESS).

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
    """Return where the damage begins: at the first character that a repair changes, else the first beyond ASCII.

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
    """The library's model, read once (0.5 s), or as it was saved (0.01 s)."""
    if saved is not None:
        return _Model(*(np.asarray(np.load(saved / f"{name}.npy", mmap_mode="r")) for name in _Model.__annotations__))
    return _Model.of(MODEL_DIR / MODEL_FILE)


def save_model(folder: Path) -> Path:
    """Write the model's arrays (70 MB) to files that processes map and share, and return where they are."""
    path = folder / "languages"
    path.mkdir(exist_ok=True)
    for name, array in vars(_model(None)).items():
        np.save(path / f"{name}.npy", array)
    return path
