"""Negatives that are not passages: generator preambles, and openings that too many texts share."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from math import exp, log

import numpy as np
import numpy.typing as npt

from secid.pool.tokens import ALPHANUMERIC

HEAD_CHARACTERS = 240
"""A preamble stands at the start; looking no further keeps quotations in the middle of a passage out."""
OPENING_WORDS = 4
COMMON_TEXTS = 5
"""An opening shared by fewer distinct texts than this says nothing."""
COMMON_SHARE = 0.005
COMMON_RATIO = 5.0
"""How many times more common than among the positives an opening has to be: a house style opens both alike."""
COMMON_CHANCE = 0.01
"""Largest chance that so few positives open so, if they did as often as the negatives. Without it 7 of 55 sound samples
of Cranfield failed: 87 positives without "free flight measurements of" say nothing where 8 of 613 negatives open so."""

THING = r"(?:passage|document|paragraph|text|abstract|snippet|negative|response)s?"
"""What a generator is asked for. People offer examples, answers and versions too."""
MADE = (
    r"(?:hard|irrelevant|re-?written|rephrased|paraphrased|generated|synthetic|requested|hypothetical|plausible|"
    r"misleading|deceptive|distractor|relevant|\d+[\s-]*word)"
)
"""What tells that the thing was made to order."""
WRITES = r"(?:write|create|generate|provide|draft|compose|rewrite|produce|help\ you|help\ with)\b"
UNABLE = (
    r"i(?:\ (?:can(?:not|['’]?t|\ not)|could(?:\ not|n['’]?t)|will\ not|won['’]t)|"
    r"(?:\ am|['’]m)(?:\ currently)?\ (?:unable|not\ able)\ to)(?:\ \w+ly)?"
)
SERVICE = (
    r"(?:assist|comply|do\ so|help\ (?:you\ )?(?:with|create|write|generate)|fulfil+\ (?:this|that|your|the|any|such)|"
    r"(?:create|generate|provide|produce)\ (?:an?|any|the|this|that|such|you|your|content|passages?|documents?|texts?|"
    r"information|hard)|"
    r"(?:write|rewrite|complete|process|continue\ with)\ (?:\w+[\s-]+){0,5}?"
    r"(?:passage|document|text|content|request|prompt|task)s?)\b"
)
"""What a language model declines to do: "I can't help with that" is no title, "I Can't Make You Love Me" is one."""

PREAMBLE = re.compile(
    rf"""[\s"'“*#>_`-]*(?:
      (?:(?:sure|certainly|absolutely)(?:\ thing)?[\s,.!:–—-]+|(?:of\ course|okay|ok|great|no\ problem|understood)!\s+)
          (?:here|below)(?:\ is|\ are|['’]s)\ (?:an?|the|some|your|one|my|another|\d+)\b
    | (?:sure|certainly|absolutely|of\ course|okay|ok|alright|great|no\ problem|understood|got\ it)\b[\s,.!:–—-]+
          (?: (?:here|below)(?:\ is|\ are|['’]s)\ (?:one:|(?:[\w'’,-]+\s+){{1,6}}?(?:{THING}|example|version|answer)\b)
            | here\ you\ go
            | the\ following\ (?:is|are|{THING})\b
            | (?:let\ me|i(?:\ will|['’]ll|\ can|['’]d\ be\ (?:happy|glad)\ to))\ {WRITES}
            | i(?:\ have|['’]ve)\ (?:written|created|generated|drafted|composed|rewritten|produced)\b
          )
    | (?:sure|certainly)!\s
    | (?:here|below)(?:\ is|\ are|['’]s)\ (?:an?|one|another|some|your|my|two|three|\d+)\s+
          (?:[\w'’,-]+\s+){{0,6}}?(?:passage|negative)s?\b
    | (?:here|below)(?:\ is|\ are|['’]s)\ (?:an?|some|your|one)\s+(?:[\w'’,-]+\s+){{0,3}}?
          (?:document|text|paragraph)s?\ (?:about|on|that|which|for|describing|discussing|related)\b[^.!?:\n]{{0,120}}:
    | (?:(?:here|below)(?:\ is|\ are|['’]s)|the\ following\ (?:is|are))\ (?:(?:an?|the|one|some|your)\s+)?
          (?:[\w'’,-]+\s+){{0,4}}?{MADE}\b[\s,-]+(?:[\w'’,-]+\s+){{0,4}}?{THING}\b
    | as\ an?\ (?:ai|artificial\ intelligence|(?:(?:ai|artificial\ intelligence)\ )?(?:large\ )?language\ model
          |(?:ai|artificial\ intelligence)\ (?:assistant|model|chatbot|system))
          (?:\ (?:developed|created|trained|designed|made|built|without)\b[^,.!?\n]{{0,60}})?(?:,|(?=\ i\b))\s*
          (?:\w+ly,?\ )?(?:i|my|it(?:['’]s|\ is)\ (?:not|important))\b
    | i(?:\ am|['’]m)\ (?:very\ |so\ |really\ )?(?:sorry|afraid)\b,?\ (?:but\ |for\ [\w\ ]{{1,40}},?\ but\ |that\ )?
          (?:{UNABLE}\ (?:{SERVICE}|help\b(?!\ but)|provide\b|do\ th(?:at|is)\b)|as\ an?\ (?:ai|language|large)\b)
    | (?:(?:unfortunately|regrettably),?\ )?{UNABLE}\ {SERVICE}
    | i\ apologi[sz]e\b,?\ (?:but\ {UNABLE}
          |for\ (?:the|any|my)\ (?:confusion|misunderstanding|inconvenience|oversight)\b)
    | \[?(?:hard[\s_-]*negative(?:[\s_-]+(?:passage|document|example|sample|text))?
          |negative[\s_-]+(?:passage|document|example|sample|text))\s*(?:\#?\d+\s*)?[:\]]
    | negative\ \#?\d+\s*: | (?:passage|document)(?:\ \#?\d+)?\s*:
    | (?:generated|re-?written|synthetic)\ {THING}(?:\ \#?\d+)?\s*:
    | \#+\ *response\s*: | assistant\s*: | <\|?(?:assistant|im_start|start_header_id)\|?> | \[/?inst\]
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""What a language model says before the text that it was asked for, or instead of it, and the labels of its prompts:
in words that a passage does not begin with. Others are found by many texts sharing them (`common_openings`)."""

PREAMBLE_STARTS = (
    "su", "ce", "ab", "of", "ok", "al", "gr", "no", "un", "go", "he", "be", "th", "as", "i ", "i'", "re", "ha", "ne",
    "pa", "do", "ge", "sy",
)  # fmt: skip
"""The first two characters of every preamble that begins with a letter."""


def words(text: str) -> list[str]:
    """The alphanumeric tokens of a text in order, lower-cased: what it says whatever its case, spaces or marks."""
    return ALPHANUMERIC.findall(text.lower())


def is_preamble(text: str) -> bool:
    """True where the text opens as a language model answers, or with a prompt's label."""
    return PREAMBLE.match(text[:HEAD_CHARACTERS]) is not None


def may_be_preamble(first: npt.NDArray[np.uint8], second: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """(n,) False where a lower-cased ASCII text that begins with these two bytes cannot be a preamble."""
    pairs = np.array([ord(start[0]) << 8 | ord(start[1]) for start in PREAMBLE_STARTS], np.uint16)
    letter = (first >= ord("a")) & (first <= ord("z"))
    return ~letter | np.isin(first.astype(np.uint16) << 8 | second, pairs)


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
    of them, and COMMON_RATIO times their share among the positives, of which there are enough to tell (COMMON_CHANCE).
    """
    least = max(COMMON_TEXTS, COMMON_SHARE * negatives.n_texts)
    return {
        start: count
        for start, count in negatives.counts.items()
        if count >= least
        and _rate(count, negatives) >= COMMON_RATIO * _rate(positives.counts[start], positives)
        and _chance(positives.counts[start], positives.n_texts * _rate(count, negatives)) <= COMMON_CHANCE
    }


def _chance(count: int, expected: float) -> float:
    """Upper bound of the chance of so few, or fewer, where more are expected. Source: Chernoff 1952."""
    if count >= expected:
        return 1.0
    return exp(count - expected + (count * log(expected / count) if count else 0.0))


def _rate(count: int, openings: Openings) -> float:
    return count / openings.n_texts if openings.n_texts else 0.0
