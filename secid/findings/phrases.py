"""Phrases of generators about their task: preambles, labels of prompts, refusals, and notes behind a passage."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from secid.arrays import Flags
from secid.pool.texts import BETWEEN, Packed, is_plain_ascii

HEAD_WORDS = 12
"""Source: METHOD 14. Only the beginning of a passage is searched; a quotation in its middle does not count."""
HEAD_CHARACTERS = 160
"""Twelve words of any language that puts spaces between them, and more than is read in one that does not."""
FILLER_CHARACTERS = 16
"""In scripts without spaces, characters between "here is" and the word for a passage: with both within the first 24,
two a word."""

THING = r"(?:passage|document|paragraph|text|abstract|snippet|negative|response)s?"
"""Things that a generator is asked for. People offer examples, answers and versions too."""
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
"""Tasks that a language model declines: "I can't help with that" is no title, "I Can't Make You Love Me" is one."""

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
"""Phrases of a language model before the requested text, or instead of it, and the labels of its prompts: words with
which no passage opens. Other phrases show as openings that many negatives share."""


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
"""Phrases by which a language model declines a request."""


class Phrases(NamedTuple):
    """Phrases of generators in one language: regular expressions without anchors, as phrases.toml explains them."""

    yes: str
    here: str
    thing: str
    label: str
    sorry: str
    unable: str
    starts: str = ""
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


def without_dotless(pattern: str) -> str:
    """A pattern with the letters that `plain_letters` leaves: no dotless i, and Thai's sara am in its two parts."""
    return pattern.replace("ı", "i").replace("\u0e33", "\u0e4d\u0e32")


MARKS = r"[\s\"'“”„«»「『【\[¡¿*#>_`-]*"
REFUSAL = "|".join([ENGLISH_REFUSAL, *map(_refusal, LANGUAGES.values())])
PHRASE = without_dotless(rf"{'|'.join([ENGLISH, *map(_of, LANGUAGES.values())])}|(?P<refusal>{REFUSAL})")
PATTERN = re.compile(rf"{MARKS}(?P<phrase>{PHRASE})", re.VERBOSE)
"""Pattern for `head_of`. Matching lower-cased letters takes half of the time that IGNORECASE takes."""
ENGLISH_STARTS = (
    "absol all_ alrig as_a assis below certa docum easy_ gener got_ great hard here_ here' i_am i'm i_apo i_can i_cou "
    "i_wil i_won neg no_pr of_co ok passa query re-w regre requi rewri sure synth the_a the_f the_g "
    "these this_ under unfor"
)
"""First letters of ENGLISH and ENGLISH_REFUSAL, if they start with a letter; _ is a blank."""


def _ranges(starts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return (2, n) the first and the last of the eight bytes that begin with each start, those within others left out.

    As numbers, sorted. starts: _ is a blank.
    """
    words = [word.replace("_", " ").encode() for word in starts]
    own = sorted(word for word in words if not any(word != other and word.startswith(other) for other in words))
    ends = [[int.from_bytes(word.ljust(8, fill)) for word in dict.fromkeys(own)] for fill in (b"\0", b"\xff")]
    return np.array(ends, np.uint64)


STARTS = _ranges(" ".join([ENGLISH_STARTS, *(each.starts for each in LANGUAGES.values())]).split())
"""First ASCII characters of phrases, as numbers. They tell nearly every passage from a phrase."""
START_CHARACTERS = 6
"""One more than the longest start has: a mark behind a letter may change it."""
LOWER = np.frombuffer(bytes(range(256)).lower(), np.uint8)
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


def may_be_phrases(texts: Packed) -> Flags:
    """Return (n,) False where the first characters of a text show that it opens with no phrase (STARTS).

    True for all texts that do not start with a letter of ASCII, and plain blanks at most.
    """
    first = LOWER[texts.first(8)]
    start, number = first[:, :START_CHARACTERS], first.view(">u8").ravel().astype(np.uint64)
    place = np.maximum(np.searchsorted(STARTS[0], number, side="right"), 1) - 1
    known = (number >= STARTS[0, place]) & (number <= STARTS[1, place])
    return np.asarray(~is_plain_ascii(start) | (first[:, 0] - ord("a") >= 26) | known)


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


# Notes that generators put behind a passage: that it does not answer the query, or an offer to write another.
#
# The languages and most of the words are those of preambles. Source: METHOD 16.2.

TAIL_WORDS = 25
"""Source: METHOD 16.2."""
TAIL_CHARACTERS = 240
"""Twenty-five words of most languages, and more than is needed in one without spaces."""
NOTE_CHARACTERS = 12
"""Length of the shortest note in brackets. Units, years and most citations are shorter."""
HINTS = ("quer", "question", "hard", "prompt", "requirement", "intent", "let me know", "i hope", "word count", "end of")
"""One of these is in every note that ENGLISH_NOTE finds, and in few passages."""
OTHER_HINTS = ("frage", "anforderung", "requête", "question", "exigence", "pregunta", "consulta", "requisito")
CHINESE_HINTS = ("查询", "查詢", "问题", "問題", "要求")
"""One of these, or of OTHER_HINTS, is in every note that PLAIN finds."""
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
"""Notes of a language model after the requested text. It mentions its prompt (*the* query, requirements that it meets);
people who speak of a document do not."""
OTHERS = re.compile(
    without_dotless("|".join(rf"(?:{words.thing})[^\n]{{1,80}}?(?:{words.label})" for words in LANGUAGES.values())),
    re.VERBOSE,
)
"""A passage, followed by what a prompt calls its parts, in the other languages. Searched only in notes."""


def _plain(this: str, negation: str, answers: str, question: str, demands: str) -> str:
    """A passage, called this one, and in the same sentence that it does not answer, or meets what "you" demanded."""
    near = r"[^.!?。\n]{0,140}?"
    return rf"{this}(?: (?={near}{negation})(?={near}{answers}){near}{question} | {near}{demands})"


PLAIN = re.compile("|".join(_plain(**words.note) for words in LANGUAGES.values() if words.note), re.VERBOSE)
"""Notes as in ENGLISH_NOTE, in German, French, Spanish and Chinese: a sentence, with or without brackets."""
BRACKETS = {")": "(", "]": "[", "）": "（", "】": "【", "*": "*", "_": "_"}
NOTE = re.compile(
    r"(?<!\w)(?:anmerkung|hinweis|remarque|nota|opmerking|uwaga|not|catatan|lưu\ ý|ghi\ chú|примечание|ملاحظة|नोट|"
    r"टिप्पणी|참고|注|注意|备注|備註|注记|หมายเหตุ)\ ?[:：]",
    re.VERBOSE,
)
"""Words that start a note without brackets."""
NOTE_SIGNS = "|".join(
    [
        *map(re.escape, HINTS + OTHER_HINTS + CHINESE_HINTS),
        rf"[{re.escape(''.join(BRACKETS))}][ \t\n.。]*\z",
        NOTE.pattern.removeprefix(r"(?<!\w)"),
    ]
)
"""For RE2, which knows neither verbose patterns nor what is behind: in every tail with a note."""


def trailing_phrase(text: str) -> str | None:
    """The words at the end of a text that speak of its task; None for a passage.

    >>> trailing_phrase("Goats climb.\\n\\n(Note: This passage is about goats and does not answer the query.)")
    'this passage is about goats and does not answer the query'
    """
    tail = text[-TAIL_CHARACTERS:]
    lowered = tail.lower()
    match = ENGLISH_NOTE.search(_last_words(lowered)) if _holds(lowered, HINTS) else None
    if match is None and _holds(lowered, OTHER_HINTS if lowered.isascii() else OTHER_HINTS + CHINESE_HINTS):
        match = PLAIN.search(_last_words(plain_letters(tail)))
    if match is None and (note := _note(tail, lowered)):
        match = OTHERS.search(_last_words(plain_letters(note)))
    return None if match is None else SEPARATORS.sub(" ", match[0]).strip()


def _holds(text: str, hints: tuple[str, ...]) -> bool:
    return any(map(text.__contains__, hints))  # faster than any regular expression


def _last_words(text: str) -> str:
    return " ".join(text.split()[-TAIL_WORDS:])


def _note(tail: str, lowered: str) -> str:
    """Return a possible note at the end of a text: its last brackets, or what follows a word for note, else ""."""
    end = tail.rstrip(" \t\n.。")
    opening = BRACKETS.get(end[-1:])
    if opening is not None:
        start = end.rfind(opening, 0, len(end) - 1)
        note = end[start:] if start >= 0 else ""
        return note if len(note) >= NOTE_CHARACTERS and (" " in note or not note.isascii()) else ""
    match = NOTE.search(lowered) if ":" in tail or "：" in tail else None
    return "" if match is None else lowered[match.end() :]


def trailing_notes(texts: Packed) -> Flags:
    """Return (n,) whether the end of a text speaks of the task that it was generated for.

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
    has_sign = Packed(BETWEEN.join([*tails, b""]).lower(), lengths).matches(NOTE_SIGNS)
    return texts.flags(lambda text: trailing_phrase(text) is not None, has_sign)
