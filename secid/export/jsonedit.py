"""Changes inside one JSON text that leave every other byte of it as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

SPACE = re.compile(r"[ \t\r\n]*")
_decode = json.JSONDecoder().raw_decode


class Span(NamedTuple):
    """Characters start … end-1 of a text."""

    start: int
    end: int


class Member(NamedTuple):
    """One member of an object: where it begins (its key) and where its value stands."""

    key: str
    start: int
    value: Span


def members(text: str, start: int = 0) -> list[Member]:
    """The members of the object that begins at `start`, in order. Raises ValueError where none does."""
    found = []
    at = _after(text, start, "{")
    while text[at] != "}":
        start = at
        if text[at] != '"':
            raise ValueError(f"a key is expected at character {at}")
        key, at = _decode(text, at)
        value = _value(text, _after(text, at, ":"))
        found.append(Member(key, start, value))
        at = _next(text, value.end, "}")
    return found


def elements(text: str, start: int = 0) -> list[Span]:
    """The elements of the array that begins at `start`, in order. Raises ValueError where none does."""
    found = []
    at = _after(text, start, "[")
    while text[at] != "]":
        found.append(_value(text, at))
        at = _next(text, found[-1].end, "]")
    return found


def values(text: str, start: int = 0) -> dict[str | int, Span]:
    """Where the values of the object or array that begins at `start` stand, by key or position."""
    if text[_skip(text, start)] == "[":
        return dict(enumerate(elements(text, start)))
    return {member.key: member.value for member in members(text, start)}


def array_text(text: str, spans: Sequence[Span], items: Sequence[str]) -> str:
    """An array of items, spaced as the array of `spans` is in `text`."""
    separator = text[spans[0].end : spans[1].start] if len(spans) > 1 else ", "
    return f"[{separator.join(items)}]"


def replaced(text: str, changes: Sequence[tuple[Span, str]]) -> str:
    """The text with each span replaced. Spans must not overlap."""
    for (start, end), new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def removals(found: Sequence[Member], gone: Collection[str]) -> list[Span]:
    """What to cut so that members go with one comma each. One of them at least stays."""
    first = next(number for number, member in enumerate(found) if member.key not in gone)
    behind = [
        Span(found[number - 1].value.end, member.value.end)
        for number, member in enumerate(found)
        if number > first and member.key in gone
    ]
    return [Span(found[0].start, found[first].start), *behind] if first else behind


def _value(text: str, at: int) -> Span:
    return Span(at, _decode(text, at)[1])


def _after(text: str, at: int, character: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] != character:
        raise ValueError(f"{character!r} is expected at character {at}")
    return _skip(text, at + 1)


def _next(text: str, at: int, closing: str) -> int:
    """Place of the next member or element, or of the closing bracket."""
    at = _skip(text, at)
    return at if text[at : at + 1] == closing else _after(text, at, ",")


def _skip(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return found.end() if found else at
