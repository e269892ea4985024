"""Sanitise untrusted text, and format numbers. All pages use these functions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isfinite

from secid.records import has_hidden_characters

# Sanitise untrusted text (names, passages, paths) for each kind of page.

NAME_LIMIT = 200
"""Maximum length of a name in characters. A longer name is cut in the middle. Few file names are longer."""
ISOLATE, END_ISOLATE = "\u2068", "\u2069"
"""Unicode characters around a name in a sentence. They keep its text direction from changing the words around it."""
LEFT_TO_RIGHT = "\u2066"
"""Unicode character before code in a sentence. END_ISOLATE ends the code."""
CODE = re.compile(rf"{LEFT_TO_RIGHT}([^{LEFT_TO_RIGHT}{END_ISOLATE}]+){END_ISOLATE}")
"""A command in a text. Its characters may be markup, so each page escapes them."""
ISOLATES = re.compile(f"[{ISOLATE}{LEFT_TO_RIGHT}{END_ISOLATE}]")
WORD_JOINER = "\u2060"
"""Word joiner. It is invisible, and a site does not make a link of a text that it breaks up."""

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
COMMIT_HASH = re.compile(r"\b[0-9a-f]{7,40}\b", re.IGNORECASE)
COMMIT_PART = 6


def plain(text: str, limit: int | None = None) -> str:
    """Return a text as one line, cut to `limit` characters. Control, bidi and unassigned characters become U+FFFD."""
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():  # thirty times faster, and true for nearly all texts
        return text
    return "".join(map(_visible, text))


def without_commands(line: str) -> str:
    """Change a line that a CI service could run as a command, or a script could mistake for a verdict.

    GitHub acts on lines that begin with ::, after white space, and on ##[ anywhere. Verdicts begin with VERDICT:.
    """
    if line.lstrip().startswith("::") or "##[" in line:
        line = line.replace("::", ": :").replace("##[", "## [")
    return VERDICT.sub(r"\1 :", line)


def log_line(text: str) -> str:
    """Return an untrusted text as one line for a terminal or a log: `plain`, then `without_commands`."""
    return without_commands(plain(text))


def json_shown(text: str) -> str:
    """Return an equivalent JSON document for a terminal or a log. Hidden characters become \\u escapes."""
    if not text.replace("\n", "").isprintable():
        hidden = {char for char in text if char != "\n" and has_hidden_characters(char)}
        text = "".join(json.dumps(char)[1:-1] if char in hidden else char for char in text)
    return text.replace("##[", "#\\u0023[")


def short(name: str, limit: int = NAME_LIMIT) -> str:
    """Return a name as `plain` does, cut in the middle if it is longer than the limit."""
    if len(name) > limit:
        head = limit // 2
        name = f"{name[:head]}…{name[len(name) - (limit - head - 1) :]}"
    return plain(name)


def named(name: str, limit: int = NAME_LIMIT) -> str:
    """Return a name for use in a sentence, isolated so that a right-to-left name does not affect other words."""
    return f"{ISOLATE}{short(name, limit)}{END_ISOLATE}"


def code(text: str) -> str:
    """Mark code in a sentence or a cell; "" stays empty."""
    return f"{LEFT_TO_RIGHT}{plain(text)}{END_ISOLATE}" if text else ""


def without_isolates(text: str) -> str:
    """Remove isolates from a sentence, for terminals and other places that do not support them."""
    return ISOLATES.sub("", text)


def markdown(text: str, limit: int | None = None) -> str:
    """Apply `plain`, and escape every character with a meaning in Markdown or on GitHub.

    Sites detect mentions, issue numbers, addresses and commit hashes after they have removed escapes. So an invisible
    character breaks up each of these.
    """
    text = MARKDOWN_ESCAPED.sub(r"\\\g<0>", _unlinked(text, limit))
    text = MARKDOWN_ENTITY.sub(lambda match: MARKDOWN_ENTITIES[match.group()], text)
    return LINE_START.sub(_unlisted, text)


def markdown_sentence(text: str) -> str:
    """Apply `markdown` to a sentence or cell of secid, and mark its code."""
    return "".join(markdown_code(part) if place % 2 else markdown(part) for place, part in enumerate(CODE.split(text)))


def markdown_code(text: str) -> str:
    """Return Markdown code that the text cannot end early, also in a cell of a table."""
    line = plain(text).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def markdown_html(text: str, limit: int | None = None) -> str:
    """Escape a text for Markdown inside an HTML element, where a backslash would not escape and be visible."""
    return MARKUP.sub(lambda match: f"&#{ord(match.group())};", _unlinked(text, limit))


def _unlinked(text: str, limit: int | None) -> str:
    text = plain(text.replace(ISOLATE, "").replace(END_ISOLATE, ""), limit)
    return LINKED.sub(WORD_JOINER, COMMIT_HASH.sub(_parted, text))


def _parted(match: re.Match[str]) -> str:
    """Break up hexadecimal digits into parts that are too short for a commit hash. Numbers are unchanged."""
    text = match.group()
    return (
        text
        if text.isdigit()
        else WORD_JOINER.join(text[at : at + COMMIT_PART] for at in range(0, len(text), COMMIT_PART))
    )


def _unlisted(match: re.Match[str]) -> str:
    space, start = match.groups()
    return f"{space}{start}&#8288;" if start.isdigit() else f"{space}\\{start}"


@lru_cache(4096)
def _visible(char: str) -> str:
    if char in "\n\r\t":
        return " "
    return "\ufffd" if has_hidden_characters(char) else char


# Format numbers, in the same way on every page.

NO_BREAK_SPACE = "\u00a0"
SMALLEST_P = 1e-4
UNKNOWN_INTERVAL, UNKNOWN_HALF_WIDTH = "unknown: too few queries", "±?"
"""Words for an unknown interval, and for its half width."""
NATS_ROUNDING = 1e-12
"""A difference up to this, in nats, counts as 0. Adding float64 numbers in another order can cause it."""
TYPED_CHARACTERS = 6
"""Maximum length of a budget that a person would type. Computed budgets are longer."""


def nats(value: float | None, *, signed: bool = False) -> str:
    """Format a score or a difference, with four decimals below 10 and fewer above. Only zero is shown as zero."""
    if value is None or not isfinite(value):
        return "–"
    size = abs(value)
    if NATS_ROUNDING < size < 5e-5:
        return _minus(f"{value:+.1e}" if signed else f"{value:.1e}")
    decimals = 4 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0
    return _minus(f"{value:+,.{decimals}f}" if signed else f"{value:,.{decimals}f}")


def is_unknown(ends: tuple[float, float], budget: float = 1.0) -> bool:
    """Return True if an interval covers all possible values, since there are too few queries."""
    return tuple(ends) in ((0.0, budget), (-budget, budget))


def shown_interval(ends: tuple[float, float], budget: float = 1.0) -> str:
    """Format both ends of an interval in nats; UNKNOWN_INTERVAL with too few queries."""
    return UNKNOWN_INTERVAL if is_unknown(ends, budget) else f"{nats(ends[0])} to {nats(ends[1])}"


def with_interval(
    value: float | None, ends: tuple[float, float] | None, write: Callable[[float | None], str], between: str = "\n("
) -> str:
    """Format a number, and below it both ends of its interval in parentheses, without their unit."""
    if value is None or ends is None:
        return write(value)
    if is_unknown(ends):
        return f"{write(value)} {UNKNOWN_HALF_WIDTH}"
    low, high = (write(end).removesuffix(f"{NO_BREAK_SPACE}%") for end in ends)
    return f"{write(value)}{between}{low} to {high})"


def score_text(value: float | None, ends: tuple[float, float] | None, budget: float = 1.0) -> str:
    """Format a score with the upper half of its interval, as 0.385 ±0.036. The lower half may be cut at zero."""
    if value is None or ends is None:
        return "–"
    half = ends[1] - value
    decimals = (3 if half >= 0.001 or half < 5e-5 else 4) if value < 10 else 2 if value < 100 else 1
    if is_unknown(ends, budget):
        return f"{value:,.{decimals}f} {UNKNOWN_HALF_WIDTH}"
    return f"{value:,.{decimals}f} ±{half:,.{decimals}f}"


def gain(value: float, ends: tuple[float, float] | None) -> str:
    """Format a difference of a metric with half of its interval, if there is one, as +0.0123 ±0.0045."""
    half = "" if ends is None else f" ±{(ends[1] - ends[0]) / 2:.4f}"
    return f"{_minus(f'{value:+.4f}')}{half}"


def fraction(value: float | None, decimals: int = 3) -> str:
    """Format a mean or share, mostly in [0, 1], as a plain number."""
    return "–" if value is None or not isfinite(value) else _minus(f"{value:.{decimals}f}")


def signed(value: float | None) -> str:
    """Format a difference of means, scores or shares with its sign. One that rounds to 0 has no sign."""
    if value is None or not isfinite(value):
        return "–"
    return _minus(f"{value:+.3f}") if round(value, 3) else "0.000"


def percent(value: float | None) -> str:
    """Format a share in [0, 1] as a percentage. Only 0 is shown as 0, and only 1 as 100 %."""
    if value is None or not isfinite(value):
        return "–"
    if 0 < value < 0.001:
        return f"<{NO_BREAK_SPACE}0.1{NO_BREAK_SPACE}%"
    if 0.9995 <= value < 1:
        return f">{NO_BREAK_SPACE}99.9{NO_BREAK_SPACE}%"
    return f"{_minus(f'{100 * value:.1f}')}{NO_BREAK_SPACE}%"


def points(value: float | None) -> str:
    """Format a difference of two shares, in percentage points."""
    return "–" if value is None or not isfinite(value) else f"{_minus(f'{100 * value:+.1f}')}"


def count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def probability(value: float) -> str:
    return f"<{NO_BREAK_SPACE}{SMALLEST_P:.4f}" if value < SMALLEST_P else f"{value:.4f}"


def budget(value: float) -> str:
    """Format a budget: as a whole number if it is whole or at least 100, as typed if short, else with three digits."""
    if value >= 100 or value == round(value):
        return f"{value:,.0f}"
    return str(value) if len(str(value)) <= TYPED_CHARACTERS else f"{value:.3g}"


def seconds(value: float) -> str:
    return f"{value:.2f}{NO_BREAK_SPACE}s" if value < 100 else f"{value:,.0f}{NO_BREAK_SPACE}s"


def about(value: float) -> str:
    """Format an estimated time, rounded: "about 40 seconds", "about 12 minutes" or "about 29 hours"."""
    for size, unit in ((3600, "hour"), (60, "minute")):
        if value >= 1.5 * size:
            n = round(value / size)
            return f"about {count(n)} {unit}s"
    return f"about {plural(max(1, round(value)), 'second')}"


def plural(number: int, one: str, many: str | None = None) -> str:
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def span(values: Sequence[float], write: Callable[[float], str] = percent) -> str:
    """Format the lowest and the highest of one or more numbers, as one number if both look the same."""
    low, high = write(min(values)), write(max(values))
    return low if low == high else f"{low} to {high}"


def listed(items: Sequence[str], limit: int = 4) -> str:
    """Format a list: `a`, `a and b`, `a, b and c`. Beyond the limit, the number of the others is given."""
    shown = list(items[:limit])
    if len(items) > limit:
        shown = [*items[: limit - 1], f"{len(items) - limit + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""


def capital(text: str) -> str:
    """Return a clause with a capital first letter."""
    return f"{text[:1].upper()}{text[1:]}"


def _minus(text: str) -> str:
    text = text.replace("-", "\u2212")
    return text[1:] if text[:1] in "\u2212+" and not text.strip("\u2212+0.,") else text
