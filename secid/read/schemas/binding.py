"""A binding: where in a row the query, the positives and the negatives are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

from secid.read.rows import Row
from secid.read.schemas.head import LISTS, Head, Key

Labelled = Literal["", "pair", "list"]

Extract = Callable[[Any], tuple[Any, Any, Any]]
"""Row -> (query, positives, negatives), as the row holds them.

positives, negatives: a tuple of single cells, or whatever the one column holds (a list where the
row is right). Raises one of NOT_THE_SHAPE where the row has another one.
"""

NOT_THE_SHAPE = (KeyError, IndexError, TypeError, AttributeError)
"""What an extractor raises on a row of another shape."""


@dataclass(frozen=True, slots=True)
class Binding:
    """How rows of one shape are read.

    query, positives, negatives : where they come from, in words for the user.
    columns    : all that `extract` touches; None for rows without names.
    splits     : negatives are a dict {split: negatives} ("the keys of neg").
    pairs      : texts are [instruction, text] pairs.
    either     : a single text may replace a list.
    labelled   : `extract` gives (query, passage, label), one row a "pair", or (query, passages, labels), a "list".
    query_ids, passage_ids : ids replace the texts.   positive_texts : but those of the positives.
    numbers    : some of these ids are numbers of JSON.
    inner      : the list inside an object of parallel lists that holds the passages ("doc_id"), else "".
    empty_columns : names of the columns of passages that are empty in the first rows and not read.
    known      : names of the other columns of the first rows; empty where rows have no names.
    counted    : roles ("positive", "negative") that no flag settles: columns of theirs that are not read are counted.
    numbered   : name of the columns of negatives but for the number at its end, where each holds one; else "".
    """

    query: str
    positives: str
    negatives: str
    extract: Extract
    columns: tuple[str, ...] | None
    schema: str = ""
    note: str = ""
    splits: bool = False
    pairs: bool = False
    either: bool = False
    labelled: Labelled = ""
    query_ids: bool = False
    passage_ids: bool = False
    positive_texts: bool = False
    numbers: bool = False
    inner: str = ""
    empty_columns: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()
    counted: frozenset[str] = frozenset(("positive", "negative"))
    numbered: str = ""

    def later(self, row: Row) -> list[str]:
        """Columns of one negative, numbered as the bound ones are, that this row has and the first rows have not."""
        if not self.known or not self.numbered or not isinstance(row, dict):
            return []
        keys = [key for key in row if key not in self.known and unnumbered(key) == self.numbered]
        return sorted((key for key in keys if not isinstance(row[key], list)), key=number_of)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Names of all columns of queries and passages, of those too that only later rows fill."""
        return (*(self.columns or ()), *self.empty_columns)

    @property
    def mapping(self) -> str:
        """The mapping in one line: "query=anchor, positive=positive, negatives=negative_1…negative_10"."""
        ids = {(True, True): "ids", (True, False): "query ids", (False, True): "passage ids"}
        notes = [ids.get((self.query_ids, self.passage_ids), ""), self.note]
        tail = "; ".join(note for note in notes if note)
        text = f"query={self.query}, positive={self.positives}, negatives={self.negatives}"
        return f"{text} ({tail})" if tail else text


def extracted(binding: Binding, head: Head) -> Iterator[tuple[Any, Any, Any]]:
    """What the binding extracts of the first rows, without those of another shape."""
    for row in head.rows:
        with suppress(*NOT_THE_SHAPE):
            yield binding.extract(filled(row, binding))


def bind_columns(head: Head, query: Key, positive: Key, negatives: Sequence[Key], **options: Any) -> Binding:
    """Binding of plain columns: a query, a positive, and one or several columns of negatives.

    A column is read as single cells or as lists by its commonest kind, row by row where the first rows
    have only nulls; several columns of negatives are single cells each.
    """
    kinds = head.kinds
    unknown = "null" in (kinds[positive], kinds[negatives[0]]) and len(negatives) == 1
    options["either"] = options.get("either") or unknown
    scalar_positive = kinds[positive] not in LISTS and not options["either"]
    scalar_negative = len(negatives) > 1 or (kinds[negatives[0]] not in LISTS and not options["either"])
    return Binding(
        query=str(query),
        positives=str(positive),
        negatives=span(negatives),
        extract=column_extract(query, positive, negatives, scalar_positive, scalar_negative),
        columns=tuple(map(str, (query, positive, *negatives))) if head.named else None,
        numbered=unnumbered(str(negatives[0])) if head.named and scalar_negative else "",
        **options,
    )


def column_extract(query: Key, positive: Key, negatives: Sequence[Key], cell_p: bool, cell_n: bool) -> Extract:
    """One itemgetter call a row. cell_p, cell_n: positives, negatives are single cells, which become a tuple."""
    get = itemgetter(query, positive, *negatives)
    if not (cell_p or cell_n):
        return get

    def extract(row: Any) -> tuple[Any, Any, Any]:
        cells = get(row)
        return cells[0], cells[1:2] if cell_p else cells[1], cells[2:] if cell_n else cells[2]

    return extract


def span(keys: Sequence[Key]) -> str:
    """Columns in words: "negative", "negative_1…negative_10"."""
    return str(keys[0]) if len(keys) == 1 else f"{keys[0]}…{keys[-1]}"


def number_of(name: str) -> int:
    """The number a column's name ends on; -1 where there is none, so that `negative` comes before `negative_1`."""
    number = re.search(r"(\d+)$", name)
    return int(number.group(1)) if number else -1


def unnumbered(name: str) -> str:
    """A column's name without the number it ends on."""
    return re.sub(r"[_ -]?\d+$", "", name)


def filled(row: Row, binding: Binding) -> Row:
    """The row with null for each column that the binding touches and the row has not."""
    if isinstance(row, dict) and binding.columns is not None:
        return {**dict.fromkeys(binding.columns), **row}
    return row
