"""Decide whether the first row of a table names its columns, and show columns with examples in errors."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Sequence

from secid.errors import InputError
from secid.read.binding import (
    ID,
    LABEL_NAMES,
    LISTS,
    NEGATIVE_IDS,
    NEGATIVE_NAMES,
    PASSAGE_LIST_NAMES,
    PASSAGE_NAMES,
    POSITIVE_IDS,
    POSITIVE_NAMES,
    QUERY_NAMES,
    ColumnKey,
    Head,
    columns_named,
    composed,
    fits,
    look_like_ids,
    says_negative,
)
from secid.read.stream import leaves, shorten, shown
from secid.read.toolkits import BINARY_LABELS, as_label, flag_columns
from secid.settings import flag_of

# Does the first row of a table name its columns?

KNOWN_WORD = re.compile(
    r"(?i)quer(y|ies)|anchor|questions?|user|search|pos(itive)?s?|(hard)?neg(ative)?s?|hard|(ir)?relevant|gold"
    r"|passages?|doc(ument)?s?|labels?|scores?|sent(ence)?s?|texts?|titles?|para(graph)?s?|corpus|answers?|ctxs?"
    r"|contexts?|candidates?|distractors?|claims?|examples?|premise|hypothesis|entailment|contradiction"
    r"|((doc|query|corpus|passage)|[qp])?ids?"
)
"""Words of column names."""

COLUMN_NAME = re.compile(r"(?:[^\W\d_]|\ufffd)[^.?!,;。？！，；、؟،]{0,39}")
"""Pattern of a possible column name: a letter (or a byte not in UTF-8), then no punctuation of sentences or lists."""

PANDAS_INDEX = re.compile(r"Unnamed: \d+")
"""Name that pandas gives an unnamed column. The name of its index is empty."""


def header_of(
    rows: Sequence[Sequence[str]], header: bool | None, path: str, named: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the names of the columns if the first row gives them, else ().

    rows   : the first rows, at least one.
    header : the setting `header`; None if the user did not set it.
    The first row is a header if it has two known names, or all names that flags give. Raises InputError if it is
    unclear whether another first row is a header: one-word names, or short names above a row twice as long.
    """
    first = [composed(cell.strip()) for cell in rows[0]]
    known = sum(map(_is_known, first))
    if header is not None or known >= 2 or not first or (named and set(map(composed, named)) <= {*first}):
        return _distinct(first, path) if header is not False else ()
    cells = [*filter(None, (PANDAS_INDEX.sub("", cell) for cell in first))]
    if not all(COLUMN_NAME.fullmatch(cell) and not ID.fullmatch(cell) for cell in cells):
        return ()
    twice = len(rows) > 1 and sum(map(len, rows[1])) >= 2 * sum(map(len, first))
    words = not any(" " in cell for cell in cells) and any(len(cell) > 1 for cell in cells)
    if twice or words:
        names = "--query-column NAME --positive-column NAME --negative-column NAME"
        as_row = f"{flag_of('header', False)}{' --format rows' if len(first) > 2 else ''}"
        ways = (f"if it names them: {flag_of('header', True)} {names}", f"if it is data: {as_row}")
        raise InputError(
            f"the first line may name the columns or be a row: {shorten(', '.join(first), 100)}",
            where=f"{path}:1",
            remedy="; ".join(ways if twice else reversed(ways)),
        )
    return ()


def _is_known(name: str) -> bool:
    words = re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+", name)
    known = bool(words) and all(KNOWN_WORD.fullmatch(word) for word in words)
    return known or fits(name, (QUERY_NAMES[-1], POSITIVE_NAMES[-1], NEGATIVE_NAMES[-1], POSITIVE_IDS, NEGATIVE_IDS))


def _distinct(first: Sequence[str], path: str) -> tuple[str, ...]:
    """Return distinct column names: a leading `#` is removed, `[1]` becomes `_1`, repeated names get numbers.

    An empty first name is the index of pandas. Raises InputError if names still repeat.
    """
    names = [re.sub(r"\[(\d+)\]$", r"_\1", cell.removeprefix("#").strip()) for cell in first]
    names = [name or ("index" if at == 0 else f"column {at + 1}") for at, name in enumerate(names)]
    uses, numbers = Counter(names), Counter[str]()
    for at, name in enumerate(names):
        numbers[name] += 1
        if uses[name] > 1:
            names[at] = f"{name}_{numbers[name]}"
    if len(set(names)) < len(names):
        message = f"two columns of the same name: {shorten(', '.join(first), 100)}"
        raise InputError(message, where=f"{path}:1", remedy="rename one of them")
    return tuple(names)


# Columns in errors: an example of each, and the flags that name them.

MAX_COLUMNS_SHOWN = 16
"""Maximum number of columns in an error. An object keyed by query may have thousands."""

MAX_EXAMPLE_CHARS = 60
MAX_NAME_CHARS = 100
"""Maximum length of a value, and of a column name, in a message."""

MINE_FIRST = "mine negatives first: `secid mine --help`"
ALL_FLAGS = "--query-column NAME --positive-column NAME --negative-column NAME"
TEXT_KINDS = LISTS | {"text", "struct"}


def list_columns(head: Head) -> str:
    """Return one line per column, with its kind and an example, to follow an error message."""
    if not head.kinds:
        return ": the rows are empty"
    columns = list(head.kinds.items())[:MAX_COLUMNS_SHOWN]
    lines = [f"    {shorten(str(key), MAX_NAME_CHARS)}: {kind}{_example(head, key)}" for key, kind in columns]
    more = len(head.kinds) - len(lines)
    return "\n  columns:\n" + "\n".join([*lines, *([f"    … and {more} more"] if more else [])])


def _example(head: Head, key: ColumnKey) -> str:
    value = next(iter(head.typical(key)), None)
    return "" if value is None else ", " + shown(value, MAX_EXAMPLE_CHARS)


def ready_flags(head: Head) -> str:
    """Return the flags that name the columns, with NAME as a placeholder where the column is unclear."""
    n, texts = len(head.kinds), not head.named and {*head.kinds.values()} == {"text"}
    in_order = texts and (n == 3 or (n > 3 and not any(look_like_ids(head.column(key)) for key in head.kinds)))
    if not in_order and (labelled := label_flags(head)):
        return labelled
    query = _one(head, QUERY_NAMES)
    positive = _one(head, POSITIVE_NAMES if query else POSITIVE_NAMES[:1])  # in code search, a `doc` may be the query
    negatives = [str(key) for key in head.kinds if says_negative(str(key)) and head.kinds[key] in TEXT_KINDS]
    negatives = [name for name in negatives if name not in (query, positive)]
    none = f"if no column holds negatives, {MINE_FIRST}"
    if not head.named:
        by_position = f"name the columns by position, from 0: {ALL_FLAGS.replace('NAME', 'N')}"
        rows = "--format rows reads query, positive and negatives in this order; or " if in_order else ""
        return f"{rows}{by_position}; {none}"
    if not (query or positive or negatives):
        return f"name the columns: {ALL_FLAGS} (or --label-column NAME); {none}"
    flags = [f"--query-column {_quoted(query)}", f"--positive-column {_quoted(positive)}",
             f"--negative-column {_quoted(negatives[0] if negatives else None)}"]  # fmt: skip
    others = f"; other columns of negatives: {', '.join(map(_quoted, negatives[1:]))}" if negatives[1:] else ""
    return f"name the columns: {' '.join(flags)}{others}{'' if negatives else f'; {none}'}"


def pair_flags(head: Head) -> str:
    """Return the flags that name the query and positive columns, as in `ready_flags`."""
    if not head.named:
        return "--query-column 0 --positive-column 1, or other positions"
    names = _quoted(_one(head, QUERY_NAMES)), _quoted(_one(head, POSITIVE_NAMES))
    return f"name the columns: --query-column {names[0]} --positive-column {names[1]}"


def label_flags(head: Head) -> str:
    """Return the flags that name passages and their labels; "" if no column holds labels or some hold negatives."""
    labels = flag_columns(head) or [
        key
        for key in columns_named(head, LABEL_NAMES)
        if any(as_label(value) is not None for value in leaves(head.column(key)))
    ]
    if not labels or any(says_negative(str(key)) and head.kinds[key] in TEXT_KINDS for key in head.kinds):
        return ""
    query = _one(head, QUERY_NAMES)
    passage = _one(head, (*PASSAGE_NAMES, *PASSAGE_LIST_NAMES, *POSITIVE_NAMES)) if query else None
    cut = "" if {*map(as_label, leaves(head.column(labels[0])))} - {None} <= BINARY_LABELS else " --positive-score X"
    flags = (f"if {labels[0]} says which passages are positives: --query-column {_quoted(query)} "
             f"--positive-column {_quoted(passage)} --label-column {_quoted(str(labels[0]))}{cut}")  # fmt: skip
    return flags if head.named else flags.replace("NAME", "N")


def _one(head: Head, tiers: tuple[str, ...]) -> str | None:
    """Return the only text column whose name fits the tiers; None if there is none, or several."""
    names = [name for name in columns_named(head, tiers) if head.kinds[name] in TEXT_KINDS]
    return names[0] if len(names) == 1 else None


def _quoted(name: str | None) -> str:
    if name is None:
        return "NAME"
    name = name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}…"
    return name if re.fullmatch(r"[\w.:/@][\w.:/@-]*", name) else shlex.quote(name)
