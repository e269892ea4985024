"""What the texts of a source say about it: negatives that are known positives, repeats, preambles or nothing.

Reads the files once for the positives and once for the negatives; no encoder. A known positive is found whatever
its case, spaces or marks, with its title removed or added, and cut short, by the runs of words it shares.
"""

from __future__ import annotations

import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from secid.gating.estimates import Estimate, clustered_mean, names_of
from secid.lexical.boilerplate import Openings, common_openings, is_empty, is_preamble, opening, words
from secid.records import Defect, Record
from secid.texts import KEY_BYTES, text_key

RUN_WORDS = 5
"""Words of a run: five in a row are rarely shared by texts that do not copy each other."""
CONTAINED = 0.8
"""Share of the shorter text's runs that the longer one must hold. Windows that overlap by half share half."""
LEAST_RUNS = 3
"""Runs below which a text is too short for sharing to mean anything; then only equal words count."""
KEPT_EVERY = 4
"""A baseline keeps every fourth run of a positive, chosen by its hash: a quarter of the size."""
OVERUSED_SHARE = 0.05
OVERUSED_LEAST = 20
"""A text under more queries than this share of them, and than this number, answers none of them."""
TEXT_BUCKETS = ("known_positive", "duplicate", "overused", "preamble", "empty")

WORDS_REMEMBERED = 1 << 18
TEXTS_REMEMBERED = 1 << 14
"""Miners list a passage under many queries; a remembered text of 200 words takes 2 KB."""
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that powers of it mix all bits; the golden ratio's fraction."""

Runs = npt.NDArray[np.uint32]
Rows = Callable[[], Iterable[Record | Defect]]
"""Opens the files of a source from the start."""
Place = tuple[str, int, int]
"""(path, line, number of the negative in its row)."""


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


@dataclass(frozen=True)
class TextFindings:
    """What one source's texts show.

    n_negatives : negatives listed, copies and empty ones in.
    shares      : of each bucket, over n_negatives, with its error by query.
    places      : rows of each bucket, in file order.   flagged : their number.
    """

    n_negatives: int
    shares: Mapping[str, Estimate]
    places: Mapping[str, list[Place]]
    flagged: Mapping[str, int]


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
    return Text(whole_of(tokens), runs_of(tokens), opening(tokens), is_empty(tokens))


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
        if len(small) >= LEAST_RUNS and _shared(small, large) >= CONTAINED * len(small):
            return True
    return False


def _shared(small: Runs, large: Runs) -> int:
    """How many of the first are among the second; both sorted and distinct."""
    place = np.minimum(np.searchsorted(large, small), len(large) - 1)
    return int((large[place] == small).sum())


@dataclass
class _Source:
    """What is gathered of one source while its files are read."""

    whole: dict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))
    runs: dict[bytes, dict[int, Runs]] = field(default_factory=lambda: defaultdict(dict))
    positive_openings: Openings = field(default_factory=Openings)
    seen_positives: set[int] = field(default_factory=set)
    negative_openings: Openings = field(default_factory=Openings)
    seen_negatives: set[int] = field(default_factory=set)
    queries: dict[bytes, int] = field(default_factory=dict)
    cluster: array[int] = field(default_factory=lambda: array("q"))
    text: array[int] = field(default_factory=lambda: array("Q"))
    rows: list[Place] = field(default_factory=list)
    starts: list[str | None] = field(default_factory=list)
    flags: dict[str, list[bool]] = field(
        default_factory=lambda: {name: [] for name in ("known_positive", "duplicate", "preamble", "empty")}
    )
    listed: set[tuple[bytes, int, int]] = field(default_factory=set)

    def positives(self) -> Positives:
        return Positives(self.whole, {query: list(found.values()) for query, found in self.runs.items()})


def inspect_texts(rows: Rows, known: Positives = NO_POSITIVES) -> tuple[dict[str, TextFindings], dict[str, Positives]]:
    """Findings of each split of a source ("" for a file that holds one), and its labelled positives.

    known : positives that an earlier run knows; those of the source itself are always compared with.
    """
    sources: dict[str, _Source] = defaultdict(_Source)
    for record in _records(rows()):
        _gather_positives(sources[record.split], record)
    positives = {split: source.positives() for split, source in sources.items()}
    for item in rows():
        if isinstance(item, Record):
            _gather_negatives(sources[item.split], item, (positives[item.split], known))
        elif item.reason == "empty_negative":
            for split in [item.split] if item.split is not None else list(sources):
                _add_empty(sources[split], b"", (item.path, item.line, 0))
    found = {split: _findings(source) for split, source in sources.items() if len(source.cluster)}
    return found, positives


def _records(items: Iterable[Record | Defect]) -> Iterator[Record]:
    return (item for item in items if isinstance(item, Record))


def _gather_positives(source: _Source, record: Record) -> None:
    query = text_key("query", record.query)
    for text in map(analysed, record.positives):
        source.whole[query].add(text.whole)
        source.runs[query].setdefault(text.whole, text.runs)
        if text.whole not in source.seen_positives:
            source.seen_positives.add(text.whole)
            source.positive_openings.add(text.opening)


def _gather_negatives(source: _Source, record: Record, known: tuple[Positives, ...]) -> None:
    query = text_key("query", record.query)
    first_positive = analysed(record.positives[0]).whole
    for ordinal, negative in enumerate(record.negatives):
        text = analysed(negative)
        key = (query, first_positive, text.whole)
        _add(source, query, (record.path, record.line, ordinal), text.whole, text.opening)
        source.flags["known_positive"].append(any(copies(text, positives, query) for positives in known))
        source.flags["duplicate"].append(key in source.listed)
        source.flags["preamble"].append(is_preamble(negative))
        source.flags["empty"].append(text.is_empty)
        source.listed.add(key)
        if text.whole not in source.seen_negatives:
            source.seen_negatives.add(text.whole)
            source.negative_openings.add(text.opening)
    for reason, count in record.dropped:
        if reason == "empty_negative":
            for _ in range(count):
                _add_empty(source, query, (record.path, record.line, 0))


def _add(source: _Source, query: bytes, place: Place, whole: int, start: str | None) -> None:
    source.cluster.append(source.queries.setdefault(query, len(source.queries)))
    source.text.append(whole)
    source.rows.append(place)
    source.starts.append(start)


def _add_empty(source: _Source, query: bytes, place: Place) -> None:
    """A negative that the reader left out because it is empty: it counts, though nothing else can be said of it."""
    _add(source, query, place, whole_of([]), None)
    for name, flags in source.flags.items():
        flags.append(name == "empty")


def _findings(source: _Source) -> TextFindings:
    flags = {name: np.array(values, np.bool_) for name, values in source.flags.items()}
    common = common_openings(source.negative_openings, source.positive_openings)
    flags["preamble"] |= np.array([start in common for start in source.starts], np.bool_)
    cluster, text = np.array(source.cluster, np.int64), np.array(source.text, np.uint64)
    flags["overused"] = _overused(text, cluster, len(source.queries)) & ~flags["empty"]
    keys = np.frombuffer(b"".join(key.ljust(KEY_BYTES, b"\0") for key in source.queries), np.uint8)
    keys = keys.reshape(-1, KEY_BYTES)
    names = names_of(keys)
    return TextFindings(
        n_negatives=len(cluster),
        shares={name: clustered_mean(flags[name].astype(np.float64), cluster, names) for name in TEXT_BUCKETS},
        places={name: [source.rows[i] for i in np.flatnonzero(flags[name]).tolist()] for name in TEXT_BUCKETS},
        flagged={name: int(flags[name].sum()) for name in TEXT_BUCKETS},
    )


def _overused(text: npt.NDArray[np.uint64], cluster: npt.NDArray[np.int64], n_queries: int) -> npt.NDArray[np.bool_]:
    """(T,) whether a negative's text stands under more queries than OVERUSED_SHARE of them."""
    distinct, number = np.unique(text, return_inverse=True)
    pairs = np.unique(number.astype(np.int64) * n_queries + cluster)
    uses = np.bincount(pairs // n_queries, minlength=len(distinct))
    return np.asarray((uses > max(OVERUSED_LEAST, OVERUSED_SHARE * n_queries))[number])


def fetch(rows: Rows, wanted: set[tuple[str, Place]]) -> dict[tuple[str, Place], tuple[str, str]]:
    """Query and negative of each (split, place), by reading the source once more; "" for a text that is gone."""
    lines = {(split, path, line) for split, (path, line, _) in wanted}
    found: dict[tuple[str, Place], tuple[str, str]] = {}
    if not wanted:
        return found
    for record in _records(rows()):
        if (record.split, record.path, record.line) not in lines:
            continue
        for ordinal in range(max(1, len(record.negatives))):
            key = (record.split, (record.path, record.line, ordinal))
            if key in wanted:
                negative = record.negatives[ordinal] if ordinal < len(record.negatives) else ""
                found[key] = (record.query, negative)
    return found


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
