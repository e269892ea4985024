"""Texts to token keys: the token sets behind the coverage gate, as 64-bit integers.

A tokenizer is defined by its plain-Python meaning (METHOD 2, 4); the code below reaches the same
sets by array arithmetic, which is faster (docs/decisions/lexing.md). Tokens become 64-bit keys:
exact for trigrams (three code points of 21 bits), a polynomial hash of the UTF-8 bytes otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from secid.lexical.scripts import split_multilingual

Keys = npt.NDArray[np.uint64]
Index = npt.NDArray[np.int64]

ALPHANUMERIC = re.compile(r"[^\W_]+")
ALPHANUMERIC_2 = re.compile(r"[^\W_]{2,}")

# Blobs of this size keep the few 8-byte-per-byte temporaries inside the cache of one core.
BLOB_BYTES = 1 << 17
# Odd, so that it has an inverse modulo 2^64; its bits are those of the golden ratio's fraction.
MULTIPLIER = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class TokenSets:
    """The distinct tokens of each text: text i holds table[numbers[offsets[i]:offsets[i+1]]], sorted.

    table : (V,) sorted distinct keys, each held by some text.   numbers : indices into it.
    """

    table: Keys
    numbers: npt.NDArray[np.int32]
    offsets: Index

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class ByteRule:
    """A tokenizer whose tokens are runs of bytes.

    ascii_token : 256 booleans, which byte belongs to a token in lower-cased ASCII text.
    split       : plain-Python meaning, used as it is for texts beyond ASCII.
    shortest    : tokens of fewer ASCII characters are dropped.
    """

    ascii_token: npt.NDArray[np.bool_]
    split: Callable[[str], list[str]]
    shortest: int = 1


def _ascii_table(is_token: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    table = np.ones(256, dtype=np.bool_)
    for code in range(128):
        table[code] = is_token(chr(code))
    return table


def split_alphanumeric(text: str) -> list[str]:
    """METHOD 2: runs of letters and digits of the lower-cased text."""
    return ALPHANUMERIC.findall(text.lower())


def split_alphanumeric2(text: str) -> list[str]:
    """METHOD 4: as above, of length two or more."""
    return ALPHANUMERIC_2.findall(text.lower())


def split_whitespace(text: str) -> list[str]:
    """METHOD 4: what `str.split` yields from the lower-cased text."""
    return text.lower().split()


def split_trigrams(text: str) -> list[str]:
    """METHOD 2: windows of three code points of the lower-cased text, white space collapsed.

    A text of one or two code points is its own single token; an empty one has none.
    """
    flat = " ".join(text.lower().split())
    if len(flat) < 3:
        return [flat] if flat else []
    return [flat[start : start + 3] for start in range(len(flat) - 2)]


_ALPHANUMERIC_TABLE = _ascii_table(str.isalnum)
_WHITESPACE_TABLE = _ascii_table(lambda char: not char.isspace())

BYTE_RULES = {
    "alphanumeric": ByteRule(_ALPHANUMERIC_TABLE, split_alphanumeric),
    "alphanumeric2": ByteRule(_ALPHANUMERIC_TABLE, split_alphanumeric2, shortest=2),
    "whitespace": ByteRule(_WHITESPACE_TABLE, split_whitespace),
    "multilingual": ByteRule(_ALPHANUMERIC_TABLE, split_multilingual),
}

SPLITTERS: dict[str, Callable[[str], list[str]]] = {
    "alphanumeric": split_alphanumeric,
    "alphanumeric2": split_alphanumeric2,
    "whitespace": split_whitespace,
    "trigrams": split_trigrams,
    "multilingual": split_multilingual,
}
"""The plain meaning of every tokenizer by name."""


def token_stream(texts: Sequence[str], tokenizer: str) -> tuple[Keys, Index]:
    """Keys of all tokens in the order of the texts, and for each the index of its text; both may be empty."""
    if tokenizer in BYTE_RULES:
        return _byte_keys(texts, BYTE_RULES[tokenizer])
    return _trigram_keys(texts)


def token_sets(texts: Sequence[str], tokenizer: str) -> TokenSets:
    """Distinct token keys of each text, for a tokenizer named in SPLITTERS. Source: METHOD 2, 4."""
    keys, owners = token_stream(texts, tokenizer)
    return distinct_tokens(keys, owners, len(texts))


def term_keys(terms: Sequence[str], tokenizer: str) -> Keys:
    """(n,) key of each single token, as token_sets gives it. terms: tokens made by SPLITTERS[tokenizer]."""
    if tokenizer in BYTE_RULES:
        return np.array([_hash(term.encode("utf-8")) for term in terms], np.uint64)
    return np.array([_packed([ord(char) for char in term]) for term in terms], np.uint64)


def _hash(data: bytes) -> int:
    """The key of one token, as _span_hashes computes it for a span."""
    return sum((byte + 1) * pow(MULTIPLIER, place, 1 << 64) for place, byte in enumerate(data)) % (1 << 64)


def _packed(points: Sequence[int]) -> int:
    """Three code points in descending fields; one or two in ascending ones, apart from any three."""
    if len(points) == 3:
        return points[0] << 42 | points[1] << 21 | points[2]
    return sum(point << (21 * place) for place, point in enumerate(points))


def _byte_keys(texts: Sequence[str], rule: ByteRule) -> tuple[Keys, Index]:
    """Keys of all tokens with the index of their text, in blobs of BLOB_BYTES."""
    keys: list[Keys] = []
    owners: list[Index] = []
    parts: list[bytes] = []
    first = size = 0
    for index, text in enumerate(texts):
        part = text.lower().encode("ascii") if text.isascii() else " ".join(rule.split(text)).encode("utf-8")
        parts.append(part)
        size += len(part) + 1
        if size >= BLOB_BYTES:
            _append_blob(parts, first, rule, keys, owners)
            parts, first, size = [], index + 1, 0
    _append_blob(parts, first, rule, keys, owners)
    return np.concatenate(keys), np.concatenate(owners)


def _append_blob(parts: list[bytes], first: int, rule: ByteRule, keys: list[Keys], owners: list[Index]) -> None:
    blob = np.frombuffer(b" ".join([*parts, b""]), dtype=np.uint8)
    inside = rule.ascii_token[blob]
    edges = np.flatnonzero(np.diff(inside.view(np.int8), prepend=0, append=0))
    starts, ends = edges[0::2], edges[1::2]
    if rule.shortest > 1:
        long_enough = ends - starts >= rule.shortest
        starts, ends = starts[long_enough], ends[long_enough]
    keys.append(_span_hashes(blob, starts, ends))
    text_starts = np.cumsum([0, *(len(part) + 1 for part in parts)])[:-1] if parts else np.zeros(0, np.int64)
    owners.append(np.searchsorted(text_starts, starts, side="right") - 1 + first)


def _span_hashes(blob: npt.NDArray[np.uint8], starts: Index, ends: Index) -> Keys:
    """Sum of byte * MULTIPLIER^position of each span, shifted back to its start, modulo 2^64.

    Prefix sums make every span one subtraction; the inverse power of the start makes equal spans
    equal wherever they stand.
    """
    powers, inverses = _powers(len(blob) + 1)
    prefix = np.zeros(len(blob) + 1, dtype=np.uint64)
    # 1 is added so that no byte weighs nothing and a longer run of zero bytes is another token
    np.cumsum((blob.astype(np.uint64) + np.uint64(1)) * powers[: len(blob)], out=prefix[1:])
    return (prefix[ends] - prefix[starts]) * inverses[starts]


_POWERS: dict[str, Keys] = {"powers": np.ones(1, np.uint64), "inverses": np.ones(1, np.uint64)}


def _powers(n: int) -> tuple[Keys, Keys]:
    """MULTIPLIER^0 … ^(n-1) and their inverses modulo 2^64, kept for the next blob."""
    if len(_POWERS["powers"]) < n:
        for name, base in (("powers", MULTIPLIER), ("inverses", pow(MULTIPLIER, -1, 1 << 64))):
            steps = np.full(n, base, dtype=np.uint64)
            steps[0] = 1
            _POWERS[name] = np.cumprod(steps, dtype=np.uint64)
    return _POWERS["powers"][:n], _POWERS["inverses"][:n]


def _trigram_keys(texts: Sequence[str]) -> tuple[Keys, Index]:
    """Three code points of 21 bits each make an exact 63-bit key; shorter texts use the low fields."""
    keys: list[Keys] = [np.zeros(0, np.uint64)]
    owners: list[Index] = [np.zeros(0, np.int64)]
    for index, text in enumerate(texts):
        flat = " ".join(text.lower().split())
        points = np.frombuffer(flat.encode("utf-32-le"), dtype=np.uint32).astype(np.uint64)
        if len(points) >= 3:
            found = (points[:-2] << np.uint64(42)) | (points[1:-1] << np.uint64(21)) | points[2:]
        else:
            found = np.array([_packed(points.tolist())] if len(points) else [], np.uint64)
        keys.append(found)
        owners.append(np.full(len(found), index, np.int64))
    return np.concatenate(keys), np.concatenate(owners)


def distinct_tokens(keys: Keys, owners: Index, n_texts: int) -> TokenSets:
    """Sorted distinct (owner, key) pairs. Keys are first numbered, so that a pair fits 64 bits."""
    import pyarrow as pa

    if not len(keys):
        return TokenSets(keys, np.zeros(0, np.int32), np.zeros(n_texts + 1, np.int64))
    encoded: Any = pa.array(keys).dictionary_encode()
    table = encoded.dictionary.to_numpy(zero_copy_only=False).astype(np.uint64, copy=False)
    order = np.argsort(table)
    place = np.empty(len(table), np.int64)
    place[order] = np.arange(len(table))
    numbers = place[encoded.indices.to_numpy(zero_copy_only=False)]
    pairs = np.sort((owners << np.int64(32)) | numbers)
    pairs = pairs[np.diff(pairs, prepend=-1) != 0]
    offsets = np.zeros(n_texts + 1, np.int64)
    np.cumsum(np.bincount(pairs >> np.int64(32), minlength=n_texts), out=offsets[1:])
    return TokenSets(table[order], pairs.astype(np.int32), offsets)
