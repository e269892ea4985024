"""Foreign text (names, passages, paths) made harmless for each kind of page."""

from __future__ import annotations

import re
import unicodedata

HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
KEPT_JOINERS = frozenset("\u200c\u200d")
"""Zero-width joiners spell words in Persian and Indic scripts; alone they do nothing."""
MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~^$:@&=\"'])")


def plain(text: str, limit: int | None = None) -> str:
    """One line without control, escape, bidi or unassigned characters; each becomes U+FFFD.

    limit: longest result in characters; a longer one ends in an ellipsis.
    """
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(_visible(char) for char in text)


def _visible(char: str) -> str:
    if char in "\n\r\t":
        return " "
    if unicodedata.category(char) in HIDDEN_CATEGORIES and char not in KEPT_JOINERS:
        return "\ufffd"
    return char


def markdown(text: str, limit: int | None = None) -> str:
    """As `plain`, with every character that Markdown or GitHub gives a meaning escaped.

    Mentions and issue links are broken by numeric entities, which GitHub does not linkify.
    """
    return MARKDOWN_SPECIAL.sub(_escaped, plain(text, limit))


def _escaped(match: re.Match[str]) -> str:
    char = match.group(1)
    return f"&#{ord(char)};" if char in "@<>&:|#\"'" else f"\\{char}"
