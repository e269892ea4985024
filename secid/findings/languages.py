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
from secid.pool.texts import TextStore
from secid.results import Languages

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
"""Decides 95 % of English abstracts at half of the time; the others are read on. Time grows with what is read."""
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
SAMPLED_TEXTS = 1_000
"""Texts of a source whose languages the report gives: a share then has a standard error of 1.6 points at most."""
BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")


def languages_of(passages: TextStore, negatives: Index, seed: int) -> Languages:
    """Languages of a sample of the distinct texts among a source's negatives. negatives: (T,) ids."""
    texts = passages.take(first_sampled(distinct(negatives), passages.keys, seed, SAMPLED_TEXTS))
    counts = Counter("" if number == UNDECIDED else LANGUAGES[number] for number in language_numbers(texts).tolist())
    n = max(1, len(texts))
    return Languages(
        n_texts=len(texts),
        shares={code: n_texts / n for code, n_texts in sorted(counts.items(), key=lambda item: (-item[1], item[0]))},
    )


def language_numbers(texts: Sequence[str], saved: Path | None = None) -> npt.NDArray[np.int16]:
    """(n,) place of each text's language in LANGUAGES, UNDECIDED where the library is not sure of one.

    saved : the model, as `save_model` gives it to other processes.

    >>> [LANGUAGES[number] for number in language_numbers(["Die Sonne scheint heute über den Bergen und dem See."])]
    ['de']
    """
    model = _model(saved)
    numbers, confidence = model.classify([_head(text, FIRST_CHARACTERS) for text in texts])
    more = np.flatnonzero(confidence < MIN_CONFIDENCE)
    numbers[more], confidence[more] = model.classify([_head(texts[place], MORE_CHARACTERS) for place in more.tolist()])
    decided = (confidence >= MIN_CONFIDENCE) & (numbers != LANGUAGES.index(NO_LANGUAGE))
    return np.where(decided, numbers, UNDECIDED).astype(np.int16)


def _head(text: str, n: int) -> str:
    """The first n characters of a text, each stretch of white space one blank."""
    head = text[:n]
    goes_on = head[-1:] != " " or text[n : n + 1].strip()
    if goes_on and head[:1] != " " and "  " not in head and head.isprintable():  # nothing to collapse, as mostly
        return head
    return " ".join(text[:RAW_CHARACTERS].split())[:n]


@dataclass(frozen=True)
class _Model:
    """The library's model as arrays, and its `classify` for many texts at once: 10 µs a text instead of 90.

    The library follows each text byte by byte through an automaton, whose states name features, and adds up
    log(1 + count) times the weights of the features. Here all texts take a step at once.

    next_state : by row << 8 | byte.   row, feature : (n_states,); feature n_features where a state names none.
    weights    : (n_features + 1, n_columns) float32, the last row zeros.   prior : (n_columns,).
    first      : (len(LANGUAGES),) first column of each language, in their order: some have one for each script.
    """

    next_state: npt.NDArray[np.uint32]
    row: npt.NDArray[np.int32]
    feature: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    prior: npt.NDArray[np.float32]
    first: Index

    @staticmethod
    def of(path: Path) -> _Model:
        """The arrays of the library's model file, an .npz in LZMA. The library itself makes lists of them."""
        with np.load(BytesIO(lzma.decompress(path.read_bytes()))) as arrays:
            weights, feature, names = arrays["ptc"], arrays["out_feat"], arrays["classes"].tolist()
            columns = [column for name in LANGUAGES for column, own in enumerate(names) if own == name]
            return _Model(
                arrays["nextmove"],
                arrays["nextmove_row"].astype(np.int32) << 8,
                np.where(feature < 0, len(weights), feature).astype(np.int32),
                np.pad(weights[:, columns].astype(np.float32, order="C"), ((0, 1), (0, 0))),
                arrays["pc"][columns],
                np.array([columns.index(names.index(name)) for name in LANGUAGES]),
            )

    def classify(self, texts: Sequence[str]) -> tuple[Index, npt.NDArray[np.float32]]:
        """(n,) the most likely language of each text, by its place in LANGUAGES, and the probability of it."""
        from scipy.sparse import csr_array

        parts = [_as_trained(text) for text in texts]
        n_bytes = np.fromiter(map(len, parts), np.int64, len(parts))
        features = self._features(parts, n_bytes)
        features.sort(axis=1)
        new = np.ones(features.shape, np.bool_)
        new[:, 1:] = features[:, 1:] != features[:, :-1]
        counts = np.diff(np.flatnonzero(new), append=features.size)
        rows = np.concatenate([[0], np.cumsum(new.sum(axis=1))])
        shape = len(parts), len(self.weights)
        scores = csr_array((np.log1p(counts.astype(np.float32)), features[new], rows), shape) @ self.weights
        scores += (features[:, :1] < shape[1] - 1) * self.prior  # a text without features is of no language
        scores /= np.sqrt(np.maximum(n_bytes, 1), dtype=np.float32)[:, None]
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        # No matrix product: it would wake the threads of BLAS, which spin between two chunks.
        shares = np.add.reduceat(scores, self.first, axis=1) / scores.sum(axis=1, keepdims=True)
        return shares.argmax(axis=1), shares.max(axis=1)

    def _features(self, parts: Sequence[bytes], n_bytes: Index) -> npt.NDArray[np.int32]:
        """(n, longest + 1) the feature at each byte of each text, n_features where there is none and behind its end.

        The longest texts come first while they are read, so that those that have not ended are the first n.
        """
        order = np.argsort(-n_bytes, kind="stable")
        width = int(n_bytes.max(initial=0)) + 1
        n_left = np.searchsorted(-n_bytes[order], -np.arange(width))
        letters = np.frombuffer(b"".join([part.ljust(width) for part in parts]), np.uint8).reshape(-1, width)
        letters = letters[order].T.astype(np.int32)  # what is read at a step lies together
        features = np.full(letters.shape, len(self.weights) - 1, np.int32)
        state = np.zeros(len(parts), np.uint32)
        for place, n in enumerate(n_left.tolist()):
            state = self.next_state.take(self.row.take(state[:n]) + letters[place, :n])
            self.feature.take(state, out=features[place, :n], mode="clip")  # else it is copied
        result = np.empty((len(parts), width), np.int32)
        result[order] = features.T
        return result


def _as_trained(text: str) -> bytes:
    """The bytes that the library's model was trained on: letters in one form, capitals alone in lower case."""
    return normalize("NFC", text.lower() if text.isupper() else text).encode()


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
    """Where the damage of a text begins: the first character that repairing changes, else the first beyond ASCII.

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
