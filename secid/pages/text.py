"""Numbers as every page writes them, and untrusted text made harmless."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isfinite

from secid.results.inputs import has_hidden_characters

# Untrusted text (names, passages, paths) made harmless for each kind of page.

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
    return "".join(map(_visible, text))


def without_commands(line: str) -> str:
    """Change a line so that no CI service takes it for a command, and no script for a verdict.

    GitHub acts on lines with :: first, after white space, and on ##[ anywhere; `verdict_line` begins with VERDICT:.
    """
    if line.lstrip().startswith("::") or "##[" in line:
        line = line.replace("::", ": :").replace("##[", "## [")
    return VERDICT.sub(r"\1 :", line)


def log_line(text: str) -> str:
    """Return any text as one line for a terminal or a log: `plain`, then `without_commands`."""
    return without_commands(plain(text))


def json_shown(text: str) -> str:
    """Return the same JSON document for a terminal or a log: characters that no line may hold become \\u escapes."""
    if not text.replace("\n", "").isprintable():
        text = "".join(_escaped(char) for char in text)
    return text.replace("##[", "#\\u0023[")


def short(name: str, limit: int = NAME_LIMIT) -> str:
    """A name as `plain`, cut in its middle if it is longer than limit."""
    if len(name) > limit:
        head = limit // 2
        name = f"{name[:head]}…{name[len(name) - (limit - head - 1) :]}"
    return plain(name)


def named(name: str, limit: int = NAME_LIMIT) -> str:
    """A name within a sentence, isolated so that right-to-left names keep to themselves."""
    return f"{ISOLATE}{short(name, limit)}{END_ISOLATE}"


def code(text: str) -> str:
    """Mark what a reader would type, within a sentence or as a cell; "" stays empty."""
    return f"{LEFT_TO_RIGHT}{plain(text)}{END_ISOLATE}" if text else ""


def without_isolates(text: str) -> str:
    """The sentence for places that do not know isolates, such as terminals."""
    return ISOLATES.sub("", text)


def markdown(text: str, limit: int | None = None) -> str:
    """Apply `plain`, and escape every character that means something to Markdown or GitHub.

    Sites detect mentions, issue numbers, addresses and commit hashes after they have undone escapes, so an invisible
    character breaks up each of these.
    """
    text = MARKDOWN_ESCAPED.sub(r"\\\g<0>", _unlinked(text, limit))
    text = MARKDOWN_ENTITY.sub(lambda match: MARKDOWN_ENTITIES[match.group()], text)
    return LINE_START.sub(_unlisted, text)


def markdown_sentence(text: str) -> str:
    """Apply `markdown` to a sentence or cell of ours, and keep its code as code."""
    return "".join(markdown_code(part) if place % 2 else markdown(part) for place, part in enumerate(CODE.split(text)))


def markdown_code(text: str) -> str:
    """Code that no text can leave, also in a cell of a table."""
    line = plain(text).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def markdown_html(text: str, limit: int | None = None) -> str:
    """Apply `markdown` for the inside of an HTML element, where a backslash would escape nothing and be visible."""
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
    return json.dumps(char)[1:-1] if char != "\n" and has_hidden_characters(char) else char


@lru_cache(4096)
def _visible(char: str) -> str:
    if char in "\n\r\t":
        return " "
    return "\ufffd" if has_hidden_characters(char) else char


# How numbers are written on every page: one way for each kind.

SPACE = "\u00a0"
SMALLEST_P = 1e-4
UNKNOWN_INTERVAL, UNKNOWN_HALF_WIDTH = "unknown: too few queries", "±?"
"""In the place of an interval, and of its half-width."""
ROUNDING = 1e-12
"""Nats below which a difference is left by adding float64 numbers in another order."""
GIVEN_CHARACTERS = 6
"""Longest budget that a person would type; those that are computed have more."""


def nats(value: float | None, *, signed: bool = False) -> str:
    """A score or a difference of scores; four decimals below 10, fewer above. What is not zero never reads as zero."""
    if value is None or not isfinite(value):
        return "–"
    size = abs(value)
    if ROUNDING < size < 5e-5:
        return _minus(f"{value:+.1e}" if signed else f"{value:.1e}")
    decimals = 4 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0
    return _minus(f"{value:+,.{decimals}f}" if signed else f"{value:,.{decimals}f}")


def is_unknown(ends: tuple[float, float], budget: float = 1.0) -> bool:
    """Return whether an interval of a score, share or difference covers all possible values: too few queries."""
    return tuple(ends) in ((0.0, budget), (-budget, budget))


def shown_interval(ends: tuple[float, float], budget: float = 1.0) -> str:
    """Both ends of an interval at a budget, in nats; UNKNOWN_INTERVAL where there are too few queries for one."""
    return UNKNOWN_INTERVAL if is_unknown(ends, budget) else f"{nats(ends[0])} to {nats(ends[1])}"


def with_interval(
    value: float | None, ends: tuple[float, float] | None, write: Callable[[float | None], str], between: str = "\n("
) -> str:
    """A number, and below it both ends of its interval in parentheses, their unit left out."""
    if value is None or ends is None:
        return write(value)
    if is_unknown(ends):
        return f"{write(value)} {UNKNOWN_HALF_WIDTH}"
    low, high = (write(end).removesuffix(f"{SPACE}%") for end in ends)
    return f"{write(value)}{between}{low} to {high})"


def score_text(value: float | None, ends: tuple[float, float] | None, budget: float = 1.0) -> str:
    """A score with the upper half of its interval (the lower one may be cut at zero), as 0.385 ±0.036."""
    if value is None or ends is None:
        return "–"
    half = ends[1] - value
    decimals = (3 if half >= 0.001 or half < 5e-5 else 4) if value < 10 else 2 if value < 100 else 1
    if is_unknown(ends, budget):
        return f"{value:,.{decimals}f} {UNKNOWN_HALF_WIDTH}"
    return f"{value:,.{decimals}f} ±{half:,.{decimals}f}"


def gain(value: float, ends: tuple[float, float] | None) -> str:
    """A difference of a measure with half its interval, as +0.0123 ±0.0045; without it if there is no interval."""
    half = "" if ends is None else f" ±{(ends[1] - ends[0]) / 2:.4f}"
    return f"{_minus(f'{value:+.4f}')}{half}"


def fraction(value: float | None, decimals: int = 3) -> str:
    """A mean or share, mostly in [0, 1], as a plain number."""
    return "–" if value is None or not isfinite(value) else _minus(f"{value:.{decimals}f}")


def signed(value: float | None) -> str:
    """A difference of means, scores or shares, with its sign; without one if it rounds to 0."""
    if value is None or not isfinite(value):
        return "–"
    return _minus(f"{value:+.3f}") if round(value, 3) else "0.000"


def percent(value: float | None) -> str:
    """A share in [0, 1] as a percentage; what is not zero never reads as zero, nor what is not one as one."""
    if value is None or not isfinite(value):
        return "–"
    if 0 < value < 0.001:
        return f"<{SPACE}0.1{SPACE}%"
    if 0.9995 <= value < 1:
        return f">{SPACE}99.9{SPACE}%"
    return f"{_minus(f'{100 * value:.1f}')}{SPACE}%"


def points(value: float | None) -> str:
    """A difference of two shares, in percentage points."""
    return "–" if value is None or not isfinite(value) else f"{_minus(f'{100 * value:+.1f}')}"


def count(value: float | None) -> str:
    """A number of things."""
    return "–" if value is None else f"{value:,.0f}"


def probability(value: float) -> str:
    """A p value."""
    return f"<{SPACE}{SMALLEST_P:.4f}" if value < SMALLEST_P else f"{value:.4f}"


def budget(value: float) -> str:
    """A budget, in draws: whole if it is whole or large, as typed if that is short, else to three digits."""
    if value >= 100 or value == round(value):
        return f"{value:,.0f}"
    return str(value) if len(str(value)) <= GIVEN_CHARACTERS else f"{value:.3g}"


def seconds(value: float) -> str:
    """A time."""
    return f"{value:.2f}{SPACE}s" if value < 100 else f"{value:,.0f}{SPACE}s"


def plural(number: int, one: str, many: str | None = None) -> str:
    """A count with its noun."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def two_digits(number: int) -> int:
    """An estimate to two significant digits, upwards: it is no more exact than that."""
    step: int = 10 ** max(0, len(str(number)) - 2)
    return -(-number // step) * step


def letter(group: int | None) -> str:
    """The letter of a group of ties: A for 1, Z for 26, AA for 27; "–" for a source that is compared with no other."""
    if group is None:
        return "–"
    text = ""
    while group > 0:
        group, place = divmod(group - 1, 26)
        text = chr(ord("A") + place) + text
    return text


def listed(items: Sequence[str], limit: int = 4) -> str:
    """`a`, `a and b`, `a, b and c`; beyond the limit, how many more."""
    shown = list(items[:limit])
    if len(items) > limit:
        shown = [*items[: limit - 1], f"{len(items) - limit + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""


def capital(text: str) -> str:
    """A clause as the start of a sentence."""
    return f"{text[:1].upper()}{text[1:]}"


def _minus(text: str) -> str:
    text = text.replace("-", "\u2212")
    return text[1:] if text[:1] in "\u2212+" and not text.strip("\u2212+0.,") else text
