"""The tokenizer of an encoder, used in bulk and without padding; ids leave its Rust core as lists."""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from secid.encode.batching import Tokens
from secid.encode.modules import AGAIN
from secid.encode.recipe import Recipe
from secid.errors import EncoderError

OTHER, LETTER, IDEOGRAPH, MARK = range(4)
IDEOGRAPHS = ((0x3400, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
LAST_ASCII = 0x7F


class Tokeniser:
    """Texts to token ids with special tokens, cut at the recipe's maximum length.

    Works on a copy of the tokenizer's Rust core, whose truncation and padding are set once.
    """

    def __init__(self, core: Any, special_ids: frozenset[int], padding: int, unknown: int | None = None) -> None:
        self._core = core
        self._special_ids = special_ids
        self._unknown = unknown
        self.padding = padding

    def tokens(self, texts: list[str]) -> Tokens:
        """Token ids of each text. Raises EncoderError if a text has none."""
        encodings = self._core.encode_batch_fast(texts)  # as encode_batch, without offsets
        lists = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        if not bool((lengths > 0).all()):
            place = int(np.flatnonzero(lengths == 0)[0])
            raise EncoderError(f"the tokenizer returns no token for the text {texts[place][:80]!r}")
        ids = np.fromiter(chain.from_iterable(lists), dtype=np.int64, count=int(lengths.sum()))
        truncated = np.fromiter(
            (bool(encoding.overflowing) for encoding in encodings), dtype=np.bool_, count=len(lists)
        )
        return Tokens(ids, lengths, truncated)

    def pieces(self, texts: list[str]) -> list[list[int]]:
        """Token ids of each text without special tokens, cut at the maximum length; none for an empty text."""
        special, encodings = self._special_ids, self._core.encode_batch_fast(texts)
        return [[token for token in encoding.ids if token not in special] for encoding in encodings]

    def unknown_shares(self, texts: list[str]) -> npt.NDArray[np.float64]:
        """(n,) share of each text's letters that the tokenizer does not know as part of a word; 0 without letters.

        Those are, beyond ASCII, letters of an unknown token, letters that are dropped or split into bytes, and letters
        alone in their piece. A single ideograph is a word, so alone it is known. What lies beyond the maximum length
        does not count.
        """
        encodings = self._core.encode_batch(texts, add_special_tokens=False)
        return np.array([_unknown_share(text, e, self._unknown) for text, e in zip(texts, encodings, strict=True)])

    def prompt_length(self, prompt: str) -> int:
        """Tokens of a prefix without a closing special token: those that `include_prompt: false` excludes."""
        if not prompt:
            return 0
        ids = self._core.encode(prompt).ids
        return len(ids) - int(bool(ids) and ids[-1] in self._special_ids)


def load_tokeniser(recipe: Recipe, trust_remote_code: bool) -> Tokeniser:
    """Raises EncoderError for a tokenizer without a fast core, and for one that uses token types."""
    from tokenizers import Tokenizer
    from tokenizers.normalizers import Lowercase, Sequence
    from transformers import AutoTokenizer

    where = str(recipe.folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(recipe.folder, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise EncoderError(
            f"the tokenizer cannot be loaded: {' '.join(str(error).split())[:300]}", where=where
        ) from error
    if not tokenizer.is_fast:
        raise EncoderError(
            "only tokenizers with a tokenizer.json are supported",
            where=where,
            remedy="save one with transformers: AutoTokenizer.from_pretrained(...).save_pretrained(...)",
        )
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise EncoderError("the tokenizer has no vocabulary: its files are missing", where=where, remedy=AGAIN)
    if tokenizer.pad_token_id is None:  # sentence-transformers pads even a single text
        raise EncoderError(
            "the tokenizer has no padding token",
            where=where,
            remedy="tokenizer.pad_token = tokenizer.eos_token in transformers, then tokenizer.save_pretrained(FOLDER)",
        )
    core = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    core.no_padding()
    core.no_truncation()
    if recipe.max_length is not None:
        overhead = max(len(core.encode(prefix).ids) for prefix in (recipe.query_prefix, recipe.passage_prefix))
        if recipe.max_length <= overhead:
            raise EncoderError(
                f"a maximum length of {recipe.max_length} tokens leaves no room for the text: special tokens and "
                f"prefix take {overhead}",
                where=where,
                remedy=f"use --max-length {overhead + 1} or more",
            )
        core.enable_truncation(recipe.max_length, direction=tokenizer.truncation_side)
    if recipe.lower_case:
        core.normalizer = Lowercase() if core.normalizer is None else Sequence([Lowercase(), core.normalizer])
    if any(core.encode("a").type_ids):
        raise EncoderError("the tokenizer uses token types other than 0, which is not supported", where=where)
    return Tokeniser(core, frozenset(tokenizer.all_special_ids), tokenizer.pad_token_id, tokenizer.unk_token_id)


@cache
def _kind(character: str) -> int:
    category = unicodedata.category(character)[0]
    if category == "L":
        return IDEOGRAPH if any(low <= ord(character) <= high for low, high in IDEOGRAPHS) else LETTER
    return MARK if category == "M" else OTHER


def _unknown_share(text: str, encoding: Any, unknown: int | None) -> float:
    """See `Tokeniser.unknown_shares`. unknown: id of the unknown token, where the tokenizer has one."""
    kinds = np.fromiter(map(_kind, text), np.int64, len(text))
    offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    starts, ends = offsets.T

    def inside(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        sums = np.concatenate([[0], np.cumsum(flags)])
        return np.asarray(sums[ends] - sums[starts])

    def covering(pieces: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        changes = np.zeros(len(text) + 1, np.int64)
        np.add.at(changes, starts[pieces], 1)
        np.add.at(changes, ends[pieces], -1)
        return np.asarray(np.cumsum(changes)[:-1])

    known = (inside(kinds != OTHER) > 1) | (inside(kinds == IDEOGRAPH) > 0)
    if unknown is not None:
        known &= np.array(encoding.ids, np.int64) != unknown
    n_read = int(ends.max(initial=0)) if encoding.overflowing else len(text)
    letters = ((kinds == LETTER) | (kinds == IDEOGRAPH))[:n_read]
    split = covering(np.ones(len(starts), np.bool_)) > 1
    strange = letters & ((covering(known) == 0) | split)[:n_read] & (np.array([*map(ord, text)]) > LAST_ASCII)[:n_read]
    return float(strange.sum() / max(1, letters.sum()))
