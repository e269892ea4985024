"""Reference for the text findings, with plain sets and strings. It imports none of the rules that it checks.

Source: METHOD 14.
"""

from __future__ import annotations

import html
import itertools
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

PLACEHOLDERS = {
    "n a", "na", "nan", "none", "null", "nil", "empty", "todo", "tbd", "text", "passage", "removed", "deleted"
}  # fmt: skip
WITHOUT_SPACES = ("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")
NAMES = ("false_negative", "near_copy", "repeat", "empty", "query_echo", "hub")


@dataclass(frozen=True)
class PlainRecord:
    """Record as strings, each negative once."""

    query: str
    positives: Sequence[str]
    negatives: Sequence[str]


@cache
def form(text: str) -> str:
    shown = "".join(char for char in html.unescape(text) if char == "\u200b" or not is_unseen(char))
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", shown).casefold())
    return " ".join("".join(map(_spelled, folded)).split())


@cache
def _spelled(char: str) -> str:
    if char in "#%" or (unicodedata.category(char) in {"Sm", "Sc", "So"} and char not in "|⁄−"):
        return f" {char} "
    return char if unicodedata.category(char)[0] in "LNM" else " "


@cache
def is_unseen(char: str) -> bool:
    selector = unicodedata.name(char, "").startswith(("VARIATION SELECTOR", "MONGOLIAN FREE VARIATION SELECTOR"))
    return unicodedata.category(char) == "Cf" or selector or char == "\u034f"


@cache
def runs(text: str) -> frozenset[tuple[str, ...]]:
    words = form(text).split()
    characters = list("".join(words))
    sides = [[unicodedata.name(char, "").startswith(WITHOUT_SPACES) for char in word] for word in words]
    n_words = sum(not side for word in sides for side, _ in itertools.groupby(word))
    if sum(map(sum, sides)) > 2 * n_words:
        return frozenset(tuple(characters[i : i + 10]) for i in range(len(characters) - 9))
    return frozenset(tuple(words[i : i + 5]) for i in range(len(words) - 4))


def is_empty(text: str) -> bool:
    every = form(text).split()
    words = [word for word in every if any(unicodedata.category(char)[0] in "LN" for char in word)]
    placeholder = len(every) < 5 and " ".join(words) in PLACEHOLDERS
    return not words or placeholder or (len(form(text)) == 1 and "a" <= form(text) <= "z")


@cache
def is_near(negative: str, positive: str) -> bool:
    own, other = runs(negative), runs(positive)
    common = len(own & other)
    return (len(own) >= 2 and 10 * common >= 8 * len(own)) or (len(other) >= 3 and 10 * common >= 8 * len(other))


def positives_of(sources: Iterable[Sequence[PlainRecord]], query: str) -> list[str]:
    return [text for records in sources for row in records if form(row.query) == form(query) for text in row.positives]


def findings(sources: Sequence[Sequence[PlainRecord]]) -> list[list[set[str]]]:
    """Return the findings of every negative of every source, in order."""
    return [[names for row in records for names in _of_record(row, records, sources)] for records in sources]


def _of_record(
    row: PlainRecord, records: Sequence[PlainRecord], sources: Sequence[Sequence[PlainRecord]]
) -> list[set[str]]:
    positives = positives_of(sources, row.query)
    n_queries = len({form(other.query) for other in records})
    found = []
    for place, negative in enumerate(row.negatives):
        served = {form(other.query) for other in records if form(negative) in map(form, other.negatives)}
        equal = form(negative) != "" and form(negative) in map(form, positives)
        rules = {
            "false_negative": equal,
            "near_copy": not equal and any(is_near(negative, positive) for positive in positives),
            "repeat": form(negative) in map(form, row.negatives[:place]),
            "empty": is_empty(negative),
            "query_echo": form(negative) != "" and form(negative) == form(row.query),
            "hub": 100 * len(served) > 5 * max(100, n_queries),
        }
        found.append({name for name, holds in rules.items() if holds})
    return found
