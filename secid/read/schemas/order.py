"""Binders of columns by their order: rows without names, and texts under names that differ in their number alone."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from secid.read.schemas.binding import Binding, bind_columns
from secid.read.schemas.head import LISTS, SCALARS, Head, look_like_ids, look_like_words
from secid.read.schemas.labels import FLAGS, are_numbers, as_number, is_score, pair_binding
from secid.read.schemas.patterns import says_negative

NLI = ["premise", "entailment", "contradiction"]
PASSED_OVER = re.compile(
    r"(?i)(.+[_ -])?(labels?|scores?)|"
    r"_?(id|idx|index|guid|uuid|split|source|type|task|lang|language|category)|(.*_|[qp]|doc)(id|idx)s?"
)
"""Columns that are no texts of any row: labels, scores, ids and marks."""


def positional_triplet(head: Head) -> list[Binding]:
    """Rows without names of three columns, all texts or all ids; a fourth is passed over where it holds scores."""
    keys = list(head.kinds)
    if len(keys) == 4 and is_score(head, keys[-1]):
        keys.pop()
    if head.named or keys != [0, 1, 2] or head.kinds[0] not in SCALARS or positional_pair(head) or colbert(head):
        return []
    if not ({head.kinds[1], head.kinds[2]} <= SCALARS or {head.kinds[1], head.kinds[2]} <= LISTS - {"numbers"}):
        return []
    scalars = [head.column(key) for key in keys if head.kinds[key] in SCALARS]
    ids = [look_like_ids(values) or are_numbers(head, key) for key, values in enumerate(scalars)]
    if len(set(ids)) > 1 and not all(map(look_like_words, scalars)):
        return []
    if not ids[0] and any(head.is_tag(0, key) for key in (1, 2)):
        return []
    return [no_wider(bind_columns(head, 0, 1, [2]), head)]


def positional_tuple(head: Head) -> list[Binding]:
    """Rows without names: query, positive, and negatives in all columns behind."""
    if head.named or len(head.kinds) < 4 or any(kind not in SCALARS for kind in head.kinds.values()):
        return positional_triplet(head)
    return [Binding("0", "1", "2…", lambda row: (row[0], (row[1],), tuple(row[2:])), None)]


def no_wider(binding: Binding, head: Head) -> Binding:
    """The binding for rows no wider than those of the head: cells beyond would be lost uncounted."""
    extract, width = binding.extract, len(head.kinds)

    def checked(row: Any) -> tuple[Any, Any, Any]:
        if len(row) > width:
            raise IndexError(f"{len(row)} cells, {width} in the first rows")
        return extract(row)

    return replace(binding, extract=checked)


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
    if head.named or n_columns not in (3, 4) or any(head.kinds[key] not in SCALARS for key in range(n_columns - 1)):
        return []
    label = n_columns - 1
    if not are_numbers(head, label) or {*map(as_number, head.column(label))} - FLAGS:
        return []
    return [no_wider(pair_binding(0, 1, 2) if n_columns == 3 else pair_binding(0, 2, 3, 1), head)]


def by_order(head: Head) -> list[Binding]:
    """Exactly three columns of text: NLI's, or ones whose names differ in the number or letter at their end alone."""
    texts = [key for key, kind in head.kinds.items() if kind == "text" and not look_like_ids(head.column(key))]
    keys = [str(key) for key in texts if head.named and not PASSED_OVER.fullmatch(str(key))]
    numbered = len({re.sub(r"(?i)(?<![a-z])[a-d]$|\d+$", "", key) for key in keys}) == 1
    if len(keys) != 3 or not (numbered or keys == NLI) or any(map(says_negative, keys)):
        return []
    return [bind_columns(head, keys[0], keys[1], keys[2:], note="by the order of the columns")]
