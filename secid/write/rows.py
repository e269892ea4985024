"""Collect the rows of a source for writing, with texts and ids. They are on disk between reading and writing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from secid.read.binding import NEGATIVE_IDS, POSITIVE_IDS
from secid.read.clean import RecordOrDefect
from secid.read.stream import ID_KEYS, TEXT_KEYS, TITLE_KEY, passage_id
from secid.records import Block, Defect, Extras, Record, Scalar, encodable

QUERY_ID = "query_id"
SCORE_COLUMNS = ("pos_scores", "neg_scores")
"""FlagEmbedding's lists of teacher scores, one per passage."""
ID_COLUMNS = ("pos_ids", "neg_ids")
PROVENANCE = {"rank": "neg_ranks", "margin": "neg_margins", "miner": "neg_miners"}
"""Field of a mined negative -> column that lists its values in FlagEmbedding's schema."""
NEGATIVE_COLUMNS = (SCORE_COLUMNS[1], *PROVENANCE.values())
PASSAGE_ID_COLUMNS = (POSITIVE_IDS, NEGATIVE_IDS)
"""Patterns of id columns next to the text columns of positives and negatives, without numbers in the names."""


class Passage(NamedTuple):
    """A passage.

    text   : text of the passage; if the title was joined, it begins with `title`.
    rank, margin, miner : for a mined negative, its rank in the results of `miner`, s_qp - s_qn, and the miner's name.
    """

    text: str
    id: str = ""
    title: str = ""
    score: float | None = None
    rank: int | None = None
    margin: float | None = None
    miner: str = ""


class CopyRow(NamedTuple):
    """One row of a copy.

    query_id    : id of the query; "" if the source has none.   columns : other columns with scalar values.
    unsupported : names of the row's other contents, which no schema of a copy can hold.
    """

    query: str
    positives: Sequence[Passage]
    negatives: Sequence[Passage]
    query_id: str = ""
    columns: Mapping[str, Scalar] = {}
    unsupported: Sequence[str] = ()


class Place(NamedTuple):
    """Origin of a row. split: as in Record. reason: why the row is not a record; "" if it is one."""

    path: str
    line: int
    split: str | None
    reason: str = ""


def row_of(record: Record) -> CopyRow:
    """Return a record as a row to write, with its extras. Without extras, the row holds only texts."""
    sides = record.positives, record.negatives
    cells_of = [list(enumerate(side)) for side in sides]
    extras = record.extras or Extras({}, record.query, cells_of[0], cells_of[1])
    columns, query, cells = extras.columns, extras.query, (extras.positives, extras.negatives)
    scalars = {encodable(str(key)): _scalar(value) for key, value in columns.items() if _is_scalar(value)}
    used: set[str] = set()
    passages = []
    for texts, placed, n_listed, ids, scores in zip(
        sides, cells, extras.n_listed, PASSAGE_ID_COLUMNS, SCORE_COLUMNS, strict=True
    ):
        n = {max((place for place, _ in placed), default=-1) + 1, n_listed}
        names = [name for name in columns if _is_id_column(name, ids)]
        of_ids = _aligned_values(columns, names, n, _is_id)
        of_scores = _aligned_values(columns, [scores] if scores in columns else [], n, _is_number)
        used |= {*(names if of_ids else ()), *((scores,) if of_scores else ())}
        passages.append([
            _passage(text, cell, of_ids[place] if of_ids else None, of_scores[place] if of_scores else None)
            for text, (place, cell) in zip(texts, placed, strict=True)
        ])  # fmt: skip
        for name, column in PROVENANCE.items() if ids == NEGATIVE_IDS else ():
            if values := _aligned_values(columns, [column] if column in columns else [], n, MINED_FIELDS[name]):
                used.add(column)
                passages[-1] = [
                    passage._replace(**{name: values[place]})
                    for passage, (place, _) in zip(passages[-1], placed, strict=True)
                ]
    scalars = {key: value for key, value in scalars.items() if key not in used.intersection(ID_COLUMNS + SCORE_COLUMNS)}
    used |= {name for name in NEGATIVE_COLUMNS if _is_blank(columns.get(name))}
    unsupported = [str(key) for key, value in columns.items() if not _is_scalar(value) and key not in used]
    unsupported += _lost_passage_fields(
        [cell for side in cells for _, cell in side], any(p.title for p in chain(*passages))
    )
    return CopyRow(record.query, passages[0], passages[1], _id(query, record.query), scalars, unsupported)


def _aligned_values(
    columns: Mapping[str, Any], names: list[str], n: set[int], fits: Callable[[Any], bool]
) -> list[Any]:
    """Return one value per passage of the row, from a list or from one column per passage; [] if they do not align.

    n     : allowed numbers of values: the number of the row's passages, or the number up to the last usable one.
    """
    values = [columns[name] for name in sorted(names, key=_number_in)]
    if len(values) == 1 and isinstance(values[0], list):
        values = list(values[0])
    while len(values) > max(n) and values[-1] is None:  # lists are padded
        values.pop()
    whole = len(values) in n and all(value is None or fits(value) for value in values)
    return values if whole and any(value is not None for value in values) else []


@cache
def _is_id_column(name: str, pattern: str) -> bool:
    """Return whether a column's name, such as neg_ids or negative_2_id, matches a pattern of PASSAGE_ID_COLUMNS."""
    return bool(re.fullmatch(pattern, re.sub(r"[_ -]?\d+", "", name), re.IGNORECASE))


def _number_in(name: str) -> int:
    """Return the number in a column's name, such as 2 for negative_2_id; 0 without one."""
    number = re.search(r"\d+", name)
    return int(number.group()) if number else 0


def _passage(text: str, cell: Any, own_id: Any, score: Any) -> Passage:
    """Return a passage. cell: the passage as in the source: a text, an id, an object or [instruction, text]."""
    title = cell.get(TITLE_KEY) if isinstance(cell, dict) else None
    joined = isinstance(title, str) and title != "" and text.startswith(f"{title} ")
    name = _id(cell, text) or ("" if own_id is None else encodable(str(own_id)))
    mined = {key: cell[key] for key in MINED_FIELDS if cell.get(key) is not None} if isinstance(cell, dict) else {}
    fields = {"score": score, **{key: value for key, value in mined.items() if MINED_FIELDS[key](value)}}
    return Passage(text, name, title if isinstance(title, str) and joined else "", **fields)


def _lost_passage_fields(cells: Sequence[Any], titled: bool) -> list[str]:
    """Return the fields that a copy cannot hold: all but the text, the id, a joined title and MINED_FIELDS."""
    known = {*TEXT_KEYS, *ID_KEYS, *MINED_FIELDS, *((TITLE_KEY,) if titled else ())}
    inside = {key for cell in cells if isinstance(cell, dict) for key in cell if cell[key] not in (None, "")}
    pairs = ["instructions"] if any(isinstance(cell, list) for cell in cells) else []
    return [*pairs, *sorted(f"{key} of passages" for key in inside - known)]


def _id(cell: Any, text: str) -> str:
    """Return the id in a cell that is an id, or an object with a text and an id; "" without one."""
    value = passage_id(cell) if isinstance(cell, dict) else cell
    return encodable(str(value)) if _is_id(value) and value != text else ""


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and value != ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _is_blank(value: Any) -> bool:
    """Return whether a value is a list of nulls, like the scores and ranks of random negatives."""
    return isinstance(value, list) and value != [] and all(item is None for item in value)


MINED_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "score": _is_number, "rank": _is_number, "margin": _is_number, "miner": lambda value: isinstance(value, str),
}  # fmt: skip
"""Field of a mined negative that an object may hold next to its text -> function that checks its value."""


def _scalar(value: Scalar) -> Scalar:
    """Return the value without lone surrogates, which no file can hold."""
    return encodable(value) if isinstance(value, str) else value


class RowsOnDisk:
    """Store of a source's rows. They are stored while the plan reads them, so that a copy need not read them again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def watch(self, items: Iterable[RecordOrDefect | Block]) -> Iterator[RecordOrDefect | Block]:
        with self._path.open("w", encoding="utf-8") as file:
            for item in items:
                records = item.records() if isinstance(item, Block) else (item,)
                for record in records:
                    row = () if isinstance(record, Defect) else row_of(record)
                    reason = record.reason if isinstance(record, Defect) else ""
                    place = (record.path, record.line, record.split, reason)
                    file.write(json.dumps([place, row]) + "\n")
                yield item

    def rows(self, split: str | None) -> Iterator[tuple[Place, CopyRow | None]]:
        """Yield (place, row) of each row in reading order. split: one source of the files, or None for all sources.

        The row is None if it was skipped. A row too broken to name its source is yielded for every source.
        """
        with self._path.open(encoding="utf-8") as file:
            for line in file:
                fields, cells = json.loads(line)
                place = Place(*fields)
                if not place.reason and split in (place.split, None):
                    query, positives, negatives, *others = cells
                    yield (
                        place,
                        CopyRow(query, [Passage(*p) for p in positives], [Passage(*p) for p in negatives], *others),
                    )
                elif place.reason and (place.split in (split, None) or split is None):
                    yield place, None
