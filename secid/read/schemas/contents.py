"""What the cells of a column are by their looks: passages, or something that is said of them."""

from __future__ import annotations

import re

from secid.read.passages import leaves
from secid.read.schemas.head import Head, Key, cell, look_like_ids
from secid.read.schemas.special import are_numbers

RESERVED = re.compile(r"(?i)(.+[_ -])?(labels?|scores?)")
"""Columns that sentence-transformers keeps for labels, wherever they stand, and their like (`esci_label`)."""

ID_NAME = re.compile(
    r"(?i)_?(id|idx|index|qid|pid|docid|guid|uuid|split|source|type|task|lang|language|category)|.*_(id|idx)"
)

TAG_LENGTH = 24
"""Characters of the longest word that names a class or topic."""

QUERIES_A_TAG = 4
"""Queries that share a tag, on average: passages so short are seldom shared by two."""


def may_hold_passages(head: Head, key: Key, *, ids: bool = False) -> bool:
    """Whether a column's cells may be queries or passages, alone, in lists or in objects.

    ids : passages are ids, else texts. No passages are ids then, numbers, labels, topics, and a text that rows share.
    """
    kind = head.kinds[key]
    if ids:
        return kind in ("id", "ids", "text", "texts")
    if ID_NAME.fullmatch(str(key)) or RESERVED.fullmatch(str(key)):
        return False
    texts = [leaf for value in head.typical(key) for leaf in leaves(value) if isinstance(leaf, str)]
    if not texts or look_like_ids(texts) or are_numbers(head, key):
        return False
    first = next(iter(head.kinds))
    return kind != "text" or not (_is_shared(head, texts) or (key != first and is_a_tag(head, first, key)))


def _is_shared(head: Head, texts: list[str]) -> bool:
    """Whether rows that differ have all the same text: an instruction, a topic."""
    others = (head.typical(key) for key, kind in head.kinds.items() if kind == "text")
    return len(texts) > 1 == len(set(texts)) and any(len(set(other)) > 1 for other in others)


def is_a_tag(head: Head, query: Key, key: Key) -> bool:
    """Whether a column holds a few short words for many queries: topics or classes ("entailment"), no passages."""
    cells = [(cell(row, query), cell(row, key)) for row in head.rows]
    beside = {(asked, value) for asked, value in cells if isinstance(asked, str | int) and isinstance(value, str)}
    values = {value for _, value in beside}
    return len(values) * QUERIES_A_TAG <= len(beside) and all(len(value) <= TAG_LENGTH for value in values)
