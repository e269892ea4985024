"""What an error says of columns whose roles are open: an example of each, and flags that would name them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from secid.read.passages import leaves
from secid.read.rows import shorten, shown
from secid.read.schemas.binding import unnumbered
from secid.read.schemas.contents import may_hold_passages
from secid.read.schemas.head import Head, Key
from secid.read.schemas.patterns import NEGATIVE, NEGATIVE_WORD, POSITIVE, QUERY, fits, has_word, named
from secid.read.schemas.special import as_label

COLUMN_FLAGS = (
    "--query-column, --positive-column and --negative-column (or --label-column) name the columns; --format the schema"
)

ROLES = ("query", "positive", "negative")

LABEL_WORD = re.compile(r"(?i)labels?|ratings?|grades?|scores?|relevance|relevant|judge?ments?|similarity")
"""Words of columns that hold labels."""

SHOWN = 16
"""Columns that are shown; an object keyed by query may have thousands."""

EXAMPLE_LENGTH = 60

NAME_LENGTH = 100
"""Characters of a column's name that a message holds."""


def seen(head: Head) -> str:
    """The columns with their kinds and an example each, one a line; to stand behind a message."""
    if not head.kinds:
        return ": the rows are empty"
    columns = list(head.kinds.items())[:SHOWN]
    lines = [f"    {shorten(str(key), NAME_LENGTH)}: {kind}{_example(head, key)}" for key, kind in columns]
    more = len(head.kinds) - len(lines)
    return "\n  columns:\n" + "\n".join([*lines, *([f"    … and {more} more"] if more else [])])


def _example(head: Head, key: Key) -> str:
    value = next(iter(head.typical(key)), None)
    return "" if value is None else ", " + shown(value, EXAMPLE_LENGTH)


def column_flags(head: Head) -> str:
    """The flags that name query, positive and negative of these columns; which they are without names where unknown."""
    told = _roles(head)
    if len(told) == len(ROLES):
        return f"if these are query, positive and negatives: {_flags(ROLES, told)}"
    return label_flags(head) or COLUMN_FLAGS


def label_flags(head: Head) -> str:
    """The flags that name query, passages and their labels; "" where one of these is not to be seen."""
    told = _roles(head)
    labels = {str(key): {*map(as_label, leaves(head.column(key)))} for key in head.kinds if str(key) not in told}
    found = [key for key, values in labels.items() if values == {0.0, 1.0}]
    found += [key for key, values in labels.items() if values and has_word(key, LABEL_WORD)]
    if len(told) < len(ROLES) - 1 or not found:
        return ""
    more = "" if labels[found[0]] <= {0.0, 1.0, None} else " --positive-score X"
    return f"if these are query, passages and their labels: {_flags((*ROLES[:-1], 'label'), (*told, found[0]))}{more}"


def _flags(roles: Sequence[str], names: Sequence[str]) -> str:
    return " ".join(f"--{role}-column {_quoted(name)}" for role, name in zip(roles, names, strict=True))


def negative_flag(head: Head) -> str:
    """The flag that names the negatives, where query and positive are known."""
    words = [str(key) for key in head.kinds if has_word(str(key), NEGATIVE_WORD) and may_hold_passages(head, key)]
    told = _roles(head)
    found = words or list(told[2:])
    if not found:
        return label_flags(head) or "--negative-column names it"
    several = " (one source each: score the file once for each)" if len(found) > 1 else ""
    return f"--negative-column {' or '.join(map(_quoted, found))}, if that holds them{several}"


def _quoted(name: str) -> str:
    name = name if len(name) <= NAME_LENGTH else f"{name[:NAME_LENGTH]}…"
    return name if re.fullmatch(r"[\w.:/@][\w.:/@-]*", name) else shlex.quote(name)


def _roles(head: Head) -> tuple[str, ...]:
    """Columns that may be query, positive and negatives: by name, else in order; fewer where none is left."""
    texts = [key for key in head.kinds if may_hold_passages(head, key)]
    roles: list[Key] = []
    for names in (QUERY, POSITIVE, NEGATIVE):
        left = [key for key in texts if key not in roles]
        if not roles:
            left = [key for key in left if head.kinds[key] == "text"]
        free = [key for key in left if not _is_of_another(head, str(key), names)]
        fitting = [key for key in named(head, names) if key in left] or free
        if not fitting:
            break
        roles.append(fitting[0])
    told = tuple(map(str, roles))
    stem = unnumbered(told[2]) if len(told) == len(ROLES) else ""
    of_stem = [key for key in texts if head.named and key not in roles[:2] and unnumbered(str(key)) == stem]
    return (*told[:2], stem) if stem and len(of_stem) > 1 else told


def _is_of_another(head: Head, name: str, names: tuple[str, ...]) -> bool:
    """Whether a name is known for another role; one of queries does not count beside a surer one."""
    others = {QUERY: name in named(head, QUERY), POSITIVE: fits(name, POSITIVE[:1]), NEGATIVE: fits(name, NEGATIVE)}
    return any(known for other, known in others.items() if other is not names)
