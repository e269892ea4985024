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

import numpy as np
import numpy.typing as npt

from secid.gate.estimates import Estimate, clustered_mean, names_of
from secid.lexical.boilerplate import Openings, common_openings, is_empty, is_preamble, opening, words
from secid.records import Defect, Record
from secid.texts import text_key

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

Rows = Callable[[], Iterable[Record | Defect]]
"""Opens the files of a source from the start."""
Place = tuple[str, int, int]
"""(path, line, number of the negative in its row)."""


@dataclass(frozen=True)
class Positives:
    """Runs of words of labelled positives, by the text key of their query.

    whole   : hashes of all words of each positive, in order, for equality.
    runs    : one set of run hashes a positive.   modulus: only hashes divisible by it are kept.
    """

    whole: Mapping[bytes, set[int]]
    runs: Mapping[bytes, list[frozenset[int]]]
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


def runs_of(tokens: list[str]) -> frozenset[int]:
    """Hashes of all runs of RUN_WORDS words; the same on every machine. Empty for a shorter text."""
    joined = [" ".join(tokens[i : i + RUN_WORDS]) for i in range(len(tokens) - RUN_WORDS + 1)]
    return frozenset(zlib.crc32(run.encode()) for run in joined)


def whole_of(tokens: list[str]) -> int:
    """Hash of all words of a text in order; 64 bits, so that equal hashes mean equal words."""
    return int.from_bytes(text_key("passage", " ".join(tokens))[:8], "little")


def copies(tokens: list[str], runs: frozenset[int], known: Positives, query: bytes) -> bool:
    """True where the text is, holds, or is cut from one of the query's labelled positives."""
    if whole_of(tokens) in known.whole.get(query, ()):
        return True
    kept = runs if known.modulus == 1 else frozenset(run for run in runs if run % known.modulus == 0)
    for other in known.runs.get(query, ()):
        smaller = min(len(kept), len(other))
        if smaller >= LEAST_RUNS and len(kept & other) >= CONTAINED * smaller:
            return True
    return False


@dataclass
class _Source:
    """What is gathered of one source while its files are read."""

    whole: dict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))
    runs: dict[bytes, dict[int, frozenset[int]]] = field(default_factory=lambda: defaultdict(dict))
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
    for text in record.positives:
        tokens = words(text)
        whole = whole_of(tokens)
        source.whole[query].add(whole)
        if whole not in source.runs[query]:
            source.runs[query][whole] = runs_of(tokens)
        if whole not in source.seen_positives:
            source.seen_positives.add(whole)
            source.positive_openings.add(tokens)


def _gather_negatives(source: _Source, record: Record, known: tuple[Positives, ...]) -> None:
    query = text_key("query", record.query)
    first_positive = whole_of(words(record.positives[0]))
    for ordinal, text in enumerate(record.negatives):
        tokens = words(text)
        whole, runs = whole_of(tokens), runs_of(tokens)
        key = (query, first_positive, whole)
        _add(source, query, (record.path, record.line, ordinal), whole, opening(tokens))
        source.flags["known_positive"].append(any(copies(tokens, runs, positives, query) for positives in known))
        source.flags["duplicate"].append(key in source.listed)
        source.flags["preamble"].append(is_preamble(text))
        source.flags["empty"].append(is_empty(tokens))
        source.listed.add(key)
        if whole not in source.seen_negatives:
            source.seen_negatives.add(whole)
            source.negative_openings.add(tokens)
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
    keys = np.frombuffer(b"".join(key.ljust(16, b"\0") for key in source.queries), np.uint8).reshape(-1, 16)
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
    merged: dict[bytes, dict[frozenset[int], None]] = defaultdict(dict)
    whole: dict[bytes, set[int]] = defaultdict(set)
    for part in parts:
        for query, found in part.runs.items():
            whole[query] |= part.whole[query]
            for runs in found:
                merged[query][frozenset(run for run in runs if run % KEPT_EVERY == 0)] = None
    queries = sorted(whole)
    sets = [
        (number, sorted(runs)) for number, query in enumerate(queries) for runs in sorted(merged[query], key=sorted)
    ]
    lengths = [len(runs) for _, runs in sets]
    return {
        "positive_queries": np.frombuffer(b"".join(queries), np.uint8).reshape(-1, 16).copy(),
        "positive_whole_query": np.array([n for n, query in enumerate(queries) for _ in whole[query]], np.int64),
        "positive_whole": np.array([value for query in queries for value in sorted(whole[query])], np.uint64),
        "positive_run_query": np.array([number for number, _ in sets], np.int64),
        "positive_run_lengths": np.array(lengths, np.int64),
        "positive_runs": np.array([run for _, runs in sets for run in runs], np.uint32),
    }


def restored(arrays: Mapping[str, npt.NDArray[np.generic]]) -> Positives:
    """The inverse of `stored`."""
    queries = [bytes(row) for row in arrays["positive_queries"]]
    whole: dict[bytes, set[int]] = defaultdict(set)
    for number, value in zip(arrays["positive_whole_query"].tolist(), arrays["positive_whole"].tolist(), strict=True):
        whole[queries[number]].add(value)
    runs: dict[bytes, list[frozenset[int]]] = defaultdict(list)
    ends = np.cumsum(arrays["positive_run_lengths"]).tolist()
    flat = arrays["positive_runs"].tolist()
    start = 0
    for number, end in zip(arrays["positive_run_query"].tolist(), ends, strict=True):
        runs[queries[number]].append(frozenset(flat[start:end]))
        start = end
    return Positives(dict(whole), dict(runs), KEPT_EVERY)
