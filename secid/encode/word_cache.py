"""Token ids of texts from the ids of their words: the library tokenises each distinct word once.

This is exact for tokenizers like BERT's: the normalizer changes single characters, the pre-tokenizer splits at spaces,
and WordPiece sees one word at a time. docs/decisions/word-cache.md has the cost.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

MAX_WORDS = 1_000_000
"""Maximum number of distinct words, about 150 MB. A larger cache is emptied."""
MAX_IDS = 8_000_000
"""Maximum number of their ids, 64 MB, because a passage without spaces, as in Chinese, is a single word. A larger cache
is emptied."""
CHARACTER_NORMALIZERS = frozenset({"BertNormalizer", "Lowercase"})
"""Normalizers that change each character by itself."""


class Tokens(NamedTuple):
    """Token ids of texts, in order. lengths (n,) int64, ids (sum(lengths),) int64, truncated (n,) bool."""

    ids: NDArray[np.int64]
    lengths: NDArray[np.int64]
    truncated: NDArray[np.bool_]

    def starts(self) -> NDArray[np.int64]:
        """Return (n,) int64, the position of each text's first id."""
        return np.cumsum(self.lengths) - self.lengths


class Frame(NamedTuple):
    """The special tokens around each text, and the cut at a maximum length.

    before, after : special token ids.   room : maximum number of tokens between them; None without a limit.
    from_left : whether a long text loses its first tokens instead of its last.
    """

    before: list[int]
    after: list[int]
    room: int | None
    from_left: bool

    @staticmethod
    def of(core: Any) -> Frame | None:
        """Return the frame of a tokenizer; None if it has no special tokens around the ids of the bare text.

        With special tokens, a word that is cut at the maximum length is longer than the room, so it counts as cut.
        """
        bare, framed = core.encode("a", add_special_tokens=False).ids, core.encode("a").ids
        place = next((i for i in range(len(framed)) if bare and framed[i : i + len(bare)] == bare), None)
        if place is None or len(framed) == len(bare):
            return None
        before, after = framed[:place], framed[place + len(bare) :]
        cut = core.truncation
        room = None if cut is None else cut["max_length"] - len(before) - len(after)
        return Frame(before, after, room, cut is not None and cut["direction"] == "left")


def splits_at_spaces(core: Any) -> bool:
    """Return True if a tokenizer splits a text at spaces and tokenises each word by itself."""
    parts = orjson.loads(core.to_str())
    normalizer = parts["normalizer"] or {"type": "Sequence", "normalizers": []}
    steps = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    return (
        parts["model"]["type"] == "WordPiece"
        and (parts["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
        and all(step["type"] in CHARACTER_NORMALIZERS for step in steps)
        and not any(map(str.isspace, "".join(token["content"] for token in parts["added_tokens"])))
    )


class WordCache:
    """The token ids of every word seen so far. Threads may share it. core : as in `splits_at_spaces`."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._number: dict[str, int] = {}
        self._starts = self._sizes = self._ids = np.zeros(0, np.int64)

    def without_special_tokens(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the ids of the texts without special tokens. Only a single word longer than the room is cut."""
        import pyarrow as pa
        import pyarrow.compute as pc

        # BERT reads these as spaces
        spaced = [text.replace("\n", " ").replace("\t", " ").replace("\r", " ") for text in texts]
        lists = pc.split_pattern(pa.array(spaced, pa.large_string()), pattern=" ")
        encoded = lists.values.dictionary_encode()
        with self._lock:
            numbers = self._numbers(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()]
            starts, sizes, ids = self._starts[numbers], self._sizes[numbers], self._ids
        ends = np.concatenate([[0], np.cumsum(sizes)])[lists.offsets.to_numpy()]
        return ids[_ranges(starts, sizes)], np.diff(ends)

    def framed(self, texts: Sequence[str], frame: Frame) -> Tokens:
        """Return the tokens of the texts with special tokens, cut to the frame's room."""
        ids, lengths = self.without_special_tokens(texts)
        cut = np.zeros(len(lengths), np.bool_)
        if frame.room is not None and len(lengths) and lengths.max() > frame.room:
            cut = lengths > frame.room
            starts = np.cumsum(lengths) - lengths
            cut_lengths = np.minimum(lengths, frame.room)
            ids = ids[_ranges(starts + (lengths - cut_lengths if frame.from_left else 0), cut_lengths)]
            lengths = cut_lengths
        whole = lengths + len(frame.before) + len(frame.after)
        starts = np.cumsum(whole) - whole
        framed = np.empty(int(whole.sum()), np.int64)
        framed[_ranges(starts + len(frame.before), lengths)] = ids
        for place, token in enumerate(frame.before):
            framed[starts + place] = token
        for place, token in enumerate(frame.after):
            framed[starts + len(frame.before) + lengths + place] = token
        return Tokens(framed, whole, cut)

    def _numbers(self, words: list[str]) -> NDArray[np.int64]:
        """Return the place of each of these distinct words in the cache; new words are tokenised."""
        try:
            return np.fromiter(map(self._number.__getitem__, words), np.int64, len(words))
        except KeyError:
            if len(self._number) > MAX_WORDS or len(self._ids) > MAX_IDS:
                self._clear()
            new = [word for word in words if word not in self._number]
            lists = [encoding.ids for encoding in self._core.encode_batch_fast(new, add_special_tokens=False)]
            sizes = np.fromiter(map(len, lists), np.int64, len(lists))
            ids = np.fromiter(chain.from_iterable(lists), np.int64, int(sizes.sum()))
            self._starts = np.concatenate([self._starts, len(self._ids) + np.cumsum(sizes) - sizes])
            self._sizes = np.concatenate([self._sizes, sizes])
            self._ids = np.concatenate([self._ids, ids])
            first = len(self._number)
            self._number.update(zip(new, range(first, first + len(new)), strict=True))
            return np.fromiter(map(self._number.__getitem__, words), np.int64, len(words))


def _ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of all ranges, one range after the other, (sum(sizes),)."""
    places: NDArray[np.int64] = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    places += np.arange(len(places))
    return places
