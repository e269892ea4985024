"""Turn each row into a record or a defect. Every type is checked, and nothing is repaired."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from secid.read.binding import NOT_THE_SHAPE, Binding, unread_role, with_nulls
from secid.read.stream import Broken, join_title, passage_id, passage_text, shorten, shown, wrong_type
from secid.read.toolkits import as_label
from secid.records import NO_FIELDS, Block, Defect, Extras, Fact, Record, Scalar
from secid.settings import Settings

Lookup = Callable[[str], str | None]
"""Function from an id to its text; None if the collection lacks it."""

RecordOrDefect = Record | Defect
Dropped = Counter[tuple[str, Fact | None]]
"""Number of omitted values by reason and detail."""
NONE_DROPPED: Dropped = Counter()
NULL = ("missing_field", Fact("absent", {"of": "passage"}))
SEQUENCES = frozenset({list, tuple})
MAX_ROWS_ONE_BY_ONE = 4
"""Maximum number of rows read one by one if one of them is bad. A longer block is first split in halves."""


class LabelledPair(NamedTuple):
    """One labelled pair, to be grouped by query.

    split   : as in Record; None for a positive without a source.
    n_late  : number of negatives in columns of the row that the first rows lack.
    columns : the other columns of the row as JSON, if they are kept; else "".
    """

    split: str | None
    query: str
    passage: str
    positive: bool
    path: str
    line: int
    n_late: int = 0
    columns: str = ""


class _Unusable(Exception):  # noqa: N818 - never leaves this module
    """Raised for a row or cell that cannot be used. query, dropped: as in Defect."""

    def __init__(self, reason: str, fact: Fact | None = None, query: str = "", dropped: Dropped = NONE_DROPPED) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fact = fact
        self.query = query
        self.dropped = dropped


class Cleaner:
    """Converter from the rows of one file to records and defects.

    query_of, passage_of : functions from an id to its text; required if the binding reads ids.
    keep              : whether records include the extras of their row.
    """

    def __init__(
        self, binding: Binding, path: str, settings: Settings, query_of: Lookup | None = None,
        passage_of: Lookup | None = None,
        *, keep: bool = False, without_negatives: bool = False,
    ) -> None:  # fmt: skip
        self._binding = binding
        self._keep, self._without_negatives = keep, without_negatives
        self._extract = binding.extract
        self._path = path
        self._titles = settings.titles
        self._threshold = settings.positive_score
        self._source_column = settings.source_column
        self._by = settings.by
        self._query_of = query_of if binding.query_ids else None
        self._passage_of = passage_of if binding.passage_ids else None
        plain = not (binding.splits or binding.pairs or binding.labelled or self._source_column)
        self._known = set(binding.head_columns)
        self._roles: dict[str, str] = {}
        self._n_columns = len(set(binding.columns or ()))
        self._quick = plain and not keep and self._by is None and self._query_of is None and self._passage_of is None

    def blocks(self, numbers: Sequence[int], rows: Sequence[Any]) -> Iterator[RecordOrDefect | Block]:
        """Yield one block if all rows are good; otherwise smaller blocks, and single items near bad rows."""
        if self._quick:
            block = self._block(numbers, rows)
            if block is not None:
                yield block
                return
            if len(rows) > MAX_ROWS_ONE_BY_ONE:
                middle = len(rows) // 2
                yield from self.blocks(numbers[:middle], rows[:middle])
                yield from self.blocks(numbers[middle:], rows[middle:])
                return
        for number, row in zip(numbers, rows, strict=True):
            yield from self.items(number, row)

    def _block(self, numbers: Sequence[int], rows: Sequence[Any]) -> Block | None:
        """Return the records of the rows as a block; None if some row must be checked by itself."""
        try:
            queries, positives, negatives = zip(*map(self._extract, rows), strict=True)
            n_positives, n_negatives = list(map(len, positives)), list(map(len, negatives))
            passages = self._texts(chain.from_iterable(zip(positives, negatives, strict=True)))
            if self._has_late_columns(rows):
                return None
            lists = SEQUENCES.issuperset(map(type, chain(positives, negatives)))
            # str.strip raises for a value that is not a text, and returns "" for a blank one.
            if lists and all(n_positives) and all(n_negatives) and all(map(str.strip, chain(queries, passages))):
                return Block(queries, passages, n_positives, n_negatives, self._path, numbers)
        except (*NOT_THE_SHAPE, ValueError):
            pass
        return None

    def _has_late_columns(self, rows: Sequence[Any]) -> bool:
        """Tell whether any row has passages in columns that the first rows lack. Each row has all bound columns."""
        if not self._known or sum(map(len, rows)) == self._n_columns * len(rows):
            return False
        return not self._known.issuperset(chain.from_iterable(rows)) and any(map(self._late_columns, rows))

    def _late_columns(self, row: Any) -> dict[str, str]:
        """Return column -> role of passages in columns that the first rows lack. Remember columns without a role."""
        late = {}
        for key in row.keys() - self._known if self._known and isinstance(row, dict) else ():
            if key not in self._roles:
                self._roles[key] = unread_role(key, self._binding)
            if not self._roles[key]:
                self._known.add(key)
            elif row[key] is not None:
                late[key] = self._roles[key]
        return late

    def _n_cells(self, value: Any) -> int:
        """Count the negatives that a cell or list may hold: non-empty texts, objects, lists; whole numbers if ids."""
        kinds = str | dict | list | int if self._binding.passage_ids else str | dict | list
        cells = value if isinstance(value, list) else [value]
        return sum(cell not in ("", {}, []) and isinstance(cell, kinds) and type(cell) is not bool for cell in cells)

    def _texts(self, cells: Iterable[Sequence[Any]]) -> list[str]:
        """Return the passage texts of the rows, titles joined. If any text is blank, return [""] to reject the rows."""
        passages = list(chain.from_iterable(cells))
        if dict not in set(map(type, passages)):
            return passages
        texts = [passage if type(passage) is str else passage["text"] for passage in passages]
        if not self._titles:
            return texts
        if not all(map(str.strip, texts)):
            return [""]
        return [
            passage["title"] + " " + text if type(passage) is dict and passage.get("title") else text
            for passage, text in zip(passages, texts, strict=True)
        ]

    def items(self, line: int, row: Any) -> Iterator[RecordOrDefect]:
        """Yield one item for each source that a row belongs to."""
        split: str | None = None if self._source_column or self._binding.splits else ""
        left_out: Dropped = Counter()
        try:
            query, positives, negatives = self._cells(row)
            if late := self._late_columns(row):
                for key in late.keys() - set(self._binding.late_negatives(row)):
                    reason = "late_column" if late[key] == "negative" else "unusable_positive"
                    left_out[reason, Fact("late_columns", {"columns": key})] += self._n_cells(row[key])
            if self._source_column:
                split = self._split_of(row)
            if self._binding.labelled:
                positives, negatives = self._by_label(positives, negatives)
            if not self._binding.splits:
                item = self._record(line, query, positives, negatives, split or "", self._fields(row), left_out)
                yield self._with_extras(item, row, query, positives, negatives)
                return
            if negatives is None:
                raise _Unusable("no_negatives", Fact("absent", {"of": "negatives"}))
            if not isinstance(negatives, dict):
                raise _Unusable("wrong_type", wrong_type(negatives, "negatives", "object"))
        except _Unusable as trouble:
            yield self._defect(line, trouble, split, left_out)
            return
        if not negatives:
            yield self._defect(line, _Unusable("no_negatives"), None, left_out)
        for key, values in negatives.items():
            name = f"{self._split_of(row)}:{key}" if self._source_column else str(key)
            item = self._record(line, query, positives, values, name, self._fields(row), left_out)
            yield self._with_extras(item, row, query, positives, values)
            left_out = Counter()

    def pair(self, line: int, row: Any) -> LabelledPair | Defect:
        split: str | None = None if self._source_column else ""
        try:
            query, passage, label = self._cells(row)
            positive = self._is_positive(label)
            if self._source_column and not (positive and row.get(self._source_column) in (None, "")):
                split = self._split_of(row)
            query_text = self._query(query)
            texts, dropped = self._usable((passage,), "no_positive" if positive else "empty_negative")
            if not texts:
                raise _Unusable(*_verdict(dropped, "missing_field"), query_text, dropped)
            n_late = sum(self._n_cells(row[key]) for key in self._late_columns(row))
            columns = self._columns_of_pair(row, query, passage) if self._keep else ""
            return LabelledPair(split, query_text, texts[0], positive, self._path, line, n_late, columns)
        except _Unusable as trouble:
            return self._defect(line, trouble, split)

    def _columns_of_pair(self, row: Any, query: Any, passage: Any) -> str:
        """Return the unread columns, and the ids that the collection resolves, as JSON.

        A value that JSON cannot hold becomes an empty list, because copies cannot hold it either.
        """
        ids = {"query_id": query} if self._query_of is not None else {}
        if self._passage_of is not None:
            ids["docid"] = passage_id(passage) if isinstance(passage, dict) else passage
        return json.dumps({**ids, **self._unread_columns(row)}, default=lambda _: [])

    def _with_extras(
        self, item: RecordOrDefect, row: Any, query: Any, positives: Any, negatives: Any
    ) -> RecordOrDefect:
        """Return the item. If it is a record and extras are kept, add the extras of its row."""
        if not self._keep or not isinstance(item, Record):
            return item
        good, bad = self._listed(positives, "no_negatives"), self._listed(self._or_empty(negatives), "no_negatives")
        used = self._cells_used(good, "no_positive"), self._cells_used(bad, "empty_negative")
        return item._replace(extras=Extras(self._unread_columns(row), query, *used, (len(good), len(bad))))

    def _unread_columns(self, row: Any) -> dict[str, Any]:
        read = {*(self._binding.columns or ()), *self._binding.late_negatives(row)}
        return {key: value for key, value in row.items() if key not in read} if isinstance(row, dict) else {}

    def _cells_used(self, cells: Any, empty: str) -> list[tuple[int, Any]]:
        """Return (position, value) of each cell with a usable text. empty: reason for blank texts, as in `_passage`."""
        return [(place, cell) for place, cell in enumerate(cells) if self._usable((cell,), empty)[0]]

    def _fields(self, row: Any) -> Mapping[str, Scalar]:
        """Return {slicing column: value}, with None for a value that is not a scalar; {} without slices."""
        if self._by is None or not isinstance(row, dict):
            return NO_FIELDS
        value = row.get(self._by)
        return {self._by: value if isinstance(value, str | int | float | bool) else None}

    def _record(
        self, line: int, query: Any, positives: Any, negatives: Any, split: str, row_fields: Mapping[str, Scalar],
        left_out: Dropped,
    ) -> RecordOrDefect:  # fmt: skip
        """Return the record of these cells, or a defect. left_out: count of unread passages for each (reason, fact)."""
        try:
            text = self._query(query)
            good, dropped = self._usable(self._listed(positives, "missing_field"), "no_positive")
            if not good:
                # A null cell is a missing field; a list of nulls is a list without a positive.
                raise _Unusable(*_verdict(dropped, "missing_field" if type(positives) is tuple else "no_positive"))
            left_out["unusable_positive", None] += dropped.total()
            if type(negatives) is tuple and len(negatives) > 1:  # rows may have fewer negatives than columns
                negatives = tuple(cell for cell in negatives if cell is not None) or negatives
            bad, dropped = self._usable(self._listed(self._or_empty(negatives), "no_negatives"), "empty_negative")
            if not (bad or self._without_negatives):
                raise _Unusable(*_verdict(dropped, "no_negatives"), text, dropped)
        except _Unusable as trouble:
            return self._defect(line, trouble, split, left_out)
        counts = tuple(sorted(_by_reason(left_out + dropped).items()))
        return Record(text, tuple(good), tuple(bad), self._path, line, split, counts, row_fields)

    def _cells(self, row: Any) -> tuple[Any, Any, Any]:
        """Return (query, positives, negatives) of a row. Missing columns count as null."""
        if isinstance(row, Broken):
            raise _Unusable(row.reason, row.fact)
        columns = self._binding.columns
        if isinstance(row, dict) != (columns is not None):
            raise _Unusable("wrong_type", wrong_type(row, "row", "list" if columns is None else "object"))
        try:
            query, positives, negatives = self._extract(with_nulls(row, self._binding))
            for key in self._binding.late_negatives(row) if self._late_columns(row) else ():
                negatives = (*negatives, row[key])
            return query, positives, negatives
        except NOT_THE_SHAPE as error:
            fact = Fact("shape", {"error": shorten(f"{type(error).__name__}: {error}")})
            raise _Unusable("wrong_type", fact) from error

    def _split_of(self, row: Any) -> str:
        value = row.get(self._source_column) if isinstance(row, dict) else None
        if not isinstance(value, str | int) or value == "":
            of = str(self._source_column)
            fact = Fact("empty", {"of": of}) if value == "" else wrong_type(value, of, "text")
            raise _Unusable("missing_field", fact)
        return str(value)

    def _by_label(self, passages: Any, labels: Any) -> tuple[list[Any], list[Any]]:
        if not isinstance(passages, list) or not isinstance(labels, list):
            reason = "string_for_list" if isinstance(passages, str) or isinstance(labels, str) else "wrong_type"
            of, value = ("labels", labels) if isinstance(passages, list) else ("passages", passages)
            raise _Unusable(reason, wrong_type(value, of, "list"))
        if len(passages) != len(labels):
            fact = Fact("label_count", {"n_labels": len(labels), "n_passages": len(passages)})
            raise _Unusable("wrong_type", fact)
        positives: list[Any] = []
        negatives: list[Any] = []
        for passage, label in zip(passages, labels, strict=True):
            (positives if self._is_positive(label) else negatives).append(passage)
        if negatives and not positives:
            raise _Unusable("none_relevant")
        return positives, negatives

    def _is_positive(self, label: Any) -> bool:
        if label is None:
            raise _Unusable("missing_field", Fact("absent", {"of": "label"}))
        number = as_label(label)
        if number is None or math.isnan(number):
            raise _Unusable("wrong_type", Fact("label", {"label": shown(label, 60)}))
        if self._threshold is not None:
            return number >= self._threshold
        if number not in (0.0, 1.0):
            raise _Unusable("wrong_type", Fact("label_threshold", {"label": f"{number:g}"}))
        return number == 1.0

    def _query(self, value: Any) -> str:
        if self._binding.pairs and isinstance(value, list) and len(value) == 2:
            value = value[1]
        if value is None:
            raise _Unusable("missing_field", Fact("absent", {"of": "query"}))
        if self._query_of is not None:
            return _looked_up(self._query_of, value, "query")
        if not isinstance(value, str):
            raise _Unusable("wrong_type", wrong_type(value, "query", "text"))
        if not value.strip():
            raise _Unusable("empty_query")
        return value

    def _or_empty(self, negatives: Any) -> Any:
        """Return the negatives of a row, or () for null if rows may lack negatives."""
        return () if negatives is None and self._without_negatives else negatives

    def _listed(self, values: Any, absent: str) -> Any:
        """Return the positives or negatives of a row as a list or a tuple of cells."""
        if isinstance(values, list | tuple):
            return values
        of = "negatives" if absent == "no_negatives" else "positives"
        if values is None:
            raise _Unusable(absent, Fact("absent", {"of": of}))
        if self._binding.either:
            return (values,)
        if isinstance(values, str):
            raise _Unusable("string_for_list", Fact("string", {"text": shorten(values, 60)}))
        raise _Unusable("wrong_type", wrong_type(values, of, "list"))

    def _usable(self, values: Any, empty: str) -> tuple[list[str], Dropped]:
        """Return the texts of the usable values, and the numbers of other values by reason and fact."""
        texts: list[str] = []
        dropped: Dropped = Counter()
        n_null = 0
        for value in values:
            if value is None:
                n_null += 1  # lists may be padded with thousands of nulls, so raise no exception for each
                continue
            try:
                texts.append(self._passage(value, empty))
            except _Unusable as trouble:
                # A list in place of a text counts as all its texts.
                dropped[trouble.reason, trouble.fact] += max(1, self._n_cells(value))
        if n_null:
            dropped[NULL] += n_null
        return texts, dropped

    def _passage(self, value: Any, empty: str) -> str:
        """Return the text of one passage cell. empty: reason for a blank text; "no_positive" marks a positive."""
        title: Any = None
        if isinstance(value, Broken):
            raise _Unusable(value.reason, value.fact)
        lookup = None if self._binding.positive_texts and empty == "no_positive" else self._passage_of
        if self._binding.pairs and isinstance(value, list) and len(value) == 2:
            value = value[1]
        if isinstance(value, dict):
            title = value.get("title")
            value = passage_id(value) if lookup is not None else passage_text(value)
        if value is None:
            raise _Unusable(*NULL)
        if lookup is not None:
            return _looked_up(lookup, value, "passage")
        if not isinstance(value, str):
            raise _Unusable("wrong_type", wrong_type(value, "passage", "text"))
        if not value.strip():
            raise _Unusable(empty)
        return join_title(title, value) if self._titles else value

    def _defect(self, line: int, trouble: _Unusable, split: str | None, left_out: Dropped = NONE_DROPPED) -> Defect:
        dropped = tuple(sorted(_by_reason(trouble.dropped).items()))
        reason, fact = trouble.reason, trouble.fact
        late = [str(of.values["columns"]) for (why, of), n in left_out.items() if why == "late_column" and n and of]
        if reason == "no_negatives" and late:
            reason, fact = "late_column", Fact("late_columns", {"columns": shorten(", ".join(late))})
        return Defect(reason, self._path, line, fact, split, query=trouble.query, dropped=dropped)


def _looked_up(lookup: Lookup, value: Any, what: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise _Unusable("wrong_type", wrong_type(value, what, "id"))
    text = lookup(str(value))
    if text is None or not text.strip():
        raise _Unusable("text_not_found", Fact("unknown_id", {"of": what, "id": shorten(str(value), 60)}))
    return text


def _by_reason(dropped: Dropped) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (reason, _), n in dropped.items():
        counts[reason] += n
    return counts


def _verdict(dropped: Dropped, none: str) -> tuple[str, Fact | None]:
    """Return why no text is left: the commonest reason except null, the first in a tie; `none` if all were null."""
    reasons = [(key, n) for key, n in dropped.items() if key[0] != "missing_field"]
    if not reasons:
        return (none, NULL[1]) if dropped else (none, Fact("empty_list"))
    return max(reasons, key=lambda pair: pair[1])[0]
