"""Find passages that are unfinished, wrapped, full of markup, or followed by a generator's note.

Each rule reads one text. Its first test quickly rules out nearly every passage, because rules run over millions of
passages. Source: METHOD 16.2.
"""

from __future__ import annotations

import re

import numpy as np

from secid.arrays import Flags
from secid.findings.phrases import trailing_notes
from secid.pool.texts import Packed
from secid.pool.tokens import UNSPACED_RANGES

MIN_WORDS, MIN_CHARACTERS = 8, 24
"""Minimum length of a text that may be flagged as unfinished, in words, or in characters of scripts without spaces.
Titles and answers are shorter."""
SENTENCE_ENDS = (
    ".!?‼⁇⁈⁉。．｡！？﹒﹖﹗︒︕︖"  # Latin, Greek, Cyrillic, Hebrew, Chinese, Japanese
    "\u037e։؞؟۔।॥၊။።፧፨᠃᠉᭚᭛᱾᱿꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꯫܀܁܂߹࠷࠹࠽࠾"
)
"""Sentence-final marks. Source: Unicode's property Sentence_Terminal."""
BLANK = "".join(map(chr, (*range(0x2000, 0x2010), 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0xFEFF)))
"""White space beyond ASCII, and invisible marks."""
CLOSING = BLANK + " \t\n\r\f\v\u3000\"'”’»›“‘«‹„)]}）］｝」』】〉》〕〗*_"
"""Characters that may follow a sentence mark: white space, brackets, quotes, and Markdown's emphasis."""
LAST_CHARACTERS = 80
"""Number of final characters to read, which is enough for references and tags after a sentence mark."""
REFERENCED = re.compile(
    rf"""(?:[{re.escape(SENTENCE_ENDS)}](?<!\.\.) | [\u0370-\u03ff\u1f00-\u1fff][\s"'”’»)]*;)
         (?: [{re.escape(CLOSING)}] | \[[^\[\]]{{1,24}}\] | <[/a-zA-Z][^<>]*> )*\Z""",
    re.VERBOSE,
)
"""Pattern of a final sentence mark, which references ("[1]") and tags may follow. Greek questions usually end with a
semicolon."""
FINAL_SCRIPT_CHARACTERS = 24
"""Number of final characters that show the script in which a text ends."""
UNMARKED = re.compile("[\u0e00-\u0eff\u1780-\u17ff\u19e0-\u19ff]")
"""Pattern of a letter of Thai, Lao or Khmer, which do not mark the end of a sentence."""
UNSPACED_CHARACTER = re.compile("[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in UNSPACED_RANGES) + "]")
WRAPPER_STARTS = "{[`~\"'“*"
"""Characters with which a wrapped text can start (`is_wrapped`)."""
INDENT = BLANK + " \t\n\r\f\v\u3000"
IN_FRONT, ENDS_OF_ASCII = (
    np.frombuffer(marks.encode("ascii", "ignore"), np.uint8) for marks in (WRAPPER_STARTS + INDENT, ".!?")
)
"""ASCII bytes that may begin a wrapped text, and ASCII bytes that end a finished text."""
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
"""Pattern of the start of a wrapped text: a fence, an object, an array, or a quoted key of a prompt. Titles before a
colon are quoted too ("Document 5": a film), but they start with a capital. An array of numbers holds no passage."""
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
"""Pattern of a tag. An opening tag has an HTML name and follows no word: `List<Object>` and `vector<a>` are types."""
TAG_SHARE = 0.05
"""Maximum share of characters in tags. A text above it counts as markup. Source: METHOD 16.2."""


def is_unfinished(text: str) -> bool:
    """Return whether a text of at least MIN_WORDS words or MIN_CHARACTERS does not end like a sentence.

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
    """Return whether only references and tags follow the last sentence mark, or the script has no sentence marks."""
    end = text[-LAST_CHARACTERS:]
    return REFERENCED.search(end) is not None or UNMARKED.search(end, len(end) - FINAL_SCRIPT_CHARACTERS) is not None


def _is_long(text: str) -> bool:
    """Return whether a text has MIN_WORDS words, or MIN_CHARACTERS characters of scripts without spaces."""
    if len(text.split(None, MIN_WORDS)) >= MIN_WORDS:
        return True
    if text.isascii():
        return False
    return len(UNSPACED_CHARACTER.findall(text, 0, 2 * MIN_CHARACTERS)) >= MIN_CHARACTERS


def is_wrapped(text: str) -> bool:
    """Return whether a text is a JSON object, an array or a fenced block, or starts with a quoted key of a prompt.

    >>> is_wrapped('{"hard_negative": "Goats climb."}'), is_wrapped("[1] Goats climb.")
    (True, False)
    """
    head = text[:1]
    if head in INDENT:
        text = text.lstrip(INDENT)
        head = text[:1]
    if head not in WRAPPER_STARTS:
        return False
    match = WRAPPER.match(text)
    return match is not None and (match["array"] is None or text.rstrip().endswith("]"))


def is_markup(text: str) -> bool:
    """Return whether HTML or XML tags, plain or escaped, make up more than TAG_SHARE of a text.

    >>> is_markup("<p>Goats <b>climb</b>.</p>"), is_markup("where a < b and b > c")
    (True, False)
    """
    if "&" in text and "&lt;" in text:  # a single character is found 50 times as fast
        text = text.replace("&lt;", "<").replace("&gt;", ">")
    if "<" not in text:
        return False
    return sum(map(len, TAG.findall(text))) > TAG_SHARE * len(text)


def form_flags(texts: Packed) -> dict[str, Flags]:
    """Return finding -> (n,) flags for the form of texts. Bytes rule out most texts before the rules read them."""
    first, last = texts.first(1)[:, 0], texts.last(2)
    at_start = np.isin(first, IN_FRONT) | (first >= 0x80)
    at_end = np.isin(last[:, 1], ENDS_OF_ASCII) & (last != ord(".")).any(axis=1)
    has_tag = (texts.n_bytes(ord("<"), ord("<") + 1) > 0) | (texts.n_bytes(ord("&"), ord("&") + 1) > 0)
    return {
        "wrapper": texts.flags(is_wrapped, at_start),
        "unfinished": texts.flags(is_unfinished, ~at_end),
        "markup": texts.flags(is_markup, has_tag),
        "trailing_note": trailing_notes(texts),
    }
