"""Building blocks of all charts: elements, scales and axes.

Presentation attributes carry what the page needs without its stylesheet; classes carry colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

from markupsafe import Markup, escape

from secid.pages.sanitize import plain

FONT = 14
"""Size of all words: on a phone of 360 pixels just under 10."""
NAME_CHARACTERS = 28
"""Of a name in a chart, as many as fit on a wide screen; page.css cuts it on a phone, the answer table has it whole."""
TICKS = 5
"""Of an axis, about."""
SOURCE_COLOUR = "#0b6bcb"
"""Of sources where the page's style is off; page.css has the same, and another for the dark."""


def tag(name: str, body: Markup | str = "", /, **attributes: object) -> Markup:
    """One element. Values are escaped; `_` in a name is `-` (`class_` is class); None leaves it out.

    The class of sources brings its colour along.
    """
    if str(attributes.get("class_")).split()[0] == "src":
        attributes["color"] = SOURCE_COLOUR
    parts = [
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _value(value))
        for key, value in attributes.items()
        if value is not None
    ]
    start = Markup("<{}{}").format(Markup(name), Markup("").join(parts))  # noqa: S704  names are ours
    return start + (Markup(">{}</{}>").format(escape(body), Markup(name)) if body else Markup("/>"))  # noqa: S704


def _value(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def words(
    x: float | str, y: float, text: str, *, dx: float = 0.0, anchor: str | None = None, class_: str | None = None
) -> Markup:
    """A line of text, dx units to the right of x."""
    return tag("text", text or " ", x=x, y=y, dx=dx or None, text_anchor=anchor, class_=class_)


def dot(x: str, y: float, class_: str, tip: str, radius: float = 4.5, dx: float = 0.0) -> Markup:
    """A source's filled dot, or a control's hollow one, dx units to the right of x. tip: shown under the pointer."""
    fill = "none" if class_ == "ctl" else None
    return tag(
        "circle",
        tag("title", plain(tip)),
        cx=x,
        cy=y,
        r=radius,
        class_=class_,
        stroke="currentColor",
        fill=fill,
        transform=f"translate({dx:g} 0)" if dx else None,
    )


def line(
    x1: float | str,
    y1: float,
    x2: float | str,
    y2: float,
    class_: str,
    dash: str | None = None,
    opacity: float | None = None,
) -> Markup:
    """A straight line; x in units or, as "12%", of the width."""
    return tag(
        "line",
        x1=x1,
        y1=y1,
        x2=x2,
        y2=y2,
        stroke="currentColor",
        class_=class_,
        stroke_dasharray=dash or None,
        stroke_opacity=f"{opacity:g}" if opacity is not None else None,
    )


def wide(body: Sequence[Markup], height: float, class_: str = "strip", **attributes: object) -> Markup:
    """An SVG as wide as its place, for shapes whose x is a share of the width: its words keep their size.

    It shows what leaves it to the left, such as the numbers of an axis.
    """
    return tag(
        "svg",
        Markup("").join(body),
        xmlns="http://www.w3.org/2000/svg",
        width="100%",
        height=ceil(height),
        fill="currentColor",
        overflow="visible",
        class_=class_,
        font_size=FONT,
        **attributes,
    )


def across(scale: Scale, value: float) -> str:
    """A place of a scale from 0 to 100 as a share of the width."""
    return f"{scale(value):.2f}%"


def grid_across(scale: Scale, bottom: float, top: float = 0.0) -> list[Markup]:
    """Vertical grid lines."""
    places = [across(scale, value) for value in ticks(scale.low, scale.high)]
    return [line(at, top, at, bottom, "grid", opacity=0.2) for at in places]


def numbers_across(scale: Scale, y: float) -> list[Markup]:
    """The numbers of the grid lines."""
    return [
        words(across(scale, value), y, f"{value:g}".replace("-", "−"), anchor="middle", class_="tick")
        for value in ticks(scale.low, scale.high)
    ]


@dataclass(frozen=True)
class Scale:
    """Values to places along one axis."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        return self.start + (self.end - self.start) * ((value - low) / (high - low) if high > low else 0.5)


def around(values: Sequence[float]) -> tuple[float, float]:
    """A range from zero that holds all values with some air; never empty."""
    known = [0.0, *(value for value in values if isfinite(value))]
    low, high = min(known), max(known)
    air = (high - low) * 0.06 or 1.0
    return (low - air if low < 0 else low, high + air)


def ticks(low: float, high: float) -> list[float]:
    """About TICKS round values from low to high."""
    step = 10 ** floor(log10((high - low) / TICKS)) if high > low else 1.0
    step *= next((factor for factor in (1, 2, 5) if (high - low) / (step * factor) <= TICKS), 10)
    first = ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, floor(high / step + 1e-9) + 1)]
