"""The two characters that decide whether a text is looked at as a preamble let every preamble through."""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import _constants as codes
from re import _parser as parser
from typing import Any

import numpy as np
import pytest

from secid.pool.boilerplate import PREAMBLE, PREAMBLE_STARTS, may_be_preamble

PRINTABLE = [chr(code) for code in range(32, 127)]


def starts(items: Iterable[tuple[Any, Any]], length: int = 2) -> set[str]:
    """The first characters, lower-cased, of all printable ASCII texts that a parsed pattern matches."""
    found = {""}
    for kind, value in items:
        if all(len(begun) == length for begun in found):
            break
        more = one(kind, value, length)
        found = {(begun + ending)[:length] for begun in found for ending in more}
    return found


def one(kind: Any, value: Any, length: int) -> set[str]:
    if kind is codes.LITERAL:
        return {chr(value).lower()}
    if kind is codes.IN:
        return {char.lower() for char in PRINTABLE if any(holds(*item, char) for item in value)}
    if kind is codes.BRANCH:
        return set().union(*(starts(branch, length) for branch in value[1]))
    if kind is codes.SUBPATTERN:
        return starts(value[3], length)
    if kind in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        least, most, inner = value
        return set().union(*(starts(list(inner) * n, length) for n in range(least, min(most, least + length) + 1)))
    if kind in (codes.AT, codes.ASSERT):
        return {""}
    raise NotImplementedError(kind)


def holds(kind: Any, value: Any, char: str) -> bool:
    if kind is codes.RANGE:
        return value[0] <= ord(char) <= value[1]
    if kind is codes.CATEGORY:
        return {codes.CATEGORY_SPACE: char.isspace(), codes.CATEGORY_DIGIT: char.isdigit(),
                codes.CATEGORY_WORD: char.isalnum() or char == "_"}[value]  # fmt: skip
    return kind is codes.LITERAL and chr(value).lower() == char.lower()


def with_letter(found: set[str]) -> set[str]:
    return {start for start in found if start[:1].isalpha()}


def test_the_starts_are_those_of_the_pattern():
    """All that the pattern allows, and none that it does not."""
    short = re.sub(r'^\[\\s"[^\]]*\]\*', "", PREAMBLE.pattern)  # without the marks that may stand before the words
    assert len(short) < len(PREAMBLE.pattern)
    assert with_letter(starts(parser.parse(short, re.VERBOSE | re.IGNORECASE))) == set(PREAMBLE_STARTS)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("abc|d[ef]g|h(?:i|j)k", {"ab", "de", "df", "hi", "hj"}),
        (r"(?:so|as),?\ x", {"so", "as"}),
        (r"a\s?b", {"a ", "ab"}),
        (r"(?=x)ab{0,2}c", {"ab", "ac"}),
    ],
)
def test_starts_of_known_patterns(pattern, expected):
    assert starts(parser.parse(pattern)) == expected


def test_two_bytes_decide():
    texts = ["as", "at", "i ", "is", "[h", "  ", "1 "]
    first, second = (np.array([ord(text[place]) for text in texts], np.uint8) for place in (0, 1))
    assert may_be_preamble(first, second).tolist() == [True, False, True, False, True, True, True]
