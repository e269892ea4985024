"""How numbers are written on every page: one way for each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite

SPACE = "\u00a0"
SMALLEST_P = 1e-4
UNKNOWN, HALF_UNKNOWN = "unknown: too few queries", "±?"
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
    """Whether an interval of a score, share or difference at a budget is all that is possible: too few queries."""
    return tuple(ends) in ((0.0, budget), (-budget, budget))


def interval(ends: tuple[float, float], budget: float = 1.0) -> str:
    """Both ends of an interval at a budget, in nats; UNKNOWN where there are too few queries for one."""
    return UNKNOWN if is_unknown(ends, budget) else f"{nats(ends[0])} to {nats(ends[1])}"


def with_interval(
    value: float | None, ends: tuple[float, float] | None, write: Callable[[float | None], str], between: str = "\n("
) -> str:
    """A number, and below it both ends of its interval in parentheses, their unit left out."""
    if value is None or ends is None:
        return write(value)
    if is_unknown(ends):
        return f"{write(value)} {HALF_UNKNOWN}"
    low, high = (write(end).removesuffix(f"{SPACE}%") for end in ends)
    return f"{write(value)}{between}{low} to {high})"


def score(value: float | None, ends: tuple[float, float] | None, budget: float = 1.0) -> str:
    """A score with the upper half of its interval (the lower one may be cut at zero), as 0.385 ±0.036."""
    if value is None or ends is None:
        return "–"
    half = ends[1] - value
    decimals = (3 if half >= 0.001 or half < 5e-5 else 4) if value < 10 else 2 if value < 100 else 1
    if is_unknown(ends, budget):
        return f"{value:,.{decimals}f} {HALF_UNKNOWN}"
    return f"{value:,.{decimals}f} ±{half:,.{decimals}f}"


def gain(value: float, ends: tuple[float, float] | None) -> str:
    """A difference of a measure with half its interval, as +0.0123 ±0.0045; alone where it has no interval."""
    half = "" if ends is None else f" ±{(ends[1] - ends[0]) / 2:.4f}"
    return f"{_minus(f'{value:+.4f}')}{half}"


def fraction(value: float | None, decimals: int = 3) -> str:
    """A mean or share, mostly in [0, 1], as a plain number."""
    return "–" if value is None or not isfinite(value) else _minus(f"{value:.{decimals}f}")


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
    """A budget, in draws: whole where it is or is large, as it was given where that is short, else three digits."""
    if value >= 100 or value == round(value):
        return f"{value:,.0f}"
    return str(value) if len(str(value)) <= GIVEN_CHARACTERS else f"{value:.3g}"


def seconds(value: float) -> str:
    """A time."""
    return f"{value:.2f}{SPACE}s" if value < 100 else f"{value:,.0f}{SPACE}s"


def plural(number: int, one: str, many: str | None = None) -> str:
    """A count with its noun."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def rounded(number: int) -> int:
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
