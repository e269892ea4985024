"""What an error shows of a file's columns: an example of each, and the flags that name them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from secid.read.passages import leaves
from secid.read.rows import shorten, shown
from secid.read.schemas.head import LISTS, Head, Key, look_like_ids
from secid.read.schemas.labels import FLAGS, as_label, flag_columns
from secid.read.schemas.patterns import DOCS, LABEL, PASSAGE, POSITIVE, QUERY, has_word, named, says_negative

SHOWN = 16
"""Columns that are shown; an object keyed by query may have thousands."""

EXAMPLE_LENGTH = 60
NAME_LENGTH = 100
"""Characters of a value and of a column's name that a message holds."""

BY_ORDER = (
    "--format rows reads texts of query, positive and negative, in this order; where the passages are ids: "
    "--query-column 0 --positive-column 1 --negative-column 2 --collection DIR"
)
ALL_FLAGS = "--query-column NAME --positive-column NAME --negative-column NAME"
TEXTS = LISTS | {"text", "struct"}


def list_columns(head: Head) -> str:
    """The columns with their kinds and an example each, one a line, to follow a message."""
    if not head.kinds:
        return ": the rows are empty"
    columns = list(head.kinds.items())[:SHOWN]
    lines = [f"    {shorten(str(key), NAME_LENGTH)}: {kind}{_example(head, key)}" for key, kind in columns]
    more = len(head.kinds) - len(lines)
    return "\n  columns:\n" + "\n".join([*lines, *([f"    … and {more} more"] if more else [])])


def _example(head: Head, key: Key) -> str:
    value = next(iter(head.typical(key)), None)
    return "" if value is None else ", " + shown(value, EXAMPLE_LENGTH)


def ready_flags(head: Head, of_ids: Sequence[Key] = ()) -> str:
    """The flags that name the columns: by name where the names say it, else with NAME to fill in.

    of_ids : columns whose values the collection holds: the only one of unknown name is that of the positives.
    """
    if not head.named and len(head.kinds) == 3 and {*head.kinds.values()} == {"text"}:
        return BY_ORDER
    if labelled := label_flags(head):
        return labelled
    query = _one(head, QUERY)
    positive = _one(head, POSITIVE if query else POSITIVE[:1])  # a `doc` may be the query of a `code`
    negatives = [str(key) for key in head.kinds if says_negative(str(key)) and head.kinds[key] in TEXTS]
    negatives = [name for name in negatives if name not in (query, positive)]
    of_positives = [str(key) for key in of_ids if key not in (query, *negatives)]
    positive = positive or (of_positives[0] if len(of_positives) == 1 else None)
    if not head.named:
        by_position = f"name the columns by position, from 0: {ALL_FLAGS.replace('NAME', 'N')}"
        tuples = all(head.kinds[key] == "text" and not look_like_ids(head.column(key)) for key in head.kinds)
        if len(head.kinds) > 3 and tuples:
            return f"--format rows reads query, positive and negatives in this order; or {by_position}"
        return by_position
    if not (query or positive or negatives):
        return f"name the columns: {ALL_FLAGS} (or --label-column NAME)"
    flags = [f"--query-column {_quoted(query)}", f"--positive-column {_quoted(positive)}",
             f"--negative-column {_quoted(negatives[0] if negatives else None)}"]  # fmt: skip
    others = f"; other columns of negatives: {', '.join(map(_quoted, negatives[1:]))}" if negatives[1:] else ""
    return f"name the columns: {' '.join(flags)}{others}"


def pair_flags(head: Head, of_ids: Sequence[Key]) -> str:
    """The flags that name queries and positives, as in `ready_flags`; of two columns the other one of a known one."""
    if not head.named:
        return "--query-column 0 --positive-column 1, or other positions"
    of_positives = [str(key) for key in of_ids]
    known = [_one(head, QUERY), of_positives[0] if len(of_positives) == 1 else _one(head, POSITIVE)]
    rest = [str(key) for key in head.kinds if key not in known]
    if len(head.kinds) == 2 and len(rest) == 1:
        known = [name or rest[0] for name in known]
    return f"name the columns: --query-column {_quoted(known[0])} --positive-column {_quoted(known[1])}"


OPPOSITE = re.compile(r"(?i)neg|negatives?|irrelevant|non|not|wrong|incorrect|bad|impossible|distance")
"""Words of a column's name by which its 1 is no positive."""


def label_flags(head: Head) -> str:
    """The flags that name passages and their labels, where a column holds 0 and 1 or is named so; else ""."""
    labels = flag_columns(head) or [
        key for key in named(head, LABEL) if any(as_label(value) is not None for value in leaves(head.column(key)))
    ]
    if labels and has_word(str(labels[0]), OPPOSITE):
        return (f"{labels[0]} is 0 or 1, and 1 seems to mean a negative: write a column with 1 for positives and 0 for "
                "negatives, and name it by --label-column")  # fmt: skip
    if not labels or any(says_negative(str(key)) and head.kinds[key] in TEXTS for key in head.kinds):
        return ""
    query = _one(head, QUERY)
    passage = _one(head, (*PASSAGE, *DOCS, *POSITIVE)) if query else None
    cut = "" if {*map(as_label, leaves(head.column(labels[0])))} - {None} <= FLAGS else " --positive-score X"
    flags = (f"where {labels[0]} says which passages are positives: --query-column {_quoted(query)} "
             f"--positive-column {_quoted(passage)} --label-column {_quoted(str(labels[0]))}{cut}")  # fmt: skip
    return flags if head.named else flags.replace("NAME", "N")


def _one(head: Head, tiers: tuple[str, ...]) -> str | None:
    """The only column of texts whose name says so."""
    names = [name for name in named(head, tiers) if head.kinds[name] in TEXTS]
    return names[0] if len(names) == 1 else None


def _quoted(name: str | None) -> str:
    if name is None:
        return "NAME"
    name = name if len(name) <= NAME_LENGTH else f"{name[:NAME_LENGTH]}…"
    return name if re.fullmatch(r"[\w.:/@][\w.:/@-]*", name) else shlex.quote(name)
