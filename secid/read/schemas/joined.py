"""Several passages joined in one cell, which would be scored as one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median, median_high
from typing import NamedTuple

from secid.errors import SchemaError
from secid.read.passages import leaves
from secid.read.rows import shorten
from secid.read.schemas.binding import NOT_THE_SHAPE, Binding, filled
from secid.read.schemas.head import Head

NUMBERED = re.compile(r"(?:^|(?<=\s))[1-9]\d?[.)、](?=\D)")


class Mark(NamedTuple):
    """What may stand between joined texts.

    fewest : parts from which on they are passages: two are more often a title and a text, or two paragraphs.
    breaks : whether it stands within single passages, too: it joins several only where it divides nearly all alike.
    """

    name: str
    split: Callable[[str], Sequence[str]]
    fewest: int = 3
    breaks: bool = False

    def parts(self, text: str) -> list[str]:
        """The parts of a text that are not blank."""
        return [part.strip() for part in self.split(text) if part.strip()]


def _numbered(text: str) -> Sequence[str]:
    return NUMBERED.split(text) if NUMBERED.match(text) else [text]


def _at(mark: str) -> Callable[[str], Sequence[str]]:
    return partial(str.split, sep=mark)


MARKS = (Mark("|||", _at("|||"), fewest=2), *(Mark(mark, _at(mark)) for mark in ("[SEP]", "<sep>", "</s>")))
BREAKS = (
    Mark("1. … 2. …", _numbered, breaks=True),
    *(Mark(mark, _at(mark), breaks=True) for mark in ("\n\n", "\n", "\t", " || ", " | ", "###", "---", ";;", "；")),
)

MARKED = 0.5
"""Share of cells from which on a mark is a rule of the column."""

ALIKE = 0.8
"""Share of negatives that a break divides into the same number of parts: documents differ in their paragraphs."""

OTHERWISE = 0.1
"""Share of the other side's passages that may be divided likewise: what is in both is a habit of the corpus."""

PART_LENGTH = 0.5
"""Length of a part, as a share of the other side's median, from which on it may be a passage of its own."""

LOOKED_AT = 1 << 14
"""Characters of a text in which marks are looked for, so that those of megabytes cost nothing."""

FEWEST = 5
"""Cells that a break must be seen in: two documents of two paragraphs each say nothing."""


def refuse_joined(binding: Binding, head: Head, path: str) -> None:
    """Raises SchemaError where the cells of positives or negatives hold several passages each.

    Rows that hold a list of passages say themselves where each begins: nothing is looked for in those.
    """
    if binding.passage_ids or binding.labelled:
        return
    positives, negatives = _cells(binding, head)
    for role, where, cells, others, marks in (
        ("positive", binding.positives, positives, negatives, MARKS),
        ("negative", binding.negatives, negatives, positives, (*MARKS, *BREAKS)),
    ):
        texts = [cell[0] for cell in cells if len(cell) == 1]
        if len(texts) < ALIKE * len(cells):
            continue
        mark = next((mark for mark in marks if _joins(mark, texts, [text for cell in others for text in cell])), None)
        if mark is not None:
            joined = [parts for parts in map(mark.parts, texts) if len(parts) > 1]
            raise SchemaError(
                f"{len(joined)} of {len(texts)} {role}s under {where} seem to be several passages, joined by "
                f"{mark.name!r}: {shorten(f' {mark.name!r} '.join(joined[0]), 100)}",
                where=path,
                remedy="write them as a list (in pandas `column.str.split(mark, regex=False)`, then "
                "`to_json(path, orient='records', lines=True)`); if each is one passage, --format "
                f"{binding.schema if binding.schema != 'columns' else 'triplet'} reads it so",
            )


def _cells(binding: Binding, head: Head) -> tuple[list[list[str]], list[list[str]]]:
    """The texts of each row's positives, and of its negatives; rows without any left out."""
    sides: tuple[list[list[str]], list[list[str]]] = ([], [])
    for row in head.rows:
        try:
            cells = binding.extract(filled(row, binding))[1:]
        except NOT_THE_SHAPE:
            continue
        for side, cell in zip(sides, cells, strict=True):
            texts = [text[:LOOKED_AT] for text in leaves(cell) if isinstance(text, str) and text.strip()]
            if texts:
                side.append(texts)
    return sides


def _joins(mark: Mark, texts: Sequence[str], others: Sequence[str]) -> bool:
    """Whether a mark divides these texts into passages, each as long as one of the other side, and not those."""
    found = [mark.parts(text) for text in texts]
    divided = [parts for parts in found if len(parts) > 1]
    if not divided:
        return False
    usual = median_high(map(len, divided))
    if mark.breaks:
        enough = sum(len(parts) == usual for parts in found) >= max(FEWEST, ALIKE * len(texts))
    else:
        enough = len(divided) > MARKED * len(texts)
    length = PART_LENGTH * median(map(len, others)) if others else 0
    n_long = sum(min(map(len, parts)) >= length for parts in divided)
    elsewhere = sum(len(mark.parts(text)) >= (2 if mark.breaks else usual) for text in others)
    is_rule = enough and usual >= mark.fewest and n_long >= ALIKE * len(divided)
    return is_rule and elsewhere <= OTHERWISE * len(others)
