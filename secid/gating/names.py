"""Which source of the baseline a new file follows: the same name, once dates, versions and shard numbers are left out.

dense-2025-11.jsonl, dense_20251103.parquet, dense-v2, dense.part-00003-of-00010   all follow dense
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from secid.errors import SettingsError

SEPARATOR = r"[-_. ]"
DATE = r"20[12]\d(?:[-_.]?(?:0[1-9]|1[0-2])(?:[-_.]?(?:0[1-9]|[12]\d|3[01]))?|[-_.]?[wq]\d{1,2})?"
VERSION = r"v\d+(?:\.\d+)*"
SHARD = r"(?:part|shard)[-_.]?\d+(?:[-_.]of[-_.]\d+)?|\d+[-_.]of[-_.]\d+"
PART = re.compile(rf"{SEPARATOR}+(?:{DATE}|{VERSION}|{SHARD})$", re.IGNORECASE)
"""A date (2025, 2025-11, 20251103, 2025-w45), a version (v2, v1.3) or a shard (part-3, 00003-of-00010) at the end.
A bare number is none of them: dense_rank_20_30 does not follow dense_rank_10_20."""
NUMBERS = re.compile(r"(\d+)")


def stem(name: str) -> str:
    """The name without dates, versions and shard numbers at its end; a name of nothing else stays as it is.

    >>> stem("dense-2025-11-v2"), stem("bm25.part-00003-of-00010"), stem("dense_rank_10_20")
    ('dense', 'bm25', 'dense_rank_10_20')
    """
    while (shorter := PART.sub("", name)) and shorter != name:
        name = shorter
    return name


def predecessor(name: str, known: Iterable[str], names: Mapping[str, str], where: str) -> str | None:
    """The source of the baseline that `name` follows; None for a new one.

    known : the baseline's sources.   names : the policy's [gate.names]: a name, or its stem, to a source of the
    baseline.   where: the policy's origin.
    Of several with the same stem the latest, in the order in which people count. Raises SettingsError where the policy
    names a source that the baseline does not have.
    """
    sources = list(known)
    for key in (name, stem(name)):
        if name in sources and name not in names:
            return name
        if key in names:
            if names[key] not in sources:
                raise SettingsError(
                    f"names.{key} = {names[key]!r} is not a source of the baseline",
                    where=where,
                    remedy=f"its sources are {', '.join(sources)}",
                )
            return names[key]
    return max((other for other in sources if stem(other) == stem(name)), key=_counting, default=None)


def _counting(name: str) -> list[tuple[int, str]]:
    """v10 after v9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in NUMBERS.split(name)]
