"""What speaks against the one reading that fits: columns that it would lose or take for what they are not."""

from __future__ import annotations

import re
from collections.abc import Sequence

from secid.data.rows import shorten
from secid.data.schemas.binding import Binding
from secid.data.schemas.head import Head
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
