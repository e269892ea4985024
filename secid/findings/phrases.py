"""Find phrases with which generators refer to their task: preambles, prompt labels, refusals, notes after a passage."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags
from secid.pool.texts import TEXT_SEPARATOR, Packed, is_plain_ascii

HEAD_WORDS = 12
"""Number of words to search at the beginning of a passage, so that quotations in its middle do not count.
Source: METHOD 14."""
HEAD_CHARACTERS = 160
"""Maximum length of the searched beginning: twelve words of any language with spaces between words."""
FILLER_CHARACTERS = 16
"""Maximum number of characters between "here is" and the word for a passage, in scripts without spaces."""

THING = r"(?:passage|document|paragraph|text|abstract|snippet|negative|response)s?"
"""Pattern of words for what a generator is asked to write. Examples, answers and versions are left out, because people
offer them too.
"""
MADE = (
    r"(?:hard|irrelevant|re-?written|rephrased|paraphrased|generated|synthetic|requested|hypothetical|plausible|"
    r"misleading|deceptive|distractor|relevant|\d+[\s-]*word)"
)
"""Pattern of words that describe a passage as written on request."""
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
"""Pattern of tasks that a language model declines. It matches "I can't help with that", but not the title "I Can't Make
You Love Me"."""

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
"""Pattern of a language model's phrases before or instead of the requested text, and of prompt labels. Genuine passages
do not open with these words. Other phrases are found as openings that many negatives share."""


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
"""Pattern of phrases with which a language model declines a request."""


class Phrases(NamedTuple):
    """Regular expressions for generators' phrases in one language, unanchored. phrases.toml explains the fields."""

    yes: str
    here: str
    thing: str
    label: str
    sorry: str
    unable: str
    starts: str = ""
    spaced: bool = True
    note: Mapping[str, str] = {}


PHRASES_OF: Mapping[str, Phrases] = {
    code: Phrases(**table)
    for code, table in tomllib.loads(Path(__file__).with_name("phrases.toml").read_text(encoding="utf-8")).items()
}
"""ISO 639-1 code -> phrases, tested on preambles and on passages of the language."""

UP_TO_SIX_WORDS = r"(?:[^\s.!?:。]+\ ){0,6}?"
BETWEEN_CHARACTERS = rf"[^.!?:。！？：\n]{{0,{FILLER_CHARACTERS}}}?"
PAUSE = r"[,.!:–—，。、！：؛،\s-]"
COLON = r"[*_]*(?:\ ?[\(（][^()（）]{0,30}[\)）])?[*_]*\ ?[:：]"
ENDS = r"(?![^\W_])"
"""Pattern of the end of a word: no letter follows. A combining mark may, as in Hindi."""


def _language_pattern(language: Phrases) -> str:
    """Return the pattern of one language, without refusals."""
    gap = UP_TO_SIX_WORDS if language.spaced else BETWEEN_CHARACTERS
    blank, ends = (r"\ ", ENDS) if language.spaced else (r"\ ?", "")
    return rf"""(?:
      (?:(?:{language.yes}){PAUSE}+)?(?:{language.here}){blank}{gap}(?:{language.thing}){ends}
    | (?:{language.yes})\ ?[,.!，。、！،]\ ?(?:{language.here}){ends}
    | (?:{language.label})(?:\ ?(?:\#|n[.º°]|№)?\ ?\d{{1,3}})?{COLON}
    )"""


def _refusal(language: Phrases) -> str:
    return rf"(?=(?:{language.sorry}))(?:[^\s]+\ ){{0,9}}?[^\s]*?{language.unable}"


def without_dotless(pattern: str) -> str:
    """Rewrite a pattern for the output of `plain_letters`: dotless i becomes i, and Thai's sara am its two parts."""
    return pattern.replace("ı", "i").replace("\u0e33", "\u0e4d\u0e32")


LEADING_MARKS = r"[\s\"'“”„«»「『【\[¡¿*#>_`-]*"
REFUSAL = "|".join([ENGLISH_REFUSAL, *map(_refusal, PHRASES_OF.values())])
PHRASE = without_dotless(rf"{'|'.join([ENGLISH, *map(_language_pattern, PHRASES_OF.values())])}|(?P<refusal>{REFUSAL})")
ENGLISH_STARTS = (
    "absol all_ alrig as_a assis below certa docum easy_ gener got_ great hard here_ here' i_am i'm i_apo i_can i_cou "
    "i_wil i_won neg no_pr of_co ok passa query re-w regre requi rewri sure synth the_a the_f the_g "
    "these this_ under unfor"
)
"""First letters of the phrases in ENGLISH and ENGLISH_REFUSAL that start with a letter; _ is a blank."""


def _ranges(starts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return the lowest and the highest eight bytes that begin with each start, as sorted numbers (2, n).

    starts : first letters of phrases, with _ for a blank. A start that another one covers is left out.
    """
    prefixes: list[bytes] = []
    for word in sorted(word.replace("_", " ").encode() for word in starts):
        if not prefixes or not word.startswith(prefixes[-1]):
            prefixes.append(word)
    ends = [[int.from_bytes(word.ljust(8, fill)) for word in prefixes] for fill in (b"\0", b"\xff")]
    return np.array(ends, np.uint64)


STARTS = _ranges(" ".join([ENGLISH_STARTS, *(each.starts for each in PHRASES_OF.values())]).split())
"""Ranges of numbers into which the first eight bytes of a phrase fall. Nearly every passage lies outside them."""
START_CHARACTERS = 6
"""Number of first characters that must be ASCII for a text to be ruled out. It is one more than the longest start,
because a combining mark may change a letter."""
LOWER = np.frombuffer(bytes(range(256)).lower(), np.uint8)
NUMBER = re.compile(r"\d+|\b(?:one|two|three|four|five|ten)\b")
SEPARATORS = re.compile(r"[\W_]+")


@cache
def opening_pattern() -> re.Pattern[str]:
    """Return the pattern to match against the result of `head_of`. Compiling it takes 0.06 s.

    Matching lower-case text takes half as long as IGNORECASE.
    """
    return re.compile(rf"{LEADING_MARKS}(?P<phrase>{PHRASE})", re.VERBOSE)


def phrase(text: str) -> str | None:
    """Return the opening words in which a text refers to the task that it was generated for; None for a passage.

    The words are in lower case, with spaces for punctuation and 0 for numbers, so that "Hard negative 2:" and
    "hard negative 1 :" are the same phrase.
    >>> phrase("Here are three HARD NEGATIVE passages that meet the requirements:")
    'here are 0 hard negative'
    """
    match = opening_pattern().match(head_of(text))
    return None if match is None else SEPARATORS.sub(" ", NUMBER.sub("0", match["phrase"])).strip()


def may_be_phrases(texts: Packed) -> Flags:
    """Return (n,) flags, which are False if the first characters of a text rule out a phrase (STARTS).

    A text is ruled out only if it starts with an ASCII letter and its first START_CHARACTERS are plain ASCII.
    """
    first = LOWER[texts.first(8)]
    start, number = first[:, :START_CHARACTERS], first.view(">u8").ravel().astype(np.uint64)
    place = np.maximum(np.searchsorted(STARTS[0], number, side="right"), 1) - 1
    known = (number >= STARTS[0, place]) & (number <= STARTS[1, place])
    return np.asarray(~is_plain_ascii(start) | (first[:, 0] - ord("a") >= 26) | known)


def is_refusal(text: str) -> bool:
    """Return whether a text opens with a phrase that declines a request.

    >>> is_refusal("I'm sorry, but I can't help with that."), is_refusal("Sure! Here are three passages:")
    (True, False)
    """
    match = opening_pattern().match(head_of(text))
    return match is not None and match["refusal"] is not None


def head_of(text: str) -> str:
    """Return the first words of a text, with single blanks between them and letters as in `plain_letters`."""
    return plain_letters(" ".join(text[: 2 * HEAD_CHARACTERS].split(None, HEAD_WORDS)[:HEAD_WORDS])[:HEAD_CHARACTERS])


def plain_letters(text: str) -> str:
    """Return a text in lower case and NFKC, with i for a dotless i, as this module's patterns expect."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).lower().replace("i\u0307", "i").replace("ı", "i")


# Notes that generators put after a passage: that it does not answer the query, or an offer to write another.
#
# The languages and most of the words are those of preambles. Source: METHOD 16.2.

TAIL_WORDS = 25
"""Number of words to search at the end of a passage. Source: METHOD 16.2."""
TAIL_CHARACTERS = 240
"""Maximum length of the searched end: twenty-five words of most languages, and more than enough without spaces."""
NOTE_CHARACTERS = 12
"""Minimum length of a note in brackets. Units, years and most citations are shorter."""
HINTS = ("quer", "question", "hard", "prompt", "requirement", "intent", "let me know", "i hope", "word count", "end of")
"""Words to look for before searching with ENGLISH_NOTE. Every match contains one of them, but few passages do."""
OTHER_HINTS = ("frage", "anforderung", "requête", "question", "exigence", "pregunta", "consulta", "requisito")
CHINESE_HINTS = ("查询", "查詢", "问题", "問題", "要求")
"""Chinese words to look for before searching with PLAIN. Every match contains one of these or of OTHER_HINTS."""
ENGLISH_NOTE = re.compile(
    rf"""
      \b(?:this|that|these|the\ (?:above|generated|following|provided|given))\ (?:[\w-]+\ ){{0,3}}?{THING}\b
          [^.!?\n]{{0,140}}?
          (?: \b(?:(?:the|this|your|given|provided|user|search|original)(?:['’]s)?\ (?:[\w-]+\ )?quer(?:y|ies)
                |hard[\ -]negatives?|prompt|search\ intent|user['’]s\ question)\b
            | \b(?:meet|satisf|fulfil|match|adher|follow)\w*\ [^.!?\n]{{0,60}}?\brequirements?\b
            | (?:\bnot|n['’]t)\ (?:\w+\ ){{0,2}}?(?:answer|address)\b[^.!?\n]{{0,60}}?\bquestion\b
          )
    | \bhard[\ _-]negative(?:\ (?:passage|document|example|sample|text))?\b[^.!?\n]{{0,80}}?\b(?:query|topic|because)\b
    | \blet\ me\ know\ if\ (?:you|this|these)\b[^.!?\n]{{0,80}}?
          \b(?:{THING}|examples?|adjust\w*|modif\w*|revis\w*|changes?|further|anything\ else)\b
    | \bi\ hope\ (?:this|these|that|the)\ (?:[\w-]+\ ){{0,3}}?(?:{THING}|meets?|satisf\w+|fulfil+s?)\b
    | \bword\ count:\ ?\d
    | \bend\ of\ (?:the\ )?(?:passage|document|response)\W*$
    """,
    re.VERBOSE,
)
"""Pattern of a language model's notes after the requested text. They mention the prompt (*the* query, requirements).
People who write about a document do not mention a prompt."""
FOREIGN_LABELS = re.compile(
    without_dotless("|".join(rf"(?:{words.thing})[^\n]{{1,80}}?(?:{words.label})" for words in PHRASES_OF.values())),
    re.VERBOSE,
)
"""Pattern of a word for "passage" followed by a prompt label, in the other languages. It is applied only to notes."""


def _plain(this: str, negation: str, answers: str, question: str, demands: str) -> str:
    """Return the pattern of a sentence that says this passage does not answer the question, or meets the demands.

    this, negation, answers, question, demands : patterns of the words for these in one language.
    """
    near = r"[^.!?。\n]{0,140}?"
    return rf"{this}(?: (?={near}{negation})(?={near}{answers}){near}{question} | {near}{demands})"


PLAIN = re.compile("|".join(_plain(**words.note) for words in PHRASES_OF.values() if words.note), re.VERBOSE)
"""Pattern of notes as in ENGLISH_NOTE, in German, French, Spanish and Chinese, with or without brackets."""
BRACKETS = {")": "(", "]": "[", "）": "（", "】": "【", "*": "*", "_": "_"}
NOTE = re.compile(
    r"(?<!\w)(?:anmerkung|hinweis|remarque|nota|opmerking|uwaga|not|catatan|lưu\ ý|ghi\ chú|примечание|ملاحظة|नोट|"
    r"टिप्पणी|참고|注|注意|备注|備註|注记|หมายเหตุ)\ ?[:：]",
    re.VERBOSE,
)
"""Pattern of words that start a note without brackets."""
NOTE_SIGNS = "|".join(
    [
        *map(re.escape, HINTS + OTHER_HINTS + CHINESE_HINTS),
        rf"[{re.escape(''.join(BRACKETS))}][ \t\n.。]*\z",
        NOTE.pattern.removeprefix(r"(?<!\w)"),
    ]
)
"""Pattern that every tail with a note matches. It is for RE2, which has neither verbose patterns nor lookbehind."""


def trailing_phrase(text: str) -> str | None:
    """Return the words at the end of a text that refer to the task that it was generated for; None for a passage.

    >>> trailing_phrase("Goats climb.\\n\\n(Note: This passage is about goats and does not answer the query.)")
    'this passage is about goats and does not answer the query'
    """
    tail = text[-TAIL_CHARACTERS:]
    lowered = tail.lower()
    match = ENGLISH_NOTE.search(_last_words(lowered)) if _holds(lowered, HINTS) else None
    if match is None and _holds(lowered, OTHER_HINTS if lowered.isascii() else OTHER_HINTS + CHINESE_HINTS):
        match = PLAIN.search(_last_words(plain_letters(tail)))
    if match is None and (note := _note(tail, lowered)):
        match = FOREIGN_LABELS.search(_last_words(plain_letters(note)))
    return None if match is None else SEPARATORS.sub(" ", match[0]).strip()


def _holds(text: str, hints: tuple[str, ...]) -> bool:
    return any(map(text.__contains__, hints))  # faster than any regular expression


def _last_words(text: str) -> str:
    return " ".join(text.split()[-TAIL_WORDS:])


def _note(tail: str, lowered: str) -> str:
    """Return a note at the end of a text, in brackets or after a word such as "Hinweis:"; "" if there is none."""
    end = tail.rstrip(" \t\n.。")
    opening = BRACKETS.get(end[-1:])
    if opening is not None:
        start = end.rfind(opening, 0, len(end) - 1)
        note = end[start:] if start >= 0 else ""
        return note if len(note) >= NOTE_CHARACTERS and (" " in note or not note.isascii()) else ""
    match = NOTE.search(lowered) if ":" in tail or "：" in tail else None
    return "" if match is None else lowered[match.end() :]


def trailing_notes(texts: Packed) -> Flags:
    """Return (n,) flags of texts whose end refers to the task that they were generated for.

    >>> trailing_notes(Packed.of(["Goats climb. (Note: this passage does not answer the query.)", "Goats climb."]))
    array([ True, False])
    """
    ends = texts.ends()
    starts = np.maximum(ends - texts.lengths, ends - TAIL_CHARACTERS)
    tails = [texts.data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    beyond = np.flatnonzero(texts.n_bytes(0x80, 0x100))
    for place, text in zip(beyond.tolist(), texts.take(beyond), strict=True):
        tails[place] = text[-TAIL_CHARACTERS:].lower().encode()
    lengths = np.fromiter(map(len, tails), np.int64, len(tails))
    has_sign = Packed(TEXT_SEPARATOR.join([*tails, b""]).lower(), lengths).may_match(NOTE_SIGNS)
    return texts.flags(lambda text: trailing_phrase(text) is not None, has_sign)
