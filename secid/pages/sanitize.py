"""Untrusted text (names, passages, paths) made harmless for each kind of page."""

from __future__ import annotations

import json
import re

from secid.results.commands import hidden

NAME_LIMIT = 200
"""Longest name shown, in characters; longer ones lose their middle. File names are about as long at most."""
ISOLATE, END_ISOLATE = "\u2068", "\u2069"
"""Unicode's own marks around a name within a sentence: its direction cannot leak into our words."""
LEFT_TO_RIGHT = "\u2066"
"""Unicode's mark before code within a sentence, which ends as a name does."""
CODE = re.compile(rf"{LEFT_TO_RIGHT}([^{LEFT_TO_RIGHT}{END_ISOLATE}]+){END_ISOLATE}")
"""A command within a text. Its characters may be markup: each page escapes them."""
ISOLATES = re.compile(f"[{ISOLATE}{LEFT_TO_RIGHT}{END_ISOLATE}]")
BREAK = "\u2060"
"""Word joiner: invisible, of no width, and enough to stop a site from making a link of what it parts."""

VERDICT = re.compile(r"^(\s*VERDICT):")

MARKDOWN_ESCAPED = re.compile(r"[\\`*_\[\]~$]")
MARKDOWN_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;", "#": "&#35;"}
MARKDOWN_ENTITY = re.compile(r"[&<>|#]")
MARKUP = re.compile(f"{MARKDOWN_ESCAPED.pattern}|{MARKDOWN_ENTITY.pattern}")
LINE_START = re.compile(r"^(\s*)(\d+(?=[.)](?:\s|$))|[-+=])")
LINKED = re.compile(
    r"""(?<=[@#])(?=\w)        # mentions, mail addresses, issues
      | (?<=:)(?=//)           # addresses
      | (?<=:)(?=[\w+-]+:)    # pictures, written :name:
      | (?<=www)(?=\.)         # addresses without a scheme
      | (?<=gh)(?=-\d)         # issues, written GH-1
    """,
    re.IGNORECASE | re.VERBOSE,
)
COMMIT = re.compile(r"\b[0-9a-f]{7,40}\b", re.IGNORECASE)
COMMIT_PART = 6


def plain(text: str, limit: int | None = None) -> str:
    """One line without control, escape, bidi or unassigned characters; each becomes U+FFFD.

    limit: longest result in characters; a longer one ends in an ellipsis.
    """
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():  # nearly all texts, thirty times as fast
        return text
    return "".join(_visible(char) for char in text)


def inert(line: str) -> str:
    """Change a line so that no CI service takes it for a command, and no script for a verdict.

    GitHub acts on lines with :: first, after white space, and on ##[ anywhere; `verdict_line` begins with VERDICT:.
    """
    if line.lstrip().startswith("::") or "##[" in line:
        line = line.replace("::", ": :").replace("##[", "## [")
    return VERDICT.sub(r"\1 :", line)


def log_line(text: str) -> str:
    """Return any text as one line for a terminal or a log: `plain`, then `inert`."""
    return inert(plain(text))


def json_shown(text: str) -> str:
    """Return the same JSON document for a terminal or a log: characters that no line may hold become \\u escapes."""
    if not text.replace("\n", "").isprintable():
        text = "".join(_escaped(char) for char in text)
    return text.replace("##[", "#\\u0023[")


def short(name: str, limit: int = NAME_LIMIT) -> str:
    """A name as `plain`, cut in its middle where it is longer than limit."""
    if len(name) > limit:
        head = limit // 2
        name = f"{name[:head]}…{name[len(name) - (limit - head - 1) :]}"
    return plain(name)


def named(name: str, limit: int = NAME_LIMIT) -> str:
    """A name to stand within a sentence, isolated so that right-to-left names keep to themselves."""
    return f"{ISOLATE}{short(name, limit)}{END_ISOLATE}"


def code(text: str) -> str:
    """What a reader would type, within a sentence or as a cell; "" stays empty."""
    return f"{LEFT_TO_RIGHT}{plain(text)}{END_ISOLATE}" if text else ""


def without_isolates(text: str) -> str:
    """The sentence for places that do not know isolates, such as terminals."""
    return ISOLATES.sub("", text)


def markdown(text: str, limit: int | None = None) -> str:
    """As `plain`, with every character that Markdown or GitHub gives a meaning escaped.

    Sites look for mentions, issues and addresses after rendering, when escapes are gone: those
    are parted by an invisible character, as is what reads like a commit.
    """
    text = MARKDOWN_ESCAPED.sub(r"\\\g<0>", _unlinked(text, limit))
    text = MARKDOWN_ENTITY.sub(lambda match: MARKDOWN_ENTITIES[match.group()], text)
    return LINE_START.sub(_unlisted, text)


def markdown_sentence(text: str) -> str:
    """As `markdown` for a sentence or cell of ours, with its code as code."""
    return "".join(markdown_code(part) if place % 2 else markdown(part) for place, part in enumerate(CODE.split(text)))


def markdown_code(text: str) -> str:
    """Code that no text can leave, also in a cell of a table."""
    line = plain(text).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def markdown_html(text: str, limit: int | None = None) -> str:
    """As `markdown` for the inside of an HTML element, where a backslash escapes nothing and would be seen."""
    return MARKUP.sub(lambda match: f"&#{ord(match.group())};", _unlinked(text, limit))


def _unlinked(text: str, limit: int | None) -> str:
    text = plain(text.replace(ISOLATE, "").replace(END_ISOLATE, ""), limit)
    return LINKED.sub(BREAK, COMMIT.sub(_parted, text))


def _parted(match: re.Match[str]) -> str:
    """A run of hexadecimal digits in parts too short for a commit; a plain number as it is."""
    text = match.group()
    return (
        text if text.isdigit() else BREAK.join(text[at : at + COMMIT_PART] for at in range(0, len(text), COMMIT_PART))
    )


def _unlisted(match: re.Match[str]) -> str:
    space, start = match.groups()
    return f"{space}{start}&#8288;" if start.isdigit() else f"{space}\\{start}"


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if char != "\n" and hidden(char) else char


def _visible(char: str) -> str:
    if char in "\n\r\t":
        return " "
    return "\ufffd" if hidden(char) else char
