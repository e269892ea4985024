"""Rows of a source as they are written: texts with their ids, and on disk between the reading and the writing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from secid.read.clean import Item
from secid.read.passages import ID_KEYS, TEXT_KEYS, TITLE_KEY, passage_id
from secid.records import Block, Defect, Record, Scalar, encodable

QUERY_ID = "query_id"
SCORE_COLUMNS = ("pos_scores", "neg_scores")
"""FlagEmbedding's lists of one teacher score a passage."""


class Passage(NamedTuple):
    """text: with the title, where it was joined; then `title` is what it begins with."""

    text: str
    id: str = ""
    title: str = ""
    score: float | None = None


class Row(NamedTuple):
    """One row of a copy.

    query_id : "" where the source names none.   columns : other scalar columns.
    lost     : names of what else the row holds; no schema of a copy holds it.
    """

    query: str
    positives: Sequence[Passage]
    negatives: Sequence[Passage]
    query_id: str = ""
    columns: Mapping[str, Scalar] = {}
    lost: Sequence[str] = ()


class Place(NamedTuple):
    """Where a row was read.   reason: why it gives no record; "" for one that does.   split: as in Record."""

    path: str
    line: int
    split: str | None
    reason: str = ""


def row_of(record: Record) -> Row:
    """A record with what else its row holds."""
    if record.extras is None:
        return Row(record.query, [Passage(t) for t in record.positives], [Passage(t) for t in record.negatives])
    columns, query, positives, negatives = record.extras
    lists = [_scores(columns.get(name)) for name in SCORE_COLUMNS]
    scalars = {str(key): _scalar(value) for key, value in columns.items() if _is_scalar(value)}
    lost = [str(key) for key, value in columns.items() if not _is_scalar(value)]
    lost = [name for name in lost if name not in SCORE_COLUMNS or not lists[SCORE_COLUMNS.index(name)]]
    pos = [_passage(text, cell, lists[0]) for text, cell in zip(record.positives, positives, strict=True)]
    neg = [_passage(text, cell, lists[1]) for text, cell in zip(record.negatives, negatives, strict=True)]
    inside = {key for _, cell in (*positives, *negatives) if isinstance(cell, dict) for key in cell if cell[key]}
    known = {*TEXT_KEYS, *ID_KEYS, *((TITLE_KEY,) if any(passage.title for passage in (*pos, *neg)) else ())}
    lost += sorted(f"{key} of passages" for key in inside - known)  # titles are not lost where they are joined
    return Row(record.query, pos, neg, _id(query, record.query), scalars, lost)


def _passage(text: str, placed: tuple[int, Any], scores: Sequence[float | None]) -> Passage:
    """A passage. placed: its place in the row, and its cell: a text, an id, an object or [instruction, text]."""
    place, cell = placed
    score = scores[place] if place < len(scores) else None
    title = cell.get(TITLE_KEY) if isinstance(cell, dict) else None
    joined = isinstance(title, str) and title != "" and text.startswith(f"{title} ")
    return Passage(text, _id(cell, text), title if isinstance(title, str) and joined else "", score)


def _id(cell: Any, text: str) -> str:
    """The id that is in the place of a text, or with it in an object; "" for none."""
    value = passage_id(cell) if isinstance(cell, dict) else cell
    is_id = isinstance(value, str | int) and not isinstance(value, bool) and value != text
    return encodable(str(value)) if is_id else ""


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _scalar(value: Any) -> Scalar:
    """The value as JSON and Parquet hold it: no NaN, no infinity, no lone surrogate, no number beyond 64 bits."""
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return encodable(value) if isinstance(value, str) else value


def _scores(values: Any) -> list[float | None]:
    """A list of numbers; what is none is None. Empty where it is no list."""
    listed = values if isinstance(values, list) else []
    return [float(v) if isinstance(v, int | float) and isfinite(v) else None for v in listed]


class RowsOnDisk:
    """The rows of one source, kept while they are read for the plan, so that a copy needs no second reading."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def watch(self, items: Iterable[Item | Block]) -> Iterator[Item | Block]:
        """The items, each of them kept."""
        with self._path.open("w", encoding="utf-8") as file:
            for item in items:
                records = item.records() if isinstance(item, Block) else (item,)
                for record in records:
                    row = () if isinstance(record, Defect) else row_of(record)
                    reason = record.reason if isinstance(record, Defect) else ""
                    place = (record.path, record.line, record.split, reason)
                    file.write(json.dumps([place, row]) + "\n")
                yield item

    def rows(self, split: str) -> Iterator[tuple[Place, Row | None]]:
        """The rows of one source of the files, and those too broken to tell, in the order of reading."""
        with self._path.open(encoding="utf-8") as file:
            for line in file:
                given, cells = json.loads(line)
                place = Place(*given)
                if place.split == split and not place.reason:
                    query, positives, negatives, *others = cells
                    yield place, Row(query, [Passage(*p) for p in positives], [Passage(*p) for p in negatives], *others)
                elif place.reason and place.split in (split, None):
                    yield place, None
