"""Whether the first row of a table names its columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from secid.data.rows import shorten
from secid.errors import InputError

NAME = re.compile(r"[^\W\d][\w.:/-]*(?: [\w.:/-]+){0,2}")
"""What a column name looks like, against a passage: up to three words, starting with a letter."""

KNOWN_WORD = re.compile(
    r"(?i)quer(y|ies)|anchor|questions?|user|search|pos(itive)?s?|(hard)?neg(ative)?s?|hard|(ir)?relevant|gold"
    r"|passages?|doc(ument)?s?|labels?|scores?|sent(ence)?s?|texts?|titles?|para(graph)?s?|corpus|answers?|ctxs?"
    r"|contexts?|candidates?|distractors?|claims?|examples?|premise|hypothesis|entailment|contradiction|((doc|query|corpus|passage)|[qp])?ids?"
)
"""Words that names of columns are made of."""

CHANCE = 100
"""A first row that is shorter than all others in every column is one by chance in at most one of so many tables."""


def header_of(rows: Sequence[Sequence[str]], told: bool | None, path: str) -> tuple[str, ...]:
    """Names of the columns where the first row gives them, else ().

    rows : the first rows, at least one.   told : what the user says of it; None where he says nothing.
    A header shows by two known names, or by a known one above cells unlike a name. Raises InputError for a first row
    that may be a header by its looks alone: it is shorter than all others, or single ASCII words above phrases.
    """
    first = [cell.strip() for cell in rows[0]]
    n_known = sum(map(_is_known, first))
    if told is not None or n_known >= 2:
        return _distinct(first, path) if told is not False else ()
    below, in_doubt = rows[1:], False
    if len(set(first)) == len(first) and all(NAME.fullmatch(cell) for cell in first):
        cells = [cell for row in below for cell in row]
        longest = max(map(len, first))
        unlike = any(len(cell) > 2 * longest or cell[:1].isdigit() for cell in cells)
        single_words = all(cell.isascii() and " " not in cell for cell in first)
        phrases = 2 * sum(" " in cell for cell in cells) > len(cells)
        if n_known and unlike:
            return tuple(first)
        in_doubt = single_words and phrases
    if in_doubt or _stands_out(first, below):
        raise InputError(
            f"the first line may name the columns or be a row: {shorten(', '.join(first), 100)}",
            where=f"{path}:1",
            remedy="--header says that it names them, --no-header that it is a row",
        )
    return ()


def _is_known(name: str) -> bool:
    words = re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+", name)
    return bool(words) and all(KNOWN_WORD.fullmatch(word) for word in words)


def _stands_out(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether no cell has a digit and each is shorter than all below it, among so many that chance is no reason."""
    same = [row for row in below if len(row) == len(first)]
    if (len(same) + 1) ** len(first) < CHANCE or any(not cell or re.search(r"\d", cell) for cell in first):
        return False
    return all(len(name) < min(map(len, cells)) for name, cells in zip(first, zip(*same, strict=True), strict=True))


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
