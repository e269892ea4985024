"""What speaks against the one reading that fits: columns that it would lose or take for what they are not."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from secid.errors import InputError, SchemaError
from secid.read.headers import header_of
from secid.read.passages import TEXT_KEYS, passage_text
from secid.read.rows import shorten, shown
from secid.read.schemas.binding import Binding, extracted
from secid.read.schemas.explain import TEXTS, list_columns
from secid.read.schemas.head import LISTS, SCALARS, Head, Key
from secid.read.schemas.labels import FLAGS, LABEL_WORDS, as_label
from secid.read.schemas.patterns import has_word, unread_role
from secid.settings import Settings, flag_of

SCALAR = r"(?:-?\d[\d.eE+-]{0,20}|None|null|[Tt]rue|[Ff]alse|nan|NaN)"
LIST_BEGINS = re.compile(rf"""array\(|\{{\s*["']|[\[(]\s*(?:["']|{SCALAR}\s*,)|\[\s*(?:[\[({{]|array\()""")
LIST_ENDS = re.compile(rf"""(?:["'\])}}]|,|[,:]\s*{SCALAR})\s*[\])}}]$|dtype=[^()]+\)$""")
WRITTEN_NUMBERS = re.compile(r"\[[\s\d.,-]*\]")
"""What a list, tuple, array or object begins and ends with where Python, numpy or JSON has printed it."""

LAST = 64
"""Characters that are searched for its end, so that long texts cost nothing."""

TITLE = re.compile(r"(?i)titles?")

HEADER_ROWS = 20
"""Rows of arrays that show whether the first holds the names."""


def refuse_unread(binding: Binding, head: Head, source_column: str | None, path: str) -> tuple[str, ...]:
    """The columns of passages by their names that the binding leaves out, since they are empty in the first rows.

    Raises SchemaError where one is not empty there.
    """
    if binding.columns is None:
        return ()
    others = [key for key in map(str, head.kinds) if key not in binding.columns and key != source_column]
    others = [key for key in others if unread_role(key, binding)]
    # What a single odd row of many has says nothing of the column.
    empty = [key for key in others if sum(map(bool, head.column(key))) < min(2, len(head.rows))]
    kinds = SCALARS | LISTS if binding.passage_ids else TEXTS
    for role, read in (("negative", binding.negatives), ("positive", binding.positives)):
        unread = [key for key in others if key not in empty and unread_role(key, binding) == role]
        unread = [key for key in unread if head.kinds[key] in kinds]
        if unread:
            more = "to read all, write them as one list"
            if role == "negative":
                more = "columns named `neg_bm25`, `neg_dense`, ... are read as a source each"
            column = read.partition("…")[0]
            flag = f"--format {binding.schema}" if binding.labelled or binding.splits else f"--{role}-column {column}"
            raise SchemaError(
                f"several readings fit: the {role}s are {read}, or {', '.join(unread)}{list_columns(head)}",
                where=path,
                remedy=f"{flag} leaves out {', '.join(unread)}; {more}",
            )
    return tuple(empty)


def refuse_textless(binding: Binding, head: Head, path: str) -> None:
    """Raises SchemaError where most passages are objects whose text has no known name."""
    if binding.passage_ids or binding.splits:
        return
    for side in (1,) if binding.labelled else (1, 2):
        passages: list[Any] = []
        for cells in extracted(binding, head):
            passages.extend(cells[side] if isinstance(cells[side], list | tuple) else (cells[side],))
        textless = [value for value in passages if isinstance(value, dict) and passage_text(value) is None]
        if 2 * len(textless) > len(passages):
            keys = ", ".join(dict.fromkeys(str(key) for value in textless for key in value))
            raise SchemaError(
                "passages are objects, and none of their keys is known to hold the text: "
                f"{shorten(keys, 200)}{list_columns(head)}",
                where=path,
                remedy=f"name it `text`, or write passages as a list of texts; known are {', '.join(TEXT_KEYS)}",
            )


def refuse_odd_lists(binding: Binding, head: Head, path: str) -> None:
    """Raises SchemaError where passages are lists in lists, or lists written as text, brackets and all."""
    for key in binding.columns if binding.columns is not None else list(head.kinds):
        texts = [value for value in head.column(key) if isinstance(value, str)]
        if texts and 2 * sum(map(_is_written, texts)) > len(texts):
            raise SchemaError(
                f"the column {key} holds lists written as text: {shorten(texts[0], 60)}",
                where=path,
                remedy="write them as lists: in pandas `to_json(path, orient='records', lines=True)`",
            )
        if head.kinds.get(key) == "lists" and not binding.pairs and binding.schema != "ms-swift":
            raise SchemaError(
                f"the column {key} holds lists in lists: {shown(head.typical(key)[0], 60)}",
                where=path,
                remedy="write each passage as a text, or as an object with `text`, all in one list",
            )


def _is_written(text: str) -> bool:
    text = text.strip()
    ends = LIST_BEGINS.match(text) and LIST_ENDS.search(text[-LAST:])
    return bool(ends or WRITTEN_NUMBERS.fullmatch(text))


def refuse_labels(binding: Binding, head: Head, settings: Settings, path: str) -> None:
    """Raises SchemaError for scores without a threshold, and for words; single odd labels are left to be counted."""
    if not binding.labelled or settings.positive_score is not None:
        return
    labels: list[object] = []
    for *_, value in extracted(binding, head):
        labels.extend(value if isinstance(value, list) else [value])
    # `secid check` takes any number of bad rows, but what the labels mean must be clear there too.
    single = settings.max_bad_fraction if math.isfinite(settings.max_bad_fraction) else Settings().max_bad_fraction
    refuse_words(labels, path, min(single, 0.5))
    odd = [number for label in labels if (number := as_label(label)) is not None and number not in FLAGS]
    if len(odd) > single * len(labels):
        some = ", ".join(f"{number:g}" for number in list(dict.fromkeys(odd))[:6])
        raise SchemaError(
            f"labels other than 0 and 1 ({some}): which of them are positives?",
            where=path,
            remedy="--positive-score X makes passages scored X or more the positives and the others the negatives",
        )


def refuse_words(labels: Sequence[Any], path: str, limit: float = 0.5) -> None:
    """Raises SchemaError where a larger share of labels are words that do not say which passages are positives."""
    words = [label for label in labels if isinstance(label, str) and as_label(label) is None]
    if len(words) > limit * len(labels):
        some = ", ".join(shorten(word, 30) for word in list(dict.fromkeys(words))[:6])
        raise SchemaError(
            f"labels in words ({some}): which of them are positives?",
            where=path,
            remedy=f"write 1 and 0 (known words are {', '.join(LABEL_WORDS)}), or scores, with --positive-score X",
        )


def refuse_names(head: Head, path: str) -> None:
    """Raises SchemaError where the first of rows without names may hold the names, as a table's header does."""
    rows = [[*map(shown, row)] for row in head.rows[:HEADER_ROWS] if len(row) == len(head.rows[0])]
    try:
        names = header_of(rows, None, path)
    except InputError:
        names = tuple(rows[0])
    if names:
        raise SchemaError(
            f"the first row may name the columns or be one of texts: {shorten(', '.join(names), 100)}",
            where=path,
            remedy=f"{flag_of('header', False)} reads it as a row; if it holds the names, write each row as an object",
        )


def refuse_titles(binding: Binding, head: Head, path: str) -> None:
    """Raises SchemaError for titles in columns of their own next to passages that are texts.

    A column `title` of a row with several passages may be anyone's, and is not read.
    """
    if binding.columns is None or binding.passage_ids or head.kinds.get(binding.columns[1]) not in ("text", "texts"):
        return
    titles = [str(key) for key, kind in head.kinds.items() if kind in ("text", "texts") and key not in binding.columns]
    titles = [name for name in titles if has_word(name, TITLE) and (binding.labelled or not TITLE.fullmatch(name))]
    if titles:
        raise SchemaError(
            f"titles in columns of their own: {', '.join(titles)}{list_columns(head)}",
            where=path,
            remedy=f"{flag_of('titles', False)} leaves them out; to join them, write each passage as an object: "
            '{"title": "...", "text": "..."}',
        )


def undecided(head: Head, keys: Sequence[Key], message: str, path: str, remedy: str) -> SchemaError:
    """An error that shows the columns, or those that all fit."""
    fit = f": {', '.join(map(str, keys))} all fit" if keys else ""
    return SchemaError(f"{message}{fit}{list_columns(head)}", where=path, remedy=remedy)
