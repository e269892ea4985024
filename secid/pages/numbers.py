"""How numbers are written on every page: one way for each kind."""

from __future__ import annotations

from math import isfinite

SPACE = "\u00a0"
SMALLEST_P = 1e-4
UNTOLD, HALF_UNTOLD = "unknown: too few queries", "±?"
"""In the place of an interval, in sentences and tables, and in the narrow columns of a terminal."""
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


def is_untold(ends: tuple[float, float], budget: float) -> bool:
    """Whether an interval of a score, or of a difference, at a budget is all that there can be: too few queries."""
    return tuple(ends) in ((0.0, budget), (-budget, budget))


def interval(ends: tuple[float, float], space: str = SPACE, budget: float = 1.0) -> str:
    """Both ends of an interval at a budget, in nats; UNTOLD where there are too few queries for one.

    space: an ordinary one lets it break where room is scarce.
    """
    if is_untold(ends, budget):
        return UNTOLD
    return f"{nats(ends[0])}{space}to{space}{nats(ends[1])}"


def half_width(value: float, ends: tuple[float, float], budget: float = 1.0) -> str:
    """The upper half of an interval (the lower one may be cut at zero); HALF_UNTOLD where there is none to tell."""
    if is_untold(ends, budget):
        return HALF_UNTOLD
    return f"±{nats(ends[1] - value)}"


def fraction(value: float | None) -> str:
    """A mean or share in [0, 1] as a plain number."""
    return "–" if value is None or not isfinite(value) else _minus(f"{value:.3f}")


def percent(value: float | None) -> str:
    """A share in [0, 1] as a percentage; what is not zero never reads as zero, nor what is not one as one."""
    if value is None or not isfinite(value):
        return "–"
    if 0 < value < 0.001:
        return f"<{SPACE}0.1{SPACE}%"
    if 0.9995 <= value < 1:
        return f">{SPACE}99.9{SPACE}%"
    return f"{_minus(f'{100 * value:.1f}')}{SPACE}%"


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


def listed(items: list[str] | tuple[str, ...], limit: int = 4) -> str:
    """`a`, `a and b`, `a, b and c`; beyond the limit, how many more."""
    shown = list(items[:limit])
    if len(items) > limit:
        shown = [*items[: limit - 1], f"{len(items) - limit + 1} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""


def _minus(text: str) -> str:
    text = text.replace("-", "\u2212")
    return text[1:] if text[:1] in "\u2212+" and not text.strip("\u2212+0.,") else text
