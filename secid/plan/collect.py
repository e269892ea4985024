"""Rows of the readers to numbers: texts go to the spool, rows are kept as occurrence numbers."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from secid.records import Defect, Record, Source
from secid.results import Example
from secid.texts import TextSpool

EXAMPLES_PER_REASON = 3
TICK_ROWS = 4096
"""Rows between two calls of the progress callback."""


@dataclass
class Rows:
    """Rows of one source while its files are read; occurrence numbers, not yet ids."""

    name: str
    source: Source
    query: array[int] = field(default_factory=lambda: array("q"))
    slice: array[int] = field(default_factory=lambda: array("q"))
    line: array[int] = field(default_factory=lambda: array("q"))
    file: array[int] = field(default_factory=lambda: array("q"))
    positives: array[int] = field(default_factory=lambda: array("q"))
    n_positives: array[int] = field(default_factory=lambda: array("i"))
    negatives: array[int] = field(default_factory=lambda: array("q"))
    n_negatives: array[int] = field(default_factory=lambda: array("i"))
    skipped: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Example]] = field(default_factory=dict)

    def skip(self, defect: Defect) -> None:
        self.skipped[defect.reason] += 1
        self.show(Example(defect.reason, defect.path, defect.line, defect.detail))

    def show(self, example: Example) -> None:
        shown = self.examples.setdefault(example.reason, [])
        if len(shown) < EXAMPLES_PER_REASON:
            shown.append(example)


def collect(
    source: Source,
    stream: Iterable[Record | Defect],
    queries: TextSpool,
    passages: TextSpool,
    slices: dict[str, int],
    tick: Callable[[], None],
) -> list[Rows]:
    """Rows of one reader by split, in order of appearance. Untold rows count against every split."""
    by_split: dict[str, Rows] = {}
    files = {path: number for number, path in enumerate(source.paths)}
    untold: list[Defect] = []
    add_query, add_passage = queries.add, passages.add
    for number, item in enumerate(stream, 1):
        if number % TICK_ROWS == 0:
            tick()
        if isinstance(item, Defect):
            if item.split is None:
                untold.append(item)
            else:
                _rows_of(by_split, source, item.split).skip(item)
            continue
        query, positives, negatives, path, line, split, dropped, fields = item
        rows = by_split.get(split) or _rows_of(by_split, source, split)
        rows.query.append(add_query(query))
        value = next(iter(fields.values()), None) if fields else None
        rows.slice.append(slices.setdefault("" if value is None else str(value), len(slices)))
        rows.positives.extend(map(add_passage, positives))
        rows.n_positives.append(len(positives))
        rows.negatives.extend(map(add_passage, negatives))
        rows.n_negatives.append(len(negatives))
        rows.line.append(line)
        rows.file.append(files.get(path, 0))
        for reason, count in dropped:
            rows.dropped[reason] += count
            rows.show(Example(reason, path, line, f"{count} of the row's negatives left out"))
    if not by_split:
        _rows_of(by_split, source, "")
    for rows in by_split.values():
        for defect in untold:
            rows.skip(defect)
    return list(by_split.values())


def _rows_of(by_split: dict[str, Rows], source: Source, split: str) -> Rows:
    if split not in by_split:
        by_split[split] = Rows(f"{source.name}:{split}" if split else source.name, source)
    return by_split[split]
