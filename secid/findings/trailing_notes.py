"""Notes that generators put behind a passage: that it does not answer the query, or an offer to write another.

The languages and most of the words are those of preambles. Source: METHOD 16.2.
"""

from __future__ import annotations

import re

from secid.findings.preambles import SEPARATORS, THING, TONGUES, as_read, plain_letters

TAIL_WORDS = 25
"""Source: METHOD 16.2."""
TAIL_CHARACTERS = 240
"""Twenty-five words of most languages, and more than is needed in one without spaces."""
NOTE_CHARACTERS = 12
"""Of the shortest note in brackets; units, years and most citations are shorter."""
HINTS = ("quer", "question", "hard", "prompt", "requirement", "intent", "let me know", "i hope", "word count", "end of")
"""One of these is in every note that ENGLISH finds, and in few passages."""
OTHER_HINTS = ("frage", "anforderung", "requête", "question", "exigence", "pregunta", "consulta", "requisito")
CHINESE_HINTS = ("查询", "查詢", "问题", "問題", "要求")
"""The same for PLAIN."""
ENGLISH = re.compile(
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
"""What a language model says behind the text that it was asked for. Its labels of prompts ("query", "requirements")
tell it from people who speak of a document: of *the* query, and of requirements that it meets."""
OTHERS = re.compile(
    as_read("|".join(rf"(?:{tongue.thing})[^\n]{{1,80}}?(?:{tongue.label})" for tongue in TONGUES.values())), re.VERBOSE
)
"""A passage, and behind it what a prompt calls its parts, in the other languages. Searched in notes alone."""


def _plain(this: str, negation: str, answers: str, question: str, demands: str) -> str:
    """A passage, called this one, and in the same sentence that it does not answer, or meets what "you" demanded."""
    near = r"[^.!?。\n]{0,140}?"
    return rf"{this}(?: (?={near}{negation})(?={near}{answers}){near}{question} | {near}{demands})"


PLAIN = re.compile(
    "|".join(
        _plain(*words)
        for words in (
            (
                r"\bdiese[rsnm]?\ (?:\w+\ )?(?:(?:text)?passage|text|(?:text)?abschnitt|absatz|dokument)\b",
                r"\b(?:nicht|kein\w*|ohne)\b",
                r"beantworte",
                r"\b(?:such|nutzer)?(?:an)?frage\b",
                r"\b(?:ihre|deine|eure)[rn]?\ anforderungen\b",
            ),
            (
                r"\bcet?t?e?\ (?:passage|texte|document|paragraphe|extrait)\b",
                r"\bn(?:e\b|['’])",
                r"\brépon",
                r"\b(?:la|votre|cette)\ (?:question|requête)\b",
                r"\b(?:vos|tes)\ exigences\b",
            ),
            (
                r"\beste\ (?:pasaje|texto|documento|párrafo|fragmento)\b",
                r"\bno\b",
                r"\b(?:respond|contest)",
                r"\b(?:la|tu|su)\ (?:pregunta|consulta)\b",
                r"\b(?:tus|sus)\ requisitos\b",
            ),
            (
                r"(?:[这這该該此本]|以上|上述)[个個段篇份]?(?:段落|文段|文字|文本|文章|文档|文檔|篇章)",
                r"(?:没有|沒有|[未不]|无法|無法)",
                r"(?:回答|解答)",
                r"(?:问题|問題|查询|查詢)",
                r"[您你]的要求",
            ),
        )
    ),
    re.VERBOSE,
)
"""What ENGLISH finds, in German, French, Spanish and Chinese: in a sentence of its own, with or without brackets."""
BRACKETS = {")": "(", "]": "[", "）": "（", "】": "【", "*": "*", "_": "_"}
NOTE = re.compile(
    r"(?<!\w)(?:anmerkung|hinweis|remarque|nota|opmerking|uwaga|not|catatan|lưu\ ý|ghi\ chú|примечание|ملاحظة|नोट|"
    r"टिप्पणी|참고|注|注意|备注|備註|注记|หมายเหตุ)\ ?[:：]",
    re.VERBOSE,
)
"""Where a note starts that is in no brackets."""


def trailing_phrase(text: str) -> str | None:
    """The words at the end of a text that speak of its task; None for a passage.

    >>> trailing_phrase("Goats climb.\\n\\n(Note: This passage is about goats and does not answer the query.)")
    'this passage is about goats and does not answer the query'
    """
    tail = text[-TAIL_CHARACTERS:]
    lowered = tail.lower()
    match = ENGLISH.search(_last_words(lowered)) if _holds(lowered, HINTS) else None
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
    """What may be a note at the end of a text: its last brackets, or what follows the word for one; "" for neither."""
    end = tail.rstrip(" \t\n.。")
    opening = BRACKETS.get(end[-1:])
    if opening is not None:
        start = end.rfind(opening, 0, len(end) - 1)
        note = end[start:] if start >= 0 else ""
        return note if len(note) >= NOTE_CHARACTERS and (" " in note or not note.isascii()) else ""
    match = NOTE.search(lowered) if ":" in tail or "：" in tail else None
    return "" if match is None else lowered[match.end() :]
