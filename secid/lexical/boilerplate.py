"""Negatives that are not passages: generator preambles, placeholders, and openings that too many texts share."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from secid.lexical.tokens import ALPHANUMERIC

HEAD_CHARACTERS = 240
"""A preamble stands at the start; looking no further keeps quotations in the middle of a passage out."""
OPENING_WORDS = 4
COMMON_TEXTS = 5
"""An opening shared by fewer distinct texts than this says nothing."""
COMMON_SHARE = 0.005
COMMON_RATIO = 5.0
"""How many times more common than among the positives an opening has to be: a house style opens both alike."""

PREAMBLE = re.compile(
    r"""^[\s"'*#>_`-]*(?:
      (?:sure|certainly|absolutely|of\ course|okay|ok|great|no\ problem)\b[\s,.!:–—-]*
          (?:here|i\b|i'|below|let|the\ following|this|thing)
    | (?:sure|certainly|absolutely|of\ course)\s*[!:]
    | (?:here(?:\ is|\ are|['’]s)|below(?:\ is|\ are)|the\ following\ is)\s+(?:an?|the|some|your|one|my|\w+\s+)?\s*
          (?:\w+[\s-]+){0,4}?(?:passage|document|text|paragraph|example|negative|answer|response|abstract|version|snippet)
    | as\ an?\ (?:ai|artificial\ intelligence|large\ language|language)\b
    | i(?:\ am|['’]m)\ (?:sorry|unable|afraid|not\ able)\b
    | i\ (?:cannot|can['’]?t|can\ not|apologi[sz]e|will\ not|won['’]t)\b
    | unfortunately,?\ i\b
    | (?:hard[\s_-]*)?negative(?:[\s_-]+(?:passage|document|example|sample|text))?\s*(?:\d+\s*)?[:\]]
    | (?:passage|document|generated\ text|output|response|rewritten\ passage)\s*\d*\s*:
    | (?:user|assistant|system)\s*:
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""Openings of language models and of their prompts' templates."""

PLACEHOLDERS = frozenset(
    ("n a", "na", "nan", "none", "null", "nil", "empty", "todo", "tbd", "text", "passage", "removed", "deleted")
)
"""Words that stand where a text was meant to be."""
SHORTEST_TEXT = 3
"""Letters and digits below which a text holds no word to speak of."""


def words(text: str) -> list[str]:
    """The alphanumeric tokens of a text in order, lower-cased: what it says whatever its case, spaces or marks."""
    return ALPHANUMERIC.findall(text.lower())


def is_preamble(text: str) -> bool:
    """True where the text opens as a language model answers, or with a prompt's label."""
    return PREAMBLE.match(text[:HEAD_CHARACTERS]) is not None


def is_empty(tokens: list[str]) -> bool:
    """True where the words of a text are none, almost none, or a placeholder for a missing text."""
    return sum(map(len, tokens)) < SHORTEST_TEXT or (len(tokens) <= 2 and " ".join(tokens) in PLACEHOLDERS)


def opening(tokens: list[str]) -> str | None:
    """The first words of a text; None where it has no more than those."""
    return " ".join(tokens[:OPENING_WORDS]) if len(tokens) > OPENING_WORDS else None


@dataclass
class Openings:
    """Counts how many distinct texts open alike."""

    n_texts: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, start: str | None) -> None:
        """Counts one distinct text by its opening."""
        self.n_texts += 1
        if start is not None:
            self.counts[start] += 1


def common_openings(negatives: Openings, positives: Openings) -> dict[str, int]:
    """Openings of suspiciously many negatives, with their counts: at least COMMON_TEXTS distinct texts, COMMON_SHARE
    of them, and COMMON_RATIO times their share among the positives.
    """
    least = max(COMMON_TEXTS, COMMON_SHARE * negatives.n_texts)
    return {
        start: count
        for start, count in negatives.counts.items()
        if count >= least and _rate(count, negatives) >= COMMON_RATIO * _rate(positives.counts[start], positives)
    }


def _rate(count: int, openings: Openings) -> float:
    return count / openings.n_texts if openings.n_texts else 0.0
