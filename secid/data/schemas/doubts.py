"""What speaks against the one reading that fits: columns that it would lose or take for what they are not."""

from __future__ import annotations

import re
from collections.abc import Sequence

from secid.data.rows import shorten
from secid.data.schemas.binding import Binding, unnumbered
from secid.data.schemas.head import LISTS, Head
from secid.data.schemas.order import TAG_LENGTH, is_score
from secid.data.schemas.patterns import NEGATIVE, POSITIVE, QUERY, fits, named
from secid.data.schemas.refusals import REFUSALS
from secid.data.schemas.special import are_numbers, is_pair
from secid.errors import SchemaError

COLUMN_FLAGS = "--query-column, --positive-column and --negative-column name the columns; --format names the schema"

WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
NEGATIVE_WORD = re.compile(r"neg(ative)?s?", re.IGNORECASE)
BESIDE = re.compile(
    r"(?i)(p|doc|q)?ids?|idx|ind(ex|exes|ices)|scores?|sim(ilarity|ilarities)?|ranks?|labels?|num(ber)?|count|len(gth)?s?|types?|"
    r"sources?|miners?|models?|methods?|splits?|reason(s|ing)?|explanations?|titles?|urls?|lang(uage)?s?|prompts?"
)
"""Words of columns that tell something of the negatives and hold none."""


def refuse_unread_negatives(binding: Binding, head: Head, asides: Sequence[str | None], path: str) -> None:
    """Raises SchemaError where a column is one of negatives by its name, and the binding leaves it out.

    asides : columns that the user named for something else.
    """
    if binding.columns is None or binding.labelled:
        return
    unread = [
        key
        for key in map(str, head.kinds)
        if key not in binding.columns and key not in asides and _holds_negatives(key, binding, head)
    ]
    if unread:
        raise SchemaError(
            f"several readings fit: the negatives are {binding.negatives}, or {', '.join(unread)}"
            f"\n  columns: {shorten(head.describe(), 400)}",
            where=path,
            remedy="--negative-column names the column to read (one source each: score the file once for each column)",
        )


def _holds_negatives(key: str, binding: Binding, head: Head) -> bool:
    """Whether a column's name and cells are those of negatives. What a single odd row of many has is none."""
    if len(head.column(key)) < min(2, len(head.rows)):
        return False
    words = WORD.findall(key)
    if not any(map(NEGATIVE_WORD.fullmatch, words)) or any(map(BESIDE.fullmatch, words)):
        return False
    if binding.passage_ids:
        return head.kinds[key] in ("id", "ids", "text", "texts")
    return head.kinds[key] in ("text", "texts", "struct", "structs", "lists") and not head.is_ids(key)


NO_PASSAGE = re.compile(
    r"(?i)(.*[_ ])?(summar(y|ies)|headline|reason(ing)?|rationale|explanation|expansion|keywords?|url|author|date)"
)
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
    known = query in named(head, QUERY) and positive in named(head, POSITIVE)
    is_negative = fits(third, NEGATIVE) or any(map(NEGATIVE_WORD.fullmatch, WORD.findall(third)))
    if known and not is_negative and unnumbered(third) != unnumbered(positive):
        message, remedy = REFUSALS[-1].message, REFUSALS[-1].remedy
    elif any(map(NO_PASSAGE.fullmatch, (positive, third))):
        message, remedy = "no known schema of records with negatives", COLUMN_FLAGS
    else:
        return
    raise SchemaError(f"{message}\n  columns: {shorten(head.describe(), 400)}", where=path, remedy=remedy)


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
            f"\n  columns: {shorten(head.describe(), 400)}",
            where=path,
            remedy=COLUMN_FLAGS,
        )


def _is_one_value(head: Head, key: str | int) -> bool:
    """Whether a column holds the same short word for all of several queries: a source or topic, no passage."""
    values, queries = set(map(str, head.column(key))), set(map(str, head.column(0)))
    return len(values) == 1 and len(queries) > 2 and all(len(value) <= TAG_LENGTH for value in values)
