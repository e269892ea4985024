"""Several passages joined in one cell, which would be scored as one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from statistics import median

from secid.data.passages import leaves
from secid.data.rows import shorten
from secid.data.schemas.binding import NOT_THE_SHAPE, Binding, filled
from secid.data.schemas.head import Head
from secid.errors import SchemaError

MARKS = ("|||", "[SEP]", "<sep>", "</s>")
"""What stands between joined texts and hardly within one."""

NUMBERS = "1. … 2. …"
NUMBERED = re.compile(r"(?:^|(?<=\s))[1-9]\d?[.)、](?=\D)")

BREAKS = (NUMBERS, "\n\n", "\n", "\t", " || ", " | ", "###", "---", ";;", "；")
"""What may stand within one passage, too: it joins several only where it divides nearly all cells alike."""

MARKED = 0.5
"""Share of cells from which on a mark is a rule of the column."""

ALIKE = 0.8
"""Share of negatives that a break divides into the same number of parts: documents differ in their paragraphs."""

OTHERWISE = 0.1
"""Share of positives that may hold a break which joins the negatives: a break of the corpus is in both."""

PART_LENGTH = 0.5
"""Length of a part, as a share of the median positive's, from which on it may be a passage of its own."""

LOOKED_AT = 1 << 14
"""Characters of a text in which marks are looked for, so that those of megabytes cost nothing."""

FEWEST = 5
"""Cells that a break must be seen in: two documents of two paragraphs each say nothing."""


def refuse_joined(binding: Binding, head: Head, path: str) -> None:
    """Raises SchemaError where the cells of positives or negatives hold several passages each."""
    if binding.passage_ids or binding.labelled:
        return
    sides: tuple[list[str], list[str]] = ([], [])
    for row in head.rows:
        try:
            cells = binding.extract(filled(row, binding))[1:]
        except NOT_THE_SHAPE:
            continue
        for side, cell in zip(sides, cells, strict=True):
            side.extend(text[:LOOKED_AT] for text in leaves(cell) if isinstance(text, str) and text.strip())
    positives, negatives = sides
    for role, where, texts in (("positive", binding.positives, positives), ("negative", binding.negatives, negatives)):
        mark = _mark(texts) or (_break(texts, positives) if role == "negative" else None)
        if mark is not None:
            n_joined = sum(len(_parts(text, mark)) > 1 for text in texts)
            example = next(text for text in texts if len(_parts(text, mark)) > 1)
            raise SchemaError(
                f"{n_joined} of {len(texts)} {role}s under {where} seem to be several passages, joined by {mark!r}: "
                f"{shorten(example.replace(mark, f' {mark!r} '), 100)}",
                where=path,
                remedy="write them as a list (in pandas `column.str.split(mark, regex=False)`, then "
                "`to_json(path, orient='records', lines=True)`); if each is one passage, --format "
                f"{binding.schema if binding.schema != 'columns' else 'triplet'} reads it so",
            )


def _parts(text: str, mark: str) -> list[str]:
    if mark == NUMBERS:
        return [part for part in NUMBERED.split(text) if part.strip()] if NUMBERED.match(text) else [text]
    return [part for part in text.split(mark) if part.strip()]


def _mark(texts: Sequence[str]) -> str | None:
    """The mark that divides most texts."""
    n_divided = {mark: sum(len(_parts(text, mark)) > 1 for text in texts) for mark in MARKS}
    return next((mark for mark, n in n_divided.items() if n > MARKED * len(texts)), None)


def _break(texts: Sequence[str], positives: Sequence[str]) -> str | None:
    """The break that divides nearly all texts into the same number of passages, and hardly a positive."""
    usual = median(map(len, positives)) if positives else 0
    for mark in BREAKS:
        parts = [_parts(text, mark) for text in texts]
        n_parts, n_alike = Counter(map(len, parts)).most_common(1)[0] if parts else (1, 0)
        long = sum(all(len(part) >= PART_LENGTH * usual for part in found) for found in parts)
        elsewhere = sum(len(_parts(text, mark)) > 1 for text in positives)
        enough = n_alike >= max(FEWEST, ALIKE * len(texts)) and long >= ALIKE * len(texts)
        if n_parts > 1 and enough and elsewhere <= OTHERWISE * len(positives):
            return mark
    return None
