"""What the texts of a source say about it: negatives that are known positives, repeats, preambles or nothing.

Reads the files once for the positives and once for the negatives; no encoder, and no torch.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from secid.gating.runs import NO_POSITIVES, Positives, Runs, analysed, copies, whole_of
from secid.pool.boilerplate import Openings, common_openings, is_preamble
from secid.pool.texts import KEY_BYTES, text_key
from secid.records import Defect, Record
from secid.triplets.estimates import Estimate, clustered_mean, names_of

OVERUSED_SHARE = 0.05
OVERUSED_LEAST = 20
"""A text under more queries than this share of them, and than this number, answers none of them."""
TEXT_BUCKETS = ("known_positive", "duplicate", "overused", "preamble", "empty")

Rows = Callable[[], Iterable[Record | Defect]]
"""Opens the files of a source from the start."""
Place = tuple[str, int, int]
"""(path, line, number of the negative in its row)."""
LEFT_OUT = -1
"""The number of a negative that the reader left out, since those that it keeps are numbered without it."""


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


class Texts:
    """The texts of one source, whose splits ("" for a file that holds one) are told apart: read for their positives
    when made, and for their negatives when asked what they show.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._sources: dict[str, _Source] = defaultdict(_Source)
        for record in _records(rows()):
            _gather_positives(self._sources[record.split], record)
        self.positives = {split: source.positives() for split, source in self._sources.items()}

    def findings(self, known: Positives = NO_POSITIVES) -> dict[str, TextFindings]:
        """What each split shows. To be called once.

        known : positives of a baseline; those of the source itself are always compared with.
        """
        for item in self._rows():
            source = self._sources[item.split or ""]
            if isinstance(item, Record):
                _gather_negatives(source, item, (self.positives[item.split], known))
            _gather_empty(source, item)
        return {split: _findings(source) for split, source in self._sources.items() if len(source.cluster)}


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


def _add(source: _Source, query: bytes, place: Place, whole: int, start: str | None) -> None:
    source.cluster.append(source.queries.setdefault(query, len(source.queries)))
    source.text.append(whole)
    source.rows.append(place)
    source.starts.append(start)


def _gather_empty(source: _Source, item: Record | Defect) -> None:
    """Negatives that the reader left out because they are empty, those of a row that has no others too: they count,
    though nothing else can be said of them.
    """
    for _ in range(dict(item.dropped).get("empty_negative", 0)):
        _add(source, text_key("query", item.query), (item.path, item.line, LEFT_OUT), whole_of([]), None)
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
    """Query and negative of each (split, place), by reading the source once more; "" where gone or empty."""
    lines: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for split, (path, line, ordinal) in wanted:
        lines[split, path, line].append(ordinal)
    found: dict[tuple[str, Place], tuple[str, str]] = {}
    if not wanted:
        return found
    for item in rows():
        negatives = item.negatives if isinstance(item, Record) else ()
        for ordinal in lines.get((item.split or "", item.path, item.line), ()):
            if ordinal < len(negatives):
                negative = "" if ordinal == LEFT_OUT else negatives[ordinal]
                found[item.split or "", (item.path, item.line, ordinal)] = (item.query, negative)
        if len(found) == len(wanted):
            break
    return found
