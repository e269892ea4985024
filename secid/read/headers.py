"""Whether the first row of a table names its columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from secid.errors import InputError
from secid.read.rows import shorten
from secid.read.schemas.head import ID
from secid.read.schemas.patterns import NEGATIVE, NEGATIVE_IDS, POSITIVE, POSITIVE_IDS, QUERY, composed, fits
from secid.settings import flag_of

KNOWN_WORD = re.compile(
    r"(?i)quer(y|ies)|anchor|questions?|user|search|pos(itive)?s?|(hard)?neg(ative)?s?|hard|(ir)?relevant|gold"
    r"|passages?|doc(ument)?s?|labels?|scores?|sent(ence)?s?|texts?|titles?|para(graph)?s?|corpus|answers?|ctxs?"
    r"|contexts?|candidates?|distractors?|claims?|examples?|premise|hypothesis|entailment|contradiction"
    r"|((doc|query|corpus|passage)|[qp])?ids?"
)
"""Words of column names."""

NAME = re.compile(r"(?:[^\W\d_]|\ufffd)[^.?!,;。？！，；、؟،]{0,39}")
"""What may name a column: it starts with a letter (or a byte not in UTF-8) and has no mark of a sentence or list."""

PANDAS_INDEX = re.compile(r"Unnamed: \d+")
"""What pandas names a column without a name; its index it leaves empty."""


def header_of(
    rows: Sequence[Sequence[str]], header: bool | None, path: str, named: Collection[str] = ()
) -> tuple[str, ...]:
    """Names of the columns where the first row gives them, else ().

    rows : the first rows, at least one.   header : what --set header says; None where it is not given.
    named : columns that flags name.
    Two known names make a header, and all that flags name do. Raises InputError for another first row that may be one:
    names of one word each, or short ones above a row twice as long.
    """
    first = [composed(cell.strip()) for cell in rows[0]]
    known = sum(map(_is_known, first))
    if header is not None or known >= 2 or not first or (named and set(map(composed, named)) <= {*first}):
        return _distinct(first, path) if header is not False else ()
    cells = [*filter(None, (PANDAS_INDEX.sub("", cell) for cell in first))]
    if not all(NAME.fullmatch(cell) and not ID.fullmatch(cell) for cell in cells):
        return ()
    twice = len(rows) > 1 and sum(map(len, rows[1])) >= 2 * sum(map(len, first))
    words = not any(" " in cell for cell in cells) and any(len(cell) > 1 for cell in cells)
    if twice or words:
        names = "--query-column NAME --positive-column NAME --negative-column NAME"
        as_row = f"{flag_of('header', False)}{' --format rows' if len(first) > 2 else ''}"
        ways = (f"where it names them: {flag_of('header', True)} {names}", f"where it is one of texts: {as_row}")
        raise InputError(
            f"the first line may name the columns or be a row: {shorten(', '.join(first), 100)}",
            where=f"{path}:1",
            remedy="; ".join(ways if twice else reversed(ways)),
        )
    return ()


def _is_known(name: str) -> bool:
    words = re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+", name)
    known = bool(words) and all(KNOWN_WORD.fullmatch(word) for word in words)
    return known or fits(name, (QUERY[-1], POSITIVE[-1], NEGATIVE[-1], POSITIVE_IDS, NEGATIVE_IDS))


def _distinct(first: Sequence[str], path: str) -> tuple[str, ...]:
    """Names without marks around them, repeated ones numbered; an empty first one is the index that pandas writes."""
    names = [re.sub(r"\[(\d+)\]$", r"_\1", cell.removeprefix("#").strip()) for cell in first]
    names = [name or ("index" if at == 0 else f"column {at + 1}") for at, name in enumerate(names)]
    uses, numbers = Counter(names), Counter[str]()
    for at, name in enumerate(names):
        numbers[name] += 1
        if uses[name] > 1:
            names[at] = f"{name}_{numbers[name]}"
    if len(set(names)) < len(names):
        raise InputError(f"two columns of the same name: {shorten(', '.join(first), 100)}", where=f"{path}:1")
    return tuple(names)
