"""What speaks against the one reading that fits: columns that it would lose or take for what they are not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from secid.errors import InputError, SchemaError
from secid.read.headers import header_of
from secid.read.passages import TEXT_KEYS, passage_text
from secid.read.rows import Row, shorten, shown
from secid.read.schemas.advice import column_flags, negative_flag, seen
from secid.read.schemas.binding import NOT_THE_SHAPE, Binding, filled, unnumbered
from secid.read.schemas.contents import RESERVED, TAG_LENGTH, may_hold_passages
from secid.read.schemas.head import LISTS, Head, Key
from secid.read.schemas.order import is_score
from secid.read.schemas.patterns import (
    ABOUT,
    NEGATIVE,
    NEGATIVE_WORD,
    POSITIVE,
    QUERY,
    fits,
    has_word,
    named,
    role_beside,
)
from secid.read.schemas.refusals import REFUSALS
from secid.read.schemas.special import LABEL_WORDS, are_numbers, as_label, is_pair
from secid.settings import flag_of


def refuse_unread(binding: Binding, head: Head, aside: str | None, path: str) -> tuple[str, ...]:
    """The columns of passages by their names that the binding leaves out, since they are empty in the first rows.

    aside : a column that the user named for something else.
    Raises SchemaError where one is not empty there.
    """
    if binding.columns is None:
        return ()
    named_so = [key for key in map(str, head.kinds) if key not in binding.columns and key != aside]
    named_so = [key for key in named_so if role_beside(key, binding)]
    # What a single odd row of many has says nothing of the column.
    empty = [key for key in named_so if sum(map(bool, head.column(key))) < min(2, len(head.rows))]
    filled = [key for key in named_so if key not in empty and may_hold_passages(head, key, ids=binding.passage_ids)]
    for role, read in (("negative", binding.negatives), ("positive", binding.positives)):
        unread = [key for key in filled if role_beside(key, binding) == role]
        if unread:
            tail = (
                " (one source each: score the file once for each column)"
                if role == "negative"
                else " and leaves out the others; to read all, write them as a list"
            )
            raise SchemaError(
                f"several readings fit: the {role}s are {read}, or {', '.join(unread)}{seen(head)}",
                where=path,
                remedy=f"--{role}-column names the column to read{tail}",
            )
    return tuple(empty)


def refuse_textless(binding: Binding, head: Head, path: str) -> None:
    """Raises SchemaError where most passages are objects whose text has no known name."""
    if binding.passage_ids or binding.splits:
        return
    for place in (1,) if binding.labelled else (1, 2):
        passages = [value for row in head.rows for value in _passages_of(row, place, binding)]
        textless = [value for value in passages if isinstance(value, dict) and passage_text(value) is None]
        if 2 * len(textless) <= len(passages):
            continue
        keys = ", ".join(dict.fromkeys(str(key) for value in textless for key in value))
        raise SchemaError(
            f"passages are objects, and none of their keys is known to hold the text: {shorten(keys, 200)}{seen(head)}",
            where=path,
            remedy=f"name it text, or write passages as a list of texts; known are {', '.join(TEXT_KEYS)}",
        )


def _passages_of(row: Row, place: int, binding: Binding) -> Sequence[Any]:
    try:
        cell = binding.extract(filled(row, binding))[place]
    except NOT_THE_SHAPE:
        return ()
    return cell if isinstance(cell, list | tuple) else (cell,)


def refuse_lists_in_lists(binding: Binding, head: Head, path: str) -> None:
    """Raises SchemaError where passages stand in lists of their own, with a score or together."""
    keys: Sequence[Key] = binding.columns if binding.columns is not None else list(head.kinds)
    for key in keys if not binding.pairs and binding.schema != "ms-swift" else ():
        if head.kinds.get(key) == "lists":
            raise SchemaError(
                f"the column {key} holds lists in lists: {shown(head.typical(key)[0], 60)}",
                where=path,
                remedy="write each passage as a text, or as an object with `text`, all in one list",
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


HEADER_ROWS = 20
"""Rows that a first one of names is looked for by; it tells itself from few."""


def refuse_names(head: Head, path: str) -> None:
    """Raises SchemaError where the first of rows without names holds the names, as a table's header does."""
    rows = [[*map(shown, row)] for row in head.rows[:HEADER_ROWS] if len(row) == len(head.rows[0])]
    try:
        names = header_of(rows, None, path)
    except InputError:
        names = tuple(rows[0])
    if names:
        raise SchemaError(
            f"the first row may name the columns or be one of texts: {shorten(', '.join(names), 100)}",
            where=path,
            remedy=f"take it out, or write each row as an object; {flag_of('header', False)} says that it is a row",
        )


NO_PASSAGE = re.compile(rf"(?i)(.*[_ ])?({ABOUT})")
"""Columns of text that stand beside a passage and are none."""


def refuse_guesses(binding: Binding, head: Head, path: str) -> None:
    """Raises SchemaError where a reading by the order of the columns takes one for what its looks deny."""
    if binding.pairs:
        _refuse_plain_lists(head, path)
    elif head.named:
        _refuse_third_text(binding, head, path)
    elif not binding.labelled and not binding.passage_ids:
        _refuse_odd_positions(head, path)


def _refuse_plain_lists(head: Head, path: str) -> None:
    """Lists of two texts whose first differs in every row: an instruction would come again."""
    for key in ("pos", "neg"):
        firsts = [str(value[0]) for value in head.column(key) if is_pair(value)]
        if len(firsts) > 2 and len(set(firsts)) == len(firsts):
            raise SchemaError(
                f"the lists of two texts under {key}: an instruction and a text, or two passages? "
                f"The first differs in every row seen: {shorten(firsts[0], 60)}",
                where=path,
                remedy="--format instructor reads instructions; for passages write the query as one text",
            )


def _refuse_third_text(binding: Binding, head: Head, path: str) -> None:
    """Of three texts in order: query and positive by their names, so the third has to be negative by its own."""
    if binding.schema != "ordered-triplet" or binding.columns is None:
        return
    query, positive, third = binding.columns
    label = next((key for key in head.kinds if RESERVED.fullmatch(str(key)) and _varies(head, key)), None)
    if label is not None:
        raise SchemaError(
            f"the {label} beside {positive} and {third} is not the same in all rows: does it say which of them is the "
            f"positive?{seen(head)}",
            where=path,
            remedy="write the better one of each row as `positive`, the other as `negative`; --format ordered-triplet "
            f"where {positive} always is the positive",
        )
    known = query in named(head, QUERY) and positive in named(head, POSITIVE)
    is_negative = fits(third, NEGATIVE) or has_word(third, NEGATIVE_WORD)
    if known and not is_negative and unnumbered(third) != unnumbered(positive):
        message, remedy = REFUSALS[-1].message, f"{negative_flag(head)}; {REFUSALS[-1].remedy}"
    elif any(map(NO_PASSAGE.fullmatch, (positive, third))):
        message, remedy = "no known schema of records with negatives", column_flags(head)
    else:
        return
    raise SchemaError(f"{message}{seen(head)}", where=path, remedy=remedy)


def _varies(head: Head, key: Key) -> bool:
    """Whether a column holds several labels: words or whole numbers, not scores with fractions."""
    return not is_score(head, key) and len(set(map(str, head.column(key)))) > 1


def _refuse_odd_positions(head: Head, path: str) -> None:
    """Texts without names beside columns of ids, numbers or labels, or beside one short value again and again."""
    keys = list(head.kinds)
    if len(keys) > 3 and is_score(head, keys[-1]):
        keys = keys[:-1]  # left out by the reading, too
    marks = [key for key in keys if head.kinds[key] not in LISTS and (head.is_ids(key) or are_numbers(head, key))]
    tags = [key for key in keys[1:] if _is_one_value(head, key)]
    if tags or 0 < len(marks) < len(keys):
        said = ", ".join(str(key) for key in sorted({*marks, *tags}, key=int))
        raise SchemaError(
            f"columns without names, of which {said} (counted from 0) hold ids, numbers, labels or one value, no texts"
            f"{seen(head)}",
            where=path,
            remedy=column_flags(head),
        )


def _is_one_value(head: Head, key: str | int) -> bool:
    """Whether a column holds the same short word for all of several queries: a source or topic, no passage."""
    values, queries = set(map(shown, head.column(key))), set(map(shown, head.column(0)))
    return len(values) == 1 and len(queries) > 2 and all(len(value) <= TAG_LENGTH for value in values)
