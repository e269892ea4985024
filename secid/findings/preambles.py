"""How generators speak of their task: preambles, labels of prompts and refusals, in English and other languages.

`phrase` gives the words with which a text speaks of its making, None for a passage. Source: METHOD 14.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

HEAD_WORDS = 12
"""Source: METHOD 14. A quotation in the middle of a passage is none of our business."""
HEAD_CHARACTERS = 160
"""Twelve words of any language that puts spaces between them, and more than is read in one that does not."""
FILLER_CHARACTERS = 16
"""In scripts without spaces, characters between "here is" and the word for a passage: with both within the first 24,
two a word."""

THING = r"(?:passage|document|paragraph|text|abstract|snippet|negative|response)s?"
"""What a generator is asked for. People offer examples, answers and versions too."""
MADE = (
    r"(?:hard|irrelevant|re-?written|rephrased|paraphrased|generated|synthetic|requested|hypothetical|plausible|"
    r"misleading|deceptive|distractor|relevant|\d+[\s-]*word)"
)
"""Signs that the passage was made to order."""
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

ENGLISH = rf"""(?:
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
    | (?:here|below)(?:\ is|\ are|['’]s)\ (?:an?|one|another|some|your|my|the|two|three|four|
          five|ten|several|\d+)\s+          (?:[\w'’,-]+\s+){{0,6}}?(?:passage|negative)s?\b
    | (?:here|below)(?:\ is|\ are|['’]s)\ (?:an?|some|your|one)\s+(?:[\w'’,-]+\s+){{0,3}}?
          (?:document|text|paragraph)s?\ (?:about|on|that|which|for|describing|discussing|related)\b[^.!?:\n]{{0,120}}:
    | (?:(?:here|below)(?:\ is|\ are|['’]s)|the\ following\ (?:is|are))\ (?:(?:an?|the|one|some|your)\s+)?
          (?:[\w'’,-]+\s+){{0,4}}?{MADE}\b[\s,-]+(?:[\w'’,-]+\s+){{0,4}}?{THING}\b
    | \[?(?:hard[\s_-]*negative(?:[\s_-]+(?:passage|document|example|sample|text))?
          |negative[\s_-]+(?:passage|document|example|sample|text))\s*(?:\#?\d+\s*)?[:\]]
    | (?:hard\ |easy\ )?(?:negatives?|passage|document|query|requirements?)
          (?:\ \#?\d+)?[*_]*(?:\ ?\([^()]{{0,40}}\))?[*_]*\s*:
    | (?:the\ following|these|the\ above|all)\ (?:[\w'’,-]+\s+){{0,4}}?(?:passages|negatives)
          \ (?:all\ |each\ |both\ )?(?:meet|satisfy|fulfil+|match
              |(?:do|will|should|would|might|may)\ (?:not\ )?(?:answer|be|seem)
              |are\ (?:all\ )?(?:related|relevant|irrelevant|similar|designed|hard|plausible|misleading|topically))\b
    | (?:below|here)\ (?:you\ (?:will\ |can\ )?find|i\ (?:present|provide|give|list))\ (?:[\w'’,-]+\s+){{0,6}}?{THING}\b
    | (?:this|the\ (?:above|generated|following))\ (?:hard\ )?(?:passage|negative)
          \ (?:is|meets|satisfies|does\ not|was)\ (?:an?\ |the\ |answer\ the\ )?(?:hard\ negative|requirements?|query)\b
    | (?:generated|re-?written|synthetic)\ {THING}(?:\ \#?\d+)?\s*:
    | \#+\ *response\s*: | assistant\s*: | <\|?(?:assistant|im_start|start_header_id)\|?> | \[/?inst\]
    )"""
"""What a language model says before the text that it was asked for, or instead of it, and the labels of its prompts:
in words with which a passage does not open. Others show as openings that many negatives share."""


ENGLISH_REFUSAL = rf"""(?:
      as\ an?\ (?:ai|artificial\ intelligence|(?:(?:ai|artificial\ intelligence)\ )?(?:large\ )?language\ model
          |(?:ai|artificial\ intelligence)\ (?:assistant|model|chatbot|system))
          (?:\ (?:developed|created|trained|designed|made|built|without)\b[^,.!?\n]{{0,60}})?(?:,|(?=\ i\b))\s*
          (?:\w+ly,?\ )?(?:i|my|it(?:['’]s|\ is)\ (?:not|important))\b
    | i(?:\ am|['’]m)\ (?:very\ |so\ |really\ )?(?:sorry|afraid)\b,?\ (?:but\ |for\ [\w\ ]{{1,40}},?\ but\ |that\ )?
          (?:{UNABLE}\ (?:{SERVICE}|help\b(?!\ but)|provide\b|do\ th(?:at|is)\b)|as\ an?\ (?:ai|language|large)\b)
    | (?:(?:unfortunately|regrettably),?\ )?{UNABLE}\ {SERVICE}
    | i\ apologi[sz]e\b,?\ (?:but\ {UNABLE}
          |for\ (?:the|any|my)\ (?:confusion|misunderstanding|inconvenience|oversight)\b)
    )"""
"""How a language model declines what it was asked for."""


class Phrases(NamedTuple):
    """How generators speak in one language: regular expressions without anchors, as phrases.toml explains them."""

    yes: str
    here: str
    thing: str
    label: str
    sorry: str
    unable: str
    spaced: bool = True
    note: Mapping[str, str] = {}


LANGUAGES: Mapping[str, Phrases] = {
    code: Phrases(**table)
    for code, table in tomllib.loads(Path(__file__).with_name("phrases.toml").read_text(encoding="utf-8")).items()
}
"""By ISO 639-1 code. Each is tested on preambles and on passages of its language."""

BETWEEN_WORDS = r"(?:[^\s.!?:。]+\ ){0,6}?"
BETWEEN_CHARACTERS = rf"[^.!?:。！？：\n]{{0,{FILLER_CHARACTERS}}}?"
PAUSE = r"[,.!:–—，。、！：؛،\s-]"
COLON = r"[*_]*(?:\ ?[\(（][^()（）]{0,30}[\)）])?[*_]*\ ?[:：]"
ENDS = r"(?![^\W_])"
"""No letter follows; a mark may, as in Hindi."""


def _of(language: Phrases) -> str:
    """The pattern of one language, but for refusals."""
    between = BETWEEN_WORDS if language.spaced else BETWEEN_CHARACTERS
    blank, ends = (r"\ ", ENDS) if language.spaced else (r"\ ?", "")
    return rf"""(?:
      (?:(?:{language.yes}){PAUSE}+)?(?:{language.here}){blank}{between}(?:{language.thing}){ends}
    | (?:{language.yes})\ ?[,.!，。、！،]\ ?(?:{language.here}){ends}
    | (?:{language.label})(?:\ ?(?:\#|n[.º°]|№)?\ ?\d{{1,3}})?{COLON}
    )"""


def _refusal(language: Phrases) -> str:
    """The pattern of refusals in one language."""
    return rf"(?=(?:{language.sorry}))(?:[^\s]+\ ){{0,9}}?[^\s]*?{language.unable}"


def as_read(pattern: str) -> str:
    """A pattern with the letters that `plain_letters` leaves: no dotless i, and Thai's sara am in its two parts."""
    return pattern.replace("ı", "i").replace("\u0e33", "\u0e4d\u0e32")


MARKS = r"[\s\"'“”„«»「『【\[¡¿*#>_`-]*"
REFUSAL = "|".join([ENGLISH_REFUSAL, *map(_refusal, LANGUAGES.values())])
PATTERN = re.compile(
    as_read(rf"{MARKS}(?P<phrase>{'|'.join([ENGLISH, *map(_of, LANGUAGES.values())])}|(?P<refusal>{REFUSAL}))"),
    re.VERBOSE,
)
"""Of `head_of`: lower-cased letters are matched in half of the time that IGNORECASE takes."""
NUMBER = re.compile(r"\d+|\b(?:one|two|three|four|five|ten)\b")
SEPARATORS = re.compile(r"[\W_]+")


def phrase(text: str) -> str | None:
    """The words with which a text speaks of the task that it was generated for; None where it opens as a passage.

    Lower-cased, punctuation as single spaces, numbers as 0: "Hard negative 2:" and "hard negative 1 :" are one phrase.
    >>> phrase("Here are three HARD NEGATIVE passages that meet the requirements:")
    'here are 0 hard negative'
    """
    match = PATTERN.match(head_of(text))
    return None if match is None else SEPARATORS.sub(" ", NUMBER.sub("0", match["phrase"])).strip()


def is_refusal(text: str) -> bool:
    """True where a text declines what its writer was asked for: one of the phrases.

    >>> is_refusal("I'm sorry, but I can't help with that."), is_refusal("Sure! Here are three passages:")
    (True, False)
    """
    match = PATTERN.match(head_of(text))
    return match is not None and match["refusal"] is not None


def head_of(text: str) -> str:
    """The first words of a text in lower case, one blank between them, its letters in one form (NFKC, no dotless i)."""
    return plain_letters(" ".join(text[: 2 * HEAD_CHARACTERS].split(None, HEAD_WORDS)[:HEAD_WORDS])[:HEAD_CHARACTERS])


def plain_letters(text: str) -> str:
    """A text in lower case, its letters in one form (NFKC, no dotless i), as the patterns of this package expect it."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).lower().replace("i\u0307", "i").replace("ı", "i")
