"""Runs of words that texts share: how a known positive is found whatever its case, spaces or marks, with its title
removed or added, and cut short. And how a baseline keeps them.
"""

from __future__ import annotations

import html
import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from secid.findings.passage_facts import is_empty
from secid.pool.boilerplate import opening, words
from secid.pool.scripts import split_multilingual
from secid.pool.texts import KEY_BYTES, text_key

RUN_WORDS = 5
"""Words of a run: five in a row are rarely shared by texts that do not copy each other."""
CONTAINED = 0.8
"""Share of the shorter text's runs that the longer one must hold. Windows that overlap by half share half."""
LEAST_RUNS = 2
"""Runs below which a text is too short for sharing to mean anything; then only equal words count. Two are six words in
a row, or seven characters of a script without spaces, of a labelled positive of the very query."""
LEAST_WHOLE_RUNS = 3
"""The same for a positive that a negative holds, since a question may be the start of another one; and where a baseline
kept a part of the runs."""
KEPT_EVERY = 4
"""A baseline keeps every fourth run of a positive, chosen by its hash: a quarter of the size."""
WORDS_REMEMBERED = 1 << 18
TEXTS_REMEMBERED = 1 << 14
"""Miners list a passage under many queries; a remembered text of 200 words takes 2 KB."""
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that powers of it mix all bits; the golden ratio's fraction."""

Runs = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Positives:
    """Runs of words of labelled positives, by the text key of their query.

    whole   : hashes of all words of each positive, in order, for equality.
    runs    : the run hashes of each positive, sorted.   modulus: only hashes divisible by it are kept.
    """

    whole: Mapping[bytes, set[int]]
    runs: Mapping[bytes, list[Runs]]
    modulus: int = 1


NO_POSITIVES = Positives({}, {})


class Text(NamedTuple):
    """What a text's words tell. whole: hash of all of them in order.   runs: sorted hashes of its runs."""

    whole: int
    runs: Runs
    opening: str | None
    is_empty: bool


@lru_cache(TEXTS_REMEMBERED)
def analysed(text: str) -> Text:
    """The words of a text and their hashes; the same on every machine."""
    tokens = words(text)
    plain = tokens if text.isascii() and "&" not in text else split_multilingual(normal(text))
    return Text(whole_of(plain), runs_of(plain), opening(tokens), is_empty(" ".join(plain)))


def normal(text: str) -> str:
    """The text as a reader sees it: entities resolved, one form for letters of any width or composition, and nothing
    that takes no room (soft hyphens, joiners, zero-width spaces).
    """
    return unicodedata.normalize("NFKC", html.unescape(text)).translate(_roomless())


@cache
def _roomless() -> dict[int, None]:
    """Format characters, for `translate`; the last are the tags."""
    codes = (*range(0x20000), *range(0xE0000, 0xE0080))
    return dict.fromkeys(code for code in codes if unicodedata.category(chr(code)) == "Cf")


@lru_cache(WORDS_REMEMBERED)
def _word_hash(word: str) -> int:
    return zlib.crc32(word.encode())


def runs_of(tokens: list[str]) -> Runs:
    """Sorted distinct hashes of all runs of RUN_WORDS words; empty for a shorter text."""
    n = len(tokens) - RUN_WORDS + 1
    if n < 1:
        return np.zeros(0, np.uint32)
    numbers = np.fromiter(map(_word_hash, tokens), np.uint64, len(tokens))
    mixed = np.zeros(n, np.uint64)
    for place in range(RUN_WORDS):
        mixed = (mixed + numbers[place : place + n]) * MULTIPLIER
        mixed ^= mixed >> np.uint64(29)
    return np.unique((mixed >> np.uint64(32)).astype(np.uint32))


def whole_of(tokens: list[str]) -> int:
    """Hash of all words of a text in order; 64 bits, so that equal hashes mean equal words."""
    return int.from_bytes(text_key("passage", " ".join(tokens))[:8], "little")


def copies(text: Text, known: Positives, query: bytes) -> bool:
    """True where the text is, holds, or is cut from one of the query's labelled positives."""
    if text.whole in known.whole.get(query, ()):
        return True
    others = known.runs.get(query)
    if not others:
        return False
    kept = text.runs if known.modulus == 1 else text.runs[text.runs % known.modulus == 0]
    for other in others:
        small, large = (kept, other) if len(kept) <= len(other) else (other, kept)
        least = LEAST_RUNS if small is kept and known.modulus == 1 else LEAST_WHOLE_RUNS
        if len(small) >= least and _shared(small, large) >= CONTAINED * len(small):
            return True
    return False


def _shared(small: Runs, large: Runs) -> int:
    """How many of the first are among the second; both sorted and distinct."""
    place = np.minimum(np.searchsorted(large, small), len(large) - 1)
    return int((large[place] == small).sum())


def stored(parts: Iterable[Positives]) -> dict[str, npt.NDArray[np.generic]]:
    """Positives of several sources as arrays for a baseline: every KEPT_EVERY-th run, each positive once."""
    runs: dict[bytes, dict[bytes, Runs]] = defaultdict(dict)
    whole: dict[bytes, set[int]] = defaultdict(set)
    for part in parts:
        for query, found in part.runs.items():
            whole[query] |= part.whole[query]
            kept = [each[each % KEPT_EVERY == 0] for each in found]
            runs[query].update({each.tobytes(): each for each in kept})
    queries = sorted(whole)
    flat = [(number, each) for number, query in enumerate(queries) for _, each in sorted(runs[query].items())]
    values = [(number, value) for number, query in enumerate(queries) for value in sorted(whole[query])]
    return {
        "positive_queries": np.frombuffer(b"".join(queries), np.uint8).reshape(-1, KEY_BYTES).copy(),
        "positive_whole_query": np.array([number for number, _ in values], np.int64),
        "positive_whole": np.array([value for _, value in values], np.uint64),
        "positive_run_query": np.array([number for number, _ in flat], np.int64),
        "positive_run_lengths": np.array([len(each) for _, each in flat], np.int64),
        "positive_runs": np.concatenate([np.zeros(0, np.uint32), *(each for _, each in flat)]),
    }


def restored(arrays: Mapping[str, npt.NDArray[np.generic]]) -> Positives:
    """The inverse of `stored`, but for the runs that it left out."""
    queries = [bytes(row) for row in arrays["positive_queries"]]
    whole: dict[bytes, set[int]] = defaultdict(set)
    for number, value in zip(arrays["positive_whole_query"].tolist(), arrays["positive_whole"].tolist(), strict=True):
        whole[queries[number]].add(value)
    runs: dict[bytes, list[Runs]] = defaultdict(list)
    parts = np.split(arrays["positive_runs"].astype(np.uint32), np.cumsum(arrays["positive_run_lengths"])[:-1])
    for number, part in zip(arrays["positive_run_query"].tolist(), parts, strict=False):
        runs[queries[number]].append(part)
    return Positives(dict(whole), dict(runs), KEPT_EVERY)
