"""The form of passages: unfinished, wrapped, with markup, or with a generator's note behind.

Each rule reads one text. Its first test is one that nearly every passage fails at once, since the rules run over
millions of them. Source: METHOD 16.2.
"""

from __future__ import annotations

import re

from secid.findings.trailing_notes import trailing_phrase
from secid.pool.scripts import UNSPACED_RANGES

LEAST_WORDS, LEAST_CHARACTERS = 8, 24
"""Of an unfinished text; characters in scripts without spaces. Shorter texts are titles and answers."""
SENTENCE_ENDS = (
    ".!?‼⁇⁈⁉。．｡！？﹒﹖﹗︒︕︖"  # Latin, Greek, Cyrillic, Hebrew, Chinese, Japanese
    "\u037e։؞؟۔।॥၊။።፧፨᠃᠉᭚᭛᱾᱿꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꯫܀܁܂߹࠷࠹࠽࠾"
)
"""Sentence-final marks. Source: Unicode's property Sentence_Terminal."""
BLANK = "".join(map(chr, (*range(0x2000, 0x2010), 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0xFEFF)))
"""White space beyond ASCII, and marks that no reader sees."""
CLOSING = BLANK + " \t\n\r\f\v\u3000\"'”’»›“‘«‹„)]}）］｝」』】〉》〕〗*_"
"""What may follow a sentence mark: white space, brackets, quotes, and Markdown's emphasis."""
LAST_CHARACTERS = 80
"""Of a text: enough for references and tags behind a sentence mark."""
REFERENCED = re.compile(
    rf"""(?:[{re.escape(SENTENCE_ENDS)}](?<!\.\.) | [\u0370-\u03ff\u1f00-\u1fff][\s"'”’»)]*;)
         (?: [{re.escape(CLOSING)}] | \[[^\[\]]{{1,24}}\] | <[/a-zA-Z][^<>]*> )*\Z""",
    re.VERBOSE,
)
"""A sentence mark before references ("[1]") and tags, and Greek's question mark, which mostly is a semicolon."""
SCRIPT_CHARACTERS = 24
"""Of a text: enough to tell in which script it ends."""
UNMARKED = re.compile("[\u0e00-\u0eff\u1780-\u17ff\u19e0-\u19ff]")
"""Thai, Lao and Khmer put no mark at the end of a sentence."""
UNSPACED = re.compile("[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in UNSPACED_RANGES) + "]")
OPENING = "{[`~\"'“*"
"""First characters of everything that `is_wrapped` looks for."""
INDENT = BLANK + " \t\n\r\f\v\u3000"
WRAPPER = re.compile(
    r"""(?P<fence>`{3}|~{3})
      | \{\s*["'“][^"'”\n]{1,60}["'”]\s*:
      | (?P<array>\[(?:\s*\[)*\s*(?:\{\s*["'“]|["'“][^"'”]*["'”]\s*(?:,|\]\s*$)))
      | [*]{0,2}["'“](?:
          (?i:(?:hard|easy)[\s_-]?)?(?i:negative|positive)(?i:s?(?:[\s_-]?(?:passage|document|example|sample|text|\d+))*)
        | (?:passage|document|text|content|query|answer|response)s?(?:_?(?:passage|document|text|\d+))*
        )["'”][*]{0,2}\s*:""",
    re.VERBOSE,
)
"""How wrapped texts start: a fence, an object, an array, a quoted key of a prompt. Titles are quoted, too, before a
colon ("Document 5": a film), but they begin with a capital. An array of numbers holds no passage."""
TAG = re.compile(
    r"""<(?: /[a-zA-Z][\w:.-]*\s* | [a-zA-Z][\w:.-]*(?:\s[^<>]*)?/ | !--[^>]*-- | ![a-zA-Z][^<>]* | \?[^<>]*\?
      | (?:[bB][rR] | (?<!\w<)(?![A-Z][a-z])(?i:
          a|abbr|article|aside|b|blockquote|body|button|caption|center|cite|code|dd|del|div|dl|dt|em|figcaption|figure
          |font|footer|form|h[1-6]|head|header|hr|html|i|iframe|img|input|ins|kbd|label|li|link|main|mark|meta|nav|ol
          |option|p|pre|q|s|script|section|select|small|span|strike|strong|style|su[bp]|table|tbody|td|textarea|tfoot
          |th|thead|title|tr|tt|u|ul|var|video
        ))(?:\s[^<>]*)?)>""",
    re.VERBOSE,
)
"""A tag that opens has a name of HTML's and follows no word: `List<Object>` and `vector<a>` are types."""
TAG_SHARE = 0.05
"""Of the characters. Source: METHOD 16.2."""


def is_unfinished(text: str) -> bool:
    """True where a text of some length does not end as a sentence does.

    >>> is_unfinished("The goats climb the steep rocks above the"), is_unfinished("“They climb,” he said (often).”")
    (True, False)
    """
    whole, last = text, text[-1:]
    if last in CLOSING:
        text = text.rstrip(CLOSING)
        last = text[-1:]
    if last in SENTENCE_ENDS and not text.endswith(".."):  # "" is in every string
        return False
    return _is_long(text) and not _ends_elsewhere(whole)


def _ends_elsewhere(text: str) -> bool:
    """Whether a sentence mark stands before the last characters, or the script has none."""
    end = text[-LAST_CHARACTERS:]
    return REFERENCED.search(end) is not None or UNMARKED.search(end, len(end) - SCRIPT_CHARACTERS) is not None


def _is_long(text: str) -> bool:
    """At least LEAST_WORDS words, or LEAST_CHARACTERS characters of scripts without spaces."""
    if len(text.split(None, LEAST_WORDS)) >= LEAST_WORDS:
        return True
    if text.isascii():
        return False
    return len(UNSPACED.findall(text, 0, 2 * LEAST_CHARACTERS)) >= LEAST_CHARACTERS


def is_wrapped(text: str) -> bool:
    """True where a text is a JSON object or array, or a fenced block, or starts with a quoted key of a prompt.

    >>> is_wrapped('{"hard_negative": "Goats climb."}'), is_wrapped("[1] Goats climb.")
    (True, False)
    """
    head = text[:1]
    if head in INDENT:
        text = text.lstrip(INDENT)
        head = text[:1]
    if head not in OPENING:
        return False
    match = WRAPPER.match(text)
    return match is not None and (match["array"] is None or text.rstrip().endswith("]"))


def is_markup(text: str) -> bool:
    """True where HTML or XML tags, escaped ones too, make up more than TAG_SHARE of a text.

    >>> is_markup("<p>Goats <b>climb</b>.</p>"), is_markup("where a < b and b > c")
    (True, False)
    """
    if "&" in text and "&lt;" in text:  # a single character is found 50 times as fast
        text = text.replace("&lt;", "<").replace("&gt;", ">")
    if "<" not in text:
        return False
    return sum(map(len, TAG.findall(text))) > TAG_SHARE * len(text)


def has_trailing_note(text: str) -> bool:
    """True where the end of a text speaks of the task that it was generated for.

    >>> has_trailing_note("Goats climb. (Note: this passage does not answer the query.)")
    True
    """
    return trailing_phrase(text) is not None
