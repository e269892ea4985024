"""Binders of columns by their order: rows without names, and names that say nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from secid.read.schemas.binding import Binding, bind_columns
from secid.read.schemas.contents import ID_NAME, RESERVED, is_a_tag
from secid.read.schemas.head import LISTS, SCALARS, Head, Key
from secid.read.schemas.patterns import NEGATIVE, NEGATIVE_WORD, POSITIVE, POSITIVE_WORD, QUERY, has_word, named
from secid.read.schemas.special import are_numbers, as_number, pair_binding


def positional_triplet(head: Head) -> list[Binding]:
    """Rows without names: query, positive, negative, and more negatives or a score behind it."""
    if head.named or not {0, 1, 2} <= set(head.kinds):
        return []
    keys = [key for key in head.kinds if isinstance(key, int)]
    if head.kinds[0] not in SCALARS or positional_pair(head):
        return []
    if len(keys) == 3 and head.kinds[1] in LISTS and head.kinds[2] in LISTS - {"numbers"}:
        return [no_wider(bind_columns(head, 0, 1, [2]), head)] if not colbert(head) else []
    if len(keys) > 3 and is_score(head, keys[-1]):
        keys = keys[:-1]
    if any(head.kinds[key] not in SCALARS for key in keys):
        return []
    if len(keys) == 3 and is_a_tag(head, 0, 2) and not head.is_ids(2):
        return []
    if len(keys) == 3 or len({len(row) for row in head.rows}) == 1:
        return [no_wider(bind_columns(head, 0, 1, keys[2:]), head)]
    # Rows of different lengths: all that follows the positive is negative.
    return [Binding("0", "1", "2…", _rest_negative, None)]


def no_wider(binding: Binding, head: Head) -> Binding:
    """The binding for rows no wider than those of the head: cells beyond would be lost uncounted."""
    extract, width = binding.extract, len(head.kinds)

    def checked(row: Any) -> tuple[Any, Any, Any]:
        if len(row) > width:
            raise IndexError(f"{len(row)} cells, {width} in the first rows")
        return extract(row)

    return replace(binding, extract=checked)


def _rest_negative(row: Any) -> tuple[Any, Any, Any]:
    return row[0], (row[1],), tuple(row[2:])


def is_score(head: Head, key: Key) -> bool:
    """Whether a column holds numbers, a fraction among them."""
    values = head.column(key)
    return are_numbers(head, key) and any(isinstance(v, float) or (isinstance(v, str) and "." in v) for v in values)


def colbert(head: Head) -> list[Binding]:
    """ColBERT's n-way rows: query, then passages as [id, score], the first of them positive."""
    if head.named or len(head.kinds) < 3 or any(head.kinds.get(key) not in ("ids", "numbers") for key in (1, 2)):
        return []
    if not all(len(cell) == 2 for row in head.rows for cell in list(row)[1:] if isinstance(cell, list)):
        return []

    def extract(row: Any) -> tuple[Any, Any, Any]:
        return row[0], (row[1][0],), tuple(passage[0] for passage in row[2:])

    return [Binding("0", "1", "2…", extract, None, note="[id, score] each, the first is positive")]


def positional_pair(head: Head) -> list[Binding]:
    """Rows without names that end on a label: query, (title,) passage, label."""
    n_columns = len(head.kinds)
    if head.named or n_columns not in (3, 4):
        return []
    label = n_columns - 1
    if not are_numbers(head, label) or {as_number(value) for value in head.column(label)} - {0.0, 1.0}:
        return []
    if any(head.kinds[key] not in SCALARS for key in range(label)):
        return []
    return [no_wider(pair_binding(0, 1, 2, None) if n_columns == 3 else pair_binding(0, 2, 3, 1), head)]


def by_order(head: Head) -> list[Binding]:
    """Exactly three columns of text under names that do not speak against it: anchor, positive, negative."""
    if not head.named:
        return []
    keys = [key for key in head.kinds if not RESERVED.fullmatch(str(key)) and not ID_NAME.fullmatch(str(key))]
    texts = [key for key in keys if head.kinds[key] == "text"]
    if len(texts) != 3 or len(keys) != 3 or any(head.is_ids(key) for key in texts):
        return []
    if _names_say_otherwise(head, texts) or any(is_a_tag(head, texts[0], key) for key in texts[1:]):
        return []
    binding = bind_columns(head, texts[0], texts[1], texts[2:], note="by the order of the columns")
    return [binding]


def _names_say_otherwise(head: Head, texts: list[Key]) -> bool:
    """Whether a name that is known stands in another role's place; weak positive names may be queries (context, …)."""
    first, second, third = texts
    return (
        bool({second, third} & {*named(head, QUERY), "title"})
        or bool({first, third} & set(named(head, POSITIVE[:1])))
        or third in named(head, POSITIVE[1:])
        or bool({first, second} & set(named(head, NEGATIVE)))
        or has_word(str(third), POSITIVE_WORD)
        or has_word(str(second), NEGATIVE_WORD)
    )
