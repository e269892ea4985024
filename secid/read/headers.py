"""Whether the first row of a table names its columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from secid.errors import InputError
from secid.read.rows import shorten
from secid.read.schemas.patterns import NEGATIVE, POSITIVE, QUERY, composed, fits
from secid.read.schemas.special import as_number
from secid.settings import flag_of

NAME = re.compile(r"[^\W\d][\w.:/-]*(?: [\w.:/-]+){0,2}")
"""What a column name looks like, against a passage: up to three words, starting with a letter."""

KNOWN_WORD = re.compile(
    r"(?i)quer(y|ies)|anchor|questions?|user|search|pos(itive)?s?|(hard)?neg(ative)?s?|hard|(ir)?relevant|gold"
    r"|passages?|doc(ument)?s?|labels?|scores?|sent(ence)?s?|texts?|titles?|para(graph)?s?|corpus|answers?|ctxs?"
    r"|contexts?|candidates?|distractors?|claims?|examples?|premise|hypothesis|entailment|contradiction|((doc|query|corpus|passage)|[qp])?ids?"
)
"""Words that names of columns are made of."""

LABEL = re.compile(r"[^\W\d_][^.?!,;。？！，；、؟،]{0,39}|\ufffd.{0,39}")
"""What may name a column in any language: it starts with a letter, and has no mark of a sentence or list.

Bytes that are no UTF-8 stand as U+FFFD: they may be letters, and the file is refused for them.
"""

CHANCE = 1000
"""A first row that is shorter than all others in every column is one by chance in at most one of so many tables."""

NULLS = frozenset({"", "n/a", "na", "nan", "none", "null", "inf"})
"""What stands for no value, or reads as a number, in a column of numbers."""


def header_of(rows: Sequence[Sequence[str]], told: bool | None, path: str) -> tuple[str, ...]:
    """Names of the columns where the first row gives them, else ().

    rows : the first rows, at least one.   told : what the user says of it; None where he says nothing.
    A header shows by two known names, by a known one above cells unlike a name, or by a name above numbers alone.
    Raises InputError for a first row that may be a header by its looks: words over a column of numbers, single words
    above phrases, or labels half as long as nearly all other rows.
    """
    first = [composed(cell.strip()) for cell in rows[0]]
    n_known = sum(map(_is_known, first))
    if told is not None or n_known >= 2 or not first:
        return _distinct(first, path) if told is not False else ()
    below = [row for row in rows[1:] if len(row) == len(first)]
    first[0] = first[0] or "index"  # what pandas leaves without a name
    are_names = all(map(NAME.fullmatch, first))
    over_numbers = any(_is_over_numbers(cell, [row[at] for row in below]) for at, cell in enumerate(first))
    if are_names and (over_numbers or (n_known and _unlike(first, below))):
        return _distinct(first, path)
    if over_numbers or (are_names and _single_words(first, below)) or _stands_out(first, below):
        raise InputError(
            f"the first line may name the columns or be a row: {shorten(', '.join(first), 100)}",
            where=f"{path}:1",
            remedy=f"{flag_of('header', True)} says that it names them, {flag_of('header', False)} that it is a row",
        )
    return ()


def _is_known(name: str) -> bool:
    words = re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+", name)
    known = bool(words) and all(KNOWN_WORD.fullmatch(word) for word in words)
    return known or fits(name, (QUERY[-1], POSITIVE[-1], NEGATIVE[-1]))


def _is_over_numbers(first: str, below: Sequence[str]) -> bool:
    """Whether a word stands above a column of numbers alone."""
    told = [cell for cell in below if cell.strip()]
    is_word = first.lower() not in NULLS and any(map(str.isalpha, first)) and as_number(first) is None
    return is_word and bool(told) and all(as_number(cell) is not None for cell in told)


def _unlike(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    longest = max(map(len, first))
    return any(len(cell) > 2 * longest or cell[:1].isdigit() for row in below for cell in row)


def _single_words(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether different single words stand above cells that are phrases for the most part."""
    phrases = [" " in cell for row in below for cell in row]
    return len(set(first)) == len(first) and not any(" " in cell for cell in first) and 2 * sum(phrases) > len(phrases)


def _stands_out(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether all cells may be labels, and nine of ten rows below are twice as long, or all longer in each column."""
    if not all(map(LABEL.fullmatch, first)):
        return False
    if not below:  # a file of a header alone, as an empty table is written
        return not any(" " in cell or len(cell) == 1 for cell in first)
    n_longer = sum(sum(map(len, row)) > 2 * sum(map(len, first)) for row in below)
    shorter = all(len(name) < min(map(len, cells)) for name, cells in zip(first, zip(*below, strict=True), strict=True))
    return n_longer >= 0.9 * len(below) or (shorter and (len(below) + 1) ** len(first) >= CHANCE)


def _distinct(first: Sequence[str], path: str) -> tuple[str, ...]:
    """Names without marks around them, repeated ones numbered; an empty first one is the index that pandas writes."""
    names = [re.sub(r"\[(\d+)\]$", r"_\1", cell.removeprefix("#").strip()) for cell in first]
    names = [name or ("index" if at == 0 else f"column {at + 1}") for at, name in enumerate(names)]
    uses, seen = Counter(names), Counter[str]()
    for at, name in enumerate(names):
        seen[name] += 1
        if uses[name] > 1:
            names[at] = f"{name}_{seen[name]}"
    if len(set(names)) < len(names):
        raise InputError(f"two columns of the same name: {shorten(', '.join(first), 100)}", where=f"{path}:1")
    return tuple(names)
